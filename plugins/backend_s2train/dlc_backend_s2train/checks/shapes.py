"""What the operands of an instruction have to be: shapes and elements, from its opcode, stage, flags and geometry."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dlc_backend_s2train.codes import Element, Flag, Slot, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Instruction, Program

Shape = tuple[int, ...]
Elements = tuple[Element, ...]

_HALF: Final = (Element.FP16,)
_FLOAT: Final = (Element.FP16, Element.FP32)
_SINGLE: Final = (Element.FP32,)
_BIT: Final = (Element.BIT,)
_LABEL: Final = (Element.INT32,)


@dataclass(frozen=True)
class Wanted:
    """What an operand has to be."""

    shape: Shape
    elements: Elements
    sampled: bool = False
    """Its first dimension counts samples, so that an instruction may touch some of them only."""


class Misfit(Exception):
    """Why nothing can be said of an instruction's operands: its geometry, or one that the others follow from."""


def wanted(program: Program, instruction: Instruction) -> Mapping[Slot, Wanted]:
    """Slot → what it has to be, for those slots of which something is known.

    Raises:
        Misfit: the geometry, or the operand that the others follow, makes no sense.
    """
    g = None if instruction.geometry is None else program.geometries[instruction.geometry]
    shapes: dict[Slot, Shape] = {slot: program.tensors[number].shape for slot, number in instruction.operands.items()}
    match instruction.opcode, instruction.stage:
        case ((Opcode.CONV | Opcode.LINEAR), Stage.FORWARD):
            return _product_forward(_convolution(g, instruction.opcode), instruction, shapes)
        case ((Opcode.CONV | Opcode.LINEAR), Stage.BACKWARD):
            return _product_backward(_convolution(g, instruction.opcode), instruction)
        case ((Opcode.CONV | Opcode.LINEAR), (Stage.WEIGHT_GRADIENT | Stage.WEIGHT_UPDATE)):
            return _product_gradient(_convolution(g, instruction.opcode), instruction)
        case Opcode.ELTWISE, Stage.FORWARD:
            return {"src0": Wanted(shapes["src0"], _FLOAT, True), **_post_forward(shapes["src0"], instruction)}
        case Opcode.ELTWISE, Stage.BACKWARD:
            return {"src0": Wanted(shapes["src0"], _FLOAT, True), **_post_backward(shapes["src0"], instruction)}
        case Opcode.POOL, _:
            return _pool(_pooled(g), instruction)
        case Opcode.LOSS, _:
            return {"src0": Wanted(shapes["src0"], _FLOAT), **_loss(shapes["src0"], shapes)}
        case Opcode.UPDATE, _:
            w = shapes["dst0"]
            return {"src0": Wanted(w, _FLOAT), **_updated(w)}
        case Opcode.COPY, _:
            return {"dst0": Wanted((math.prod(shapes["src0"]),), _alike(program, instruction))}
        case _:
            return {}


def fits(shape: Shape, other: Shape) -> bool:
    """Whether one shape only divides dimensions of the other further, so that elements keep their meaning in memory.

    [n, 36] fits [n, 4, 3, 3], and [6, 1, 1] fits [6]; [4, 6] does not fit [6, 4].
    """
    one, two = set(_strides(shape)), set(_strides(other))
    return math.prod(shape) == math.prod(other) and (one <= two or two <= one)


def _strides(shape: Shape) -> Iterator[int]:
    total = 1
    for extent in shape:
        if extent != 1:
            total *= extent
            yield total


def _convolution(g: Geometry | None, opcode: Opcode) -> Geometry:
    """A geometry that a product may have."""
    if g is None:
        raise Misfit("there is no geometry")
    sizes = (g.n, g.ci, g.co, g.hi, g.wi, g.ho, g.wo, g.kh, g.kw, g.groups, *g.stride, *g.dilation)
    if min(sizes) < 1:
        raise Misfit(f"its geometry has a size of {min(sizes)}")
    if g.ci % g.groups or g.co % g.groups:
        raise Misfit(f"{g.groups} groups do not divide {g.ci} and {g.co} channels")
    top, left, bottom, right = g.pads
    for axis, extent, count, stride, kernel, dilation in (
        ("rows", g.hi + top + bottom, g.ho, g.stride[0], g.kh, g.dilation[0]),
        ("columns", g.wi + left + right, g.wo, g.stride[1], g.kw, g.dilation[1]),
    ):
        need = (count - 1) * stride + (kernel - 1) * dilation + 1
        if need > extent:
            raise Misfit(f"{count} windows of {kernel} need {need} {axis}; with its pads the input has {extent}")
    if opcode is Opcode.LINEAR and (g.hi, g.wi, g.ho, g.wo, g.kh, g.kw, g.groups, *g.pads) != (1,) * 7 + (0,) * 4:
        raise Misfit("a linear layer has maps and kernels of 1 x 1, no pads and one group")
    return g


def _product_forward(g: Geometry, i: Instruction, shapes: Mapping[Slot, Shape]) -> dict[Slot, Wanted]:
    y = (g.n, g.co, g.ho, g.wo)
    first, end = _channels(g, g.ci)
    found: dict[Slot, Wanted] = {
        "src0": Wanted((g.n, g.ci, g.hi, g.wi), _HALF, True),
        "src1": Wanted((g.co, (end - first) // g.groups, g.kh, g.kw), _HALF),
        **_partial(y, i),
    }
    if Splitting.ACCUMULATE_OUT in i.splitting:
        return {**found, "dst0": Wanted(y, _SINGLE, True)}
    if Flag.SOFTMAX_CE in i.flags:
        return {**found, **_norms(i, g.co), **_loss(y, shapes)}
    return {**_post_forward(y, i), **found}


def _product_backward(g: Geometry, i: Instruction) -> dict[Slot, Wanted]:
    x = (g.n, g.ci, g.hi, g.wi)
    # What a split of this stage reads a part of are the channels of dy.
    first, end = _channels(g, g.co)
    found: dict[Slot, Wanted] = {
        "src0": Wanted((g.n, g.co, g.ho, g.wo), _HALF, True),
        "src1": Wanted((end - first, g.ci // g.groups, g.kh, g.kw), _HALF),
        **_partial(x, i),
    }
    if Splitting.ACCUMULATE_OUT in i.splitting:
        return {**found, "dst0": Wanted(x, _SINGLE, True)}
    return {**_post_backward(x, i), **found}


def _product_gradient(g: Geometry, i: Instruction) -> dict[Slot, Wanted]:
    first, end = _channels(g, g.ci)
    shape: Shape = (g.co, (end - first) // g.groups, g.kh, g.kw) if "src1" in i.operands else (g.co,)
    elements = _SINGLE if Splitting.ACCUMULATE_OUT in i.splitting else _FLOAT
    stored: dict[Slot, Wanted] = {"dst0": Wanted(shape, elements), "aux": Wanted(shape, _SINGLE)}
    return {
        "src0": Wanted((g.n, g.co, g.ho, g.wo), _HALF, True),
        "src1": Wanted((g.n, g.ci, g.hi, g.wi), _HALF, True),
        **(_updated(shape) if i.updates else stored),
    }


def _updated(w: Shape) -> dict[Slot, Wanted]:
    """A weight of shape `w`, its master copy, its velocity."""
    return {"dst0": Wanted(w, _FLOAT), "dst1": Wanted(w, _SINGLE), "aux": Wanted(w, _FLOAT)}


def _channels(g: Geometry, count: int) -> tuple[int, int]:
    first, end = g.channels
    if (first, end) == (0, 0):
        return 0, count
    if g.groups != 1 or not 0 <= first < end <= count:
        raise Misfit(f"it reads the channels {first} to {end} of {count} in {g.groups} groups")
    return first, end


def _partial(shape: Shape, i: Instruction) -> dict[Slot, Wanted]:
    return {"aux": Wanted(shape, _SINGLE, True)} if Splitting.ACCUMULATE_IN in i.splitting else {}


def _norms(i: Instruction, channels: int) -> dict[Slot, Wanted]:
    """Parameters of norms, [4, C]; statistics, running ones or those of the batch, [2, C]."""
    train = Flag.BN_TRAIN in i.flags
    statistics = Wanted((2, channels), _SINGLE)
    return {
        "bn0": Wanted((4, channels), _FLOAT),
        "bn1": statistics if train or i.stage is Stage.FORWARD else Wanted((4, channels), _FLOAT),
        **({"dst1": statistics} if train else {}),
    }


def _post_forward(y: Shape, i: Instruction) -> dict[Slot, Wanted]:
    """The post-processing unit behind a sum of shape `y`."""
    window = _window(i.flags)
    found: dict[Slot, Wanted] = {"res": Wanted(y, _HALF, True), "mask": Wanted(y, _BIT, True)}
    found |= _norms(i, _channel_count(y, i))
    if window > 1:
        n, c, h, w = _map(y)
        if h % window or w % window:
            raise Misfit(f"windows of {window} x {window} do not tile {h} x {w}")
        y = (n, c, h // window, w // window)
    found["ptr"] = Wanted(y, _pointer(i.flags), True)
    found["aux"] = Wanted(y, _BIT, True)
    found["dst0"] = Wanted(y, _HALF, True)
    return found


def _post_backward(g: Shape, i: Instruction) -> dict[Slot, Wanted]:
    """The post-processing unit behind a gradient of shape `g`."""
    window = _window(i.flags)
    found: dict[Slot, Wanted] = {"ptr": Wanted(g, _pointer(i.flags), True)}
    if window > 1:
        n, c, h, w = _map(g)
        g = (n, c, h * window, w * window)
    for slot in ("res", "dst0", "dst1"):
        found[slot] = Wanted(g, _HALF, True)
    found["mask"] = Wanted(g, _BIT, True)
    found["aux"] = Wanted(g, _BIT, True)
    if Flag.ADD_SINGLE in i.flags and Flag.BN_BACKWARD_2 in i.flags:
        found["aux"] = Wanted((4, _channel_count(g, i)), _FLOAT)
    if Flag.BN_TRAIN in i.flags:
        found["src1"] = Wanted(g, _HALF, True)
    return {**found, **_norms(i, _channel_count(g, i))}


def _window(flags: Flag) -> int:
    return 4 if Flag.POOL_4 in flags else 2 if Flag.POOL_2 in flags else 1


def _pointer(flags: Flag) -> Elements:
    return (Element.PTR4,) if Flag.POOL_4 in flags else (Element.PTR2,)


def _map(shape: Shape) -> tuple[int, int, int, int]:
    if len(shape) != 4:
        raise Misfit(f"a pool works on [n, channels, rows, columns], not on {list(shape)}")
    return shape[0], shape[1], shape[2], shape[3]


def _channel_count(shape: Shape, i: Instruction) -> int:
    norms = Flag.BN_FORWARD | Flag.BN_BACKWARD | Flag.BN_BACKWARD_2 | Flag.BN_TRAIN | Flag.ADD_SINGLE
    if len(shape) < 2:
        if i.flags & norms:
            raise Misfit(f"a norm works on [n, channels, …], not on {list(shape)}")
        return 1
    return shape[1]


def _loss(logits: Shape, shapes: Mapping[Slot, Shape]) -> dict[Slot, Wanted]:
    """Softmax, or cross-entropy with labels; logits may come in any shape whose first dimensions count these."""
    if "aux" not in shapes:
        return {"dst0": Wanted(logits, _FLOAT)}
    labels = math.prod(shapes["aux"])
    if not labels or math.prod(logits) % labels:
        raise Misfit(f"{labels} labels do not go with logits of {list(logits)}")
    return {"aux": Wanted((labels,), _LABEL), "dst0": Wanted(logits, _FLOAT), "dst1": Wanted((1,), _SINGLE)}


def _pooled(g: Geometry | None) -> Geometry:
    """A geometry that a pool may have."""
    if g is None:
        raise Misfit("there is no geometry")
    if min(g.n, g.ci, g.hi, g.wi, g.ho, g.wo) < 1 or g.ci != g.co:
        raise Misfit(f"a pool from [{g.n}, {g.ci}, {g.hi}, {g.wi}] to [{g.n}, {g.co}, {g.ho}, {g.wo}]")
    window, stride, pad = g.pool
    if not 1 <= window <= min(g.hi, g.wi) + 2 * pad or stride < 1 or not 0 <= pad < window:
        raise Misfit(f"a pool of window {window}, stride {stride} and pad {pad} does not fit {g.hi} x {g.wi}")
    for extent, count in ((g.hi, g.ho), (g.wi, g.wo)):
        # The last window has to hold something of the data.
        if (count - 1) * stride - pad >= extent:
            raise Misfit(f"window {count - 1} of the pool begins at {(count - 1) * stride - pad} of {extent}")
    return g


def _pool(g: Geometry, i: Instruction) -> dict[Slot, Wanted]:
    x, y = (g.n, g.ci, g.hi, g.wi), (g.n, g.co, g.ho, g.wo)
    if i.flags & (Flag.POINTER_WRITE | Flag.POINTER_READ) and g.pool[0] > 4:
        raise Misfit(f"a pointer of four bits is not a position of {g.pool[0]} x {g.pool[0]}")
    source, result = (x, y) if i.stage is Stage.FORWARD else (y, x)
    return {
        "src0": Wanted(source, _HALF, True),
        "dst0": Wanted(result, _HALF, True),
        "ptr": Wanted(y, (Element.PTR4,), True),
    }


def _alike(program: Program, i: Instruction) -> Elements:
    """What a copy may write: floats become floats, everything else stays what it is."""
    element = program.tensors[i.operands["src0"]].element
    return _FLOAT if element in _FLOAT else (element,)
