"""Loops over tensors of narrow types: values stay what the kernel's own evaluation gives, and vectors are used."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from dlc.base.types import NARROW, DType, f16, f32
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Load, walk
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import Lanes, Set, exprs_of, subexpressions, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.schedules.widen import widened
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.kernel.narrow_values import same, values_of

MACHINES = (Machine(), Machine(16, 16), Machine(64, 32), Machine(32, 16, 2 << 10, 8 << 10))
FLOATS = [t for t in (f16, *NARROW) if t.is_float]
# @T is the type; an expression of it rounds after every function.
ELEMENTWISE: Mapping[str, str] = {
    "one rounding": "r0[i] = @T(f32(p0[i])*f32(p1[i])+1.5)",
    "two roundings": "r0[i] = @T(f32(@T(f32(p0[i])*f32(p1[i])))+1.5)",
    "a function of the type itself": "r0[i] = p0[i]*p1[i]+p0[i]",
    "a literal that the type does not have": "r0[i] = select(p0[i] < 0.1, 0.1, max(p1[i], 0.3))",
    "what is moved": "r0[i] = p0[i]",
    "what is chosen": "r0[i] = select(p0[i] < p1[i], p0[i], @T(f32(p1[i])*0.5))",
    "whole numbers": "r0[i] = @T(i32(p0[i]))",
    "doubles": "r0[i] = @T(f64(p0[i])*1.0000001)",
    "signs": "r0[i] = neg(abs(p0[i]))",
    "a local": "t0[i] = @T(f32(p0[i])*0.3);  r0[i] = @T(f32(t0[i])+f32(p1[i]))",
}
SUMS: Mapping[str, str] = {
    "product": """kernel(@T[5,48], @T[48,40]) -> (@T[5,40]) local (f32[5,40]) {
        i0<5 i1<40 i2<48: t0[i0,i1] += f32(p0[i0,i2])*f32(p1[i2,i1])
        i0<5 i1<40: r0[i0,i1] = @T(t0[i0,i1])
    }""",
    "panels": """kernel(@T[20,48], @T[3,48,16]) -> (@T[20,40]) local (f32[20,40]) {
        i0<20 i1<40 i2<48: t0[i0,i1] += f32(p0[i0,i2])*f32(p1[i1//16,i2,i1 % 16])
        i0<20 i1<40: r0[i0,i1] = @T(max(f32(@T(t0[i0,i1])), 0.0))
    }""",
    "rows of both": """kernel(@T[2,200], @T[3,200]) -> (@T[2,3]) local (f32[2,3]) {
        i0<2 i1<3 i2<200: t0[i0,i1] += f32(p0[i0,i2])*f32(p1[i1,i2])
        i0<2 i1<3: r0[i0,i1] = @T(t0[i0,i1])
    }""",
    "largest": "kernel(@T[6,70]) -> (@T[6]) { i<6 j<70: r0[i] max= p0[i,j] }",
    "a sum in the type itself": "kernel(@T[6,70]) -> (@T[6]) { i<6 j<70: r0[i] += p0[i,j] }",
}


def elementwise(name: str, dtype: str, size: int) -> str:
    local = f" local ({dtype}[{size}])" if "t0" in ELEMENTWISE[name] else ""
    nests = ELEMENTWISE[name].replace(";  ", "\n").replace("@T", dtype)
    return f"kernel({dtype}[{size}], {dtype}[{size}]) -> ({dtype}[{size}]){local} {{\n{nests}\n}}"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_values_are_those_of_the_kernel(name: str, dtype: DType) -> None:
    values = values_of(dtype)
    values = values[:: max(1, values.size // 400)]
    kernel = parse_kernel(elementwise(name, str(dtype), values.size))
    args = [values, np.roll(values, values.size // 3)]
    (want,) = run_kernel(kernel, args)
    for machine in MACHINES:
        (got,) = run_loops(schedule(kernel, machine), args)
        assert same(got, want), machine


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bytes}-{m.l2 >> 10}K")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_sums_are_those_of_the_kernel(name: str, dtype: DType, machine: Machine) -> None:
    kernel = parse_kernel(SUMS[name].replace("@T", str(dtype)))
    args = samples(kernel)
    (got,), (want,) = run_loops(schedule(kernel, machine), args), run_kernel(kernel, args)
    assert close(got, want)


@pytest.mark.parametrize("name", ["product", "panels", "rows of both"])
def test_products_of_narrow_elements_run_in_vectors(name: str) -> None:
    program = schedule(parse_kernel(SUMS[name].replace("@T", "f16")), Machine(64, 32))
    parts = subexpressions(e for s in walk_stmts(program.body) for e in exprs_of(s))
    vectors = {e.first.param for e in parts if isinstance(e, Lanes)}
    assert "p1" in vectors
    assert [p.stored for p in (*program.params, *program.results)] == [f16] * 3
    assert all(b.dtype is f32 for b in program.buffers)


def test_only_roundings_inside_of_an_op_are_left() -> None:
    kernel = widened(parse_kernel(elementwise("two roundings", "f16", 8)))
    (nest,) = kernel.nests
    assert [e.fn for e in walk(nest.body) if isinstance(e, Apply) and e.fn == "f16"] == ["f16"]
    assert kernel.dtype_of(nest.body) is f32


def test_kernels_without_narrow_types_stay_as_they_are() -> None:
    kernel = parse_kernel("kernel(f32[4], i8[4]) -> (f32[4]) { r0[i] = p0[i]*f32(p1[i]) }")
    assert widened(kernel) is kernel


def test_without_vectors_factors_are_converted_by_rows() -> None:
    program = schedule(parse_kernel(SUMS["product"].replace("@T", "f16")), Machine())
    sums = [s for s in walk_stmts(program.body) if isinstance(s, Set)]
    assert sums
    assert not {e.param for s in sums for e in subexpressions((s.value,)) if isinstance(e, Load)} & {"p0", "p1"}
    assert {b.size for b in program.buffers} == {5, 48, 5 * 48}  # sums; a row of p1, all of p0
