"""Files of measured schedules: their text, what is wrong with others, and how they are merged."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from dlc.api.tuning import Fingerprint, Record, Tuning, read_tuning
from dlc.base.diagnostics import DlcError, ExitCode

HERE = Fingerprint("-O3 vectors=32", "gcc 12", "Processor A")
THERE = Fingerprint("-O3 vectors=32", "gcc 13", "Processor B")
OTHER = Fingerprint("-O3 vectors=64", "gcc 12", "Processor A")
A = Record("aa" * 16, HERE, ("conv1", 'we"ird\\\nñ🙂'), "tiles{rows=8}", "tiles{rows=6}", 1000, 500, 400)
B = Record("bb" * 16, THERE, (), "loops", "loops", 20, 7, 7)


def test_what_is_written_is_read() -> None:
    text = Tuning([B, A]).text
    assert text.isascii()
    assert Tuning.parse(text, "f").records == (A, B)
    assert Tuning.parse(text, "f").text == text == Tuning([A, B]).text


def test_nothing_is_a_file_as_well() -> None:
    assert Tuning.parse(Tuning().text, "f").records == ()


def test_the_faster_record_of_a_kernel_stays_whatever_the_order() -> None:
    slower = replace(A, schedule="loops", default_ns=300, tuned_ns=290)  # less time, but not relative to its default
    elsewhere = replace(A, fingerprint=OTHER, tuned_ns=100)
    same = replace(A, schedule="copies")
    texts = {Tuning(order).text for order in permutations((A, slower, elsewhere, same, B))}
    assert len(texts) == 1
    found = Tuning([A, slower, elsewhere, same, B]).records
    assert {(r.kernel[:2], r.fingerprint.id, r.schedule) for r in found} == {
        ("aa", HERE.id, "copies"),
        ("aa", OTHER.id, "tiles{rows=8}"),
        ("bb", THERE.id, "loops"),
    }


def test_a_build_takes_what_was_measured_for_its_machine() -> None:
    faster = replace(A, fingerprint=THERE, schedule="rows", tuned_ns=100)
    wide = replace(A, fingerprint=OTHER, schedule="words", tuned_ns=10)
    tuning = Tuning([A, faster, wide])
    assert {k: r.schedule for k, r in tuning.of_machine(HERE.machine).items()} == {A.kernel: "rows"}
    assert {k: r.schedule for k, r in tuning.of_machine(OTHER.machine).items()} == {A.kernel: "words"}
    assert tuning.of_machine("-O2") == {}
    assert tuning.kernels == {A.kernel}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format = 1", "format = 2", "its format is 2, not 1"),
        ("format = 1", "", "its format is None, not 1"),
        ("format = 1", "format = ", "at line 2"),
        ("tuned-ns = 400", "", f"tuned-ns of kernel {A.kernel} is missing"),
        ("tuned-ns = 400", "tuned-ns = 4.5", f"tuned-ns of kernel {A.kernel} is 4.5"),
        ("tuned-ns = 400", "tuned-ns = -4", "tuned-ns is -4, and cannot be negative"),
        ("tuned-ns = 400", "tuned-ns = true", f"tuned-ns of kernel {A.kernel} is True"),
        (f'machine = "{HERE.id}"', 'machine = "x"', "there is no machine x"),
        ('nodes = ["conv1", ', "nodes = [1, ", "are not texts"),
        ("[[kernel]]", "[kernel]", "kernel is not a list of tables"),
    ],
)
def test_what_is_no_such_file(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = Tuning([A]).text
    assert old in text
    path = tmp_path / "tuned.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(DlcError) as raised:
        read_tuning(path)
    assert raised.value.exit_code == ExitCode.USAGE
    message = raised.value.diagnostics[0].message
    assert str(path) in message
    assert said in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, said in (("absent", "No such file"), ("bytes", "not UTF-8"), (".", "Is a directory")):
        with pytest.raises(DlcError, match="cannot be read") as raised:
            read_tuning(tmp_path / name)
        assert said in raised.value.diagnostics[0].message
