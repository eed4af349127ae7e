"""What kernel text means, checked by formulas in NumPy: terms, extensions, types, statements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend_kernel.texts import Array, case, kernel_of, parse, random, values

B, C, V = random(4, 5), random(5, 3), random(6)
DOUBLE = {"data_type": "double"}
E5 = np.arange(5.0)

FORMULAS: dict[str, tuple[Array, dict[str, Any]]] = {
    # terms: an index that the left side lacks is summed, in each term by itself, parentheses being one unit
    "A<4,3>[i,j] = B<4,5>[i,k] * C<5,3>[k,j];": (B @ C, {"B": B, "C": C}),
    "A<4>[i] = B<4,5>[i,k] + V<4>[i] + 1.0;": (B.sum(1) + V[:4] + 1, {"B": B, "V": V[:4]}),
    "A<4>[i] = V<4>[i] - B<4,5>[i,k] * B[i,k] - (V[i] - 1);": (1 - (B * B).sum(1), {"B": B, "V": V[:4]}),
    "A<4>[i] = (B<4,5>[i,k] + V<4>[i]) * W<5>[k];": (
        ((B + V[:4, None]) * C[:, 0]).sum(1),
        {"B": B, "V": V[:4], "W": C[:, 0]},
    ),
    "A<2>[i] = B<4>[j] + C<3>[k];": (np.full(2, V[:4].sum() + V[:3].sum()), {"B": V[:4], "C": V[:3]}),
    "A<4,2,5>[i,j,k] = B<4,5>[i,k];": (np.repeat(B[:, None], 2, 1), {"B": B}),
    # operators
    "A<6>[i] = V<6>[i] - 1 - 2 - 3;": (V - 6, {"V": V}),
    "A<6>[i] = V<6>[i] / 2 * 4 / 8;": (V / 4, {"V": V}),
    "A<6>[i] = 1 / 4 + V<6>[i] * 0;": (np.full(6, 0.25), {"V": V}),
    "A<6>[i] = -V<6>[i] - -1.5e0 * .5 - 1.;": (-V - 0.25, {"V": V}),
    "A<6>[i] = V<6>[i] // 0.7;": (np.floor(V / 0.7), {"V": V}),
    "A<6>[i] = V<6>[i] % 0.7;": (V - 0.7 * np.floor(V / 0.7), {"V": V}),
    "A<6>[i] = V<6>[i] % -0.7;": (V + 0.7 * np.floor(V / -0.7), {"V": V}),
    # subscripts
    "A<5>[i] = V<6>[i+1];": (V[1:], {"V": V}),
    "A<6>[i] = V<6>[i-1];": (np.concatenate([[0], V[:5]]), {"V": V}),
    "A<6>[i] = V<6>[5-i];": (V[::-1], {"V": V}),
    "A<3>[i] = V<6>[i*2+1] + V[0] - V[-1+2];": (V[1::2] + V[0] - V[1], {"V": V}),
    "A<12>[i] = V<6>[i//2];": (np.repeat(V, 2), {"V": V}),
    "A<6>[i] = V<6>[(i+2)%6];": (np.roll(V, -2), {"V": V}),
    "A<20>[i] = B<4,5>[i//5, i%5];": (B.reshape(20), {"B": B}),
    "A<4,5>[i,j] = B<20>[i*5+j];": (B, {"B": B}),
    "A<4>[i] = B<4,5>[i,i];": (np.diag(B), {"B": B}),
    "A<6>[i] = V<6>[min(i, 3)];": (V[[0, 1, 2, 3, 3, 3]], {"V": V}),
    "A<6,6>[i,j] = V<6>[max(i, j)];": (V[np.maximum.outer(np.arange(6), np.arange(6))], {"V": V}),
    "A<3,3>[i,j] = V<6>[2*i - j + 1];": (
        np.array([[V[2 * i - j + 1] if 0 <= 2 * i - j + 1 < 6 else 0 for j in range(3)] for i in range(3)]),
        {"V": V},
    ),
    # scalars and left sides
    "s<1> = V<6>[i] * V[i];": (np.array(V @ V), {"V": V}),
    "A<6>[i] = a<1> * V<6>[i] + a;": (2.5 * V + 2.5, {"V": V, "a": 2.5}),
    "A<6>[i] = a<1>[0] * V<6>[i];": (2.5 * V, {"V": V, "a": 2.5}),
    "A<12>[i*2+1] = V<6>[i];": (np.stack([0 * V, V], 1).reshape(12), {"V": V}),
    "A<2,6>[1,i] = V<6>[i];": (np.stack([0 * V, V]), {"V": V}),
    "A<6>[5-i] = V<6>[i];": (V[::-1], {"V": V}),
    "A<20>[5*i+j] = B<4,5>[i,j];": (B.reshape(20), {"B": B}),
    # comparisons, choices, an index as a value
    "A<6>[i] = select(V<6>[i] > 0 and not V[i] >= 1 or V[i] == 7, V[i], -1);": (
        np.where((V > 0) & ~(V >= 1), V, -1),
        {"V": V},
    ),
    "A<6>[i] = select(i < 3, V<6>[i], i);": (np.where(np.arange(6) < 3, V, np.arange(6)), {"V": V}),
    "A<6>[i] = select(i >= 1, V<6>[i-1], 9);": (np.concatenate([[9], V[:5]]), {"V": V}),
    "A<6>[i] = V<6>[i] * i + i / 4 + i // 4;": (
        V * np.arange(6) + np.arange(6) / 4 + np.arange(6) // 4,
        {"V": V},
    ),
    "A<4,5>[i,j] = select((i != j), B<4,5>[i,j], 1);": (np.where(np.eye(4, 5) > 0, 1, B), {"B": B}),
    # functions
    "A<6>[i] = exp(V<6>[i]) + tanh(V[i]) * max(V[i], 0.5) + min(V[i], 1) - abs(V[i]);": (
        np.exp(V) + np.tanh(V) * np.maximum(V, 0.5) + np.minimum(V, 1) - np.abs(V),
        {"V": V},
    ),
    "A<6>[i] = pow(abs(V<6>[i]), 1.5) + sqrt(4) + sign(V[i]) + round(2.5);": (
        np.abs(V) ** 1.5 + 2 + np.sign(V) + 2,
        {"V": V},
    ),
    # reductions by name
    "A<4>[i] = max[k](B<4,5>[i,k]);": (B.max(1), {"B": B}),
    "A<4>[i] = 2 * min[k](B<4,5>[i,k]) + prod[k](B[i,k]);": (2 * B.min(1) + B.prod(1), {"B": B}),
    "A<4>[i] = sum[k](B<4,5>[i,k] * k) / sum[k](B[i,k]);": (B @ E5 / B.sum(1), {"B": B}),
    "a<1> = max[i,k](B<4,5>[i,k]);": (np.array(B.max()), {"B": B}),
    "A<4>[i] = V<4>[i] * max[k](B<4,5>[i,k] * sum[j](C<5,3>[k,j]));": (
        V[:4] * (B * C.sum(1)).max(1),
        {"V": V[:4], "B": B, "C": C},
    ),
    "A<4>[i] = W<5>[k] * max[i](B<4,5>[i,k]);": (np.full(4, C[:, 0] @ B.max(0)), {"W": C[:, 0], "B": B}),
    "A<4,5>[i,j] = exp(B<4,5>[i,j] - max[k](B[i,k])) / sum[k](exp(B[i,k] - max[l](B[i,l])));": (
        np.exp(B - B.max(1, keepdims=True)) / np.exp(B - B.max(1, keepdims=True)).sum(1, keepdims=True),
        {"B": B},
    ),
    "A<4>[i] = max[r](V<6>[i+r] * W<3>[r]);": (
        np.array([max(V[i + r] * C[r, 0] for r in range(3)) for i in range(4)]),
        {"V": V, "W": C[:3, 0]},
    ),
}


@pytest.mark.parametrize("text", FORMULAS)
def test_a_statement_means_its_formula(text: str) -> None:
    expected, feeds = FORMULAS[text]
    (found,) = values(text, options=DOUBLE, **feeds).values()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


PROGRAMS: dict[str, tuple[Array, dict[str, Any]]] = {
    # statements run in order, each with its own ranges
    "T<4>[i] = B<4,5>[i,k]; A<2>[i] = T[i] + T[i+2];": (B.sum(1)[:2] + B.sum(1)[2:], {"B": B}),
    "A<6>[i] = V<6>[i]; A[i] = A[5-i] + 1;": (V[::-1] + 1, {"V": V}),
    "A<6>[i] = V<6>[i]; A[i] = A[i] + 1; A[i] = A[i] * A[i];": ((V + 1) ** 2, {"V": V}),
    # what a statement does not write keeps its value
    "A<6>[i] = V<6>[i]; A[0] = 7;": (np.concatenate([[7], V[1:]]), {"V": V}),
    "A<6>[i] = V<6>[i]; A[i] = 0 * V[i+2];": (np.concatenate([[0] * 4, V[4:]]), {"V": V}),
    "A<6>[i] = V<6>[i]; A[i*2] = 0;": (V * (np.arange(6) % 2), {"V": V}),
    "A<6>[i] = V<6>[i]; A[i] = A[i] + V[i+3];": (V + np.concatenate([V[3:], [0] * 3]), {"V": V}),
    "A<4,5>[i,j] = B<4,5>[i,j]; A[i,j] = V<6>[i+j] * 0;": (
        np.array([[0 if i + j < 6 else B[i, j] for j in range(5)] for i in range(4)]),
        {"B": B, "V": V},
    ),
    "A<4,5>[i,j] = B<4,5>[i,j]; A[i+1,2] = 0;": (
        np.array([[0 if i > 0 and j == 2 else B[i, j] for j in range(5)] for i in range(4)]),
        {"B": B},
    ),
    # a condition on the left side's indices skips the point for all terms, others only their own
    "A<4>[i] = V<6>[i] + V[i+3];": (np.concatenate([V[:3] + V[3:], [0]]), {"V": V}),
    "A<4>[i] = B<4,5>[i,k] + V<6>[i+r] * W<3>[r+1];": (
        B.sum(1) + np.array([sum(V[i + r] * C[r + 1, 0] for r in range(2)) for i in range(4)]),
        {"B": B, "V": V, "W": C[:3, 0]},
    ),
}


@pytest.mark.parametrize("text", PROGRAMS)
def test_statements_run_in_order(text: str) -> None:
    expected, feeds = PROGRAMS[text]
    found = values(text, options=DOUBLE, **feeds)
    np.testing.assert_allclose(found["A"], expected, rtol=1e-12, atol=1e-12)
    assert list(found) == ["A"]


def test_integer_statements_divide_as_c_and_floor_as_python() -> None:
    text = case(
        "A<4,4>[i,j] = B<4>[i] / C<4>[j]; D<4,4>[i,j] = B[i] // C[j]; E<4,4>[i,j] = B[i] % C[j];", "B C", "A D E", "int"
    )
    b, c = np.array([7, -7, 6, -1]), np.array([2, -2, 3, -5])
    found = values(text, "x.json", B=b, C=c)
    np.testing.assert_array_equal(found["A"], np.trunc(b[:, None] / c))
    np.testing.assert_array_equal(found["D"], b[:, None] // c)
    np.testing.assert_array_equal(found["E"], b[:, None] % c)
    assert found["A"].dtype == np.int32


def test_a_tensor_as_a_subscript_reads_where_it_points_and_skips_what_is_outside() -> None:
    text = "kernel take(X: f64[4,5], I: i32[6]) -> (Y: f64[6,5]) { Y[p,j] = X[I[p]*2 + 1 - 1, j]; }"
    places = np.array([0, 1, 2, -1, 5, 1])
    expected = np.array([B[2 * p] if 0 <= 2 * p < 4 else np.zeros(5) for p in places])
    np.testing.assert_array_equal(values(text, X=B, I=places)["Y"], expected)


def test_several_results_and_types() -> None:
    text = """
    kernel f(x: double[6], n: int) -> (count: int, large: bool[6], y: f32[6], n: int) {
      count = select(x[i] > 0, 1, 0);
      large[i] = x[i] > 1;
      y[i] = f32(x[i]) + f32(n);
      n = n + 1;
    }"""
    graph = parse(text)
    assert graph.names == ("count", "large", "y", "n")
    assert graph.aliases == ((3, 1),)
    found = values(text, x=V, n=4)
    assert found["count"] == (V > 0).sum() and found["n"] == 5
    np.testing.assert_array_equal(found["large"], V > 1)
    np.testing.assert_array_equal(found["y"], V.astype(np.float32) + 4)


def test_bare_statements_tell_inputs_and_outputs() -> None:
    graph = parse("T<4>[i] = X<4>[i]; A<4>[i] = T[i] * Y<4>[i]; Z<4>[i] = Z[i] + A[i];")
    assert [i.name for i in graph.inputs] == ["X", "Y", "Z"]
    assert graph.names == ("Z",)
    assert graph.aliases == ((0, 2),)


def test_an_output_in_ins_that_is_written_first_is_an_input_all_the_same() -> None:
    graph = parse(case("A<4>[i] = B<4>[i];", "B A"), "x.json")
    assert [i.name for i in graph.inputs] == ["B", "A"]
    assert graph.aliases == ((0, 1),)


def test_terms_in_front_are_one_expression_and_reductions_one_nest_each() -> None:
    kernel = kernel_of(parse("A<4>[i] = B<4>[i] - 1 + C<4,5>[i,k] - D<4>[i];"))
    assert [n.reduce for n in kernel.nests] == [None, "add", "add"]
    assert not kernel.locals


def test_equal_reductions_are_computed_once() -> None:
    kernel = kernel_of(parse("A<4>[i] = max[k](B<4,5>[i,k]) * 2 + 1 / max[l](B[i,l]);"))
    assert len(kernel.locals) == 1


def test_what_leads_to_no_output_is_left_out() -> None:
    kernel = kernel_of(parse(case("T<4>[i] = B<4>[i]; A<4>[i] = 1; A[i] = 2;", "B"), "x.json"))
    assert len(kernel.nests) == 1
    assert not kernel.params


def test_comments_and_a_file_of_several_kernels() -> None:
    text = """# two kernels
    // each has a name
    kernel one(x: f32) -> (y: f32) { y = x // 2; // floor division, then a comment
    }
    kernel two(x: f32[2], /* */ y: f32) -> (z: f32[2]) { z[i] = x[i]; }
    """
    text = text.replace("/* */", "// a comment behind a comma\n")
    assert [i.name for i in parse(text, name_="two").inputs] == ["x", "y"]
    assert values(text, options={"name_": "one"}, x=5)["y"] == 2


def test_origins_are_the_statements() -> None:
    graph = parse("\nA<4>[i] =\n  B<4>[i];")
    assert list(graph.origins.values()) == [("line 2: A<4>[i] = B<4>[i]",)]
