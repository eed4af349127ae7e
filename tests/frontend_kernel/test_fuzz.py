"""No text is an exception: it is a kernel, or an error with a place. And what is printed in any way reads back.

For a long run: python -c "from tests.frontend_kernel.test_fuzz import judge; print(judge(range(100_000)))"
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass

from dlc_frontend_kernel.expressions import Reader
from dlc_frontend_kernel.frontend import KernelText
from dlc_frontend_kernel.syntax import Call, Group, Index, Node, Number, Operation, Reduction, Ref
from dlc_frontend_kernel.tokens import KernelTokens
from hypothesis import given
from hypothesis import strategies as st

from dlc import DlcError, Report, Source
from dlc.graph import verify
from tests.frontend_kernel.hostile_texts import case, text


def judge(seeds: Iterable[int]) -> dict[str, int]:
    """Read one text per seed; how often which outcome was seen."""
    outcomes: dict[str, int] = {}
    for seed in seeds:
        rng = random.Random(seed)
        label, data = ("fuzz.json", case(rng)) if rng.random() < 0.3 else ("fuzz.kernel", text(rng))
        start = time.process_time()
        try:
            graph = KernelText(forward=True).parse(Source(data=data, label=label), Report())
            assert not verify(graph), data
            outcome = "kernel"
        except DlcError as problem:
            for d in problem.diagnostics:
                assert d.location is not None and d.message, data
            assert str(problem)
            outcome = problem.diagnostics[0].code
        assert time.process_time() - start < 10, data
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def test_random_texts_are_kernels_or_errors_with_a_place() -> None:
    outcomes = judge(range(4000))
    assert outcomes["kernel"] > 100, "changed texts are often valid, so what is behind the parser is reached too"
    assert len(outcomes) > 12


@given(st.binary(max_size=200), st.sampled_from(["fuzz.kernel", "fuzz.json"]))
def test_bytes_are_errors_with_a_place(data: bytes, label: str) -> None:
    try:
        KernelText().parse(Source(data=data, label=label), Report())
    except DlcError as problem:
        assert problem.diagnostics[0].location is not None


# ---- printing and reading back ----
@dataclass(frozen=True)
class Spelled:
    """An expression as text, how tightly its outermost operator binds, and the tree that it must read as."""

    text: str
    level: int
    tree: tuple[object, ...]


LEVELS = {
    "or": 1,
    "and": 2,
    "not": 3,
    "<": 4,
    "==": 4,
    ">=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "//": 6,
    "%": 6,
    "neg": 7,
}
GAPS = st.sampled_from(["", " ", "  ", "\n", " # comment\n", "\t"])
SHAPES = {"A": (8, 8), "s": ()}


def leaves() -> st.SearchStrategy[Spelled]:
    numbers = st.one_of(st.integers(0, 10**9), st.floats(0, 1e300, allow_subnormal=False))
    return st.one_of(
        numbers.map(lambda v: Spelled(repr(v), 9, ("number", v))),
        st.sampled_from("ijk").map(lambda n: Spelled(n, 9, ("index", n))),
        st.just(Spelled("s", 9, ("ref", "s"))),
        st.just(Spelled("s<1>", 9, ("ref", "s"))),
        st.just(Spelled("A[i,j+1]", 9, ("ref", "A", ("index", "i"), ("+", ("index", "j"), ("number", 1))))),
        st.just(Spelled("A< 8 ,8>[ i, 2]", 9, ("ref", "A", ("index", "i"), ("number", 2)))),
    )


def within(inner: Spelled, level: int) -> tuple[str, tuple[object, ...]]:
    """Text and tree in a place that asks for this level: in parentheses where they are needed."""
    return (inner.text, inner.tree) if inner.level >= level else (f"({inner.text})", ("group", inner.tree))


@st.composite
def infix(draw: st.DrawFn, inner: st.SearchStrategy[Spelled]) -> Spelled:
    op = draw(st.sampled_from([op for op in LEVELS if op not in ("not", "neg")]))
    level = LEVELS[op]
    a, left = within(draw(inner), level + (level == 4))
    b, right = within(draw(inner), level + 1)
    gap = draw(GAPS) or " "
    return Spelled(f"{a}{gap}{op}{draw(GAPS) or ' '}{b}", level, (op, left, right))


@st.composite
def prefix(draw: st.DrawFn, inner: st.SearchStrategy[Spelled]) -> Spelled:
    op, sign = draw(st.sampled_from([("neg", "-"), ("not", "not ")]))
    a, tree = within(draw(inner), LEVELS[op])
    return Spelled(f"{sign}{draw(GAPS)}{a}", LEVELS[op], (op, tree))


@st.composite
def applied(draw: st.DrawFn, inner: st.SearchStrategy[Spelled]) -> Spelled:
    a, b = draw(inner), draw(inner)
    gap = draw(GAPS)
    match draw(st.sampled_from(["group", "exp", "max", "reduce"])):
        case "group":
            return Spelled(f"({gap}{a.text}{gap})", 9, ("group", a.tree))
        case "exp":
            return Spelled(f"exp({gap}{a.text})", 9, ("exp", a.tree))
        case "max":
            return Spelled(f"max({a.text}{gap},{b.text})", 9, ("max", a.tree, b.tree))
        case _:
            return Spelled(f"sum[{gap}q]({a.text})", 9, ("add", 1, a.tree))


def expressions() -> st.SearchStrategy[Spelled]:
    return st.recursive(leaves(), lambda x: st.one_of(infix(x), infix(x), prefix(x), applied(x)), max_leaves=12)


def tree(node: Node) -> tuple[object, ...]:
    """What was read, in the form of the expectation."""
    match node:
        case Number(value, _):
            return "number", value
        case Index(name, _, _):
            return "index", name
        case Ref(tensor, subscripts, _):
            return ("ref", tensor, *map(tree, subscripts))
        case Operation(op, args, _) | Call(op, args, _):
            return (op, *map(tree, args))
        case Group(inner, _):
            return "group", tree(inner)
        case Reduction(kind, indices, body, _):
            return kind, len(indices), tree(body)


@given(expressions())
def test_what_is_printed_reads_back(spelled: Spelled) -> None:
    tokens = KernelTokens(f"A<8,8>[i,j] = s<1>; A[i,j] = {spelled.text};")
    reader = Reader(tokens, {})
    first, second = reader.statement(), reader.statement()
    assert {name: d.shape for name, d in reader.tensors.items()} == SHAPES
    assert tree(first.value) == ("ref", "s")
    assert tree(second.value) == spelled.tree
    assert tokens.current.kind == "end"
