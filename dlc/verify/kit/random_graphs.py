"""Random small models: operands are drawn from what was made before, so values are shared, dropped and returned twice.

Arithmetic is in f64 unless a target asks for another type: passes may change rounding, and in f64 that is far below
what comparisons allow. Functions with steps (floor, comparisons) read inputs only, where rounding has not reached them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from dlc.base.types import Array, DType, Type, bool_, f64, i64
from dlc.graph import Constant, Graph, Input, Item, Op, Splat, Tensor, toposort
from dlc.ops.elementwise import (
    Abs,
    Add,
    Cast,
    Clip,
    Div,
    Exp,
    Floor,
    Gelu,
    Less,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Relu,
    Sigmoid,
    Sqrt,
    Sub,
    Tanh,
    Where,
)
from dlc.ops.index import Gather
from dlc.ops.linear import Conv, ConvTranspose, Gemm, MatMul
from dlc.ops.normalize import BatchNorm, LayerNorm, Softmax
from dlc.ops.pointwise import broadcast
from dlc.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from dlc.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceSum
from dlc.ops.shape import Concat, Expand, Pad, Reshape, Slice, Transpose

LARGEST = 600
"""Elements of the largest value: the interpreter visits every point of every loop."""


@dataclass
class Maker:
    """A model under construction."""

    random: Random
    values: list[Op] = field(default_factory=list[Op])
    dtype: DType = f64
    tied: list[Op] = field(default_factory=list[Op])
    """Weights that further ops may have as well."""

    def any(self) -> Op:
        """A value made before; recent ones more often, so that chains grow."""
        return self.random.choice(self.values[-4:] if self.random.random() < 0.7 else self.values)

    def source(self) -> Op:
        """An input."""
        return self.random.choice([v for v in self.values if isinstance(v, Input)])

    def weights(self, *shape: int) -> Op:
        """A constant, at times one value everywhere."""
        if self.random.random() < 0.2:
            return Splat(self.random.choice((0.5, 1.0, 2.0)), Type(self.dtype, shape))
        values = np.random.default_rng(self.random.randrange(1000)).uniform(0.5, 1.5, shape)
        return Constant(Tensor.of(values, self.dtype))

    def matching(self, shape: tuple[int, ...]) -> Op:
        """Something that broadcasts with a shape: a value, or a constant with some dimensions of 1."""
        fitting = [v for v in self.values if _broadcasts(v.shape, shape)]
        if fitting and self.random.random() < 0.6:
            return self.random.choice(fitting)
        kept = shape[self.random.randint(0, len(shape)) :]
        return self.weights(*(e if self.random.random() < 0.7 else 1 for e in kept))

    def axis(self, x: Op) -> int:
        """A dimension of a value."""
        return self.random.randrange(len(x.shape))

    def image(self) -> Op:
        """A value with a batch, channels and one or two spatial dimensions."""
        found = [v for v in self.values if len(v.shape) in (3, 4)]
        if found:
            return self.random.choice(found)
        x = self.any()
        return Reshape(x, to=(1, 1, x.type.size))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return math.prod(broadcast(a, b)) <= LARGEST
    except ValueError:
        return False


def unary(m: Maker) -> Op:
    """A function of one value."""
    x = m.any()
    bounded = Clip(x, low=-3.0, high=3.0)
    return m.random.choice((Relu(x), Neg(x), Tanh(x), Sigmoid(x), Gelu(x), Exp(bounded), Sqrt(Abs(x)), bounded))


def binary(m: Maker) -> Op:
    """A function of two values that broadcast."""
    a = m.any()
    b = m.matching(a.shape)
    if m.random.random() < 0.3:
        a, b = b, a
    kind = m.random.choice((Add, Sub, Mul, Minimum, Maximum, Div))
    return Div(a, Add(Abs(b), Splat(1.0, Type(m.dtype, ())))) if kind is Div else kind(a, b)


def stepped(m: Maker) -> Op:
    """A function with steps, of an input."""
    x = m.source()
    whole = Cast(Cast(Floor(x), i64), m.dtype)
    return m.random.choice((whole, Where(Less(x, m.weights()), x, Tanh(x)), Cast(Less(x, m.weights(1)), m.dtype)))


def reduction(m: Maker) -> Op:
    """A sum, mean or maximum over some dimensions."""
    x = m.any()
    axes = tuple(sorted(m.random.sample(range(len(x.shape)), m.random.randint(0, len(x.shape)))))
    return m.random.choice((ReduceSum, ReduceMean, ReduceMax))(x, axes=axes, keep=m.random.random() < 0.5)


def along(m: Maker) -> Op:
    """Softmax or cumulative sums."""
    x = m.any()
    return m.random.choice((Softmax(x, axis=m.axis(x)), CumSum(x, axis=m.axis(x), reverse=m.random.random() < 0.5)))


def norm(m: Maker) -> Op:
    """A normalisation."""
    x = m.any()
    if len(x.shape) > 1 and m.random.random() < 0.5:
        scale, bias, mean, var = (m.weights(x.shape[1]) for _ in range(4))
        return BatchNorm(x, scale, bias, mean, var)
    axis = m.axis(x)
    return LayerNorm(x, m.weights(*x.shape[axis:]), m.weights(*x.shape[axis:]), axis=axis)


def product(m: Maker) -> Op:
    """A matrix product."""
    x = m.any()
    n = m.random.randint(1, 4)
    if len(x.shape) == 2 and m.random.random() < 0.6:
        bias = m.random.choice((None, m.weights(n), m.weights(1, n), m.weights()))
        turned = m.random.random() < 0.5
        w = m.weights(n, x.shape[1]) if turned else m.weights(x.shape[1], n)
        return Gemm(x, w, bias, alpha=m.random.choice((1.0, 0.5)), trans_b=turned)
    others = [v for v in m.values if len(v.shape) == 2 and v.shape[0] == x.shape[-1]]
    return MatMul(x, m.random.choice(others) if others else m.weights(x.shape[-1], n))


def convolution(m: Maker) -> Op:
    """A convolution, at times transposed or in groups."""
    x = m.image()
    spatial, channels = len(x.shape) - 2, x.shape[1]
    group = channels if m.random.random() < 0.3 else 1
    out = group * m.random.randint(1, 3)
    window = tuple(min(m.random.randint(1, 3), e) for e in x.shape[2:])
    bias = m.weights(out) if m.random.random() < 0.5 else None
    if m.random.random() < 0.2:
        return ConvTranspose(x, m.weights(channels, 2, *window), m.weights(2), stride=(2,) * spatial)
    pads = tuple(m.random.randint(0, k - 1) for k in (*window, *window))
    w = m.weights(out, channels // group, *window)
    return Conv(x, w, bias, stride=(m.random.randint(1, 2),) * spatial, pads=pads, group=group)


def pool(m: Maker) -> Op:
    """A pooling."""
    x = m.image()
    window = tuple(min(2, e) for e in x.shape[2:])
    if m.random.random() < 0.2:
        return GlobalAveragePool(x)
    return m.random.choice((MaxPool, AveragePool))(x, window=window, stride=(m.random.randint(1, 2),) * len(window))


def reshape(m: Maker) -> Op:
    """Another shape with as many elements."""
    x = m.any()
    sizes = [*x.shape]
    if len(sizes) > 1 and m.random.random() < 0.5:
        k = m.random.randrange(len(sizes) - 1)
        sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
    else:
        sizes.insert(m.random.randint(0, len(sizes)), 1)
    return Reshape(x, to=tuple(sizes)) if len(sizes) < 5 else Reshape(x, to=(x.type.size,))


def transpose(m: Maker) -> Op:
    """Dimensions in another order."""
    x = m.any()
    return Transpose(x, perm=tuple(m.random.sample(range(len(x.shape)), len(x.shape))))


def concat(m: Maker) -> Op:
    """Values one after another."""
    x = m.any()
    axis = m.axis(x)
    rest = [v for v in m.values if _beside(v.shape, x.shape, axis)]
    return Concat((x, *(m.random.choice(rest) for _ in range(m.random.randint(0, 2)))), axis=axis)


def _beside(a: tuple[int, ...], b: tuple[int, ...], axis: int) -> bool:
    return len(a) == len(b) and all(m == n for d, (m, n) in enumerate(zip(a, b, strict=True)) if d != axis)


def cut(m: Maker) -> Op:
    """A slice."""
    x = m.any()
    starts, sizes, steps = list[int](), list[int](), list[int]()
    for extent in x.shape:
        step = m.random.choice((1, 1, 2, -1))
        start = m.random.randrange(extent)
        most = (extent - 1 - start) // step + 1 if step > 0 else start + 1
        starts.append(start)
        sizes.append(m.random.randint(1, most))
        steps.append(step)
    return Slice(x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


def widened(m: Maker) -> Op:
    """A padded or repeated value."""
    x = m.any()
    if m.random.random() < 0.5:
        return Pad(x, pads=tuple(m.random.randint(0, 1) for _ in range(2 * len(x.shape))), value=1.0)
    return Expand(x, to=(m.random.randint(1, 3), *(e if e != 1 else m.random.randint(1, 3) for e in x.shape)))


def gather(m: Maker) -> Op:
    """Chosen rows."""
    x = m.any()
    axis = m.axis(x)
    picked = [m.random.randrange(-x.shape[axis], x.shape[axis]) for _ in range(m.random.randint(1, 3))]
    return Gather(x, Constant(Tensor.of(np.array(picked))), axis=axis)


KINDS: tuple[Callable[[Maker], Op], ...] = (
    *(unary, unary, binary, binary, binary, stepped, reduction, along, norm, product, convolution, convolution),
    *(pool, reshape, transpose, transpose, concat, concat, cut, widened, gather),
)


def drawn(seed: int) -> str:
    """How messages call a random graph: `dlc plugins test NAME --seed N` draws it first."""
    return f"the random graph of --seed {seed}"


def random_graph(
    seed: int,
    ops: int,
    dtype: DType = f64,
    accepts: Callable[[Op], bool] = lambda op: True,  # noqa: ARG005
    kinds: Sequence[Callable[[Maker], Op]] = KINDS,
) -> Graph:
    """A model of up to `ops` ops (some are composed of a few), each named as its source node.

    Args:
        seed: Of all choices.
        ops: How many are tried.
        dtype: Of all arithmetic.
        accepts: Whether a target has an op: those that it does not have are left out.
        kinds: What is drawn from; those of `dlc.verify.kit.shared_graphs` read one value several times.
    """
    random = Random(seed)
    maker = Maker(random, dtype=dtype)
    shapes = random.choice((((2, 3), (3, 4)), ((1, 3, 4, 4), (1, 3, 4, 4)), ((2, 4), (1, 2, 3, 4)), ((5,), (2, 5))))
    inputs = [Input(f"x{k}", Type(dtype, shape)) for k, shape in enumerate(shapes)]
    maker.values += [*inputs, maker.weights(*shapes[0])]
    known: set[Op] = set(maker.values)
    origins: dict[str, tuple[str, ...]] = {}
    for k in range(ops):
        made = random.choice(kinds)(maker)
        # Scalars would end most of what can follow.
        if not (0 < made.type.size <= LARGEST and made.shape and len(made.shape) < 5 and made.dtype is dtype):
            continue
        if all(accepts(x) for x in toposort((made,), known) if not isinstance(x, (Input, Constant, Splat))):
            maker.values.append(made)
            known.add(made)
            _name(made, f"node{k}", origins)
    last = maker.values[-min(3, len(maker.values)) :]
    outputs = random.sample(last, random.randint(1, len(last)))
    if random.random() < 0.2:
        outputs.append(random.choice(maker.values))
    names = tuple(f"y{k}" for k in range(len(outputs)))
    return Graph(tuple(inputs), tuple(outputs), names, origins=origins)


def _name(op: Op, name: str, origins: dict[str, tuple[str, ...]]) -> None:
    """The name for the op and for what was made along with it."""
    stack = [op]
    while stack:
        x = stack.pop()
        if x.digest not in origins and not isinstance(x, (Input, Constant, Splat, Item)):
            origins[x.digest] = (name,)
            stack += x.operands


def feeds(graph: Graph, seed: int) -> dict[str, Array]:
    """Normal values for floats, small numbers for the rest; none for inputs whose sizes a call decides."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for i in (i for i in graph.inputs if not i.type.is_open):
        drawn = (
            rng.normal(0, 1, i.shape) if i.dtype.is_float else rng.integers(0, 2 if i.dtype is bool_ else 9, i.shape)
        )
        out[i.name] = drawn.astype(i.dtype.numpy)
    return out
