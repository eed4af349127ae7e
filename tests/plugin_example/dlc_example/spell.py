"""Kernels as Python functions in NumPy: `out[index] (reduce)= value` over axes, statement by statement."""

import math
from collections.abc import Iterator

import numpy as np

from dlc.base.types import DType
from dlc.define import SCALARS, Axis, Expr
from dlc.graph import Call
from dlc.kernel.expr import Apply, Const, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import LITERAL_DTYPES, Nest

_POINTS = 1 << 22
"""Points that one NumPy statement covers at most; axes beyond become loops in Python."""


def function(kernel: Kernel, name: str) -> str:
    """The definition of a function that takes the kernel's parameters and returns a tuple of its results."""
    lines = [f"def {name}({', '.join(p.name for p in kernel.params)}):"]
    for t in (*kernel.results, *kernel.locals):
        start = literal(kernel.start_of(t.name), t.dtype)
        lines.append(f"    {t.name} = np.full({t.shape!r}, {start}, {dtype(t.dtype)})")
    for nest in kernel.nests:
        lines += [f"    {line}" for line in statement(kernel, nest)]
    results = "".join(f"{r.name}, " for r in kernel.results)
    return "\n".join([*lines, f"    return ({results})"])


def statement(kernel: Kernel, nest: Nest) -> Iterator[str]:
    """The lines of one nest."""
    spell = Speller(kernel)
    split = outer_loops(nest)
    outer, inner = nest.axes[:split], nest.axes[split:]
    for depth, axis in enumerate(outer):
        yield f"{'    ' * depth}for {axis.name} in range({axis.extent}):"
    indent = "    " * len(outer)
    if inner:
        yield f"{indent}{', '.join(a.name for a in inner)}, = grid({', '.join(str(a.extent) for a in inner)})"
    index = "".join(f"{spell(i)}, " for i in nest.index)
    value = spell(nest.body, kernel.tensors[nest.out].dtype)
    more = "" if nest.where is None else f", where={spell(nest.where)}"
    more += "" if nest.reduce is None else f", combine={numpy_name(nest.reduce)}"
    yield f"{indent}store({nest.out}, ({index}), {value}, {tuple(a.extent for a in inner)!r}{more})"


def outer_loops(nest: Nest) -> int:
    """How many axes become loops in Python."""
    split = 0
    while math.prod(a.extent for a in nest.axes[split:]) > _POINTS:
        split += 1
    return split


class Speller:
    """Expressions of one kernel as Python text."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __call__(self, e: Expr, like: DType | None = None) -> str:
        """The text; a literal gets the type `like`, that of its neighbours."""
        match e:
            case Const(value):
                return literal(value, like or LITERAL_DTYPES[type(value)])
            case Axis(name):
                return name
            case Load(param, index):
                return f"at({', '.join([param, *map(self, index)])})"
            case Apply(fn, args):
                return self._apply(fn, args, like)
            case _:
                raise AssertionError(e)

    def _apply(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> str:
        scalar = SCALARS[fn]
        if scalar.rule == "bits" and scalar.to is not None:
            return f"np.asarray({self(args[0])}).view({dtype(scalar.to)})"
        if scalar.to is not None:
            return f"np.asarray({self(args[0])}).astype({dtype(scalar.to)})"
        values = args[1:] if scalar.rule == "select" else args
        own = next((d for a in values if (d := self._kernel.dtype_of(a)) is not None), None)
        inner = own or (None if scalar.rule == "bool" else like)
        texts = [self(a) for a in args[: len(args) - len(values)]] + [self(a, inner) for a in values]
        return f"{numpy_name(fn)}({', '.join(texts)})"


def numpy_name(fn: str) -> str:
    """How a scalar function is spelled: NumPy's name, or that of a function of the prelude."""
    found = SCALARS[fn].numpy
    return f"np.{found.__name__}" if isinstance(found, np.ufunc) or found is np.where else fn


def dtype(of: DType) -> str:
    """An element type."""
    return f"np.{of.numpy.name}" if of.kind != "bool" else "np.bool_"


def literal(value: bool | int | float, of: DType) -> str:
    """A number of an element type."""
    text = f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)
    return f"{dtype(of)}({text})"


def kernels_of(steps: tuple[Call, ...]) -> dict[str, tuple[str, Kernel]]:
    """Digest → (name of the function, kernel): equal kernels once."""
    found: dict[str, tuple[str, Kernel]] = {}
    for step in steps:
        found.setdefault(step.body.digest, (f"kernel_{len(found)}", step.body))
    return found
