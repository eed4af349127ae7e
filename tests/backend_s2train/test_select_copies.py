"""Concatenations and slices as copies of runs, against torch; what copies do not do is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dlc import DlcError
from dlc.graph import Op
from dlc.ops.shape import Concat, Reshape, Slice, Transpose
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.selected import Model, instructions, select, simulated


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("n", [1, 2])
def test_concatenation(n: int, axis: int) -> None:
    model = Model()
    shape = (n, 3, 4, 5)
    xs = [model.x(*shape[:axis], extent, *shape[axis + 1 :], name=f"x{extent}") for extent in (2, 3, 1)]
    # A relu before and behind: values in the device's memory on both sides.
    graph = model.graph(model.relu(Concat(tuple(model.relu(x) for x in xs), axis=axis)))
    given = {x.name: halves(k, *x.shape) for k, x in enumerate(xs)}
    found = simulated(select(graph), given)["scores"]
    tensors: list[Any] = [torch.tensor(values) for values in given.values()]
    wanted = torch.cat(tensors, axis).relu().numpy()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("starts", [(0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 2, 0)], ids=str)
def test_slice(starts: tuple[int, ...]) -> None:
    model = Model()
    x = model.x(2, 3, 4, 5)
    sizes = tuple(e - s for e, s in zip(x.shape, starts, strict=True))
    graph = model.graph(model.relu(Slice(model.relu(x), starts, sizes)))
    values = halves(0, *x.shape)
    part = values[tuple(slice(s, None) for s in starts)]
    np.testing.assert_array_equal(simulated(select(graph), {"x": values})["scores"], np.maximum(part, 0))


def test_shuffle() -> None:
    """Six channels in two groups of three: 0 3 1 4 2 5."""
    model = Model()
    x = model.x(2, 6, 4, 5)
    turned = Transpose(Reshape(model.relu(x), to=(2, 2, 3, 4, 5)), (0, 2, 1, 3, 4))
    graph = select(model.graph(model.relu(Reshape(turned, to=(2, 6, 4, 5)))))
    values = halves(0, *x.shape)
    wanted = np.maximum(values[:, [0, 3, 1, 4, 2, 5]], 0)
    np.testing.assert_array_equal(simulated(graph, {"x": values})["scores"], wanted)


@pytest.mark.parametrize("perm", [(1, 0, 2, 3), (2, 1, 0, 3), (2, 0, 1, 3), (1, 2, 0, 3)], ids=str)
def test_transposition(perm: tuple[int, ...]) -> None:
    model = Model()
    graph = select(model.graph(model.relu(Transpose(model.x(2, 3, 4, 16), perm))))
    values = halves(0, 2, 3, 4, 16)
    found = simulated(graph, {"x": values})["scores"]
    np.testing.assert_array_equal(found, np.maximum(values.transpose(perm), 0))


def test_one_op_of_several_instructions() -> None:
    model = Model()
    x = model.x(2, 3, 4, 5)
    (copy,) = instructions(select(model.graph(Concat((x, x), axis=1))))
    assert (copy.opcode, len(copy.reads), len(copy.writes)) == ("copy", 4, 1)


def _strided(x: Op) -> Op:
    return Slice(x, (0, 0), (300, 2), (1, 2))


def _corner(x: Op) -> Op:
    return Slice(x, (1, 1), (2, 2))


def _rows(x: Op) -> Op:
    return Concat((x, x), axis=1)


def _elements(x: Op) -> Op:
    return Transpose(x, (1, 0))


REFUSED = [
    pytest.param(_strided, "whole rows", id="strided"),
    pytest.param(_corner, "whole rows", id="corner"),
    pytest.param(_rows, "1,200 copies", id="rows"),
    pytest.param(_elements, "2,400 runs of 1", id="elements"),
]


@pytest.mark.parametrize(("make", "why"), REFUSED)
def test_what_copies_do_not_do(make: Callable[[Op], Op], why: str) -> None:
    model = Model()
    with pytest.raises(DlcError, match=why):
        select(model.graph(make(model.x(600, 4))))
