"""A decoder of today's kind, as exporters write it: RMS norms, rotary positions, grouped queries, gated units.

Norms and softmax are computed in single precision, between two casts, whatever the model's type is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import ml_dtypes
import numpy as np
import onnx

from tests.models.writing import Array, Writer

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Llama:
    """Sizes of a decoder.

    Attributes:
        hidden: Width of the residual stream.
        inner: Width of the gated unit.
        layers: Number of blocks.
        heads: Number of query heads.
        groups: Number of key and value heads, which divides `heads`.
        vocabulary: Number of tokens.
        length: Tokens that one call takes.
        past: Tokens whose keys and values are given.
        dtype: Type of weights and activations: float32, float16 or bfloat16.
        block: Weights of products are int4 with a scale for so many elements of a column; 0: of the type itself.
        bits: How they are stored: "" as DequantizeLinear, "symmetric" or "zero points" as MatMulNBits.
        seed: Of the random weights, which are the same numbers for every type but for rounding.
    """

    hidden: int = 64
    inner: int = 176
    layers: int = 2
    heads: int = 4
    groups: int = 2
    vocabulary: int = 100
    length: int = 16
    past: int = 0
    dtype: Any = np.float32
    block: int = 0
    bits: Literal["", "symmetric", "zero points"] = ""
    seed: int = 0

    @property
    def depth(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads

    def model(self, data: Path | None = None) -> onnx.ModelProto:
        """Inputs are input_ids int64[1, length] and past_K_key, past_K_value [1, groups, past, depth] of every layer K
        where there is a past; outputs logits [1, length, vocabulary] and present_K_key, present_K_value.

        Args:
            data: File for the weights, beside which the model will lie; None: they are in the model.
        """
        return _Decoder(self, data).model()


class _Decoder:
    def __init__(self, sizes: Llama, data: Path | None) -> None:
        self.s, self.w = sizes, Writer(sizes.seed, data)
        self.code = int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(sizes.dtype)))
        last = sizes.past + sizes.length
        angles = np.arange(sizes.past, last)[:, None] / 10000.0 ** (np.arange(0, sizes.depth, 2) / sizes.depth)
        turns = np.concatenate([angles, angles], axis=1)[None, None]
        self.cos, self.sin = self.constant(np.cos(turns)), self.constant(np.sin(turns))
        hidden = np.triu(np.full((sizes.length, last), -np.inf), sizes.past + 1)[None, None]
        limits: Any = cast("Any", ml_dtypes.finfo)(sizes.dtype)
        self.mask = self.constant(np.maximum(hidden, float(limits.min)))

    def constant(self, value: Any) -> str:
        """A constant of the model's type."""
        return self.w.constant(np.asarray(value, np.float32).astype(self.s.dtype), self.s.dtype)

    def weight(self, *shape: int, fan_in: int) -> str:
        """A random weight whose products with unit activations have unit variance."""
        values = self.w.random.standard_normal(shape, np.float32) / np.float32(math.sqrt(fan_in))
        if self.s.block and fan_in > 1:
            return self.quantised(values)
        return self.w.constant(values.astype(self.s.dtype), self.s.dtype, f"weight_{len(self.w.stored)}")

    def quantised(self, values: Array) -> str:
        """A matrix in int4, as it is computed back."""
        w, size = self.w, self.s.block
        blocks = values.reshape(len(values) // size, size, -1)
        scales = np.abs(blocks).max(axis=1) / np.float32(7)
        whole = np.rint(blocks / scales[:, None]).reshape(values.shape).astype(ml_dtypes.int4)
        given = (
            w.constant(whole, ml_dtypes.int4, f"weight_{len(w.stored)}"),
            w.constant(scales.astype(self.s.dtype), self.s.dtype, f"scale_{len(w.stored)}"),
        )
        return w.op("DequantizeLinear", *given, axis=0, block_size=size)

    def cast(self, x: str, to: int) -> str:
        """A cast; none where the model is in single precision anyway."""
        return x if self.code == onnx.TensorProto.FLOAT else self.w.op("Cast", x, to=to)

    def product(self, x: str, inner: int, outer: int) -> str:
        """x · a weight [inner, outer]"""
        if self.s.block and self.s.bits:
            return self.in_blocks(x, inner, outer)
        return self.w.op("MatMul", x, self.weight(inner, outer, fan_in=inner))

    def in_blocks(self, x: str, inner: int, outer: int) -> str:
        """The same with a weight of random nibbles, two of a column in a byte."""
        w, size = self.w, self.s.block
        blocks = inner // size
        number = len(w.stored)
        nibbles = w.random.integers(0, 256, (outer, blocks, size // 2), np.uint8)
        scales = w.random.uniform(0.5, 1.5, (outer, blocks)) / (4.6 * math.sqrt(inner))  # 4.6: of 0 to 15, around 7.5
        given = [
            w.constant(nibbles, np.uint8, f"weight_{number}"),
            w.constant(scales.astype(self.s.dtype), self.s.dtype, f"scale_{number}"),
        ]
        if self.s.bits == "zero points":
            zeros = w.random.integers(0, 256, (outer, -(-blocks // 2)), np.uint8)
            given.append(w.constant(zeros, np.uint8, f"zero_{number}"))
        return w.op("MatMulNBits", x, *given, domain="com.microsoft", K=inner, N=outer, bits=4, block_size=size)

    def norm(self, x: str) -> str:
        """x / sqrt(mean(x²) + ε) · w"""
        w = self.w
        wide = self.cast(x, onnx.TensorProto.FLOAT)
        mean = w.op("ReduceMean", w.op("Pow", wide, w.constant(2, np.float32)), w.constant([-1]), keepdims=1)
        root = w.op("Sqrt", w.op("Add", mean, w.constant(1e-5, np.float32)))
        scaled = w.op("Mul", wide, w.op("Reciprocal", root))
        gain = 1 + 0.1 * w.random.standard_normal(self.s.hidden, np.float32)
        return w.op("Mul", self.constant(gain), self.cast(scaled, self.code))

    def heads(self, x: str, count: int) -> str:
        """[1, length, count·depth] → [1, count, length, depth]"""
        parts = self.w.reshape(x, 1, self.s.length, count, self.s.depth)
        return self.w.op("Transpose", parts, perm=(0, 2, 1, 3))

    def rotary(self, x: str) -> str:
        """x·cos + (-x₂, x₁)·sin with the halves x₁, x₂ of x."""
        w, half = self.w, self.s.depth // 2
        axis, step = w.constant([3]), w.constant([1])
        first = w.op("Slice", x, w.constant([0]), w.constant([half]), axis, step)
        second = w.op("Slice", x, w.constant([half]), w.constant([self.s.depth]), axis, step)
        turned = w.op("Concat", w.op("Neg", second), first, axis=-1)
        return w.op("Add", w.op("Mul", x, self.cos), w.op("Mul", turned, self.sin))

    def repeated(self, x: str) -> str:
        """[1, groups, n, depth] → [1, heads, n, depth]"""
        s, w = self.s, self.w
        n = s.past + s.length
        each = w.op("Unsqueeze", x, w.constant([2]))
        wide = w.op("Expand", each, w.constant([1, s.groups, s.heads // s.groups, n, s.depth]))
        return w.reshape(wide, 1, s.heads, n, s.depth)

    def attention(self, x: str, layer: int) -> str:
        """Grouped causal attention over the past and what is given."""
        s, w = self.s, self.w
        wide, narrow = s.heads * s.depth, s.groups * s.depth
        query = self.rotary(self.heads(self.product(x, s.hidden, wide), s.heads))
        key = self.heads(self.product(x, s.hidden, narrow), s.groups)
        value = self.heads(self.product(x, s.hidden, narrow), s.groups)
        key = self.rotary(key)
        if s.past:
            key = w.op("Concat", f"past_{layer}_key", key, axis=-2, name=f"present_{layer}_key")
            value = w.op("Concat", f"past_{layer}_value", value, axis=-2, name=f"present_{layer}_value")
        scores = w.op("MatMul", query, w.op("Transpose", self.repeated(key), perm=(0, 1, 3, 2)))
        scores = w.op("Add", w.op("Mul", scores, self.constant(s.depth**-0.5)), self.mask)
        weights = self.cast(w.op("Softmax", self.cast(scores, onnx.TensorProto.FLOAT), axis=-1), self.code)
        found = w.op("Transpose", w.op("MatMul", weights, self.repeated(value)), perm=(0, 2, 1, 3))
        return self.product(w.reshape(found, 1, s.length, wide), wide, s.hidden)

    def unit(self, x: str) -> str:
        """silu(x·a) ⊙ (x·b) · c"""
        s, w = self.s, self.w
        gate = self.product(x, s.hidden, s.inner)
        gate = w.op("Mul", gate, w.op("Sigmoid", gate))
        up = self.product(x, s.hidden, s.inner)
        return self.product(w.op("Mul", gate, up), s.inner, s.hidden)

    def model(self) -> onnx.ModelProto:
        s, w = self.s, self.w
        x = w.op("Gather", self.weight(s.vocabulary, s.hidden, fan_in=1), "input_ids", axis=0)
        for layer in range(s.layers):
            x = w.op("Add", x, self.attention(self.norm(x), layer))
            x = w.op("Add", x, self.unit(self.norm(x)))
        w.op("Identity", self.product(self.norm(x), s.hidden, s.vocabulary), name="logits")
        ports: dict[str, tuple[Any, Sequence[int | str]]] = {"input_ids": (np.int64, (1, s.length))}
        results: dict[str, tuple[Any, Sequence[int | str]]] = {"logits": (s.dtype, (1, s.length, s.vocabulary))}
        for layer in range(s.layers if s.past else 0):
            for name in ("key", "value"):
                ports[f"past_{layer}_{name}"] = (s.dtype, (1, s.groups, s.past, s.depth))
                results[f"present_{layer}_{name}"] = (s.dtype, (1, s.groups, s.past + s.length, s.depth))
        return w.model("llama", ports, results, opset=21)
