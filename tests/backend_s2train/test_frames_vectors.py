"""Frames against those that the public S2Train compiler writes, byte for byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.frames.convert import conversion, pieces
from dlc_backend_s2train.frames.frame import Bits, LadRow, Memory, decode, encode_rows
from dlc_backend_s2train.frames.layout import Form
from dlc_backend_s2train.frames.parts import Index, Part
from dlc_backend_s2train.frames.planes_and_kernels import (
    arrange,
    decode_plane,
    encode_kernels,
    encode_plane,
    gather,
    shape_of,
)
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry

from dlc.base.diagnostics import DlcError

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "s2train" / "frames.json").read_text())
TILES_OF_4 = Form(exact=False, tile=4)
CASES = {
    "fwd k3 p0 1x2x5x5 T4": (Opcode.CONV, Stage.FORWARD, Geometry(1, 2, 4, 5, 5, 3, 3, 3, 3)),
    "fwd k1 p0 1x2x5x5 T4": (Opcode.CONV, Stage.FORWARD, Geometry(1, 2, 4, 5, 5, 5, 5, 1, 1)),
    "fwd k3 p1 1x1x4x4 T4": (
        Opcode.CONV,
        Stage.FORWARD,
        Geometry(1, 1, 4, 4, 4, 4, 4, 3, 3, (1, 1), (1, 1, 1, 1)),
    ),
    "s2k3 1x1x4x4 T4": (Opcode.CONV, Stage.FORWARD, Geometry(1, 1, 4, 4, 4, 1, 1, 3, 3, (2, 2))),
    "s2k1 1x1x8x8 T4": (Opcode.CONV, Stage.FORWARD, Geometry(1, 1, 4, 8, 8, 4, 4, 1, 1, (2, 2))),
    "bwd k3 1x1x2x2 T4": (Opcode.CONV, Stage.BACKWARD, Geometry(1, 4, 1, 4, 4, 2, 2, 3, 3)),
    "linear fwd 5x3": (Opcode.LINEAR, Stage.FORWARD, Geometry(5, 3, 8)),
    "linear fwd 4x3": (Opcode.LINEAR, Stage.FORWARD, Geometry(4, 3, 8)),
}


def counted(shape: tuple[int, ...]) -> Bits:
    """1, 2, 3, … as fp16."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float16).reshape(shape).view(np.uint16)


def test_every_vector_is_tested() -> None:
    assert [vector["case"] for vector in PUBLISHED["frames"]] == list(CASES)


@pytest.mark.parametrize("vector", PUBLISHED["frames"], ids=lambda vector: vector["case"])
def test_code_vectors(vector: dict[str, str]) -> None:
    opcode, stage, geometry = CASES[vector["case"]]
    con = conversion(opcode, stage, geometry, TILES_OF_4)
    view = con.view(Memory.FM)
    arranged = arrange(view, Memory.FM, counted(shape_of(view.what, geometry)), geometry, opcode is Opcode.LINEAR)
    (piece,) = [piece for piece in pieces(con.layout) if piece.memory is Memory.FM]
    plane = gather(arranged[0, 0], piece.row.plane, piece.column.plane)
    body = encode_plane(plane, con.layout)
    assert body.hex() == vector["hex"]
    rows, size = decode(body)
    assert size == len(body) == sum(24 + 8 * max(row.lengths) for row in rows)
    np.testing.assert_array_equal(decode_plane(rows, con.layout, plane.shape), plane)


def test_files_of_an_older_build() -> None:
    # One file to a tile column, and the last tile filled up with zeros.
    con = conversion(Opcode.CONV, Stage.FORWARD, CASES["fwd k3 p0 1x2x5x5 T4"][2], TILES_OF_4)
    plane = np.pad(counted((2, 5, 5)), ((0, 0), (0, 0), (0, 1)))
    files = [PUBLISHED["files"][f"batch_0_tile_column_{column}.bin"] for column in (0, 1)]
    assert encode_plane(plane, con.layout).hex() == "".join(files)


def test_file_with_lanes_longer_than_they_say() -> None:
    # Two LAD rows of 16 beats, lengths 1 to 8, addresses 9 to 16.
    data = np.arange(128, dtype=np.float16).view(np.uint16).reshape(2, 4, 16)
    rows = [LadRow(tuple(range(4 * r + 1, 4 * r + 5)), tuple(range(4 * r + 9, 4 * r + 13)), data[r]) for r in range(2)]
    written = encode_rows(rows)
    assert written.hex() == PUBLISHED["files"]["test.bin"]
    # Its lengths are not those of its data, so no reader can find its second row.
    with pytest.raises(DlcError, match="not zeros behind"):
        decode(written)


def test_kernel_of_the_published_example() -> None:
    con = conversion(Opcode.CONV, Stage.FORWARD, Geometry(1, 2, 4, 3, 3, 1, 1, 3, 3))
    body = encode_kernels(counted((4, 2, 3, 3)), con.layout, con.addresses)
    (row,) = decode(body)[0]
    assert row.lengths == (18,) * 4
    assert row.addresses == (0x40800000, 0x40900000, 0x40A00000, 0x40B00000)
    wanted = [1, 2, 3, 10, 11, 12, 4, 5, 6, 13, 14, 15, 7, 8, 9, 16, 17, 18]
    assert np.ascontiguousarray(row.data[0]).view(np.float16).tolist() == wanted
    assert body[24:26] == struct.pack("<e", 1.0)


def test_columns_of_all_cores() -> None:
    addresses = conversion(Opcode.CONV, Stage.FORWARD, Geometry(1, 1, 64)).addresses
    assert len(addresses) == 64
    assert (addresses[7], addresses[8], addresses[63]) == (0x40F00000, 0x41800000, 0x47F00000)
    some = conversion(Opcode.CONV, Stage.FORWARD, Geometry(1, 1, 64), cores=0b10000010).addresses
    assert (len(some), some[0], some[8]) == (16, 0x41800000, 0x47800000)


def test_merged_rows_of_the_published_figure() -> None:
    # All rows 0, 4, 8, … of a tile are one LAD of lane 0; what is left of the height is a LAD row of its own.
    geometry = Geometry(1, 2, 4, 10, 4, 10, 4)
    con = conversion(Opcode.CONV, Stage.FORWARD, geometry, Form(merged=True))
    plane = counted((2, 10, 4))
    rows, _ = decode(encode_plane(plane, con.layout))
    assert [row.lengths for row in rows] == [(16, 16, 16, 16), (8, 8, 0, 0)]
    np.testing.assert_array_equal(rows[0].data[1], np.concatenate([plane[:, y].ravel() for y in (1, 5)]))
    np.testing.assert_array_equal(decode_plane(rows, con.layout, plane.shape), plane)


def test_stride_2_exchanges_rows_of_kernels() -> None:
    con = conversion(Opcode.CONV, Stage.FORWARD, Geometry(1, 1, 4, 4, 4, 1, 1, 3, 3, (2, 2)))
    (row,) = decode(encode_kernels(counted((4, 1, 3, 3)), con.layout, con.addresses))[0]
    assert np.ascontiguousarray(row.data[0]).view(np.float16).tolist() == [1, 2, 3, 7, 8, 9, 4, 5, 6]


def test_backward_turns_kernels_and_swaps_their_axes() -> None:
    con = conversion(Opcode.CONV, Stage.BACKWARD, Geometry(1, 4, 2, 3, 3, 1, 1, 3, 3))
    view = con.view(Memory.WM)
    arranged = arrange(view, Memory.WM, counted((2, 4, 3, 3)), con.geometry, linear=False)[0]
    (piece,) = [piece for piece in pieces(con.layout) if piece.memory is Memory.WM]
    kernels = gather(arranged, piece.row.kernel, piece.column.kernel).view(np.float16)
    assert kernels.shape == (4, 2, 3, 3)
    assert kernels[1, 0].tolist() == [[18, 17, 16], [15, 14, 13], [12, 11, 10]]
    assert kernels[1, 1, 0].tolist() == [54, 53, 52]


def test_linear_weights_are_16_outputs_to_a_column_input_by_input() -> None:
    con = conversion(Opcode.LINEAR, Stage.FORWARD, Geometry(1, 3, 20))
    weights = counted((20, 3))
    arranged = arrange(con.view(Memory.WM), Memory.WM, weights, con.geometry, linear=True)[0]
    rows, _ = decode(encode_kernels(arranged, con.layout, con.addresses))
    assert [row.lengths for row in rows] == [(48,) * 4]
    first = rows[0].data[0].reshape(3, 16)
    np.testing.assert_array_equal(first, weights[:16].T)
    second = rows[0].data[1].reshape(3, 16)
    np.testing.assert_array_equal(second[:, :4], weights[16:].T)
    assert not second[:, 4:].any()
    assert not rows[0].data[2:].any()


def test_index_names_zeros_and_positions() -> None:
    line = np.arange(1, 5, dtype=np.uint16)[None]
    one = Index(0, 1, 1, 1)
    assert gather(line, one, Index(-1, 1, 6, 4)).tolist() == [[0, 1, 2, 3, 4, 0]]
    assert gather(line, one, Index(-2, 1, 9, 4, zoom=2)).tolist() == [[0, 0, 1, 0, 2, 0, 3, 0, 4]]
    assert gather(line, one, Index(5, -1, 8, 4)).tolist() == [[0, 0, 4, 3, 2, 1, 0, 0]]
    assert Part(one, one).plane.part(0, 1) == one
