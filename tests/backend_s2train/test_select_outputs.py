"""Outputs that are the same value, views of it, inputs and constants: each comes out by its name and in its shape."""

from __future__ import annotations

import numpy as np
import pytest

from dlc import DlcError
from dlc.graph import Constant, Op, Tensor
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.selected import Model, instructions, select, simulated


def test_one_value_under_several_names_and_shapes() -> None:
    model = Model()
    y = model.relu(model.x(2, 3, 4, 4))
    graph = select(model.graph(y, model.flat(y), y, names=("map", "features", "again")))
    values = halves(0, 2, 3, 4, 4)
    found = simulated(graph, {"x": values})
    wanted = np.maximum(values, 0)
    np.testing.assert_array_equal(found["map"], wanted)
    np.testing.assert_array_equal(found["again"], wanted)
    np.testing.assert_array_equal(found["features"], wanted.reshape(2, 48))
    # The second shape is a copy, the second name is not.
    assert [op.opcode for op in instructions(graph)] == ["eltwise", "copy"]


def test_inputs_and_constants() -> None:
    model = Model()
    x = model.x(1, 3, 4, 4)
    k = model.constant("k", np.arange(6).reshape(2, 3))
    outputs: tuple[Op, ...] = model.relu(x), x, model.flat(x), k, x
    found = simulated(select(model.graph(*outputs, names=("y", "x1", "flat", "k1", "x2"))), {"x": halves(0, *x.shape)})
    values = halves(0, *x.shape)
    for name in ("x1", "x2"):
        np.testing.assert_array_equal(found[name], values)
    np.testing.assert_array_equal(found["flat"], values.reshape(1, 48))
    np.testing.assert_array_equal(found["k1"], np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(found["y"], np.maximum(values, 0))


@pytest.mark.parametrize("fallback", ["none", "host"])
def test_constants_of_integers_are_refused(fallback: str) -> None:
    model = Model()
    shape = Constant(Tensor.of(np.array([1, 3])))
    graph = model.graph(model.relu(model.x(1, 3)), shape, names=("y", "shape"))
    with pytest.raises(DlcError, match="output shape is a constant of i64: the device gives floats") as refused:
        select(graph, fallback=fallback)
    assert refused.value.diagnostics[0].help == "leave it out of the model's outputs"
