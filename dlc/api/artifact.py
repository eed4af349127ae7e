"""Programs as files: what a backend gives, what is reported of it, and the cached work that makes it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from dlc.api.program import Signature
from dlc.files.hashing import OwnedFile

if TYPE_CHECKING:
    from dlc.base.report import Report


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
    """How the program is called."""
    facts: Mapping[str, int | str] = field(default_factory=lambda: MappingProxyType[str, int | str]({}))
    """Figures for the report and for `memory` of the manifest: {"arena_bytes": 8192}."""


@dataclass(frozen=True)
class Description:
    """A program's file as its backend describes it. Names in the texts are escaped, those in `data` are not."""

    summary: str
    """What it is and what it needs, in a few lines."""
    text: str
    """All there is to see in it, the summary included."""
    data: Mapping[str, Any]
    """The same as a JSON object."""


@dataclass(frozen=True)
class KernelFunction:
    """Where a program has a kernel."""

    symbol: str
    """The name of its function."""
    file: str
    """The name of the file that has it, among those of the artifact."""
    line: int
    """Of its definition, from 1; 0 where it has none."""
    stack: int = 0
    """Bytes of stack that it needs."""
    operations: int | None = None
    """That a call executes; None: nobody counted them."""
    weight: float | None = None
    """The same in operations on 32-bit floats, as `Limits.operations` counts them."""


class Workshop(Protocol):
    """What the driver lends to a backend: cached sub-steps that may run in parallel.

    To the key of a sub-step of `emit` it adds the code of dlc and of the backend's package, which make the text; the
    results of `build` depend on text and tools only.
    """

    @property
    def report(self) -> "Report":
        """Where to count."""
        ...

    def file(self, name: str, size: int) -> OwnedFile:
        """An absent file of this name for at most `size` bytes, where it can be kept without a copy of it."""
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
