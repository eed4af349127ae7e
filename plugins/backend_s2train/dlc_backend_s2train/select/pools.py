"""Pools and their gradients as instructions.

The unit behind the array takes the greatest of windows of 2 × 2 or 4 × 4 that lie side by side and fill the map. Every
other pool that is square (overlapping or padded windows, averages) is a POOL instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.graph import Cotangent, Op
from dlc.ops.pool import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from dlc.ops.reduce import ReduceMean
from dlc_backend_s2train.codes import Element, Flag, Role, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry
from dlc_backend_s2train.select.memory import pointers
from dlc_backend_s2train.select.selection import Backward, Forward, Given, Group, Made, Selection

_POINTED = 4
"""Side of the largest window whose places a pointer of four bits tells apart."""


@dataclass(frozen=True)
class Pool:
    """A pool over square windows."""

    geometry: Geometry
    greatest: bool
    """Whether it takes the greatest element, not the mean."""

    @property
    def unit(self) -> Flag | None:
        """The flag of the unit's own pool, where it is one."""
        g, (window, stride, pad) = self.geometry, self.geometry.pool
        fills = (g.ho * window, g.wo * window) == (g.hi, g.wi)
        if not self.greatest or stride != window or pad or not fills:
            return None
        return {2: Flag.POOL_2, 4: Flag.POOL_4}.get(window)

    @property
    def pointer(self) -> Element:
        """What the place of a maximum is stored as."""
        return Element.PTR2 if self.unit is Flag.POOL_2 else Element.PTR4


def pool_of(op: Op) -> Pool | str:
    """The pool that an op is; or why it is none."""
    if isinstance(op, ReduceMean) and (len(op.x.shape), sorted(op.axes)) != (4, [2, 3]):
        return f"a mean of {op.x.type} over the dimensions {list(op.axes)} is not a pool over rows and columns"
    if len(op.operands[0].shape) != 4:
        return f"a pool of {op.operands[0].type}: the accelerator pools [n, channels, rows, columns]"
    match op:
        case MaxPool() | AveragePool():
            return _window(op)
        case GlobalMaxPool() | GlobalAveragePool() | ReduceMean():
            return _whole(op, isinstance(op, GlobalMaxPool))
        case _:
            return f"{op.text_name} is not a pool over rows and columns"


def _window(op: MaxPool | AveragePool) -> Pool | str:
    k, *rest = op.window
    stride, *strides = op.stride or (1, 1)
    top, left, *ends = op.pads or (0, 0, 0, 0)
    message = f"window {list(op.window)}, stride {list(op.stride)}, pads {list(op.pads)}"
    if rest != [k] or strides != [stride] or top != left or any(d != 1 for d in op.dilation):
        return f"{message}, dilation {list(op.dilation)}: windows, strides and first pads of a pool are square"
    if isinstance(op, AveragePool) and op.count_pad and any((top, left, *ends)):
        return f"{message}: a mean is over the data, not over its padding (count_include_pad)"
    rows, columns = op.x.shape[2:]
    if k > (most := min(rows, columns) + 2 * top):
        if max(rows, columns) + top > most:
            return f"{message}: a window of {rows} x {columns} elements is not square"
        # Behind the map a window holds nothing: a smaller one that covers the map takes the same elements.
        k = most
    if isinstance(op, MaxPool) and k > _POINTED:
        return f"{message}: a pointer of four bits tells apart the places of a window of {_POINTED} x {_POINTED}"
    return Pool(_geometry(op, (k, stride, top)), isinstance(op, MaxPool))


def _whole(op: Op, greatest: bool) -> Pool | str:
    _, _, rows, columns = op.operands[0].shape
    # A square that covers the map: its first window begins as many rows or columns before it as it has fewer.
    pad = abs(rows - columns)
    window = max(rows, columns) + pad
    if greatest and window > _POINTED:
        return f"the greatest of {rows} x {columns}: a pointer of four bits tells apart {_POINTED} x {_POINTED} places"
    return Pool(_geometry(op, (window, window, pad)), greatest)


def _geometry(op: Op, pool: tuple[int, int, int]) -> Geometry:
    n, c, hi, wi = op.operands[0].shape
    ho, wo = (*op.shape[2:], 1, 1)[:2]
    window, stride, pad = pool
    # One window has no next one.
    return Geometry(n, c, c, hi, wi, ho, wo, pool=(window, window if (ho, wo) == (1, 1) else stride, pad))


def pool_forward(work: Selection, op: Op) -> None:
    """A pool: absorbed by what gives its data, or by itself."""
    (x,), found = op.operands, pool_of(op)
    if isinstance(found, str):
        work.refuse(op, found)
        return
    g = found.geometry
    if found.unit is not None:
        group = work.stage(op, x, Forward.POOL, found.unit)
    else:
        group = Group(Opcode.POOL, Stage.FORWARD, op, geometry=g, origin=[op])
        group.reads["src0"] = work.given(x)
        group.writes["dst0"] = Made(op.digest, Element.FP16, (g.n, g.co, g.ho, g.wo), Role.ACTIVATION)
        work.groups.append(group)
    # Without pointers a POOL instruction is a mean.
    if found.greatest and (found.unit is None or work.kept(pointers(op))):
        group.flags |= Flag.POINTER_WRITE
        group.writes["ptr"] = Made(pointers(op), found.pointer, (g.n, g.co, g.ho, g.wo), Role.POINTER)


def pool_backward(work: Selection, op: Cotangent) -> None:
    """The gradient of a pool."""
    found = pool_of(op.of)
    if isinstance(found, str):
        work.refuse(op, found)
        return
    g = found.geometry
    if found.unit is not None:
        group = work.stage(op, op.seed, Backward.UNPOOL, Flag.POINTER_READ | found.unit)
    else:
        flags = Flag.POINTER_READ if found.greatest else Flag(0)
        group = Group(Opcode.POOL, Stage.BACKWARD, op, geometry=g, flags=flags, origin=[op])
        group.reads["src0"] = work.given(op.seed)
        work.groups.append(group)
    if found.greatest:
        group.reads["ptr"] = Given(pointers(op.of), (g.n, g.co, g.ho, g.wo))
