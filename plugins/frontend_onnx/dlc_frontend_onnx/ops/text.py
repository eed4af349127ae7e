"""Operators on sequences of tokens, which are numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from dlc.base.types import Type, f32, i64
from dlc.graph import Op, Splat
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.index import ScatterElements
from dlc.ops.ngrams import NgramCounts
from dlc.ops.shape import Concat, Expand
from dlc_frontend_onnx.node import Array, Node, cast, constant, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported

_LONGEST: Final = 64
"""Tokens of a sequence that is counted: each becomes a comparison."""


@onnx("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(node: Node) -> Op:
    """How often each sequence of a pool occurs in a row of tokens, with tokens left out between; weighted."""
    x, mode = node.x(), node.text("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise Unsupported(f"mode {mode!r}", "TF, IDF and TFIDF are defined")
    if node.texts("pool_strings"):
        raise Unsupported("a pool of texts", "number the tokens: supported is pool_int64s")
    if len(x.shape) > 2 or not x.dtype.is_integer:
        raise ShapeError(f"tokens {x.type} must be [C] or [B, C] of integers")
    rows = reshaped(cast(x, i64), x.shape if len(x.shape) == 2 else (1, x.type.size))
    places = node.ints("ngram_indexes") or ()
    if not places or min(places) < 0:
        raise Unsupported(f"ngram_indexes {list(places[:8])}", MALFORMED)
    size = max(places) + 1
    counts: Op = Splat(0.0, Type(f32, (rows.shape[0], size)))
    found, columns = _counted(node, rows, places)
    if found is not None:
        check_count(rows.shape[0] * max(size, len(columns)), "the counts")
        indices = Expand(constant(np.array([columns]), i64), to=(rows.shape[0], len(columns)))
        counts = ScatterElements(counts, indices, found, axis=1, reduce="add")
    weights = _weights(node, size)
    if mode == "IDF":
        once = e.Greater(counts, number(0, counts))
        counts = e.Where(once, number(1, counts) if weights is None else weights, number(0, counts))
    elif mode == "TFIDF" and weights is not None:
        counts = e.Mul(counts, weights)
    return counts if len(x.shape) == 2 else reshaped(counts, (size,))


def _weights(node: Node, size: int) -> Op | None:
    given = node.floats("weights")
    if not given:
        return None
    if len(given) < size:
        raise ShapeError(f"{len(given)} weights for {size} results")
    return constant(given[:size], f32)


def _counted(node: Node, rows: Op, places: Sequence[int]) -> tuple[Op | None, list[int]]:
    """Counts [B, G] of the sequences of the pool, f32, and the result that each is added to."""
    low, high = node.int("min_gram_length"), node.int("max_gram_length")
    skips, columns = node.int("max_skip_count"), rows.shape[1]
    if not 1 <= low <= high or skips < 0:
        raise Unsupported(f"sequences from {low} to {high} tokens, up to {skips} left out", MALFORMED)
    counts: list[Op] = []
    results: list[int] = []
    for first, grams in _pool(node):
        length = grams.shape[1]
        # Of two equal sequences the last one is counted.
        numbers = {tuple(gram): k for k, gram in enumerate(grams.tolist(), first)}
        if not low <= length <= high or length > columns or not numbers:
            continue
        if length > _LONGEST:
            raise Unsupported(f"sequences of {length} tokens", f"at most {_LONGEST} are supported")
        if max(numbers.values()) >= len(places):
            raise Unsupported(f"{len(places)} ngram_indexes for more sequences", MALFORMED)
        strides = min(skips + 1, columns) if length > 1 else 1
        counts.append(NgramCounts(rows, constant(np.array(list(numbers)), i64), strides=strides))
        results += [places[k] for k in numbers.values()]
    if not counts:
        return None, results
    return cast(counts[0] if len(counts) == 1 else Concat(tuple(counts), axis=1), f32), results


def _pool(node: Node) -> Iterator[tuple[int, Array]]:
    """The number of the first sequence of each length, and the sequences [G, length]."""
    pool, starts = node.ints("pool_int64s") or (), node.ints("ngram_counts") or ()
    ends = (*starts[1:], len(pool))
    if any(not 0 <= a <= b <= len(pool) for a, b in zip(starts, ends, strict=True)):
        raise Unsupported(f"ngram_counts {list(starts[:8])} for a pool of {len(pool)} tokens", MALFORMED)
    first = 0
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        count = (end - start) // length
        yield first, np.array(pool[start : start + count * length], np.int64).reshape(count, length)
        first += count
