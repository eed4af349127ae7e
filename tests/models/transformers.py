"""A BERT-like encoder and a GPT-like decoder, node by node as exporters write them: shapes are computed, not given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tests.models.writing import Array, Ports, Writer

Norm = Literal["op", "decomposed"]
_LOWEST = float(np.finfo(np.float32).min)


def bert(
    batch: int = 1,
    length: int = 16,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    vocabulary: int = 100,
    context: int = 512,
    norm: Norm = "op",
    seed: int = 0,
) -> onnx.ModelProto:
    """An encoder: three embeddings, masked attention, Erf gelu, pooler.

    Inputs are input_ids, attention_mask and token_type_ids, int64[batch, length]; outputs last_hidden_state
    f32[batch, length, hidden] and pooler_output f32[batch, hidden].

    Args:
        context: Length of the longest text that there are positions for; weights do not depend on `length`.
        norm: "op" writes LayerNormalization, "decomposed" its parts from ReduceMean to Div, as before operator set 17.
    """
    w = Writer(seed)
    ids = "input_ids"
    x = w.op("Gather", w.normal(vocabulary, hidden), ids, axis=0)
    x = w.op("Add", x, w.op("Gather", w.normal(2, hidden), "token_type_ids", axis=0))
    places = w.constant(np.arange(context)[None])
    rows = w.op("Slice", places, w.constant([0]), w.size(ids, 1), w.constant([1]), w.constant([1]))
    x = w.op("Add", x, w.op("Gather", w.normal(context, hidden), rows, axis=0))
    x = _norm(w, x, hidden, norm)
    mask = _padding_mask(w, ids)
    for k in range(layers):
        last = "last_hidden_state" if k == layers - 1 else ""
        x = _norm(w, w.op("Add", _attention(w, x, mask, hidden, heads), x), hidden, norm)
        y = _gelu_erf(w, _dense(w, x, hidden, 4 * hidden))
        x = _norm(w, w.op("Add", _dense(w, y, 4 * hidden, hidden), x), hidden, norm, last)
    first = w.op("Gather", x, w.constant(0), axis=1)
    pooled = w.op("Gemm", first, w.weight(hidden, hidden, fan_in=hidden), w.normal(hidden, scale=0.1), transB=1)
    w.op("Tanh", pooled, name="pooler_output")
    ports: Ports = dict.fromkeys((ids, "attention_mask", "token_type_ids"), (np.int64, (batch, length)))
    results: Ports = {"last_hidden_state": (np.float32, (batch, length, hidden))}
    return w.model("bert", ports, {**results, "pooler_output": (np.float32, (batch, hidden))})


def _padding_mask(w: Writer, ids: str) -> str:
    """0 where a token may be looked at, the lowest float elsewhere: [batch, 1, length, length], through Expand."""
    mask = w.op("Unsqueeze", w.op("Unsqueeze", "attention_mask", w.constant([1])), w.constant([2]))
    wanted = w.op("Concat", w.size(ids, 0), w.constant([1]), w.size(ids, 1), w.size(ids, 1), axis=0)
    ones = w.op("ConstantOfShape", w.op("Shape", wanted), value=_value(1, np.int64))
    kept = w.op("Equal", wanted, w.op("Mul", ones, w.constant(-1)))
    full = w.op("Expand", mask, w.op("Where", kept, ones, wanted))
    absent = w.op("Sub", w.constant(1, np.float32), w.op("Cast", full, to=TensorProto.FLOAT))
    hidden = w.op("Cast", absent, to=TensorProto.BOOL)
    return w.op("Where", hidden, w.constant(_LOWEST, np.float32), absent)


def _attention(w: Writer, x: str, mask: str, hidden: int, heads: int) -> str:
    depth = hidden // heads

    def split(y: str, *perm: int) -> str:
        y = w.reshape(y, w.size(y, 0), w.size(y, 1), heads, depth)
        return w.op("Transpose", y, perm=perm)

    query, key, value = (_dense(w, x, hidden, hidden) for _ in range(3))
    scores = w.op("MatMul", split(query, 0, 2, 1, 3), split(key, 0, 2, 3, 1))
    scores = w.op("Add", w.op("Div", scores, w.constant(math.sqrt(depth), np.float32)), mask)
    found = w.op("MatMul", w.op("Softmax", scores, axis=-1), split(value, 0, 2, 1, 3))
    return _dense(w, _joined(w, found, hidden), hidden, hidden)


def _joined(w: Writer, x: str, hidden: int) -> str:
    x = w.op("Transpose", x, perm=(0, 2, 1, 3))
    return w.reshape(x, w.size(x, 0), w.size(x, 1), hidden)


def _dense(w: Writer, x: str, inner: int, outer: int) -> str:
    """MatMul and Add, as a linear layer on three axes is exported."""
    return w.op("Add", w.normal(outer, scale=0.1), w.op("MatMul", x, w.weight(inner, outer, fan_in=inner)))


def _norm(w: Writer, x: str, hidden: int, norm: Norm, name: str = "") -> str:
    scale, shift = w.normal(hidden, scale=0.1, around=1), w.normal(hidden, scale=0.1)
    if norm == "op":
        return w.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5, name=name)
    centred = w.op("Sub", x, w.op("ReduceMean", x, axes=[-1]))
    variance = w.op("ReduceMean", w.op("Pow", centred, w.constant(2, np.float32)), axes=[-1])
    root = w.op("Sqrt", w.op("Add", variance, w.constant(1e-5, np.float32)))
    return w.op("Add", w.op("Mul", w.op("Div", centred, root), scale), shift, name=name)


def _gelu_erf(w: Writer, x: str) -> str:
    raised = w.op("Add", w.op("Erf", w.op("Div", x, w.constant(math.sqrt(2), np.float32))), w.constant(1, np.float32))
    return w.op("Mul", w.op("Mul", x, raised), w.constant(0.5, np.float32))


def gpt(
    batch: int = 1,
    length: int = 16,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    vocabulary: int = 100,
    context: int = 512,
    past: int = 0,
    mask: Literal["where", "trilu"] = "where",
    seed: int = 0,
) -> onnx.ModelProto:
    """A decoder: causal attention, tanh gelu, logits through the transposed embedding.

    Inputs are input_ids int64[batch, length] and, with a past, past_K_key and past_K_value f32[batch, heads, past,
    hidden/heads] of every layer K; outputs logits f32[batch, length, vocabulary] and, with a past, present_K_key and
    present_K_value.

    Args:
        context: Length of the longest text that there are positions for; weights depend neither on `length` nor `past`.
        past: Tokens whose keys and values are given.
        mask: "where" slices a stored triangle and selects, "trilu" makes one of minus infinities and adds.
    """
    w = Writer(seed)
    depth = hidden // heads
    start, stop = w.constant([past]), w.op("Add", w.size("input_ids", 1), w.constant([past]))
    table = w.normal(vocabulary, hidden)
    rows = w.op("Slice", w.constant(np.arange(context)[None]), start, stop, w.constant([1]))
    x = w.op("Add", w.op("Gather", table, "input_ids"), w.op("Gather", w.normal(context, hidden), rows))
    triangle = _triangle(w, context, start, stop) if mask == "where" else _infinities(w, past, stop)
    for k in range(layers):
        y = _gemm(w, _norm(w, x, hidden, "op"), hidden, 3 * hidden)
        parts = w.ops("Split", y, w.constant([hidden] * 3), count=3, axis=2)
        parts = [w.reshape(p, w.size(p, 0), w.size(p, 1), heads, depth) for p in parts]
        query, key, value = (w.op("Transpose", p, perm=(0, 2, 1, 3)) for p in parts)
        if past:
            key = w.op("Concat", f"past_{k}_key", key, axis=-2, name=f"present_{k}_key")
            value = w.op("Concat", f"past_{k}_value", value, axis=-2, name=f"present_{k}_value")
        scores = w.op("MatMul", query, w.op("Transpose", key, perm=(0, 1, 3, 2)))
        scores = w.op("Div", scores, w.constant(math.sqrt(depth), np.float32))
        if mask == "where":
            scores = w.op("Where", triangle, scores, w.constant(_LOWEST, np.float32))
        else:
            scores = w.op("Add", scores, triangle)
        found = w.op("MatMul", w.op("Softmax", scores, axis=-1), value)
        x = w.op("Add", _gemm(w, _joined(w, found, hidden), hidden, hidden), x)
        y = _gelu_tanh(w, _gemm(w, _norm(w, x, hidden, "op"), hidden, 4 * hidden))
        x = w.op("Add", x, _gemm(w, y, 4 * hidden, hidden))
    w.op("MatMul", _norm(w, x, hidden, "op"), w.op("Transpose", table, perm=(1, 0)), name="logits")
    ports: dict[str, tuple[type, Sequence[int | str]]] = {"input_ids": (np.int64, (batch, length))}
    results: dict[str, tuple[type, Sequence[int | str]]] = {"logits": (np.float32, (batch, length, vocabulary))}
    for k in range(layers if past else 0):
        for name in ("key", "value"):
            ports[f"past_{k}_{name}"] = (np.float32, (batch, heads, past, depth))
            results[f"present_{k}_{name}"] = (np.float32, (batch, heads, past + length, depth))
    return w.model("gpt", ports, results)


def _triangle(w: Writer, size: int, start: str, stop: str) -> str:
    """Which keys a query may look at, cut from a triangle that is stored for the longest text."""
    stored = w.constant(np.tril(np.ones((size, size), np.bool_))[None, None], np.bool_)
    rows = w.op("Slice", stored, start, stop, w.constant([2]), w.constant([1]))
    return w.op("Slice", rows, w.constant([0]), stop, w.constant([3]), w.constant([1]))


def _infinities(w: Writer, past: int, stop: str) -> str:
    """0 where a query may look, minus infinity elsewhere."""
    count = w.size("input_ids", 1)
    full = w.op("ConstantOfShape", w.op("Concat", count, stop, axis=0), value=_value(-np.inf, np.float32))
    return w.op("Trilu", full, w.constant(past + 1), upper=1)


def _gemm(w: Writer, x: str, inner: int, outer: int) -> str:
    """A linear layer as Gemm on two axes, between two reshapes."""
    flat = w.op("Gemm", w.reshape(x, -1, inner), w.weight(inner, outer, fan_in=inner), w.normal(outer, scale=0.1))
    return w.reshape(flat, w.size(x, 0), w.size(x, 1), outer)


def _gelu_tanh(w: Writer, x: str) -> str:
    cubic = w.op("Mul", w.op("Pow", x, w.constant(3, np.float32)), w.constant(0.044715, np.float32))
    inner = w.op("Mul", w.op("Add", x, cubic), w.constant(math.sqrt(2 / math.pi), np.float32))
    raised = w.op("Add", w.op("Tanh", inner), w.constant(1, np.float32))
    return w.op("Mul", w.op("Mul", x, w.constant(0.5, np.float32)), raised)


def _value(value: float, dtype: Any) -> onnx.TensorProto:
    array: Array = np.array([value], dtype)
    return numpy_helper.from_array(array)
