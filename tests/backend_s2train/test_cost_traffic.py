"""Bytes over the link and operands touched: published counts of ResNet-18's step, and policies by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dlc_backend_s2train.codes import Flag, Role, Splitting, Stage
from dlc_backend_s2train.cost.estimate import shape_of, traffic
from dlc_backend_s2train.cost.operand_traffic import Touched, touched, traffic_of
from dlc_backend_s2train.frames.layout import PUBLISHED
from dlc_backend_s2train.frames.sizes import sizes
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Program

from tests.backend_s2train.programs import PROGRAMS, Hand
from tests.backend_s2train.resnet18 import TABLE, Row
from tests.backend_s2train.resnet18_step import resnet18_step

WEIGHTS = 11_164_352
"""Elements; the published counter takes an update's gradient for written, and so does not read it."""
FUSED = {1: (37_226_580, 24_250_762), 4: (48_311_952, 30_016_936), 16: (92_653_440, 53_081_632)}
UNFUSED = {1: (40_110_215, 27_077_033), 4: (59_846_489, 41_322_017), 16: (138_791_585, 98_301_953)}
"""Batch → elements read and written by the published compiler's instructions."""


@pytest.mark.parametrize("n", FUSED)
def test_published_counts_fused(n: int) -> None:
    """Ours reads labels besides."""
    found = traffic_of(resnet18_step(n, fused=True))
    assert (found.read - WEIGHTS - n, found.written) == FUSED[n]


@pytest.mark.parametrize("n", UNFUSED)
def test_published_counts_unfused(n: int) -> None:
    """Softmax, entropy and what undoes them are four operators there and one instruction here."""
    found = traffic_of(resnet18_step(n, fused=False))
    assert (found.read - WEIGHTS - n + 40 * n + 1, found.written + 20 * n + 1) == UNFUSED[n]


def test_what_fusion_saves() -> None:
    one, other = (traffic_of(resnet18_step(4, fused)) for fused in (True, False))
    assert one.bytes == 2 * (one.read + one.written) + 2 * 4  # four labels of 32 bits
    assert 0.79 < one.bytes / other.bytes < 0.80


def test_bits_count_as_bits_and_updates_twice() -> None:
    program = PROGRAMS["conv_step"]()
    conv, update = program.instructions[0], program.instructions[-2]
    # x 216, w 108; pooled 72, a mask of 288 bits, 72 pointers of 2 bits.
    assert touched(program, conv) == Touched(216 + 108, 72 + 288 + 72, 2 * (216 + 108), 2 * 72 + 36 + 18)
    # dw, w and the velocity in fp32; the last two are written as well.
    assert touched(program, update) == Touched(3 * 108, 2 * 108, (2 + 2 + 4) * 108, (2 + 4) * 108)
    assert touched(program, conv, ("src0", "src1")).read == 0


def part(program: Program, **fields: tuple[int, int]) -> Touched:
    g = replace(program.geometries[0], **fields)  # pyright: ignore[reportArgumentType]  # ranges only
    return touched(replace(program, geometries=(g,)), program.instructions[0])


def test_parts_of_batches_and_channels_count_in_part() -> None:
    program = PROGRAMS["forward_conv"]()
    whole = touched(program, program.instructions[0])
    fixed = 108 + 16  # weights and norm
    assert whole.read == 216 + fixed
    half = part(program, samples=(1, 2))
    assert (half.read, half.written) == (108 + fixed, whole.written // 2)
    assert part(program, channels=(0, 2)).read == 144 + fixed
    # Ranges that verification refuses do not lead astray.
    assert part(program, samples=(5, 9)) == part(program, channels=(7, 9)) == whole


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.layer)
def test_published_frames(row: Row) -> None:
    found = sizes(Opcode.CONV, Stage.FORWARD, row.geometry(), PUBLISHED)
    assert (found.features.published, found.weights.published) == (row.features, row.weights)


def layer(g: Geometry, splitting: Splitting = Splitting.FIRST | Splitting.LAST) -> Program:
    hand = Hand()
    x = hand.tensor("x", (g.n, g.ci, g.hi, g.wi), Role.INPUT)
    w = hand.tensor("w", (g.co, g.ci, g.kh, g.kw), Role.WEIGHT)
    y = hand.tensor("y", (g.n, g.co, g.ho, g.wo), Role.OUTPUT)
    hand.do(Opcode.CONV, Stage.FORWARD, Flag(0), g, src0=x, src1=w, dst0=y)
    hand.instructions[0] = replace(hand.instructions[0], splitting=splitting)
    hand.entry("predict")
    return hand.program()


@pytest.mark.parametrize("n", [1, 4, 64])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.layer)
def test_policies_by_hand(row: Row, n: int) -> None:
    """S·A·Wb + S·A·N·F and S·N·F + S·N·A·Wb, where F is of one image and Wb of all passes and splits together."""
    g = row.geometry(n)
    program = layer(g)
    found = traffic(program, program.instructions[0])
    passes = -(-g.co // 64)
    assert found.weight_stationary == found.weights + passes * n * found.features
    assert found.feature_stationary == n * found.features + n * found.weights
    assert found.feature_stationary is not None
    assert found.frames == min(found.weight_stationary, found.feature_stationary)
    assert (found.policy == "weight-stationary") == (found.frames == found.weight_stationary)
    # 512 channels take two loads: sums of fp32 go out once and come back.
    assert found.spill == 4 * (row.splits - 1) * n * g.co * g.ho * g.wo
    assert found.outward == 2 * n * g.co * g.ho * g.wo + found.spill
    assert found.inward == found.frames + found.spill
    assert traffic(program, program.instructions[0], partial=0).spill == 0


def test_the_policy_changes_with_the_batch() -> None:
    """One image of a late layer: its features are small, so they pass by once and weights go with them."""
    policies = [traffic(p, p.instructions[0]).policy for p in (layer(TABLE[7].geometry(n)) for n in (1, 64))]
    assert policies == ["feature-stationary", "weight-stationary"]


def test_the_gradient_of_a_bias_is_that_of_a_kernel_over_ones() -> None:
    program = PROGRAMS["linear_step"]()
    bias = next(i for i in program.instructions if i.stage is Stage.WEIGHT_GRADIENT and "src1" not in i.operands)
    assert (shape_of(program, bias).ci, shape_of(program, bias).co) == (1, 3)
    moved = traffic(program, bias)
    assert moved.results == 3 * 4
    assert moved.frames > 0


def test_other_instructions_move_their_operands() -> None:
    program = PROGRAMS["conv_step"]()
    for instruction in program.instructions:
        moved, sides = traffic(program, instruction), touched(program, instruction)
        if instruction.opcode not in (Opcode.CONV, Opcode.LINEAR):
            assert (moved.inward, moved.outward, moved.policy) == (sides.read_bytes, sides.written_bytes, None)
        else:
            assert moved.results == sides.written_bytes
            assert moved.frames >= touched(program, instruction).read_bytes - moved.others


def test_link_instructions_are_counted_where_they_are_needed() -> None:
    hand = Hand()
    x = hand.tensor("x", (4,), Role.INPUT)
    hand.do(Opcode.FRAME, src0=x)
    hand.do(Opcode.STORE, dst0=x)
    program = hand.program()
    assert [traffic(program, i).inward + traffic(program, i).outward for i in program.instructions] == [0, 0]
