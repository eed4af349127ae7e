"""A weight that is added to every channel, as exporters write the bias of a matrix product: the shift of a norm.

y = x·w + b, db   →   the unit's norm with 0, 1, 1, b behind the product; db = Σ dy
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.graph import Cotangent, Input, Op
from dlc.ops.elementwise import Add
from dlc_backend_s2train.codes import Element, Flag, Opcode, Role, Stage
from dlc_backend_s2train.program import Geometry
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.group import Forward, Given, Group, Made
from dlc_backend_s2train.select.selection import Selection


@dataclass(frozen=True)
class Bias:
    """x + b."""

    x: Op
    b: Input
    held: Op
    """[4, C], of which b is the shift."""


def bias_of(op: Op) -> Bias | None:
    """The addition of a weight that an op is, if that has a number for each channel."""
    if not isinstance(op, Add) or len(op.shape) < 2:
        return None
    channels = op.shape[1]
    for x, b in ((op.a, op.b), (op.b, op.a)):
        over = (1,) * (len(op.shape) - len(b.shape)) + b.shape
        each = all(extent == 1 or axis == 1 for axis, extent in enumerate(over)) and b.type.size == channels
        if isinstance(b, Input) and b.role == "weight" and x.shape == op.shape and each:
            values = parameters.known_value(b)
            if values is not None:
                return Bias(x, b, parameters.held(b, parameters.bias_rows(values, channels)))
    return None


def forward(work: Selection, op: Op, found: Bias) -> None:
    """Add the bias behind a product, or by itself."""
    work.stage(op, found.x, Forward.NORM, Flag.BN_FORWARD).reads["bn0"] = Given(found.held, found.held.shape)


def backward(work: Selection, op: Cotangent) -> None:
    """The gradient of the bias: sums of what comes back. That of the sum itself is a view."""
    n, channels, *rest = op.seed.shape
    rows, columns = (*rest, 1, 1)[:2]
    product = Opcode.CONV if rest else Opcode.LINEAR
    shape = Geometry(n, 1, channels, rows, columns, rows, columns)
    group = Group(product, Stage.WEIGHT_GRADIENT, op, geometry=shape, origin=[op])
    group.reads["src0"] = work.given(op.seed)
    group.writes["dst0"] = Made(op.digest, Element.FP16, (channels,), Role.WEIGHT_GRADIENT)
    work.groups.append(group)
