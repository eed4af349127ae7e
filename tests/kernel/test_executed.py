"""Operations are counted where loops execute them: as many as when each iteration is looked at, and never more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from dlc.base.types import Type, bf16, f32, f64, i8, i32, u8
from dlc.kernel.cook_toom import cook_toom
from dlc.kernel.expr import Apply, Axis, Const, Expr
from dlc.kernel.loops.executed import executed
from dlc.kernel.loops.program import (
    Block,
    Dots,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Local,
    LoopProgram,
    Set,
    Stmt,
    Store,
    subexpressions,
)
from dlc.kernel.nest import Param
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.schedules.winograd_nests import model_macs, transformed, window_of
from dlc.kernel.text import parse_kernel
from dlc.kernel.work import work
from tests.backend_c.test_schedules import KERNELS, conv, matmul
from tests.kernel.random_kernels import random_kernel
from tests.kernel.test_schedules import MACHINES

FEW = [text for text in KERNELS if sum(n.points for n in parse_kernel(text).nests) < 600][:8]
FEW_RANDOM = [k for k in map(random_kernel, range(12)) if sum(n.points for n in k.nests) < 4000]


def number(e: Expr, env: Mapping[str, int]) -> int | None:
    match e:
        case Const(int() as v):
            return v
        case Axis() | Local():
            return env.get(e.name)
        case Apply(fn, args):
            found = [number(a, env) for a in args]
            return None if None in found else int(SCALARS[fn].numpy(*found))
        case _:
            return None


def subscript(e: Expr) -> bool:
    return all(isinstance(x, Axis | Const | Apply) for x in subexpressions([e]))


def applied(e: Expr) -> int:
    """Functions of an expression, equal parts once, those of vectors once per lane, without looking into subscripts."""
    if isinstance(e, Fold):
        return e.vector.lanes - 1
    inside, size = {e}, 0
    while len(inside) > size:
        size = len(inside)
        inside |= {a for x in inside if isinstance(x, Apply) and not subscript(x) for a in x.args}
    found = 0
    for x in inside:
        if isinstance(x, Apply) and not subscript(x) and SCALARS[x.fn].rule not in ("cast", "bits"):
            found += max((v.lanes for v in subexpressions([x]) if isinstance(v, Local | Lanes)), default=1)
    return found


def one_by_one(body: Sequence[Stmt], env: dict[str, int]) -> int:
    """As often as each statement runs, in the shorter way where data decide."""
    total, env = 0, dict(env)
    for s in body:
        match s:
            case For(axis, start, stop, inner, step):
                first, last = number(start, env), number(stop, env)
                for place in range(first, last, step) if first is not None and last is not None else ():
                    total += one_by_one(inner, {**env, axis.name: place})
            case If(condition, then, otherwise):
                taken = number(condition, env)
                ways = [one_by_one(then, env), one_by_one(otherwise, env)]
                total += min(ways) if taken is None else ways[not taken]
            case Block(inner):
                total += one_by_one(inner, env)
            case Let(local, value) | Set(local, value):
                total += applied(value)
                if (known := number(value, env)) is not None:
                    env[local.name] = known
            case Store(_, _, value):
                total += applied(value)
            case _:
                pass
    return total


@pytest.mark.parametrize("machine", MACHINES[:3:2], ids=lambda m: f"{m.vector_bytes}x{m.registers}")
def test_as_many_as_one_by_one(machine: Machine) -> None:
    kernels = [parse_kernel(text) for text in FEW] + FEW_RANDOM
    for kernel in kernels:
        program = schedule(kernel, machine)
        found, most = executed(program).operations, one_by_one(program.body, {})
        assert found == most, kernel


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bytes}x{m.registers}")
@pytest.mark.parametrize("text", [matmul(16, 24, 32, False), conv(5, 8, 16, 3)])
def test_a_product_executes_two_operations_for_a_mac(text: str, machine: Machine) -> None:
    """And what is added to the sums. The first term of a sum is added to nothing; 24 columns may fill two vectors."""
    kernel = parse_kernel(text)
    macs, most = work(kernel)
    found = executed(schedule(kernel, machine)).operations
    assert 1.9 * macs <= found <= most * 32 / 24


TRIANGLE = """kernel(p0: f32[64,64], p1: f32[64]) -> (r0: f32[64]) {
 i0<64 i1<64: r0[i0] += p0[i0,i1]*p1[i1] if i1 <= i0
}"""


def test_a_triangle_executes_half() -> None:
    kernel = parse_kernel(TRIANGLE)
    macs = 64 * 65 // 2
    for machine in MACHINES:
        found = executed(schedule(kernel, machine)).operations
        assert 2 * macs <= found <= 2 * macs + 64 * 2 * 16, machine  # vectors reach beyond the edge


def unblocked(h: int, c: int, f: int, k: int) -> str:
    """A convolution of channels last, as it is before layouts are chosen."""
    o = h - k + 1
    return f"""kernel(p0: f32[{h},{h},{c}], p1: f32[{k},{k},{c},{f}]) -> (r0: f32[{o},{o},{f}]) {{
 i0<{o} i1<{o} i2<{f} i3<{k} i4<{k} i5<{c}: r0[i0,i1,i2] += p0[i0+i3,i1+i4,i5]*p1[i3,i4,i5,i2]
}}"""


@pytest.mark.parametrize(("outputs", "taps"), [(2, 3), (4, 3), (4, 5), (2, 7)])
def test_winograds_algorithm(outputs: int, taps: int) -> None:
    """Its MACs are the convolution's, and it executes fewer operations than two for each; no step is above the roof."""
    kernel = parse_kernel(unblocked(24, 16, 32, taps))
    window = window_of(kernel.nests[0], kernel)
    found = transformed(kernel, {0: (window, cook_toom(outputs, taps))})
    assert model_macs(found) == model_macs(kernel) == work(kernel)[0]
    for machine in MACHINES[1:3]:
        counted = executed(schedule(found, machine))
        assert counted.weight <= counted.operations < 2 * model_macs(kernel) < work(found)[1]


def products_of_words() -> LoopProgram:
    a, b, total = Local("a", i32, 8), Local("b", i32, 8), Local("s", i32, 8)
    body = (Let(total, Const(0)), Set(total, total + Dots(a, b)))
    return LoopProgram((Param("p", Type(u8, (32,))),), (), (), body)


def test_what_counts_against_the_limit_of_floats() -> None:
    """A vector of bytes holds four times as many elements as one of floats, and one of doubles half as many."""
    assert executed(products_of_words()) == (8 * 8 + 8, 2 * 8 + 8)
    a, total = Local("a", bf16, 16), Local("s", f32, 8)  # two of them in each of eight words
    assert executed(LoopProgram((), (), (), (Let(total, Dots(a, a)),))) == (4 * 8, 2 * 8)
    for dtype, part in ((f32, 1.0), (f64, 2.0), (i8, 0.25)):
        x, y = Local("x", dtype, 8), Local("y", dtype, 8)
        program = LoopProgram((), (), (), (Let(x, Const(1)), Let(y, x * x)))
        assert executed(program) == (8, 8 * part)


def test_of_two_ways_that_data_decide_the_shorter_one_counts() -> None:
    x, y = Local("x", f32), Local("y", f32)
    body = (Let(x, Const(1.0)), If(x > y, (Set(x, x * x * x),), (Set(x, x + x),)))
    assert executed(LoopProgram((), (), (), body)).operations == 1
