"""Convolutions, matrix products and their gradients as instructions of the array."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.graph import Cotangent, Op
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc_backend_s2train.program import Element, Geometry, Opcode, Role, Stage
from dlc_backend_s2train.select.effects import key
from dlc_backend_s2train.select.group import Given, Group, Made


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


def product_of(op: Op) -> Product | str:
    """The product that an op is; or why it is none of the array's."""
    match op:
        case Conv(x=x, w=w, b=b):
            return (
                Product(Opcode.CONV, x, w, b, conv_geometry(op)) if len(x.shape) == 4 else _rank(op, "convolution", 4)
            )
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


def _rank(op: Op, what: str, rank: int) -> str:
    return f"a {what} of {op.operands[0].type}: the array takes rank {rank}"


def conv_geometry(op: Conv) -> Geometry:
    """The shapes of a convolution over two dimensions."""
    (n, ci, hi, wi), (co, _, kh, kw), (_, _, ho, wo) = op.x.shape, op.w.shape, op.shape
    sh, sw = op.stride or (1, 1)
    dh, dw = op.dilation or (1, 1)
    top, left, bottom, right = op.pads or (0, 0, 0, 0)
    pads = (top, left, bottom, right)
    return Geometry(n, ci, co, hi, wi, ho, wo, kh, kw, (sh, sw), pads, (dh, dw), op.group)


def backward_of(op: Cotangent, product: Product) -> Group:
    """The instruction of one gradient of a product; of the data still without its weights."""
    g = product.geometry
    group = Group(product.opcode, Stage.BACKWARD if op.operand == 0 else Stage.WEIGHT_GRADIENT, op, geometry=g)
    group.reads["src0"] = Given(key(op.seed), op.seed.shape)
    if op.operand == 1:
        group.reads["src1"] = Given(key(product.x), product.x.shape)
        shape = (g.co, g.ci) if product.opcode is Opcode.LINEAR else op.shape
        group.writes["dst0"] = Made(op.digest, Element.FP16, shape, Role.WEIGHT_GRADIENT)
    elif op.operand == 2:
        group.writes["dst0"] = Made(op.digest, Element.FP16, (g.co,), Role.WEIGHT_GRADIENT)
    return group
