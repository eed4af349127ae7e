"""The loop of training, its endings and how it goes on, on a program of a few lines of NumPy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc.base.diagnostics import DlcError
from dlc.base.types import Array
from dlc.training.loop.checkpoint import read_checkpoint
from dlc.training.loop.loop import State
from dlc.training.loop.metrics import evaluate
from tests.training.linear import Linear, blobs
from tests.training.runs import ROWS, Start, data_of, weights


def test_it_learns(start: Start) -> None:
    run = start(epochs=10)
    assert run.go() == "done"
    first, last = run.state.history[0], run.state.history[-1]
    assert last.loss < first.loss / 2
    assert last.validation
    assert last.validation.figures["accuracy"] > 0.8
    assert (run.done, run.state.epoch, last.steps) == (70, 10, 7)


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_of_an_epoch(start: Start, shuffle: bool) -> None:
    """Every row at most once, whole batches only, a new order every epoch if shuffled; the same for the same seed."""

    def seen(seed: int) -> list[list[bytes]]:
        program, found = Linear(), list[bytes]()
        step = program.train_step

        def watched(**inputs: Array) -> float:
            found.extend(row.tobytes() for row in inputs["x"])
            return step(**inputs)

        program.train_step = watched  # pyright: ignore[reportAttributeAccessIssue]
        start(program, judged=False, epochs=2, seed=seed, shuffle=shuffle).go()
        return [found[:28], found[28:]]

    rows = [row.tobytes() for row in blobs(ROWS)["x"]]
    for epoch in (found := seen(0)):
        assert len(set(epoch)) == 28
        assert set(epoch) <= set(rows)
    assert (found[0] == rows[:28]) == (not shuffle)
    assert (found[0] == found[1]) == (not shuffle)
    assert found == seen(0)
    assert (found == seen(1)) == (not shuffle)


@pytest.mark.parametrize("at", [1, 7, 8, 20])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("judged", [False, True])
def test_going_on_gives_the_same_bits(start: Start, tmp_path: Path, at: int, accumulate: int, judged: bool) -> None:
    """Interrupted after any step: weights, history, log and curve are those of a run that was not."""
    more: dict[str, Any] = {"epochs": 3, "judged": judged, "seed": 5, "keep": "best"}
    whole = start(Linear(accumulate=accumulate), log=tmp_path / "whole.csv", export=tmp_path / "whole.onnx", **more)
    assert whole.go() == "done"
    part = start(Linear(accumulate=accumulate), log=tmp_path / "log.csv", export=tmp_path / "part.onnx", **more)

    def stop(*_: object) -> None:
        part.stop = part.done == at

    part.on_step = stop
    assert part.go() == "interrupted"
    assert part.done == at
    again = start(Linear(accumulate=accumulate), log=tmp_path / "log.csv", export=tmp_path / "part.onnx", **more)
    assert again.resume(read_checkpoint(tmp_path / "c.dlc")) == ""
    assert again.go() == "done"
    assert weights(again) == weights(whole)
    assert again.state.json()["trace"] == whole.state.json()["trace"]
    assert [replace(e, seconds=0) for e in again.state.history] == [replace(e, seconds=0) for e in whole.state.history]
    assert (tmp_path / "log.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert (tmp_path / "part.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()


def test_going_on_after_an_interrupted_validation(start: Start, tmp_path: Path) -> None:
    whole = start(epochs=2)
    whole.go()
    part = start(epochs=2)

    def stop(row: int) -> None:
        part.stop = row == 8 and part.state.epoch == 1

    part.on_validation = stop
    assert part.go() == "interrupted"
    assert (part.state.epoch, part.state.step) == (1, 7)
    again = start(epochs=2)
    again.resume(read_checkpoint(tmp_path / "c.dlc"))
    assert again.go() == "done"
    assert len(again.state.history) == 2
    assert weights(again) == weights(whole)


def test_more_epochs_later(start: Start, tmp_path: Path) -> None:
    whole = start(epochs=4)
    whole.go()
    start(epochs=2).go()
    again = start(epochs=4)
    again.resume(read_checkpoint(tmp_path / "c.dlc"))
    again.go()
    assert weights(again) == weights(whole)


def test_steps_end_within_an_epoch(start: Start, tmp_path: Path) -> None:
    run = start(steps=10, log=tmp_path / "log.csv")
    assert run.go() == "done"
    assert (run.done, run.state.epoch) == (10, 1)
    assert run.partial
    assert (run.partial.steps, run.partial.number) == (3, 2)
    assert run.partial.validation
    again = start(epochs=2, log=tmp_path / "log.csv")
    again.resume(read_checkpoint(tmp_path / "c.dlc"))
    again.go()
    whole = start(epochs=2, log=tmp_path / "whole.csv")
    whole.go()
    assert weights(again) == weights(whole)
    assert (tmp_path / "log.csv").read_text() == (tmp_path / "whole.csv").read_text()


def test_checkpoints_within_epochs(start: Start, tmp_path: Path) -> None:
    run = start(epochs=1, checkpoint_every=3)
    found: list[int] = []

    def look(state: State, loss: float) -> None:
        del state, loss
        if (tmp_path / "c.dlc").exists():
            found.append(read_checkpoint(tmp_path / "c.dlc").state.step)

    run.on_step = look
    run.go()
    assert found == [3, 3, 3, 6, 6]


def test_patience_and_best(start: Start, tmp_path: Path) -> None:
    """A learning rate so large that it soon gets worse."""
    run = start(Linear(lr=8.0), epochs=50, patience=3, keep="best", export=tmp_path / "best.onnx")
    assert run.go() == "patience"
    judged = [e.judged for e in run.state.history]
    assert run.state.best == 1 + int(np.argmin(judged))
    assert run.state.epoch == run.state.best + 3
    short = start(Linear(lr=8.0), epochs=run.state.best, export=tmp_path / "short.onnx")
    short.go()
    assert (tmp_path / "best.onnx").read_bytes() == (tmp_path / "short.onnx").read_bytes()


def test_best_that_was_not_kept(start: Start, tmp_path: Path) -> None:
    start(Linear(lr=8.0), epochs=50, patience=3).go()
    again = start(Linear(lr=8.0), epochs=51, keep="best")
    assert "were not kept" in again.resume(read_checkpoint(tmp_path / "c.dlc"))
    assert again.state.best == 0


@pytest.mark.parametrize("fails_at", [1, 9])
@pytest.mark.parametrize("raises", [True, False])
def test_a_loss_that_is_not_finite(start: Start, tmp_path: Path, fails_at: int, raises: bool) -> None:
    program = Linear()
    run = start(program, epochs=3, log=tmp_path / "log.csv", html=tmp_path / "curve.html")
    program.fails_at = fails_at if raises else 0
    if not raises:
        program.on_step = lambda: program._parameters["b"].fill(np.nan if run.done + 2 == fails_at else 0)
        if fails_at == 1:
            program._parameters["b"].fill(np.nan)
    with pytest.raises(DlcError) as caught:
        run.go()
    (text,) = caught.value.diagnostics
    assert text.code == "not-finite"
    assert f"epoch {1 + (fails_at - 1) // 7}, step {1 + (fails_at - 1) % 7} of 7" in text.message
    order = run.course.order((fails_at - 1) // 7)[(fails_at - 1) % 7 * 4 :][:4]
    assert text.notes == (f"rows of the batch: {', '.join(map(str, order))}",)
    assert "lower learning rate" in text.help
    assert (tmp_path / "curve.html").exists()
    assert (tmp_path / "c.dlc").exists() == (fails_at > 7)
    if fails_at > 7:
        assert read_checkpoint(tmp_path / "c.dlc").state.epoch == 1


def test_a_validation_loss_that_is_not_finite(start: Start) -> None:
    program = Linear()
    run = start(program, epochs=3)
    program.evaluate = lambda **_: {"loss": np.array(np.inf), "scores": np.zeros((4, 3))}  # pyright: ignore
    with pytest.raises(DlcError, match="the loss on validation data is not finite after epoch 1, step 7 of 7"):
        run.go()


def test_a_batch_without_labels_that_count(start: Start, tmp_path: Path) -> None:
    program = Linear(loss="cross-entropy{ignore=2}")
    run = start(program, epochs=1)
    program.fails_at = 1
    arrays = {**blobs(ROWS), "y": np.full(ROWS, 2)}
    run.course = replace(run.course, data=data_of(program, tmp_path / "d.npz", arrays))
    with pytest.raises(DlcError, match="all labels of the batch are 2, which is ignored"):
        run.go()
    with pytest.raises(
        DlcError, match="no label of the 30 validation rows counts: all of them are 2, which is ignored"
    ):
        evaluate(program, run.course.data, 4)


def test_endings_are_distinguished(start: Start) -> None:
    assert start(epochs=1).go() == "done"
    assert start(epochs=500, patience=1).go() == "patience"
