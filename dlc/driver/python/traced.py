"""`Traced`: an array of a function that is being traced. Numpy's operators and functions on it build ops.

    np.exp(x @ w).sum(axis=1)   →   reduce_sum(exp(matmul(x, w))) axes=(1)

Values are known when the program runs, and shapes while it is traced. What needs a value now, such as an `if`, is
refused at its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final, NoReturn, TypeGuard, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from dlc.base.extents import Dim
from dlc.base.types import Array, Type, dtype_of_numpy
from dlc.driver.python.place import at_user_line, refused
from dlc.graph.op import Op
from dlc.graph.structure import Constant
from dlc.graph.tensor import Tensor
from dlc.ops.elementwise import Cast
from dlc.ops.pointwise import scalar

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {}
"""Name of a function of numpy → the same on traced arrays; `functions` and `shapes` beside this fill it."""


class Traced(NDArrayOperatorsMixin):
    """An array whose elements are not known yet."""

    __slots__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.op = op

    # ---- what is known
    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of its dimensions; open ones are expressions over their names."""
        return self.op.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.op.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.op.type.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type, as numpy has it."""
        return self.op.dtype.numpy

    @property
    def type(self) -> Type:
        """Element type and shape, as dlc has them."""
        return self.op.type

    def __repr__(self) -> str:
        return f"<traced {self.op.type.text}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        if isinstance(self.shape[0], Dim):
            raise refused("traced-value", f"the length {self.shape[0]} is not known while tracing")
        return self.shape[0]

    def __iter__(self) -> Iterator[Traced]:
        return iter([self[k] for k in range(len(self))])

    # ---- how numpy finds us
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return _room("ufuncs").call_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        del types
        return function(getattr(func, "__name__", str(func)))(*args, **kwargs)

    def __getitem__(self, index: Any) -> Traced:
        return _room("indexing").indexed(self, index)

    def __getattr__(self, name: str) -> Any:
        """Methods of arrays are numpy's functions of the same name: `x.sum(axis=1)` is `numpy.sum(x, axis=1)`."""
        if name.startswith("_") or name not in _METHODS:
            raise AttributeError(f"a traced array has no attribute {name!r}")
        return partial(function(name), self)

    @property
    def T(self) -> Traced:
        """The dimensions in reverse."""
        return function("transpose")(self)

    @property
    def mT(self) -> Traced:
        """The last two dimensions exchanged."""
        return function("swapaxes")(self, -1, -2)

    def reshape(self, *shape: Any) -> Traced:
        """See numpy."""
        return function("reshape")(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Traced:
        """See numpy."""
        return function("transpose")(self, (axes[0] if len(axes) == 1 else axes) or None)

    def flatten(self) -> Traced:
        """See numpy."""
        return function("ravel")(self)

    def astype(self, dtype: Any) -> Traced:
        """The elements converted, as numpy does it."""
        return as_type(self, np.dtype(dtype))

    # ---- what needs values
    def __bool__(self) -> NoReturn:
        raise refused(
            "traced-condition",
            f"a decision of Python on {self!r}, whose value is known only when the program runs",
            "choose elements with numpy.where(condition, a, b); decide on shapes, or on arguments that are no arrays",
        )

    def __int__(self) -> NoReturn:
        raise self._no_value("int()")

    def __float__(self) -> NoReturn:
        raise self._no_value("float()")

    def __index__(self) -> NoReturn:
        raise self._no_value("a Python index or size")

    def item(self) -> NoReturn:
        """Refused: there is no value yet."""
        raise self._no_value("item()")

    def tolist(self) -> NoReturn:
        """Refused: there are no values yet."""
        raise self._no_value("tolist()")

    def __array__(self, *args: Any, **options: Any) -> NoReturn:
        raise self._no_value("an array with values")

    def _no_value(self, what: str) -> Exception:
        help = "stay with numpy's functions on arrays; what is a Python value has to be an argument of its own"
        return refused("traced-value", f"{what} of {self!r}, whose value is known only when the program runs", help)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise in_place()

    def _refuse_in_place(self, other: Any) -> NoReturn:
        del other
        raise in_place()

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = _refuse_in_place
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = __imatmul__ = _refuse_in_place


_METHODS: Final = frozenset(
    [
        "sum",
        "prod",
        "mean",
        "var",
        "std",
        "max",
        "min",
        "any",
        "all",
        "argmax",
        "argmin",
        "cumsum",
        "cumprod",
        "ravel",
        "squeeze",
        "swapaxes",
        "clip",
        "dot",
        "take",
        "round",
        "repeat",
    ]
)


def in_place() -> Exception:
    """What would change an array."""
    help = "make a new array: x = x + y, numpy.where(condition, new, x), numpy.concatenate"
    return refused("traced-value", "a traced array cannot be changed in place", help)


def _room(name: str) -> Any:
    """A module beside this: the operators of a class are made of what is built on the class."""
    return import_module(f"dlc.driver.python.{name}")


def function(name: str) -> Callable[..., Any]:
    """A function of numpy on traced arrays. Raises DlcError: there is none of this name."""
    from dlc.base.diagnostics import did_you_mean

    for room in ("functions", "shapes"):  # they fill the table
        _room(room)
    if name not in FUNCTIONS:
        help = did_you_mean(name, sorted(FUNCTIONS), "functions")
        raise refused("no-such-function", f"numpy.{name} cannot be traced", help)
    return FUNCTIONS[name]


def as_traced(value: Any, like: np.dtype[Any] | None = None) -> Traced:
    """A value as a traced array: arrays and numbers become constants, of the type `like` where it is given."""
    if isinstance(value, Traced):
        return value
    if isinstance(value, Dim):
        return Traced(scalar(value, _known(like or np.dtype(np.int64))))
    with at_user_line("a constant"):
        array: Array = np.asarray(value, like)
    of = _known(array.dtype)
    if not array.ndim:
        return Traced(scalar(array.item() if of.itemsize < 8 or not of.is_integer else int(array), of))
    return Traced(Constant(Tensor.of(array)))


def _known(dtype: np.dtype[Any]) -> Any:
    found = dtype_of_numpy(dtype)
    if found is None:
        raise refused("no-such-type", f"dlc has no elements of type {dtype}")
    return found


def as_type(x: Traced, dtype: np.dtype[Any]) -> Traced:
    """The elements in another type."""
    of = _known(dtype)
    return x if x.op.dtype is of else Traced(Cast(x.op, to=of))


def made(what: str, build: Callable[..., Op], *operands: Any, **attributes: Any) -> Traced:
    """An op on traced arrays or constants; what it does not take is reported at the user's line."""
    ops = [as_traced(x).op for x in operands]
    with at_user_line(what):
        return Traced(build(*ops, **attributes))


def is_array(value: object) -> TypeGuard[Array]:
    """Whether a value is an array of numpy."""
    return isinstance(value, np.ndarray)


def is_traced(value: object) -> bool:
    """Whether a value, or one of a list of them, is traced."""
    if isinstance(value, (list, tuple)):
        return any(map(is_traced, cast("Sequence[object]", value)))
    return isinstance(value, Traced)
