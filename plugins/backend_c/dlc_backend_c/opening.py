"""Opening a shared library so that nobody else's is meant."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any


def open_library(ffi: Any, library: Path, apart: bool) -> Any:
    """What `ffi.dlopen` gives for the file that lies at a path now.

    The loader of the system knows a library by its path first: where a model was built again into the same directory
    while its first program is in use, it would give that one once more. A link with a name of its own is new to it. It
    then compares files, so one that is unchanged is shared with its variables: those that have any are taken `apart`.

    Args:
        ffi: A cffi.FFI.
        library: The file.
        apart: Whether the library has variables that are set after loading, as where weights are mapped.

    Raises:
        OSError: it cannot be loaded.
    """
    with tempfile.TemporaryDirectory(prefix="dlc-load-") as place:
        name = Path(place, library.name)
        if apart:
            shutil.copyfile(library, name)
        else:
            name.symlink_to(library.resolve())
        return ffi.dlopen(str(name))
