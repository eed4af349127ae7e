"""Judging: the loss and the figures of a validation, against PyTorch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlc.api.program import Port
from dlc.base.types import DTYPES, Type
from dlc.training.loop.metrics import evaluate, loss_of, measure_of
from tests.training.linear import Linear, blobs
from tests.training.runs import data_of

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


def described(loss: str, scores: tuple[int, ...], labels: str) -> Any:
    """A program as far as figures depend on it."""
    program = Linear(loss="mse")
    program.facts = {"loss": loss}
    program.signature = replace(program.signature, outputs=(Port("scores", Type(DTYPES["f32"], scores)),))
    program.arguments = (program.arguments[0], Port("y", Type.parse(labels)))
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
