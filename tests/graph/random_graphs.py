"""Random graphs for tests of the text form: every kind of operand, attribute, constant and name occurs."""

from __future__ import annotations

from random import Random

import numpy as np

from dlc.base.types import Type, bool_, f16, f32, f64, i8, i64, u64
from dlc.graph import Call, Constant, Graph, Input, Item, Op, Splat, Tensor
from dlc.ops.elementwise import Add, Cast, Clip, LeakyRelu, Mul, Neg, Relu, Where
from dlc.ops.linear import Conv, Gemm
from dlc.ops.reduce import ReduceMax, ReduceSum
from dlc.ops.shape import Concat, Reshape, Transpose
from dlc.plugins.builtin import dlc_ops
from tests.kernel.random_kernels import random_kernel

STRUCTURE: dict[str, type[Op]] = {op.text_name: op for op in (Constant, Splat, Call, Item)}
OPS: dict[str, type[Op]] = {op.text_name: op for op in dlc_ops()} | STRUCTURE

NAMES = (
    "x",
    "",
    'quo"te',
    "back\\slash",
    "new\nline",
    "tab\t",
    "\0",
    "é",
    "日本",
    "\U0001f600",
    "%0",
    "a b",
    "} plan {",
)
ROLES = ("data", "weight", "state", "label")


class Maker:
    """A graph under construction, deterministic in its seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.inputs = [self.input(k) for k in range(self.random.randint(1, 4))]
        self.values: list[Op] = list(self.inputs)

    def input(self, k: int) -> Input:
        dtype = f32 if k == 0 else self.random.choice((f32, f32, f64, i64, bool_))
        shape = self.random.choice(((2, 3), (3,), (), (1, 2, 4, 4), (0, 3)))
        name = f"{self.random.choice(NAMES)}{k}"
        of, role = Type(dtype, shape), self.random.choice(ROLES)
        first = self.constant(of) if role in ("weight", "state") and self.random.random() < 0.7 else None
        initial = first.tensor if isinstance(first, Constant) else first.value if isinstance(first, Splat) else None
        return Input(name, of, role, initial)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def constant(self, of: Type) -> Op:
        pick = self.random.random()
        if pick < 0.3:
            return Splat(self.element(of), of)
        rng = np.random.default_rng(self.random.randrange(1 << 20))
        if of.dtype.is_float:
            values = rng.standard_normal(of.shape) * 10.0 ** rng.integers(-4, 4)
            if pick < 0.5 and of.size:
                values.reshape(-1)[0] = self.random.choice((np.inf, -np.inf, np.nan, -0.0, 1e-40))
        else:
            values = rng.integers(0, 2, of.shape)
        with np.errstate(over="ignore"):
            return Constant(Tensor.of(values, of.dtype), self.random.choice(("", "", *NAMES)))

    def element(self, of: Type) -> bool | int | float:
        if of.dtype is bool_:
            return self.random.random() < 0.5
        if of.dtype.is_integer:
            return self.random.choice((0, 1, *of.dtype.limits))
        return self.random.choice((0.0, -0.0, 0.1, -1e-7, 3.4e38, float("inf"), float("nan"), 1 / 3))

    def pick(self) -> Op:
        return self.random.choice(self.values)

    def step(self) -> Op:
        """One more op on what is there."""
        x = self.pick()
        if x.dtype is bool_:
            return Where(x, Splat(1.0, Type(f32, ())), Splat(0.1, Type(f32, ())))
        match self.random.randrange(12):
            case 0:
                return Add(x, self.constant(x.type))
            case 1:
                return Mul(x, x)
            case 2:
                return Neg(x)
            case 3:
                return Clip(x, low=self.random.choice((None, 0, 0.5)), high=self.random.choice((None, 1, 6.0)))
            case 4:
                return Cast(x, self.random.choice([f16, f32, f64, i8, i64, u64, bool_]))
            case 5 if x.type.rank:
                return Concat((x, x, self.constant(x.type)), axis=self.random.randrange(x.type.rank))
            case 6:
                return Reshape(x, to=(1, *x.shape))
            case 7:
                return Transpose(x, perm=tuple(self.random.sample(range(x.type.rank), x.type.rank)))
            case 8 if x.type.rank:
                return self.random.choice((ReduceSum, ReduceMax))(x, axes=(0,), keep=self.random.random() < 0.5)
            case 9 if x.shape == (1, 2, 4, 4):
                bias = self.constant(Type(x.dtype, (2,))) if self.random.random() < 0.5 else None
                return Conv(x, self.constant(Type(x.dtype, (2, 2, 3, 3))), bias, pads=(1, 1, 1, 1))
            case 10 if x.shape == (2, 3):
                return Gemm(x, self.constant(Type(x.dtype, (3, 5))), alpha=0.1)
            case 11:
                return self.call()
            case _:
                return Relu(x) if x.dtype.is_integer or self.random.random() < 0.5 else LeakyRelu(x, alpha=0.2)

    def call(self) -> Op:
        kernel = random_kernel(self.random.randrange(8))
        return Call(kernel, tuple(self.constant(p.type) for p in kernel.params))


def random_graph(seed: int) -> Graph:
    """A valid graph of up to twenty ops, with origins and aliases, of every feature that text has to carry."""
    make = Maker(seed)
    for _ in range(make.random.randint(0, 20)):
        make.values.append(make.step())
    count = make.random.randint(1, 3)
    outputs = tuple(make.pick() for _ in range(count))
    names = tuple(f"{make.random.choice(NAMES)}{k}" for k in range(count))
    aliases = [
        (i, j) for i, o in enumerate(outputs) for j, x in enumerate(make.inputs) if o.type == x.type and o is not x
    ]
    graph = Graph(tuple(make.inputs), outputs, names, tuple(aliases[:1]))
    origins = {
        op.digest: tuple(make.random.choices(NAMES, k=make.random.randint(1, 3)))
        for op in graph.ops
        if not isinstance(op, Input) and make.random.random() < 0.5
    }
    return Graph(graph.inputs, outputs, names, graph.aliases, origins)


def tensors_of(graph: Graph) -> dict[str, Tensor]:
    """Constants by digest: what a reader of the graph's text asks for."""
    return {tensor.digest: tensor for tensor in graph.tensors}


__all__ = ["NAMES", "OPS", "random_graph", "tensors_of"]
