"""Random kernels with open sizes: a few ops on tensors whose rows or columns end at sizes of a call."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from dlc.base.extents import Extent, Undecided, bounds, symbol
from dlc.base.types import DType, Type, i64
from dlc.graph import Input, Op
from dlc.kernel.kernel import Kernel
from dlc.ops.index import Gather
from dlc.ops.linear import Conv, MatMul
from dlc.ops.normalize import LayerNorm, Softmax
from dlc.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceSum
from dlc.ops.shape import Concat, Expand, Pad, Reshape, Slice, Transpose
from tests.kernel.forms import Maker, kernels


class OpenMaker(Maker):
    """A model whose inputs may have open dimensions."""

    def __init__(self, rng: random.Random) -> None:
        """Draw from `rng`."""
        super().__init__(rng)
        self.sizes = [self._drawn(name) for name in ("n", "m")]

    def _drawn(self, name: str) -> Extent:
        low, more, unit = self.rng.choice(
            ((0, 9, 1), (1, 3, 1), (1, 17, 1), (1, 30, 1), (2, 9, 1), (7, 1, 1), (1, 5, 2), (1, 2, 8), (0, 3, 4))
        )
        return symbol(name, low, low + more, unit)

    def input(self, *shape: Extent, dtype: DType | None = None) -> Input:
        """A new input."""
        self.inputs.append(Input(f"x{len(self.inputs)}", Type(dtype or self.dtype, shape)))
        return self.inputs[-1]

    @property
    def open(self) -> Extent:
        """An open size."""
        return self.rng.choice(self.sizes)


def rows(m: OpenMaker) -> Op:
    """Products of an open number of rows."""
    inner, columns = m.size(1, 8, 33, 64), m.size(1, 8, 16, 48)
    y: Op = MatMul(m.input(m.open, inner), m.weight(inner, columns))
    return Softmax(y) if m.rng.random() < 0.2 else m.pointwise(y)


def pairs(m: OpenMaker) -> Op:
    """Products in which each row meets each of an open number of others, as in attention."""
    inner = m.size(1, 4, 8)
    most, others = m.open, m.open
    scores: Op = MatMul(m.input(most, inner), Transpose(m.input(others, inner), (1, 0)))
    if m.rng.random() < 0.3:
        return m.pointwise(scores)
    return MatMul(Softmax(scores), m.input(others, m.size(1, 4, 8)))


def joined(m: OpenMaker) -> Op:
    """Concatenations, pads, slices and transpositions along open axes, one behind another."""
    columns = m.size(1, 3, 4, 8)
    x: Op = m.input(m.open, columns)
    for _ in range(m.rng.randint(1, 3)):
        axis = m.rng.randrange(2)
        match m.rng.randrange(6):
            case 0 | 1:
                shape = tuple(m.rng.choice((*m.sizes, 1, 3)) if d == axis else n for d, n in enumerate(x.shape))
                parts = [x, m.input(*shape)]
                x = Concat(tuple(parts if m.rng.random() < 0.5 else parts[::-1]), axis)
            case 2:
                x = Pad(x, tuple(m.rng.randint(0, 2) for _ in range(4)))
            case 3:
                first = min(m.rng.randint(0, 1), bounds(x.shape[axis])[0])
                shape = tuple(n - first if d == axis else n for d, n in enumerate(x.shape))
                x = Slice(x, tuple(first * (d == axis) for d in range(2)), shape, (1, 1))
            case 4:
                x = Transpose(x, (1, 0))
            case _:
                x = m.pointwise(x)
    return m.pointwise(x)


def along(m: OpenMaker) -> Op:
    """Sums, maxima, running sums and softmax along an open axis or beside one."""
    shape: list[Extent] = [m.size(1, 2, 5), m.open]
    m.rng.shuffle(shape)
    shape += [m.size(1, 4, 17)] * m.rng.randint(0, 1)
    x: Op = m.input(*shape)
    x = m.pointwise(x) if m.rng.random() < 0.4 else x
    axis = m.rng.randrange(len(shape))
    match m.rng.randrange(4):
        case 0:
            return Softmax(x, axis)
        case 1:
            return m.pointwise(CumSum(x, axis, m.rng.random() < 0.5, m.rng.random() < 0.5))
        case 2 if isinstance(shape[-1], int):
            return m.pointwise(LayerNorm(x, m.weight(shape[-1]), m.weight(shape[-1])))
        case _:
            return m.pointwise(m.rng.choice((ReduceSum, ReduceMean, ReduceMax))(x, (axis,), m.rng.random() < 0.5))


def windows(m: OpenMaker) -> Op:
    """Convolutions along an open axis."""
    inner, outer, width = m.size(1, 3, 8), m.size(1, 4, 16), m.rng.choice((1, 2, 3))
    x = m.input(1, inner, m.open + width)
    pads = (m.rng.randint(0, width - 1), m.rng.randint(0, width - 1))
    return m.pointwise(Conv(x, m.weight(outer, inner, width), pads=pads, stride=(1,)))


def gathered(m: OpenMaker) -> Op:
    """An open number of rows, chosen by subscripts or repeated."""
    rows, columns = m.size(3, 8, 17), m.size(1, 5, 16)
    if m.rng.random() < 0.3:
        return m.pointwise(Expand(Reshape(m.input(columns), (1, columns)), (m.open, columns)))
    return m.pointwise(Gather(m.input(rows, columns), m.input(m.open, dtype=i64), 0))


OPEN_FORMS: Mapping[str, Callable[[OpenMaker], Op]] = {
    f"open {f.__name__}": f for f in (rows, rows, pairs, joined, joined, along, windows, gathered)
}


def drawn_open_kernels(seed: int) -> tuple[str, Sequence[Kernel]]:
    """As `drawn_kernels`: of a model with open sizes, or none of one that has a size which nobody can tell."""
    rng = random.Random(f"open {seed}")
    form = rng.choice(list(OPEN_FORMS))
    maker = OpenMaker(rng)
    try:
        output = OPEN_FORMS[form](maker)
    except Undecided:
        return form, ()
    return kernels(rng, form, maker.inputs, output, gradients=0.0)  # they need known sizes
