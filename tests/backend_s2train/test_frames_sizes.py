"""Sizes of frames without their data: the published table, and what follows from it."""

from dataclasses import replace
from typing import Any

import pytest
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.frames.layout import PUBLISHED, Form, layout
from dlc_backend_s2train.frames.sizes import sizes
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from tests.backend_s2train.resnet18 import CLASSIFIER, TABLE, Row


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.layer)
def test_published_table(row: Row) -> None:
    found = sizes(Opcode.CONV, Stage.FORWARD, row.geometry(), PUBLISHED)
    assert (found.features.published, found.weights.published) == (row.features, row.weights)
    assert found.splits == row.splits
    lay = layout(Opcode.CONV, Stage.FORWARD, row.geometry(), PUBLISHED)
    entries = lay.rows[0].plane.count // (1 + lay.paired)
    assert -(-entries // 4) == row.rows


def test_published_sums_of_a_network() -> None:
    found = [sizes(Opcode.CONV, Stage.FORWARD, row.geometry(), PUBLISHED) for row in TABLE]
    features = sum(row.times * one.features.published for row, one in zip(TABLE, found, strict=True))
    weights = sum(row.times * one.weights.published for row, one in zip(TABLE, found, strict=True))
    assert (features, weights) == (1_712_744, 22_358_856)


def test_a_large_linear_layer_as_published() -> None:
    # 16 x 2 frames of 16 LAD rows, 524,672 bytes each without heads.
    found = sizes(Opcode.LINEAR, Stage.FORWARD, Geometry(4, 4096, 2048), PUBLISHED)
    assert (found.weights.frames, found.splits, found.passes) == (32, 16, 2)
    assert found.weights.rows == 32 * 16
    assert found.weights.body == 32 * 524_672
    assert found.features.rows == 16


def test_policies() -> None:
    one = sizes(Opcode.CONV, Stage.FORWARD, next(row for row in TABLE if row.layer == "l4 3x3").geometry(1))
    many = sizes(Opcode.CONV, Stage.FORWARD, next(row for row in TABLE if row.layer == "l4 3x3").geometry(128))
    assert one.policy == "feature-stationary"
    assert one.total.bytes == one.features.bytes + one.weights.bytes
    assert many.policy == "weight-stationary"
    assert many.total.bytes == many.weights.bytes + 128 * 8 * many.features.bytes
    # 224 rows of 224 elements of 64 channels fit no feature memory.
    large = sizes(Opcode.CONV, Stage.FORWARD, Geometry(1, 64, 640, 224, 224, 224, 224, 3, 3, (1, 1), (1, 1, 1, 1)))
    assert not large.resident
    assert large.policy == "weight-stationary"


@pytest.mark.parametrize(
    ("opcode", "stage", "geometry", "code"),
    [
        (Opcode.ELTWISE, Stage.FORWARD, Geometry(1, 1, 1), "no-frames"),
        (Opcode.CONV, Stage.WEIGHT_UPDATE, Geometry(1, 1, 1), "no-frames"),
        (Opcode.CONV, Stage.FORWARD, Geometry(0, 1, 1), "bad-geometry"),
        (Opcode.CONV, Stage.FORWARD, Geometry(1, 3, 1, groups=2), "bad-geometry"),
        (Opcode.CONV, Stage.FORWARD, Geometry(1, 1, 1, 4, 4, 4, 4, 3, 3), "bad-geometry"),
        (Opcode.LINEAR, Stage.FORWARD, Geometry(1, 1, 1, 2, 2, 2, 2), "bad-geometry"),
        (Opcode.CONV, Stage.FORWARD, Geometry(1, 1, 1, 1 << 31, 1, 1, 1, 1 << 31, 1), "too-large"),
        (Opcode.CONV, Stage.WEIGHT_GRADIENT, Geometry(1, 1, 1, 1 << 31, 1, 1 << 31, 1), "too-large"),
    ],
)
def test_refusals(opcode: Opcode, stage: Stage, geometry: Geometry, code: str) -> None:
    with pytest.raises(DlcError) as caught:
        sizes(opcode, stage, geometry)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [code]


@pytest.mark.parametrize(
    ("tile", "stride", "message"),
    [(2, 1, "neighbours share 2"), (2, 2, "neighbours share 2"), (19, 1, "widest has 18"), (34, 2, "widest has 33")],
)
def test_tiles_that_the_array_does_not_have(tile: int, stride: int, message: str) -> None:
    geometry = Geometry(1, 1, 4, 40, 40, 38 // stride, 38 // stride, 3, 3, (stride, stride))
    with pytest.raises(DlcError, match=message):
        sizes(Opcode.CONV, Stage.FORWARD, geometry, Form(tile=tile))


def test_merged_lads_carry_the_same_data_with_fewer_heads() -> None:
    geometry = next(row for row in TABLE if row.layer == "l1").geometry()
    plain, merged = (sizes(Opcode.CONV, Stage.FORWARD, geometry, Form(merged=way)).features for way in (False, True))
    # 34 rows are 8 groups and a rest; 14 groups of 18 x 64 elements would fit a LAD.
    assert (plain.rows, merged.rows) == (2 * 9, 2 * 2)
    assert plain.body - 24 * plain.rows == merged.body - 24 * merged.rows


def test_exact_frames_are_never_larger_and_save_tiles() -> None:
    for row in TABLE:
        for stage in (Stage.FORWARD, Stage.BACKWARD):
            exact, published = (sizes(Opcode.CONV, stage, row.geometry(4), form) for form in (None, PUBLISHED))
            assert exact.features.bytes <= published.features.bytes
            assert exact.weights == published.weights
    # A column behind 33 is no tile of its own; backward, 34 columns of dy are two tiles and 36 are three.
    assert sizes(Opcode.CONV, Stage.FORWARD, TABLE[2].geometry()).features.published == 169_104
    wide = TABLE[1].geometry()
    rows = [sizes(Opcode.CONV, Stage.BACKWARD, wide, form).features.rows for form in (None, PUBLISHED)]
    assert rows == [18, 27]


NUMBERS = st.integers(1, 64) | st.sampled_from([0, 256, 4095, 65535, 2**31 - 1, 2**32 - 1])
PADS = st.integers(-3, 9) | st.sampled_from([-(2**31), 2**31 - 1])
FIELDS = {
    **dict.fromkeys(("n", "ci", "co", "hi", "wi", "ho", "wo", "kh", "kw", "groups"), NUMBERS),
    **{name: st.tuples(NUMBERS, NUMBERS) for name in ("stride", "dilation", "channels", "samples")},
    "pads": st.tuples(PADS, PADS, PADS, PADS),
}


@settings(max_examples=300)
@given(
    st.sampled_from([row.geometry(2) for row in TABLE] + [CLASSIFIER]),
    st.sampled_from([Stage.FORWARD, Stage.BACKWARD, Stage.WEIGHT_GRADIENT]),
    st.data(),
)
def test_any_figures_are_counted_or_refused(geometry: Geometry, stage: Stage, data: st.DataObject) -> None:
    for name in data.draw(st.lists(st.sampled_from(list(FIELDS)), max_size=3, unique=True)):
        values: dict[str, Any] = {name: data.draw(FIELDS[name])}
        geometry = replace(geometry, **values)
    try:
        found = sizes(Opcode.LINEAR if geometry.hi == 1 else Opcode.CONV, stage, geometry)
    except DlcError as problem:
        assert {diagnostic.code for diagnostic in problem.diagnostics} <= {"bad-geometry", "too-large"}
    else:
        assert min(found.units, found.passes, found.splits, found.weights.bytes, found.features.bytes) > 0
