"""A gather visits exactly the points of the scatter, each once: against enumeration of random systems."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from dlc.kernel.expr import Axis, Const, Expr, Load, apply, both, lift
from dlc.kernel.gather import NoInverse, gather
from dlc.kernel.nest import Nest
from dlc.kernel.text import print_expr
from tests.kernel.points import points


def show(nest: Nest) -> str:
    where = "" if nest.where is None else f" if {print_expr(nest.where)}"
    axes = ", ".join(f"{a.name}<{a.extent}" for a in nest.axes)
    return f"{axes}: {print_expr(Load(nest.out, nest.index))} += {print_expr(nest.body)}{where}"


def random_nest(seed: int) -> tuple[Nest, tuple[int, ...]]:
    """A scatter over two to four small axes whose subscripts combine them with // and %, under random guards."""
    rng = random.Random(seed)
    axes = [Axis(n, rng.choice((1, 2, 3, 4, 5, 6))) for n in "ijkl"[: rng.randint(1, 4)]]

    def affine() -> Expr:
        e: Expr = Const(rng.randint(-4, 6))
        for a in rng.sample(axes, rng.randint(1, len(axes))):
            e = e + a * rng.choice((1, 1, 1, 1, -1, 2, 3, -2, 4))
        return e

    def subscript(depth: int) -> Expr:
        pick = rng.random()
        if depth == 0 or pick < 0.4:
            return rng.choice(axes) if rng.random() < 0.4 else affine()
        if pick < 0.75:
            return apply(rng.choice(("floordiv", "mod")), subscript(depth - 1), rng.choice((2, 3, 4, 5)))
        return subscript(depth - 1) * rng.choice((1, 2, 3)) + subscript(depth - 1)

    index = [subscript(2) for _ in range(rng.randint(0, 3))]
    if index and rng.random() < 0.2:
        index.append(index[0])
    where: Expr | None = None
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        fn = rng.choice(("eq", "lt", "ge", "le", "gt", "ne"))
        where = both(where, apply(fn, subscript(1), subscript(1) if rng.random() < 0.3 else rng.randint(-2, 6)))
    body = Load("x", tuple(axes))
    nest = Nest("y", tuple(lift(i) for i in index), tuple(axes), body, "add", where)
    written = points(nest)
    low = [min((w[d] for w in written), default=0) for d in range(len(index))]
    moved = tuple(e - m for e, m in zip(nest.index, low, strict=True))
    shape = tuple(max((w[d] for w in written), default=0) - m + 1 + rng.randint(0, 1) for d, m in enumerate(low))
    return Nest("y", moved, tuple(axes), body, "add", where), shape


@given(st.integers(0, 1 << 32))
def test_a_gather_has_the_points_of_the_scatter(seed: int) -> None:
    nest, shape = random_nest(seed)
    nests = gather(nest, shape)
    assert not isinstance(nests, NoInverse), f"{show(nest)}: {nests.reason}"
    found = sorted(p for n in nests for p in points(n))
    assert found == points(nest), "\n".join(["", show(nest), *map(show, nests)])
