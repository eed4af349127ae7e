"""Figures that no exporter writes: refused with a diagnostic, at once, whatever they would amount to."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from building import model_of, parse
from cases import BINS, GRAMS, IMAGE, REGIONS, UNPOOL, f, i
from onnx import TensorProto, helper

from dlc import DlcError

HUGE = 1 << 40
UP = np.array(HUGE)
ROWS = f(2, 7, 1)
TWO = np.ones((1, 1, 2, 2), np.float32)
PLACES = np.zeros((1, 1, 2, 2), np.int64)

WRONG: list[tuple[str, tuple[Any, ...], tuple[int, ...], dict[str, Any], int]] = [
    ("DFT", (ROWS, UP), (1,), {}, 17),
    ("DFT", (ROWS, np.array(-3)), (1,), {}, 17),
    ("DFT", (ROWS, np.array(0)), (1,), {"inverse": 1}, 20),
    ("DFT", (ROWS, np.array(4), np.array(2)), (1, 2), {}, 20),
    ("DFT", (f(2, 7, 3),), (), {}, 17),
    ("STFT", (ROWS, np.array(0), f(3)), (1,), {}, 17),
    ("STFT", (ROWS, np.array(1), f(9)), (1,), {}, 17),
    ("STFT", (ROWS, np.array(1), f(3), UP), (1, 3), {}, 17),
    ("MelWeightMatrix", (UP, UP, np.array(8000), np.float32(0), np.float32(9)), (0, 1, 2, 3, 4), {}, 17),
    ("MelWeightMatrix", (i(3), i(16), i(0), np.float32(0), np.float32(9)), (0, 1, 2, 3, 4), {}, 17),
    ("MelWeightMatrix", (i(3), i(16), i(80), np.float32(0), np.float32(90)), (0, 1, 2, 3, 4), {}, 17),
    ("Col2Im", (f(1, 4, 9), i(HUGE, HUGE), i(2, 2)), (1, 2), {}, 18),
    ("Col2Im", (f(1, 4, 9), i(4, 4), i(0, 2)), (1, 2), {}, 18),
    ("Col2Im", (f(1, 4, 9), i(4, 4), i(2, 2)), (1, 2), {"strides": [0, 1]}, 18),
    ("Det", (f(3, 4),), (), {}, 22),
    ("Det", (f(99, 99),), (), {}, 22),
    ("MaxUnpool", (TWO, PLACES), (), {"kernel_shape": [2, 2], "strides": [HUGE, HUGE]}, 22),
    ("MaxUnpool", (TWO, PLACES), (), {"kernel_shape": [2]}, 22),
    ("MaxUnpool", (TWO, PLACES, i(1, 2, 2, 2)), (2,), UNPOOL, 22),
    ("GridSample", (IMAGE, f(2, 3, 2, 3)), (), {}, 20),
    ("GridSample", (IMAGE, f(2, 3, 2, 2)), (), {"mode": "lanczos"}, 20),
    ("RoiAlign", (IMAGE, REGIONS, i(0, 1, 1)), (), {**BINS, "sampling_ratio": 0}, 16),
    ("RoiAlign", (IMAGE, REGIONS, i(0, 1, 1)), (), {**BINS, "output_height": HUGE}, 16),
    ("RoiAlign", (IMAGE, REGIONS, i(0, 1, 1)), (), {**BINS, "sampling_ratio": HUGE}, 16),
    ("RoiAlign", (IMAGE, f(3, 5), i(0, 1, 1)), (), BINS, 16),
    ("DeformConv", (IMAGE, f(3, 4, 3, 2), f(2, 12, 5, 5)), (), {"offset_group": 3}, 19),
    ("DeformConv", (IMAGE, f(3, 4, 3, 2), f(2, 12, 5, 4)), (), {}, 19),
    ("TensorScatter", (f(2, 5, 3), f(2, 6, 3)), (), {}, 24),
    ("TensorScatter", (f(2, 5, 3), f(2, 2, 3), i(0)), (), {}, 24),
    ("BitShift", (i(1), i(2)), (), {"direction": "UP"}, 28),
    ("BitCast", (f(3),), (), {"to": TensorProto.DOUBLE}, 26),
    ("BitwiseAnd", (f(3), f(3)), (), {}, 18),
    ("CumProd", (f(3), np.array(3)), (1,), {}, 26),
    ("Trilu", (f(3, 3), i(1, 2)), (), {}, 14),
    ("TfIdfVectorizer", (i(1, 2),), (), {**GRAMS, "mode": "TF", "ngram_indexes": [HUGE] * 9}, 9),
    ("TfIdfVectorizer", (i(1, 2),), (), {**GRAMS, "mode": "TF", "ngram_counts": [5, 2]}, 9),
    ("TfIdfVectorizer", (i(1, 2),), (), {**GRAMS, "mode": "TF", "ngram_indexes": [1]}, 9),
    ("TfIdfVectorizer", (f(2),), (), {**GRAMS, "mode": "TF"}, 9),
]


@pytest.mark.parametrize(
    ("op", "arrays", "fixed", "attributes", "opset"), WRONG, ids=[f"{w[0]}-{k}" for k, w in enumerate(WRONG)]
)
def test_it_is_refused(
    op: str, arrays: tuple[Any, ...], fixed: tuple[int, ...], attributes: dict[str, Any], opset: int
) -> None:
    operands = {f"x{k}": np.asarray(a) for k, a in enumerate(arrays)}
    node = helper.make_node(op, list(operands), ["y"], **attributes)
    stored = {name: a for k, (name, a) in enumerate(operands.items()) if k in fixed}
    model = model_of([node], {n: a for n, a in operands.items() if n not in stored}, ["y"], stored, opset)
    begin = time.perf_counter()
    with pytest.raises(DlcError) as caught:
        parse(model)
    assert op in str(caught.value) or "y" in str(caught.value)
    assert time.perf_counter() - begin < 5


def test_many_tokens_may_be_left_out() -> None:
    """As many as there are tokens, at most."""
    tokens = i(0, 1, 0, 2)
    figures: dict[str, Any] = {**GRAMS, "mode": "TF", "max_skip_count": HUGE}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **figures)
    (y,) = parse(model_of([node], {"x": tokens}, ["y"], {}, 9)).outputs
    assert y.shape == (7,)
