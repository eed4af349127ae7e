"""fold-constants: ops whose operands are constants are evaluated, unless the result is too large.

    reshape(constant)            → constant
    mul(splat a, splat b)        → splat a·b           never materialised
    expand(constant v) to=large  → unchanged           a constant expression, evaluated when the weights are written
    scan(…, [constant])          → scan(…, [])         the constant lies in the body; so an if of a constant is a branch

The pass drops the names of constants, so `autodiff`, which finds the weights by their names, has to come before it.

One traversal folds whole chains of ops, because operands come before their consumers. The pass traverses the graph
again only if some ops were folded and others were not: a constant may have lost consumers, and folding the last one
then no longer makes the model larger. A result larger than `max-bytes` is folded only if the model does not grow and
the result is not larger than `large`: large weights are mapped from the model's file, not copied. `budget` limits the
work, because a small model may describe a very long computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.graph.constants import without_names
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant, Splat
from dlc.graph.tensor import Array, Tensor
from dlc.graph.walk import toposort
from dlc.passes.exact import evaluate_exactly
from dlc.passes.packed_constants import PackedConstants
from dlc.passes.splats import fold_splats
from dlc.passes.tidy_regions import tidied
from dlc.spec import Bytes, option

SMALL = 256
"""Bytes up to which what is made of packed constants, or beside them, is evaluated although it is larger."""


@dataclass(frozen=True)
class FoldConstants(Pass[Graph, Graph]):
    """Evaluate ops whose operands are all constant: add(2, 3)  →  5."""

    name: ClassVar[str] = "fold-constants"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "ops"
    idempotent: ClassVar[bool] = True
    max_bytes: Bytes = option(64 * 1024, "largest result that is folded even if the model grows", low=0)
    large: Bytes = option(1 << 20, "larger results are not folded, even if the model would shrink", low=0)
    budget: int = option(1 << 26, "maximum number of elementary operations for folding one model", low=0)

    def run(self, state: Graph, report: Report) -> Graph:
        """The same outputs; what was left although it is constant is reported in `report`."""
        report.missed_as = "not folded"
        state, left = tidied(without_names(state)), self.budget
        while True:
            folding = _Folding(self, state, report, left)
            new = state.rewrite(folding)
            if new.digest == state.digest or not folding.misses:
                for subject, reason in folding.misses:
                    report.missed(subject, reason)
                return new
            state, left = new, folding.left


@dataclass
class _Folding:
    """One traversal: the rule that `Graph.rewrite` calls once per op, in the graph's order."""

    options: FoldConstants
    graph: Graph
    report: Report
    left: int
    """What the options' budget still allows."""
    misses: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    order: Iterator[Op] = field(init=False)
    readers: dict[str, int] = field(default_factory=dict[str, int])

    packed: PackedConstants = field(init=False)

    def __post_init__(self) -> None:
        self.order = iter(self.graph.ops)
        self.packed = PackedConstants(self.graph)

    def __call__(self, op: Op) -> Op | None:
        original = next(self.order)
        result = self._folded(op, original)
        if result is not None and not self.report.applies(op.text_name, original):
            result = None
        kept = op if result is None else result
        self.readers[kept.digest] = self.readers.get(kept.digest, 0) + self.graph.readers(original)
        return result

    def _folded(self, op: Op, original: Op) -> Op | None:
        if isinstance(op, Constant):
            return uniform(op) if op.type.nbytes <= self.options.max_bytes else None
        if not op.operands or len(op.types) != 1 or op.body_names:
            return None
        if (splat := fold_splats(op)) is not None:
            return splat
        if op.symbols or not all(isinstance(x, (Constant, Splat)) for x in op.operands):
            return None
        if (reason := self._objection(op, original)) is not None:
            self.misses.append((f"{op.text_name}: {op.type}", reason))
            return None
        value = evaluate_exactly(op, [array_of(x) for x in op.operands])
        if value is None:
            self.misses.append((f"{op.text_name}: {op.type}", "its integers overflow, or it divides by zero"))
            return None
        folded = Constant(Tensor.of(value, op.dtype))
        return uniform(folded) or folded

    def _objection(self, op: Op, original: Op) -> str | None:
        """Why an op with constant operands should not be evaluated now, or None."""
        size = op.type.packed_bytes
        dying = sum(x.type.packed_bytes for x in set(op.operands) if isinstance(x, Constant) and self._dies(x))
        growth = size - dying
        if growth > 0 and size > SMALL and self.packed.is_part(original):
            return f"the result takes {size} bytes, {growth} more than what it replaces, beside packed constants"
        if size > self.options.max_bytes and (growth > 0 or size > self.options.large):
            return f"the result takes {size} bytes, {growth} more than the constants it replaces"
        if isinstance(op, Call) and any(t.dtype.is_integer for t in (op.type, *(x.type for x in op.operands))):
            return "a kernel on integers might overflow"
        work = _work(op)
        if work > self.left:
            return f"it takes {work} operations, {self.left} are left of the budget"
        self.left -= work
        return None

    def _dies(self, constant: Op) -> bool:
        return self.readers.get(constant.digest, 0) <= 1


def uniform(op: Constant) -> Splat | None:
    """The splat that a constant is whose elements have equal bits, or None."""
    value = op.tensor.repeated()
    if value is None or value[0] != value[0]:  # a NaN's payload would be lost
        return None
    return Splat(value[0].item(), op.type)


def array_of(op: Op) -> Array:
    """The elements of a constant or splat; those of a splat as a view of one element."""
    return op.evaluate()


def _work(op: Op) -> int:
    """Elementary operations of evaluating an op once."""
    if op.expansion is None:
        return sum(nest.points for nest in op.kernel.nests)
    stop = {x.digest for x in op.operands}
    return sum(_work(x) for x in toposort((op.expansion,)) if x.digest not in stop and x.operands and x is not op)
