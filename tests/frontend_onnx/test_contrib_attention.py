"""Attention operators of onnxruntime (com.microsoft) against onnxruntime, interpreted and as compiled C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from dlc import DlcError
from dlc.graph import evaluate
from tests.frontend_onnx.building import parse
from tests.frontend_onnx.contrib import Array, Case, compiled, equal, interpreted

RNG = np.random.default_rng(7)
B, N, S, H = 2, 4, 5, 8
D = N * H


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def i(*values: int) -> Array:
    return np.array(values, np.int32)


def flags(*shape: int) -> Array:
    """Masks of which every row has a key."""
    found = (RNG.random(shape) > 0.4).astype(np.int32)
    found[..., 0] = 1
    return found


def q(kind: Any, *shape: int) -> Array:
    return RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)


TWO, THREE = (True, True), (True, True, True)
X, W, BIAS = f(B, S, 12), f(12, 3 * D) * np.float32(0.3), f(3 * D)
PAST = f(2, B, N, 3, H)
HEADS: dict[str, Any] = {"num_heads": N}
CAUSAL: dict[str, Any] = {"num_heads": N, "unidirectional": 1}
ATTENTION = [
    Case("Attention", [X, W, BIAS], HEADS, fixed=(1, 2)),
    Case("Attention", [X, W, BIAS], CAUSAL, fixed=(1, 2)),
    Case("Attention", [X, W, BIAS, flags(B, S)], HEADS, fixed=(1, 2)),
    Case("Attention", [X, W, BIAS, flags(B, S)], {**CAUSAL, "mask_filter_value": -50.0}, fixed=(1, 2)),
    Case("Attention", [X, W, BIAS, flags(B, S, S)], CAUSAL, fixed=(1, 2)),
    Case("Attention", [X, W, BIAS, i(3, 5)], HEADS, fixed=(1, 2)),
    Case("Attention", [X, W, BIAS, i(4, 5, 1, 0)], HEADS, fixed=(1, 2)),
    Case("Attention", [X, W, BIAS, None, PAST], CAUSAL, fixed=(1, 2), outputs=TWO),
    Case("Attention", [X, W, BIAS, flags(B, S + 3), PAST], CAUSAL, fixed=(1, 2), outputs=TWO),
    Case("Attention", [X, W, BIAS, None, None, f(B, N, S, S)], {**HEADS, "scale": 0.2}, fixed=(1, 2)),
    Case("Attention", [X, W, BIAS, None, None, f(1, 1, S, S)], HEADS, fixed=(1, 2), outputs=TWO),
    Case("Attention", [X, f(12, 2 * 16 + 24), f(56)], {**HEADS, "qkv_hidden_sizes": [16, 16, 24]}, fixed=(1, 2)),
    *(
        Case(
            "QAttention",
            [q(np.uint8, B, S, 12), q(kind, 12, 3 * D), BIAS, np.float32(0.02), scale, mask, np.uint8(120), zero, past],
            {**HEADS, "unidirectional": causal},
            fixed=(1, 2, 3, 4, 6, 7),
            outputs=TWO if past is not None else (True,),
        )
        for kind, scale, zero, mask, past, causal in (
            (np.int8, np.float32(0.01), np.int8(3), None, None, 0),
            (np.uint8, np.float32(0.01), np.uint8(127), flags(B, S), None, 0),
            (np.int8, np.full(3 * D, 0.01, np.float32), np.zeros(3 * D, np.int8), i(3, 5), None, 0),
            (np.int8, np.float32(0.01), np.int8(0), None, PAST, 1),
        )
    ),
]
Q, K, V = f(B, S, D), f(B, 6, D), f(B, 6, D)
OWN = [f(B, S, D) for _ in range(3)]
BEFORE = [f(B, N, 3, H) for _ in range(2)]
MULTI = [
    Case("MultiHeadAttention", [Q, K, V], HEADS),
    Case("MultiHeadAttention", [Q, K, V, BIAS], HEADS, fixed=(3,)),
    Case("MultiHeadAttention", [Q, K, V, None, flags(B, 6)], HEADS),
    Case("MultiHeadAttention", [Q, K, V, None, flags(B, S, 6)], {**HEADS, "mask_filter_value": -30.0}),
    Case("MultiHeadAttention", [Q, K, V, None, None, f(1, N, S, 6)], {**HEADS, "scale": 0.2}),
    Case("MultiHeadAttention", [Q, K, f(B, 6, N * 3)], HEADS),
    Case("MultiHeadAttention", [Q, f(B, N, 6, H), f(B, N, 6, H)], HEADS),
    Case("MultiHeadAttention", OWN, CAUSAL),
    Case("MultiHeadAttention", [*OWN, None, None, None, *BEFORE], CAUSAL, outputs=THREE),
    Case("MultiHeadAttention", [*OWN, BIAS, flags(B, S + 3), f(B, 1, S, S + 3), *BEFORE], HEADS, outputs=THREE),
]
ANGLES = np.outer(np.arange(16), 0.7 ** np.arange(8))
WIDE = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
COS, SIN = (np.ascontiguousarray(table[:, :4]) for table in WIDE)
AT = RNG.integers(0, 16, (B, S))
ROTARY = [
    Case("RotaryEmbedding", [Q, AT, COS, SIN], fixed=(2, 3)),
    Case("RotaryEmbedding", [Q, AT, COS, SIN], {"interleaved": 1}),
    Case("RotaryEmbedding", [Q, np.array([4]), COS, SIN]),
    Case("RotaryEmbedding", [f(B, N, S, H), AT, COS, SIN]),
    Case("RotaryEmbedding", [Q, AT, COS[:, :2], SIN[:, :2]], {"rotary_embedding_dim": 4, "num_heads": N}),
    Case("RotaryEmbedding", [f(B, N, S, H), AT, COS[:, :3], SIN[:, :3]], {"rotary_embedding_dim": 6, "num_heads": N}),
    Case("RotaryEmbedding", [Q[:, :1], AT[:, :1], COS, SIN]),
    Case("RotaryEmbedding", [Q[:1, :1], np.array([3]), COS, SIN]),
]
G = 2
GROUPED: dict[str, Any] = {"num_heads": N, "kv_num_heads": G}
ROPE: dict[str, Any] = {**GROUPED, "do_rotary": 1}


def grouped(
    length: int,
    past: int,
    total: int,
    seqlens: Array,
    attributes: Any = GROUPED,
    more: Any = (),
    size: int = H,
    packed: bool = False,
) -> Case:
    """GroupQueryAttention; results of queries, and keys, that are padding are not looked at."""
    batch = len(seqlens)
    width = [N * size, G * size, G * size]
    new: list[Array | None] = [f(batch, length, sum(width)), None, None]
    new = new if packed else [f(batch, length, w) for w in width]
    cache = [f(batch, G, past, size), f(batch, G, past, size)] if past else [None, None]
    valid = int(seqlens.min()) + 1
    shown = (np.s_[:, : min(length, valid)], np.s_[:, :, :valid], np.s_[:, :, :valid])
    operands = [*new, *cache, seqlens, np.array(total, np.int32), *more]
    return Case("GroupQueryAttention", operands, attributes, fixed=(6,), outputs=THREE, shown=shown)


GROUP_QUERY = [
    grouped(1, 6, 7, i(6, 3), ROPE, WIDE, 16, packed=True),
    grouped(5, 0, 5, i(4, 4)),
    grouped(5, 0, 5, i(4, 2)),
    grouped(1, 6, 7, i(6, 6)),
    grouped(1, 6, 7, i(6, 3)),
    grouped(1, 9, 7, i(6, 3)),  # past and present are one buffer of 9
    grouped(5, 9, 5, i(4, 2)),
    grouped(3, 4, 7, i(6)),
    grouped(5, 0, 5, i(4, 4), ROPE, WIDE, 16),
    grouped(1, 6, 7, i(6, 3), ROPE, WIDE, 16),
    grouped(1, 6, 7, i(6, 3), {**ROPE, "rotary_interleaved": 1}, WIDE, 16, packed=True),
    grouped(3, 4, 7, i(6), ROPE, (*WIDE, np.array([[4, 5, 6]])), 16),
    grouped(5, 0, 5, i(4, 4), ROPE, WIDE, 32),
    grouped(5, 0, 5, i(4, 4), {**GROUPED, "local_window_size": 2, "scale": 0.3}, packed=True),
    grouped(1, 6, 7, i(6, 3), {**GROUPED, "local_window_size": 3}),
    grouped(5, 0, 5, i(4, 4), {**GROUPED, "softcap": 1.5}),
    grouped(5, 0, 5, i(4, 4), {**GROUPED, "smooth_softmax": 1}),
    grouped(1, 6, 7, i(6, 6), GROUPED, (None, None, None, None, f(N))),
    grouped(1, 6, 7, i(6, 6), GROUPED, (None, None, None, f(2, N, 1, 7))),
    grouped(5, 0, 5, i(4, 4), GROUPED, (None, None, None, f(1, 1, 5, 5))),
]
CASES = [*ATTENTION, *MULTI, *ROTARY, *GROUP_QUERY]


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{c}" for k, c in enumerate(CASES)])
def test_an_operator_gives_what_onnxruntime_gives(case: Case) -> None:
    interpreted(case)


@pytest.mark.parametrize("packing", [2, 3])
def test_packed_projections_are_those_that_are_given_one_by_one(packing: int) -> None:
    """onnxruntime has no kernel for CPUs."""
    query = OWN[0]
    (want,) = Case("MultiHeadAttention", OWN, HEADS).wanted()
    parts = np.stack([x.reshape(B, S, N, H) for x in OWN[3 - packing :]], 3)
    case = Case("MultiHeadAttention", [query, parts] if packing == 2 else [parts], HEADS)
    equal(evaluate(parse(case.model()), case.values(False))["y0"], want)


def test_queries_and_keys_are_normalised_by_head() -> None:
    """onnxruntime has no kernel for CPUs."""

    def norm(x: Array, weight: Array) -> Array:
        parts = x.reshape(B, S, -1, H)
        return (parts / np.sqrt((parts**2).mean(-1, keepdims=True) + 1e-3) * weight).reshape(x.shape).astype(np.float32)

    new, weights = [f(B, S, D), f(B, S, G * H), f(B, S, G * H)], [f(H), f(H)]
    rest: list[Array | None] = [None, None, i(4, 4), np.array(S, np.int32)]
    plain = Case("GroupQueryAttention", [norm(new[0], weights[0]), norm(new[1], weights[1]), new[2], *rest], GROUPED)
    given = {**GROUPED, "qk_norm_epsilon": 1e-3}
    case = Case("GroupQueryAttention", [*new, *rest, *[None] * 7, *weights], given, fixed=(6,))
    equal(evaluate(parse(case.model()), case.values(False))["y0"], plain.wanted()[0])


def test_the_length_of_a_cache_follows_from_its_declared_shape() -> None:
    """The total length decides the shape of the cache: an input of the model only if that is declared."""
    case = grouped(1, 6, 7, i(6, 3))
    case.fixed = ()
    model = case.model()
    with pytest.raises(DlcError, match="the total length of the sequences is computed from the model's inputs"):
        parse(model)
    for output, array in zip(model.graph.output, case.wanted(), strict=True):
        output.CopyFrom(helper.make_tensor_value_info(output.name, TensorProto.FLOAT, array.shape))
    graph = parse(model)
    case.check(evaluate(graph, {x.name: case.values(False)[x.name] for x in graph.inputs}))


REFUSED: dict[str, tuple[Case, str]] = {
    "shared buffers": (Case("Attention", [X, W, BIAS], {**HEADS, "past_present_share_buffer": 1}), "one buffer"),
    "rotary inside": (Case("Attention", [X, W, BIAS], {**HEADS, "do_rotary": 1}), "rotary positions inside"),
    "heads": (Case("Attention", [X, W, BIAS], {"num_heads": 5}), "not divided into 5 heads"),
    "mask": (Case("Attention", [X, W, BIAS, flags(B, 7)], HEADS), "a mask of type"),
    "keys": (Case("MultiHeadAttention", [Q, K[:1], V], HEADS), "queries"),
    "unpacked": (Case("MultiHeadAttention", [Q], HEADS), "not packed"),
    "no heads": (grouped(5, 0, 5, i(4, 4), {"num_heads": 4, "kv_num_heads": 3}), "heads"),
    "window cache": (grouped(5, 0, 5, i(4, 4), {**GROUPED, "sliding_window_cache": 1}), "size of a window"),
    "quantised cache": (grouped(5, 0, 5, i(4, 4), {**GROUPED, "k_quant_type": "PER_TENSOR"}), "quantised cache"),
    "no past": (grouped(1, 0, 7, i(6, 6)), "there is no past"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_with_the_reason(name: str) -> None:
    case, reason = REFUSED[name]
    with pytest.raises(DlcError, match=reason):
        parse(case.model())


def test_compiled_programs_give_it_too(tmp_path: Path) -> None:
    compiled(CASES, tmp_path)
