"""The link stream in a file: complete where values are known, open where a run makes them, and refused when damaged."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.container import write
from dlc_backend_s2train.container.files import check
from dlc_backend_s2train.crc import crc64
from dlc_backend_s2train.frames import stream
from dlc_backend_s2train.frames.frame import Frame, FrameFlag, Memory, decode_frames
from dlc_backend_s2train.frames.stream import frame_rows, frames_data, run_frames, sent, stored_frames
from dlc_backend_s2train.program import Program
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc import DlcError, Report
from dlc.api.source import Source
from dlc.cli.frame import run
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.programs import PROGRAMS

STEPS = ("linear_step", "conv_step")


@functools.cache
def with_frames(name: str) -> Program:
    program = PROGRAMS[name]()
    return replace(program, frames=stored_frames(program, Report()))


def lads(frame: Frame) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(row.lengths, row.addresses) for row in frame.rows]


@pytest.mark.parametrize("name", PROGRAMS)
def test_stored_frames_are_those_of_the_first_run(name: str) -> None:
    """What a run sends is what is stored, with data in the open frames."""
    program = with_frames(name)
    assert list(verify(program)) == []
    every = list(decode_frames(program.frames))
    assert len(every) == sum(each.frames for each in sent(program))
    rng = np.random.default_rng(5)
    for entry in program.entries:
        machine, sending = machine_of(program), list[bytes]()
        shapes = {name: program.tensors[tensor].shape for name, tensor in entry.inputs}
        inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        inputs |= {name: np.zeros(program.tensors[tensor].shape, np.int32) for name, tensor in entry.labels}
        assert run_frames(machine, entry.name, inputs, sending.append).keys() == dict(entry.outputs).keys()
        each = [s for s in sent(program) if entry.begin <= s.number < entry.end]
        here = [f for f in every if each[0].begin <= f.offset < each[-1].end]
        run_of = list(decode_frames(b"".join(sending)))
        assert len(run_of) == len(here) > 0
        for held, full in zip(here, run_of, strict=True):
            assert replace(held.head, number=0, flags=held.head.flags & ~FrameFlag.OPEN) == replace(full.head, number=0)
            assert lads(held) == lads(full)
            if FrameFlag.OPEN in held.head.flags:
                assert held.size == 32 + 24 * len(held.rows)
            else:
                assert all(np.array_equal(a.data, b.data) for a, b in zip(held.rows, full.rows, strict=True))


def test_weights_and_ones_are_known() -> None:
    program = with_frames("linear_step")
    held = {each.number: each.bare for each in sent(program)}
    assert Memory.WM not in held[0] and Memory.FM in held[0]
    biases = [n for n in held if "src1" not in program.instructions[n].operands]
    assert biases and all(held[n] == (Memory.WM,) for n in biases)


def damaged(program: Program, frame: int, at: int) -> Program:
    """A bit of a frame's data is another one, and its checksum is right."""
    found = list(decode_frames(program.frames))[frame]
    data = bytearray(program.frames)
    data[found.offset + 24 + 24 + at] ^= 1
    end = found.offset + found.size - 8
    data[end : end + 8] = crc64(bytes(data[found.offset + 24 : end])).to_bytes(8, "big")
    return replace(program, frames=bytes(data))


def test_weights_that_are_others_are_found() -> None:
    program = with_frames("conv_step")
    number = next(k for k, f in enumerate(decode_frames(program.frames)) if FrameFlag.OPEN not in f.head.flags)
    (problem,) = verify(damaged(program, number, 0))
    assert problem.code == "bad-frame"
    assert problem.message == "frames of instruction 0 (conv forward) for WM: 1 of 108 elements are not the tensor's"
    # And the other way round.
    weights = {k: bytes(len(v)) for k, v in program.weights.items()}
    assert [p.code for p in verify(replace(program, weights=weights))] == ["bad-frame"]


@settings(max_examples=25)
@given(st.data())
def test_every_byte_counts(data: st.DataObject) -> None:
    program = with_frames("conv_step")
    held = bytearray(program.frames)
    at = data.draw(st.integers(0, len(held) - 1))
    held[at] ^= data.draw(st.integers(1, 255))
    source = Source(data=write(replace(program, frames=bytes(held))), label="net.s2t")
    with pytest.raises(DlcError) as refused:
        check(source)
    (problem,) = refused.value.diagnostics
    place = problem.location
    assert problem.code == "bad-frame" and place is not None and place.source == "net.s2t"
    begin = bytes(source.view()).index(bytes(held))
    assert begin <= place.byte <= begin + len(held)
    frame = [f for f in decode_frames(program.frames) if f.offset <= at][-1]
    assert frame.offset <= place.byte - begin <= frame.offset + frame.size


@pytest.mark.parametrize("cut", [1, 8, 100])
def test_frames_that_are_missing_or_too_many(cut: int) -> None:
    program = with_frames("linear_step")
    size = len(program.frames)
    (short,) = verify(replace(program, frames=program.frames[:-cut]))
    assert (short.code, short.location and short.location.byte) == ("bad-frame", size - cut)
    (long,) = verify(replace(program, frames=program.frames + bytes(cut)))
    assert (long.code, long.location and long.location.byte) == ("bad-frame", size)


def test_too_many_bytes_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    program, report = PROGRAMS["conv_step"](), Report()
    size = len(stored_frames(program, report))
    assert report.notes[0].endswith(f", of {size:,} bytes")
    monkeypatch.setattr(stream, "FRAMES", size - 1)
    monkeypatch.setattr(stream, "program_frames", None)
    with pytest.raises(DlcError, match=f"come to {size:,} bytes; a file holds {size - 1:,}"):
        stored_frames(program, Report())


def test_rows_by_instruction() -> None:
    program = with_frames("conv_step")
    rows = frame_rows(program)[1:]
    assert [int(row[0]) for row in rows] == [each.number for each in sent(program)]
    assert rows[0][1] == "conv forward" and rows[0][4:] == ("open", "full")
    assert sum(each["bytes"] for each in frames_data(program)) == len(program.frames)
    assert frame_rows(replace(program, frames=b"")) == frames_data(replace(program, frames=b"")) == []


def test_a_build_with_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> net (float[2,3] x) => (float[2,4] y) '
        "<float[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { y = Gemm<transB = 1>(x, w) }"
    )
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    line = ["build", str(tmp_path / "net.onnx"), "-t", "s2train{emit=frames}", "-p", "s2train", "-q", "--cache", "off"]
    assert run([*line, "-o", str(tmp_path / "out")]) == 0
    assert "frames: 496 B in the file" in capsys.readouterr().out
    file = str(tmp_path / "out" / "net.s2t")
    assert run(["verify", file]) == 0
    assert "; frames decoded again are the tensors" in capsys.readouterr().out
    assert run(["show", file, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    # An open frame with a LAD row; one with a LAD row of 3 x 16 elements in each of four columns, of which one is used.
    assert shown["frames"] == [
        {"instruction": 0, "frames": 2, "begin": 0, "bytes": 56 + 56 + 3 * 16 * 8, "open": ["fm"]}
    ]
