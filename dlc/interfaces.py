"""Everything that crosses a plugin boundary: sources in, artifacts out, and what is said about both."""

import hashlib
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dlc.diagnostics import Location, error
from dlc.hashing import file_sha256

if TYPE_CHECKING:
    import numpy as np

    from dlc.allowed import Allowed
    from dlc.report import Report
    from dlc.types import Type

Level = Literal["ops", "kernels", "plan"]
"""What a state is: a graph of named ops, a graph of kernel calls, or an ordered and placed plan."""


@dataclass(frozen=True)
class Source:
    """A model as the user gave it: a file, or bytes with a name."""

    path: Path | None = None
    """The file; None when `data` holds the content."""
    data: bytes = b""
    """The content, when there is no file."""
    label: str = ""
    """How messages call it; the path by default."""

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
        """SHA-256 of the content in hexadecimal, read in blocks; a file is read once per process while it is unchanged.

        Raises DlcError when the file cannot be read.
        """
        if self.path is None:
            return hashlib.sha256(self.data).hexdigest()
        try:
            found = self.path.stat()
            return _digest_of_file(self.path, found.st_size, found.st_mtime_ns)
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


@dataclass(frozen=True)
class Port:
    """One input or output of a program."""

    name: str
    """Name in the model, as its author wrote it."""
    type: "Type"
    """Element type and shape."""
    allowed: "Allowed | None" = None
    """What its integers may be, because they choose rows or classes; None: anything. Programs refuse all else."""


@dataclass(frozen=True)
class Signature:
    """How a program is called."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    aliases: tuple[tuple[int, int], ...] = ()
    """(i, j): output i may be written over input j, as the same buffer; if both have one name, they are one tensor."""


@dataclass(frozen=True)
class Artifact:
    """The files of a compiled program; nothing is written until the driver installs them all."""

    target: str
    """The backend's spec text."""
    files: Mapping[str, bytes | memoryview | Path]
    """Relative POSIX name → content, or a file that holds it (large weights)."""
    entry: str
    """The name in `files` that stands for the whole: the header, the library."""
    signature: Signature
    facts: Mapping[str, int | str] = field(default_factory=lambda: MappingProxyType[str, int | str]({}))
    """Figures for the manifest and the report: {"arena_bytes": 8192}."""


@dataclass(frozen=True)
class Description:
    """A program's file, told by the backend that wrote it. Names in the texts are escaped, those in `data` are not."""

    summary: str
    """What it is and what it needs, in a few lines."""
    text: str
    """All there is to see in it, the summary included."""
    data: Mapping[str, Any]
    """The same as a JSON object."""


@dataclass(frozen=True)
class Reason:
    """Why a backend refuses an op; becomes a diagnostic at the op."""

    text: str
    """What is not supported, with the numbers."""
    help: str = ""
    """What would make it legal."""


@dataclass(frozen=True)
class Region:
    """A kind of memory that a program uses."""

    align: int = 64
    """Bytes that every buffer's offset is a multiple of."""
    limit: int | None = None
    """Bytes available, or None."""


@dataclass(frozen=True)
class StepDone:
    """One finished step, for observers."""

    step: str
    """Spec text of what ran."""
    input: str
    """Digest of what went in."""
    output: str
    """Digest of what came out."""
    milliseconds: float
    cached: bool
    counts: Mapping[str, int]
    """Statistics the step reported."""


class Program(Protocol):
    """A loaded artifact, callable with arrays by input name."""

    @property
    def signature(self) -> Signature:
        """Inputs and outputs."""
        ...

    def __call__(
        self, *, out: "Mapping[str, np.ndarray] | None" = None, **inputs: "np.ndarray"
    ) -> "dict[str, np.ndarray]":
        """Output name → array; `out` supplies buffers to write into. Refuses wrong names, shapes and dtypes."""
        ...


class Workshop(Protocol):
    """What the driver lends to a backend: cached sub-steps that may run in parallel.

    To the key of a sub-step of `emit` it adds the code of dlc and of the backend's package, which make the text; the
    results of `build` depend on text and tools only.
    """

    @property
    def report(self) -> "Report":
        """Where to count."""
        ...

    def cached(self, jobs: "Sequence[Job]") -> list[bytes]:
        """The result of every job, from the cache where its key is known, else by running it; in the order given."""
        ...


@dataclass(frozen=True)
class Job:
    """A piece of work whose result depends on `key` only."""

    step: str
    """Spec text of the work: "compile"."""
    subject: str
    """What it works on, for people: a kernel's name."""
    key: tuple[tuple[str, str], ...]
    """(label, value) of everything the result depends on, apart from code (see `Workshop`)."""
    make: Callable[[], bytes]
    """Does the work; may run in another thread."""


@lru_cache(maxsize=256)
def _digest_of_file(path: Path, size: int, mtime_ns: int) -> str:
    """Size and time are part of the memo's key: a changed file is read again."""
    del size, mtime_ns
    return file_sha256(path)


def _unreadable(source: Source, problem: OSError | ValueError) -> Exception:
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return error(
        "unreadable-file",
        f"{source.name} cannot be read: {reason}",
        location=Location(source.name),
        help="check the path and its permissions",
    )
