"""The pass that takes several images as one: fewer steps, the same results, operands that frames give back."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.cost.estimate import estimate, total
from dlc_backend_s2train.cost.figures import cost_facts
from dlc_backend_s2train.frames.convert import receive
from dlc_backend_s2train.frames.frame import Memory, decode_frames
from dlc_backend_s2train.frames.parts import collected
from dlc_backend_s2train.frames.planes_and_kernels import shape_of
from dlc_backend_s2train.frames.stream import conversion_of, sends, stored_frames, stream
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Program
from dlc_backend_s2train.s2_pack import S2Pack

from dlc import Report
from dlc.cli.frame import run
from dlc.graph import Graph
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.selected import Model, program, select, training


def small(n: int = 4) -> Graph:
    """A step of two convolutions over maps of 4 x 4, one of 1 x 1, and a linear layer."""
    m = Model()
    x = m.relu(m.norm(m.conv(m.x(n, 3, 4, 4), 8)))
    x = m.relu(m.norm(m.conv(m.conv(x, 8), 4, kernel=1)))
    return select(training(m.graph(m.linear(m.flat(x), 5))))


def mosaics(of: Program) -> list[tuple[Stage, int, tuple[int, int]]]:
    """(stage, kernel, mosaic) of each packed instruction."""
    shapes = [(i.product, of.geometries[i.geometry]) for i in of.instructions if i.geometry is not None]
    return [(stage, g.kh, g.mosaic) for stage, g in shapes if g.mosaic != (1, 1)]


def test_small_maps_lie_side_by_side() -> None:
    report, graph = Report(), small()
    packed = S2Pack().run(graph, report)
    before, after = program(graph), program(packed)
    assert not mosaics(before)
    found = mosaics(after)
    assert {mosaic for _, kernel, mosaic in found if kernel == 3} == {(2, 1)}
    assert {mosaic for stage, kernel, mosaic in found if kernel == 1 and stage is not Stage.WEIGHT_GRADIENT} == {(4, 1)}
    assert {stage for stage, _, _ in found} == {Stage.FORWARD, Stage.BACKWARD, Stage.WEIGHT_GRADIENT}
    steps = [total(estimate(p)).steps for p in (before, after)]
    assert steps[0] > steps[1]
    counts = [report.counts[f"array steps {when}"] for when in ("before", "after")]
    assert counts[0] - counts[1] == steps[0] - steps[1]
    # 3 channels, 3 kernel rows, 11 columns of 2 mosaics in place of 6 columns of 4 images.
    assert "conv1, norm1, relu1 forward: 2 x 1 of 4 images as one, 198 of 216 array steps" in report.notes
    facts = cost_facts(after, after.entries[0])
    assert (facts["steps"], facts["unpacked_steps"], facts["packed_steps"]) == (steps[1], steps[0], steps[1])
    assert S2Pack().run(packed, Report()).digest == packed.digest


def test_results_are_the_same() -> None:
    graph = small()
    programs = [program(g) for g in (graph, S2Pack().run(graph, Report()))]
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((4, 3, 4, 4)).astype(np.float32), "y": np.arange(4)}
    losses = [machine_of(p, checked=True).run("step", inputs)["loss"] for p in programs]
    assert losses[0] == losses[1]
    # Neither are places in memory others.
    one, other = programs
    assert (one.tensors, one.storages) == (other.tensors, other.storages)


@pytest.mark.parametrize("n", [4, 5])
def test_frames_of_mosaics_give_the_operands_back(n: int) -> None:
    """Of an odd batch the last mosaic is not full."""
    packed = program(S2Pack().run(small(n), Report()))
    changed = tuple(
        replace(g, mosaic=(2, 1)) if g.mosaic == (1, 1) and g.hi == 4 and (g.kh, g.ci) != (1, 1) else g
        for g in packed.geometries
    )
    packed = replace(packed, geometries=changed)
    assert list(verify(packed)) == []
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(t.shape).astype(np.float16) for t in packed.tensors]
    checked = 0
    for number, instruction in enumerate(packed.instructions):
        if not sends(instruction) or instruction.geometry is None:
            continue
        g, con = packed.geometries[instruction.geometry], conversion_of(packed, instruction)
        if g.mosaic == (1, 1):
            continue
        found = receive(con, decode_frames(stream(packed, number, values.__getitem__)))
        for memory in Memory:
            view = con.view(memory)
            got = found[memory] if view.what == "w" else collected(found[memory], g, view.what == "x")
            want = values[instruction.operands[view.slot]].reshape(shape_of(view.what, g))
            np.testing.assert_array_equal(got.view(np.float16), want)
        checked += 1
    assert checked > 5


def test_a_file_holds_them_and_its_frames() -> None:
    packed = program(S2Pack().run(small(), Report()))
    packed = replace(packed, frames=stored_frames(packed, Report()))
    again = read(memoryview(write(packed)), "small.s2t")
    assert again.geometries == packed.geometries
    assert list(verify(again)) == []


WRONG: dict[str, tuple[Callable[[Geometry], Geometry], str]] = {
    "more than there are": (lambda g: replace(g, mosaic=(1, 5)), "images as 1 x 5, but its batch has 4"),
    "none": (lambda g: replace(g, mosaic=(0, 1)), "images as 0 x 1, but its batch has 4"),
    "too wide": (lambda g: replace(g, mosaic=(4, 1)), "4 images side by side are 19 columns, a tile has 16"),
}


@pytest.mark.parametrize("how", WRONG)
def test_mosaics_that_do_not_fit_are_refused(how: str) -> None:
    change, message = WRONG[how]
    made = program(small())
    first = made.instructions[0].geometry
    changed = tuple(change(g) if k == first else g for k, g in enumerate(made.geometries))
    text = [p.message for p in verify(replace(made, geometries=changed)) if "instruction 0 " in p.message]
    assert text and all(message in each for each in text)


def test_only_convolutions_over_images_that_are_not_pooled_have_them() -> None:
    m = Model()
    x = m.pool(m.relu(m.conv(m.x(4, 3, 4, 4), 8, bias=True)), 2)
    made = program(S2Pack().run(select(training(m.graph(m.linear(m.flat(x), 5)))), Report()))
    kinds = [(i.opcode, "src1" in i.operands, bool(i.flags & Flag.POOL_2), i.geometry) for i in made.instructions]
    assert (Opcode.CONV, True, True, 0) in kinds
    for opcode, images, pooled, number in kinds:
        if number is not None and made.geometries[number].mosaic != (1, 1):
            assert (opcode, images, pooled) == (Opcode.CONV, True, False)
    everywhere = replace(made, geometries=tuple(replace(g, mosaic=(2, 1)) for g in made.geometries))
    text = {re.sub(r"^.*?images as", "", p.message) for p in verify(everywhere) if "images as" in p.message}
    assert text == {
        " 2 x 1, but only convolutions take several as one",
        " 2 x 1, but windows of its pool would lie across two of them",
        " 2 x 1, but the gradient of a bias has no images",
    }


def test_the_pipeline_packs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = ", ".join("1" for _ in range(2 * 2 * 3 * 3))
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> net (float[4,2,4,4] x) => (float[4,2,4,4] y) '
        f"<float[2,2,3,3] w = {{{weights}}}> {{ y = Conv<pads = [1, 1, 1, 1]>(x, w) }}"
    )
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    line = ["build", str(tmp_path / "net.onnx"), "-t", "s2train", "-p", "s2train-packed", "-o", str(tmp_path / "out")]
    assert run([*line, "-q", "--cache", "off"]) == 0
    said = capsys.readouterr().out
    # 2 channels, 3 kernel rows, 2 x 11 columns in place of 4 x 6.
    assert "; 132 array steps, 144 without batch packing\n" in said
