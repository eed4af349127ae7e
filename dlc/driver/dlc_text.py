"""`Dlc`: the compiler's own text as a model format, so that any graph it prints is an input."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from dlc.api.frontend import Frontend
from dlc.api.source import Source
from dlc.base.diagnostics import Diagnostic, Location, error
from dlc.base.report import Report
from dlc.spec import option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dlc.api.frontend import OnnxRules
    from dlc.base.types import Type
    from dlc.graph import Graph, Op, Tensor

_SNIFFED = 4096
"""Bytes that `sniff` looks at."""
_SHOWN = 3
"""Constants that a warning names."""


@dataclass(frozen=True)
class Dlc(Frontend):
    """Graphs in dlc's own text."""

    name: ClassVar[str] = "dlc"
    suffixes: ClassVar[tuple[str, ...]] = (".dlc",)
    weights: Literal["random", "refuse"] = option(
        "random", "what replaces large constants, whose values are not in the text: random values, or an error"
    )

    def sniff(self, source: Source) -> bool:
        """Whether the first line that is no comment opens a graph or a kernel."""
        lines = source.part(0, _SNIFFED).decode("utf-8", "replace").splitlines()
        first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
        return first.startswith(("graph(", "kernel "))

    def with_onnx_rules(self, rules: Sequence[OnnxRules], ops: Callable[[], Mapping[str, type[Op]]]) -> Dlc:
        """The frontend with the ops that its text may name."""
        new = copy(self)
        object.__setattr__(new, "ops", ops)
        return new

    def parse(self, source: Source, report: Report) -> Graph:
        """The graph that the text holds; raises DlcError with line and column."""
        from dlc.driver.state_text import fresh_stand_in, op_classes, parse_state, structure_ops
        from dlc.graph.graph import Graph
        from dlc.plugins.discovery import load_registry
        from dlc.training.loop.checkpoint import SUFFIX, is_checkpoint

        if is_checkpoint(memoryview(source.part(0, _SNIFFED))):
            raise error(
                "not-a-graph",
                f"{source.name} is a checkpoint of dlc train, which is not a graph in text",
                location=Location(source.name),
                help=f"dlc show {source.name} prints its content; checkpoints have the suffix {SUFFIX}",
            )
        try:
            text = bytes(source.view()).decode("utf-8")
        except UnicodeDecodeError as problem:
            raise error(
                "not-text",
                f"{source.name} is not UTF-8 text",
                location=Location(source.name, byte=problem.start),
            ) from None

        absent: dict[str, Type] = {}

        def constant(type: Type, digest: str) -> Tensor | None:
            if self.weights == "refuse":
                return None
            absent[digest] = type
            report.count("random constants")
            return fresh_stand_in(type, digest)

        found = getattr(self, "ops", None)
        classes = structure_ops() | found() if found else op_classes(load_registry(kinds=("ops",)))
        state = parse_state(text, classes, constant, source.name)
        if absent:
            report.warn(random_constants(absent))
        if not isinstance(state, Graph):
            raise error(
                "not-a-graph",
                f"{source.name} holds a plan, which is not a model",
                help=f"continue it with: dlc opt {source.name} -p …",
            )
        return state


def random_constants(absent: Mapping[str, Type]) -> Diagnostic:
    """The warning that constants of a graph, digest → type, have made-up values."""
    one = len(absent) == 1
    what = "1 constant whose values are" if one else f"{len(absent):,} constants whose values are"
    size = sum(type.nbytes for type in absent.values())
    return Diagnostic(
        "random-constants",
        f"{what} not in the text {'gets' if one else 'get'} random values, {size:,} bytes",
        "warning",
        notes=tuple(f"{type} {digest}" for digest, type in list(absent.items())[:_SHOWN]),
        help="the text is enough for sizes, memory and speed; for results build the model that it was printed from. "
        "--set dlc.weights=refuse refuses such text",
    )
