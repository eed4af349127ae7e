"""Kernel text: what is printed parses back to the same kernel, and no text makes the parser fail without saying so."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from dlc.base.types import Type, f32, i64
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, Const, Expr, Load, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.print import print_expr
from dlc.kernel.scalar import SCALARS
from dlc.kernel.text import parse_kernel, print_kernel
from tests.kernel.random_kernels import random_kernel

TEXT = """kernel(f32[2,3], f32[3]) -> (f32[2]) local (i32[]) {
  t0[] = 3
  j<3: r0[i] += p0[i,j]*p1[j] if i+j < 4
  r0[i] max= select(i % 2 == 0 and i > 1, -inf, 1.5e-07)
}"""


@settings(deadline=None)
@given(st.integers(0, 1 << 30))
def test_random_kernels_survive_their_text(seed: int) -> None:
    kernel = random_kernel(seed)
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert again == kernel
    assert print_kernel(again) == text
    assert again.digest == kernel.digest


AXES = (Axis("i0", 4), Axis("i1", 3))
TENSORS = (Param("p0", Type(f32, (4, 3))), Param("p1", Type(i64, ())))
NUMBERS = st.one_of(st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats())


def pair(fn: str, a: Expr, b: Expr) -> Expr:
    return apply(fn, a, b)


def any_expr() -> st.SearchStrategy[Expr]:
    """Any expression, typed or not: text must not change what it says."""
    leaves: st.SearchStrategy[Expr] = st.one_of(st.sampled_from(AXES), NUMBERS.map(Const), st.just(Load("p1", ())))
    binary = sorted(s.name for s in SCALARS.values() if s.arity == 2)
    unary = sorted(s.name for s in SCALARS.values() if s.arity == 1)

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(pair, st.sampled_from(binary), inner, inner),
            st.builds(lambda_free_unary, st.sampled_from(unary), inner),
            st.builds(load, inner, inner),
            st.builds(choice, inner, inner, inner),
        )

    return st.recursive(leaves, grow, max_leaves=12)


def lambda_free_unary(fn: str, a: Expr) -> Expr:
    return apply(fn, a)


def load(a: Expr, b: Expr) -> Expr:
    return Load("p0", (a, b))


def choice(a: Expr, b: Expr, c: Expr) -> Expr:
    return apply("select", a, b, c)


@settings(max_examples=120, deadline=None)
@given(any_expr(), st.one_of(st.none(), any_expr()), st.sampled_from([None, "add", "mul", "max", "min"]))
def test_any_nest_survives_its_text(body: Expr, where: Expr | None, reduce: str | None) -> None:
    nest = Nest("r0", (AXES[0],), AXES, body, reduce, where)  # pyright: ignore[reportArgumentType]
    kernel = Kernel(TENSORS, (Param("r0", Type(f32, (4,))),), (), (nest,))
    assert parse_kernel(print_kernel(kernel)) == kernel


def test_the_example_of_the_documentation() -> None:
    kernel = parse_kernel(TEXT)
    assert print_kernel(kernel) == TEXT
    assert [n.reduce for n in kernel.nests] == [None, "add", "max"]


def mutations() -> list[str]:
    """Truncations, replaced, repeated and removed parts of a good text, and noise."""
    rng = random.Random(7)
    pieces = ["(", ")", "[", "]", "{", "}", "<", ":", "=", "+=", "max=", "-", "if", "kernel", "f32", "p0", "i0", "999"]
    pieces += [
        '"',
        "\\",
        "%",
        "@",
        "\0",
        "é",
        "١",
        "1e999",
        "1..2",
        "//",
        "nan",
        "not",
        "select(",
        "->",
        ",",
        "#",
        "\n",
    ]
    out: list[str] = []
    for _ in range(4000):
        text = TEXT
        for _ in range(rng.randint(1, 4)):
            a, b = sorted(rng.choices(range(len(text) + 1), k=2))
            b = min(b, a + rng.randint(0, 12))
            kind = rng.random()
            text = text[:a] + (rng.choice(pieces) if kind < 0.5 else text[a:b] * 2 if kind < 0.6 else "") + text[b:]
        out.append(text)
    out += ["".join(rng.choices(pieces, k=rng.randint(1, 60))) for _ in range(500)]
    return [*out, *(bytes(rng.randbytes(rng.randint(1, 80))).decode("latin-1") for _ in range(500))]


def test_every_text_is_a_kernel_or_an_error_with_a_place() -> None:
    for text in mutations():
        try:
            kernel = parse_kernel(text, "hostile.dlc")
        except DlcError as refused:
            (found,) = refused.diagnostics
            assert found.location is not None, text
            assert found.location.line >= 1, text
            continue
        assert parse_kernel(print_kernel(kernel)).digest == kernel.digest


@pytest.mark.parametrize(
    "body",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "exp(" * 5000 + "1" + ")" * 5000,
        "p0[" * 5000,
        "1.0" + "+1.0" * 5000,
        "i0 or i0 and i0 == i0 + i0 * (" * 900,
    ],
)
def test_deep_nesting_is_refused(body: str) -> None:
    text = f"kernel(p0: f32[2]) -> (r0: f32[2]) {{\n  i0<2: r0[i0] = {body}\n}}"
    with pytest.raises(DlcError, match="nested deeper than 200"):
        parse_kernel(text)


def test_the_deepest_nesting_that_is_accepted_works() -> None:
    chains = ["1.0" + "+p0[i0]" * 150, "exp(" * 150 + "p0[i0]" + ")" * 150, "p0[i0]+(" * 90 + "p0[i0]" + ")" * 90]
    for body in chains:
        kernel = parse_kernel(f"kernel(p0: f32[2]) -> (r0: f32[2]) {{ i0<2: r0[i0] = {body} }}")
        assert len({kernel, parse_kernel(print_kernel(kernel))}) == 1
        assert run_kernel(kernel, [np.zeros(2, np.float32)])[0].shape == (2,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel() -> (r0: f32[-1]) {}", "expected a dimension, found -1"),
        ("kernel() -> (r0: f33[1]) {}", "unknown element type 'f33'"),
        ("kernel(a: f32[]) -> (a: f32[]) {}", "two tensors of the kernel have one name"),
        ("kernel() -> (r0: f32[2]) { i<2 i<3: r0[i] = 1 }", "the name i is taken"),
        ("kernel() -> (r0: f32[2]) { i<-2: r0[i] = 1 }", "expected an extent, found -2"),
        ("kernel() -> (r0: f32[2]) { i<2: r0[i] = j }", "'j' is neither an axis, a tensor nor a function"),
        ("kernel() -> (r0: f32[2]) { i<2: r0[i,i] = 1 }", "r0 takes 1 subscripts, found 2"),
        ("kernel() -> (r0: f32[2]) { i<2: i = 1 }", "the left side of a nest is a tensor element"),
        ("kernel() -> (r0: f32[2]) { i<2: r0[i] ~ 1 }", "unexpected character '~'"),
        ("kernel() -> (r0: f32[2]) { i<2: r0[i] <= 1 }", "expected an assignment"),
        ("kernel() -> (r0: f32[2]) { i<2: r0[i] = " + "9" * 5000 + " }", "a number of 5000 characters"),
        ("kernel() -> (r0: f32[2]) {", "expected an expression, found the end of the text"),
    ],
)
def test_messages(text: str, message: str) -> None:
    with pytest.raises(DlcError) as refused:
        parse_kernel(text, "k.dlc")
    assert message in refused.value.diagnostics[0].message


def test_a_message_points_at_its_place() -> None:
    with pytest.raises(DlcError) as refused:
        parse_kernel("kernel() -> (r0: f32[2]) {\n  i<2: r0[i] = frob(i)\n}", "k.dlc")
    assert str(refused.value).splitlines() == [
        "error[syntax]: 'frob' is neither an axis, a tensor nor a function",
        "    i<2: r0[i] = frob(i)",
        "                 ^",
        "  from  k.dlc:2:16",
        "  help  axes and tensors here: i, r0",
    ]


def test_precedence_and_spacing() -> None:
    i = Axis("i", 4)
    assert print_expr(i - (i - 1.0)) == "i-(i-1.0)"
    assert print_expr((i + 1) * 2 % 3) == "(i+1)*2 % 3"
    assert print_expr(apply("mul", Const(-1), i) + -2) == "(-1)*i-2"
    assert print_expr(i + -2.0) == "i+(-2.0)"
    assert print_expr(apply("and", i < 1, apply("or", i > 2, i > 3))) == "i < 1 and (i > 2 or i > 3)"
