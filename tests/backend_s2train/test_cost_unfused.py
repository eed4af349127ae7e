"""What fusion saves, computed from the fused program: the figures of the program that was compiled without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dlc_backend_s2train import instruction
from dlc_backend_s2train.build_lines import fusion_line
from dlc_backend_s2train.codes import Flag, Role
from dlc_backend_s2train.cost.operand_traffic import Kind, Touched, by_kind, fusion_facts, traffic_of, unfused_of
from dlc_backend_s2train.decompose.s2_decompose import S2Decompose
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Entry, Geometry, Program

from dlc import Report
from dlc.graph import Constant, Graph, Op, Tensor
from dlc.ops.random import Dropout
from tests.backend_s2train.networks import S2_NETWORKS
from tests.backend_s2train.programs import Hand
from tests.backend_s2train.resnet18_step import resnet18_step
from tests.backend_s2train.selected import Model, program, select, training
from tests.backend_s2train.torch_steps import SGD, step_of


def both(graph: Graph) -> tuple[Program, Program]:
    """A graph's program with fusion and without."""
    found = [S2Decompose().run(select(graph, fuse=fuse), Report()) for fuse in (True, False)]
    return program(found[0]), program(found[1])


@pytest.mark.parametrize("by_batch", [False, True])
def test_figures_are_those_of_the_unfused_program(by_batch: bool) -> None:
    """Norms that are stored, and norms that follow their batch."""
    network = S2_NETWORKS["blocks"]
    fused, unfused = (step_of(network, SGD, select, by_batch=by_batch) for select in ("", "fuse=no"))
    assert len(fused.instructions) < len(unfused.instructions)
    assert unfused_of(fused) == by_kind(unfused) != by_kind(fused)
    # Without fusion there is nothing to find.
    assert unfused_of(unfused) == by_kind(unfused)


@pytest.mark.parametrize("n", [1, 4])
def test_figures_are_those_of_the_published_unfused_schedule(n: int) -> None:
    """Programs by hand, whose counts are the published ones (`test_cost_traffic`)."""
    fused, unfused = (resnet18_step(n, fused) for fused in (True, False))
    assert unfused_of(fused) == by_kind(unfused)


def dropping(kernel: int, window: int = 2) -> Graph:
    """Convolution, norm, relu, pool and dropout, twice, before a linear layer."""
    m = Model()
    x: Op = m.x(3, 2, 16, 16)
    for stream in range(2):
        x = m.pool(m.relu(m.norm(m.conv(x, 4, kernel))), window)
        x = m.note(Dropout(x, Constant(Tensor.of(np.asarray(5, np.int64))), None, 0.5, stream), "dropout")
    return m.graph(m.linear(m.flat(x), 4))


@pytest.mark.parametrize("kernel", [3, 5])
def test_dropout_and_sums_over_blocks(kernel: int) -> None:
    """5 x 5 are four products; the last leaves a sum in fp32 for the unit, as `aux` is for dropout's bits."""
    fused, unfused = both(training(dropping(kernel)))
    left = [i for i in fused.instructions if i.opcode is Opcode.ELTWISE and Flag.DROPOUT in i.flags]
    assert any(fused.tensors[i.operands["src0"]].role is Role.PARTIAL for i in left) == (kernel == 5)
    assert unfused_of(fused) == by_kind(unfused)


@pytest.mark.parametrize("bias", [False, True])
def test_batches_in_parts(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part reads all weights again; without fusion only norms and sums, and products with a bias, are cut."""
    m = Model()
    x = m.relu(m.conv(m.x(8, 2, 8, 8), 4, bias=bias))
    x = m.relu(m.add(m.conv(x, 4, bias=bias) if bias else m.norm(m.conv(x, 4)), x))
    monkeypatch.setattr(instruction, "COUNTED", 256)
    fused, unfused = both(m.graph(x))
    assert any(g.samples[0] for g in fused.geometries)
    assert unfused_of(fused) == by_kind(unfused)


def test_a_bias_is_part_of_its_product_and_a_norm_is_not() -> None:
    """Both stand in `bn0`; a norm that was never trained has a mean of 0 and a scale of 1 as well."""

    def conv(rows: tuple[float, float, float, float]) -> Program:
        hand = Hand()
        x, y = hand.tensor("x", (4, 3), Role.INPUT), hand.tensor("y", (4, 2), Role.OUTPUT)
        w, bn = hand.tensor("w", (2, 3), Role.WEIGHT), hand.tensor("b", (4, 2), Role.NORM)
        hand.do(Opcode.LINEAR, flags=Flag.BN_FORWARD, geometry=Geometry(4, 3, 2), src0=x, src1=w, bn0=bn, dst0=y)
        made = hand.program()
        held = np.repeat(np.asarray(rows, np.float16), 2).tobytes()
        return replace(made, weights={**made.weights, made.tensors[bn].storage: held})

    between = Touched(8, 8, 16, 16)
    plain = by_kind(conv((0, 1, 1, 0.5)))
    assert unfused_of(conv((0, 1, 1, 0.5))) == plain
    for rows in ((0, 1, 1, 0), (0.5, 1, 1, 0.5), (0, 2, 1, 0.5), (0, 1, -1, 0.5)):
        assert unfused_of(conv(rows)) == plain | {Kind.FEATURES: plain[Kind.FEATURES] + between}


def test_facts_and_their_line() -> None:
    program = resnet18_step(4, fused=True)
    entry = program.entries[0]
    found = fusion_facts(program, entry)
    assert found["traffic_bytes"] == traffic_of(program).bytes == 178_986_496
    # 59,846,489 + 11,164,352 + 41,322,017 elements of the published count, less 242 of softmax and entropy one by one;
    # and four labels of four bytes.
    assert found["unfused_bytes"] == 2 * (59_846_489 + 11_164_352 + 41_322_017 - 242) + 4 * 4
    for side in ("traffic", "unfused"):
        assert sum(found[f"{side}_{kind.value}_bytes"] for kind in Kind) == found[f"{side}_bytes"]
    assert fusion_line(found) == (
        "179.0 MB, 79.7 % of 224.7 MB without fusion (features and all gradients 66.2 %, weights and states 100.0 %)"
    )
    empty = fusion_facts(program, Entry("nothing", 0, 0))
    nothing = "0 B, none of 0 B without fusion (features and all gradients none, weights and states none)"
    assert fusion_line(empty) == nothing
