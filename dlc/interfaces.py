"""Everything that crosses a plugin boundary: sources in, artifacts out, and the two classes a plugin extends."""

import hashlib
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from dlc.diagnostics import ExitCode, Location, error
from dlc.hashing import file_sha256
from dlc.spec import Configurable, Spec

if TYPE_CHECKING:
    import numpy as np

    from dlc.graph import Graph, Op
    from dlc.report import Report
    from dlc.training.bundle import Bundle
    from dlc.types import Array, Type

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
    """What the driver lends to `Backend.build`: cached sub-steps that may run in parallel."""

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
    """(label, value) of everything the result depends on, apart from the code of dlc and the plugin."""
    make: Callable[[], bytes]
    """Does the work; may run in another thread."""


class Frontend(Configurable, ABC):
    """A reader of one model format: bytes → Graph."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    """File extensions it reads, with the dot, in lower case."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Installed libraries, as pip calls them, whose versions decide what `parse` gives: part of the cache key."""

    def sniff(self, source: Source) -> bool:
        """Whether the content looks like this format; asked when no suffix decides. Must not raise."""
        return False

    def companions(self, source: Source) -> tuple[Source, ...]:
        """Other files that `parse` reads (external weights): part of the cache key."""
        return ()

    def with_frontends(self, find: "Callable[[Spec], Frontend]") -> "Frontend":
        """The frontend with a way to ask others, for models with parts in their formats; itself when there are none.

        `find` gives the configured frontend that a spec selects, or raises DlcError.
        """
        del find
        return self

    def packages(self, source: Source) -> tuple[str, ...]:
        """Top-level packages of the frontends that `parse` asks: their code is part of the cache key."""
        return ()

    def template(self, source: Source, names: Collection[str]) -> bytes:
        """The model without the values of the parameters `names`: all that `filled` needs, one file's content.

        Names are those of the graph that `parse` gives: of its constants, of its inputs with the role of weights, and
        of the running statistics that training makes of its batch normalisations.

        Raises:
            DlcError: the format cannot be written, a name is no parameter, or the model is too large for one file.
        """
        del names
        raise self._not_written(source.name)

    def filled(self, template: bytes, values: "Mapping[str, Array]") -> bytes:
        """The content of a model file: `template` with these values of its parameters.

        Args:
            template: What `template` gave.
            values: The value of every parameter that was left out, with its element type and shape.

        Raises:
            DlcError: `template` is none, or a value is missing, unknown, or of another type or shape.
        """
        del template, values
        raise self._not_written("the model")

    def _not_written(self, what: str) -> Exception:
        message = f"{what} cannot be written back: the frontend {self.name} only reads its format"
        help = "build from an ONNX model, or keep the parameters as a checkpoint"
        return error("cannot-write", message, help=help, exit_code=ExitCode.USAGE)

    @classmethod
    def supported(cls) -> Iterable[tuple[str, str]]:
        """(operator of the format, versions or conditions) of all that `parse` reads; `dlc list NAME` shows it."""
        return ()

    @abstractmethod
    def parse(self, source: Source, report: "Report") -> "Graph":
        """The model as a graph of ops. Raises DlcError with everything that is unsupported, at once."""


class Backend(Configurable, ABC):
    """A writer of programs: what the pipeline leaves → Artifact. The least backend is `name` and `emit`."""

    consumes: ClassVar[Level] = "plan"
    """What the pipeline must leave behind, and `emit` gets: a Graph of ops, a Graph of kernel calls, or a Plan."""
    pipeline: ClassVar[str] = "infer"
    """Default pipeline: a name or spec text."""

    def accepts(self, op: "Op") -> bool | Reason:
        """Whether the target runs `op`; a Reason says why not and what would help.

        Asked about every op that depends on an input, just before ops become kernels, or before `emit` when the backend
        consumes ops. All refused ops are reported at once. True by default: what has a kernel can be built.
        """
        return True

    def regions(self) -> Mapping[str, Region]:
        """Memory by name: a plan that does not fit into a region, or is not aligned as it asks, is refused."""
        return {"arena": Region()}

    def for_model(self, title: str) -> "Backend":
        """The backend with options that it derives from a model's title, such as a prefix of names."""
        return self

    def toolchain(self) -> str:
        """Identity of the tools that `build` runs, one fact a line; part of the cache key. Raises DlcError (TOOL)."""
        return ""

    @abstractmethod
    def emit(self, state: Any, /, report: "Report") -> Artifact:
        """The program as text and data; `state` is a Graph or a Plan, as `consumes` says. Must not touch the disk."""

    def emit_training(self, bundle: "Bundle", report: "Report") -> Artifact:
        """The functions of a training program as one program; must not touch the disk.

        Raises:
            DlcError: (USAGE) by default: the target has no training programs.
        """
        del bundle, report
        raise error(
            "no-training",
            f"{self.name} does not build training programs",
            help="build for another target, or leave --train out",
            exit_code=ExitCode.USAGE,
        )

    def build(self, artifact: Artifact, workshop: Workshop) -> Artifact:
        """`artifact` with what the toolchain makes of it; raises DlcError (TOOL)."""
        return artifact

    def load(self, directory: Path) -> Program:
        """The program installed in `directory`, ready to be called here; raises DlcError when it cannot run here.

        `dlc.ArrayProgram` makes one of a function on arrays, such as a simulator.
        """
        raise error("cannot-load", f"programs for {self.name} cannot run on this machine", exit_code=ExitCode.USAGE)


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
