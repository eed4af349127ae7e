"""A program to call, from a directory or from a model that is built on the way: what `run` and `verify` share."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc.api.program import Program
from dlc.api.source import Source
from dlc.base.diagnostics import DlcError, ExitCode, error, quote
from dlc.base.types import Array
from dlc.cli.options import WORDS, BuildOptions, CacheOptions
from dlc.cli.terminal import Terminal
from dlc.cli.workspace import Workspace
from dlc.plugins.discovery import BACKENDS, KINDS
from dlc.runtime.feeds import random_feeds, read_feeds
from dlc.runtime.sizes import at_sizes, is_size, with_likely

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.api.device_run import DeviceRun


@dataclass(frozen=True)
class Opened:
    """A loaded program."""

    program: Program
    space: Workspace
    backend: Backend
    """Which made it."""
    built: bool
    """Whether it was built before, and not from a model just now."""


def program_file(space: Workspace, subject: str) -> tuple[Backend, Source] | None:
    """A file that is a whole program, and the backend that reads it; None for anything else."""
    path = Path(subject)
    source = Source(path)
    backend = space.registry.backend_for(source) if path.is_file() else None
    return None if backend is None else (backend, source)


def built_file(space: Workspace, subject: str, max_memory: int | None = None) -> tuple[Backend, Source] | None:
    """As `program_file`; of a directory that holds a program, the file that is the whole of it, if there is one."""
    path = Path(subject)
    from dlc.runtime.loading import made_by
    from dlc.runtime.manifest import read_manifest

    if not path.is_dir():
        found = program_file(space, subject)
        return found and (made_by(path, space.registry, max_memory), found[1])
    backend = made_by(path, space.registry)
    entry = path / str(read_manifest(path).data.get("entry", ""))
    if entry.suffix not in backend.suffixes:
        return None
    return made_by(path, space.registry, max_memory), Source(entry)


@contextmanager
def open_program(
    terminal: Terminal,
    choice: BuildOptions,
    cache: CacheOptions,
    max_memory: int | None = None,
    *,
    only_called: bool = False,
    device_run: DeviceRun | None = None,
) -> Generator[Opened]:
    """The program that `choice.model` names: a directory or file with one, or a model, built into a temporary one.

    `only_called`: nothing else is done with a program that is built; its workspace knows backends alone.
    `device_run`: what is wanted of its run, where it is one of a device's instructions.
    """
    from dlc.runtime.loading import made_by

    space = Workspace.open(terminal, cache, BACKENDS if only_called and Path(choice.model).is_dir() else KINDS)
    if Path(choice.model).is_dir() or program_file(space, choice.model):
        refuse_flags(choice)
        backend = made_by(Path(choice.model), space.registry)
        yield Opened(_loaded(space, choice.model, max_memory, device_run), space, backend, built=True)
        return
    with tempfile.TemporaryDirectory(prefix="dlc-") as made:
        space.build_into(space.prepare(choice), Path(made))
        program = _loaded(space, made, max_memory, device_run)
        yield Opened(program, space, made_by(Path(made), space.registry), built=False)


def _loaded(space: Workspace, subject: str, max_memory: int | None, device_run: DeviceRun | None) -> Program:
    from dlc.runtime.loading import load, made_by

    if device_run is None or not device_run.flags:
        return load(subject, space.registry, max_memory=max_memory)
    found = built_file(space, subject, max_memory)
    backend, source = found or (made_by(Path(subject), space.registry), Source(Path(subject)))
    return backend.load_device_run(source, device_run)


@contextmanager
def own_model(program: Any) -> Generator[Path | None]:
    """The model that a program was built from, as it holds it: one that learns may; None: it does not."""
    if not hasattr(program, "save_onnx"):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="dlc-") as made:
        path = Path(made) / "model.onnx"
        try:
            program.save_onnx(path)
        except DlcError:  # its model cannot be written, or did not come along with the program's file
            yield None
        else:
            yield path


def bound(opened: Opened, choice: BuildOptions, model: Path, feeds: Mapping[str, Array]) -> BuildOptions:
    """The choice of a model: that behind a program has the shapes that the program was built for, or is called with."""
    chosen = replace(choice, model=str(model))
    frontend, _ = opened.space.reader(opened.space.source(chosen.model), chosen)
    inputs = opened.program.signature.inputs
    sized = any(p.type.is_open for p in inputs)
    if not (opened.built or sized) or "input" not in {doc.key for doc in frontend.options_doc()}:
        return chosen
    shapes = {p.name: "x".join(map(str, feeds[p.name].shape)) for p in inputs if p.type.symbol is None}
    given = tuple(f"{name}:{shape}" for name, shape in shapes.items() if shape)
    return replace(chosen, inputs=given, dims=() if sized else chosen.dims)


def gather_feeds(
    program: Program, files: Sequence[str], seed: int, sizes: Mapping[str, int] = MappingProxyType({})
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Inputs from files and the rest random, the same for equal seeds; and the names of the random ones.

    What neither files nor `sizes` tell, by the names of their inputs, has its likely size.
    """
    signature = program.signature
    given = read_feeds(files, signature.inputs)
    told = {name: np.asarray(size, np.int64) for name, size in sizes.items()}
    every = with_likely(signature.inputs, {**told, **given})
    ports = [p for p in at_sizes(signature, every).inputs if not is_size(p)]
    return {**random_feeds(ports, seed), **given}, tuple(p.name for p in ports if p.name not in given)


def tell_random(terminal: Terminal, names: Sequence[str], seed: int) -> None:
    """Nobody should take results on random inputs for results on data."""
    if names and not terminal.quiet:
        terminal.log(f"random, seed {seed}: {', '.join(map(quote, names))}")


def call(program: Program, feeds: dict[str, Array], out: dict[str, Array] | None = None) -> dict[str, Array]:
    """Outputs by name."""
    return program(out=out, **feeds)


def refuse_flags(choice: BuildOptions) -> None:
    """Flags that say how to build have no effect on what is already built."""
    for name, value in choice.asked.items():
        if value:
            flag = WORDS[name][0]
            raise error(
                "no-effect",
                f"{flag}: {choice.model} is already built",
                help="give the model instead of the program, or leave the flag out",
                exit_code=ExitCode.USAGE,
            )
