"""Typed options: instance ↔ spec, messages, bounds, documentation."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError, error
from dlc.spec import Bytes, Configurable, Spec, format_bytes, option, parse_bytes


class Order(Enum):
    ROW_MAJOR = 0
    COLUMN_MAJOR = 1


@dataclass(frozen=True)
class Sgd(Configurable):
    name = "sgd"
    lr: float = option(0.1, "step size")


@dataclass(frozen=True)
class Adam(Configurable):
    name = "adam"
    beta: float = option(0.9, "decay")


@dataclass(frozen=True)
class Everything(Configurable):
    """One field of each kind."""

    name = "everything"
    level: ClassVar[str] = "ops"
    max_ops: int = option(8, "largest group", low=1, high=1 << 40)
    fast: bool = option(False, "hurry")
    size: Bytes = option(1 << 20, "limit")
    rate: float = option(0.5, "ratio")
    text: str = option("", "anything")
    strategy: Literal["best-fit", "greedy"] = option("greedy", "how")
    order: Order = option(Order.ROW_MAJOR, "layout")
    flags: tuple[str, ...] = option(("-O3",), "compiler flags")
    pads: tuple[int, int] = option((0, 0), "before and after")
    dims: tuple[tuple[str, int], ...] = option((), "extents by name")
    optimizer: Sgd | Adam = option(Sgd(), "update rule")
    limit: int | None = option(None, "if any")
    other: Spec = option(Spec("x"), "untyped")


numbers = st.floats(allow_nan=False)
instances = st.builds(
    Everything,
    max_ops=st.integers(1, 1 << 40),
    fast=st.booleans(),
    size=st.integers(0, 1 << 50),
    rate=numbers,
    text=st.text(max_size=10),
    strategy=st.sampled_from(["best-fit", "greedy"]),
    order=st.sampled_from(Order),
    flags=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    pads=st.tuples(st.integers(), st.integers()),
    dims=st.lists(st.tuples(st.text(min_size=1, max_size=5), st.integers()), max_size=3).map(tuple),
    optimizer=st.one_of(st.builds(Sgd, numbers), st.builds(Adam, numbers)),
    limit=st.none() | st.integers(),
    other=st.just(Spec("y", (("z", "1"),))),
)


@given(instances)
def test_instances_survive_their_own_text(instance: Everything) -> None:
    assert Everything.from_spec(Spec.parse(str(instance))) == instance


@given(st.dictionaries(st.sampled_from(["max-ops", "size", "pads", "dims", "optimizer", "x"]), st.text(max_size=6)))
def test_any_values_convert_or_give_a_diagnostic(values: dict[str, str]) -> None:
    try:
        Everything.from_spec(Spec("everything", tuple(values.items())))
    except DlcError as problem:
        assert len(problem.diagnostics) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("everything{max-op=1}", "has no option max-op"),
        ("everything{max-ops=many}", '"many" is not an integer'),
        ("everything{max-ops=0}", "0 is below the least value, 1"),
        ("everything{max-ops=1,2}", "an integer is needed, not a list of 2"),
        ("everything{fast=maybe}", 'unknown value "maybe"'),
        ("everything{size=4Gib}", '"4Gib" is not a size'),
        ("everything{rate=nan}", "nan is not a usable number"),
        ("everything{strategy=bestfit}", 'unknown value "bestfit"'),
        ("everything{pads=1,2,3}", "2 values are needed, 3 are given"),
        ("everything{dims=8}", "not of the form name:value"),
        ("everything{optimizer=sgdd}", 'unknown value "sgdd"'),
        ("everything{optimizer=sgd{lr=fast}}", "sgd: option lr"),
        ("everything{text=x{}}", "text is needed, not the spec"),
    ],
)
def test_messages_name_option_and_value(text: str, message: str) -> None:
    with pytest.raises(DlcError) as caught:
        Everything.from_spec(Spec.parse(text))
    assert message in str(caught.value)
    assert "^" in str(caught.value)


def test_nearest_names_are_offered() -> None:
    with pytest.raises(DlcError, match="did you mean max-ops"):
        Everything.from_spec(Spec.parse("everything{max-op=1}"))
    with pytest.raises(DlcError, match="did you mean best-fit"):
        Everything.from_spec(Spec.parse("everything{strategy=bestfit}"))


def test_errors_of_the_class_itself_get_the_place_of_the_spec() -> None:
    @dataclass(frozen=True)
    class Picky(Configurable):
        name = "picky"
        low: int = option(0, "x")

        def __post_init__(self) -> None:
            if self.low:
                raise error("picky", "low must be 0")

    with pytest.raises(DlcError, match="from  --pipeline: column 2"):
        Picky.from_spec(Spec.parse(" picky{low=1}", "--pipeline"))


def test_documentation_derives_from_the_fields() -> None:
    docs: dict[str, Any] = {doc.key: (doc.type, doc.default) for doc in Everything.options_doc()}
    assert docs["max-ops"] == ("integer", "8")
    assert docs["fast"] == ("yes | no", "no")
    assert docs["size"] == ("size", "1MiB")
    assert docs["strategy"] == ("best-fit | greedy", "greedy")
    assert docs["order"] == ("row-major | column-major", "row-major")
    assert docs["dims"] == ("list of name:integer", "()")
    assert docs["optimizer"] == ("sgd{…} | adam{…}", "sgd{lr=0.1}")
    assert docs["limit"] == ("integer | none", "none")
    assert "level" not in docs


@given(st.integers(0, 1 << 60))
def test_sizes_are_inverse(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count


def test_results_do_not_depend_on_where_a_file_lies() -> None:
    @dataclass(frozen=True)
    class Reader(Configurable):
        name = "reader"
        table: str = option("", "a file", path=True)
        rows: int = option(0, "x")

    assert str(Reader("/a/b.txt", 3).placeless) == str(Reader("", 3))
    assert str(Reader("/a/b.txt", 3)) == "reader{table=/a/b.txt rows=3}"
    assert Sgd(0.5).placeless == Sgd(0.5)
