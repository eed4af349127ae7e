"""Substitute a producer's value into its consumer: the fusion of nests.

    t[i] = f(i);  out[…] (r)= g(t[e])     →     out[…] (r)= g(f(e))

Legal when the producer is one nest without a reduction that writes every element of `t` exactly once at plain axes. One
that stops at the sizes of a call gives its guard to the consumer, see `ends`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dlc.base.types import DType, i64
from dlc.kernel.expr import Axis, Const, Expr, Load, apply, both, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import conjuncts, is_index, simplify_nest
from dlc.kernel.take_apart import take_apart


def is_pointwise_map(nest: Nest, shape: tuple[int, ...]) -> bool:
    """Whether the nest writes each element of its output once, unguarded, at plain (or constant zero) subscripts."""
    if nest.reduce is not None or nest.where is not None:
        return False
    plain = [i for i in nest.index if isinstance(i, Axis)]
    unit = all(isinstance(i, Axis) or (i == Const(0) and d == 1) for i, d in zip(nest.index, shape, strict=True))
    full = all(not isinstance(i, Axis) or i.extent == d for i, d in zip(nest.index, shape, strict=True))
    return unit and full and len(set(plain)) == len(plain) and set(plain) == set(nest.axes)


def reads_each_once(nest: Nest, load: Load, shape: tuple[int, ...]) -> bool:
    """Whether a load reads each element of a tensor of this shape once while the axes of its nest run."""
    plain = [i for i in load.index if isinstance(i, Axis)]
    whole = all(
        (isinstance(i, Axis) and i.extent == d) or (i == Const(0) and d == 1)
        for i, d in zip(load.index, shape, strict=True)
    )
    return whole and len(set(plain)) == len(plain) == len(nest.axes)


def value_at(producer: Nest, index: tuple[Expr, ...]) -> Expr:
    """The producer's body at the given subscripts."""
    if index == producer.index:
        return producer.body
    mapping: dict[Expr, Expr] = {a: e for a, e in zip(producer.index, index, strict=True) if isinstance(a, Axis)}
    return substitute(producer.body, mapping)


def guard_at(producer: Nest, index: tuple[Expr, ...]) -> Sequence[Expr]:
    """The parts of the producer's guard at the given subscripts."""
    mapping: dict[Expr, Expr] = {a: e for a, e in zip(producer.index, index, strict=True) if isinstance(a, Axis)}
    return [substitute(part, mapping) for part in conjuncts(producer.where)]


def inline(consumer: Nest, name: str, producer: Nest, dtype_of: Callable[[Expr], DType | None] | None = None) -> Nest:
    """The consumer with every load of `name` replaced by the producer's value there (see the module's equation).

    `dtype_of` gives types of the consumer's expressions: a subscript is of any integer type, but where an axis was,
    which is i64, it takes part in arithmetic.
    """

    def widened(e: Expr) -> Expr:
        return e if dtype_of is None or is_index(e) or dtype_of(e) in (None, i64) else apply("i64", e)

    def change(load: Load) -> Expr:
        return value_at(producer, tuple(map(widened, load.index))) if load.param == name else load

    changed = consumer.map_loads(change)
    if producer.where is not None:
        for part in (p for load in consumer.loads[name] for p in guard_at(producer, load.index)):
            changed = replace(changed, where=both(changed.where, part))
    return take_apart(simplify_nest(changed))


def loads_of(kernel: Kernel, name: str) -> Mapping[int, int]:
    """How often each nest (by position) loads a tensor."""
    from dlc.kernel.expr import loads

    counts = {k: sum(x.param == name for e in n.exprs() for x in loads(e)) for k, n in enumerate(kernel.nests)}
    return {k: c for k, c in counts.items() if c}
