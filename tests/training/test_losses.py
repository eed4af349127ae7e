"""Losses by spec: what text selects them, what labels they take, and that their value is the op's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dlc import DlcError
from dlc.api.training import Classes
from dlc.base.types import Type, f32, f64, i32, i64
from dlc.graph import Input, Op, evaluate_ops
from dlc.ops.elementwise import Sigmoid
from dlc.ops.normalize import Softmax
from dlc.spec import Spec
from dlc.training.step.losses import L1, LOSSES, CrossEntropy, Huber, Mse, Sum, parse_loss

SCORES = Type(f64, (4, 3, 2))
TEXTS = [
    *(name for name in LOSSES if name != "sum"),
    "cross-entropy{smoothing=0.1 ignore=-100 weights=1,2,0.5}",
    "cross-entropy{one-hot=yes axis=-1 reduction=sum}",
    "nll{ignore=0 weights=1,2,3}",
    "huber{delta=0.5}",
    "bce{pos-weight=2,3}",
    "ctc{length=3 blank=2 time=0 zero-infinity=yes reduction=sum}",
    "sum{losses=mse{},l1{} weights=1,0.5}",
    "sum{losses=cross-entropy{smoothing=0.1},nll{reduction=sum}}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_losses_convert_both_ways(text: str) -> None:
    loss = parse_loss(text)
    assert parse_loss(str(loss)) == loss
    assert type(loss).from_spec(Spec.parse(str(loss))) == loss


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_and_option_is_documented(name: str) -> None:
    assert LOSSES[name].name == name
    assert LOSSES[name].__doc__
    assert all(o.doc and not o.doc.endswith(".") for o in LOSSES[name].options_doc())


def test_options_reach_the_fields() -> None:
    assert parse_loss("cross-entropy{smoothing=0.1 ignore=-1}") == CrossEntropy(smoothing=0.1, ignore=-1)
    assert parse_loss("sum{losses=mse,huber{delta=2} weights=1,0.5}") == Sum((Mse(), Huber(2.0)), (1.0, 0.5))
    assert parse_loss("sum{losses=l1}") == Sum((L1(),))


REFUSED = [
    ("crossentropy", 'there is no loss "crossentropy"', "did you mean cross-entropy?"),
    ("hinge", 'there is no loss "hinge"', "losses: bce, cross-entropy, ctc, huber, l1, mse, nll, sum"),
    ("cross-entropy{smoothng=0.1}", "cross-entropy has no option smoothng", "did you mean smoothing?"),
    ("cross-entropy{smoothing=1.5}", "1.5 is above the greatest value, 1", ""),
    ("cross-entropy{weights=1,-2}", "-2.0 is below the least value, 0", ""),
    ("cross-entropy{ignore=3 one-hot=yes}", "ignore=3 is a number of a class", "labels of 0 for every class"),
    ("huber{delta=0}", "delta=0.0 is not positive and finite", "mse"),
    ("mse{reduction=none}", 'unknown value "none"', "values: mean, sum"),
    ("sum", "there is nothing to add", "write sum{losses="),
    ("sum{losses=mse,l1 weights=1}", "2 losses have 1 weights", "write sum{losses="),
    ("sum{losses=mse,l2}", 'unknown value "l2"', ""),
    ("mse,l1", "expected ',' or the end", ""),
]


@pytest.mark.parametrize(("text", "message", "help"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_text_that_selects_no_loss_is_reported_with_a_caret(text: str, message: str, help: str) -> None:
    with pytest.raises(DlcError) as caught:
        parse_loss(text, "--train")
    (found,) = caught.value.diagnostics
    assert message in found.message
    assert help in found.help
    assert found.source_line == text
    assert found.location is not None
    assert found.location.source == "--train"
    assert found.location.column > 0


LABELS = [
    ("cross-entropy", SCORES, Type(i64, (4, 2))),
    ("cross-entropy{axis=-1}", SCORES, Type(i64, (4, 3))),
    ("cross-entropy{one-hot=yes}", SCORES, SCORES),
    ("nll", Type(f32, (5, 10)), Type(i64, (5,))),
    *((name, Type(f32, (5, 2)), Type(f32, (5, 2))) for name in ("mse", "l1", "huber", "bce")),
    ("sum{losses=mse,l1}", Type(f32, ()), Type(f32, ())),
    ("ctc", Type(f32, (2, 4, 3)), Type(i64, (2, 4))),
    ("ctc{length=3}", Type(f32, (2, 4, 3)), Type(i64, (2, 3))),
    ("ctc{length=2 time=0}", Type(f32, (4, 2, 3)), Type(i64, (2, 2))),
]


@pytest.mark.parametrize(("text", "prediction", "labels"), LABELS, ids=[f"{t}-{p}" for t, p, _ in LABELS])
def test_the_labels_follow_from_the_prediction(text: str, prediction: Type, labels: Type) -> None:
    loss = parse_loss(text)
    assert loss.labels(prediction) == labels
    value = loss.value(Input("p", prediction), Input("y", labels))
    assert value.type == Type(prediction.dtype, ())


MISFITS = [
    ("cross-entropy", Type(f32, (5,)), None, "scores must have rows and classes"),
    ("cross-entropy", Type(i64, (5, 2)), None, "predictions must be floats"),
    ("cross-entropy{axis=2}", Type(f32, (5, 2)), None, "axis 2 of a tensor with 2 dimensions"),
    ("cross-entropy{weights=1,2}", SCORES, None, "2 weights for the 3 classes"),
    ("nll{weights=1,2}", SCORES, None, "2 weights for the 3 classes"),
    ("cross-entropy", SCORES, Type(i64, (4, 3)), "labels i64"),
    ("cross-entropy", SCORES, SCORES, "not integers"),
    ("cross-entropy{one-hot=yes}", SCORES, Type(i32, (4, 2)), "not probabilities"),
    ("mse", Type(f32, (4,)), Type(f32, (4, 1)), "must be of the type of the predictions"),
    ("l1", Type(i32, (4,)), None, "predictions must be floats"),
    ("bce{pos-weight=1,2}", Type(f32, (4, 3)), Type(f32, (4, 3)), "shapes do not broadcast"),
    ("ctc", Type(f32, (2, 3)), None, "scores must be floats for rows, times and classes"),
    ("ctc{length=5}", Type(f32, (2, 4, 3)), None, "5 labels never fit into the 4 times"),
    ("ctc{length=2}", Type(f32, (2, 4, 3)), Type(i64, (2, 4)), "labels are i64[2,4], not i64[2,2]"),
    ("ctc{length=2 blank=3}", Type(f32, (2, 4, 3)), Type(i64, (2, 2)), "blank 3 is none of the 3 classes"),
    ("sum{losses=mse,nll}", SCORES, None, "mse takes labels f64[4,3,2], nll takes i64[4,2]"),
]


@pytest.mark.parametrize(("text", "prediction", "labels", "message"), MISFITS)
def test_types_that_do_not_fit_are_reported_with_the_numbers(
    text: str, prediction: Type, labels: Type | None, message: str
) -> None:
    loss = parse_loss(text)
    with pytest.raises(DlcError) as caught:
        loss.labels(prediction) if labels is None else loss.value(Input("p", prediction), Input("y", labels))
    (found,) = caught.value.diagnostics
    assert message in found.message
    assert found.message.startswith(loss.name)
    assert found.help


def test_values_are_those_of_torch() -> None:
    rng = np.random.default_rng(1)
    scores, numbers = rng.standard_normal((4, 3, 2)), rng.integers(0, 3, (4, 2))
    target, weights = rng.uniform(size=(4, 3, 2)), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    p, y, t = torch.tensor(scores), torch.tensor(numbers), torch.tensor(target)
    expected: list[tuple[str, Any, Any]] = [
        (
            "cross-entropy{smoothing=0.1 ignore=1 weights=1,2,0.5}",
            numbers,
            F.cross_entropy(p, y, weights, ignore_index=1, label_smoothing=0.1),
        ),
        ("cross-entropy{one-hot=yes reduction=sum}", target, F.cross_entropy(p, t, reduction="sum")),
        ("nll{weights=1,2,0.5}", numbers, F.nll_loss(p, y, weights)),
        ("mse", target, F.mse_loss(p, t)),
        ("l1{reduction=sum}", target, F.l1_loss(p, t, reduction="sum")),
        ("huber{delta=0.5}", target, F.huber_loss(p, t, delta=0.5)),
        ("bce{pos-weight=3}", target, F.binary_cross_entropy_with_logits(p, t, pos_weight=torch.tensor(3.0))),
        ("sum{losses=mse,l1 weights=1,0.5}", target, F.mse_loss(p, t) + 0.5 * F.l1_loss(p, t)),
    ]
    prediction = Input("p", SCORES)
    for text, labels, value in expected:
        loss = parse_loss(text)
        given = Input("y", loss.labels(SCORES))
        (got,) = evaluate_ops((loss.value(prediction, given),), {prediction: scores, given: labels})
        np.testing.assert_allclose(got, float(value), rtol=1e-12, err_msg=text)


@pytest.mark.parametrize("time", [0, 1])
@pytest.mark.parametrize("softmax", [False, True])
def test_ctc_reads_time_where_it_is(time: int, softmax: bool) -> None:
    scores = np.random.default_rng(2).standard_normal((5, 2, 3))
    numbers, lengths = np.array([[1, 2], [1, 0]]), torch.tensor([2, 1])
    expected = F.ctc_loss(F.log_softmax(torch.tensor(scores), 2), torch.tensor(numbers), torch.tensor([5, 5]), lengths)
    given = scores if time == 0 else scores.transpose(1, 0, 2)
    loss, x = parse_loss(f"ctc{{length=2 time={time}}}"), Input("p", Type(f64, given.shape))
    y = Input("y", loss.labels(x.type))
    (got,) = evaluate_ops((loss.value(Softmax(x, axis=-1) if softmax else x, y),), {x: given, y: numbers})
    np.testing.assert_allclose(got, float(expected), rtol=1e-12)
    assert loss.classes(x.type) == Classes(3)


def test_of_a_network_that_ends_in_softmax_or_sigmoid_the_loss_reads_the_scores() -> None:
    x, y, t = Input("x", SCORES), Input("y", Type(i64, (4, 2))), Input("t", SCORES)
    loss = parse_loss("cross-entropy{smoothing=0.1}")
    assert loss.value(Softmax(x, axis=-2), y) == loss.value(x, y)
    assert loss.value(Softmax(x, axis=2), y) != loss.value(x, y)
    assert parse_loss("bce").value(Sigmoid(x), t) == parse_loss("bce").value(x, t)


def test_far_out_it_still_learns() -> None:
    """-ln of a softmax that has underflowed is infinite; of its scores it is not."""
    x, y = Input("x", Type(f32, (1, 2))), Input("y", Type(i64, (1,)))
    given: dict[Op, Any] = {x: np.array([[0, 200]], np.float32), y: np.array([0])}
    (got,) = evaluate_ops((parse_loss("cross-entropy").value(Softmax(x, axis=1), y),), given)
    assert got == 200
