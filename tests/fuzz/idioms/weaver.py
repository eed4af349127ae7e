"""What idioms are written with: weights of sensible sizes, shape arithmetic as exporters write it, single layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import numpy as np

from tests.fuzz.drawing import Maker
from tests.fuzz.inference import has_attribute
from tests.fuzz.model import Array
from tests.fuzz.sizes import Dimension, Refused, Size, drawn_calls, largest
from tests.fuzz.values import Value

OPSETS: Final = (11, 13, 14, 16, 17, 17, 17, 18, 18, 19, 20, 21)
ROOM: Final = 6000
"""Elements of the largest value."""
TIED: Final = 0.12
"""Part of the weights that another layer has, too, where one of the shape is there."""
WRITTEN: Final = 0.25
"""Part of the known sizes that a model computes from a shape nevertheless."""


@dataclass
class Weaver(Maker):
    """A model that grows by idioms."""

    room: int = ROOM
    follows: bool = True
    weights: dict[tuple[int, ...], list[Value]] = field(default_factory=dict[tuple[int, ...], "list[Value]"])
    """Float constants by shape, for ties."""
    also: list[Value] = field(default_factory=list[Value])
    """Results that are outputs besides, as the state of a cache."""
    plain: bool = False
    """Whether sizes are numbers wherever they are known."""

    @classmethod
    def woven(cls, seed: int, *, sizes: bool) -> Weaver:
        """The weaver of a seed; with `sizes` it has named dimensions."""
        random = Random(f"idioms {seed}")
        rng = np.random.default_rng([seed, 1])
        made = cls(random, rng, random.choice(OPSETS), False, False, ("float32",), (4,))
        made.plain = random.random() < 0.5
        if sizes:
            limits = random.random() < 0.6
            names = random.choice((("batch",), ("seq",), ("batch", "seq"), ("high",))) if limits else ("batch",)
            for name in names:
                low = random.choice((1, 1, 2)) if name != "high" else random.choice((4, 6))
                made.ranges[name] = Dimension(low, low + random.choice((1, 2, 3, 5, 6)), 1, limits)
            made.calls = drawn_calls([*made.ranges.values()], random)
        return made

    def dim(self, name: str, otherwise: int) -> int:
        """A named dimension where the model has it, else a number."""
        return self.names.get(name, otherwise)

    @staticmethod
    def most(size: int) -> int:
        """A size in the largest call."""
        return largest((size,))[0]

    # weights and numbers

    def array(self, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Random numbers."""
        return (self.rng.standard_normal(largest(shape)) * scale).astype(np.float32)

    def weight_of(self, *shape: int, fan: int = 0, near: float = 0.0) -> Value:
        """A weight: about 1/√fan in size, or around `near`; at times one that another layer has."""
        if any(isinstance(e, Size) for e in shape):
            raise Refused("a weight has a known shape")
        known = self.weights.setdefault((*shape, round(near)), [])
        if known and self.chance(TIED):
            return self.random.choice(known)
        scale = 0.2 if near else 1 / math.sqrt(fan) if fan else 0.3
        known.append(self.constant(self.array(shape, scale) + np.float32(near)))
        return known[-1]

    def number(self, value: float, like: str = "float32") -> Value:
        """A scalar constant."""
        return self.constant(np.array(value, like))

    def given(self, *shape: int, scale: float = 1.0) -> Value:
        """A new input of floats."""
        return self.input("float32", shape, self.array(shape, scale))

    # shapes

    def scalar(self, value: int, rank: int = 0) -> Value:
        """As `Maker.scalar`; a number is read from the shape of a value at times, as exporters do."""
        if isinstance(value, Size) or self.plain or not self.chance(WRITTEN):
            return super().scalar(value, rank)
        places = [(v, k) for v in self.values.values() for k, e in enumerate(v.shape) if e == value]
        if not places:
            return super().scalar(value, rank)
        x, k = self.random.choice(places[-6:])
        shape = self.node("Shape", x)
        if rank and self.chance(0.4):
            return self.node("Slice", shape, self.ints_of(k), self.ints_of(k + 1), self.ints_of(0))
        found = self.node("Gather", shape, self.constant(np.array(k, np.int64)), axis=0)
        return self.unsqueeze(found, 0) if rank else found

    def ints(self, *values: int) -> Value:
        """As `Maker.ints`; computed at times although all of it is known."""
        if self.plain or any(isinstance(v, Size) for v in values) or len(values) < 2 or self.chance(1 - WRITTEN):
            return super().ints(*values)
        return self.node("Concat", *(self.scalar(v, 1) for v in values), axis=0)

    def ints_of(self, *values: int) -> Value:
        """A constant vector of i64."""
        return self.constant(np.array(values, np.int64))

    def reshape(self, x: Value, *shape: int) -> Value:
        """Reshape; one size is -1 at times, and leading ones 0, which is the operand's."""
        wanted = list(shape)
        way = self.random.random()
        if way < 0.35 and math.prod(largest(shape)) and not any(e == -1 for e in wanted):
            open_ones = [k for k, e in enumerate(wanted) if isinstance(e, Size)]
            wanted[self.random.choice(open_ones) if open_ones else self.random.randrange(len(wanted))] = -1
        elif way < 0.5 and x.rank and wanted[0] == x.shape[0]:
            wanted[0] = 0
        return self.node("Reshape", x, self.ints(*wanted))

    def transpose(self, x: Value, *perm: int) -> Value:
        return self.node("Transpose", x, perm=list(perm))

    def axes(self, op: str, x: Value, *axes: int, **attributes: Any) -> Value:
        """A node whose axes are an attribute or an operand, as the version has it."""
        if has_attribute(op, self.opset, "axes"):
            return self.node(op, x, axes=list(axes), **attributes)
        return self.node(op, x, self.ints_of(*axes), **attributes)

    def unsqueeze(self, x: Value, *axes: int) -> Value:
        return self.axes("Unsqueeze", x, *axes)

    def squeeze(self, x: Value, *axes: int) -> Value:
        return self.axes("Squeeze", x, *axes)

    def mean(self, x: Value, *axes: int, keep: int = 1) -> Value:
        return self.axes("ReduceMean", x, *axes, keepdims=keep)

    def total(self, x: Value, *axes: int, keep: int = 1) -> Value:
        return self.axes("ReduceSum", x, *axes, keepdims=keep)

    def cut(self, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
        """A slice along one axis."""
        more = (self.ints_of(step),) if step != 1 else ()
        return self.node("Slice", x, self.ints(start), self.ints(end), self.ints_of(axis), *more)

    def split(self, x: Value, parts: int, axis: int) -> list[Value]:
        """Equal parts."""
        extent = x.shape[axis]
        if isinstance(extent, Size) or extent % parts:
            raise Refused("no equal parts")
        sizes = [extent // parts] * parts
        if self.opset < 13:
            return self.nodes_of("Split", parts, x, axis=axis, split=sizes)
        if self.opset >= 18 and self.chance(0.3):
            return self.nodes_of("Split", parts, x, axis=axis, num_outputs=parts)
        return self.nodes_of("Split", parts, x, self.ints_of(*sizes), axis=axis)

    # single layers

    def softmax(self, x: Value, axis: int = -1) -> Value:
        """The operator, or its parts. Before version 13 the operator has all dimensions from the axis on."""
        if self.chance(0.8) and (self.opset >= 13 or axis in (-1, x.rank - 1)):
            return self.node("Softmax", x, axis=axis)
        e = self.node("Exp", self.node("Sub", x, self.axes("ReduceMax", x, axis, keepdims=1)))
        return self.node("Div", e, self.total(e, axis))

    def linear(self, x: Value, out: int, *, bias: bool | None = None) -> Value:
        """A dense layer of the last dimension, in one of the ways of exporters."""
        inner = x.shape[-1]
        if isinstance(inner, Size):
            raise Refused("a weight has a known shape")
        bias = self.chance(0.7) if bias is None else bias
        if x.rank == 2 and self.chance(0.7):
            turned = self.one(0, 1, 1)
            w = self.weight_of(out, inner, fan=inner) if turned else self.weight_of(inner, out, fan=inner)
            return self.node("Gemm", x, w, *([self.weight_of(out)] if bias else []), transB=turned)
        if self.chance(0.08) and x.rank == 3 and self.opset >= 12:
            y = self.node("Einsum", x, self.weight_of(inner, out, fan=inner), equation="bti,io->bto")
        elif self.chance(0.15):
            w = self.transpose(self.weight_of(out, inner, fan=inner), 1, 0)
            y = self.node("MatMul", x, w)
        elif self.chance(0.1) and x.rank == 3:
            flat = self.reshape(x, x.shape[0] * x.shape[1], inner)
            y = self.node("Gemm", flat, self.weight_of(inner, out, fan=inner))
            y = self.reshape(y, *x.shape[:2], out)
        else:
            y = self.node("MatMul", x, self.weight_of(inner, out, fan=inner))
        if not bias:
            return y
        operands = (self.weight_of(out), y)
        return self.node("Add", *(operands if self.chance(0.5) else operands[::-1]))

    def conv(
        self,
        x: Value,
        out: int,
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
        *,
        bias: bool = True,
    ) -> Value:
        """A convolution of images or sequences that keeps the size, but for the stride."""
        inner, spatial = x.shape[1], x.rank - 2
        if isinstance(inner, Size) or inner % groups or out % groups:
            raise Refused("groups do not fit")
        w = self.weight_of(out, inner // groups, *[kernel] * spatial, fan=inner // groups * kernel**spatial)
        more = [self.weight_of(out)] if bias else []
        pad = dilation * (kernel - 1)
        figures: dict[str, Any] = {"kernel_shape": [kernel] * spatial, "group": groups}
        if self.chance(0.15) and dilation == 1:
            figures["auto_pad"] = self.one("SAME_UPPER", "SAME_LOWER")
        else:
            figures["pads"] = [pad // 2] * spatial + [pad - pad // 2] * spatial
        return self.node("Conv", x, w, *more, strides=[stride] * spatial, dilations=[dilation] * spatial, **figures)

    def batch_norm(self, x: Value) -> Value:
        """The operator, with figures of a trained network."""
        channels = x.shape[1]
        scale, bias, mean = self.weight_of(channels, near=1.0), self.weight_of(channels), self.weight_of(channels)
        var = self.constant(np.abs(self.array((channels,))) + np.float32(0.3))
        return self.node("BatchNormalization", x, scale, bias, mean, var, epsilon=self.one(1e-5, 1e-3))

    def activation(self, x: Value) -> Value:
        """One of the functions that networks have, as operator or written out."""
        return self.random.choice(ACTIVATIONS)(self, x)


def _gelu(m: Weaver, x: Value) -> Value:
    if m.opset >= 20 and m.chance(0.4):
        return m.node("Gelu", x, approximate=m.one("none", "tanh"))
    e = m.node("Erf", m.node("Div", x, m.number(math.sqrt(2))))
    y = m.node("Mul", x, m.node("Add", e, m.number(1)))
    return m.node("Mul", y, m.number(0.5))


def _gelu_tanh(m: Weaver, x: Value) -> Value:
    cube = m.node("Pow", x, m.number(3))
    inner = m.node("Add", x, m.node("Mul", cube, m.number(0.044715)))
    t = m.node("Tanh", m.node("Mul", inner, m.number(math.sqrt(2 / math.pi))))
    return m.node("Mul", m.node("Mul", x, m.number(0.5)), m.node("Add", t, m.number(1)))


def _swish(m: Weaver, x: Value) -> Value:
    return m.node("Mul", x, m.node("Sigmoid", x))


def _hard_swish(m: Weaver, x: Value) -> Value:
    if m.opset >= 14 and m.chance(0.5):
        return m.node("HardSwish", x)
    cut = m.node("Clip", m.node("Add", x, m.number(3)), m.number(0), m.number(6))
    return m.node("Div", m.node("Mul", x, cut), m.number(6))


def _mish(m: Weaver, x: Value) -> Value:
    if m.opset >= 18 and m.chance(0.4):
        return m.node("Mish", x)
    return m.node("Mul", x, m.node("Tanh", m.node("Softplus", x)))


def _prelu(m: Weaver, x: Value) -> Value:
    slope = m.weight_of(x.shape[1], *[1] * (x.rank - 2)) if x.rank > 2 and m.chance(0.5) else m.weight_of(1)
    return m.node("PRelu", x, slope)


def _simple(op: str, **attributes: Any) -> Callable[[Weaver, Value], Value]:
    return lambda m, x: m.node(op, x, **attributes)


ACTIVATIONS: Final[tuple[Callable[[Weaver, Value], Value], ...]] = (
    *([_simple("Relu")] * 6),
    *(_gelu, _gelu, _gelu_tanh, _swish, _swish, _hard_swish, _mish, _prelu),
    *(_simple("LeakyRelu", alpha=0.1), _simple("Elu"), _simple("Tanh"), _simple("Softplus"), _simple("HardSigmoid")),
    lambda m, x: m.node("Clip", x, m.number(0), m.number(6)),
    lambda m, x: m.node("Div", x, m.node("Add", m.node("Abs", x), m.number(1))),
    lambda m, x: m.node("Mul", m.node("Relu", x), m.node("Relu", x)),
)
