"""Load what was built: `dlc.load(DIR)` gives a function of arrays."""

from __future__ import annotations

from pathlib import Path

from dlc.interfaces import Program
from dlc.manifest import read_manifest
from dlc.registry import Registry
from dlc.spec import Spec


def load(directory: str | Path, registry: Registry | None = None) -> Program:
    """The program installed in `directory`, ready to be called with arrays by input name.

    Args:
        directory: Where `dlc build` wrote to.
        registry: Backends to choose from; the installed ones by default.

    Raises:
        DlcError: the directory holds no program, its backend is not installed, or it cannot run on this machine.
    """
    from dlc.plugins import load_registry

    directory = Path(directory)
    manifest = read_manifest(directory)
    found = registry or load_registry(kinds=("backends",))
    return found.backend(Spec.parse(manifest.target, str(directory / "manifest.json"))).load(directory)
