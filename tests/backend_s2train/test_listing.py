"""`dlc disasm` and `dlc asm`: whole files as text and back, bit by bit, and what is wrong with a text."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlc_backend_s2train.container import read
from dlc_backend_s2train.container.assembly import assembled
from dlc_backend_s2train.container.listing import disassembled

from dlc import DlcError
from dlc.base.diagnostics import ExitCode
from dlc.cli.frame import run
from tests.backend_s2train.mutations import seeds


@pytest.mark.parametrize("number", range(len(seeds())))
def test_text_says_all_of_a_file(number: int) -> None:
    """Programs made by hand; the last has every section, and one of a newer version."""
    content = seeds()[number]
    program, again = assembled(disassembled(memoryview(content), "file"), "text")
    assert again == content and program == read(memoryview(content), "file")


@pytest.fixture(scope="module")
def text() -> str:
    return disassembled(memoryview(seeds()[-1]), "file")


def _line(text: str, begin: str) -> tuple[int, str]:
    return next((k, line) for k, line in enumerate(text.splitlines(), 1) if line.startswith(begin))


@pytest.mark.parametrize(
    ("begin", "old", "new", "message"),
    [
        ("storage 1", "storage 1", "storage 7", "expected 1, the next storage"),
        ("storage 0", "address", "adress", "expected the field address, found 'adress'"),
        ("tensor %0", "fp", "fq", "expected an element, found"),
        ("tensor %1", "[", "[0, ", "none of them 0"),
        ("geometry 0", "pads [", "pads [1, ", "pads has 4 numbers, not 5"),
        ("entry", "begin", "begin 0 begin", "field begin is given twice"),
        ("conv forward", "src0 = ", "src9 = ", "expected an operand, found 'src9'"),
        ("conv forward", "dst0", "res", "operand dst0 is missing"),
        ("word", "word", 'word "00"', "a word of version 1 has 16 bytes"),
        ("section", '"ABCD"', '"TENS"', "TENS is no section that readers may skip"),
        ("input", "%", "%a", "expected the number of a tensor"),
        ("meta", '"', '"\\q', "is none of JSON's"),
    ],
)
def test_errors_name_the_line(text: str, begin: str, old: str, new: str, message: str) -> None:
    number, line = _line(text, begin)
    assert old in line
    lines = text.splitlines()
    lines[number - 1] = line.replace(old, new, 1)
    with pytest.raises(DlcError) as refused:
        assembled("\n".join(lines), "text")
    (problem, *_) = refused.value.diagnostics
    assert message in str(refused.value), refused.value
    assert problem.location and problem.location.line in (number, number + 1), problem


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.s2t").write_bytes(seeds()[0])
    assert run(["disasm", str(tmp_path / "a.s2t"), "-o", str(tmp_path / "b.s2a")]) == 0
    assert run(["asm", str(tmp_path / "b.s2a")]) == 0
    assert (tmp_path / "b.s2t").read_bytes() == seeds()[0]
    capsys.readouterr()
    assert run(["disasm", str(tmp_path / "a.s2t")]) == 0
    assert capsys.readouterr().out == (tmp_path / "b.s2a").read_text()


def test_a_program_that_is_wrong_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = disassembled(memoryview(seeds()[0]), "file")
    number, line = _line(text, "storage 0")
    wrong = tmp_path / "wrong.s2a"
    wrong.write_text(text.replace(line, line.replace(" size ", " size 1"), 1))
    assert run(["asm", str(wrong)]) == ExitCode.MODEL
    assert "storage 0" in capsys.readouterr().err and number
    assert not (tmp_path / "wrong.s2t").exists()
    assert run(["asm", str(wrong), "--unchecked"]) == 0
    assert (tmp_path / "wrong.s2t").exists()
