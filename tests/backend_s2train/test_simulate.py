"""The machine: programs made by hand, against PyTorch, over several steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.codes import Element, Flag, Role, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper, Program
from dlc_backend_s2train.simulator.operands import Array, Mode

from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.numerics_cases import halves, norm_of, same_bits
from tests.backend_s2train.programs import PROGRAMS, Hand, conv_step, forward_conv, linear_step

F: Any = torch.nn.functional
MODES: tuple[Mode, ...] = ("fast", "bit-true")
STEPS = 10


def batch(program: Program, seed: int) -> dict[str, Array]:
    """Arrays for the first entry."""
    entry, result = program.entries[0], dict[str, Array]()
    for name, number in (*entry.inputs, *entry.labels):
        shape = program.tensors[number].shape
        label = program.tensors[number].element is Element.INT32
        result[name] = np.random.default_rng(seed).integers(0, 3, shape) if label else halves(seed, *shape)
    return result


def half_(p: torch.Tensor) -> torch.Tensor:
    """p rounded to fp16, in fp64."""
    return p.detach().to(torch.float16).to(torch.float64).requires_grad_()


@pytest.mark.parametrize("mode", MODES)
def test_linear_layers_learn_as_in_torch(mode: Mode) -> None:
    """10 steps of two layers, SGD with momentum and decay: torch computes in fp64 with weights that fp16 holds."""
    program = linear_step()
    machine = machine_of(program, mode, checked=True)
    weights = {name: half_(torch.tensor(machine.read(name))) for name in ("w1", "b1", "w2", "b2")}
    velocity = {name: torch.zeros_like(w) for name, w in weights.items()}
    # The biases of this program are fp32 and have no velocity.
    for step in range(STEPS):
        arrays = batch(program, step)
        loss = machine.run("step", arrays)["loss"]
        x = torch.tensor(arrays["x"].astype(np.float64))
        h = F.relu(F.linear(x, weights["w1"], weights["b1"]))
        expected = F.cross_entropy(F.linear(h, weights["w2"], weights["b2"]), torch.tensor(arrays["label"]))
        assert loss.shape == (1,) and loss.item() == pytest.approx(expected.item(), rel=2e-3)
        grads = torch.autograd.grad(expected, list(weights.values()))
        for (name, w), g in zip(weights.items(), grads, strict=True):
            g = g + 0.0009765625 * w.detach()
            velocity[name] = 0.875 * velocity[name] + g if name[0] == "w" else g
            after = w.detach() - 0.0625 * velocity[name]
            weights[name] = half_(after) if name[0] == "w" else after.requires_grad_()
            # Rounding each step: a few units of fp16 in the last place.
            np.testing.assert_allclose(machine.read(name), weights[name].detach().numpy(), atol=3e-3)
    moved = np.abs(machine.read("w1") - machine_of(program).read("w1")).max()
    assert moved > 0.02


@pytest.mark.parametrize("mode", MODES)
def test_a_convolution_learns_as_in_torch(mode: Mode) -> None:
    """conv3x3 - relu - max-pool - linear: nesterov with momentum for the kernel, none for the head."""
    program = conv_step()
    machine = machine_of(program, mode, checked=True)
    w, head = (half_(torch.tensor(machine.read(name))) for name in ("w", "head"))
    velocity = torch.zeros_like(w)
    for step in range(4):
        arrays = batch(program, step)
        loss = machine.run("step", arrays)["loss"].item()
        y = F.max_pool2d(F.relu(F.conv2d(torch.tensor(arrays["x"].astype(np.float64)), w, padding=1)), 2)
        expected = F.cross_entropy(F.linear(y.flatten(1), head), torch.tensor(arrays["label"]))
        assert loss == pytest.approx(expected.item(), rel=1e-2)
        dw, dhead = torch.autograd.grad(expected, [w, head])
        velocity = 0.5 * velocity + dw
        w, head = half_(w - 0.125 * (dw + 0.5 * velocity)), half_(head - 0.125 * (dhead + 0.5 * dhead))
        np.testing.assert_allclose(machine.read("w"), w.detach().numpy(), atol=1e-2)
        np.testing.assert_allclose(machine.read("head"), head.detach().numpy(), atol=1e-2)


def test_a_norm_in_training_mode_learns_as_in_torch() -> None:
    """x → norm by the batch → linear → loss, and back into scale and shift."""
    hand = Hand()
    x = hand.tensor("x", (8, 6), Role.INPUT)
    label = hand.tensor("label", (8,), Role.LABEL, Element.INT32)
    loss = hand.tensor("loss", (1,), Role.LOSS, Element.FP32)
    bn = hand.tensor("bn", (4, 6), Role.NORM, Element.FP32, norm_of(6))
    affine = hand.view("affine", bn, (2, 6), 2 * 6 * 4, Role.WEIGHT)
    running = hand.tensor("running", (2, 6), Role.NORM, Element.FP32, [[0] * 6, [1] * 6])
    w = hand.tensor("w", (3, 6), Role.WEIGHT, value=halves(1, 3, 6))
    y = hand.tensor("y", (8, 6), Role.ACTIVATION)
    statistics = hand.tensor("statistics", (2, 6), Role.NORM, Element.FP32)
    dlogits = hand.tensor("dlogits", (8, 3), Role.FEATURE_GRADIENT)
    dy, dx = (hand.tensor(name, (8, 6), role) for name, role in (("dy", Role.FEATURE_GRADIENT), ("dx", Role.OUTPUT)))
    daffine = hand.tensor("daffine", (2, 6), Role.WEIGHT_GRADIENT, Element.FP32)
    g, scaled = Geometry(8, 6, 3), Hyper(scale=64.0)
    norm, sgd = Hyper(epsilon=1e-5, momentum=0.9), Hyper(rate=0.5, scale=64.0)
    forward: dict[str, Any] = {"src0": x, "dst0": y, "dst1": statistics, "bn0": bn, "bn1": running}
    hand.do(Opcode.ELTWISE, flags=Flag.BN_TRAIN, hyper=norm, **forward)
    head: dict[str, Any] = {"src0": y, "src1": w, "dst0": dlogits, "dst1": loss, "aux": label}
    hand.do(Opcode.LINEAR, flags=Flag.SOFTMAX_CE, geometry=g, hyper=scaled, **head)
    hand.do(Opcode.LINEAR, Stage.BACKWARD, geometry=g, src0=dlogits, src1=w, dst0=dy)
    back: dict[str, Any] = {"src0": dy, "src1": x, "dst0": dx, "dst1": daffine, "bn0": bn, "bn1": statistics}
    hand.do(Opcode.ELTWISE, Stage.BACKWARD, Flag.BN_TRAIN | Flag.BN_BACKWARD, **back)
    hand.do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=sgd, src0=daffine, dst0=affine)
    hand.entry("step", [("x", x)], [("label", label)], [("loss", loss), ("dx", dx)])
    program = hand.program()
    machine = machine_of(program, "bit-true", checked=True)
    layer = torch.nn.BatchNorm1d(6, eps=1e-5, momentum=0.1).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(norm_of(6)[2]))
        layer.bias.copy_(torch.tensor(norm_of(6)[3]))
    optimizer: Any = torch.optim.SGD(layer.parameters(), lr=0.5)
    for step in range(5):
        arrays = batch(program, step)
        found = machine.run("step", arrays)
        t = torch.tensor(arrays["x"].astype(np.float64), requires_grad=True)
        logits = F.linear(layer(t), torch.tensor(halves(1, 3, 6)).double())
        expected = F.cross_entropy(logits, torch.tensor(arrays["label"]))
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert t.grad is not None
        assert found["loss"].item() == pytest.approx(expected.item(), rel=2e-3)
        np.testing.assert_allclose(found["dx"] / 64, t.grad.numpy(), atol=1e-3)
        expected_affine = torch.stack([layer.weight, layer.bias]).detach().numpy()
        np.testing.assert_allclose(machine.read("affine"), expected_affine, atol=5e-3)
    assert layer.running_mean is not None
    np.testing.assert_allclose(machine.read("running")[0], layer.running_mean.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_machines_have_the_same_bits_and_checking_changes_none(name: str) -> None:
    program = PROGRAMS[name]()
    machines = [machine_of(program, "bit-true", checked) for checked in (False, False, True)]
    for step in range(3):
        results = [machine.run(program.entries[0].name, batch(program, step)) for machine in machines]
        assert all(same_bits(result[key], results[0][key]) for result in results for key in results[0])
    for number in range(len(program.tensors)):
        if program.storages[program.tensors[number].storage].arena.name == "WEIGHTS":
            assert all(same_bits(machine.read(number), machines[0].read(number)) for machine in machines)


@pytest.mark.parametrize("name", PROGRAMS)
def test_fast_is_close_to_bit_true(name: str) -> None:
    program = PROGRAMS[name]()
    one, two = (machine_of(program, mode).run(program.entries[0].name, batch(program, 0)) for mode in MODES)
    for key, value in one.items():
        np.testing.assert_allclose(value, two[key], rtol=2**-9, atol=2**-11)


def test_weights_stay_and_can_be_put_back() -> None:
    program = linear_step()
    machine, arrays = machine_of(program, "bit-true"), batch(linear_step(), 0)
    machine.run("step", arrays)
    snapshot = machine.snapshot()
    predicted = machine.run("predict", {"x": arrays["x"]})["y"]
    losses = [machine.run("step", arrays)["loss"].item() for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    assert not same_bits(machine.run("predict", {"x": arrays["x"]})["y"], predicted)
    machine.restore(snapshot)
    assert same_bits(machine.run("predict", {"x": arrays["x"]})["y"], predicted)
    assert [machine.run("step", arrays)["loss"].item() for _ in range(3)] == losses


def test_inputs_are_rounded_to_what_memory_holds() -> None:
    program = forward_conv()
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 6))
    one, two = (
        machine_of(program).run("predict", {"x": value})["y"] for value in (x, x.astype(np.float16).astype(float))
    )
    assert same_bits(one, two) and one.dtype == np.float32 and one.shape == (2, 4, 6, 6)


def test_what_is_written_is_read() -> None:
    machine = machine_of(linear_step())
    value = halves(0, 6, 8)
    machine.write("w1", value)
    assert same_bits(machine.read("w1"), value)
    machine.write("v1", value / 3)
    assert same_bits(machine.read("v1"), value / 3)


def dropout_program(samples: tuple[tuple[int, int], ...]) -> Program:
    """y = dropout(relu(x · w)), for each range of samples on its own; and back to dx through bits and mask."""
    hand = Hand()
    x = hand.tensor("x", (4, 16), Role.INPUT)
    w = hand.tensor("w", (24, 16), Role.WEIGHT, value=halves(0, 24, 16))
    mask, bits = (hand.tensor(name, (4, 24), Role.MASK, Element.BIT) for name in ("mask", "bits"))
    y, g = (hand.tensor(name, (4, 24), Role.OUTPUT) for name in ("y", "g"))
    hyper = Hyper(keep=0.5, seed=11)
    for part in samples:
        forward = Flag.RELU | Flag.MASK_WRITE | Flag.DROPOUT
        operands: dict[str, Any] = {"src0": x, "src1": w, "dst0": y, "mask": mask, "aux": bits}
        hand.do(Opcode.LINEAR, Stage.FORWARD, forward, Geometry(4, 16, 24, samples=part), hyper, **operands)
    for part in samples:
        shape = Geometry(4, 24, 24, samples=part)
        back = Flag.MASK_READ | Flag.DROPOUT
        hand.do(Opcode.ELTWISE, Stage.BACKWARD, back, shape, Hyper(keep=0.5), src0=y, dst0=g, mask=mask, aux=bits)
    hand.entry("run", [("x", x)], outputs=[("y", y), ("g", g)])
    return hand.program()


@pytest.mark.parametrize("mode", MODES)
def test_parts_of_a_batch_are_the_whole_batch(mode: Mode) -> None:
    x = halves(1, 4, 16)
    whole = machine_of(dropout_program(((0, 0),)), mode, checked=True)
    parts = machine_of(dropout_program(((0, 1), (1, 4))), mode, checked=True)
    for _ in range(2):
        one, two = whole.run("run", {"x": x}), parts.run("run", {"x": x})
        np.testing.assert_allclose(one["y"], two["y"], rtol=2**-10)
        np.testing.assert_allclose(one["g"], two["g"], rtol=2**-10)
        assert same_bits(whole.read("bits"), parts.read("bits"))


def test_every_run_drops_something_else_and_backward_the_same() -> None:
    machine = machine_of(dropout_program(((0, 0),)), "bit-true")
    snapshot, x = machine.snapshot(), halves(1, 4, 16)
    first, second = (machine.run("run", {"x": x}) for _ in range(2))
    assert not np.array_equal(first["y"] != 0, second["y"] != 0)
    for result in (first, second):
        np.testing.assert_array_equal(result["g"], 2 * result["y"])
    machine.restore(snapshot)
    assert same_bits(machine.run("run", {"x": x})["y"], first["y"])


def test_sums_in_several_parts_with_copies_and_fills() -> None:
    """y = conv(x) over channels 0 to 2 and 2 to 5, the fp32 sum between them in memory, cleared before."""
    hand = Hand()
    x = hand.tensor("x", (1, 5, 6, 6), Role.INPUT)
    kernel = halves(0, 4, 5, 3, 3)
    partial = hand.tensor("partial", (1, 4, 6, 6), Role.PARTIAL, Element.FP32)
    y = hand.tensor("y", (1, 4, 6, 6), Role.ACTIVATION)
    out = hand.tensor("out", (4, 36), Role.OUTPUT)
    hand.do(Opcode.FILL, dst0=partial)
    for low, high in ((0, 2), (2, 5)):
        w = hand.tensor(f"w{low}", (4, high - low, 3, 3), Role.WEIGHT, value=kernel[:, low:high])
        shape = Geometry(1, 5, 4, 6, 6, 6, 6, 3, 3, pads=(1, 1, 1, 1), channels=(low, high))
        last = high == 5
        flags = Flag.RELU if last else Flag(0)
        hand.do(Opcode.CONV, Stage.FORWARD, flags, shape, src0=x, src1=w, dst0=y if last else partial, aux=partial)
        both = Splitting.ACCUMULATE_IN | (Splitting.LAST if last else Splitting.ACCUMULATE_OUT)
        hand.instructions[-1] = replace(hand.instructions[-1], splitting=both)
    hand.do(Opcode.COPY, src0=y, dst0=out)
    hand.entry("run", [("x", x)], outputs=[("out", out)])
    for mode in MODES:
        machine = machine_of(hand.program(), mode, checked=True)
        for seed in (1, 2):
            x_value = halves(seed, 1, 5, 6, 6)
            found = machine.run("run", {"x": x_value})["out"]
            expected = F.relu(F.conv2d(torch.tensor(x_value), torch.tensor(kernel), padding=1)).numpy().reshape(4, 36)
            np.testing.assert_allclose(found, expected, rtol=2**-10, atol=2**-11)
