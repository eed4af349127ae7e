"""Steps, cycles and utilisation: the published table of ResNet-18, and counting by loops."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from dlc_backend_s2train.build_lines import CostModel
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.cost.cycles import (
    Assumptions,
    Times,
    Work,
    beats,
    compute_cycles,
    configuration_cycles,
    ideal_serial,
    ppu_latency,
    utilisation,
    work_of,
)
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Target
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from tests.backend_s2train.resnet18 import CLASSIFIER, TABLE, Row

SMALL = Target(cores=1, columns=4, weight_bytes=64)
"""A machine whose columns few channels fill."""
STAGES = (Stage.FORWARD, Stage.BACKWARD, Stage.WEIGHT_GRADIENT)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.layer)
def test_the_published_table(row: Row) -> None:
    work = work_of(Opcode.CONV, Stage.FORWARD, row.geometry())
    assert (work.splits, work.tile_passes, work.steps) == (row.splits, row.passes, row.steps)
    assert f"{float(utilisation(work.macs, work.steps)):.3f}".removeprefix("0") == row.use
    assert work_of(Opcode.CONV, Stage.FORWARD, row.geometry(7)).steps == 7 * row.steps


def test_the_published_sums() -> None:
    works = [(row.times, work_of(Opcode.CONV, Stage.FORWARD, row.geometry())) for row in TABLE]
    assert sum(times * work.steps for times, work in works) == 977_952
    assert sum(times for times, _ in works) == 20
    head = work_of(Opcode.LINEAR, Stage.FORWARD, CLASSIFIER).macs
    assert sum(times * work.macs for times, work in works) + head == 555_422_720


def test_the_published_macs_of_training() -> None:
    total = 3 * work_of(Opcode.LINEAR, Stage.FORWARD, CLASSIFIER).macs
    for row in TABLE:
        stages = [s for s in STAGES if row.layer != "stem" or s is not Stage.BACKWARD]
        total += sum(row.times * work_of(Opcode.CONV, stage, row.geometry()).macs for stage in stages)
    assert total == 1_664_498_688


@st.composite
def geometries(draw: Any) -> Geometry:
    """Shapes of convolutions of kernels 1 and 3 that the array has, with sensible pads."""
    kernel, stride = draw(st.sampled_from([1, 3])), draw(st.sampled_from([1, 2]))
    ho, wo = draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 7, 15, 16, 17, 31, 32, 35]))
    pads = tuple(draw(st.integers(0, kernel // 2)) for _ in range(4))
    hi, wi = (
        (out - 1) * stride + kernel - pads[k] - pads[k + 2] + draw(st.integers(0, stride - 1))
        for k, out in enumerate((ho, wo))
    )
    groups = draw(st.sampled_from([1, 1, 2]))
    n, ci, co = draw(st.integers(1, 3)), groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 9))
    made = (n, ci, co, max(hi, 1), max(wi, 1), ho, wo, kernel, kernel, (stride, stride), pads, (1, 1), groups)
    return Geometry(*made)


def broadcasts(g: Geometry, target: Target) -> tuple[int, int]:
    """(steps, serial steps) of a forward convolution, counted tile by tile and PE by PE."""
    columns, stride = target.cores * target.columns, g.stride[1] if g.kw > 1 else 1
    steps = serial = 0
    passes = [range(at, min(at + columns, g.co // g.groups)) for at in range(0, g.co // g.groups, columns)]
    tiles = product(range(0, g.ho, target.rows), range(0, g.wo, target.lanes))
    for _, _, _, (_, left) in product(range(g.n), range(g.groups), passes, list(tiles)):
        lanes = range(left, min(left + target.lanes, g.wo))
        for _ in range(g.ci // g.groups):
            made: Counter[int] = Counter()
            for _ in range(g.kh):
                touched = [x * stride + k for x in lanes for k in range(g.kw)]
                steps += max(touched) - min(touched) + 1
                made["pe"] += len(touched)  # pyright: ignore[reportArgumentType]
            serial += max(made.values())
    return steps, serial


@given(geometries())
def test_steps_are_what_loops_count(g: Geometry) -> None:
    work = work_of(Opcode.CONV, Stage.FORWARD, g, SMALL)
    assert (work.steps, work.serial_steps) == broadcasts(g, SMALL)


@given(geometries())
def test_the_backward_stage_is_a_convolution_of_dilated_dy(g: Geometry) -> None:
    work = work_of(Opcode.CONV, Stage.BACKWARD, g, SMALL)
    result = (g.hi, g.wi) if g.kh > 1 else (g.ho, g.wo)
    turned = Geometry(g.n, g.co, g.ci, 1, 1, *result, g.kh, g.kw, groups=g.groups)
    assert work.steps == broadcasts(turned, SMALL)[0]
    assert work.macs == work_of(Opcode.CONV, Stage.FORWARD, g, SMALL).macs


@given(geometries(), st.sampled_from(STAGES))
def test_no_pe_does_more_than_it_can(g: Geometry, stage: Stage) -> None:
    work = work_of(Opcode.CONV, stage, g, SMALL)
    for cost_model in CostModel:
        assert compute_cycles(work, Assumptions(cost_model)) > 0
    assert 0 < utilisation(work.macs, work.steps, SMALL) <= 1
    if stage is not Stage.BACKWARD:  # there, products with padding are counted in macs but not made
        assert ideal_serial(work, SMALL) <= work.serial_steps


@given(geometries(), st.integers(0, 4), st.integers(0, 4), st.sampled_from(STAGES))
def test_splits_add_up(g: Geometry, at: int, image: int, stage: Stage) -> None:
    """Parts of the channels or of the samples together do the steps of the whole."""
    if g.groups > 1:
        return
    from dataclasses import replace

    whole = work_of(Opcode.CONV, stage, g, SMALL)
    summed = g.co if stage is Stage.BACKWARD else g.ci
    if 0 < at < summed:
        parts = [work_of(Opcode.CONV, stage, replace(g, channels=c), SMALL) for c in ((0, at), (at, summed))]
        assert (sum(p.steps for p in parts), sum(p.macs for p in parts)) == (whole.steps, whole.macs)
    if 0 < image < g.n:
        parts = [work_of(Opcode.CONV, stage, replace(g, samples=s), SMALL) for s in ((0, image), (image, g.n))]
        assert (sum(p.steps for p in parts), sum(p.serial_steps for p in parts)) == (whole.steps, whole.serial_steps)


@pytest.mark.parametrize(
    "stage, steps, passes, splits",
    [
        (Stage.FORWARD, 1 * 512, 1, 2),
        (Stage.BACKWARD, 1 * 1000, 1, 4),
        (Stage.WEIGHT_GRADIENT, 128 * 4, 1, 1),
    ],
)
def test_linear_layers(stage: Stage, steps: int, passes: int, splits: int) -> None:
    """16 outputs a column, 64 columns; a sample a row; 256 input features a load."""
    work = work_of(Opcode.LINEAR, stage, Geometry(4, 512, 1000))
    assert (work.steps, work.passes, work.splits) == (steps, passes, splits)
    assert work.macs == 4 * 512 * 1000
    assert work.serial_steps == 16 * steps


def test_the_published_blocks_of_a_linear_layer() -> None:
    """AlexNet's 4096 x 2048: 16 blocks of inputs, 2 of outputs."""
    work = work_of(Opcode.LINEAR, Stage.FORWARD, Geometry(1, 4096, 2048))
    assert (work.splits, work.passes) == (16, 2)


@pytest.mark.parametrize(
    "kernel, stride, pieces, rows",
    [(5, 1, 4, 6), (7, 2, 9, 9), (11, 4, 121, 11), (11, 1, 16, 12), (2, 1, 1, 3)],
)
def test_other_kernels_are_decomposed(kernel: int, stride: int, pieces: int, rows: int) -> None:
    """One row tile of four: each piece's rows go by once."""
    size = 3 * stride + kernel
    work = work_of(Opcode.CONV, Stage.FORWARD, Geometry(1, 3, 8, size, size, 4, 4, kernel, kernel, (stride, stride)))
    assert (work.pieces, work.lines) == (pieces, rows)
    assert work.macs == 3 * 8 * 16 * kernel * kernel


def test_weight_gradients_by_hand() -> None:
    """dy of 32 x 32 in two strips; a row of 16 of it meets 18 elements of x. With stride 2, dy of 16 x 16 has zeros
    between its elements: 31 x 31, in strips of 16 and 15."""
    work = work_of(Opcode.CONV, Stage.WEIGHT_GRADIENT, TABLE[1].geometry(2))
    assert work.steps == 64 * 2 * 32 * 2 * 18
    assert work.serial_steps == 64 * 2 * 32 * 32 * 3
    strided = work_of(Opcode.CONV, Stage.WEIGHT_GRADIENT, TABLE[2].geometry())
    assert strided.steps == 64 * 2 * 31 * (18 + 17)


def test_cores_that_are_off_cost_passes() -> None:
    g = TABLE[1].geometry()
    one = work_of(Opcode.CONV, Stage.FORWARD, g, cores=0b1000)
    assert one.steps == 8 * work_of(Opcode.CONV, Stage.FORWARD, g).steps


def test_density_skips_zeros_and_the_slowest_row_counts() -> None:
    work = work_of(Opcode.CONV, Stage.FORWARD, TABLE[1].geometry())
    assert compute_cycles(work) == 55_296
    assert compute_cycles(work, Assumptions(density=(0.25, 0.5, 0.125, 0.0))) == 27_648
    assert compute_cycles(work, Assumptions(CostModel.SERIAL)) == work.macs // 256 == ideal_serial(work)
    assert compute_cycles(work, Assumptions(CostModel.SERIAL, (0.25,))) == work.macs // 1024
    assert compute_cycles(work, Assumptions(density=(0.0,))) == 0


@pytest.mark.parametrize("density", [(), (-0.1,), (1.5,), (float("nan"),)])
def test_densities_outside_0_to_1_are_refused(density: tuple[float, ...]) -> None:
    with pytest.raises(DlcError, match="densities lie between 0 and 1"):
        Assumptions(density=density)


@pytest.mark.parametrize(
    "g",
    [
        Geometry(0, 1, 1),
        Geometry(1, 1, 1, groups=0),
        Geometry(1, 1, 1, stride=(0, 1)),
        Geometry(1, 4, 1, channels=(3, 2)),
        Geometry(1, 1, 1, samples=(-4, -4)),
    ],
)
def test_shapes_of_nothing_are_refused(g: Geometry) -> None:
    with pytest.raises(DlcError) as caught:
        work_of(Opcode.CONV, Stage.FORWARD, g)
    assert caught.value.diagnostics[0].code == "bad-geometry"


def test_a_machine_without_lanes_is_refused() -> None:
    with pytest.raises(DlcError) as caught:
        work_of(Opcode.CONV, Stage.FORWARD, Geometry(1, 1, 1), Target(lanes=0))
    assert caught.value.diagnostics[0].code == "bad-target"


counts = st.integers(0, 10**6)


@given(counts, counts, counts, counts, st.integers(1, 100), st.integers(0, 64))
def test_double_buffers_never_cost(c: int, load: int, compute: int, store: int, chunks: int, latency: int) -> None:
    with_buffers = Times(c, load, compute, store, chunks, latency)
    without = Times(c, load, compute, store, chunks, latency, overlapped=False)
    assert c + max(load, compute, store) + latency <= with_buffers.total <= without.total
    assert without.total == c + load + compute + store + latency
    assert Times(c, load, compute, store, 1, latency).total == without.total  # nothing to overlap with


def test_times_by_hand() -> None:
    """Ten chunks, each 8 to load, 5 to compute, 2 to store: 8 + 5 + 2, and nine more at 8."""
    times = Times(0, 80, 50, 20, 10)
    assert (times.total, times.bound) == (15 + 9 * 8, "load")
    assert Times(30, 1, 2, 3).bound == "configuration"
    assert Times(0, 1, 2, 3, latency=64).bound == "compute"


def test_the_link() -> None:
    assert [beats(n) for n in (0, 1, 8, 9)] == [0, 1, 1, 2]
    assert configuration_cycles(64) == 2 * 10 * 64
    assert ppu_latency(Target()) == 64
    assert utilisation(4096, 2) == Fraction(1, 2)
    assert utilisation(0, 0) == 0


def test_a_work_is_its_loops() -> None:
    work = Work(1, 2, 3, 5, 7, 11, 13, 17, 19, 23)
    assert work.steps == 2 * 3 * 11 * 13 * 17
    assert work.serial_steps == 2 * 3 * 11 * 19
    assert work.tile_passes == 2 * 3 * 5 * 7
