"""Kernels too large for one C function: parts computes the same, equal parts are one function, arguments are few."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.divide import MOST_ARGUMENTS, PART, divide
from dlc_backend_c.function import CFunction, c_function
from dlc_backend_c.program import MOST_OPERATIONS, OPERATIONS
from dlc_backend_c.target import GENERIC, X86_64_V3, CTarget, target_for

from dlc.base.types import Type, f32
from dlc.graph import Constant, Input, Op, Tensor, evaluate, make_graph
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel
from dlc.ops.linear import MatMul
from tests.backend_c.conftest import Compile
from tests.backend_c.harness import STRICT, Compiled, close, samples
from tests.tools import COMPILERS

TARGETS = [GENERIC, *([X86_64_V3] if target_for("native").vector_bytes >= 32 else [])]


def concat(n: int, width: int = 24) -> str:
    """The rows of a matrix, each from a tensor of its own."""
    params = ", ".join(f"p{k}: f32[{width}]" for k in range(n))
    nests = "\n".join(f" i0<{width}: r0[{k}*{width}+i0] = exp(p{k}[i0])" for k in range(n))
    return f"kernel({params}) -> (r0: f32[{n * width}]) {{\n{nests}\n}}"


def uneven(n: int) -> str:
    """Parts of several lengths and types."""
    params = ", ".join(f"p{k}: {('f32', 'f64')[k % 3 == 0]}[{1 + k % 7}]" for k in range(n))
    start = [sum(1 + j % 7 for j in range(k)) for k in range(n + 1)]
    nests = "\n".join(
        f" i0<{1 + k % 7}: r{k % 2}[{start[k]}+i0] = {'f32' if k % 3 == 0 else 'neg'}(p{k}[i0])" for k in range(n)
    )
    return f"kernel({params}) -> (r0: f32[{start[n]}], r1: f32[{start[n]}]) {{\n{nests}\n}}"


def recurrence(n: int, width: int = 6) -> str:
    """Products one after another, each of the result before and of a row of the input, and all of them."""
    locals_ = ", ".join(f"t{k}: f32[{width}]" for k in range(2 * n))
    lines: list[str] = []
    for k in range(n):
        before = f"t{2 * k - 1}" if k else "p1"
        lines.append(f" i0<{width} i1<{width}: t{2 * k}[i0] += p0[i0,i1]*{before}[i1]")
        lines.append(f" i0<{width}: t{2 * k + 1}[i0] = tanh(t{2 * k}[i0]+p2[{k},i0])")
        lines.append(f" i0<{width}: r0[{k},i0] = t{2 * k + 1}[i0]")
    shapes = f"p0: f32[{width},{width}], p1: f32[{width}], p2: f32[{n},{width}]"
    return f"kernel({shapes}) -> (r0: f32[{n},{width}]) local ({locals_}) {{\n" + "\n".join(lines) + "\n}"


def totals(n: int) -> str:
    """Sums in variables, which are read much later."""
    params = ", ".join(f"p{k}: f32[5]" for k in range(n))
    locals_ = ", ".join(f"t{k}: f32[]" for k in range(n))
    sums = "\n".join(f" i0<5: t{k}[] += p{k}[i0]" for k in range(n))
    uses = "\n".join(f" i0<5: r0[{k},i0] = p{k}[i0]-t{n - 1 - k}[]" for k in range(n))
    return f"kernel({params}) -> (r0: f32[{n},5]) local ({locals_}) {{\n{sums}\n{uses}\n}}"


def gathered(n: int) -> str:
    """Subscripts that are data, of which nobody knows where they begin."""
    nests = "\n".join(f" i0<3: r0[{k},i0] = p0[{k}+p1[{k},i0]]" for k in range(n))
    return f"kernel(p0: f32[{n + 4}], p1: i64[{n},3]) -> (r0: f32[{n},3]) {{\n{nests}\n}}"


KERNELS = [concat(65), concat(200), concat(131, 1), uneven(150), recurrence(80), totals(70), gathered(90)]


def most_arguments(function: CFunction) -> int:
    return max(text[: text.index(")")].count(",") + 1 for text in function.definitions.values())


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_parts_compute_what_the_kernel_does(target: CTarget, tmp_path: Path) -> None:
    kernels = [parse_kernel(text) for text in KERNELS]
    compiled = Compiled(kernels, target, tmp_path, flags=(*STRICT, "-O2", "-fsanitize=undefined"))
    for n, kernel in enumerate(kernels):
        assert len(compiled.functions[n].calls) > 1
        args = samples(kernel)
        for got, want in zip(compiled(n, args), run_kernel(kernel, args), strict=True):
            assert close(got, want), compiled.functions[n].text


@pytest.mark.parametrize("cc", COMPILERS)
def test_parts_compile_without_a_warning(cc: str, tmp_path: Path) -> None:
    Compiled([parse_kernel(text) for text in KERNELS], GENERIC, tmp_path, cc, (*STRICT, "-O0"))


def test_equal_parts_are_one_function() -> None:
    """A part, and what is left over."""
    function = c_function(parse_kernel(concat(10 * PART + 1)), "f", GENERIC)
    assert (len(function.calls), len(function.definitions)) == (11, 2)
    steps = c_function(parse_kernel(recurrence(320)), "f", GENERIC)
    assert len(steps.calls) >= 10
    assert len(steps.definitions) <= 6


def test_no_function_has_more_arguments_than_c_promises() -> None:
    for text in KERNELS:
        assert most_arguments(c_function(parse_kernel(text), "f", GENERIC)) <= MOST_ARGUMENTS


def test_small_kernels_stay_whole() -> None:
    program = schedule(parse_kernel(concat(64)), GENERIC.machine)
    assert divide(program) == (program, ())
    assert list(c_function(parse_kernel(concat(64)), "f", GENERIC).definitions) == ["f"]


def test_what_several_parts_work_in_is_passed_to_them() -> None:
    """Their stack frames end with them."""
    program = schedule(parse_kernel(recurrence(80)), GENERIC.machine)
    whole, parts = divide(program)
    assert all(b.stack for b in program.buffers)
    passed = {b.name for b in whole.buffers if not b.stack}
    assert passed
    assert passed == {n for p in parts for n, _ in p.arguments} - {p.name for p in (*whole.params, *whole.results)}


def test_the_cache_keeps_the_parts() -> None:
    function = c_function(parse_kernel(uneven(150)), "f", GENERIC)
    assert CFunction.from_bytes(function.to_bytes()) == function


@pytest.mark.parametrize("options", ["", "arena=static weights=text", "weights=map"])
@pytest.mark.parametrize("cc", COMPILERS)
def test_many_operations_run_in_several_functions(
    cc: str, options: str, compile_model: Compile, tmp_path: Path
) -> None:
    """A chain of products, whose results alternate between places, with a weight of its own for each."""
    x = Input("x", Type(f32, (1, 8)))
    count = MOST_OPERATIONS + 7
    y: Op = x
    for k in range(count):
        y = MatMul(y, Constant(Tensor.of(np.roll(np.eye(8, dtype=np.float32), k % 5, 0))))
    graph = make_graph((x,), {"y": y})
    compile_model(graph, f"c{{cc={cc} flags=-Wall,-Wextra,-Werror {options}}}", tmp_path)
    assert (tmp_path / "model.c").read_text().count(" void model_run_") == -(-count // OPERATIONS)
    feeds = {"x": np.arange(8, dtype=np.float32)[None]}
    np.testing.assert_array_equal(C().load(tmp_path)(feeds)["y"], evaluate(graph, feeds)["y"])
