"""Reverse mode over the nests that write one tensor: which cotangent the body of each receives.

    out[f] +=    body        g = d(out)[f]
    out[f]  =    body        g = d(out)[f], and what was written there before receives nothing; of points that write
                             one element, the last
    out[f] max=  body        g = d(out)[f] / n where body = out[f], n being how many are equal; min alike
    out[f] *=    body        g = d(out)[f] · Π of the other factors: with z zeros among them, and q the product of those
                             that are not zero, q / body if z = 0, and q for the one zero if z = 1

The writers of a tensor are read as versions of it: each run of one reduction continues what those before it left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from dlc.base.types import Type, i64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, select
from dlc.kernel.fusion.inline import is_pointwise_map
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.box import constant_box
from dlc.kernel.simplify import bounds, linear

MAX_KEPT = 1 << 24
"""Values of a reduction that are kept for the comparisons of its derivative; of larger ones they are computed again."""
_EXACT = frozenset(
    {"select", "neg", "abs", "sign", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"}
)


@dataclass
class NestBuilder:
    """Nests under construction, and the locals that they use."""

    nests: list[Nest] = field(default_factory=list[Nest])
    locals: list[Param] = field(default_factory=list[Param])

    def local(self, word: str, type: Type) -> Param:
        """A new local, its name telling what it is for."""
        found = Param(f"{word}.{len(self.locals)}", type)
        self.locals.append(found)
        return found

    def each(self, out: Param, body: Expr, reduce: str | None = None) -> None:
        """`out[i…] (reduce)= body` for every element, over the axes that `elements` gives."""
        index, axes = elements(out.shape)
        self.nests.append(Nest(out.name, index, axes, body, reduce))  # type: ignore[arg-type]


def elements(shape: Sequence[int]) -> tuple[tuple[Expr, ...], tuple[Axis, ...]]:
    """Subscripts of every element of a shape, and the axes that they are."""
    axes = tuple(Axis(f"e{d}", e) for d, e in enumerate(shape))
    return axes, axes


@dataclass(frozen=True)
class Flow:
    """A nest whose body has the cotangent `g` at every point of its space."""

    nest: Nest
    g: Expr


def flows(kernel: Kernel, out: Param, cotangent: Param, program: NestBuilder) -> Iterator[Flow]:
    """The cotangents of the bodies of all nests that write `out`, last writer first.

    Args:
        kernel: The primal kernel.
        out: One of its results or locals.
        cotangent: Holds what the final value of `out` receives.
        program: Takes the nests that prepare the cotangents (counts of ties and zeros, masks of what was overwritten).
    """
    writers = [n for n in kernel.nests if n.out == out.name]
    runs = [(kind, list(run)) for kind, run in groupby(writers, key=lambda n: n.reduce)]
    before = len(writers)
    for kind, run in reversed(runs):
        after, before = before, before - len(run)
        match kind:
            case "add":
                yield from (Flow(n, Load(cotangent.name, n.index)) for n in run)
            case None:
                for k, nest in reversed(list(enumerate(run, before))):
                    yield Flow(nest, _last(nest, out, cotangent, program))
                    if k and is_pointwise_map(nest, out.shape):
                        return  # nothing is left of what was there
                    if any(not _disjoint(nest, n) for n in writers[:k]):
                        cotangent = _masked(nest, cotangent, program)
            case _:
                base = _version(kernel, out, before, program) if before else None
                rewritten = [_materialized(n, out, program) for n in run]
                if base is None and rewritten == run:
                    value = _version(kernel, out, after, program)
                else:
                    value = _joined(rewritten, out, base, program)
                rest = None if base is None else program.local("rest", out.type)
                rule = _product if kind == "mul" else _extreme
                received = rule(rewritten, value, base, cotangent, rest, program)
                yield from (Flow(n, g) for n, g in zip(run, received, strict=True))
                if rest is None:
                    return
                cotangent = rest


def _version(kernel: Kernel, out: Param, count: int, program: NestBuilder) -> Param:
    """The tensor as its first `count` writers leave it."""
    writers = [n for n in kernel.nests if n.out == out.name]
    if count == len(writers):
        return out
    copy = program.local("version", out.type)
    program.nests += [replace(n, out=copy.name) for n in writers[:count]]
    return copy


def _materialized(nest: Nest, out: Param, program: NestBuilder) -> Nest:
    """The nest reading its values from a local, unless they are the same bits wherever they are computed.

    Which value is the extreme one, or zero, is asked in several loops, and rounding may differ between these.
    """
    if is_exact(nest.body) or nest.points > MAX_KEPT:
        return nest
    kept = program.local("kept", Type(out.dtype, tuple(a.extent for a in nest.axes)))
    program.nests.append(Nest(kept.name, nest.axes, nest.axes, nest.body, None, nest.where))
    return replace(nest, body=Load(kept.name, nest.axes))


def is_exact(e: Expr) -> bool:
    """Whether computing an expression again gives the same bits: nothing in it rounds."""
    match e:
        case Apply(fn, args):
            return (fn in _EXACT or SCALARS[fn].rule == "cast") and all(is_exact(a) for a in args)
        case _:
            return True


def _joined(run: Sequence[Nest], out: Param, base: Param | None, program: NestBuilder) -> Param:
    """What a run of writers makes of what was there before it."""
    value = program.local("value", out.type)
    if base is not None:
        program.each(value, base[elements(out.shape)[0]])
    program.nests += [replace(n, out=value.name) for n in run]
    return value


def _extreme(
    run: Sequence[Nest], value: Param, base: Param | None, cotangent: Param, rest: Param | None, program: NestBuilder
) -> list[Expr]:
    """Those that equal the extreme share its cotangent evenly."""
    index, _ = elements(value.shape)
    ties, share = program.local("ties", value.type), program.local("share", value.type)
    for n in run:
        equal = apply("eq", n.body, Load(value.name, n.index))
        program.nests.append(replace(n, out=ties.name, reduce="add", body=select(equal, 1.0, 0.0)))
    if base is not None:
        program.each(ties, select(apply("eq", base[index], value[index]), 1.0, 0.0), "add")
    program.each(share, cotangent[index] / ties[index])
    if base is not None and rest is not None:
        program.each(rest, select(apply("eq", base[index], value[index]), share[index], 0.0))
    return [select(apply("eq", n.body, Load(value.name, n.index)), Load(share.name, n.index), 0.0) for n in run]


def _product(
    run: Sequence[Nest], value: Param, base: Param | None, cotangent: Param, rest: Param | None, program: NestBuilder
) -> list[Expr]:
    """Each factor's cotangent is the product of the others, which is zero if one of them is."""
    index, _ = elements(value.shape)
    zeros, others = program.local("zeros", value.type), program.local("others", value.type)
    share = program.local("share", value.type)

    def received(factor: Expr, at: tuple[Expr, ...]) -> Expr:
        zero = apply("eq", factor, 0.0)
        only = apply("eq", Load(zeros.name, at), select(zero, 1.0, 0.0))
        return select(only, Load(share.name, at) / select(zero, 1.0, factor), 0.0)

    for n in run:
        zero = apply("eq", n.body, 0.0)
        program.nests.append(replace(n, out=zeros.name, reduce="add", body=select(zero, 1.0, 0.0)))
        program.nests.append(replace(n, out=others.name, reduce="mul", body=select(zero, 1.0, n.body)))
    if base is not None:
        zero = apply("eq", base[index], 0.0)
        program.each(zeros, select(zero, 1.0, 0.0), "add")
        program.each(others, select(zero, 1.0, base[index]), "mul")
    program.each(share, cotangent[index] * others[index])
    if base is not None and rest is not None:
        program.each(rest, received(base[index], index))
    return [received(n.body, n.index) for n in run]


def _last(nest: Nest, out: Param, cotangent: Param, program: NestBuilder) -> Expr:
    """The cotangent of an assignment: of several points that write one element, the last one's value stays."""
    received = Load(cotangent.name, nest.index)
    if is_injective(nest):
        return received
    number: Expr = Const(0)
    for axis in nest.axes:
        number = number * axis.extent + axis
    winner = program.local("winner", Type(i64, out.shape))
    program.nests.append(replace(nest, out=winner.name, body=number, reduce="max"))
    return select(apply("eq", Load(winner.name, nest.index), number), received, 0.0)


def _masked(nest: Nest, cotangent: Param, program: NestBuilder) -> Param:
    """The cotangent of what was there before an assignment: zero where that wrote."""
    mask = program.local("mask", cotangent.type)
    index, _ = elements(cotangent.shape)
    program.each(mask, cotangent[index])
    program.nests.append(replace(nest, out=mask.name, body=Const(0.0), reduce=None))
    return mask


def is_injective(nest: Nest) -> bool:
    """Whether any two points of a nest's space certainly write different elements.

    Known for subscripts of axes of their own, each a sum in which every axis steps over all that follow: mixed radix.
    """
    seen: set[Expr] = set()
    for subscript in nest.index:
        form = linear(subscript)
        if form is None:
            return False
        reach = 0
        for axis, step in sorted(form.terms, key=lambda t: abs(t[1])):
            if not isinstance(axis, Axis) or axis in seen or abs(step) <= reach:
                return False
            seen.add(axis)
            reach += abs(step) * (axis.extent - 1)
    return all(a in seen or a.extent == 1 for a in nest.axes)


def _disjoint(a: Nest, b: Nest) -> bool:
    """Whether two nests write different elements for certain: somewhere their subscripts have no value in common."""
    return any(
        x is not None and y is not None and (x[1] < y[0] or y[1] < x[0])
        for x, y in zip(_reach(a), _reach(b), strict=True)
    )


def _reach(nest: Nest) -> list[tuple[int, int] | None]:
    """The values that each subscript of the output can have, as far as intervals tell."""
    box = constant_box(nest.axes, nest.where)
    ranges = {} if box is None else dict(zip(nest.axes, box, strict=True))
    return [(ranges[i][0], ranges[i][1] - 1) if isinstance(i, Axis) and i in ranges else bounds(i) for i in nest.index]
