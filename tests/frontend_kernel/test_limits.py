"""Texts that are too long, too deep or too large are refused, soon and with a place; what is just allowed works."""

from __future__ import annotations

import json
import time

import pytest

from dlc import DlcError, ExitCode
from tests.frontend_kernel.texts import case, kernel_of, parse

SUM = "A<4>[i] = (" + " + ".join(["B<4>[i]"] * 150) + ");"

TOO_MUCH = {
    "text": "#" + "x" * (1 << 20),
    "bytes": "#" + "\u00e9" * (1 << 22),
    "tokens": "A<4>[i] = 1;" + ";" * (1 << 16),
    "number": f"A<4>[i] = {'9' * 101};",
    "name": f"{'A' * 201}<4>[i] = 1;",
    "nesting": f"A<4>[i] = {'(' * 101}1{')' * 101};",
    "minus": f"A<4>[i] = {'-' * 5000}1;",
    "not": f"A<4>[i] = select({'not ' * 5000} B<4>[i] > 0, 1, 2);",
    "calls": f"A<4>[i] = {'exp(' * 5000}1{')' * 5000};",
    "subscripts": "A<4>[i] = " + "B<4>[" * 5000,
    "gathers": "kernel f(I: i32[4]) -> (A: i32[4]) { A[i] = " + "I[" * 6 + "i" + "]" * 6 + "; }",
    "gathers in a branch":
        "kernel f(I: i32[4]) -> (A: i32[4]) { A[i] = select(i > 0, " + "I[" * 6 + "i" + "]" * 6 + ", 0); }",
    "reductions": f"A<4>[i] = {'max[k](' * 5000}B<4>[k]{')' * 5000};",
    "subscript": f"A<4>[i] = B<4>[i{'+1' * 60}];",
    "quotients": f"A<4>[i] = B<4>[i{'//2' * 60}];",
    "sum in parentheses": "A<4>[i] = (" + " + ".join(["B<4>[i]"] * 5000) + ");",
    "product": "A<4>[i] = " + " * ".join(["B<4>[i]"] * 5000) + ";",
    "terms": "A<4>[i] = " + " + ".join(["B<4>[i]"] * 1001) + ";",
    "conditions": "A<999,999>[i,j] = " + " + ".join(f"B{k}<{999 + k}>[i+j]" for k in range(250)) + ";",
    "statements": "A<4>[i] = 1;" * 1001,
    "dimensions": f"A<{','.join(['2'] * 17)}>[i] = 1;",
    "declared dimensions": f"kernel f(A: f32[{','.join(['2'] * 17)}]) -> (B: f32) {{ B = 1; }}",
    "indices": "a<1> = " + " * ".join(f"B<2>[i{k}]" for k in range(65)) + ";",
    "points": "a<1> = " + " * ".join(f"B<2000>[i{k}]" for k in range(6)) + ";",
    "tensor": "A<2000000000,2000000000>[i,j] = 1;",
    "bytes of a tensor": "A<2000000000>[i] = 1;",
    "local": "A<4>[i] = B<60000>[j] * C<60000>[k] * max[l](D<4>[l] * B[j] * C[k]);",
    "reach": f"A<4>[i] = B<4>[min(i{'*2147483647' * 3}, 3)];",
    "reach of a range": "a<1> = B<2000000000>[i//2000000000//2000000000];",
    "huge reach": f"A<4>[i] = B<4>[min(i{'*2147483647' * 45}, 3)];",
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_refused_as_a_limit(name: str) -> None:
    start = time.process_time()
    with pytest.raises(DlcError) as caught:
        parse(TOO_MUCH[name])
    assert time.process_time() - start < 20
    (found,) = caught.value.diagnostics
    assert found.location is not None
    assert len(str(caught.value)) < 3000
    assert (found.code, caught.value.exit_code) == ("too-large", ExitCode.LIMIT), found


@pytest.mark.parametrize("constant", ["2147483648", "-2147483648", "9" * 99])
def test_constants_of_subscripts_have_32_bits(constant: str) -> None:
    with pytest.raises(DlcError) as caught:
        parse(f"A<4>[i] = B<4>[i + {constant}];")
    assert caught.value.diagnostics[0].code in ("bad-number", "empty-range")


ALLOWED = {
    "nesting": f"A<4>[i] = {'(' * 98}1{')' * 98};",
    "sum in parentheses": SUM,
    "terms": "A<4>[i] = " + " + ".join(["B<4>[i]"] * 1000) + ";",
    "terms with own indices": "A<4>[i] = " + " + ".join(["B<4,2>[i,k]"] * 300) + ";",
    "statements": "A<4>[i] = B<4>[i];" + "A[i] = A[i] * B[i];" * 900,
    "gathers": "kernel f(I: i32[4]) -> (A: i32[4]) { A[i] = select(i > 0, " + "I[" * 5 + "i" + "]" * 5 + ", 0); }",
    "dimensions": f"A<{','.join(['1'] * 16)}>[{','.join(f'i{k}' for k in range(16))}] = 1;",
    "text": "#" + "x" * 1_000_000 + "\nA<4>[i] = 1;",
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_just_allowed_works(name: str) -> None:
    start = time.process_time()
    assert kernel_of(parse(ALLOWED[name])).results
    assert time.process_time() - start < 20


def test_json_is_limited_too() -> None:
    for text in ("[" * 200_000, '{"name": ' + "9" * 10_000 + "}", '{"a":' * 100_000, case("A<4>[i] = 1;", "B " * 2000)):
        with pytest.raises(DlcError):
            parse(text, "test.json")
    names = json.dumps([f"B{k}" for k in range(2000)])
    with pytest.raises(DlcError, match="the limit is 1000"):
        parse(case("A<4>[i] = 1;").replace('"ins": []', f'"ins": {names}'), "test.json")


def test_the_size_of_tensors_is_an_option() -> None:
    text = "A<1000>[i] = 1;"
    assert parse(text, max_tensor_bytes=4000).names == ("A",)
    with pytest.raises(DlcError, match="takes 4,000 bytes; the limit is 3,999"):
        parse(text, max_tensor_bytes=3999)
