"""A Llama of onnxruntime-genai's form, compiled: a prompt, then a token after the other with a cache that grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from tests.frontend_onnx.building import QUICK, runtime
from tests.frontend_onnx.genai import LAYERS, VOCABULARY, llama

Array = Any
NAMES = ["logits", *(f"present.{k}.{kind}" for k in range(LAYERS) for kind in ("key", "value"))]


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float16, 2e-2)], ids=["f32", "f16"])
def test_a_prompt_and_two_tokens(dtype: Any, tolerance: float, builds: Path) -> None:
    rng = np.random.default_rng(0)
    cache: dict[str, Array] = {}
    past = 0
    for length in (4, 1, 1):
        model = llama(2, length, past, dtype)
        feeds = {
            "input_ids": rng.integers(0, VOCABULARY, (2, length)),
            "attention_mask": np.ones((2, past + length), np.int64),
            **cache,
        }
        want = dict(zip(NAMES, runtime(model, NAMES, feeds), strict=True))
        program: Any = dlc.build(model.SerializeToString(), QUICK, cache_dir=builds)
        got = program(feeds)
        for name in NAMES:
            assert got[name].dtype == want[name].dtype
            most = float(np.abs(want[name].astype(np.float32)).max())
            np.testing.assert_allclose(got[name], want[name], rtol=0, atol=tolerance * most, err_msg=name)
        cache = {f"past_key_values.{name[8:]}": want[name] for name in NAMES[1:]}
        past += length


def test_what_is_read_of_the_cache_depends_on_the_mask(builds: Path) -> None:
    model = llama(1, 1, 5)
    feeds = {
        "input_ids": np.array([[3]]),
        "attention_mask": np.array([[1, 1, 1, 0, 0, 0]]),
        **{f"past_key_values.{name[8:]}": np.ones((1, 2, 5, 16), np.float32) for name in NAMES[1:]},
    }
    program: Any = dlc.build(model.SerializeToString(), QUICK, cache_dir=builds)
    want = runtime(model, NAMES, feeds)
    np.testing.assert_allclose(program(feeds)["logits"], want[0], rtol=0, atol=1e-4 * float(np.abs(want[0]).max()))
