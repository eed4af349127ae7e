"""Samples of ops on narrow floats: those that add up, found by their kernels, their values, and errors in units."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import numpy as np

from dlc.base.types import DType, Type, f32
from dlc.graph import Graph, Input, Op, evaluate, toposort
from dlc.graph.floats import in_double
from dlc.graph.gradient import gradients
from dlc.kernel.kernel import Kernel
from dlc.passes.lower import lower_op
from tests.ops.samples import feed, samples

Array = Any
LARGEST = 6e4
"""Values of f16 end at 65,504."""


def adds_up(kernel: Kernel) -> bool:
    """Whether a kernel has a sum or a product of floats that rounds."""
    return any(n.reduce in ("add", "mul") and kernel.tensors[n.out].dtype.is_float for n in kernel.nests)


@cache  # inputs of samples have new names in every list
def reducing() -> tuple[Op, ...]:
    """The samples, in f32, whose loops add up or multiply, of f32 alone."""
    found: list[Op] = []
    for op in samples():
        floats = [x for x in toposort((op,)) if isinstance(x, Input) and x.dtype.is_float]
        if floats and op.type.capacity and all(x.dtype is f32 for x in floats) and adds_up(lower_op(op).body):
            found.append(op)
    return tuple(found)


def of_type(op: Op, dtype: DType) -> Op:
    """The op with `dtype` in place of f32."""

    def attribute(value: Any) -> Any:
        if isinstance(value, Type):
            return Type(attribute(value.dtype), value.shape)
        return dtype if value is f32 else value

    new: dict[Op, Op] = {}
    for x in toposort((op,)):
        operands = {
            name: None if v is None else tuple(new[o] for o in v) if isinstance(v, tuple) else new[v]
            for name, v in x.operand_fields()
        }
        new[x] = type(x)(**operands, **{name: attribute(value) for name, value in x.attrs.items()})
    return new[op]


def inputs_of(op: Op) -> tuple[Input, ...]:
    return tuple(x for x in toposort((op,)) if isinstance(x, Input))


def with_gradients(ops: list[Op]) -> Graph:
    """A graph of the ops and of their gradients by all of their floats, each for a cotangent of its own."""
    inputs: dict[Input, None] = {}
    outputs: dict[str, Op] = {}
    for k, op in enumerate(ops):
        own = inputs_of(op)
        inputs |= dict.fromkeys(own)
        outputs[f"{op.text_name} {k}"] = op
        if op.dtype.is_float:
            seed = Input(f"cotangent {k}", op.type)
            wrt = [x for x in own if x.dtype.is_float]
            inputs[seed] = None
            found = gradients((op,), (seed,), wrt)
            outputs |= {f"{op.text_name} {k} by operand {n}": g for n, g in enumerate(found)}
    return Graph(tuple(inputs), tuple(outputs.values()), tuple(outputs))


def values(ops: list[Op], dtype: DType, magnitude: float) -> dict[str, Array]:
    """Values of the inputs of `with_gradients(ops)`, of ops of f32: elements of `dtype` of about this magnitude."""
    found: dict[str, Array] = {}
    for k, op in enumerate(ops):
        given = feed(op)
        for x in inputs_of(op):
            value = given[x.name]
            if x.dtype.is_float:
                plain = x.name.rstrip("0123456789") in ("", "positive")
                scale = min(magnitude, LARGEST / max(float(np.max(np.abs(value), initial=0.0)), 1e-9)) if plain else 1.0
                value = (value * scale).astype(dtype.numpy)
            found[x.name] = value
        if not op.dtype.is_float:
            continue
        seed = np.random.default_rng(k).standard_normal(op.shape)
        found[f"cotangent {k}"] = seed.astype(dtype.numpy)
    return found


def as_floats(given: Mapping[Any, Array], numpy: Any) -> dict[Any, Array]:
    """The same values in another floating point type; what is no float as it is."""
    return {k: v if v.dtype.kind in "iub" else v.astype(numpy) for k, v in given.items()}


def evaluated(graph: Graph, given: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a graph for those of the values that are its inputs'."""
    return evaluate(graph, {i.name: given[i.name] for i in graph.inputs})


def own_errors(graph: Graph, given: Mapping[str, Array], names: Collection[str]) -> dict[str, Array]:
    """How far some outputs of a graph of f32 are from those of f64."""
    kept = {name: op for name, op in zip(graph.names, graph.outputs, strict=True) if name in names}
    part = Graph(graph.inputs, tuple(kept.values()), tuple(kept))
    single = evaluated(part, as_floats(given, np.float32))
    double = evaluated(in_double(part), as_floats(given, np.float64))
    with np.errstate(all="ignore"):
        return {k: np.abs(single[k] - double[k]) for k in single}


def wrong(
    got: Mapping[str, Array], graph: Graph, given: Mapping[str, Array], dtype: DType, single: Mapping[str, Array]
) -> dict[str, float]:
    """Outputs that are more than one unit away from those of `graph`, which is of f32, with the largest distance.

    Where f32 is itself wrong by a part of such a unit, because a difference of large values is small, another order of
    its sums gives another result: twice its own error is allowed.
    """
    floats = {k for k, v in single.items() if v.dtype.kind == "f"}
    zero = np.zeros(())
    far = {k for k in floats if _largest(errors(got[k], single[k], zero, dtype)) > 1}
    own = own_errors(graph, given, far) if far else {}
    found = {k: _largest(errors(got[k], single[k], own[k], dtype)) for k in far}
    return {k: v for k, v in found.items() if v > 1}


def _largest(found: Array) -> float:
    return float(np.max(found, initial=0.0))


def errors(got: Array, single: Array, own: Array, dtype: DType) -> Array:
    """How far values of a narrow float are from f32's, rounded once, in units of the last place, beyond twice `own`."""
    assert dtype.format is not None
    with np.errstate(all="ignore"):
        want = single.astype(dtype.numpy).astype(np.float64)
        seen = got.astype(np.float64)
        smallest = 2.0 ** (1 - dtype.format.bias)
        unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(want), smallest))) - dtype.format.fraction)
        far = np.abs(seen - want) - 2 * np.nan_to_num(own)
        same = (seen == want) | (np.isnan(seen) & np.isnan(want))
        # At the largest values a unit more is an infinity.
        edge = np.abs(single.astype(np.float64)) >= float(dtype.format.largest) * (1 - 2.0**-dtype.format.fraction)
        near = edge & (np.sign(seen) == np.sign(want)) & (np.abs(seen) >= float(dtype.format.largest) * (1 - 2.0**-8))
        return np.where(same | near, 0.0, np.where(np.isfinite(seen) & np.isfinite(want), far / unit, np.inf))
