"""`Source`: a model as the user gave it."""

from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import BinaryIO, cast

from dlc.base.diagnostics import Location, error
from dlc.base.wrong_kind import wrong_kind
from dlc.files.hashing import bytes_blake3
from dlc.files.inputs import InputFile, InputStream, active


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
        """BLAKE3 of the content in hexadecimal. Raises DlcError when the file cannot be read."""
        if self.path is None:
            return bytes_blake3(self.data)
        try:
            return self._file.digest("blake3")
        except OSError as problem:
            raise _unreadable(self, problem) from None

    @property
    def size(self) -> int:
        """Bytes. Raises DlcError when the file cannot be read."""
        if self.path is None:
            return len(self.data)
        try:
            return self._file.size
        except OSError as problem:
            raise _unreadable(self, problem) from None

    def view(self) -> memoryview:
        """The content, read-only, in memory and kept alive by the view. Raises DlcError.

        A build sees a file as it was when it was opened first: later views, digests and streams are of the same bytes.
        """
        if self.path is None:
            return memoryview(self.data)
        try:
            return self._file.view()
        except (OSError, MemoryError) as problem:
            raise _unreadable(self, problem) from None

    def part(self, start: int, size: int) -> bytes:
        """At most `size` bytes from `start` on, counted from the end where that is negative. Raises DlcError."""
        if self.path is None:
            view = memoryview(self.data)
            start = max(0, len(view) + start) if start < 0 else start
            return bytes(view[start : start + size])
        try:
            start = max(0, self._file.size + start) if start < 0 else start
            return bytes(self._file.read(start, size))
        except OSError as problem:
            raise _unreadable(self, problem) from None

    def stream(self) -> BinaryIO:
        """The content as an opened file, for libraries that read such. Raises DlcError."""
        if self.path is None:
            return BytesIO(self.data)
        try:
            return cast("BinaryIO", BufferedReader(InputStream(self._file)))
        except OSError as problem:
            raise _unreadable(self, problem) from None

    @property
    def _file(self) -> InputFile:
        assert self.path is not None
        return active().open(self.path)


def _unreadable(source: Source, problem: OSError | MemoryError) -> Exception:
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem) or "out of memory"
    return error(
        "unreadable-file",
        f"{source.name} cannot be read: {reason}",
        location=Location(source.name),
        help="check the path and its permissions",
    )
