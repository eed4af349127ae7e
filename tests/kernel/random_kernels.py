"""Random kernels: small, valid, and of every shape the schedules tell apart."""

from __future__ import annotations

import random

from dlc.base.types import Type, bool_, f32, i32
from dlc.kernel.expr import Axis, Expr, apply, both
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param, Reduce

UNARY = ("neg", "abs", "sign", "exp", "tanh", "floor")
BINARY = ("add", "sub", "mul", "min", "max")


def random_kernel(seed: int) -> Kernel:
    """One to three nests over f32 or i32 tensors: affine loads with guards, reductions, element-wise followers."""
    rng = random.Random(seed)
    dtype = rng.choice((f32, f32, f32, i32))
    params: list[Param] = []
    axes = [Axis(f"a{k}", rng.choice((1, 2, 3, 5, 8, 17, 33))) for k in range(rng.randint(1, 3))]
    reduced = [Axis(f"k{k}", rng.choice((1, 2, 3, 9, 40))) for k in range(rng.randint(0, 2))]
    guards: list[Expr] = []

    def load(over: list[Axis]) -> Expr:
        index: list[Expr] = []
        shape: list[int] = []
        pool = rng.sample(over, rng.randint(1, len(over)))
        while pool:
            a = pool.pop()
            if pool and rng.random() < 0.3:  # a window: position plus offset, padded
                b = pool.pop()
                pad = rng.randint(0, 2)
                size = max(1, a.extent + b.extent - 1 - 2 * pad)
                e = a + b - pad
                if pad or size < a.extent + b.extent - 1:
                    guards.append(both(e >= 0, e < size) or e >= 0)
                index.append(e)
                shape.append(size)
            elif a.extent > 4 and rng.random() < 0.3:  # a blocked dimension
                index += [a // 4, a % 4]
                shape += [-(-a.extent // 4), 4]
            else:
                index.append(a)
                shape.append(a.extent)
        params.append(Param(f"x{len(params)}", Type(dtype, tuple(shape))))
        return params[-1][tuple(index)]

    def body(over: list[Axis], depth: int) -> Expr:
        pick = rng.random()
        if depth == 0 or pick < 0.2:
            return load(over)
        if pick < 0.35 and dtype is f32:
            return apply(rng.choice(UNARY), body(over, depth - 1))
        if pick < 0.45:
            return apply("select", rng.choice(over) >= 1, body(over, depth - 1), body(over, depth - 1))
        other = apply(str(dtype), rng.randint(-2, 2)) if pick < 0.55 else body(over, depth - 1)
        return apply(rng.choice(BINARY), body(over, depth - 1), other)

    product = bool(reduced) and rng.random() < 0.6
    value = apply("mul", load([*axes, *reduced]), load([*axes, *reduced])) if product else body([*axes, *reduced], 2)
    where: Expr | None = None
    for g in guards:
        where = both(where, g)
    kinds: tuple[Reduce, ...] = ("add", "max", "min")
    kind = None if not reduced else "add" if product else rng.choice(kinds)
    local = Param("t", Type(dtype, tuple(a.extent for a in axes)))
    out = Param("y", local.type)
    index = tuple(axes)
    first = Nest("t", index, (*axes, *reduced), value, kind, where)
    guards.clear()
    if rng.random() < 0.4:
        return Kernel.canonical(tuple(params), (Param("t", local.type),), (first,))
    follow = apply(rng.choice(BINARY), local[index], load(list(axes)))
    guarded = both(None, guards[0]) if guards else None
    second = Nest("y", index, tuple(axes), follow, None, guarded)
    if rng.random() < 0.5:
        return Kernel.canonical(tuple(params), (out,), (first, second), (local,))
    row = Param("u", Type(dtype, (axes[0].extent,)))
    third = Nest("u", (axes[0],), tuple(axes), out[index], rng.choice(kinds))
    last = Nest("z", index, tuple(axes), out[index] - row[axes[0]])
    result = Param("z", local.type)
    return Kernel.canonical(tuple(params), (result,), (first, second, third, last), (local, out, row))


__all__ = ["bool_", "random_kernel"]
