"""Convolutions, matrix products and their gradients as instructions of the array."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.graph import Cotangent, Op
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc_backend_s2train.codes import Element, Flag, Opcode, Role, Stage
from dlc_backend_s2train.instruction import mixed
from dlc_backend_s2train.program import Geometry, Hyper
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.group import Forward, Given, Group, Made
from dlc_backend_s2train.select.selection import Selection


@dataclass(frozen=True)
class Product:
    """A convolution or a linear layer."""

    opcode: Opcode
    x: Op
    w: Op
    bias: Op | None
    geometry: Geometry
    transposed: bool = False
    """Whether weights are [in, out], where the device stores [out, in]."""

    @property
    def weight(self) -> Op | None:
        """The stored weights; None where they are computed."""
        return parameters.weight(self.w, self.transposed)

    @property
    def bias_norm(self) -> Op | None:
        """The bias as a norm's tensor; None where it is computed."""
        values = None if self.bias is None else parameters.known_value(self.bias)
        if self.bias is None or values is None:
            return None
        return parameters.held(self.bias, parameters.bias_rows(values, self.geometry.co))


def product_of(op: Op) -> Product | str:
    """The product that an op is; or why it is none of the array's."""
    match op:
        case Conv(x=x, w=w, b=b):
            if len(x.shape) != 4:
                return f"a convolution of {x.type}: the array takes rank 4"
            return Product(Opcode.CONV, x, w, b, conv_geometry(op))
        case Gemm(a=a, b=b, c=c):
            if op.trans_a or op.alpha != 1.0 or (c is not None and op.beta != 1.0):
                return "only x·w + b with factors 1 is a linear layer"
            n, inner = a.shape
            if c is not None and c.type.size not in (1, op.shape[1]):
                return f"its addend {c.type} is no bias of {op.shape[1]} features"
            return Product(Opcode.LINEAR, a, b, c, Geometry(n, inner, op.shape[1]), not op.trans_b)
        case MatMul(a=a, b=b):
            if len(a.shape) != 2 or len(b.shape) != 2:
                return f"a product of {a.type} and {b.type} is no linear layer"
            return Product(Opcode.LINEAR, a, b, None, Geometry(a.shape[0], a.shape[1], b.shape[1]), True)
        case _:
            return f"{op.text_name} is no product"


def conv_geometry(op: Conv) -> Geometry:
    """The shapes of a convolution over two dimensions."""
    (n, ci, hi, wi), (co, _, kh, kw), (_, _, ho, wo) = op.x.shape, op.w.shape, op.shape
    sh, sw = op.stride or (1, 1)
    dilation = op.dilation or (1, 1)
    # One tap has none: it would change nothing.
    dh, dw = (d if k > 1 else 1 for d, k in zip(dilation, (kh, kw), strict=True))
    top, left, bottom, right = op.pads or (0, 0, 0, 0)
    pads = (top, left, bottom, right)
    return Geometry(n, ci, co, hi, wi, ho, wo, kh, kw, (sh, sw), pads, (dh, dw), op.group)


def forward(work: Selection, op: Op) -> None:
    """A product begins a group. Its bias is a norm's stage of the unit."""
    found = product_of(op)
    if isinstance(found, str):
        work.refuse(op, found)
        return
    group = Group(found.opcode, Stage.FORWARD, op, geometry=found.geometry, origin=[op])
    group.reads["src0"] = work.given(found.x)
    if (weight := found.weight) is None:
        work.refuse(op, "its weights are computed: they must be stored")
        return
    group.reads["src1"] = Given(weight, weight.shape)
    if found.bias is not None:
        group.flags |= Flag.BN_FORWARD
        group.rank = Forward.NORM
        if (rows := found.bias_norm) is None:
            work.refuse(op, "its bias is computed: it must be stored")
            return
        group.reads["bn0"] = Given(rows, rows.shape)
    work.begin(group)


def backward(work: Selection, op: Cotangent) -> None:
    """The gradient of data begins a group; those of weights and bias are alone."""
    found = product_of(op.of)
    if isinstance(found, str) or (weight := found.weight) is None:
        return  # the product itself was refused
    g = found.geometry
    group = Group(found.opcode, Stage.BACKWARD, op, geometry=g, origin=[op])
    group.reads["src0"] = work.given(op.seed)
    if op.operand == 0:
        group.reads["src1"] = Given(weight, weight.shape)
        work.begin(group)
        return
    group.stage = Stage.WEIGHT_GRADIENT
    work.groups.append(group)
    if op.operand == 2:
        group.writes["dst0"] = Made(op.digest, Element.FP16, (g.co,), Role.WEIGHT_GRADIENT)
        return
    group.reads["src1"] = work.given(found.x)
    group.writes["dst0"] = Made(op.digest, Element.FP16, weight.shape, Role.WEIGHT_GRADIENT)
    if work.settings.prune:
        settings, number = work.settings, len(work.groups)
        hyper = Hyper(threshold=settings.prune * settings.loss_scale, seed=mixed(settings.seed, number))
        group.flags |= Flag.PRUNE
        group.hyper = replace(hyper, scale=settings.loss_scale)
