"""A decoder with one library for every length of its key-value cache: what a call appends, the next call reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import QUICK, runtime
from sanitized import SANITIZERS, run_sanitized
from sized_models import decoder

import dlc
from dlc import Source
from dlc.driver.program import Compiler
from dlc.runtime.install import install

DIMS = {"batch": "1..2", "new": "1..5", "past len": "0..20"}


def test_steps_that_feed_the_cache_back(builds: Path) -> None:
    content = decoder()
    program: Any = dlc.build(content, QUICK, dims=DIMS, cache_dir=builds)
    loaded = onnx.load_model_from_string(content)
    rng = np.random.default_rng(4)
    past = wanted_past = np.zeros((2, 2, 2, 2, 0, 8), np.float32)
    for new in (5, 1, 1, 4, 5, 1, 3):
        x = rng.standard_normal((2, new, 16)).astype(np.float32)
        got = program({"x": x, "past": past})
        y, wanted_past = runtime(loaded, ["y", "present"], {"x": x, "past": wanted_past})
        past = got["present"]
        np.testing.assert_allclose(got["y"], y, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(past, wanted_past, rtol=1e-4, atol=1e-5)
    assert past.shape[4] == 20


def test_the_arena_holds_keys_and_values_once(builds: Path) -> None:
    """Neither a copy of the cache as callers have it, nor parts of the one that is returned."""
    layers, longest = 6, 512
    program: Any = dlc.build(decoder(layers), QUICK, dims={**DIMS, "past len": f"0..{longest}"}, cache_dir=builds)
    cache = layers * 2 * 2 * 2 * longest * 8 * 4
    assert program.arena_bytes < 1.5 * cache


MAIN = r"""
#include <stdlib.h>
#include "gpt.h"
static float *of(int64_t count) {
    float *p = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) p[i] = (float)(i % 7) / 8;
    return p;
}
int main(void) {
    for (int64_t batch = 1; batch <= 2; batch++)
        for (int64_t length = 1; length <= 5; length += 2)
            for (int64_t past = 0; past <= 20; past += past % 3 + 1) {
                float *x = of(batch * length * 16), *y = of(batch * length * 16);
                float *before = of(2 * 2 * batch * 2 * past * 8), *after = of(2 * 2 * batch * 2 * (past + length) * 8);
                const void *inputs[] = {x, before, &batch, &length, &past};
                void *outputs[] = {y, after};
                void *arena = aligned_alloc(GPT_ARENA_ALIGN, gpt_arena_bytes(batch, length, past));
                if (gpt_run(inputs, outputs, arena) != GPT_OK) return 1;
                for (int64_t i = 0; i < past; i++) if (after[i] != before[i]) return 2;
                free(arena); free(x); free(y); free(before); free(after);
            }
    return 0;
}
"""


@pytest.mark.parametrize("tools", SANITIZERS)
@pytest.mark.parametrize("cpu", ["generic", "native"])
def test_c_stays_inside_of_a_cache_of_just_the_size(tools: str, cpu: str, tmp_path: Path, builds: Path) -> None:
    source = Source(data=decoder(), label="m.onnx")
    target = f"c{{cpu={cpu} lib=none weights=text prefix=gpt}}"
    install(Compiler.open(builds).artifact(source, target, dims=DIMS), tmp_path / "m")
    run_sanitized(tmp_path / "m", "gpt", MAIN, tools)
