"""Packs with faults: what is wrong, where, and what to do; and whatever a file holds, never a traceback."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc import DlcError, ExitCode
from dlc.op_packs.document import MAX_BYTES, parse_document
from dlc.op_packs.load import pack_of
from tests.conftest import Golden
from tests.op_packs.packs import MALFORMED, SOUND, pack


def message(text: str) -> str:
    with pytest.raises(DlcError) as caught:
        pack(text)
    assert caught.value.exit_code is ExitCode.PLUGIN
    return str(caught.value)


def test_every_fault_has_a_message_with_its_place(golden: Golden) -> None:
    golden("malformed.txt", "\n\n".join(f"# {name}\n{message(text)}" for name, text in MALFORMED.items()))


@pytest.mark.parametrize("name", MALFORMED)
def test_the_place_is_known(name: str) -> None:
    with pytest.raises(DlcError) as caught:
        pack(MALFORMED[name])
    for d in caught.value.diagnostics:
        assert d.location is not None
        assert (d.location.source, d.code) == ("demo.ops.yaml", "op-pack")
        assert d.location.line > 0
        assert d.location.column > 0


def test_all_faults_of_a_file_are_told_at_once() -> None:
    text = SOUND.replace("* factor", "* facter").replace('sigmoid(b)"', 'sigmoyd(b)"', 1)
    with pytest.raises(DlcError) as caught:
        pack(text)
    assert len(caught.value.diagnostics) == 2


def test_what_is_too_large_is_not_read() -> None:
    with pytest.raises(DlcError, match="1,048,576 bytes"):
        parse_document(b"#" * (MAX_BYTES + 1), "large.ops.yaml")


def test_lines_of_blocks_are_those_of_the_file() -> None:
    found = message(SOUND.replace("x[n, i*size + k]", "x[n, i*size ? k]"))
    line = next(k for k, text in enumerate(SOUND.splitlines(), 1) if "sum[k<size]" in text)
    column = SOUND.splitlines()[line - 1].index("+ k") + 1
    assert f"demo.ops.yaml:{line}:{column}" in found


WORDS = [
    *SOUND.replace("\n", " \n ").split(" "),
    "&a",
    "*a",
    "!!x",
    "[",
    "]",
    "{",
    "}",
    "...",
    "sum[",
    "\t",
    "1e999",
    "-",
    "null",
]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 30))
def test_random_edits_of_a_sound_pack_give_a_pack_or_messages(seed: int) -> None:
    draw = random.Random(seed)
    words = SOUND.replace("\n", " \n ").split(" ")
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(words))
        match draw.randrange(4):
            case 0:
                del words[at]
            case 1:
                words[at] = draw.choice(WORDS)
            case 2:
                words.insert(at, draw.choice(WORDS))
            case _:
                words[at] = words[at][: draw.randint(0, len(words[at]))] + draw.choice("x0[]{}:,.*-'\"#é\x00")
    text = " ".join(words).replace(" \n ", "\n")
    try:
        pack(text)
    except DlcError as problem:
        assert str(problem)


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))))
def test_any_bytes_give_a_pack_or_messages(content: bytes) -> None:
    with pytest.raises(DlcError):
        pack_of(parse_document(content, "any.ops.yaml"))
