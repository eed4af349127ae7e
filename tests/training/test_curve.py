"""What a run leaves behind: its log, the page of its curves, and the trace that they are drawn from."""

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from dlc.training.loop.checkpoint import read_checkpoint
from dlc.training.loop.curve import curve_html
from dlc.training.loop.loop import Epoch
from dlc.training.loop.trace import LIMIT, Trace
from tests.training.linear import Linear
from tests.training.runs import Start


def test_the_log(start: Start, tmp_path: Path) -> None:
    run = start(epochs=2, log=tmp_path / "log.csv")
    losses: list[float] = []
    run.on_step = lambda _, loss: losses.append(loss)
    run.go()
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["row", "epoch", "step", "loss", "validation_loss", "accuracy"]
    assert [float(r["loss"]) for r in rows if r["row"] == "step"] == losses
    assert [int(r["step"]) for r in rows if r["row"] == "step"] == list(range(1, 15))
    ends = [r for r in rows if r["row"] == "epoch"]
    for row, epoch in zip(ends, run.state.history, strict=True):
        assert epoch.validation
        assert float(row["loss"]) == epoch.loss == pytest.approx(float(np.mean(losses[7 * epoch.number - 7 :][:7])))
        assert float(row["validation_loss"]) == epoch.validation.loss
        assert float(row["accuracy"]) == epoch.validation.figures["accuracy"]


def test_a_log_that_is_none(start: Start, tmp_path: Path) -> None:
    start(epochs=1).go()
    (tmp_path / "log.csv").write_text("my,own,table\n1,2,3\n")
    run = start(epochs=2, log=tmp_path / "log.csv")
    run.resume(read_checkpoint(tmp_path / "c.dlc"))
    with pytest.raises(DlcError, match="is not a log that this run can continue"):
        run.go()
    assert (tmp_path / "log.csv").read_text() == "my,own,table\n1,2,3\n"


def test_the_page(start: Start, tmp_path: Path) -> None:
    program = Linear()
    program.facts = {**program.facts, "optimizer": "<script>alert(1)</script>"}
    run = start(program, epochs=3, html=tmp_path / "curve.html")
    run.go()
    page = (tmp_path / "curve.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(?:src|href)=", page)
    assert page.count("<polyline") == 4  # steps, epochs, validation; accuracy
    assert len(re.findall(r"<circle", page)) == 9
    assert "accuracy on validation data" in page
    assert not re.search(r"nan|inf\b", page)


def test_a_logarithmic_scale(start: Start, tmp_path: Path) -> None:
    run = start(epochs=1)
    run.state.history = [Epoch(k + 1, 7, 10.0**-k, None, 1.0) for k in range(3)]
    run.state.epoch = 3
    page = curve_html("t", [], run.state, None, 7)
    assert "0.01 to 1, logarithmic" in page
    assert re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', page) == [
        ("333.3", "0.0"),
        ("666.7", "160.0"),
        ("1000.0", "320.0"),
    ]


def test_the_page_of_a_run_that_did_nothing(start: Start, tmp_path: Path) -> None:
    program = Linear()
    program.fails_at = 1
    with pytest.raises(DlcError):
        start(program, epochs=1, html=tmp_path / "curve.html").go()
    assert "<polyline" not in (tmp_path / "curve.html").read_text()


@given(st.lists(st.floats(-1e6, 1e6), max_size=4 * LIMIT))
def test_a_trace_is_bounded_and_keeps_the_mean(values: list[float]) -> None:
    trace = Trace()
    for k, v in enumerate(values):
        trace.add(v)
        if k == len(values) // 2:
            trace = Trace.of(trace.json())
    drawn = trace.drawn()
    assert len(drawn) <= LIMIT
    if values and not trace.pending:
        assert math.fsum(y for _, y in drawn) / len(drawn) == pytest.approx(math.fsum(values) / len(values), abs=1e-6)
    assert all(0 < x < len(values) for x, _ in drawn)
