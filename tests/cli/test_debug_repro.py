"""`dlc debug repro`: a crash report alone is enough to see whether the crash still happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dlc.base.diagnostics import ExitCode
from dlc.debug.crash_report import MARK, CrashReport
from tests.cli.conftest import Dlc, Install
from tests.cli.models import small
from tests.conftest import Golden

library: Any = onnx
PLUGIN = """
from dataclasses import dataclass
from dlc import Pass, hookimpl
from dlc.ops.elementwise import Relu

@dataclass(frozen=True)
class Break(Pass):
    '''Break at a relu.'''
    name = "break"
    def run(self, state, report):
        HOW
        return state

@hookimpl
def dlc_passes():
    return [Break]
"""
CRASH = "if any(isinstance(op, Relu) for op in state.ops): raise IndexError('one too many')"
BUILD = ("build", "small.onnx", "-o", "out", "-q")


@pytest.fixture(autouse=True)
def models() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def crash(suffix: str) -> Path:
    (found,) = Path().glob(f"dlc-crash-*{suffix}")
    return found


def of_a_step(dlc: Dlc, install: Install) -> Path:
    install("broken", PLUGIN.replace("HOW", CRASH))
    assert dlc(*BUILD, "-p", "break,lower,order,plan-memory").code == ExitCode.PLUGIN
    return crash(".dlc")


def of_a_command(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> Path:
    def broken(*_: object, **__: object) -> None:
        raise IndexError("no place")

    monkeypatch.setattr("dlc.runtime.install.install", broken)
    assert dlc(*BUILD).code == ExitCode.BUG
    return crash(".txt")


def test_a_step_that_still_breaks_and_one_that_is_mended(dlc: Dlc, install: Install, tmp_path: Path) -> None:
    file = of_a_step(dlc, install)
    Path("small.onnx").unlink()  # the report is enough
    before = sorted(Path().iterdir())
    ran = dlc("debug", "repro", file, "--json")
    assert (ran.code, ran.document["verdict"], ran.document["fault"]) == (ExitCode.MISMATCH, "happens", "IndexError")
    assert ran.document["differences"] == []
    assert sorted(Path().iterdir()) == before
    module = tmp_path / "site" / "dlc_cli_test_broken.py"
    module.write_text(PLUGIN.replace("HOW", CRASH.replace("IndexError", "KeyError")))
    assert dlc("debug", "repro", file, "--json").document["verdict"] == "other"
    module.write_text(PLUGIN.replace("HOW", "pass"))
    ran = dlc("debug", "repro", file)
    assert ran.code == 0
    assert f"{file}: it no longer happens" in ran.out


def test_a_command_that_no_longer_breaks(dlc: Dlc, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    of_a_command(dlc, monkeypatch).rename("dlc-crash-1.txt")
    Path("small.onnx").unlink()
    # What broke was put in here, and is not there in the process that runs it again.
    ran = dlc("debug", "repro", "dlc-crash-1.txt", "--yes")
    assert ran.code == 0
    golden("debug/repro.txt", ran.transcript())


def test_the_weights_stay_at_home(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    report = CrashReport.read(of_a_command(dlc, monkeypatch))
    assert (report.command, report.model, report.fault) == (BUILD, "small.onnx", "IndexError")
    found = library.load_from_string(report.model_bytes()).graph
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in found.initializer}
    assert {name: a.shape for name, a in arrays.items()} == {"w": (3, 4), "b": (4,)}
    assert all(np.isfinite(a).all() and (a > 0).all() and (a < 1).all() for a in arrays.values())
    assert [n.op_type for n in found.node] == ["MatMul", "Add", "Relu"]
    assert any(name.startswith("dlc-backend-c ") for name in report.plugins)


def test_what_is_no_report(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    file = of_a_command(dlc, monkeypatch)
    data = json.loads(next(x for x in file.read_text().splitlines() if x.startswith(MARK)).removeprefix(MARK))
    texts = {
        "absent.txt": None,
        "other.txt": "nothing\n",
        "cut.txt": MARK + json.dumps(data)[:-9],
        "list.txt": MARK + "[1]",
        "model.txt": MARK + json.dumps({**data, "content": "AAAA"}),
        "none.txt": MARK + json.dumps({**data, "content": ""}),
    }
    for name, text in texts.items():
        if text is not None:
            Path(name).write_text(text)
        ran = dlc("debug", "repro", name, "--yes")
        assert ran.code == ExitCode.USAGE, name
        assert "help  " in ran.err
    assert dlc("debug", "repro", file, "--model", "absent.onnx", "--yes").code == ExitCode.USAGE
    # The model that a report does not hold can be given.
    again = dlc("debug", "repro", "none.txt", "--model", "small.onnx", "--yes", "--json").document
    assert (again["verdict"], again["now"]["exit_code"]) == ("gone", 0)


def test_the_command_line_of_a_stranger_is_shown_first(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = dlc("debug", "repro", of_a_command(dlc, monkeypatch))
    assert ran.code == ExitCode.USAGE
    assert "error[not-trusted]" in ran.err
    assert "dlc build small.onnx -o out -q" in ran.err
