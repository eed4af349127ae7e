"""`Source`: a model as the user gave it."""

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dlc.base.diagnostics import Location, error
from dlc.base.wrong_kind import wrong_kind
from dlc.files.hashing import bytes_blake3, settled_digest


@dataclass(frozen=True)
class Source:
    """A model as the user gave it: a file, or bytes with a name."""

    path: Path | None = None
    """The file; None when `data` holds the content."""
    data: bytes = b""
    """The content, when there is no file."""
    label: str = ""
    """How messages call it; the path by default."""

    def __post_init__(self) -> None:
        """A path may be given as text. Raises DlcError (USAGE): it is no path, or the content no bytes."""
        path, data = cast("tuple[object, object]", (self.path, self.data))
        if isinstance(path, str):
            object.__setattr__(self, "path", Path(path))
        elif path is not None and not isinstance(path, Path):
            raise wrong_kind("path", path, "the path of a file", "content is given as Source(data=…)")
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise wrong_kind("data", data, "the content as bytes", "a text becomes bytes by text.encode()")

    @property
    def name(self) -> str:
        """How messages call it."""
        return self.label or (str(self.path) if self.path else "<bytes>")

    @property
    def title(self) -> str:
        """What generated names start from: the file's name without its extension."""
        return (self.path or Path(self.name)).stem

    @property
    def suffix(self) -> str:
        """Lower-case file extension with its dot, or ""."""
        return (self.path or Path(self.label)).suffix.lower()

    @property
    def digest(self) -> str:
        """BLAKE3 of the content in hexadecimal, read in blocks; a file is read once per process while it is unchanged.

        Raises DlcError when the file cannot be read.
        """
        if self.path is None:
            return bytes_blake3(self.data)
        try:
            return settled_digest(self.path, "blake3")
        except OSError as problem:
            raise _unreadable(self, problem) from None

    def view(self) -> memoryview:
        """The content, memory-mapped when it is a file: read-only, kept alive by the view. Raises DlcError."""
        if self.path is None:
            return memoryview(self.data)
        try:
            with self.path.open("rb") as file:
                if not file.seek(0, 2):
                    return memoryview(b"")  # an empty file cannot be mapped
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as problem:
            raise _unreadable(self, problem) from None


def _unreadable(source: Source, problem: OSError | ValueError) -> Exception:
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return error(
        "unreadable-file",
        f"{source.name} cannot be read: {reason}",
        location=Location(source.name),
        help="check the path and its permissions",
    )
