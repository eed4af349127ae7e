"""Spec text: `Spec.parse` and `str` are inverse, and hostile text gives one diagnostic with a caret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError, ExitCode, error, render
from dlc.spec import OptionError, Spec, Value, parse_setting

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_./-]{0,8}", fullmatch=True)
keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True)
scalars = st.one_of(st.text(max_size=12), st.from_regex(r"[a-z0-9.=-]{1,8}", fullmatch=True))


def spec_of(name: str, options: dict[str, Value]) -> Spec:
    return Spec(name, tuple(options.items()))


def specs_of(inner: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
    item = st.one_of(scalars, inner)
    value = st.one_of(item, st.lists(item, max_size=3).map(tuple))
    return st.builds(spec_of, names, st.dictionaries(keys, value, max_size=3))


specs = st.recursive(names.map(Spec), specs_of, max_leaves=8)


@given(specs)
def test_parse_and_print_are_inverse(spec: Spec) -> None:
    assert Spec.parse(str(spec)) == spec
    assert str(Spec.parse(str(spec))) == str(spec)
    assert str(spec).isascii()


@given(st.lists(specs, max_size=4))
def test_pipelines_are_inverse_too(pipeline: list[Spec]) -> None:
    assert Spec.parse_pipeline(Spec.print_pipeline(pipeline)) == tuple(pipeline)


@given(st.one_of(st.text(), st.text(alphabet='ab{}=,"\\ \n1.-()\u202e\x00')))
def test_any_text_parses_or_gives_one_diagnostic_inside_the_text(text: str) -> None:
    try:
        spec = Spec.parse(text)
    except DlcError as problem:
        (diagnostic,) = problem.diagnostics
        assert problem.exit_code == ExitCode.USAGE
        assert diagnostic.location is not None
        assert 1 <= diagnostic.location.column <= len(diagnostic.source_line) + 1
        assert render(diagnostic).replace("\n", "").isprintable()
    else:
        assert Spec.parse(str(spec)) == spec


def test_deep_nesting_is_refused_without_recursion_errors() -> None:
    with pytest.raises(DlcError, match="nest deeper than 32"):
        Spec.parse("a{b=" * 100_000)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("fuse", "fuse"),
        ("fuse{}", "fuse"),
        (" fuse { max-ops = 8  x=1 } ", "fuse{max-ops=8 x=1}"),
        ("c{flags=-O3, -march=native threads=4}", "c{flags=-O3,-march=native threads=4}"),
        ("autodiff{optimizer=sgd{lr=0.01}}", "autodiff{optimizer=sgd{lr=0.01}}"),
        ("a{b=c{}}", "a{b=c{}}"),
        ('a{b="two words" c="" d=()}', 'a{b="two words" c="" d=()}'),
        ("onnx{dims=input:0:8}", "onnx{dims=input:0:8}"),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    assert str(Spec.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a name, found the end of the text"),
        ("{", 1, 'expected a name, found "{"'),
        ("a b", 3, "expected ',' or the end"),
        ("a{", 3, "expected '}' to close a{"),
        ("a{b}", 4, "expected '=' after option b"),
        ("a{b=}", 5, "expected a value"),
        ("a{b=(1,2)}", 5, 'expected a value, found "("'),
        ("a{b=1 b=2}", 7, "option b is given twice"),
        ('a{b="x}', 5, "no closing quote"),
        ('a{b="\\q"}', 5, "bad string"),
        ("a{b=(),1}", 5, "stands alone"),
        ("a{b=1:2{c=1}}", 5, "cannot be the name of a spec"),
    ],
)
def test_errors_point_at_the_place(text: str, column: int, message: str) -> None:
    with pytest.raises(DlcError) as caught:
        Spec.parse(text)
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert diagnostic.location is not None
    assert diagnostic.location.column == column


def test_trailing_comma_in_a_pipeline_is_an_error() -> None:
    with pytest.raises(DlcError, match="expected a name after ','"):
        Spec.parse_pipeline("a,b,")
    assert Spec.parse_pipeline("  ") == ()


def test_errors_in_later_lines_show_that_line() -> None:
    with pytest.raises(DlcError) as caught:
        Spec.parse_pipeline("a,\nb{c},\nd", "dlc.toml:4")
    assert str(caught.value).splitlines()[1:3] == ["  b{c},", "     ^"]


def test_settings_divide_step_key_and_value() -> None:
    assert parse_setting("fuse.max-ops=4")[:3] == ("fuse", "max-ops", "4")
    assert parse_setting("vendor.fuse.o=sgd{lr=1}")[:3] == ("vendor.fuse", "o", Spec("sgd", (("lr", "1"),)))
    for text in ("fuse", "fuse=4", ".x=1", "a.=1", "a.b=", "a.b=1 c=2"):
        with pytest.raises(DlcError):
            parse_setting(text)


def test_with_option_replaces_in_place_or_appends() -> None:
    spec = Spec.parse("a{b=1 c=2}")
    assert str(spec.with_option("b", "3")) == "a{b=3 c=2}"
    assert str(spec.with_option("d", ("1", "2"))) == "a{b=1 c=2 d=1,2}"
    assert spec.get("c") == "2"
    assert spec.get("z") is None


@pytest.mark.parametrize(
    ("text", "canonical"),
    {
        "": "a",
        "loss=mse,optimizer=adam{lr=1e-3}": "a{loss=mse optimizer=adam{lr=1e-3}}",
        "loss=mse optimizer=adam{lr=1e-3}": "a{loss=mse optimizer=adam{lr=1e-3}}",
        " loss = mse , clip = 1 ": "a{loss=mse clip=1}",
        "wrt=w,b,loss=mse": "a{wrt=w,b loss=mse}",
        "wrt=w,!b.*, loss=mse": "a{wrt=w,!b.* loss=mse}",
        "wrt=(),loss=mse": "a{wrt=() loss=mse}",
        "loss=sum{losses=mse{},l1{} weights=1,0.5},clip=1": "a{loss=sum{losses=mse{},l1{} weights=1,0.5} clip=1}",
    }.items(),
)
def test_options_alone_may_have_commas_between_them(text: str, canonical: str) -> None:
    assert str(Spec.parse_options("a", text, "--train")) == canonical


@given(specs)
def test_options_of_any_spec_parse_alone(spec: Spec) -> None:
    inside = str(spec)[len(spec.name) + 1 : -1] if spec.options else ""
    assert Spec.parse_options(spec.name, inside, "test") == spec


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("loss=mse,", 10, "expected a value"),
        ("loss", 5, "expected '=' after option loss"),
        (",loss=mse", 1, "expected an option"),
        ("loss=mse}", 9, "expected"),
        ("x=1,x=2", 5, "option x is given twice"),
    ],
)
def test_errors_in_options_point_at_the_place(text: str, column: int, message: str) -> None:
    with pytest.raises(DlcError, match=message) as refused:
        Spec.parse_options("a", text, "--train")
    location = refused.value.diagnostics[0].location
    assert location is not None
    assert (location.source, location.column) == ("--train", column)


@pytest.mark.parametrize(
    ("text", "key", "word", "column"),
    [
        ("wrt=ab*,!b*,c", "wrt", "b*", 10),
        ("wrt=b*,c", "wrt", "b*", 5),
        ("loss=b wrt=ab,b", "wrt", "b", 15),
        ('wrt=a,"b c"', "wrt", "b c", 8),
        (r'wrt=a,"b\u0063"', "wrt", "bc", 5),
        ("loss=mse,wrt=a,b", "wrt", "", 14),
    ],
)
def test_what_is_found_wrong_later_points_at_the_place(text: str, key: str, word: str, column: int) -> None:
    spec = Spec.parse_options("a", text, "--train")
    output = spec.pointed(OptionError(error("odd", "it is odd", help="mend it", exit_code=ExitCode.USAGE), key, word))
    (found,) = output.diagnostics
    assert (output.exit_code, found.code, found.help, found.source_line) == (ExitCode.USAGE, "odd", "mend it", text)
    assert found.location is not None
    assert (found.location.source, found.location.column) == ("--train", column)


def test_without_a_place_what_is_wrong_is_reported_all_the_same() -> None:
    problem = OptionError(error("odd", "it is odd"), "wrt", "b")
    assert Spec("a", (("wrt", "b"),)).pointed(problem) is problem
    assert Spec.parse("a{loss=b}").pointed(problem) is problem
