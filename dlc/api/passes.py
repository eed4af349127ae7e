"""`Pass`: a pure function from one program to the next, configured by its fields; and the check of a pipeline's chain.

A pass is a frozen dataclass in a file of its own name. Its fields are its options, its docstring opens with the rewrite
it performs, and `run` depends on nothing but the fields and the state:

    @dataclass(frozen=True)
    class Fuse(Pass["Graph", "Graph"]):
        \"""Merge neighbouring kernels: b = f(a); c = g(b)  →  c = (g∘f)(a).\"""

        name = "fuse"
        level_in = "kernels"
        level_out = "kernels"
        max_nests: int = option(8, "largest group", low=1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from dlc.api.inside import run_inside
from dlc.base.level import Level
from dlc.spec import Configurable, Spec, fault

if TYPE_CHECKING:
    from dlc.api.parts import Part, TrainingParts
    from dlc.api.plan import Plan
    from dlc.api.training import Bundle
    from dlc.base.report import Report
    from dlc.graph.graph import Graph
    from dlc.placement import Allocator

S = TypeVar("S")
T = TypeVar("T")


class Pass(Configurable, ABC, Generic[S, T]):
    """A step of a pipeline. Subclasses are frozen dataclasses whose fields are options."""

    level_in: ClassVar[Level] = "ops"
    """What `run` takes."""
    level_out: ClassVar[Level] = "ops"
    """What `run` returns."""
    idempotent: ClassVar[bool] = False
    """Whether a second run right after the first changes nothing; tests hold it to that."""

    is_structural: ClassVar[bool] = False
    """Whether `run` hands names of nodes, inputs and outputs on without looking at them, and leaves all arithmetic on
    values to `Op.evaluate` and `evaluate_ops`. Models that differ in names alone then share its results, and so do
    versions of numpy where nothing was evaluated. Weights need no word: who reads a tensor is known."""

    computes_other: ClassVar[bool] = False
    """Whether what leaves computes something else than what came, as gradients do: a reference has to follow."""

    def compares(self) -> frozenset[str] | None:
        """Words that `run` compares names with, and does nothing else with them; None: it may do anything."""
        return frozenset() if self.is_structural else None

    @classmethod
    def with_parts(cls, parts: TrainingParts) -> type[Self]:
        """The class whose options may name these losses, optimizers and initializers too; itself where none names any.

        A class, not an instance: options are checked when an instance is made of a spec.
        """
        del parts
        return cls

    @property
    def packages(self) -> tuple[str, ...]:
        """Further packages whose code acts in the pass, such as that of an optimizer: part of its cache key."""
        return ()

    @abstractmethod
    def run(self, state: S, report: Report) -> T:
        """The rewritten state: a pure function of the fields and `state`. `report` only collects what happened.

        Of a graph, a pass sees the ops alone: the graphs that ops hold are handed to it one after another, afterwards.
        """

    def in_function(self, function: str) -> AnyPass:
        """The pass as it is in the pipeline of this function of a program of several; itself where all are alike."""
        del function
        return self

    def with_allocators(self, allocators: Sequence[Part[Allocator]]) -> AnyPass:
        """The pass with the solvers for offsets that there are; itself when it places nothing."""
        del allocators
        return self

    def with_rules(self, rules: Iterable[object]) -> AnyPass:
        """The pass with the rules that plugins add; itself when it applies none."""
        del rules
        return self


AnyPass = Pass[Any, Any]


class ProgramPass(Pass["Graph", "Graph"]):
    """A pass that makes a program of several functions: each from the model, by the pipeline behind it, then joined.

    In a pipeline it makes one of them, as its options say; a build that is to make all asks for `functions`.
    """

    @abstractmethod
    def functions(self) -> Mapping[str, AnyPass]:
        """Name of each function → the pass that makes it from the model, in the order in which they are compiled.

        Raises:
            DlcError: (USAGE) an option says which function to make, or has no effect on a program.
        """

    @abstractmethod
    def joined(
        self,
        plans: Mapping[str, Plan],
        made: Callable[[str], Graph],
        template: Callable[[Iterable[str]], tuple[str, bytes]],
    ) -> Bundle:
        """The program of these functions: it depends on the options, the arguments and the model only.

        Args:
            plans: What the pipeline made of each function.
            made: A function by name as it was before the pipeline, which may store its inputs in another way.
            template: (file suffix, content) of the model without the values of these parameters, see `Bundle.template`.
        """


def check_chain(
    passes: Sequence[AnyPass], specs: Sequence[Spec] = (), start: Level = "ops", end: Level | None = None
) -> Level:
    """The level that a pipeline leads to.

    Args:
        passes: The configured passes, in order.
        specs: The specs they were made from, where they are known: errors point into their text.
        start: The level of what the first pass gets.
        end: The level that the pipeline has to reach, or None for any.

    Raises:
        DlcError: (USAGE) a pass takes another level than the one before it leaves, or the pipeline ends too early.
    """
    level, before = start, "the pipeline's input"
    placed = tuple(specs) if len(specs) == len(passes) else tuple(p.to_spec() for p in passes)
    for stage, spec in zip(passes, placed, strict=True):
        if stage.level_in != level:
            help = _route(level, stage.level_in)
            raise fault(
                "pipeline-level",
                f"{stage.name} works on {_words(stage.level_in)}, but {before} gives {_words(level)}",
                spec.span,
                help,
            )
        level, before = stage.level_out, stage.name
    if end is not None and level != end:
        span = placed[-1].span if placed else None
        message = f"the pipeline ends with {_words(level)}, but {_words(end)} is needed"
        raise fault("pipeline-level", message, span, _route(level, end, "at the end"))
    return level


def run_passes(passes: Iterable[AnyPass], state: Any, report: Report) -> Any:
    """The state after all passes, with nothing cached, timed or verified: for tests; builds use the driver."""
    for stage in passes:
        state = run_inside(stage, state, report)
    return state


_ORDER: tuple[Level, ...] = ("ops", "kernels", "plan")
_STEPS: dict[Level, str] = {"kernels": "lower", "plan": "order"}


def _words(level: Level) -> str:
    return {"ops": "a graph of ops", "kernels": "a graph of kernels", "plan": "a plan"}[level]


def _route(have: Level, want: Level, where: str = "before it") -> str:
    """What to write between two levels."""
    at, to = _ORDER.index(have), _ORDER.index(want)
    if at < to:
        return "put " + ",".join(_STEPS[level] for level in _ORDER[at + 1 : to + 1]) + f" {where}"
    return f"move it before {_STEPS[_ORDER[to + 1]]}"
