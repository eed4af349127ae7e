"""Which values of a graph of instructions are kernels that have to lie in blocks, and in which.

A weight in blocks makes its gradient, its velocity and its master copy lie in the same blocks, and so do all products
that read it, a legal one among them. Products that disagree (one weight under several strides) agree on single taps.
Constants are cut where they are read, for each product as it needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dlc.api.backend import Reason
from dlc.api.plan import results_of
from dlc.base.diagnostics import Diagnostic, Location
from dlc.graph import Constant, Graph, Input, Op
from dlc_backend_s2train.decompose.blocks import MOST, Block, blocks, misfit, single_taps
from dlc_backend_s2train.instruction import S2Instruction, geometry_of, kind_of
from dlc_backend_s2train.program import Geometry

Blocks = tuple[Block, ...]
FACTORS: Final = frozenset(("src0", "src1"))
"""Operands of a weight gradient that are no kernels."""
GRADIENTS: Final = ("weight_gradient", "weight_update")
"""Stages of products that sum up for kernels."""


def product(op: Op) -> Geometry | None:
    """The geometry of a convolution, in whichever stage; None for other ops, and for the gradient of a bias."""
    if not isinstance(op, S2Instruction) or op.opcode != "conv" or "src1" not in (slot for slot, _, _ in op.reads):
        return None
    return geometry_of(op.geometry)


def argument(op: S2Instruction, slot: str) -> Op | None:
    """What an instruction reads in a slot."""
    return next((x for x, (name, _, _) in zip(op.args, op.reads, strict=True) if name == slot), None)


def by_element(op: S2Instruction) -> bool:
    """Whether each element of its results depends on that element of its operands alone, blocks of kernels too."""
    return op.opcode in ("update", "eltwise", "fill") and set(op.flags) <= {"add"}


def refusal(graph: Graph, op: Op, reason: Reason) -> Diagnostic:
    """A reason as a diagnostic at its op."""
    node = op.name if isinstance(op, Input) else ", ".join(graph.origin(op)) or kind_of(op)
    return Diagnostic("not-decomposed", f"{node}: {reason.text}", location=Location(node=node), help=reason.help)


@dataclass
class _Classes:
    """Values that lie in the same blocks: sets that grow together (union-find, Tarjan 1975)."""

    parents: dict[str, str] = field(default_factory=dict[str, str])

    def root(self, value: str) -> str:
        """The one value that stands for its set."""
        path: list[str] = []
        while (parent := self.parents.get(value, value)) != value:
            path.append(value)
            value = parent
        for x in path:
            self.parents[x] = value
        return value

    def join(self, values: list[str]) -> None:
        """Make one set of those of all values."""
        for value in values[1:]:
            self.parents[self.root(value)] = self.root(values[0])


def cut(graph: Graph) -> tuple[Mapping[str, Blocks], list[Diagnostic]]:
    """Digest of each value that has to lie in blocks → these; and products that there are not, or that cannot be."""
    classes, problems = _Classes(), list[Diagnostic]()
    demands: list[tuple[Op, str, Geometry]] = []
    values: set[str] = set()
    for op in graph.ops:
        if not isinstance(op, S2Instruction):
            continue
        if (g := product(op)) is not None:
            if (reason := misfit(g)) is not None:
                problems.append(refusal(graph, op, reason))
                continue
            held = _kernels_of(op)
            demands += [(op, kernel.digest, g) for kernel in held]
        elif by_element(op):
            held = [*op.args, *results_of(op)]
        else:
            continue
        classes.join([x.digest for x in held])
        values |= {x.digest for x in held}
    found: dict[str, Blocks] = {}
    for op, kernel, g in demands:
        root, wanted = classes.root(kernel), blocks(g)
        agreed = found.setdefault(root, wanted)
        if agreed != wanted:
            found[root] = single_taps((g.kh, g.kw))
            if g.kh * g.kw > MOST:
                reason = Reason(f"a weight of {g.kh} x {g.kw} under several strides makes more than {MOST} blocks")
                problems.append(refusal(graph, op, reason))
    return {x: found[r] for x in values if len(found.get(r := classes.root(x), ())) > 1}, problems


def _kernels_of(op: S2Instruction) -> list[Op]:
    """The values of a product that are kernels, constants left out."""
    if op.stage == "weight_gradient":
        partial = argument(op, "aux")
        return [*results_of(op), *([] if partial is None else [partial])]
    if op.stage == "weight_update":
        # All that it updates it reads as well.
        return [*results_of(op), *(x for x, (slot, _, _) in zip(op.args, op.reads, strict=True) if slot not in FACTORS)]
    weight = argument(op, "src1")
    return [] if weight is None or isinstance(weight, Constant) else [weight]
