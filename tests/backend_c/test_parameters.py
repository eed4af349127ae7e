"""The function with a parameter for every tensor: its order and names, tensors that are in and out, limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.parameters import LIMIT

from dlc import DlcError, Report, Spec
from dlc.api.plan import parse_plan, plan_text, results_of
from dlc.api.schedules import with_schedules
from dlc.base.types import Type, f32, f64, i32
from dlc.graph import Call, Graph, Input, Op, evaluate
from dlc.kernel.define import comp, grid, kernel_of
from dlc.kernel.expr import Const
from dlc.kernel.nest import Param
from dlc.kernel.text import parse_kernel
from dlc.ops.elementwise import Add, Mul, Neg
from dlc.ops.linear import MatMul
from dlc.ops.shape import Transpose
from dlc.passes.fuse import Fuse
from dlc.passes.lower import Lower
from dlc.passes.memory import overwritten_inputs
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from dlc.runtime.install import install
from tests.backend_c.conftest import Compile
from tests.backend_c.models import Bench, content, plan_of, shell
from tests.tools import COMPILERS, CXX_COMPILERS

Array = np.ndarray[Any, np.dtype[Any]]
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")
N = 5
SQUARE = Type(f32, (N, N))


def in_out(inputs: tuple[Input, ...], outputs: dict[str, Op]) -> Graph:
    """A graph whose inputs and outputs of one name are one tensor."""
    names = [i.name for i in inputs]
    pairs = tuple((k, names.index(name)) for k, name in enumerate(outputs) if name in names)
    return Graph(inputs, tuple(outputs.values()), tuple(outputs), pairs)


def transposed() -> Graph:
    """A[i,j] = A[j,i]."""
    a = Input("A", SQUARE)
    return in_out((a,), {"A": Transpose(a, (1, 0))})


def scaled() -> Graph:
    """A[i,j] = A[i,j] * B[i,j] + A[i,j]: every element is read before it is written."""
    a, b = Input("A", SQUARE), Input("B", SQUARE)
    return in_out((b, a), {"A": Add(Mul(a, b), a)})


def swapped() -> Graph:
    """A = B and B = A."""
    a, b = Input("A", SQUARE), Input("B", SQUARE)
    return in_out((a, b), {"A": Neg(b), "B": Neg(a)})


def read_twice() -> Graph:
    """C = A^T, then A = -A: nobody reads A late if C comes first."""
    a = Input("A", SQUARE)
    return in_out((a,), {"A": Neg(a), "C": Transpose(a, (1, 0))})


def late() -> Graph:
    """A' = -A, C = A'^T + A, which needs both."""
    a = Input("A", SQUARE)
    new = Neg(a)
    return in_out((a,), {"A": new, "C": Add(Transpose(new, (1, 0)), a)})


def two_results() -> Graph:
    """One kernel that writes A and C, and reads A elsewhere than it writes it."""
    body = parse_kernel("kernel(f32[5,5]) -> (f32[5,5], f32[5,5]) {\n  r0[i,j] = p0[i,j]*2.0\n  r1[i,j] = p0[j,i]\n}")
    a = Input("A", SQUARE)
    first, second = results_of(Call(body, (a,)))
    return in_out((a,), {"A": first, "C": second})


GRAPHS = (transposed, scaled, swapped, read_twice, late, two_results)
COPIED = {"transposed": ["A"], "scaled": [], "swapped": 1, "read_twice": [], "late": ["A"], "two_results": ["A"]}


def feeds(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {i.name: rng.integers(-9, 9, i.shape).astype(i.dtype.numpy) for i in graph.inputs}


@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
def test_a_tensor_that_is_in_and_out_is_read_before_it_is_written(
    make: Any, compile_model: Compile, tmp_path: Path
) -> None:
    graph = make()
    want = evaluate(graph, feeds(graph))
    compile_model(graph, "c{prefix=net cpu=generic}", tmp_path)
    model = C().load(tmp_path)
    given = feeds(graph)
    apart = model(given)
    assert all(np.array_equal(given[name], old) for name, old in feeds(graph).items())  # not touched
    over = model(given, out={name: given[name] for name in graph.names if name in given})
    for name, array in want.items():
        np.testing.assert_array_equal(apart[name], array)
        np.testing.assert_array_equal(over[name], array)
        assert name not in given or over[name] is given[name]


@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
def test_only_what_could_be_overwritten_too_early_is_copied(make: Any) -> None:
    plan = plan_of(make())
    found = [i.name for i in plan.kept]
    expected = COPIED[make.__name__]
    assert (found if isinstance(expected, list) else len(found)) == expected
    assert plan.kept == overwritten_inputs(plan.graph, plan.steps)
    assert parse_plan(plan.graph, plan_text(plan)) == plan
    source = content(C.from_spec(Spec.parse("c{cpu=generic}")).emit(plan, Report()), "model.c").decode()
    assert source.count("memcpy(") == len(found)


@pytest.mark.parametrize("dtype", [f32, f64])
def test_a_product_is_added_to_a_tensor_in_its_place(dtype: Any, bench: Bench, tmp_path: Path) -> None:
    """A = A + B C, fused, over a sum so long that it may be cut in blocks: none may go to A before A is read."""
    a, b, c = (Input(n, Type(dtype, s)) for n, s in (("A", (37, 130)), ("B", (37, 1500)), ("C", (1500, 130))))
    graph, report = in_out((a, b, c), {"A": Add(MatMul(b, c), a)}), Report()
    backend = C.from_spec(Spec.parse("c{prefix=net}"))
    kernels = with_schedules(Fuse().run(Lower().run(graph, report), report), backend, report)
    plan = PlanMemory().run(Order().run(kernels, report), report)
    assert len(plan.steps) == 1 and not plan.kept
    install(backend.build(backend.emit(plan, Report()), bench), tmp_path)
    given = feeds(graph)
    want = evaluate(graph, feeds(graph))["A"]
    backend.load(tmp_path)(given, out={"A": given["A"]})
    np.testing.assert_allclose(given["A"], want, rtol=1e-5, atol=1e-2)


def test_an_output_that_may_not_be_an_input_is_refused(compile_model: Compile, tmp_path: Path) -> None:
    compile_model(swapped(), "c{prefix=net cpu=generic}", tmp_path)
    model, given = C().load(tmp_path), feeds(swapped())
    with pytest.raises(DlcError, match="overlaps"):
        model(given, out={"A": given["B"]})
    room = np.zeros(2 * N * N, np.float32)
    a = room[: N * N].reshape(N, N)
    with pytest.raises(DlcError, match="overlaps"):  # a part of it is not it
        model({**given, "A": a}, out={"A": room[N : N + N * N].reshape(N, N)})


def typed(t: Any) -> Graph:
    """Y[i] = A[i] * 3 + alpha[0], at a type."""
    a, s = Param("a", Type(t, (4,))), Param("s", Type(t, (1,)))
    (i,) = grid((4,))
    three = Const(3 if t is i32 else 3.0)
    body = kernel_of((a, s), [comp((i,), a[i] * three + s[Const(0)])], t)
    x, y = Input("A", a.type), Input("alpha", s.type)
    return Graph((x, y), (Call(body, (x, y)),), ("Y",))


PROGRAM = """\
#include "net.h"
#include <stdio.h>

int main(void)
{
    const CTYPE a[4] = {1, -2, 3, 4};
    const CTYPE alpha = 7;
    CTYPE y[4] = {99, 99, 99, 99};
    int (*call)(const CTYPE *, const CTYPE *, CTYPE *) = net_call;
    if (call(a, &alpha, y) != NET_OK || call(NULL, &alpha, y) != NET_ERROR_NULL)
        return 1;
    printf("%g %g %g %g\\n", (double)y[0], (double)y[1], (double)y[2], (double)y[3]);
    return 0;
}
"""


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize(("dtype", "ctype"), [(f32, "float"), (f64, "double"), (i32, "int32_t")])
def test_every_type_is_called_by_name(cc: str, dtype: Any, ctype: str, tmp_path: Path) -> None:
    artifact = C.from_spec(Spec.parse("c{prefix=net cpu=generic lib=none}")).emit(plan_of(typed(dtype)), Report())
    for name in ("net.h", "net.c"):
        (tmp_path / name).write_bytes(content(artifact, name))
    assert f"int net_call(const {ctype} *A, const {ctype} *alpha, {ctype} *Y);" in (tmp_path / "net.h").read_text()
    (tmp_path / "main.c").write_text(PROGRAM.replace("CTYPE", ctype))
    shell(cc, *STRICT, "main.c", "net.c", "-o", "run", "-lm", cwd=tmp_path)
    assert shell("./run", cwd=tmp_path).split() == ["10", "1", "16", "19"]


def header_of(graph: Graph, spec: str = "c{prefix=net cpu=generic}") -> str:
    return content(C.from_spec(Spec.parse(spec)).emit(plan_of(graph), Report()), "net.h").decode()


def prototype_of(graph: Graph, spec: str = "c{prefix=net cpu=generic}") -> str:
    found = re.search(r"int net_call\(([^;]*)\);", header_of(graph, spec))
    return re.sub(r"\s+", " ", found[1]).strip() if found else ""


def test_the_order_is_inputs_then_outputs_then_the_arena() -> None:
    a, b = Input("A", SQUARE), Input("B", SQUARE)
    assert prototype_of(in_out((b, a), {"A": Add(a, b), "C": Neg(b)})) == "const float *B, float *A, float *C"
    assert prototype_of(transposed()) == "float *A, void *arena"
    assert prototype_of(transposed(), "c{prefix=net cpu=generic arena=static}") == "float *A"
    assert prototype_of(Graph((a,), (Neg(a),), ("A",))) == "const float *A, float *A_2"  # not said to be one
    assert prototype_of(Graph((a,), (Neg(a),), ("B",), ((0, 0),))) == "const float *A, float *B"  # may be one


@pytest.mark.uses("clang", *CXX_COMPILERS)
def test_names_that_c_could_take_for_something_else(tmp_path: Path) -> None:
    names = ("int", "NET_OK", "NULL", "arena", "9", "a b", "a_b", "net_run", "x[3]", "")
    graph = Graph(inputs := tuple(Input(n, SQUARE) for n in names), tuple(Neg(i) for i in inputs), names)
    text = header_of(graph)
    (tmp_path / "net.h").write_text(text)
    (tmp_path / "use.c").write_text('#include "net.h"\nint main(void) { return 0; }\n')
    idents = re.findall(r"float \*(\w+)", text[text.index("net_call(") :])
    assert len(set(idents)) == len(idents) == 2 * len(names)
    for cc in COMPILERS:
        shell(cc, *STRICT, "-Wshadow", "-fsyntax-only", "use.c", cwd=tmp_path)
    for cxx in CXX_COMPILERS:
        shell(
            cxx,
            "-x",
            "c++",
            "-std=c++11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
            "use.c",
            cwd=tmp_path,
        )


@pytest.mark.parametrize("count", [LIMIT - 1, LIMIT])
def test_a_program_with_too_many_tensors_has_no_such_function(count: int, tmp_path: Path) -> None:
    inputs = tuple(Input(f"x{k}", Type(f32, (1,))) for k in range(count - 1))
    total: Op = inputs[0]
    for i in inputs[1:]:
        total = Add(total, i)
    artifact = C.from_spec(Spec.parse("c{prefix=net cpu=generic}")).emit(
        plan_of(Graph(inputs, (total,), ("y",))), Report()
    )
    header, source = (content(artifact, name).decode() for name in ("net.h", "net.c"))
    assert ("net_call(" in header) == ("net_call(" in source) == (count < LIMIT)
    (tmp_path / "net.h").write_text(header)
    (tmp_path / "net.c").write_text(source)
    shell("cc", *STRICT, "-fsyntax-only", "net.c", cwd=tmp_path)
