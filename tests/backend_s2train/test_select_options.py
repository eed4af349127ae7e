"""Options of selection: weights in fp32 beside those in fp16, and gradients that are pruned at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.select.s2_select import S2Select
from dlc_backend_s2train.simulator.machine import Machine

from dlc import DlcError
from dlc.base.types import Array
from dlc.graph import Constant, Graph, Tensor
from dlc.ops.linear import Gemm
from dlc.spec import Spec
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.selected import Model, instructions, program, select, training, unshared

F: Any = torch.nn.functional


def linear() -> tuple[Model, Graph]:
    """One layer: its gradient depends on no decisions."""
    m = Model()
    return m, m.graph(m.linear(m.x(8, 12), 4))


def data(seed: int = 0) -> dict[str, Array]:
    return {"x": halves(seed, 8, 12), "y": np.arange(8) % 4}


# ---- master ----
def stepped(optimizer: str, count: int, **options: Any) -> Machine:
    _, graph = linear()
    machine = machine_of(program(select(training(graph, optimizer), **options)), checked=True)
    for _ in range(count):
        machine.run("step", data())
    return machine


def by_torch(count: int, rate: float, momentum: float = 0.0) -> dict[str, Array]:
    m, _ = linear()
    w, b = (torch.tensor(m.weights[f"linear1.{k}"].astype(np.float64), requires_grad=True) for k in "wb")
    optimizer = torch.optim.SGD([w, b], lr=rate, momentum=momentum)
    given = data()
    for _ in range(count):
        loss = F.cross_entropy(F.linear(torch.tensor(given["x"].astype(np.float64)), w, b), torch.tensor(given["y"]))
        optimizer.zero_grad()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    return {"linear1.w": w.detach().numpy(), "linear1.b": b.detach().numpy()}


def test_small_steps_add_up_in_fp32_only() -> None:
    """A rate whose steps are below half a unit in the last place of most fp16 weights, 200 times."""
    count, rate = 200, 2.0**-12
    start, expected = by_torch(0, rate)["linear1.w"], by_torch(count, rate)["linear1.w"]
    way = np.abs(expected - start).mean()
    kept, lost = stepped(f"sgd{{lr={rate}}}", count, master=True), stepped(f"sgd{{lr={rate}}}", count)
    # A few percent of the way are lost to fp16 gradients and weights; without masters most of it is.
    assert np.abs(kept.read("linear1.w.master") - expected).mean() < 0.05 * way
    assert np.abs(lost.read("linear1.w") - expected).mean() > 0.4 * way


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_weights_are_their_masters_rounded(momentum: float) -> None:
    optimizer = f"sgd{{lr=0.125 momentum={momentum}}}" if momentum else "sgd{lr=0.125}"
    machine = stepped(optimizer, 5, master=True)
    expected = by_torch(5, 0.125, momentum)
    w, master = machine.read("linear1.w"), machine.read("linear1.w.master")
    np.testing.assert_array_equal(w, master.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(master, expected["linear1.w"], atol=2e-3)
    np.testing.assert_allclose(machine.read("linear1.b.master"), expected["linear1.b"], atol=2e-3)


def test_masters_begin_with_what_fp16_cannot_hold() -> None:
    m = Model()
    x = m.x(2, 2)
    w = m.constant("linear1.w", [[0.0, 1.0]])
    exact = np.array([[1 / 3, 1 + 2**-20]], np.float32)
    graph = m.graph(Gemm(x, Constant(Tensor.of(exact), w.name), trans_b=True))
    machine = machine_of(program(select(training(graph), master=True)))
    np.testing.assert_array_equal(machine.read("linear1.w.master"), exact)
    np.testing.assert_array_equal(machine.read("linear1.w"), exact.astype(np.float16).astype(np.float32))


def test_rows_of_norms_have_masters_too() -> None:
    m = Model()
    graph = training(m.graph(m.linear(m.flat(m.norm(m.conv(m.x(2, 2, 4, 4), 3))), 3)), more="stored-norms=no")
    (update,) = (
        i for i in instructions(select(graph, master=True)) if i.opcode == "update" and i.reads[0][1] == (2, 3)
    )
    assert [(slot, element, shape) for slot, element, shape, _, _ in update.writes] == [
        ("dst0", "fp16", (2, 3)),
        ("dst1", "fp32", (2, 3)),
        ("aux", "fp32", (2, 3)),
    ]
    program(select(graph, master=True))


# ---- prune ----
def gradients(prune: float, seed: int = 0, scale: float = 1024.0) -> list[Array]:
    """dW of a layer, divided by the loss scale, in several runs of a machine whose weights do not move."""
    m = Model()
    graph = training(m.graph(m.linear(m.x(8, 48), 16)), "sgd{lr=0}")
    machine = machine_of(unshared(program(select(graph, prune=prune, seed=seed, loss_scale=scale, update="apart"))))
    (dw,) = {i.operands["dst0"] for i in machine.program.instructions if i.stage == 2 and "src1" in i.operands}
    found: list[Array] = []
    for _ in range(64):
        machine.run("step", {"x": halves(3, 8, 48), "y": np.arange(8)})
        found.append(machine.read(dw).astype(np.float64) / scale)
    return found


def test_gradients_below_the_threshold_become_it_or_nothing() -> None:
    whole, threshold = gradients(0.0)[0], 2.0**-5
    for pruned in gradients(threshold)[:4]:
        small = np.abs(whole) < threshold
        np.testing.assert_array_equal(pruned[~small], whole[~small])
        assert set(np.abs(pruned[small])) == {0.0, threshold}
        assert ((pruned == 0) | (np.sign(pruned) == np.sign(whole))).all()


def test_their_mean_stays() -> None:
    """Over runs: five standard deviations of a mean of coins that fall to the threshold or to 0."""
    whole, threshold = gradients(0.0)[0], 2.0**-5
    runs = gradients(threshold)
    assert not all(np.array_equal(runs[0], r) for r in runs[1:])
    deviation = threshold * np.sqrt(0.25 / len(runs))
    assert np.abs(np.mean(runs, axis=0) - whole).max() < 5 * deviation


def test_seeds_and_layers_draw_other_numbers() -> None:
    one, other = gradients(2.0**-5, 1)[0], gradients(2.0**-5, 2)[0]
    assert (one != other).mean() > 0.1
    m = Model()
    graph = training(m.graph(m.linear(m.relu(m.linear(m.x(8, 6), 5)), 3)))
    pruned = [i for i in program(select(graph, prune=0.5)).instructions if Flag.PRUNE in i.flags]
    assert len(pruned) == 2 and len({i.hyper for i in pruned}) == 2


def test_gradients_of_biases_stay_whole() -> None:
    _, graph = linear()
    for how in ("fused", "apart"):
        made = program(select(training(graph), prune=0.5, update=how))
        found = [i for i in made.instructions if i.product is Stage.WEIGHT_GRADIENT]
        assert {(i.flags & Flag.PRUNE, "src1" in i.operands) for i in found} == {(Flag.PRUNE, True), (Flag(0), False)}


@pytest.mark.parametrize("text", ["s2-select{prune=-1}", "s2-select{loss-scale=0}", "s2-select{master=maybe}"])
def test_options_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(DlcError) as caught:
        S2Select.from_spec(Spec.parse(text, "test"))
    assert caught.value.exit_code == 2


# ---- losses ----
@pytest.mark.parametrize("ignore", [-1, -100])
def test_labels_that_are_left_out(ignore: int) -> None:
    """Steps of batches with other counts of samples, against PyTorch."""
    m, graph = linear()
    machine = machine_of(program(select(training(graph, "sgd{lr=0.25}", loss=f"cross-entropy{{ignore={ignore}}}"))))
    w, b = (torch.tensor(m.weights[f"linear1.{k}"].astype(np.float64), requires_grad=True) for k in "wb")
    for count in (8, 3, 1):
        x, y = halves(count, 8, 12), np.where(np.arange(8) < count, np.arange(8) % 4, ignore)
        loss = F.cross_entropy(F.linear(torch.tensor(x.astype(np.float64)), w, b), torch.tensor(y), ignore_index=ignore)
        gradients = torch.autograd.grad(loss, (w, b))
        assert machine.run("step", {"x": x, "y": y})["loss"].item() == pytest.approx(float(loss.detach()), rel=2e-3)
        w, b = ((v - 0.25 * g).detach().requires_grad_() for v, g in zip((w, b), gradients, strict=True))
        np.testing.assert_allclose(machine.read("linear1.w"), w.detach().numpy(), atol=2e-3)


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        ("cross-entropy{ignore=2}", "those of negative labels are"),
        ("cross-entropy{smoothing=0.1}", "label smoothing by 0.1"),
        ("mse", "sub: it has no instruction"),
        ("cross-entropy{reduction=sum}", "reduce_sum: it has no instruction"),
        ("cross-entropy{weights=1,2,3,4}", "has no instruction"),
    ],
)
def test_losses_that_the_device_does_not_have(loss: str, why: str) -> None:
    _, graph = linear()
    with pytest.raises(DlcError, match=why) as caught:
        select(training(graph, "sgd{lr=0.25}", loss=loss))
    # Whatever it is, somewhere it is said which ones there are.
    assert "the accelerator trains by loss=cross-entropy" in str(caught.value)
