"""The ops that the graph itself needs: `Input`, `Constant`, `Splat`, `Call`, `Again`, `Copy`, `Item`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from dlc.base.allowed import Allowed
from dlc.base.types import DType, Type, shortest
from dlc.graph.op import Op
from dlc.graph.tensor import Array, Tensor
from dlc.kernel.define import Comp, ShapeError, comp, grid, kernel_of
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Load, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Param
from dlc.kernel.work import work

Role = Literal["data", "weight", "state", "label"]


class Input(Op):
    """A value from outside: data of a call, or a weight, state or label of a training step.

    `initial` is what a weight or state starts with, a tensor or one value for every element; None where nobody knows.
    `allowed` is what its integers may be because something is chosen by them, as `Allowed.text`; "" is anything.
    """

    exact: ClassVar[bool] = True
    name: str
    of: Type
    role: Role = "data"
    initial: Tensor | bool | int | float | None = None
    allowed: str = ""

    def __post_init__(self) -> None:
        if self.initial is not None and not isinstance(self.initial, Tensor):
            object.__setattr__(self, "initial", _element(self.initial, self.of.dtype))
        super().__post_init__()

    def derive_types(self) -> tuple[Type, ...]:
        if isinstance(self.initial, Tensor) and self.initial.type != self.of:
            raise ShapeError(f"input {self.name} is {self.of}, its initial value {self.initial.type}")
        if self.allowed and not Allowed.parse(self.allowed).fits(self.of):
            raise ShapeError(f"input {self.name} is {self.of}, which cannot be restricted to {self.allowed}")
        return (self.of,)

    @property
    def range(self) -> Allowed | None:
        """`allowed`, read; None for anything."""
        return Allowed.parse(self.allowed) if self.allowed else None

    def evaluate(self, *args: Array) -> Any:
        raise ValueError(f"input {self.name} has no value")


class Constant(Op):
    """A value that is known now.

    One with a name is a parameter of the model: constants of two names are two, even if they begin with equal values.
    Passes that need no parameters drop the names, and equal constants are one again.
    """

    exact: ClassVar[bool] = True
    tensor: Tensor
    name: str = ""

    def derive_types(self) -> tuple[Type, ...]:
        return (self.tensor.type,)

    def evaluate(self, *args: Array) -> Any:
        return self.tensor.array()


class Splat(Op):
    """One value in every element; it never takes memory, however large its shape."""

    exact: ClassVar[bool] = True
    value: bool | int | float
    of: Type

    def __post_init__(self) -> None:
        # Equal elements are equal ops, and text and code show 0.1, not the f64 digits of the nearest f32.
        object.__setattr__(self, "value", _element(self.value, self.of.dtype))
        super().__post_init__()

    def derive_types(self) -> tuple[Type, ...]:
        return (self.of,)

    def define(self, *params: Any) -> Comp:
        return comp(grid(self.of.shape), apply(self.of.dtype.name, self.value))

    def evaluate(self, *args: Array) -> Any:
        return np.broadcast_to(np.asarray(self.value, self.of.dtype.numpy), self.of.shape)


def _element(value: bool | int | float, dtype: DType) -> bool | int | float:
    """The literal of an element. Raises ShapeError when the type has no such value."""
    if dtype.is_float:
        return shortest(float(value), dtype)
    low, high = dtype.limits
    if not low <= value <= high or value != int(value):
        raise ShapeError(f"{value} is not a value of {dtype}")
    return int(value) if dtype.is_integer else bool(value)


class Call(Op):
    """A kernel applied to values: user kernels, lowered ops and fused groups are all this one op."""

    exact: ClassVar[bool] = True
    runs: ClassVar[bool] = True
    body: Kernel
    args: tuple[Op, ...] = ()

    def derive_types(self) -> tuple[Type, ...]:
        if len(self.args) != len(self.body.params):
            raise ShapeError(f"kernel takes {len(self.body.params)} arguments, not {len(self.args)}")
        for k, (p, a) in enumerate(zip(self.body.params, self.args, strict=True)):
            if p.type != a.type:
                raise ShapeError(f"argument {k} is {a.type}, the kernel takes {p.type}")
        return tuple(r.type for r in self.body.results)

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        return self.body

    def evaluate(self, *args: Array) -> Any:
        first, *others = run_kernel(self.body, args)
        return (first, *others) if others else first

    def again(self, number: int) -> Op | None:
        return Again(self.body, self.args, number)

    def operations(self) -> int:
        """Those of the kernel, at least one for every point of its loops."""
        return max(work(self.body)[1], sum(nest.points for nest in self.body.nests))


class Again(Call):
    """A call that is executed once more, so that its results need not be kept until they are read here.

    It gives the same bits as the call. Equal ops are one op: `number`, of executions before this one, tells them apart.
    Only graphs of plans have any.
    """

    is_repeat: ClassVar[bool] = True
    number: int = 1


class Copy(Call):
    """A call that copies a value to another memory: `r[i] = x[i]`, but no view, although it gives what it reads.

    Equal ops are one op: `number` tells copies of one value apart. Only graphs of plans have any.
    """

    number: int = 1

    @staticmethod
    def of(value: Op, number: int) -> Copy:
        """The copy of a value of known size."""
        axes = grid(value.type.shape)
        return Copy(kernel_of((Param("x", value.type),), [comp(axes, Load("x", axes))]), (value,), number)

    def again(self, number: int) -> Op | None:
        return None


class Item(Op):
    """One result of an op that has several."""

    exact: ClassVar[bool] = True
    of: Op
    index: int

    def derive_types(self) -> tuple[Type, ...]:
        if not 0 <= self.index < len(self.of.types):
            raise ShapeError(f"result {self.index} of an op that has {len(self.of.types)}")
        return (self.of.types[self.index],)

    def evaluate(self, *args: Any) -> Any:
        return args[0][self.index]
