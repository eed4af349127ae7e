"""Gradients that overflow: updates that are left out, the register that tells, and a loss scale that adapts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Hyper, Program
from dlc_backend_s2train.select.s2_select import S2Select
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Mode
from dlc_backend_s2train.simulator.training import HIGHEST, LOWEST, LossScale, SimulatedTraining
from onnx import numpy_helper, parser

from dlc import DlcError
from dlc.base.types import Array
from dlc.cli.frame import run
from dlc.spec import Spec
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.numerics_cases import do, halves
from tests.backend_s2train.selected import Model, program, select, training


def network(**options: Any) -> Program:
    """Two layers; gradients of its weights are stored."""
    m = Model()
    graph = training(m.graph(m.linear(m.relu(m.linear(m.x(8, 6), 5)), 4)), "sgd{lr=0.05 momentum=0.5}")
    return program(select(graph, **options))


def batch(step: int = 0) -> dict[str, Array]:
    return {"x": halves(step, 8, 6), "y": (np.arange(8) + step) % 4}


def held(machine: Machine) -> dict[str, bytes]:
    """Weights and states."""
    roles = {t.name: n for n, t in enumerate(machine.program.tensors) if t.role.name in ("WEIGHT", "NORM", "STATE")}
    return {name: machine.read(n).tobytes() for name, n in roles.items()}


# ---- the update ----
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("places", [(), ("aux",), ("dst1",), ("aux", "dst1")])
def test_an_update_by_what_is_not_finite_is_left_out(bad: float, places: tuple[str, ...]) -> None:
    g = halves(1, 3, 4)
    more: Any = {place: halves(2, 3, 4) for place in places}
    hyper = Hyper(rate=0.5, momentum=0.5)
    whole = do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=hyper, src0=g, dst0=halves(0, 3, 4), **more)
    assert set(whole) == {"dst0", *places}
    g[2, 1] = bad
    assert do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=hyper, src0=g, dst0=halves(0, 3, 4), **more) == {}


@pytest.mark.parametrize("update", ["fused", "apart"])
@pytest.mark.parametrize("mode", ["fast", "bit-true"])
def test_the_register_says_whether_the_last_run_left_updates_out(mode: Mode, update: str) -> None:
    machine = machine_of(network(loss_scale=2.0**24, update=update), mode, checked=True)
    before = held(machine)
    machine.run("step", batch())
    assert machine.overflow and held(machine) == before
    machine.hypers = tuple(replace(h, scale=1024.0) for h in machine.program.hypers)
    machine.run("step", batch())
    assert not machine.overflow and held(machine) != before


def test_a_step_is_applied_in_part_where_some_gradients_overflow() -> None:
    """Gradients of weights, which are sums of large inputs, do not fit into fp16; those of biases do."""
    machine = machine_of(network(loss_scale=2.0**15, update="apart"))
    before = held(machine)
    machine.run("step", {**batch(), "x": 64 * batch()["x"]})
    moved = {name for name, bits in held(machine).items() if bits != before[name]}
    assert machine.overflow
    assert {"linear1.b", "linear2.b"} <= moved and not {"linear1.w", "linear2.w"} & moved


def test_registers_are_as_many_as_the_programs() -> None:
    machine = machine_of(network())
    with pytest.raises(DlcError, match="hyper-parameters"):
        machine.hypers = machine.hypers[1:]


# ---- the scale ----
def test_powers_of_two_change_nothing_but_the_range() -> None:
    machine, other = (machine_of(network(loss_scale=2.0**15), "bit-true") for _ in range(2))
    other.hypers = tuple(replace(h, scale=h.scale / 64) for h in other.hypers)
    for step in range(3):
        machine.run("step", batch(step))
        other.run("step", batch(step))
        np.testing.assert_allclose(machine.read("linear1.w"), other.read("linear1.w"), atol=1e-6)
    assert machine.program.hypers != other.hypers


def test_a_clean_run_is_that_of_the_fixed_scale() -> None:
    fixed, dynamic = machine_of(network(loss_scale=2.0**15)), machine_of(network(loss_scale="dynamic"))
    scale = LossScale(dynamic)
    for step in range(5):
        fixed.run("step", batch(step))
        dynamic.run("step", batch(step))
        scale.stepped()
    assert scale.scale == 2.0**15 and not scale.notes
    assert held(fixed) == held(dynamic)


def test_it_halves_until_nothing_overflows_and_learns_on() -> None:
    built = network(loss_scale="dynamic", master=True)
    machine = machine_of(replace(built, hypers=tuple(replace(h, scale=h.scale * 512) for h in built.hypers)))
    assert list(verify(machine.program)) == []
    scale, found = LossScale(machine), list[float]()
    begin = held(machine)["linear1.w"]
    losses: list[float] = []
    for _ in range(60):
        losses.append(float(machine.run("step", batch())["loss"].item()))
        overflow, before = machine.overflow, scale.scale
        scale.stepped()
        found.append(scale.scale)
        assert scale.scale == (before / 2 if overflow else before)
        assert bool(scale.notes) == overflow
    assert found[0] == 2.0**23 and LOWEST < found[-1] < 2.0**23
    assert held(machine)["linear1.w"] != begin and losses[-1] < 0.9 * losses[0]
    # It went on as one that had the last scale from the start, where whole steps were left out.
    assert {h.scale for h in machine.hypers} == {scale.scale}


def test_it_doubles_after_as_many_clean_steps_as_told() -> None:
    machine = machine_of(network(loss_scale="dynamic", scale_steps=3, prune=2.0**-8))
    scale = LossScale(machine)
    pruned = next(k for k, h in enumerate(machine.hypers) if h.threshold)
    threshold, seen = machine.hypers[pruned].threshold, list[float]()
    for _ in range(8):
        machine.overflow = False
        scale.stepped()
        seen.append(scale.scale / 2.0**15)
        assert machine.hypers[pruned].threshold == threshold * seen[-1]
    assert seen == [1, 1, 2, 2, 2, 4, 4, 4]
    machine.overflow = True
    scale.stepped()
    machine.overflow = False
    scale.stepped()
    assert scale.state() == {"scale": 2.0**16, "clean": 1}
    for _ in range(60):
        scale.stepped()
    assert scale.scale == HIGHEST
    machine.overflow = True
    notes = 0
    for _ in range(30):
        scale.stepped()
        notes += len(scale.notes)
    # One for each halving, one that even the least overflows.
    assert scale.scale == LOWEST and notes == 25


def test_a_fixed_scale_stays_and_is_warned_of_once() -> None:
    machine = machine_of(network(loss_scale=2.0**24))
    scale, notes = LossScale(machine), list[str]()
    for step in range(3):
        machine.run("step", batch(step))
        scale.stepped()
        notes += [note.message for note in scale.notes]
    assert scale.scale == 2.0**24 and len(notes) == 1 and "16,777,216" in notes[0]


def trained(machine: Machine) -> SimulatedTraining:
    from dlc_backend_s2train.artifact import signature_of

    signature = signature_of(machine.program, machine.program.entries[0])
    return SimulatedTraining(signature, machine, b"x" * 32, signature, signature, None, {})


def test_checkpoints_keep_scale_and_count() -> None:
    made = network(loss_scale="dynamic", scale_steps=4)
    one, other = trained(machine_of(made)), trained(machine_of(made))
    for step in range(6):
        one.train_step(**batch(step))
    assert one.scale.state() == {"scale": 2.0**16, "clean": 2}
    held = one.checkpoint()
    other.restore(held)
    assert other.scale.state() == one.scale.state() and other.machine.hypers == one.machine.hypers
    for step in range(3):
        assert one.train_step(**batch(step)) == other.train_step(**batch(step))
    assert one.checkpoint() == other.checkpoint() != held
    one.reset()
    assert one.scale.state() == {"scale": 2.0**15, "clean": 0}
    fixed = trained(machine_of(network()))
    with pytest.raises(DlcError, match="loss scale is 65536"):
        fixed.restore(held)
    assert fixed.scale.scale == 1024


def test_dlc_train_tells_when_it_changes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    text = """<ir_version: 10, opset_import: ["": 21]>
        net (float[8,6] x) => (float[8,4] y) { y = Gemm<transB = 1>(x, w, b) }"""
    model: Any = parser.parse_model(text)
    for name, shape in {"w": (4, 6), "b": (4,)}.items():
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    line = ["build", str(tmp_path / "net.onnx"), "--target", "s2train", "--train", "loss=cross-entropy"]
    line += ["--set", "s2-select.loss-scale=dynamic", "--set", "s2-select.scale-steps=2", "-o", str(tmp_path / "out")]
    assert run([*line, "-q", "--cache", "off", "--explain", "s2-select"]) == 0
    assert "loss scale dynamic: each update checks its own gradient alone" in capfd.readouterr().out
    np.savez(tmp_path / "d.npz", x=rng.standard_normal((64, 6), np.float32), y=rng.integers(0, 4, 64))
    capfd.readouterr()
    assert run(["train", str(tmp_path / "out"), "--data", str(tmp_path / "d.npz"), "--epochs", "2"]) == 0
    said = [text for text in capfd.readouterr().err.splitlines() if "loss scale" in text]
    assert said[0].endswith("epoch 1, step 2 of 8: the loss scale is 65,536, it was 32,768: 2 steps without overflow")
    assert any("gradients overflowed" in text for text in said) and len(said) < 16


@pytest.mark.parametrize("spoil", [{"scale": 3.0 * 2**14}, {"scale": 2.0**25}, {"scale": 2.0**14}])
def test_programs_whose_scales_differ_are_found(spoil: dict[str, Any]) -> None:
    made = network(loss_scale="dynamic")
    assert list(verify(made)) == []
    hypers = tuple(replace(h, **spoil) if h.growth else h for h in made.hypers)
    assert {p.code for p in verify(replace(made, hypers=hypers))} == {"bad-scale"}


def test_the_option_takes_numbers_and_a_word() -> None:
    assert S2Select.from_spec(Spec.parse("s2-select{loss-scale=dynamic}", "test")).loss_scale == "dynamic"
    assert S2Select.from_spec(Spec.parse("s2-select{loss-scale=512}", "test")).loss_scale == 512.0
    with pytest.raises(DlcError, match="dynamik"):
        S2Select.from_spec(Spec.parse("s2-select{loss-scale=dynamik}", "test"))
