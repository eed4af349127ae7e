"""A program's file in the simulator, as a function of arrays; one that learns as a training program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath

from dlc import DlcError
from dlc.api.program import Signature
from dlc.api.source import Source
from dlc.api.training import Classes
from dlc.base.diagnostics import Location, error
from dlc.runtime.array_program import ArrayProgram
from dlc.runtime.manifest import read_manifest
from dlc.spec import Spec
from dlc_backend_s2train.artifact import memory_of, signature_of
from dlc_backend_s2train.container.files import check
from dlc_backend_s2train.defaults import LIMIT
from dlc_backend_s2train.program import Entry, Program
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Mode
from dlc_backend_s2train.simulator.training import SimulatedTraining, entry_of, identity_of, learns


def load(directory: Path, limit: int) -> ArrayProgram | SimulatedTraining:
    """An installed program: what was built for training learns, anything else is its first entry.

    Raises:
        DlcError: the directory has no such program; as `load_file`.
    """
    manifest = read_manifest(directory)
    source = Source(directory / str(manifest.data["entry"]))
    options = dict(Spec.parse(manifest.target, "manifest.json").options)
    mode: Mode = "bit-true" if str(options.get("simulate")) == "bit-true" else "fast"
    return load_file(source, mode, limit)


def load_file(source: Source, mode: Mode, limit: int = LIMIT) -> ArrayProgram | SimulatedTraining:
    """As `load`, of a file from anywhere; it may take `limit` bytes of memory.

    Raises:
        DlcError: the file is damaged, the verifier finds something wrong, or there is nothing to call.
    """
    found = check(source, limit)
    program = found.program
    if not program.entries:
        raise _unusable(source, "it has no entry that could be called")
    machine = Machine(found, mode)
    entries = {entry.name: entry for entry in program.entries}
    if learns(program):
        return _trained(source, machine, {name: _signature(source, program, e) for name, e in entries.items()})
    first = program.entries[0]
    return entry_of(machine, first.name, _signature(source, program, first))


def _signature(source: Source, program: Program, entry: Entry) -> Signature:
    try:
        return signature_of(program, entry)
    except ValueError as problem:
        raise _unusable(source, f"its meta data do not tell what its inputs may be: {problem}") from None


def _trained(source: Source, machine: Machine, entries: Mapping[str, Signature]) -> SimulatedTraining:
    meta = machine.program.meta
    try:
        ignored = int(meta["ignore"]) if "ignore" in meta else None
        classes = Classes(int(meta["classes"]), ignored) if "classes" in meta else None
    except ValueError:
        raise _unusable(source, "its meta data tell numbers of classes that are no numbers") from None
    facts: dict[str, int | str] = {key: meta[key] for key in ("loss", "optimizer", "updates") if key in meta}
    facts |= memory_of(machine.program)
    signatures = entries["step"], entries["evaluate"]
    identity = identity_of(source.view())
    return SimulatedTraining(
        entries["predict"], machine, identity, *signatures, classes, facts, _template(source, meta)
    )


def _template(source: Source, meta: Mapping[str, str]) -> tuple[str, bytes]:
    """(suffix, content) of the model that lies beside the file; nothing where it does not."""
    path = source.path.parent / PurePath(meta.get("template", "")).name if source.path else None
    if path is None or not path.is_file():
        return "", b""
    return path.suffix, bytes(Source(path).view())


def _unusable(source: Source, reason: str) -> DlcError:
    return error("bad-s2t", f"{source.name} cannot run: {reason}", location=Location(source.name))
