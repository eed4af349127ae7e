"""Random kernels of the forms that models have: a few ops, perhaps their gradients, lowered, laid out and fused.

Everything is drawn from one seed. Sizes are such that row blocks, column panels and their ends all occur on machines
with small caches.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dlc.base.report import Report
from dlc.base.types import DType, Type, f32, f64, i32, i64
from dlc.graph import Constant, Graph, Input, Op, Splat, Tensor
from dlc.graph.structure import Call
from dlc.graph.walk import toposort
from dlc.kernel.kernel import Kernel
from dlc.ops.elementwise import Add, Clip, Exp, Gelu, Maximum, Mul, Neg, Relu, Sigmoid, Sub, Tanh, Where
from dlc.ops.index import Gather, GatherElements, OneHot, ScatterElements, ScatterNd, Trilu
from dlc.ops.linear import Conv, ConvTranspose, Einsum, Gemm, MatMul
from dlc.ops.normalize import BatchNormTraining, GroupNorm, LayerNorm, Lrn, RmsNorm, Softmax
from dlc.ops.order import FirstOf, Placed, Rank
from dlc.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from dlc.ops.reduce import ArgMax, CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from dlc.ops.shape import Concat, DepthToSpace, Expand, Pad, Reshape, Slice, Tile, Transpose
from dlc.passes.fuse import Fuse
from dlc.passes.gradient import Gradient
from dlc.passes.layout import Layout
from dlc.passes.lower import Lower

LARGEST = 400_000
"""Points of all nests of a kernel."""
MOST_ELEMENTS = 40_000
"""Elements of any tensor."""


class Maker:
    """A model under construction: every operand that is asked for becomes an input or a constant."""

    def __init__(self, rng: random.Random) -> None:
        """Draw from `rng`."""
        self.rng = rng
        self.dtype: DType = rng.choice((f32, f32, f32, f32, f64))
        self.inputs: list[Input] = []

    def input(self, *shape: int, dtype: DType | None = None) -> Input:
        """A new input."""
        self.inputs.append(Input(f"x{len(self.inputs)}", Type(dtype or self.dtype, shape)))
        return self.inputs[-1]

    def weight(self, *shape: int) -> Op:
        """A constant, an input, or rarely one value everywhere."""
        pick = self.rng.random()
        if pick < 0.05:
            return Splat(self.rng.choice((0.5, 1.0, -2.0)), Type(self.dtype, shape))
        if pick < 0.45:
            return self.input(*shape)
        values = np.random.default_rng(self.rng.randrange(1 << 30)).standard_normal(shape)
        return Constant(Tensor.of(values.astype(self.dtype.numpy)))

    def size(self, *choices: int) -> int:
        """One of these sizes; sometimes one beside it."""
        return max(1, self.rng.choice(choices) + self.rng.choice((0, 0, 0, -1, 1)))

    def pointwise(self, x: Op) -> Op:
        """Up to three element-wise ops on a value, other operands of its shape, its last axis, or of one value."""
        for _ in range(self.rng.randint(0, 3)):
            match self.rng.randrange(9):
                case 0:
                    x = self.rng.choice((Relu, Neg, Tanh, Sigmoid, Gelu, Exp))(x)
                case 1:
                    x = Clip(x, -1.0, 2.0)
                case 2 | 3 | 4:
                    x = self.rng.choice((Add, Mul, Sub, Maximum))(x, self.input(*x.shape))
                case 5 | 6:
                    x = self.rng.choice((Add, Mul))(x, self.weight(*x.shape[-1:]))
                case 7:
                    x = Mul(x, Splat(0.25, Type(x.dtype, ())))
                case _:
                    x = self.rng.choice((Relu, Gelu))(x)
        return x


def products(m: Maker) -> Op:
    """Matrix products, batched and transposed, with what precedes and follows them."""
    rows, inner = m.size(1, 3, 8, 17, 30, 33, 45, 64), m.size(1, 8, 33, 64, 130)
    columns = m.size(1, 8, 16, 32, 48, 70, 160)
    batch = [m.rng.randint(1, 3) for _ in range(m.rng.choice((0, 0, 1, 2)))]
    if not batch and m.rng.random() < 0.4:
        turned_a, turned_b = m.rng.random() < 0.5, m.rng.random() < 0.5
        a = m.input(*((inner, rows) if turned_a else (rows, inner)))
        b = m.weight(*((columns, inner) if turned_b else (inner, columns)))
        c = m.weight(columns) if m.rng.random() < 0.5 else None
        return m.pointwise(Gemm(a, b, c, trans_a=turned_a, trans_b=turned_b))
    a: Op = m.input(*batch, rows, inner)
    if m.rng.random() < 0.3:
        a = m.pointwise(a)
    other = batch if m.rng.random() < 0.5 else []
    b = m.weight(*other, inner, columns)
    if m.rng.random() < 0.3:
        turned = m.input(*other, columns, inner)
        rank = len(turned.shape)
        b = Transpose(turned, (*range(rank - 2), rank - 1, rank - 2))
    y: Op = MatMul(a, b)
    if m.rng.random() < 0.2:
        y = Softmax(y)
    return m.pointwise(y)


def sums_of_products(m: Maker) -> Op:
    """Products with several axes of each kind."""
    equation = m.rng.choice(("abc,cd->abd", "abc,bcd->ad", "abc,adc->abd", "abcd,cdef->abef", "ab,ac->bc", "abc,ab->c"))
    sizes = {x: m.size(2, 5, 9, 16, 24) for x in "abcdef"}
    left, right = equation.partition("->")[0].split(",")
    xs = (m.input(*(sizes[x] for x in left)), m.weight(*(sizes[x] for x in right)))
    return m.pointwise(Einsum(xs, equation))


def convolutions(m: Maker) -> Op:
    """Convolutions of one or two dimensions: strided, dilated, padded, grouped, depthwise, transposed."""
    rank = m.rng.choice((1, 2, 2, 2))
    group = m.rng.choice((1, 1, 1, 2, 3))
    inner, outer = m.size(1, 3, 4, 8, 16), m.size(1, 4, 8, 16, 20, 33)
    if m.rng.random() < 0.25:
        group, inner, outer = m.size(3, 8, 16, 20), 1, m.rng.choice((1, 1, 2))
    kernel = [m.rng.choice((1, 2, 3, 3, 5)) for _ in range(rank)]
    stride = tuple(m.rng.choice((1, 1, 2, 3)) for _ in range(rank))
    dilation = tuple(m.rng.choice((1, 1, 2)) for _ in range(rank))
    space = [m.size(5, 7, 9, 14) + (k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    pads = tuple(m.rng.randint(0, (k - 1) * d) for _ in range(2) for k, d in zip(kernel, dilation, strict=True))
    pads = pads if m.rng.random() < 0.6 else (0,) * (2 * rank)
    x = m.input(m.rng.choice((1, 1, 2)), group * inner, *space)
    bias = m.weight(group * outer) if m.rng.random() < 0.6 else None
    if m.rng.random() < 0.2:
        weights = m.weight(group * inner, outer, *kernel)
        y: Op = ConvTranspose(x, weights, bias, stride=stride, dilation=dilation, group=group)
    else:
        weights = m.weight(group * outer, inner, *kernel)
        y = Conv(x, weights, bias, stride=stride, pads=pads, dilation=dilation, group=group)
    y = m.rng.choice((Relu, Relu, Sigmoid))(y) if m.rng.random() < 0.5 else m.pointwise(y)
    if m.rng.random() < 0.2 and rank == 2 and min(y.shape[2:]) >= 2:
        y = m.rng.choice((MaxPool, AveragePool))(y, (2, 2), (2, 2))
    return y


def pooling(m: Maker) -> Op:
    """Windows of maxima and averages."""
    window = tuple(m.rng.choice((1, 2, 3)) for _ in range(2))
    x = m.input(m.rng.choice((1, 2)), m.size(1, 3, 8, 16, 33), *(m.size(4, 9, 13) + w for w in window))
    if m.rng.random() < 0.2:
        return m.pointwise(GlobalAveragePool(x))
    stride = tuple(m.rng.choice((1, 2)) for _ in window)
    pads = tuple(m.rng.randint(0, w - 1) for _ in range(2) for w in window)
    return m.pointwise(m.rng.choice((MaxPool, AveragePool))(x, window, stride, pads))


def reductions(m: Maker) -> Op:
    """Sums, maxima and what is made of them: softmax and normalisations."""
    shape = [m.size(1, 2, 5, 17, 40) for _ in range(m.rng.randint(1, 3))]
    x: Op = m.input(*shape)
    if m.rng.random() < 0.4:
        x = m.pointwise(x)
    axes = tuple(sorted(m.rng.sample(range(len(shape)), m.rng.randint(1, len(shape)))))
    match m.rng.randrange(6):
        case 0:
            return Softmax(x, m.rng.randrange(len(shape)))
        case 1:
            return m.pointwise(LayerNorm(x, m.weight(shape[-1]), m.weight(shape[-1])))
        case 2:
            return RmsNorm(x, m.weight(shape[-1]))
        case 3:
            return m.pointwise(CumSum(x, m.rng.randrange(len(shape)), m.rng.random() < 0.5, m.rng.random() < 0.5))
        case _:
            kind = m.rng.choice((ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd))
            return m.pointwise(kind(x, axes, m.rng.random() < 0.5))


def normalisations(m: Maker) -> Op:
    """Normalisations over channels and batches."""
    groups, each = m.rng.randint(1, 3), m.rng.randint(1, 5)
    channels = groups * each
    x = m.input(m.rng.randint(1, 3), channels, m.size(3, 8), m.size(4, 9))
    match m.rng.randrange(3):
        case 0:
            return m.pointwise(GroupNorm(x, m.weight(channels), m.weight(channels), groups))
        case 1:
            return Lrn(x, m.rng.choice((1, 3, 5)))
        case _:
            return _batch_norm(m, x)


def _batch_norm(m: Maker, x: Op) -> Op:
    from dlc.graph import Item

    found = BatchNormTraining(x, m.weight(x.shape[1]), m.weight(x.shape[1]))
    return m.pointwise(Item(found, 0) if len(found.types) > 1 else found)


def elementwise(m: Maker) -> Op:
    """Chains over one space, with broadcasting and choices."""
    shape = [m.size(1, 3, 8, 17, 40) for _ in range(m.rng.randint(1, 3))]
    x = m.pointwise(m.pointwise(m.input(*shape)))
    if m.rng.random() < 0.3:
        x = Where(m.input(*shape, dtype=_bool()), x, m.input(*shape[-1:]))
    return x


def _bool() -> DType:
    from dlc.base.types import bool_

    return bool_


def movements(m: Maker) -> Op:
    """Transposes, slices, pads, concatenations and the like, one behind another."""
    x: Op = m.input(*(m.size(1, 2, 4, 9, 16) for _ in range(m.rng.choice((2, 3, 4)))))
    for _ in range(m.rng.randint(1, 3)):
        rank = len(x.shape)
        axis = m.rng.randrange(rank)
        match m.rng.randrange(9):
            case 0 | 1:
                x = Transpose(x, tuple(m.rng.sample(range(rank), rank)))
            case 2:
                starts = tuple(m.rng.randrange(d) for d in x.shape)
                sizes = tuple(m.rng.randint(1, d - s) for s, d in zip(starts, x.shape, strict=True))
                x = Slice(x, starts, sizes, (1,) * rank)
            case 3:
                steps = tuple(m.rng.choice((1, 2)) for _ in x.shape)
                x = Slice(x, (0,) * rank, tuple(-(-d // s) for d, s in zip(x.shape, steps, strict=True)), steps)
            case 4:
                other = m.input(*(m.rng.randint(1, 5) if d == axis else n for d, n in enumerate(x.shape)))
                x = Concat((x, other), axis)
            case 5:
                mode = m.rng.choice(("constant", "edge", "wrap"))
                x = Pad(x, tuple(m.rng.randint(0, min(2, d)) for _ in range(2) for d in x.shape), mode=mode)
            case 6:
                x = Tile(x, tuple(m.rng.choice((1, 1, 2)) for _ in x.shape))
            case 7:
                x = Reshape(x, (math.prod(x.shape[: axis + 1]), math.prod(x.shape[axis + 1 :])))
            case _:
                x = Expand(Reshape(x, (1, *x.shape)), (2, *x.shape))
    if m.rng.random() < 0.2:
        blocks = m.input(1, 4 * m.rng.randint(1, 3), m.size(2, 4), m.size(3, 5))
        return DepthToSpace(blocks, 2, m.rng.choice(("DCR", "CRD")))
    return m.pointwise(x)


def lookups(m: Maker) -> Op:
    """Subscripts that are data: gathers, scatters, ranks."""
    rows, columns, count = m.size(3, 8, 17, 40), m.size(1, 5, 16, 33), m.size(1, 4, 9)
    x, wide = m.input(rows, columns), m.rng.choice((i32, i64))
    match m.rng.randrange(8):
        case 0 | 1:
            axis = m.rng.randrange(2)
            return m.pointwise(Gather(x, m.input(count, dtype=wide), axis))
        case 2:
            return m.pointwise(GatherElements(x, m.input(rows, min(count, columns), dtype=wide), 1))
        case 3:
            updates = m.input(rows, min(count, columns))
            return ScatterElements(x, m.input(*updates.shape, dtype=wide), updates, 1, reduce="add")
        case 4:
            return ScatterNd(x, m.input(count, 1, dtype=wide), m.input(count, columns), reduce="add")
        case 5:
            return OneHot(m.input(count, dtype=wide), m.input(2), depth=columns)
        case 6:
            axis = m.rng.randrange(2)
            wanted = m.rng.randint(1, x.shape[axis])
            first = (FirstOf(x, axis, wanted), Placed(Rank(x, axis), axis, wanted), Rank(x, axis), ArgMax(x, axis))
            return m.rng.choice(first)
        case _:
            return Trilu(x, m.rng.random() < 0.5, m.rng.randint(-2, 2))


FORMS: Mapping[str, Callable[[Maker], Op]] = {
    f.__name__: f
    for f in (
        products,
        sums_of_products,
        convolutions,
        pooling,
        reductions,
        normalisations,
        elementwise,
        movements,
        lookups,
    )
}
_OFTEN = ("products", "products", "products", "convolutions", "convolutions", "convolutions", "sums_of_products")


def drawn_kernels(seed: int) -> tuple[str, Sequence[Kernel]]:
    """The form of a seed, and the distinct kernels of a model of this form (none when it is too large)."""
    rng = random.Random(seed)
    form = rng.choice((*FORMS, *_OFTEN))
    maker = Maker(rng)
    return kernels(rng, form, maker.inputs, FORMS[form](maker), 0.5)


def kernels(
    rng: random.Random, form: str, inputs: Sequence[Input], output: Op, gradients: float
) -> tuple[str, Sequence[Kernel]]:
    """The form, and the distinct kernels of a model or of its gradients, laid out and fused or not."""
    if any(t.capacity > MOST_ELEMENTS for op in toposort((output,)) for t in op.types):
        return form, ()
    read = {op.digest for op in toposort((output,))}
    graph = Graph(tuple(i for i in inputs if i.digest in read), (output,), ("y",))
    report = Report()
    floats = [i for i in graph.inputs if i.dtype.is_float]
    if output.dtype.is_float and floats and rng.random() < gradients:
        wanted = rng.sample(floats, rng.randint(1, len(floats)))
        graph = Gradient(wrt=tuple(i.name for i in wanted)).run(graph, report)
        form = f"gradients of {form}"
    graph = Lower().run(graph, report)
    if rng.random() < 0.6:
        graph = Layout(panel=rng.choice((16, 16, 8, 32))).run(graph, report)
    if rng.random() < 0.6:
        graph = Fuse().run(graph, report)
    calls = {op.body.digest: op.body for op in toposort(graph.outputs) if isinstance(op, Call)}
    return form, [k for k in calls.values() if sum(n.points for n in k.nests) <= LARGEST]
