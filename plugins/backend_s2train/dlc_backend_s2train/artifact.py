"""A plan as an artifact with its `.s2t` file, and an installed one as a function of arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import dlc
import dlc_backend_s2train
from dlc import Artifact, DlcError, Report, Type
from dlc.diagnostics import ExitCode, error
from dlc.interfaces import Port, Signature, Source
from dlc.manifest import read_manifest
from dlc.plan import Plan
from dlc.program import ArrayProgram
from dlc.spec import Spec
from dlc.types import Array, DType, f32, i64
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.emit import program_of
from dlc_backend_s2train.instruction import S2Instruction
from dlc_backend_s2train.program import Arena, Element, Entry, Program
from dlc_backend_s2train.simulate import Machine

if TYPE_CHECKING:
    from dlc_backend_s2train.backend import S2Train

SUFFIX = ".s2t"
_LONGEST = 64


def file_title(title: str) -> str:
    """A file's name for a model's title: letters, digits, _ and -."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", title).strip("_")[:_LONGEST] or "model"


def artifact_of(plan: Plan, options: S2Train, report: Report) -> Artifact:
    """The file of a plan.

    Raises:
        DlcError: (USAGE) the plan has steps that are no instructions, or no places for its values.
    """
    _check(plan)
    # A step with labels trains; without, it predicts.
    trains = any(i.role == "label" for i in plan.graph.inputs)
    program = program_of({"step" if trains else "predict": plan})
    meta = {"dlc": dlc.__version__, "dlc-backend-s2train": dlc_backend_s2train.__version__, "target": str(options)}
    program = replace(program, meta=meta | {k: str(v) for k, v in sorted(plan.facts.items())})
    if problems := verify(program):
        raise AssertionError(f"the program does not pass its own checks: {problems[0].message}")
    (entry,) = program.entries
    name = f"{options.prefix or 'model'}{SUFFIX}"
    facts = {**plan.facts, **memory_of(program), "instructions": len(program.instructions)}
    report.count("instructions", len(program.instructions))
    report.count("tensors", len(program.tensors))
    return Artifact(str(options), {name: write(program)}, name, signature_of(program, entry), facts)


def memory_of(program: Program) -> dict[str, int]:
    """Bytes by what lies there: weights and states; the plan's arena."""
    ends = [s.address + s.size for s in program.storages if s.arena not in (Arena.HOST, Arena.WEIGHTS)]
    begins = [s.address for s in program.storages if s.arena not in (Arena.HOST, Arena.WEIGHTS)]
    weights = sum(s.size for s in program.storages if s.arena is Arena.WEIGHTS)
    return {"arena_bytes": max(ends, default=0) - min(begins, default=0), "weights_bytes": weights}


def signature_of(program: Program, entry: Entry) -> Signature:
    """How an entry is called: floats as f32, labels as i64; weights stay in the device."""

    def port(name: str, tensor: int) -> Port:
        view = program.tensors[tensor]
        dtype: DType = i64 if view.element is Element.INT32 else f32
        return Port(name, Type(dtype, view.shape))

    given, made = (*entry.inputs, *entry.labels), entry.outputs
    return Signature(tuple(port(*g) for g in given), tuple(port(*m) for m in made))


def load(directory: Path) -> ArrayProgram:
    """The first entry of an installed program, in the simulator; its weights move from call to call if it trains."""
    manifest = read_manifest(directory)
    name = str(manifest.data["entry"])
    source = Source(directory / name)
    program = read(source.view(), source.name)
    options = dict(Spec.parse(manifest.target, "manifest.json").options)
    machine = Machine(program, "bit-true" if str(options.get("simulate")) == "bit-true" else "fast")
    (entry, *_) = program.entries
    signature = signature_of(program, entry)

    def run(*arrays: Array) -> Sequence[Array]:
        given = {port.name: array for port, array in zip(signature.inputs, arrays, strict=True)}
        found = machine.run(entry.name, given)
        return [found[port.name] for port in signature.outputs]

    return ArrayProgram(signature, run)


def _check(plan: Plan) -> None:
    if any(not isinstance(step, S2Instruction) for step in plan.steps) or not plan.steps:
        raise _refused("the pipeline leaves steps that are no instructions", "put s2-select before schedule")
    over = {plan.graph.outputs[i].digest for i, _ in plan.graph.aliases}
    outputs = {o.digest for o in plan.graph.outputs} | over
    if any(digest not in plan.slots and digest not in outputs for digest in plan.values):
        raise _refused("the plan has no places for its values", "end the pipeline with plan-memory")


def _refused(message: str, help: str) -> DlcError:
    return error("not-planned", f"s2train: {message}", help=help, exit_code=ExitCode.USAGE)
