"""The class that a plugin extends to read a model format."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

from dlc.api.source import Source
from dlc.base.diagnostics import ExitCode, error
from dlc.spec import Configurable, Spec

if TYPE_CHECKING:
    from dlc.base.report import Report
    from dlc.base.types import Array
    from dlc.graph import Graph, Op


@dataclass(frozen=True)
class OnnxRules:
    """A module of import rules for the operators of one ONNX domain, as the hook `dlc_onnx_rules` offers it."""

    domain: str
    """ONNX's own is "ai.onnx"."""
    plugin: str
    """Name of the plugin, as `[plugins] disable` takes it."""
    title: str
    """How messages call the plugin: "timer (dlc-timer 1.2)"."""
    packages: tuple[str, ...]
    """Top-level packages whose code the rules are."""
    load: Callable[[], ModuleType]
    """Import the module; raises DlcError (PLUGIN)."""


class Frontend(Configurable, ABC):
    """A reader of one model format: bytes → Graph."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    """File extensions it reads, with the dot, in lower case."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Installed libraries, as pip calls them, whose versions decide what `parse` gives: part of the cache key."""

    runs: ClassVar[tuple[str, ...]] = ()
    """Passes that `parse` may run, as the model asks for it: `--explain` knows their names."""

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

    def with_onnx_rules(self, rules: Sequence[OnnxRules], ops: "Callable[[], Mapping[str, type[Op]]]") -> "Frontend":
        """The frontend with the import rules that plugins offer; itself when it reads no ONNX operators.

        `ops` gives all installed ops by name, for messages about operators that no rule imports.
        """
        del rules, ops
        return self

    def packages(self, source: Source) -> tuple[str, ...]:
        """Top-level packages of the frontends and rules that `parse` asks: their code is part of the cache key."""
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
            values: The value of every parameter that was left out, with its shape and element type, or f32 for a
                narrow float.

        Raises:
            DlcError: `template` is none, or a value is missing, unknown, or of another type or shape.
        """
        del template, values
        raise self._not_written("the model")

    def _not_written(self, what: str) -> Exception:
        message = f"{what} cannot be written back: the frontend {self.name} only reads its format"
        help = "build from an ONNX model, or keep the parameters as a checkpoint"
        return error("cannot-write", message, help=help, exit_code=ExitCode.USAGE)

    def supported(self) -> Iterable[tuple[str, str]]:
        """(operator of the format, versions or conditions) of all that `parse` reads; `dlc list NAME` shows it."""
        return ()

    @abstractmethod
    def parse(self, source: Source, report: "Report") -> "Graph":
        """The model as a graph of ops. Raises DlcError with everything that is unsupported, at once."""

    def graph(self, source: Source, report: "Report") -> "Graph":
        """What `parse` gives, with what inputs may be that rows or classes are chosen by (`Input.allowed`)."""
        from dlc.graph.input_ranges import with_ranges

        return with_ranges(self.parse(source, report))
