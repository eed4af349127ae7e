"""`dlc plan` of files of tasks."""

from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc
from tests.placement.instances import DATA

NETWORK = (DATA / "graphs" / "resnet18_fused.txt").read_text()
BARE = (DATA / "graphs" / "s2t_own_merge.txt").read_text()


@pytest.fixture(autouse=True)
def files() -> None:
    Path("step.txt").write_text(NETWORK)
    Path("bare.txt").write_text(BARE)


def test_the_best_order(dlc: Dlc) -> None:
    found = dlc("plan", "bare.txt", "--json").document
    known = ("tasks", "peak_bytes", "proven", "natural_bytes")
    assert tuple(found[name] for name in known) == (91, 9_527_296, True, 13_656_064)
    assert "9,527,296 B (optimal, proven)" in dlc("plan", "bare.txt").out


def test_recomputation_by_budget_and_by_memory(dlc: Dlc) -> None:
    by_budget = dlc("plan", "step.txt", "--budget", "0.2%", "--json").document
    by_memory = dlc("plan", "step.txt", "--memory", "4022272", "--json").document
    for found in (by_budget, by_memory):
        (row,) = found["schedules"]
        assert (row["peak_bytes"], row["arena_bytes"], row["proven"]) == (4_022_272, 4_022_272, True)
        assert 0 < row["extra_percent"] < 0.2
        assert len(found["steps"]) == 65


def test_a_curve_falls(dlc: Dlc) -> None:
    rows = dlc("plan", "step.txt", "--curve", "--json").document["schedules"]
    peaks = [row["peak_bytes"] for row in rows]
    assert peaks == sorted(peaks, reverse=True)
    assert (peaks[0], peaks[-1]) == (4_546_560, 2_121_728)


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (("nowhere.txt",), "no-such-file", ExitCode.USAGE),
        (("bad.txt",), "syntax", ExitCode.USAGE),
        (("step.txt", "--memory", "2MiB"), "memory-limit", ExitCode.LIMIT),
        (("step.txt", "--memory", "2 cows"), "bad-option", ExitCode.USAGE),
        (("step.txt", "--budget", "-5%"), "bad-option", ExitCode.USAGE),
        (("step.txt", "--budget", "nan"), "bad-option", ExitCode.USAGE),
        (("step.txt", "--budget", "5%", "--curve"), "no-effect", ExitCode.USAGE),
        (("bare.txt", "--curve"), "no-effect", ExitCode.USAGE),
        (("bare.txt", "-t", "c"), "no-effect", ExitCode.USAGE),
        (("buffers.csv", "--curve"), "no-effect", ExitCode.USAGE),
    ],
)
def test_what_cannot_be_done_is_said(dlc: Dlc, words: tuple[str, ...], code: str, status: int) -> None:
    Path("bad.txt").write_bytes(b"1\n8\n1\n\xff 0 0 0 0 0\n")
    ran = dlc("plan", *words)
    assert ran.code == status
    assert f"error[{code}]" in ran.err
    assert ran.out == ""
