"""Graphs are values: their digest tells content and calling convention; rewriting shares what did not change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import Type, f32
from dlc.graph import Graph, Input, Op, Splat, make_graph, toposort
from dlc.graph.graph import MAX_ORIGINS, with_live_origins
from dlc.ops.elementwise import Add, Exp, Mul, Neg, Relu
from tests.graph.random_graphs import random_graph

T = Type(f32, (3,))
X, Y = Input("x", T), Input("y", T)


def test_equal_graphs_have_one_digest_whatever_the_order_of_making() -> None:
    a = make_graph([X, Y], {"r": Add(Relu(X), Neg(Y)), "s": Mul(X, Y)})
    s, n, r = Mul(X, Y), Neg(Y), Relu(X)
    assert a == make_graph([X, Y], {"r": Add(r, n), "s": s})
    assert len({a, make_graph([X, Y], {"r": Add(r, n), "s": s})}) == 1
    assert [o.digest for o in a.ops] == [o.digest for o in make_graph([X, Y], {"r": Add(r, n), "s": s}).ops]


def test_the_calling_convention_is_in_the_digest_and_origins_are_not() -> None:
    y = Add(X, Y)
    base = Graph((X, Y), (y,), ("y",))
    others = [
        Graph((Y, X), (y,), ("y",)),
        Graph((X, Y), (y,), ("z",)),
        Graph((X, Y), (y, y), ("y", "z")),
        Graph((X, Y), (y,), ("y",), ((0, 0),)),
        Graph((X, Y), (y,), ("y",), ((0, 1),)),
    ]
    assert len({base, *others}) == 1 + len(others)
    assert base == Graph((X, Y), (y,), ("y",), origins={y.digest: ("node",)})
    # Names of inputs are part of the convention; what the source model called the nodes in between is not.
    assert base.digest != make_graph([Input("a", T), Y], {"y": Add(Input("a", T), Y)}).digest


@pytest.mark.parametrize(("a", "b"), [(("a", "b"), ("ab", "")), (("a\0b",), ("a", "b"))])
def test_names_do_not_run_together(a: tuple[str, ...], b: tuple[str, ...]) -> None:
    assert Graph((X,), (X,) * len(a), a) != Graph((X,), (X,) * len(b), b)


def test_traversal() -> None:
    r = Relu(X)
    graph = make_graph([X, Y], {"y": Add(r, Mul(r, X))})
    assert [o.text_name for o in graph.ops] == ["input", "relu", "mul", "add"]
    assert graph.users[r] == (graph.ops[2], graph.ops[3])
    assert graph.readers(r) == 2
    assert graph.readers(graph.ops[3]) == 1
    assert Y not in graph.users
    assert toposort([graph.outputs[0]], [r]) == (X, graph.ops[2], graph.ops[3])


@given(st.integers(0, 1 << 20))
def test_operands_come_before_users_and_every_op_once(seed: int) -> None:
    graph = random_graph(seed)
    seen: set[str] = set()
    for op in graph.ops:
        assert all(x.digest in seen for x in op.operands)
        assert op.digest not in seen
        seen.add(op.digest)
    assert all(o.digest in seen for o in graph.outputs)


def double_negation(op: Op) -> Op | None:
    match op:
        case Neg(x=Neg(x=x)):
            return x
        case _:
            return None


def test_a_rewrite_sees_operands_already_rewritten() -> None:
    graph = make_graph([X], {"y": Neg(Neg(Neg(Neg(Exp(X)))))})
    assert graph.rewrite(double_negation).outputs == (Exp(X),)


@settings(deadline=None)
@given(st.integers(0, 1 << 20))
def test_a_rule_that_does_nothing_keeps_every_object(seed: int) -> None:
    made = random_graph(seed)
    graph = made.rewrite(lambda op: None)  # equal ops made twice become one object
    assert graph == made
    same = graph.rewrite(lambda op: None, rounds=3)
    assert same == graph
    assert all(a is b for a, b in zip(same.ops, graph.ops, strict=True))
    assert dict(same.origins) == dict(graph.origins)


def test_rounds_repeat_until_nothing_changes() -> None:
    def shrink(op: Op) -> Op | None:
        return Relu(op.x) if isinstance(op, Exp) else op.x if isinstance(op, Relu) else None

    graph = make_graph([X], {"y": Exp(X)})
    assert graph.rewrite(shrink).outputs == (Relu(X),)
    assert graph.rewrite(shrink, rounds=5).outputs == (X,)


def test_substitution() -> None:
    r = Relu(X)
    graph = make_graph([X, Y], {"y": Add(r, Neg(r))})
    assert graph.substitute({r: Y}).outputs == (Add(Y, Neg(Y)),)
    assert graph.substitute({X: Y}).outputs == (Add(Relu(Y), Neg(Relu(Y))),)
    assert graph.substitute({}) == graph


def test_origins_follow_what_was_replaced_and_absorbed() -> None:
    inner, outer = Neg(X), Neg(Neg(X))
    last = Exp(outer)
    graph = make_graph([X], {"y": last}, {inner.digest: ("a",), outer.digest: ("b",), last.digest: ("c",)})

    def fuse(op: Op) -> Op | None:
        match op:
            case Exp(x=Neg(x=Neg(x=x))):
                return Mul(Relu(x), x)
            case _:
                return None

    new = graph.rewrite(fuse)
    (product,) = new.outputs
    assert set(new.origin(product)) == {"a", "b", "c"}
    assert set(new.origin(product.operands[0])) == {"a", "b", "c"}
    assert new.origin(X) == ()
    assert set(new.origins) == {product.digest, product.operands[0].digest}


def test_origins_of_merged_ops_join_and_are_bounded() -> None:
    a, b = Relu(X), Exp(X)
    graph = make_graph([X], {"y": a, "z": b}, {a.digest: ("a",), b.digest: ("b",)})
    merged = graph.rewrite(lambda op: Relu(op.x) if isinstance(op, Exp) else None)
    assert merged.outputs == (a, a)
    assert merged.origin(a) == ("a", "b")
    many = make_graph([X], {"y": a, "z": b}, {a.digest: ("a",), b.digest: tuple(map(str, range(99)))})
    assert len(many.substitute({b: a}).origin(a)) == MAX_ORIGINS


def test_origins_of_ops_that_are_gone_are_forgotten() -> None:
    a = Relu(X)
    graph = Graph((X,), (X,), ("y",), origins={a.digest: ("gone",)})
    assert with_live_origins(graph).origins == {}


def test_an_output_may_be_an_input_a_constant_or_given_twice() -> None:
    c = Splat(1.0, T)
    graph = Graph((X,), (X, c, c), ("a", "b", "c"))
    assert graph.ops == (X, c)
    assert graph.readers(c) == 1
