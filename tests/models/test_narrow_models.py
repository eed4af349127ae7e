"""Decoders in float16 and bfloat16: near to what exact arithmetic gives, and two bytes for each weight."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models.building import Bench, reference
from tests.models.llama import BFLOAT16, Llama
from tests.models.writing import Array

SIZES = {
    "prefill": Llama(length=9),
    "decode": Llama(length=1, past=13),
    "odd sizes": Llama(hidden=66, inner=101, heads=3, groups=1, vocabulary=37, length=5, past=2),
}


def feeds(sizes: Llama) -> dict[str, Array]:
    random = np.random.default_rng(1)
    found: dict[str, Array] = {"input_ids": random.integers(0, sizes.vocabulary, (1, sizes.length))}
    for layer in range(sizes.layers if sizes.past else 0):
        for name in ("key", "value"):
            past = random.standard_normal((1, sizes.groups, sizes.past, sizes.depth), np.float32)
            found[f"past_{layer}_{name}"] = past.astype(sizes.dtype)
    return found


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float, its narrow weights included, as a double: what it would compute without rounding."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    floats = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}
    for tensor in wide.graph.initializer:
        if tensor.data_type in floats:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for port in (*wide.graph.input, *wide.graph.output):
        if port.type.tensor_type.elem_type in floats:
            port.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in wide.graph.node:
        if node.op_type == "Cast":
            node.attribute[0].CopyFrom(helper.make_attribute("to", TensorProto.DOUBLE))
    return wide


def error(got: Array, exact: Array) -> float:
    return float(np.max(np.abs(got.astype(np.float64) - exact)) / np.max(np.abs(exact)))


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("case", SIZES)
def test_errors_are_a_few_roundings(case: str, dtype: Any, bench: Bench, place: Path) -> None:
    sizes = replace(SIZES[case], dtype=dtype)
    model, given = sizes.model(), feeds(sizes)
    built = bench.compile(model, place, target="c{flags=-O0}")
    got = built(given)
    assert all(v.dtype == dtype for v in got.values())
    wide = place / "wide.onnx"
    wide.write_bytes(in_double(model).SerializeToString())
    exact = reference(wide, {k: v.astype(np.float64) if v.dtype == dtype else v for k, v in given.items()})
    unit = 2.0**-11 if dtype is np.float16 else 2.0**-8
    for name, want in exact.items():
        assert error(got[name], want) < 4 * unit, name


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=["float16", "bfloat16"])
def test_weights_take_two_bytes(dtype: Any, bench: Bench, place: Path) -> None:
    sizes = Llama(hidden=128, inner=352, dtype=dtype)
    built = bench.compile(sizes.model(), place, target="c{flags=-O0}")
    manifest = json.loads((built.directory / "manifest.json").read_text())
    elements = sum(int(np.prod(t.dims)) for t in sizes.model().graph.initializer if t.data_type != TensorProto.INT64)
    (weights,) = built.directory.glob("*_weights.bin")
    assert manifest
    assert weights.stat().st_size < 2 * elements * 1.05 + 4096


def test_weights_of_int4_take_half_a_byte(bench: Bench, place: Path) -> None:
    sizes = Llama(hidden=128, inner=352, length=3, block=32)
    model, given = sizes.model(), feeds(sizes)
    built = bench.compile(model, place, target="c{flags=-O0}")
    packed = [t for t in model.graph.initializer if t.data_type == TensorProto.INT4]
    others = sum(len(t.raw_data) for t in model.graph.initializer if t not in packed)
    (weights,) = built.directory.glob("*_weights.bin")
    assert weights.stat().st_size < sum(int(np.prod(t.dims)) for t in packed) / 2 + others * 1.1 + 4096
    want = reference(built.source, given, optimised=False)  # which would quantise the other factor too
    assert error(built(given)["logits"], want["logits"].astype(np.float64)) < 1e-4
