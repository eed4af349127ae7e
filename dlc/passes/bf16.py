"""bf16: sums of products of f32 become sums of products of one, two or three bf16 for each factor.

    t += x[…]·w[…]   →   t += f32(x'[…])·f32(w'[…])               x' = bf16(x), w' = bf16(w)                 parts=1
    t += x[…]·w[…]   →   t += f32(x'[q,…])·f32(w'[q,…])  q < 3    of x₁w₀, x₀w₁, x₀w₀                        parts=2
                                                         q < 6    of x₂w₀, x₁w₁, x₀w₂, x₁w₀, x₀w₁, x₀w₀      parts=3

    x₀ = bf16(x), x₁ = bf16(x - x₀), x₂ = bf16(x - x₀ - x₁)

Products of bf16 are exact in f32, which sums them up. One bf16 leaves a relative error of a factor of at most 2^-8, two
of 2^-17, three none. The roles of axes decide, so convolutions, matrix products and the gradient for the data of both
are rewritten alike. Weights are split when they are written; data by a call of its own, which also pads it, so that
products need no guard: that is done for products of bf16 as well. Wherever the machine would take longer (`faster`),
nothing changes.

Left in f32 are sums with an odd number of terms that lie next to each other, factors neither of which is constant,
and convolutions of channels by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.base.types import DType, Type, bf16, f32
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, both, loads, select
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import WORD
from dlc.kernel.nest import Nest, Param
from dlc.kernel.roles import product, roles
from dlc.kernel.schedules.pack import only_exists
from dlc.kernel.simplify import bounds, simplify_nest
from dlc.ops.elementwise import Cast, Sub
from dlc.ops.shape import Concat, Reshape
from dlc.spec import option

TERMS = WORD // bf16.itemsize
"""Products that are added at once."""
PRODUCTS: dict[int, tuple[tuple[int, int], ...]] = {
    1: ((0, 0),),
    2: ((1, 0), (0, 1), (0, 0)),
    3: ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0)),
}
"""Number of parts → the products of parts of both factors, the smallest first."""


@dataclass(frozen=True)
class Bf16(Pass[Graph, Graph]):
    """Compute products of f32 by their parts in bf16: x·w  →  f32(bf16(x))·f32(bf16(w)) + …."""

    name: ClassVar[str] = "bf16"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    idempotent: ClassVar[bool] = True
    parts: int = option(0, "bf16 that stand for a factor; 0: nothing is changed", low=0, high=3)
    operations: int = option(1, "operations of the machine for a vector of dot products of two bf16", low=1)
    when: Literal["faster", "always"] = option("faster", "where that takes the machine fewer operations, or everywhere")

    def run(self, state: Graph, report: Report) -> Graph:
        """The same outputs up to the error of the parts."""
        report.missed_as = "left in f32"
        if not self.parts:
            return state
        count = len(PRODUCTS[self.parts])
        kinds = {f32: count * self.operations, bf16: self.operations}
        done = frozenset(t for t, takes in kinds.items() if self.when == "always" or takes < TERMS)
        if f32 not in done:
            what = f"{TERMS} terms of a sum take {kinds[f32]} operations by bf16, and {TERMS} by f32"
            report.missed("all products", what)
        return state.rewrite(_Rewriting(self.parts, done, state, report)) if done else state


class _Left(Exception):
    """A product stays as it is, for the reason that the message gives."""


@dataclass
class _Rewriting:
    """The rule that `Graph.rewrite` calls once per op, operands first."""

    parts: int
    done: frozenset[DType]
    """Types of factors whose products are rewritten."""
    graph: Graph
    report: Report
    constant: dict[str, bool] = field(default_factory=dict[str, bool])
    order: Iterator[Op] = field(init=False)

    def __post_init__(self) -> None:
        self.order = iter(self.graph.ops)

    def __call__(self, op: Op) -> Op | None:
        original = next(self.order)
        if not isinstance(op, Call) or is_constant(op, self.constant):
            return None
        new = op
        for k, nest in enumerate(op.body.nests):
            found = product(nest, op.body.dtypes)
            if found is None or op.body.dtypes[nest.out] is not f32:
                continue
            kinds = {op.body.dtypes[load.param] for load in found}
            if len(kinds) > 1 or not kinds <= self.done or (kinds == {bf16} and nest.where is None):
                continue  # of bf16, those with a guard
            try:
                new = self._on_parts(new, k, *self._factors(new, k))
                self.report.count("products")
            except _Left as problem:
                self.report.missed(" ".join(self.graph.origin(original)) or repr(op), str(problem))
        return None if new is op else new

    def _factors(self, op: Call, k: int) -> tuple[Load, Load]:
        """The factor of the rows and the constant one of the columns."""
        nest = op.body.nests[k]
        found = product(nest, op.body.dtypes)
        assert found is not None
        args = dict(zip((p.name for p in op.body.params), op.args, strict=True))
        if not all(x.param in args for x in found):
            raise _Left("a factor is computed in the same kernel")
        for a, b in (found, found[::-1]):
            if is_constant(args[b.param], self.constant) and not is_constant(args[a.param], self.constant):
                break
        else:
            raise _Left("not one of its factors is constant")
        r = roles(nest, a, b)
        if not r.columns or r.batch:
            raise _Left("the constant factor has no output axis to itself")
        if any(p.type.is_open for p in op.body.tensors.values()):
            raise _Left("sizes are not known")
        summed = [i for i in a.index if isinstance(i, Axis) and i in r.reduction and i not in r.window]
        if len(summed) != 1 or summed[0] not in b.index or summed[0].extent % TERMS:
            raise _Left(f"its sum has no {TERMS} terms next to each other")
        if not only_exists(a, op.body.tensors[a.param], nest.where):
            raise _Left("its guard says more than that a factor exists")
        return a, b

    def _on_parts(self, op: Call, k: int, a: Load, b: Load) -> Call:
        """The call with the factors of nest `k` replaced."""
        kernel, nest = op.body, op.body.nests[k]
        args = dict(zip((p.name for p in kernel.params), op.args, strict=True))
        split = kernel.dtypes[a.param] is f32
        pairs = PRODUCTS[self.parts if split else 1]
        pads = tuple(_outside(i, d) for i, d in zip(a.index, kernel.tensors[a.param].shape, strict=True))
        rows = _split_call(args[a.param], [i for i, _ in pairs], pads)
        columns = _split_constant(args[b.param], [j for _, j in pairs]) if split else args[b.param]
        which = (Axis("part", len(pairs)),) if len(pairs) > 1 else ()
        factors = (
            Load("rows", (*which, *(i + before for i, (before, _) in zip(a.index, pads, strict=True)))),
            Load("columns", (*which, *b.index)),
        )
        body = Apply("mul", tuple(Apply("f32", (x,)) for x in factors))
        nests = list(kernel.nests)
        nests[k] = simplify_nest(replace(nest, axes=(*nest.axes, *which), body=body, where=None))
        read = {x.param for n in nests for e in n.exprs() for x in loads(e)}
        kept = [p for p in kernel.params if p.name in read]
        new = (Param("rows", rows.type), Param("columns", columns.type))
        changed = Kernel.canonical((*kept, *new), kernel.results, tuple(nests), kernel.locals)
        return Call(changed, (*(args[p.name] for p in kept), rows, columns))


def _outside(index: Expr, extent: int) -> tuple[int, int]:
    """How many elements a subscript goes beyond both ends of a dimension."""
    span = bounds(index)
    if span is None:
        raise _Left("a subscript has no known range")
    return max(0, -span[0]), max(0, span[1] - (extent - 1))


def _split_call(value: Op, parts: Sequence[int], pads: Sequence[tuple[int, int]]) -> Call:
    """The call that gives the parts of a value one after another, with zeros around it; of bf16 there is one."""
    source = Param("x", value.type)
    axes = tuple(
        Axis(f"d{n}", d + low + high) for n, (d, (low, high)) in enumerate(zip(value.shape, pads, strict=True))
    )
    element: Expr = source[tuple(axis - low for axis, (low, _) in zip(axes, pads, strict=True))]
    guard: Expr | None = None
    for axis, d, (low, high) in zip(axes, value.shape, pads, strict=True):
        guard = both(guard, apply("ge", axis, low)) if low else guard
        guard = both(guard, apply("lt", axis, d + low)) if high else guard
    found: list[Expr] = []
    rest = element
    for _ in range(max(parts) + 1):
        found.append(rest if value.dtype is bf16 else apply("bf16", rest))
        rest = apply("sub", rest, apply("f32", found[-1]))
    shape = tuple(a.extent for a in axes)
    many = len(parts) > 1
    nests = tuple(
        Nest("r", (*([Const(n)] if many else []), *axes), axes, _guarded(guard, found[part]))
        for n, part in enumerate(parts)
    )
    result = Param("r", Type(bf16, (len(parts), *shape) if many else shape))
    return Call(Kernel.canonical((source,), (result,), nests), (value,))


def _guarded(guard: Expr | None, value: Expr) -> Expr:
    return value if guard is None else select(guard, value, apply("bf16", Const(0.0)))


def _split_constant(value: Op, parts: Sequence[int]) -> Op:
    """The same of a constant, as a constant expression."""
    found: list[Op] = []
    rest = value
    for _ in range(max(parts) + 1):
        found.append(Cast(rest, to=bf16))
        rest = Sub(rest, Cast(found[-1], to=f32))
    if len(parts) == 1:
        return found[0]
    return Concat(tuple(Reshape(found[part], to=(1, *value.shape)) for part in parts), axis=0)
