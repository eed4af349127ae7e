"""The exact text of rendered diagnostics, and that no field can disturb a terminal."""

import json
import pickle
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import (
    Diagnostic,
    DlcError,
    ExitCode,
    Location,
    did_you_mean,
    error,
    escape,
    quote,
    render,
    to_json,
)

EXAMPLES = {
    "shape": Diagnostic(
        "shape",
        "matmul: inner dimensions differ: 128 and 64",
        location=Location("model.onnx", "fc1/MatMul", column=14),
        notes=('%36 is reshape(%35), model.onnx: node "flatten"',),
        help="the weight may be stored transposed: gemm has trans_b",
        source_line="%37 = matmul(%36: f32[8,128], %fc1.w: f32[64,10])",
    ),
    "nodes": Diagnostic(
        "unsupported-op", "F, 7 nodes: reason", nodes=tuple("abc\u202edefg"), notes=("more",), help="h"
    ),
    "plain": Diagnostic("no-compiler", "gcc is not installed", help="apt-get install gcc"),
    "warning": Diagnostic("broken-plugin", "plugin x is skipped", severity="warning"),
    "bytes": Diagnostic("truncated-file", "the file ends inside a field", location=Location("m.onnx", byte=37)),
    "line": Diagnostic(
        "bad-config", "no key cahce", location=Location("dlc.toml", line=9, column=2), source_line="[cahce]"
    ),
    "hostile": Diagnostic(
        "unsupported-op",
        "op \u202e evil \u2066\n\x1b[31m*/ is unknown",
        location=Location("a\nb.onnx", 'x"\\\u200b\ud800'),
        notes=("tab\there",),
    ),
    "wide": Diagnostic("x", "caret under wide text", location=Location("s", column=4), source_line="日本é\u0301x"),
    "long-line": Diagnostic(
        "x", "far right", location=Location("s", column=400), source_line="." * 399 + "!" + "." * 100
    ),
    "long-name": Diagnostic("x", "a" * 1500),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_rendering_is_exactly_this(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.txt", render(EXAMPLES[name]))


def test_colour_marks_the_head_only() -> None:
    coloured = render(EXAMPLES["shape"], color=True)
    assert coloured.startswith("\x1b[1;31merror[shape]\x1b[0m: matmul")
    assert coloured.count("\x1b") == 2


text = st.text(st.characters(exclude_categories=()), max_size=20)


PLACES = st.builds(Location, text, text)


@given(st.builds(Diagnostic, text, text, location=PLACES, notes=st.tuples(text), help=text, nodes=st.tuples(text)))
def test_no_field_reaches_the_terminal_raw(diagnostic: Diagnostic) -> None:
    shown = render(diagnostic)
    assert shown.count("\n") <= 4
    assert all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    shown.encode()


@given(text)
def test_json_survives(word: str) -> None:
    diagnostic = Diagnostic("c", word, location=Location(word, line=1), notes=(word,), help=word, nodes=(word,))
    assert json.loads(json.dumps(to_json(diagnostic)))["message"] == word


def test_json_leaves_out_what_is_unknown() -> None:
    assert to_json(Diagnostic("c", "m")) == {"code": "c", "severity": "error", "message": "m"}
    assert to_json(EXAMPLES["nodes"])["nodes"] == list("abc\u202edefg"), "all of them"
    assert to_json(EXAMPLES["bytes"])["location"] == {"source": "m.onnx", "byte": 37}


def test_errors_carry_their_exit_code_across_processes() -> None:
    problem = error("x", "m", notes=["n"], exit_code=ExitCode.TOOL)
    copy = pickle.loads(pickle.dumps(problem))
    assert isinstance(copy, DlcError)
    assert copy.exit_code == ExitCode.TOOL
    assert copy.diagnostics == problem.diagnostics
    assert str(copy) == "error[x]: m\n  note  n"


def test_exit_codes_never_change() -> None:
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 4, 5, 6, 7, 70, 130]


def test_names_are_suggested() -> None:
    assert did_you_mean("max-op", ["max-ops", "recompute"]) == "did you mean max-ops?"
    assert did_you_mean("zzz", ["b", "a"], "passes") == "passes: a, b"
    assert did_you_mean("zzz", [], "passes") == "passes: none"


def test_quotes_show_where_a_name_ends() -> None:
    assert quote('a"b\\c\n') == '"a\\"b\\\\c\\n"'
    assert escape("\x07\u2028\U000e0001") == "\\x07\\u2028\\U000e0001"
