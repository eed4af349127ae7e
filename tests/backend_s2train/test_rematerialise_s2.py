"""Instructions that are executed again in the simulator: the same bits in less memory, and nothing random twice."""

from pathlib import Path
from typing import cast

import numpy as np
from dlc_backend_s2train.container import read
from dlc_backend_s2train.instruction import S2Again, S2Instruction

import dlc
from dlc.api.training_program import TrainingProgram
from dlc.base.types import Type, f16
from dlc.cli.frame import run
from dlc.graph import Input
from tests.backend_s2train.networks import S2_NETWORKS

LINE = ("--target", "s2train", "--train", "loss=cross-entropy", "-q")


def test_a_step_gives_the_same_bits_in_less_memory(tmp_path: Path) -> None:
    network = S2_NETWORKS["blocks"]
    (tmp_path / "net.onnx").write_bytes(network.onnx(network.module()))
    programs: list[TrainingProgram] = []
    sizes: list[tuple[int, int]] = []
    for name, more in (("plain", ()), ("small", ("--set", "rematerialise.budget=20"))):
        out = tmp_path / name
        assert run(["build", str(tmp_path / "net.onnx"), *LINE, *more, "-o", str(out), "--cache", "off"]) == 0
        (file,) = out.glob("*.s2t")
        program = read(memoryview(file.read_bytes()), file.name)
        sizes.append((len(program.instructions), int(program.meta["arena"])))
        found = dlc.load(out)
        programs.append(cast("TrainingProgram", found))
    assert sizes[0][0] < sizes[1][0] and sizes[0][1] > sizes[1][1]
    plain, small = programs
    for x, y in network.data(2):
        assert plain.train_step(x, y) == small.train_step(x, y)
    for name, value in plain.parameters().items():
        np.testing.assert_array_equal(small.parameters()[name], value)


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
