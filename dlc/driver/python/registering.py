"""What the tables of numpy's functions share: registering by numpy's names, and axes as numpy counts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import numpy as np

from dlc.driver.python.place import at_user_line
from dlc.driver.python.traced import FUNCTIONS, Traced, as_traced, as_type
from dlc.ops.pointwise import normalized

F = TypeVar("F", bound=Callable[..., Any])
I64: Final = np.dtype(np.int64)
BOOL: Final = np.dtype(bool)


def traced_as(*names: str) -> Callable[[F], F]:
    """Register a function by its names in numpy; without any, by its own."""

    def register(of: F) -> F:
        for name in names or (of.__name__.strip("_"),):
            FUNCTIONS[name] = of
        return of

    return register


def axes_of(x: Traced, axis: Any) -> tuple[int, ...]:
    """Axes from the front; all for None."""
    if axis is None:
        return tuple(range(x.ndim))
    if not x.ndim and all(int(a) in (0, -1) for a in several(axis)):
        return ()  # numpy lets scalars have one axis for this
    with at_user_line("axis"):
        return tuple(sorted(normalized(int(a), x.ndim) for a in several(axis)))


def several(value: Any) -> Sequence[Any]:
    """A list of what may also be one."""
    return cast("Sequence[Any]", value) if isinstance(value, (tuple, list)) else (value,)


def common(arrays: Sequence[Any]) -> list[Traced]:
    """Arrays in their common type."""
    traced = [as_traced(a) for a in arrays]
    of = np.result_type(*(t.dtype for t in traced))
    return [as_type(t, of) for t in traced]
