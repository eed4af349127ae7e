"""Load what was built: `dlc.load(DIR)`, or a program's file, gives a function of arrays."""

from __future__ import annotations

import os
from pathlib import Path

from dlc.api.backend import Backend
from dlc.api.program import Program
from dlc.api.source import Source
from dlc.base.diagnostics import ExitCode, Location, error
from dlc.base.wrong_kind import wrong_kind
from dlc.files.inputs import Inputs
from dlc.plugins.registry import Registry
from dlc.runtime.manifest import read_manifest
from dlc.spec import Spec


def load(program: str | Path, registry: Registry | None = None, *, max_memory: int | None = None) -> Program:
    """The program in a directory or a file, ready to be called with arrays by input name.

    Args:
        program: Where `dlc build` wrote to; or a file that is a whole program for its backend.
        registry: Backends to choose from; the installed ones by default.
        max_memory: Bytes that a program may take, where its backend bounds that, as a simulator of a device does;
            None: the backend's own limit.

    Returns:
        The program: called with arrays by input name, it returns arrays by output name.

    Raises:
        DlcError: there is no program, its backend is not installed, or it cannot run on this machine.
    """
    from dlc.plugins.discovery import BACKENDS, load_registry

    if not isinstance(program, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        help = "give the directory that dlc build wrote to; dlc.build and dlc.compile load what they build"
        raise wrong_kind("program", program, "the path of a program's directory or file", help)
    path = Path(program)
    backend = made_by(path, registry or load_registry(kinds=BACKENDS), max_memory)
    # A program is what a command made, and may make anew: it is none of the files that a build must find unchanged.
    with Inputs().active():
        return backend.load_file(Source(path)) if path.is_file() else backend.load(path)


def made_by(path: Path, registry: Registry, max_memory: int | None = None) -> Backend:
    """The backend that made the program in a directory or file. Raises DlcError as `load` does."""
    if not path.is_file():
        spec = Spec.parse(read_manifest(path).target, str(path / "manifest.json"))
        return _limited(registry.backend(spec), max_memory)
    found = registry.backend_for(Source(path))
    if found is None:
        raise error(
            "not-an-artifact",
            f"{path} is not a program that an installed backend reads",
            location=Location(str(path)),
            help="give the directory that dlc build wrote to",
            exit_code=ExitCode.USAGE,
        )
    return _limited(found, max_memory)


def _limited(backend: Backend, memory: int | None) -> Backend:
    return backend if memory is None else backend.limited(memory)
