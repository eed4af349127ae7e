"""A small Llama as the model builder of onnxruntime-genai writes it: 4-bit weights, grouped queries, fused norms.

input_ids [B, S], attention_mask [B, P + S], past_key_values.K.key/value [B, heads, P, size]
→ logits [B, S, vocabulary], present.K.key/value
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = Any
DOMAIN = "com.microsoft"
VOCABULARY, HIDDEN, INNER, LAYERS, HEADS, SHARED, SIZE, BLOCK, CONTEXT = 48, 64, 96, 2, 4, 2, 16, 16, 32


@dataclass
class Builder:
    """Nodes and weights so far."""

    dtype: Any
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    stored: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])

    def weight(self, array: Array) -> str:
        """An initializer."""
        name = f"w{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        """A node."""
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"n{len(self.nodes)}", domain=domain, **attributes))
        return names

    def matmul(self, x: str, k: int, n: int) -> str:
        """A product with weights of 4 bits, with zero points."""
        blocks = -(-k // BLOCK)
        packed = self.rng.integers(0, 256, (n, blocks, BLOCK // 2), np.uint8)
        scales = (self.rng.random((n, blocks)) * 0.02 + 0.005).astype(self.dtype)
        zeros = self.rng.integers(0, 256, (n, -(-blocks // 2)), np.uint8)
        given = [x, self.weight(packed), self.weight(scales), self.weight(zeros)]
        sizes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK}
        return self.node("MatMulNBits", given, domain=DOMAIN, **sizes)[0]

    def vector(self) -> str:
        """The weight of a norm."""
        return self.weight((1 + 0.1 * self.rng.standard_normal(HIDDEN)).astype(self.dtype))


def llama(batch: int, length: int, past: int, dtype: Any = np.float32) -> onnx.ModelProto:
    """The model for a batch of `length` new tokens behind `past` others; a past of 0 is a prompt."""
    b = Builder(dtype)
    one, ones, axis = b.weight(np.array(1)), b.weight(np.array([1])), b.weight(np.array([1]))
    (total,) = b.node("Gather", [b.node("Shape", ["attention_mask"])[0], one], axis=0)
    (total,) = b.node("Cast", [total], to=TensorProto.INT32)
    (sums,) = b.node("ReduceSum", ["attention_mask", axis], keepdims=0)
    (seqlens,) = b.node("Cast", [b.node("Sub", [sums, ones])[0]], to=TensorProto.INT32)
    angles = np.outer(np.arange(CONTEXT), 100.0 ** -np.linspace(0, 1, SIZE // 2))
    cos, sin = (b.weight(table(angles).astype(dtype)) for table in (np.cos, np.sin))
    table = b.weight(b.rng.standard_normal((VOCABULARY, HIDDEN)).astype(dtype))
    (x,) = b.node("Gather", [table, "input_ids"], axis=0)
    (y,) = b.node("SimplifiedLayerNormalization", [x, b.vector()], epsilon=1e-5, axis=-1)
    presents: list[tuple[str, str]] = []
    for layer in range(LAYERS):
        qkv = b.matmul(y, HIDDEN, (HEADS + 2 * SHARED) * SIZE)
        cache = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")] if past else ["", ""]
        given = [qkv, "", "", *cache, seqlens, total, cos, sin]
        heads = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1}
        mixed, key, value = b.node("GroupQueryAttention", given, 3, DOMAIN, **heads)
        presents.append((key, value))
        y, x = _skip(b, x, b.matmul(mixed, HIDDEN, HIDDEN))
        gate, up = b.matmul(y, HIDDEN, INNER), b.matmul(y, HIDDEN, INNER)
        (gate,) = b.node("Mul", [gate, b.node("Sigmoid", [gate])[0]])
        y, x = _skip(b, x, b.matmul(b.node("Mul", [gate, up])[0], INNER, HIDDEN))
    b.nodes.append(helper.make_node("Identity", [b.matmul(y, HIDDEN, VOCABULARY)], ["logits"]))
    return _finished(b, batch, length, past, presents)


def _skip(b: Builder, x: str, y: str) -> tuple[str, str]:
    """The norm of a sum, and the sum."""
    given = [x, y, b.vector()]
    normal, _, _, total = b.node("SkipSimplifiedLayerNormalization", given, 4, DOMAIN, epsilon=1e-5)
    b.nodes[-1].output[1] = b.nodes[-1].output[2] = ""
    return normal, total


def _finished(b: Builder, batch: int, length: int, past: int, presents: Sequence[tuple[str, str]]) -> onnx.ModelProto:
    kind, whole = helper.np_dtype_to_tensor_dtype(np.dtype(b.dtype)), TensorProto.INT64
    info = helper.make_tensor_value_info
    inputs = [info("input_ids", whole, [batch, length]), info("attention_mask", whole, [batch, past + length])]
    outputs = [info("logits", kind, [batch, length, VOCABULARY])]
    for layer, pair in enumerate(presents):
        for name, value in zip(("key", "value"), pair, strict=True):
            if past:
                inputs.append(info(f"past_key_values.{layer}.{name}", kind, [batch, SHARED, past, SIZE]))
            b.nodes.append(helper.make_node("Identity", [value], [f"present.{layer}.{name}"]))
            outputs.append(info(f"present.{layer}.{name}", kind, [batch, SHARED, past + length, SIZE]))
    graph = helper.make_graph(b.nodes, "llama", inputs, outputs, b.stored)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)
