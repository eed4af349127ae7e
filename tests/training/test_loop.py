"""The loop, its checkpoints and what it leaves behind, on a program of a few lines of NumPy."""

import csv
import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlc.diagnostics import DlcError
from dlc.interfaces import Port
from dlc.training.checkpoint import read_checkpoint, write_checkpoint
from dlc.training.curve import curve_html
from dlc.training.data import DataSet
from dlc.training.data import read_data as read_files
from dlc.training.loop import Course, Ending, Epoch, State
from dlc.training.metrics import evaluate, loss_of, measure_of
from dlc.training.run import Outputs, Run
from dlc.training.trace import LIMIT, Trace
from dlc.types import DTYPES, Array, Type
from tests.training.linear import Linear, blobs, save

ROWS = 30


def data_of(program: Linear, path: Path, arrays: dict[str, Array] | None = None) -> DataSet:
    save(path, **(arrays or blobs(ROWS)))
    return read_files([str(path)], program.arguments, program.classes)


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Run]:
    """`start(program, epochs=3)`: a run with validation data that writes into a directory of its own."""

    def call(program: Linear | None = None, judged: bool = True, **more: Any) -> Run:
        program = program or Linear()
        data = data_of(program, tmp_path / "train.npz")
        validation = data_of(program, tmp_path / "test.npz", blobs(11, seed=1)) if judged else None
        outputs = {k: more.pop(k) for k in list(more) if k in Outputs.__dataclass_fields__}
        course = Course(data, validation, 4, **more)
        return Run(program, course, Outputs(tmp_path / "c.dlc", **outputs))

    return call


Start = Callable[..., Run]


def weights(run: Run) -> bytes:
    return b"".join(v.tobytes() for v in [*run.program.parameters().values(), *run.program.state().values()])


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
    (told,) = caught.value.diagnostics
    assert told.code == "not-finite"
    assert f"epoch {1 + (fails_at - 1) // 7}, step {1 + (fails_at - 1) % 7} of 7" in told.message
    order = run.course.order((fails_at - 1) // 7)[(fails_at - 1) % 7 * 4 :][:4]
    assert told.notes == (f"rows of the batch: {', '.join(map(str, order))}",)
    assert "lower learning rate" in told.help
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
    with pytest.raises(DlcError, match="all labels of the batch are 2, which does not count"):
        run.go()
    with pytest.raises(DlcError, match="none of the 30 rows to judge by counts: their labels are 2"):
        evaluate(program, run.course.data, 4)


# --- checkpoints that do not fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seed": 1}, "--seed: 0, now 1"),
        ({"shuffle": False}, "--shuffle: True, now False"),
        ({"judged": False}, "rows of validation data: 11, now 0"),
    ],
)
def test_other_settings(start: Start, tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    start(epochs=1).go()
    run = start(epochs=2, **changes)
    before = weights(run)
    with pytest.raises(DlcError, match="of a run with other settings or data") as caught:
        run.resume(read_checkpoint(tmp_path / "c.dlc"))
    assert text in str(caught.value)
    assert weights(run) == before


def test_other_data(start: Start, tmp_path: Path) -> None:
    start(epochs=1).go()
    run = start(epochs=2)
    arrays = blobs(ROWS)
    arrays["x"][3] += 1
    run.course = replace(run.course, data=data_of(Linear(), tmp_path / "other.npz", arrays))
    with pytest.raises(DlcError, match=r"data: [0-9a-f]{12}, now [0-9a-f]{12}"):
        run.resume(read_checkpoint(tmp_path / "c.dlc"))


def test_another_program(start: Start, tmp_path: Path) -> None:
    start(epochs=1).go()
    content = (tmp_path / "c.dlc").read_bytes()
    run = start(Linear(classes=4), epochs=2)
    before = weights(run)
    with pytest.raises(DlcError, match="cannot be resumed from: it is of another program"):
        run.resume(read_checkpoint(tmp_path / "c.dlc"))
    assert weights(run) == before
    assert (tmp_path / "c.dlc").read_bytes() == content


@given(st.booleans(), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_damaged_checkpoints(tmp_path_factory: pytest.TempPathFactory, cut: bool, part: float, bits: int) -> None:
    directory = tmp_path_factory.mktemp("c")
    program = Linear()
    course = Course(data_of(program, directory / "d.npz"), None, 4, epochs=1)
    write_checkpoint(directory / "c.dlc", program, course, State())
    content = bytearray((directory / "c.dlc").read_bytes())
    at = int(part * len(content))
    if cut:
        del content[at:]
    else:
        content[at] ^= bits
    (directory / "c.dlc").write_bytes(content)
    with pytest.raises(DlcError, match="cannot be resumed from"):
        read_checkpoint(directory / "c.dlc")


HEADERS = [
    b"",
    b"[]",
    b"{}",
    b"[" * 5000,
    b'{"version": 2}',
    b'{"version": 1, "parts": {"program": 99}}',
    b'{"version": 1, "parts": {"program": -1}}',
    b'{"version": 1, "parts": {"evil": 0}}',
    b'{"version": 1, "parts": {"program": 0}, "identity": 5, "state": {}}',
    b'{"version": 1, "parts": {"program": 0}, "identity": {}, "state": {"epoch": "x"}}',
    b'{"version": 1, "parts": {"program": 0}, "identity": {}, "state": {"epoch": 1e999}}',
    b'{"version": 1, "parts": {"program": 0}, "identity": {}, "state": {"epoch": 1, "step": -1, "sum": 0, '
    b'"seconds": 0, "history": [], "best": 0, "trace": {"width": 1, "points": [], "pending": []}}}',
]


@pytest.mark.parametrize("text", HEADERS)
def test_headers_that_somebody_made(tmp_path: Path, text: bytes) -> None:
    """With a SHA-256 that fits."""
    content = b"dlc-train\n" + len(text).to_bytes(8, "little") + text
    (tmp_path / "c").write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(DlcError, match="cannot be resumed from"):
        read_checkpoint(tmp_path / "c")


def test_a_checkpoint_is_on_the_medium_before_it_takes_the_name(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(epochs=1).go()
    old, seen = (tmp_path / "c.dlc").read_bytes(), list[bytes]()
    monkeypatch.setattr("os.fsync", lambda _: seen.append((tmp_path / "c.dlc").read_bytes()))  # pyright: ignore
    start(epochs=1, seed=1).go()
    assert seen == [old]


def test_a_checkpoint_that_cannot_be_written(start: Start, tmp_path: Path) -> None:
    run = start(epochs=1)
    run.outputs = replace(run.outputs, checkpoint=tmp_path / "absent" / "c.dlc")
    with pytest.raises(DlcError, match="cannot be written"):
        run.go()


# --- judging ---------------------------------------------------------------------------------------------------------

LOSSES = {
    "mean": "cross-entropy",
    "sum": "cross-entropy{reduction=sum}",
    "ignore": "cross-entropy{ignore=2}",
    "weights": "cross-entropy{weights=1,0.25,3}",
    "all": "cross-entropy{weights=1,0,3 ignore=1 smoothing=0.1}",
    "mse": "mse",
    "mse_sum": "mse{reduction=sum}",
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows", [1, 4, 7, 12])
def test_judged_as_one_batch(tmp_path: Path, name: str, rows: int) -> None:
    """All rows, those of the partial batch included, as torch judges them at once."""
    program = Linear(loss=LOSSES[name])
    arrays = blobs(rows, seed=3)
    kind = loss_of(program)
    is_mse = name.startswith("mse")
    if is_mse:
        arrays["y"] = np.random.default_rng(1).standard_normal((rows, 3)).astype(np.float32)
    if (ignore := getattr(kind, "ignore", None)) is not None:
        arrays["y"][0] = 0  # one label at least counts
    score = evaluate(program, data_of(program, tmp_path / "d.npz", arrays), 4)
    assert score
    scores, y = torch.tensor(program._scores(arrays["x"])), torch.tensor(arrays["y"])
    reduction = "sum" if "sum" in name else "mean"
    if is_mse:
        expected = torch.nn.functional.mse_loss(scores, y, reduction=reduction)
        difference = (scores - y).double()
        assert score.figures["mae"] == pytest.approx(difference.abs().mean().item())
        assert score.figures["rmse"] == pytest.approx((difference**2).mean().sqrt().item())
    else:
        found_weights = getattr(kind, "weights", ())
        expected = torch.nn.functional.cross_entropy(
            scores,
            y,
            weight=torch.tensor(found_weights) if found_weights else None,
            ignore_index=-100 if ignore is None else ignore,
            label_smoothing=getattr(kind, "smoothing", 0.0),
            reduction=reduction,
        )
        counts = y != ignore if ignore is not None else torch.ones_like(y, dtype=torch.bool)
        hits = (scores.argmax(1) == y)[counts].double().mean().item()
        assert score.figures["accuracy"] == pytest.approx(hits)
    per_batch = expected.item() * (4 / rows if reduction == "sum" else 1)
    assert score.loss == pytest.approx(per_batch, rel=2e-5)


def described(loss: str, scores: tuple[int, ...], labels: str, count: int = 3) -> Any:
    """A program as far as figures depend on it."""
    program = Linear(loss="mse")
    program.facts = {"loss": loss}
    program.signature = replace(program.signature, outputs=(Port("scores", Type(DTYPES["f32"], scores)),))
    program.arguments = (program.arguments[0], Port("y", Type.parse(labels)))
    del count
    return program


@pytest.mark.parametrize(
    ("loss", "scores", "labels", "names"),
    [
        ("cross-entropy", (4, 3), "i64[4]", ("accuracy",)),
        ("cross-entropy", (4, 3, 5, 6), "i64[4,5,6]", ("accuracy",)),
        ("cross-entropy{axis=-1}", (4, 5, 3), "i64[4,5]", ("accuracy",)),
        ("cross-entropy{one-hot=yes}", (4, 3), "f32[4,3]", ("accuracy",)),
        ("nll", (4, 3), "i64[4]", ("accuracy",)),
        ("nll", (5, 3), "i64[4]", ()),
        ("sum{losses=mse{},l1{}}", (4, 3), "f32[4,3]", ("mae", "rmse")),
        ("bce", (4, 3), "f32[4,3]", ()),
        ("of another backend", (4, 3), "f32[4,3]", ("mae", "rmse")),
        ("of another backend", (4, 3), "i64[4]", ()),
    ],
)
def test_figures(loss: str, scores: tuple[int, ...], labels: str, names: tuple[str, ...]) -> None:
    program = described(loss, scores, labels)
    found = measure_of(program, loss_of(program))
    assert (found.names if found else ()) == names


def test_accuracy_over_places(tmp_path: Path) -> None:
    program = described("cross-entropy{ignore=9}", (2, 3, 2), "i64[2,2]")
    measure = measure_of(program, loss_of(program))
    assert measure
    scores = np.zeros((2, 3, 2), np.float32)
    scores[0, 2, 0] = scores[0, 1, 1] = scores[1, 0, 0] = scores[1, 2, 1] = 1
    assert measure.terms(scores, np.array([[2, 1], [1, 9]])) == (3, 2)


# --- what is left ----------------------------------------------------------------------------------------------------


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
    with pytest.raises(DlcError, match="is no log that this run can go on with"):
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


def test_endings_are_told_apart(start: Start) -> None:
    found: list[Ending] = [start(epochs=1).go(), start(epochs=9, patience=1).go()]
    assert found[0] == "done"
