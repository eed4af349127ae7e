"""Gradients of reductions, running sums, and what is built of them."""

# Parameters of lambdas that a table holds have no place for types, and torch's own functions know few.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch.nn import functional as F

from tests.ops.torch_cases.case import INF, Array, Case, Tensor, f, i, normal, positive

Reduction = Callable[[Tensor, list[int], bool], Tensor]


def product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    """One axis after the other."""
    for axis in sorted((a % x.dim() for a in axes), reverse=True):
        x = torch.prod(x, axis, keep)
    return x


REDUCTIONS: Final[dict[str, Reduction]] = {
    "ReduceL1": lambda x, a, k: x.abs().sum(a, k),
    "ReduceL2": lambda x, a, k: torch.linalg.vector_norm(x, 2, a, k),
    "ReduceLogSum": lambda x, a, k: x.sum(a, k).log(),
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceMax": torch.amax,
    "ReduceMean": torch.mean,
    "ReduceMin": torch.amin,
    "ReduceProd": product,
    "ReduceSum": torch.sum,
    "ReduceSumSquare": lambda x, a, k: (x * x).sum(a, k),
}
POINTS: Final[dict[str, list[list[float]]]] = {
    "ReduceL1": [[0, -2, 3], [0, 0, 0]],
    "ReduceL2": [[0, -2, 3], [0, 0, 0]],
    "ReduceLogSum": [[0, 2, 3], [0, 0, 0]],
    "ReduceLogSumExp": [[-INF, 2, 3], [800, 800, -800]],
    "ReduceMax": [[1, 3, 3], [2, 2, 2]],
    "ReduceMin": [[3, 1, 1], [2, 2, 2]],
    "ReduceProd": [[2, 0, 3], [2, 0, 0], [0, 0, 0], [-1, 2, 3]],
}
"""Zeros, ties and infinities in rows."""


def over(op: str, what: str, x: Array, axes: list[int], keep: bool = False) -> Case:
    """A reduction along given axes."""
    fn = REDUCTIONS[op]
    return Case(op, what, (x, i(*axes)), lambda x, _: fn(x, axes, keep), {"keepdims": int(keep)}, fixed=(1,))


def reductions(op: str) -> list[Case]:
    """The forms that every reduction has."""
    fn, x = REDUCTIONS[op], positive(2, 3, 2)
    found = [
        over(op, "one axis", x, [1]),
        over(op, "two axes, kept", x, [0, 2], keep=True),
        over(op, "an axis from behind", x, [-1], keep=True),
        over(op, "an axis of 1", positive(2, 1), [1]),
        Case(op, "all axes", (x,), lambda x: fn(x, [0, 1, 2], True)),
        Case(op, "axes as an attribute", (x,), lambda x: fn(x, [1], True), {"axes": [1]}, 11),
    ]
    return [*found, over(op, "hard points", np.array(POINTS[op], np.float64), [1])] if op in POINTS else found


def summed(exclusive: bool, reverse: bool) -> Callable[..., Tensor]:
    """CumSum of a matrix along its rows."""

    def same(x: Tensor, _: Tensor) -> Tensor:
        x = x.flip(1) if reverse else x
        y = torch.cumsum(x, 1) - (x if exclusive else 0)
        return y.flip(1) if reverse else y

    return same


def top(k: int, largest: bool = True, dim: int = -1) -> Callable[..., tuple[Tensor, Tensor]]:
    """TopK that takes the first of equal elements."""

    def same(x: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        values, places = torch.sort(x, stable=True, dim=dim, descending=largest)
        return values.narrow(dim, 0, k), places.narrow(dim, 0, k)

    return same


def root(p: int, *dims: int) -> Callable[[Tensor], Tensor]:
    """The norm of order p along given dimensions."""
    return lambda x: torch.linalg.vector_norm(x, p, dims, keepdim=True)


ROWS: Final = np.array([[3.0, 1, 3, 3], [0, 0, 0, 0], [1, 2, 3, 4]])
SPACE: Final = normal(2, 2, 3, 2)
DEAD: Final = SPACE * np.array([1.0, 0.0]).reshape(1, 2, 1, 1)
"""One channel of zeros, as after a relu."""
SOFT: Final = np.array([[-INF, 0, 1], [800, -800, 800], [2, 2, 2]])
CASES: Final[tuple[Case, ...]] = (
    *(case for op in REDUCTIONS for case in reductions(op)),
    over("ReduceSum", "of nothing", np.zeros((2, 0)), [1]),
    Case("ReduceSum", "no axes", (normal(2, 3), i()), lambda x, _: x, {"noop_with_empty_axes": 1}, fixed=(1,)),
    Case(
        "ReduceLogSumExp",
        "nothing but -inf",
        (f(-INF, -INF),),
        lambda x: torch.logsumexp(x, 0),
        {"keepdims": 0},
        chosen={0: np.zeros(2)},
    ),
    *(
        Case(
            "CumSum",
            f"exclusive {e}, reverse {r}",
            (normal(2, 4), np.array(1)),
            summed(bool(e), bool(r)),
            {"exclusive": e, "reverse": r},
            fixed=(1,),
        )
        for e in (0, 1)
        for r in (0, 1)
    ),
    Case("TopK", "equal elements", (ROWS, i(2)), top(2), fixed=(1,), outputs=2),
    Case("TopK", "the smallest", (ROWS, i(2)), top(2, False), {"largest": 0}, fixed=(1,), outputs=2),
    Case("TopK", "another axis", (ROWS, i(3)), top(3, dim=0), {"axis": 0}, fixed=(1,), outputs=2),
    Case("GlobalAveragePool", "two dimensions", (SPACE,), lambda x: x.mean((2, 3), True)),
    Case("GlobalMaxPool", "two dimensions", (SPACE,), lambda x: x.amax((2, 3), True)),
    Case("GlobalMaxPool", "equal elements", (ROWS.reshape(1, 3, 4),), lambda x: x.amax(2, True)),
    *(Case("GlobalLpPool", f"order {p}", (DEAD,), root(p, 2, 3), {"p": p}) for p in (1, 2, 3)),
    Case("LpNormalization", "order 1", (SPACE,), lambda x: F.normalize(x, 1, 1), {"p": 1, "axis": 1}),
    Case("LpNormalization", "order 2", (SPACE,), lambda x: F.normalize(x, 2, -1)),
    # ONNX says 0 for 0 / 0, as if divided by 1; torch divides by 1e-12.
    Case("LpNormalization", "of zeros", (f(0, 0),), lambda x: F.normalize(x, 2, 0), chosen={0: f(1, 1)}),
    Case("Softmax", "last axis", (SOFT,), lambda x: x.softmax(-1)),
    Case("Softmax", "first axis", (normal(3, 2),), lambda x: x.softmax(0), {"axis": 0}),
    Case("Softmax", "before version 13", (normal(2, 3, 2),), lambda x: x.flatten(1).softmax(1).view(x.shape), opset=11),
    Case("LogSoftmax", "last axis", (SOFT,), lambda x: x.log_softmax(-1)),
    Case("LogSoftmax", "middle axis", (normal(2, 3, 2),), lambda x: x.log_softmax(1), {"axis": 1}),
    Case("Hardmax", "is constant between steps", (ROWS,), lambda x: F.one_hot(x.argmax(-1), 4).double()),
)
