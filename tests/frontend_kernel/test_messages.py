"""Every refusal: line, column, caret, what was found, what was expected, and what helps."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dlc import DlcError, ExitCode
from tests.frontend_kernel.texts import case, fault, parse

Golden = Callable[[str, str], None]

SYNTAX = [
    "",
    "# nothing",
    "A<8>[i] = B<8>[i]",
    "A<8>[i] = B<8>[i] C<8>[i];",
    "A<8>[i] = ;",
    "A<8>[i] = (B<8>[i];",
    "A<8>[i] = B<8>[i;",
    "A<8>[i] = B<8>[];",
    "A<8[i] = 1;",
    "A<8>[i] = B<8>[i] + + C<8>[i];",
    "A<8>[i] += B<8>[i];",
    "A<8>[i] := 1;",
    "1 = 2;",
    "A<8>[i] = B<8>[i] $ 2;",
    "A<8>[i] = 007;",
    "A<8>[i] = 1e999;",
    "A<8>[i] = 1 < 2 < 3;",
    "A<8>[i] = not B<8>[i];",
    "A<8>[i] = exp(B<8>[i]",
    "A<8>[i] = max[k,](B<8,8>[i,k]);",
    "A<8>[i] = max[k] B<8,8>[i,k];",
    "A<8>[i] = B<8,8> + 1;",
    "kernel f(A: f32[8] -> (B: f32[8]) { B[i] = A[i]; }",
    "kernel f(A: f32[8]) { }",
    "kernel f(A: f32[8]) -> (B: f32[8]) { }",
    "kernel f(A: f32[8]) -> (B: f32[8]) { B[i] = A[i];",
    "kernel f(A: f32[8]) -> (B: f32[8]) { B[i] = A[i]; } B[i] = 2;",
    "kernel (A: f32[8]) -> (B: f32[8]) { B[i] = A[i]; }",
    "A<8>[i] =\n  B<8>[i] *\n  ) 3;",
    "A<8>[i] = B<8>[i] > 0 ? 1 : 0;",
    "A<8>[i] = select(B<8>[i] > 0 && i > 2, 1, 0);",
    "A<8>[i] = select(B<8>[i] > 0 || i > 2, 1, 0);",
    "A<8>[i] = select(!(B<8>[i] > 0), 1, 0);",
    "A<8>[i] = B<8>[i] ^ 2;",
    "A<8>[i] = B<8>[i] ** 2;",
    "for (i = 0; i < 8; i++) A<8>[i] = 1;",
    "while (1) A<8>[i] = 1;",
    "if (x) A<8>[i] = 1;",
    "return A;",
]

MEANING = [
    "A[i] = 1;",
    "A<8>[i] = Alpha<8>[i] + Alpah[i];",
    "A<8>[i] = B<8>[i] +\n  B<9>[i];",
    "A<8>[i] = a<1> + a<1>[i];",
    "A<8>[i] = a<1> + a[i];",
    "A<8>[i] = B<8>[i,j];",
    "A<8>[i] = B<8>[i] + B;",
    "A<0>[i] = 1;",
    "A<8.5>[i] = 1;",
    "A<8>[i] = expp(B<8>[i]);",
    "A<8>[i] = sigmoid(B<8>[i]);",
    "A<8>[i] = argmax[k](B<8>[k]);",
    "A<8>[i] = argmax(B<8>[i]);",
    "Y<4,8>[i,j] = Y[i,j-1] + X<4,8>[i,j];",
    "kernel f(X: f32[4,8]) -> (Y: f32[4,8]) { Y[i,j] = Y[i,j-1] + X[i,j]; }",
    "kernel f(X: f32[4,8], Y: f32[4,8]) -> (Y: f32[4,8]) { Y[i,j] = Y[i,j-1] + X[i,j]; }",
    "kernel f(X: f32[8]) -> (Y: f32[8]) { Y[i] = Y[i] + X[i]; }",
    "A<8>[2*i] = A[2*i+2] + B<4>[i];",
    "A<8>[i] = exp(B<8>[i], 2);",
    "A<8>[i] = max(B<8>[i]);",
    "A<8>[i] = sum(B<8>[i]);",
    "A<8>[i] = max[k,k](B<8>[k]);",
    "A<8>[i] = max[k](B<8>[i]);",
    "A<8>[i] = k;",
    "A<8>[i] = B<8>[k%3];",
    "A<4>[i] = B<4>[9-i];",
    "A<4>[i] = B<4>[4];",
    "A<4>[i] = B<4>[-1];",
    "A<4>[i] = B<4>[i/2];",
    "A<4>[i] = B<4>[i//0];",
    "A<4>[i] = B<4>[i%j];",
    "A<4>[i] = B<4>[1.5];",
    "A<4>[i] = B<4>[i < 2];",
    "A<4>[i] = B<4>[exp(i)];",
    "A<4>[i] = B<4>[max[k](k)];",
    "A<4>[i] = B<4>[I<4>[i]];",
    "A<4>[i] = B<4>[i] > 0;",
    "A<4>[i] = B<4>[i] + (B[i] > 0);",
    "A<4>[i] = select(B<4>[i], 1, 2);",
    "A<4>[i] = B<4>[i] and 1;",
    "A<4>[i,i] = 1;",
    "A<4,4>[i,i] = 1;",
    "A<4>[i*0+j] = B<4>[i] * C<4>[j];",
    "A<4>[i] = 1e39;",
    "A<4>[i] = 1e-39 + 3.5e38;",
    "kernel f(A: f31[8]) -> (B: f32[8]) { B[i] = A[i]; }",
    "kernel f(A: f32[8], A: f32[8]) -> (B: f32[8]) { B[i] = A[i]; }",
    "kernel f(A: f32[8]) -> (A: f32[9]) { A[i] = A[i]; }",
    "kernel f(A: f32[8]) -> (B: f32[8], C: f32[8]) { B[i] = A[i]; }",
    "kernel f(A: f32[8]) -> () { A[i] = 2; }",
    "kernel f(A: f32[8]) -> (B: f32[8]) { B[i] = B[i] + A[i]; }",
    "kernel f(A: f32[8]) -> (B: f32[8]) { A[i] = 2; B[i] = A[i]; }",
    "kernel f(A: f32[8]) -> (B: f32[8]) { B[i] = A[i] + T<8>[i]; }",
    "kernel f(A: f32[8], I: i32[8]) -> (B: f32[8]) {\n  B[i] = A[i] * I[i];\n}",
    "kernel f(A: f32[8]) -> (B: f64[8]) { B[i] = A[i]; }",
    "kernel f(I: i32[8]) -> (B: i32[8]) { B[i] = I[i] * 2.5; }",
    "kernel f(I: i8[8]) -> (B: i8[8]) { B[i] = I[i] + 128; }",
    "kernel f(I: i32[8]) -> (B: i32[8]) { B[i] = exp(I[i]); }",
    "kernel f(A: f32[8]) -> (B: bool) { B = A[i] > 0; }",
    "kernel f(x: f32) -> (y: f32) { y = x; }\nkernel f(x: f32) -> (y: f32) { y = x; }",
    "kernel f(x: f32) -> (y: f32) { y = x; }\nkernel g(x: f32) -> (y: f32) { y = x; }",
]

GOOD = case("A<4>[i] = B<4>[i];", "B")


def changed(**keys: object) -> str:
    found = json.loads(GOOD) | keys
    return json.dumps({key: value for key, value in found.items() if value is not ...})


CASES = [
    "",
    "{",
    "[1, 2]",
    '{"name": "a",\n "name": "b"}',
    changed(name=...),
    changed(kernel=...),
    changed(name=""),
    changed(name=3),
    changed(outs=[]),
    changed(outs="A"),
    changed(outs=["A", "A"]),
    changed(outs=["A", 3]),
    changed(outs=["A b"]),
    changed(outs=["A", "D"]),
    changed(ins=["B", "C"]),
    changed(ins=[]),
    changed(ins=None),
    changed(data_type="flaot"),
    changed(data_type=True),
    changed(kernel=["A<4>[i] = 1;"]),
    changed(kernel="A<4>[i] = B<4>[i]\n  B<4>[i];"),
    changed(kernel="A<4>[i] = B[i];"),
    changed(kernel="A<4>[i] = B;"),
    changed(kernel="A<4>[i] = B<4>[i]; B[i] = 2;"),
    changed(grads=["B"]),
    changed(grad_to=[]),
    changed(grad_to=["b"]),
    changed(grad_to=["B"], data_type="int"),
]


def shown(texts: list[str], label: str) -> str:
    """Every text with its message."""
    parts: list[str] = []
    for text in texts:
        parts += [f"--- {line}" for line in text.splitlines() or [""]] + [fault(text, label), ""]
    return "\n".join(parts)


def test_what_is_no_kernel(golden: Golden) -> None:
    golden("syntax.txt", shown(SYNTAX, "test.kernel"))


def test_what_means_nothing(golden: Golden) -> None:
    golden("meaning.txt", shown(MEANING, "test.kernel"))


def test_what_is_no_case(golden: Golden) -> None:
    golden("case.txt", shown(CASES, "test.json"))


def test_documentation_in_a_case_is_not_read() -> None:
    more = {"closed_form": {"B": "lambda: 1"}, "tag": 3, "origin": None}
    assert parse(changed(**more), "test.json") == parse(GOOD, "test.json")


def test_a_kernel_of_a_file_is_chosen_by_name() -> None:
    text = MEANING[-1]
    assert parse(text, name_="g").names == ("y",)
    with pytest.raises(DlcError, match="has no kernel h") as caught:
        parse(text, name_="h")
    assert caught.value.exit_code == ExitCode.USAGE


HOSTILE = [
    "A<8>[i] = \x1b[31mB;",
    "A<8>[i] = \u202ereversed;",
    'A<8>[i] = "\\";',
    "A<8>[i] = B\u0660<8>[i];",
    "Ä<8>[i] = 1;",
    "A<8>[i] = 1;\x00",
    "A<8>[i] = 1\u0660;",
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_text_reaches_the_terminal_as_it_is(text: str) -> None:
    for label in ("test.kernel", "test.json"):
        message = fault(text if label == "test.kernel" else changed(kernel=text), label)
        assert all(c.isprintable() or c == "\n" for c in message)
        assert "\u202e" not in message


def test_names_of_c_are_names_of_tensors() -> None:
    text = (
        "kernel main(int: f32[2], restrict: f32) -> (void: f32[2], _: f32) { void[for] = int[for] * restrict; _ = 1; }"
    )
    assert parse(text).names == ("void", "_")


def test_what_is_no_text() -> None:
    assert "is not UTF-8 text" in fault(b"A<8>[i] = \xff;")
    assert "byte 10" in fault(b"A<8>[i] = \xff;")
    assert parse(b"\xef\xbb\xbfA<8>[i] = 1;").names == ("A",), "a byte order mark is no part of the text"
