"""Machines as files: those that come with the backend, and those that anybody writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.machine_file import MachineFile, named, names, read
from dlc_backend_c.target import COMMON_FLAGS, levels, target_for

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.kernel.schedules.machine import Machine
from dlc.spec import Spec
from tests.docs.blocks import ROOT

ODD = """
description = "vectors of 16 bytes, few registers"
vector-bytes = 16
registers = 11
l1 = "24KiB"
l2 = 200_003
"""


def test_machines_by_name() -> None:
    assert set(names()) >= {"generic", "x86-64-v3", "x86-64-v4"}
    for name in names():
        assert named(name).description
        target = target_for(name)
        assert target.cpu == name
        assert target.flags[: len(COMMON_FLAGS)] == COMMON_FLAGS
        assert frozenset(target.features) == levels().get(name, frozenset())


def test_what_has_more_instructions_stores_past_the_caches_too() -> None:
    machines = [named(name) for name in names() if named(name).features]
    pairs = [(a, b) for a in machines for b in machines if set(a.features) > set(b.features)]
    assert len(pairs) > 4
    assert not [a.description for a, b in pairs if a.past != b.past]


def test_a_file_is_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(ODD)
    target = target_for("native", machine=str(path))
    assert target.machine == Machine(16, 11, 24 << 10, 200_003, reciprocals=True)
    assert target.flags == COMMON_FLAGS
    assert target.cpu == "odd"
    assert target_for("native", math="ordered", machine=str(path)).machine.ordered


def test_another_machine_is_another_identity(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(ODD)
    backend = C(machine=str(path))
    before = backend.processor()
    path.write_text(ODD.replace("11", "12"))
    assert backend.processor() != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("registers = ", "is no TOML: Invalid value (at end of document)"),
        ("register = 4", "machine has no option register"),
        ("registers = 2", "option registers: 2 is below the least value, 4"),
        ("registers = 'many'", "option registers: "),
        ("vector-bytes = 24", "option vector-bytes: 24 is none of 0, 8, 16, 32, 64"),
        ("l1 = '3 apples'", "option l1: "),
        ("flags = [1, [2]]", "option flags: [1, [2]] is neither text, a number nor a list of these"),
        ("l1 = 1.5", 'option l1: "1.5" is not a size'),
        ("l2-rate = 0", "option l2-rate: 0.0 is below the least value, 0.01"),
        ("latency = 'long'", "option latency: "),
        ("#" * (65 << 10), "has more than 65,536 bytes, which descriptions have at most"),
    ],
)
def test_what_is_no_machine(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(DlcError) as caught:
        read(path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.diagnostics[0].message.startswith(f"{path}: {message}")


def test_there_is_no_such_machine(tmp_path: Path) -> None:
    with pytest.raises(DlcError, match=r"no\.toml: No such file or directory"):
        read(tmp_path / "no.toml")
    with pytest.raises(DlcError, match="there is no machine x86-64-v5") as caught:
        C.from_spec(Spec.parse("c{cpu=x86-64-v5}"))
    assert caught.value.diagnostics[0].help == "did you mean x86-64-v4?"


def test_the_page_has_every_key() -> None:
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    for option in MachineFile.options_doc():
        assert f"| `{option.key}` | {option.doc} |" in page
