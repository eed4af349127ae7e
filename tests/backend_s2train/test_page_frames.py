"""The pages `docs/s2train*.md` are enough to make frames: `page_frames`, written from them, makes the same bytes."""

import numpy as np
import pytest
from dlc_backend_s2train.codes import Role, Stage
from dlc_backend_s2train.frames.convert import conversion, send
from dlc_backend_s2train.frames.sizes import sizes
from dlc_backend_s2train.frames.stream import stored_frames
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry

from dlc import Report
from tests.backend_s2train import page_frames
from tests.backend_s2train.programs import Hand

GEOMETRIES = {
    "3x3": Geometry(2, 3, 5, 6, 7, 6, 7, 3, 3, pads=(1, 1, 1, 1)),
    "two tiles": Geometry(1, 2, 4, 5, 24, 3, 22, 3, 3),
    "stride 2": Geometry(2, 2, 4, 8, 40, 4, 20, 3, 3, (2, 2), (1, 1, 1, 1)),
    "1x1": Geometry(2, 5, 9, 6, 5, 6, 5),
    "1x1 stride 2": Geometry(2, 5, 6, 6, 5, 3, 3, stride=(2, 2)),
    "5x5": Geometry(2, 2, 3, 6, 6, 6, 6, 5, 5, pads=(2, 2, 2, 2)),
    "2x3": Geometry(2, 2, 3, 6, 6, 5, 4, 2, 3),
    "dilated": Geometry(2, 2, 3, 9, 9, 5, 5, 3, 3, dilation=(2, 2)),
    "stride and dilation": Geometry(2, 2, 3, 13, 9, 3, 2, 3, 3, (4, 4), (0, 1, 0, 0), (2, 2)),
    "stride 3": Geometry(2, 2, 3, 11, 9, 3, 3, 3, 3, (3, 3)),
    "cropped": Geometry(2, 3, 4, 9, 8, 4, 4, 3, 3, pads=(-2, -1, -1, -1)),
}
STAGES = [
    (name, stage)
    for name, g in GEOMETRIES.items()
    for stage in (Stage.FORWARD, Stage.BACKWARD)
    if stage is Stage.FORWARD or (g.kh, g.kw) != (1, 1)
]


@pytest.mark.parametrize(("name", "stage"), STAGES, ids=lambda value: str(value).lower())
def test_frames_are_those_that_the_page_says(name: str, stage: Stage) -> None:
    g = GEOMETRIES[name]
    rng = np.random.default_rng(1)
    x, dy, w = (
        rng.standard_normal(shape).astype(np.float16)
        for shape in ((g.n, g.ci, g.hi, g.wi), (g.n, g.co, g.ho, g.wo), (g.co, g.ci, g.kh, g.kw))
    )
    con, planes = conversion(Opcode.CONV, stage, g), (dy if stage else x)
    axes = ((g.kh, g.hi, g.ho, g.pads[0]), (g.kw, g.wi, g.wo, g.pads[1]))
    steps = list(zip(axes, g.stride, g.dilation, strict=True))
    q = 0 if stage else page_frames.array_stride((g.kh, g.kw), g.stride, g.dilation)
    if stage:
        rows, columns = (page_frames.backward(k, s, d, p, i) for (k, i, _, p), s, d in steps)
    else:
        rows, columns = (page_frames.forward(k, s, d, p, o, q) for (k, _, o, p), s, d in steps)
    kernels = w.swapaxes(0, 1) if stage else w
    expected = b"".join(send(con, planes.view(np.uint16), w.view(np.uint16)))
    assert sizes(Opcode.CONV, stage, g).policy == "weight-stationary"
    assert page_frames.frames(int(stage), planes, kernels, (rows, columns), q) == expected


@pytest.mark.parametrize("name", ["3x3", "two tiles", "stride 2", "5x5", "2x3", "stride and dilation", "cropped"])
def test_frames_of_weight_gradients_are_those_that_the_page_says(name: str) -> None:
    g = GEOMETRIES[name]
    rng = np.random.default_rng(2)
    x, dy = (
        rng.standard_normal(shape).astype(np.float16) for shape in ((g.n, g.ci, g.hi, g.wi), (g.n, g.co, g.ho, g.wo))
    )
    q = page_frames.array_stride((g.kh, g.kw), g.stride, g.dilation)
    rows = page_frames.gradient(g.kh, g.stride[0], g.dilation[0], g.pads[0], g.ho, q, 256)
    columns = page_frames.gradient(g.kw, g.stride[1], g.dilation[1], g.pads[1], g.wo, q, 16)
    con = conversion(Opcode.CONV, Stage.WEIGHT_GRADIENT, g)
    expected = b"".join(send(con, x.view(np.uint16), dy.view(np.uint16)))
    assert sizes(Opcode.CONV, Stage.WEIGHT_GRADIENT, g).policy == "weight-stationary"
    assert page_frames.frames(2, x.swapaxes(0, 1), dy.swapaxes(0, 1), (rows, columns), 1, g.kw) == expected


@pytest.mark.parametrize("stage", [Stage.FORWARD, Stage.BACKWARD, Stage.WEIGHT_GRADIENT])
def test_frames_of_linear_layers_are_those_that_the_page_says(stage: Stage) -> None:
    g = Geometry(6, 20, 35)
    rng = np.random.default_rng(3)
    x, dy, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((6, 20), (6, 35), (35, 20)))
    features, kernels = {0: (x, w), 1: (dy, w.T), 2: (x.T, dy.T)}[int(stage)]
    sent = {0: (x, w), 1: (dy, w), 2: (x, dy)}[int(stage)]
    blocks = np.pad(kernels, ((0, -len(kernels) % 16), (0, 0))).reshape(-1, 16, kernels.shape[1]).swapaxes(1, 2)
    rows: page_frames.Positions = list(range(len(features))), [0]
    parts = [rows], [([0], list(range(16)))]
    con = conversion(Opcode.LINEAR, stage, g)
    one, other = (np.ascontiguousarray(operand).view(np.uint16) for operand in sent)
    expected = b"".join(send(con, one, other))
    plane = np.ascontiguousarray(features.T)[None, :, :, None]
    assert page_frames.frames(int(stage), plane, blocks[:, :, None], parts, 1, 0) == expected


def test_stored_frames_are_those_that_the_page_says() -> None:
    """Weights in full, images open; the second instruction goes on counting."""
    hand = Hand()
    rng = np.random.default_rng(4)
    x, y = hand.tensor("x", (2, 3, 6, 7), Role.INPUT), hand.tensor("y", (2, 5, 6, 7), Role.ACTIVATION)
    z = hand.tensor("z", (2, 4, 6, 7), Role.OUTPUT)
    w, v = (rng.standard_normal(shape).astype(np.float16) for shape in ((5, 3, 3, 3), (4, 5, 1, 1)))
    given = [hand.tensor("w", w.shape, Role.WEIGHT, value=w), hand.tensor("v", v.shape, Role.WEIGHT, value=v)]
    one, other = GEOMETRIES["3x3"], Geometry(2, 5, 4, 6, 7, 6, 7)
    hand.do(Opcode.CONV, geometry=one, src0=x, src1=given[0], dst0=y)
    hand.do(Opcode.CONV, geometry=other, src0=y, src1=given[1], dst0=z)
    hand.entry("predict", [("x", x)], [], [("z", z)])
    three = page_frames.forward(3, 1, 1, 1, 6, 1), page_frames.forward(3, 1, 1, 1, 7, 1)
    point = page_frames.forward(1, 1, 1, 0, 6, 0), page_frames.forward(1, 1, 1, 0, 7, 0)
    blank = np.zeros((2, 3, 6, 7), np.float16), np.zeros((2, 5, 6, 7), np.float16)
    expected = page_frames.frames(0, blank[0], w, three, 1, bare=[0])
    expected += page_frames.frames(0, blank[1], v, point, 0, first=3, bare=[0])
    assert stored_frames(hand.program(), Report()) == expected
