"""Sizes of frames without their data: the published table, and what follows from it."""

import pytest
from dlc_backend_s2train.frames.layout import PUBLISHED, layout
from dlc_backend_s2train.frames.sizes import sizes
from dlc_backend_s2train.program import Geometry, Opcode, Stage

from dlc.diagnostics import DlcError
from tests.backend_s2train.resnet18 import TABLE, Row


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
