"""Selection: which instructions graphs become, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dlc_backend_s2train import dlc_pipelines
from dlc_backend_s2train.defaults import NAMED
from dlc_backend_s2train.instruction import hyper_of

from dlc import DlcError, Report
from dlc.base.types import Type, i32
from dlc.graph import Constant, Graph, Input, Tensor
from dlc.ops.elementwise import Sigmoid, Tanh
from dlc.ops.linear import Conv
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.pool import MaxPool
from dlc.ops.random import Dropout
from dlc.ops.shape import Reshape
from dlc.spec import Spec
from tests.backend_s2train.selected import SGD, Model, instructions, listing, select, training
from tests.conftest import Golden


def conv_norm_relu() -> Graph:
    m = Model()
    x = m.x(2, 3, 8, 8)
    return m.graph(m.relu(m.norm(m.conv(x, 4))))


def classifier(*, outputs: int = 1) -> Graph:
    """Two layers with biases."""
    m = Model()
    h = m.relu(m.linear(m.x(4, 6), 5))
    scores = m.linear(h, 3)
    return m.graph(scores, *(m.relu(scores),)[: outputs - 1], names=("scores", "more")[:outputs])


def residual(stride: int = 1) -> Graph:
    """A stem, two blocks of which the first has a convolution on its way past if it strides, pool, a head."""
    m = Model()
    a = m.relu(m.norm(m.conv(m.x(2, 3, 8, 8), 4)))
    for step in (stride, 1):
        wide = a.shape[1] * step
        inside = m.norm(m.conv(m.relu(m.norm(m.conv(a, wide, stride=step))), wide))
        a = m.relu(m.add(inside, m.norm(m.conv(a, wide, 1, step)) if step > 1 else a))
    return m.graph(m.linear(m.flat(m.pool(a, 4)), 3))


def shared() -> Graph:
    """A convolution whose value three ops read."""
    m = Model()
    y = m.conv(m.x(1, 2, 4, 4), 2)
    return m.graph(m.add(m.relu(y), m.norm(y)))


def pooled_bias() -> Graph:
    """A bias, relu and pool behind a convolution; then one whose bias moves into the mean of a norm."""
    m = Model()
    a = m.pool(m.relu(m.conv(m.x(1, 2, 8, 8), 4, bias=True)), 2)
    return m.graph(m.norm(m.conv(a, 4, bias=True)))


CASES: dict[str, Callable[[], Graph]] = {
    "conv_norm_relu": conv_norm_relu,
    "shared": shared,
    "pooled_bias": pooled_bias,
    "residual": lambda: residual(2),
    "step_of_classifier": lambda: training(classifier()),
    "step_with_scores": lambda: training(classifier(), more="outputs=yes"),
    "step_of_residual": lambda: training(residual()),
    "step_of_downsampling": lambda: training(residual(2)),
}


@pytest.mark.parametrize("case", CASES)
def test_instructions(case: str, golden: Golden) -> None:
    golden(f"select_{case}.txt", listing(select(CASES[case]())))


def test_what_the_plugin_wants_named_is_what_selection_knows() -> None:
    (step, *_) = Spec.parse_pipeline(dlc_pipelines()["s2train-step"])
    assert dict(step.options)["named"] == NAMED


def test_a_chain_is_one_instruction() -> None:
    (only,) = instructions(select(conv_norm_relu()))
    assert (only.opcode, only.flags) == ("conv", ("relu", "bn_forward"))


def test_the_gradient_before_a_norm_goes_to_memory_for_the_way_past() -> None:
    """A block's gradient goes through a norm and, as it is, past the block: dst0 and dst1 of one instruction."""
    both = [i for i in instructions(select(training(residual()))) if len(i.results) == 2 and i.stage == "backward"]
    assert both and all("bn_backward" in i.flags and "bn_backward_2" not in i.flags for i in both)


def test_two_norms_of_one_gradient_are_one_instruction() -> None:
    """Where a block has a norm on both of its ways."""
    second = [i for i in instructions(select(training(residual(2)))) if "bn_backward_2" in i.flags]
    assert len(second) == 1
    slots = [w[0] for w in second[0].writes]
    assert slots == ["dst0", "dst1"] and {"bn0", "bn1"} <= {r[0] for r in second[0].reads}


def test_a_loss_stands_alone_where_its_scores_are_wanted() -> None:
    fused = [i.opcode for i in instructions(select(training(classifier()))) if "softmax_ce" in i.flags]
    alone = [i.opcode for i in instructions(select(training(classifier(), more="outputs=yes"))) if i.opcode == "loss"]
    assert (fused, alone) == (["linear"], ["loss"])


def test_values_with_several_readers_are_reported() -> None:
    report = Report()
    select(shared(), report)
    assert set(report.misses) == {("conv1", "has 2 consumers, so it is stored in memory")}


# ---- updates ----
@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("sgd{lr=0.25}", (0.25, 0.0, 0.0, False)),
        ("sgd{lr=0.25 momentum=0.5}", (0.25, 0.5, 0.0, False)),
        ("sgd{lr=0.125 weight-decay=0.03125}", (0.125, 0.0, 0.03125, False)),
        ("sgd{lr=0.125 momentum=0.75 weight-decay=0.03125}", (0.125, 0.75, 0.03125, False)),
        ("sgd{lr=0.125 momentum=0.75 nesterov=yes weight-decay=0.03125}", (0.125, 0.75, 0.03125, True)),
    ],
)
def test_updates_are_read_off_the_graph(optimizer: str, expected: tuple[float, float, float, bool]) -> None:
    fused, apart = (
        [i for i in instructions(select(training(classifier(), optimizer), update=how)) if i.stage == "weight_update"]
        for how in ("fused", "apart")
    )
    assert [i.opcode for i in (*fused, *apart)] == ["linear"] * 4 + ["update"] * 4
    assert [i.hyper for i in fused] == [i.hyper for i in apart]
    for update in (*fused, *apart):
        h = hyper_of(update.hyper)
        assert h is not None and (h.rate, h.momentum, h.decay, h.nesterov) == pytest.approx(expected)
        assert h.scale == 1024.0
        # The velocity is there if momentum is.
        assert ("aux" in [r[0] for r in update.reads]) == (expected[1] > 0)


def test_a_bias_is_a_row_of_a_norm() -> None:
    """Its update begins behind three rows of 5 fp16."""
    for how in ("fused", "apart"):
        graph = select(training(classifier()), update=how)
        (hidden,) = (i for i in instructions(graph) if i.stage == "weight_update" and i.writes[0][2] == (5,))
        assert hidden.writes[0][4] == 3 * 5 * 2 and hidden.results[0].shape == (4, 5)


def problems(graph: Graph) -> list[str]:
    with pytest.raises(DlcError) as caught:
        select(graph)
    return [f"{d.location and d.location.node}: {d.message}" for d in caught.value.diagnostics]


@pytest.mark.parametrize("optimizer", ["adam{lr=0.25}", "rmsprop{lr=0.25}", "sgd{lr=0.25 momentum=0.5 dampening=0.5}"])
def test_other_optimizers_are_refused(optimizer: str) -> None:
    found = problems(training(classifier(), optimizer))
    assert len(found) == 4, found
    assert all("is no SGD step" in message for message in found)


def test_everything_without_an_instruction_is_reported_at_once() -> None:
    m = Model()
    x = m.x(1, 2, 6, 6)
    a = m.note(Tanh(m.conv(x, 2)), "tanh")
    b = m.note(MaxPool(a, window=(3, 2), stride=(1, 1)), "odd")
    c = m.note(Sigmoid(b), "sigmoid")
    text = problems(m.graph(c))
    assert [t.partition(":")[0] for t in text] == ["tanh1", "odd1", "sigmoid1"]
    assert "window [3, 2]" in text[1]


def test_computed_kernels_are_refused() -> None:
    m = Model()
    w = m.relu(m.x(3, 2, 3, 3, name="w"))
    (text,) = problems(m.graph(m.note(Conv(m.x(1, 2, 6, 6), w), "conv")))
    assert text == "conv1: conv: its weights are computed: they must be stored"


def test_parameters_of_norms_are_not_trained_with_stored_statistics() -> None:
    text = problems(training(residual(), SGD, "stored-norms=yes"))
    assert text and all("norm" in t for t in text)


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        ("cross-entropy{smoothing=0.125}", "label smoothing by 0.125"),
        ("cross-entropy{ignore=2}", "rows of the label 2 are left out"),
        ("cross-entropy{weights=1,2,3}", "it has no instruction"),
        ("cross-entropy{reduction=sum}", "it has no instruction"),
        ("cross-entropy{one-hot=yes}", "target_cross_entropy: it has no instruction"),
        ("mse", "a mean of f32[4,3] over the dimensions [0, 1] is not a pool"),
    ],
)
def test_losses_that_are_no_plain_mean_of_cross_entropy_are_refused(loss: str, why: str) -> None:
    text = problems(training(classifier(), SGD, "", loss))
    assert any(why in t for t in text), text


def test_a_sum_of_losses_is_refused_where_the_device_gives_their_mean() -> None:
    """The value alone, without gradients: the loss of every sample is none that the device gives."""
    m = Model()
    labels = Input("y", Type(i32, (4,)), "label")
    rows = LabelCrossEntropy(m.linear(m.x(4, 6), 3), labels)
    assert any("mean" in t for t in problems(m.graph(rows)))


def test_views_take_no_instruction() -> None:
    """Reshapes, and dropout that drops nothing, are the same bytes."""
    m = Model()
    a = m.flat(m.relu(m.conv(m.x(2, 3, 4, 4), 2)))
    b = Dropout(a, Constant(Tensor.of(np.asarray(1, np.int64))), None, 0.0)
    found = instructions(select(m.graph(m.linear(Reshape(b, to=(4, 16)), 3))))
    assert [i.opcode for i in found] == ["conv", "linear"]
    assert found[1].reads[0][1] == (4, 16)
