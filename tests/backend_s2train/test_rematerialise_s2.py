"""Instructions that are executed again in the simulator: the same bits in less memory, and nothing random twice."""

from pathlib import Path

from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.container import read
from dlc_backend_s2train.instruction import S2Again, S2Instruction, hyper_of, hyper_values
from dlc_backend_s2train.program import Hyper, Program
from dlc_backend_s2train.simulator.training import SimulatedTraining

import dlc
from dlc.base.types import Type, f16
from dlc.cli.frame import run
from dlc.graph import Input
from tests.backend_s2train.networks import S2_NETWORKS

LINE = ("--target", "s2train", "--train", "loss=cross-entropy,stored-norms=no,wrt=weights", "-q")
"""Norms follow their batch, so that some of what is executed again moves running statistics."""


def test_a_step_gives_the_same_bits_in_less_memory(tmp_path: Path) -> None:
    network = S2_NETWORKS["blocks"]
    (tmp_path / "net.onnx").write_bytes(network.onnx(network.module()))
    programs: list[SimulatedTraining] = []
    sizes: list[tuple[int, int]] = []
    for name, more in (("plain", ()), ("small", ("--set", "rematerialise.budget=20"))):
        out = tmp_path / name
        assert run(["build", str(tmp_path / "net.onnx"), *LINE, *more, "-o", str(out), "--cache", "off"]) == 0
        (file,) = out.glob("*.s2t")
        program = read(memoryview(file.read_bytes()), file.name)
        found = dlc.load(out)
        assert isinstance(found, SimulatedTraining)
        programs.append(found)
        sizes.append((norms_of(program), int(program.meta["arena"])))
    (plain_norms, plain_size), (small_norms, small_size) = sizes
    assert plain_norms < small_norms and plain_size > small_size
    plain, small = programs
    begin = plain.machine.snapshot().weights
    for x, y in network.data(2):
        assert plain.train_step(x, y) == small.train_step(x, y)
    # Weights, states of the optimizer and running statistics, as they lie in the memory of the device.
    assert begin != plain.machine.snapshot().weights == small.machine.snapshot().weights


def norms_of(program: Program) -> int:
    """Norms that are computed forward by the statistics of the batch."""
    return sum(Flag.BN_TRAIN in i.flags and i.stage is Stage.FORWARD for i in program.instructions)


def test_a_norm_moves_its_running_statistics_once() -> None:
    x, rows, running = (Input(name, Type(f16, shape)) for name, shape in (("x", (2, 4)), ("bn", (4, 4)), ("r", (2, 4))))
    kinds = (("dst0", "fp16", "activation"), ("bn1", "fp32", "norm"), ("dst1", "fp32", "norm"))
    norm = S2Instruction(
        (x, rows, running),
        opcode="eltwise",
        flags=("bn_train",),
        hyper=hyper_values(Hyper(momentum=0.9, epsilon=1e-5)),
        reads=(("src0", (2, 4), 0), ("bn0", (4, 4), 0), ("bn1", (2, 4), 0)),
        writes=tuple((slot, element, (2, 4), role, 0) for slot, element, role in kinds),
        results=(x.type, running.type, running.type),
    )
    again = norm.again(1)
    assert isinstance(again, S2Again) and norm.made_again() == (0, 2)
    assert [slot for slot, _, _ in again.reads] == ["src0", "bn0"] and again.args == (x, rows)
    assert [slot for slot, *_ in again.writes] == ["dst0", "dst1"]
    assert hyper_of(again.hyper) == Hyper(epsilon=1e-5)


def test_what_draws_numbers_is_executed_once() -> None:
    x = Input("x", Type(f16, (4,)))

    def instruction(*flags: str) -> S2Instruction:
        writes = (("dst0", "fp16", (4,), "activation", 0),)
        return S2Instruction(
            (x,), opcode="eltwise", flags=flags, reads=(("src0", (4,), 0),), writes=writes, results=(x.type,)
        )

    plain = instruction()
    again = plain.again(2)
    assert isinstance(again, S2Again) and again.digest not in (plain.digest, x.digest) and again.number == 2
    assert again.operations() == plain.operations() == 4
    assert instruction("dropout").again(1) is None
