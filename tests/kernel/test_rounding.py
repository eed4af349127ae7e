"""Floats of narrow types are rounded once per op: explicit in kernels of ops, kept where fusion joins them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC

from dlc import Report
from dlc.base.types import DTYPES, DType, Type, f16, f32
from dlc.graph import Graph, Input, Op, evaluate, make_graph
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.rounding import rounded_once
from dlc.kernel.text import parse_kernel, print_kernel
from dlc.ops.elementwise import Add, Cast, Equal, Exp, Mul, Relu, Sigmoid
from dlc.ops.linear import MatMul
from dlc.ops.reduce import ReduceMax, ReduceSum
from dlc.ops.shape import Transpose
from dlc.passes.fuse import Fuse
from dlc.passes.lower import Lower
from tests.backend_c.harness import Compiled

NARROW = [f16, DTYPES["bf16"]]
FORMS: dict[str, tuple[Callable[[Op], Op], str]] = {
    "computed": (lambda x: Mul(Exp(x).operands[0], x), "r0[i,j] = f16(f32(p0[i,j])*f32(p1[i,j]))"),
    "one op, one rounding": (Sigmoid, "r0[i,j] = f16(1.0/(1.0+exp(neg(f32(p0[i,j])))))"),
    "summed": (lambda x: ReduceSum(x, axes=(1,)), "t0[i] += f32(p0[i,j])"),
    "largest": (lambda x: ReduceMax(x, axes=(1,)), "r0[i] max= p0[i,j]"),
    "moved": (lambda x: Transpose(x, perm=(1, 0)), "r0[i,j] = p0[j,i]"),
    "chosen": (Relu, "r0[i,j] = max(p0[i,j], 0.0)"),
    "compared": (lambda x: Equal(x, x), "p0[i,j] == p1[i,j]"),
    "widened": (lambda x: Cast(x, to=f32), "r0[i,j] = f32(p0[i,j])"),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_computed_is_rounded_where_it_is_stored(form: str) -> None:
    make, expected = FORMS[form]
    text = print_kernel(make(Input("x", Type(f16, (4, 8)))).kernel)
    assert expected in text, text


@pytest.mark.parametrize("form", FORMS)
def test_rounding_again_changes_nothing(form: str) -> None:
    kernel = FORMS[form][0](Input("x", Type(f16, (4, 8)))).kernel
    assert rounded_once(kernel) == kernel


def test_wide_kernels_stay_what_they_are() -> None:
    kernel = parse_kernel("kernel(f32[4]) -> (f32[4]) { r0[i] = exp(p0[i])*p0[i] }")
    assert rounded_once(kernel) is kernel


def test_what_a_kernel_reads_of_its_own_sum_is_not_rounded() -> None:
    text = "kernel(f16[4,8], f16[4]) -> (f16[4], f16[4]) { j<8: r0[i] += p0[i,j] r1[i] = r0[i]*p1[i] }"
    kernel = rounded_once(parse_kernel(text))
    assert "r1[i] = f16(t0[i]*f32(p1[i]))" in print_kernel(kernel)
    x, y = np.full((4, 8), 2049.0, np.float16), np.full(4, 0.5, np.float16)
    first, second = run_kernel(kernel, [x, y])
    assert first.dtype == second.dtype == np.float16
    assert second[0] == np.float16(np.float32(np.float16(2049.0)) * 8 * 0.5)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_long_sums_are_exact_to_the_type(dtype: DType, tmp_path: Path) -> None:
    """Added up in the type itself, ones would stop at 2048 or 256."""
    x = Input("x", Type(dtype, (1, 5000)))
    ones = np.ones((1, 5000), dtype.numpy)
    cases = [(ReduceSum(x, axes=(1,)), [ones]), (MatMul(x, Input("y", Type(dtype, (5000, 1)))), [ones, ones.T])]
    compiled = Compiled([op.kernel for op, _ in cases], GENERIC, tmp_path)
    for n, (op, args) in enumerate(cases):
        graph = make_graph([i for i in op.operands if isinstance(i, Input)], {"y": op})
        found = evaluate(graph, {i.name: a for i, a in zip(graph.inputs, args, strict=True)})["y"]
        for value in (*run_kernel(op.kernel, args), *compiled(n, args), found):
            assert value.dtype == dtype.numpy
            assert value.reshape(-1)[0] == np.float32(5000).astype(dtype.numpy)


def fused(graph: Graph) -> Graph:
    return Fuse().run(Lower().run(graph, Report()), Report())


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_fused_and_unfused_give_the_same_bits(dtype: DType) -> None:
    x, y = Input("x", Type(dtype, (16, 64))), Input("y", Type(dtype, (16, 64)))
    graph = make_graph((x, y), {"r": Exp(Mul(Add(x, y), Sigmoid(Mul(x, y))))})
    lowered, joined = Lower().run(graph, Report()), fused(graph)
    assert len(joined.ops) < len(lowered.ops)
    random = np.random.default_rng(0)
    feeds = {i.name: random.standard_normal(i.shape).astype(dtype.numpy) for i in graph.inputs}
    a, b, c = (evaluate(g, feeds)["r"].view(np.uint16) for g in (graph, lowered, joined))
    assert np.array_equal(b, c)
    assert np.array_equal(a, b)
