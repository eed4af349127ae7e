"""Gradients of operators that select elements by data, duplicates and negative indices among the indices."""

# Parameters of lambdas that a table holds have no place for types, and torch's own functions know few.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from tests.ops.torch_cases.case import Array, Case, Tensor, f, i, normal

X: Final = normal(3, 4)


def gathered(what: str, x: Array, places: Array, axis: int = 0) -> Case:
    """Slices along an axis."""

    def same(x: Tensor, places: Tensor) -> Tensor:
        n = x.shape[axis]
        y = x.index_select(axis, ((places + n) % n).flatten())
        return y.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])

    return Case("Gather", what, (x, places), same, {"axis": axis})


def elements(what: str, places: Array, axis: int) -> Case:
    """One element for each index."""
    n = X.shape[axis]
    return Case("GatherElements", what, (X, places), lambda x, p: x.gather(axis, (p + n) % n), {"axis": axis})


def scattered(what: str, x: Array, places: Array, updates: Array, kind: str = "", axis: int = 0, **more: Any) -> Case:
    """Elements along an axis that are replaced or combined."""
    n = x.shape[axis]
    torchs = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}

    def same(x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
        places = (places + n) % n
        return x.scatter_reduce(axis, places, updates, torchs[kind]) if kind else x.scatter(axis, places, updates)

    attributes = {"axis": axis, **({"reduction": kind} if kind else {})}
    return Case("ScatterElements", what, (x, places, updates), same, attributes, **more)


def slices(what: str, x: Array, places: Array, updates: Array, kind: str = "", **more: Any) -> Case:
    """Slices of x at tuples of subscripts; torch's scatter works on rows of a matrix."""
    torchs = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    width = places.shape[-1]
    outer, inner = x.shape[:width], x.shape[width:]

    def same(x: Tensor, places: Tensor, updates: Tensor) -> Tensor:
        row = torch.zeros(places.shape[:-1], dtype=torch.int64)
        for d, n in enumerate(outer):
            row = row * n + (places[..., d] + n) % n
        flat = x.reshape(int(np.prod(outer)), -1)
        index = row.reshape(-1, 1).expand(-1, flat.shape[1])
        new = updates.reshape(index.shape)
        y = flat.scatter_reduce(0, index, new, torchs[kind]) if kind else flat.scatter(0, index, new)
        return y.reshape(*outer, *inner)

    return Case("ScatterND", what, (x, places, updates), same, {"reduction": kind} if kind else {}, **more)


def row(*pairs: int) -> Array:
    """Subscripts of one dimension."""
    return i(*pairs).reshape(-1, 1)


def summed(equation: str, *arrays: Array, same: Callable[..., Tensor] | None = None) -> Case:
    """A sum of products."""
    alike = ", one value twice" if len(arrays) == 2 and arrays[0] is arrays[1] else ""
    return Case(
        "Einsum",
        equation + alike,
        arrays,
        same or (lambda *xs: torch.einsum(equation, *xs)),
        {"equation": equation},
    )


TIES: Final = f(3, 1, 2)
REDUCED: Final[tuple[Case, ...]] = tuple(
    case
    for kind in ("add", "mul", "max", "min")
    for case in (
        scattered(f"{kind}, duplicates", X, i(1, -2, 0, 1).reshape(1, 4) % 3, normal(1, 4), kind),
        scattered(f"{kind}, one place", TIES, i(1, 1, -1), f(4, 5, 0.5), kind),
        scattered(f"{kind}, ties", TIES, i(0, -3, 2, 2), f(3, 3, 2, 2), kind),
        scattered(f"{kind}, a zero", f(0, 2), i(0, 0, 1), f(2, 4, 0), kind),
        slices(f"{kind}, duplicates", TIES, row(1, 1, -1), f(4, 5, 0.5), kind),
        slices(f"{kind}, slices", X, row(2, 0, -1), normal(3, 4), kind),
        slices(f"{kind}, ties", TIES, row(0, -3, 2, 2), f(3, 3, 2, 2), kind),
    )
)
CHOSEN: Final = np.array([True, False, True])
MATRIX: Final = normal(3, 3)
CASES: Final[tuple[Case, ...]] = (
    gathered("duplicates and negative indices", X, i(2, 0, 2, -1)),
    gathered("a matrix of indices, last axis", X, i(1, -1, 1, 0).reshape(2, 2), 1),
    gathered("one index", X, np.array(-2)),
    gathered("no index", X, np.zeros((0,), np.int64), 1),
    elements("duplicates", i(2, 0, 0, -1, 2, 0).reshape(2, 3), 0),
    elements("last axis", i(2, 2, -1, 0, 0, 0).reshape(3, 2), 1),
    Case("GatherND", "tuples, duplicates", (X, i(0, 1, -1, 3, 0, 1).reshape(3, 2)), lambda x, p: x[p[:, 0], p[:, 1]]),
    Case("GatherND", "slices", (X, i(0, -1, 0).reshape(3, 1)), lambda x, p: x[p[:, 0]]),
    Case(
        "GatherND",
        "a batch dimension",
        (normal(2, 3, 2), i(0, 0, -1, 1).reshape(2, 2, 1)),
        lambda x, p: x[torch.arange(2).reshape(2, 1), p[..., 0]],
        {"batch_dims": 1},
    ),
    *REDUCED,
    scattered("distinct places", X, i(1, 2, 0, -1).reshape(1, 4), normal(1, 4)),
    scattered("last axis", X, i(3, 0, -2, 1, 1, 2).reshape(3, 2) % 4, normal(3, 2), axis=1),
    scattered("the last of duplicates stays", TIES, i(1, 1), f(8, 9), chosen={0: f(1, 0, 1), 2: f(0, 1)}),
    slices("distinct places", X, row(2, -3), normal(2, 4)),
    slices("tuples", X, i(0, 1, -1, 3).reshape(2, 2), normal(2)),
    slices("the last of duplicates stays", TIES, row(1, 1), f(8, 9), chosen={0: f(1, 0, 1), 2: f(0, 1)}),
    Case("Scatter", "distinct places", (TIES, i(2, 0), f(8, 9)), lambda x, p, u: x.scatter(0, p, u), opset=10),
    Case("Compress", "along an axis", (X, CHOSEN), lambda x, c: x[c], {"axis": 0}, fixed=(1,)),
    Case("Compress", "all elements", (X, CHOSEN), lambda x, c: x.flatten()[[0, 2]], fixed=(1,)),
    summed("ii->i", MATRIX),
    summed("ii->", MATRIX),
    summed("ij,ij->", MATRIX, MATRIX),
    summed("ij,jk->ik", MATRIX, MATRIX),
    summed("bij,bjk->bik", normal(2, 3, 2), normal(2, 2, 3)),
    summed("...ij->...ji", normal(2, 3, 2)),
    summed("i,j->ij", normal(2), normal(3)),
    summed("ij->j", normal(2, 3)),
    summed("ij,j", normal(2, 3), normal(3)),
    summed("bi,bj,ij->b", normal(2, 3), normal(2, 2), normal(3, 2)),
)
