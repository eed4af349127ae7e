"""The verifier finds every kind of broken graph, and nothing in sound ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import Type, f32, i32, i64
from dlc.graph import Call, Constant, Graph, Input, Op, Splat, Tensor, make_graph, verify
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.expr import TRUE, Apply, Axis, Const, Expr, Load, apply, select
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.text import parse_kernel
from dlc.ops.elementwise import Add, Exp, Relu
from tests.graph.random_graphs import random_graph
from tests.kernel.random_kernels import random_kernel

T = Type(f32, (4,))
X, Y = Input("x", T), Input("y", T)
M, J, N = Axis("i0", 4), Axis("i1", 4), Axis("i1", -1)
P, R = Param("p0", T), Param("r0", T)


def messages(graph: Graph, kernels: bool = False) -> list[str]:
    found = verify(graph, "kernels" if kernels else "ops")
    assert all(d.code == "invalid-graph" and d.severity == "error" for d in found)
    return [d.message for d in found]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 1 << 20))
def test_sound_graphs_and_kernels_pass(seed: int) -> None:
    assert messages(random_graph(seed)) == []
    assert kernel_problems(random_kernel(seed)) == ()


def test_an_input_that_is_not_declared() -> None:
    assert messages(Graph((X,), (Add(X, Y),), ("r",))) == ["input 'y' is read but not declared"]


def test_names() -> None:
    assert messages(Graph((X, Input("x", Type(f32, ()))), (X,), ("r",))) == ["two inputs are named 'x'"]
    assert messages(Graph((X,), (X, Relu(X)), ("r", "r"))) == ["two outputs are named 'r'"]
    assert messages(Graph((X,), (X, Relu(X)), ("r",))) == ["2 outputs have 1 names"]


def test_aliases() -> None:
    r = Relu(X)
    assert messages(Graph((X,), (r,), ("r",), ((0, 0),))) == []
    assert messages(Graph((X,), (r,), ("r",), ((1, 0),))) == ["alias of output 1 and input 0: there are 1 and 1"]
    assert messages(Graph((X,), (r,), ("r",), ((0, -1),))) == ["alias of output 0 and input -1: there are 1 and 1"]
    other = Input("z", Type(f32, (5,)))
    assert messages(Graph((X, other), (r,), ("r",), ((0, 1),))) == ["output 'r' aliases input 'z' of another type"]


def test_a_type_that_does_not_follow_from_the_operands() -> None:
    broken = Relu(X)
    object.__setattr__(broken, "types", (Type(f32, (5,)),))
    graph = Graph((X,), (broken,), ("r",), origins={broken.digest: ("node 7",)})
    (found,) = verify(graph)
    assert found.message == "relu: type changed from f32[5] to f32[4]"
    assert found.location is not None
    assert found.location.node == "node 7"


def test_ops_that_should_have_been_lowered() -> None:
    constant: Op = Exp(Constant(Tensor.of([1.0, 2.0, 3.0, 4.0], f32)))
    call = Call(parse_kernel("kernel(f32[4]) -> (f32[4]) { r0[i] = p0[i] }"), (X,))
    assert messages(make_graph([X], {"r": Relu(X)}), kernels=True) == [
        "relu is left, but only kernels are expected here"
    ]
    assert messages(make_graph([X], {"r": call, "s": constant, "t": Splat(1.0, T)}), kernels=True) == []


def nest(index: tuple[Expr, ...] = (M,), axes: tuple[Axis, ...] = (M,), body: Expr = P[M], **rest: object) -> Nest:
    return Nest(str(rest.pop("out", "r0")), index, axes, body, **rest)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


BROKEN: dict[str, tuple[Nest, str]] = {
    "writes a parameter": (nest(out="p0"), "writes p0, which is not a result or local"),
    "writes nothing known": (nest(out="q"), "writes q, which is not a result or local"),
    "rank of the target": (nest(index=(M, M)), "r0 has 1 dimensions, written with 2"),
    "axes of one name": (nest(axes=(M, Axis("i0", 4))), "two axes have one name"),
    "negative extent": (nest(axes=(N,), index=(N,), body=P[N]), "axis i1 has the extent -1"),
    "foreign axis": (nest(body=P[J]), "axis i1 is not one of the nest's"),
    "axis of another extent": (nest(body=P[Axis("i0", 3)]), "axis i0 is not one of the nest's"),
    "unknown tensor": (nest(body=Load("q", (M,))), "q is not a tensor of the kernel"),
    "rank of a load": (nest(body=Load("p0", (M, M))), "p0 is loaded with 2 subscripts"),
    "unknown function": (nest(body=Apply("frob", (P[M],))), "frob of 1 arguments is not a function"),
    "arity": (nest(body=Apply("exp", (P[M], P[M]))), "exp of 2 arguments is not a function"),
    "mixed types": (nest(body=P[M] + apply("i32", P[M])), "add of different types: f32, i32"),
    "domain": (nest(body=apply("f32", apply("exp", apply("i32", P[M])))), "exp is defined for floating point, not i32"),
    "stored type": (nest(body=apply("i64", P[M])), "a value of type i64 is stored into f32[4]"),
    "guard": (nest(where=P[M]), "the guard is of type f32"),
    "subscript": (nest(body=P[apply("mul", P[M], 1.0)]), "a subscript is of type f32"),
    "written again": (nest(axes=(M, J)), "r0 is written again for each i1, and nothing reduces"),
    "load above": (nest(body=P[M + 1]), "subscript i+1 of p0 runs from 1 to 4, dimension 0 has 4"),
    "load below": (nest(body=P[M - 2]), "subscript i-2 of p0 runs from -2 to 1, dimension 0 has 4"),
    "store outside": (nest(index=(M * 2,)), "subscript i*2 of r0 runs from 0 to 6, dimension 0 has 4"),
    "condition of a select": (
        nest(body=select(P[M + 1] > 0.0, P[M], P[M])),
        "subscript i+1 of p0 runs from 1 to 4, dimension 0 has 4",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels(name: str) -> None:
    bad, message = BROKEN[name]
    kernel = Kernel((P,), (R,), (), (bad,))
    found = [str(problem) for problem in kernel_problems(kernel)]
    assert found == [f"nest 0 {message}" if message.startswith("writes") else f"nest 0: {message}"]
    graph = make_graph([X], {"r": Call(kernel, (X,))})
    assert messages(graph) == found


def test_what_guards_may_prevent_is_not_judged() -> None:
    guarded = nest(body=P[M + 1], where=M < 3)
    chosen = nest(body=select(M < 3, P[M + 1], 0.0))
    empty = nest(axes=(Axis("i0", 0),), index=(Axis("i0", 0),), body=P[Axis("i0", 0) + 9])
    once = nest(axes=(M, J), where=apply("eq", J, 2))
    correlated = nest(body=P[M // 2 + M % 2])
    for good in (guarded, chosen, empty, once, correlated, nest(where=TRUE), nest(body=Const(1.0))):
        assert kernel_problems(Kernel((P,), (R,), (), (good,))) == ()


def test_a_kernel_that_many_calls_share_is_reported_at_each() -> None:
    kernel = Kernel((P,), (R,), (), (nest(body=P[M + 1]),))
    first = Call(kernel, (X,))
    second = Call(kernel, (first,))
    assert len(messages(make_graph([X], {"r": second}))) == 2


def test_results_and_locals_may_be_read() -> None:
    local = Param("t0", Type(i32, (4,)))
    steps = (replace(nest(body=apply("i32", P[M])), out="t0"), nest(body=apply("f32", local[M])))
    assert kernel_problems(Kernel((P,), (R,), (local,), steps)) == ()
    assert messages(make_graph([X], {"r": Call(Kernel((P,), (R,), (local,), steps), (X,))}), kernels=True) == []
    assert Type(i64, ()).size == 1
