"""Convolutions, matrix products and their gradients as instructions.

Linear layers may store their weights transposed, [out, in], which is how the device has them too; exporters write a
linear layer without a bias this way:

    mat_mul(x, wᵀ)   →   gemm(x, w) trans_b, and its gradients with it

The gradient by w is that of wᵀ, transposed back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.base.types import Array
from dlc.graph import Cotangent, Input, Op
from dlc.ops.elementwise import Mul
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc.ops.shape import Transpose
from dlc_backend_s2train.codes import Element, Flag, Role, Stage
from dlc_backend_s2train.instruction import mixed
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper
from dlc_backend_s2train.select import memory
from dlc_backend_s2train.select.memory import source
from dlc_backend_s2train.select.selection import Forward, Given, Group, Made, Rows, Selection


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
        return memory.weight(self.w, self.transposed)

    @property
    def bias_rows(self) -> Array | None:
        """The bias as parameters of a norm, exactly; None where it is computed."""
        values = None if self.bias is None else memory.known_value(self.bias)
        return None if values is None else memory.bias_rows(values, self.geometry.co)

    @property
    def bias_norm(self) -> Op | None:
        """The bias as a norm's tensor; None where it is computed."""
        rows = self.bias_rows
        return None if self.bias is None or rows is None else memory.held_rows(self.bias, rows, self.bias)


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
                return f"its addend {c.type} is not a bias of {op.shape[1]} features"
            return Product(Opcode.LINEAR, a, b, c, Geometry(n, inner, op.shape[1]), not op.trans_b)
        case MatMul(a=a, b=b):
            if len(a.shape) != 2 or len(b.shape) != 2:
                return f"a product of {a.type} and {b.type} is not a linear layer"
            return Product(Opcode.LINEAR, a, b, None, Geometry(a.shape[0], a.shape[1], b.shape[1]), True)
        case Mul() if (scaled := scale_of(op)) is not None:
            x, w = scaled
            n, channels, *rest = x.shape
            rows, columns = (*rest, 1, 1)[:2]
            shape = Geometry(n, channels, channels, rows, columns, rows, columns, groups=channels)
            return Product(Opcode.CONV, x, w, None, shape)
        case _:
            return f"{op.text_name} is no product"


def is_product(op: Op) -> bool:
    """Whether an op is a product by weights, though perhaps none of the array's."""
    return isinstance(op, Conv | Gemm | MatMul) or scale_of(op) is not None


def scale_of(op: Op) -> tuple[Op, Input] | None:
    """x and w of x·w for a weight with a number for each channel: a convolution of each channel by one tap."""
    if not isinstance(op, Mul) or len(op.shape) not in _MAPS:
        return None
    channels = op.shape[1]
    for x, w in ((op.a, op.b), (op.b, op.a)):
        found = source(w)
        over = (1,) * (len(op.shape) - len(w.shape)) + w.shape
        each = all(extent == 1 or axis == 1 for axis, extent in enumerate(over)) and w.type.size == channels
        if isinstance(found, Input) and found.role == "weight" and x.shape == op.shape and each:
            return x, found
    return None


_MAPS = (2, 4)
"""Ranks of what convolutions take, those of 1 x 1 maps among them."""


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


def product_forward(work: Selection, op: Op) -> None:
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
        if (exact := found.bias_rows) is None:
            work.refuse(op, "its bias is computed: it must be stored")
            return
        rows = memory.held_rows(found.bias, exact, found.bias)
        group.reads["bn0"] = Given(rows, rows.shape, exact=Rows(exact, (found.bias,)))
    work.begin(group)


def product_backward(work: Selection, op: Cotangent) -> None:
    """The gradient of data begins a group; those of weights and bias are alone."""
    found = product_of(op.of)
    if isinstance(found, str) or (weight := found.weight) is None:
        return  # the product itself was refused
    g = found.geometry
    group = Group(found.opcode, Stage.BACKWARD, op, geometry=g, origin=[op])
    group.reads["src0"] = work.given(op.seed)
    if source(op.xs[op.operand]) != found.w if isinstance(op.of, Mul) else op.operand == 0:
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


_SWAP = (1, 0)


def turned(op: Op) -> Op | None:
    """What an op becomes, its operands having been rewritten already; None: it stays."""
    match op:
        case MatMul(a=a, b=Transpose(x=w, perm=perm)) if perm == _SWAP and len(a.shape) == 2:
            return Gemm(a, w, trans_b=True)
        case Cotangent(of=Gemm() as of, seed=seed, operand=operand, name="mat_mul"):
            found = Cotangent.make(of, seed, operand)
            return found if operand == 0 else Transpose(found, _SWAP)
        case Cotangent(of=Transpose(perm=perm), seed=Transpose(x=x, perm=again)) if perm == again == _SWAP:
            return x
        case Transpose(x=Transpose(x=x, perm=perm), perm=again) if [perm[k] for k in again] == sorted(perm):
            return x
        case _:
            return None
