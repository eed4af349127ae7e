"""Key text is readable, unambiguous and comparable."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.cache import Key, diff_keys
from dlc.cache.key import equal_lines

labels = st.from_regex(r"[a-z][a-z0-9_.-]{0,6}", fullmatch=True)
values = st.text(max_size=30) | st.sampled_from(
    ["", "  ", "\n", "a  b\ncode  x\n", "\\n", "\\u{41}", "\ud800", "\u202ex"]
)
keys = st.lists(st.tuples(labels, values), max_size=6).map(lambda lines: Key(tuple(lines)))


def test_text_is_readable() -> None:
    key = Key((("step", "fuse{max-ops=8}"), ("code", "dlc 0.1.0 91be02"), ("input", "graph 3f2a77")))
    assert key.text == "step  fuse{max-ops=8}\ncode  dlc 0.1.0 91be02\ninput  graph 3f2a77\n"
    assert key.digest == hashlib.sha256(key.text.encode()).hexdigest()
    assert key.step_name == "fuse"


@given(keys)
def test_text_parses_back(key: Key) -> None:
    assert Key.parse(key.text) == key


@given(keys, keys)
def test_different_keys_have_different_texts(a: Key, b: Key) -> None:
    assert (a.text == b.text) == (a == b)


@given(keys)
def test_text_cannot_upset_a_terminal(key: Key) -> None:
    assert all(c == "\n" or c.isprintable() for c in key.text)
    assert key.text.count("\n") == len(key.lines)


def test_a_value_cannot_imitate_another_line() -> None:
    forged = Key.of(step="a\ncode  trusted")
    assert forged.text != Key.of(step="a", code="trusted").text
    assert len(forged.text.splitlines()) == 1


@given(st.text(max_size=40))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        key = Key.parse(text)
    except ValueError:
        return
    assert key.text == text


@pytest.mark.parametrize("label", ["", "A", "a b", "a\n", "1", "é"])
def test_bad_label_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="key label"):
        Key(((label, "x"),))


@given(keys, keys)
def test_diff_is_empty_exactly_for_equal_keys(a: Key, b: Key) -> None:
    assert (diff_keys(a, b) == ()) == (a == b)
    assert equal_lines(a, a) == len(a.lines)


def test_diff_names_what_changed() -> None:
    old = Key((("step", "cc"), ("tool", "gcc 12"), ("flag", "-O2"), ("gone", "x")))
    new = Key((("step", "cc"), ("tool", "gcc 13"), ("flag", "-O2"), ("flag", "-g")))
    assert diff_keys(old, new) == ("tool: gcc 12 → gcc 13", "- gone: x", "+ flag: -g")


def test_diff_shows_the_differing_part_of_long_values() -> None:
    (line,) = diff_keys(Key.of(flags="x" * 5000 + "A"), Key.of(flags="x" * 5000 + "B"))
    assert "A →" in line
    assert line.endswith("B")
    assert len(line) < 300
