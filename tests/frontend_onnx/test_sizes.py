"""Models with dimensions that are known when the program runs: compiled C against onnxruntime at many sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import QUICK, runtime
from sanitized import SANITIZERS, run_sanitized
from sized_models import (
    attention,
    backward,
    cached,
    chosen,
    copies,
    cuts,
    decoder,
    feeds,
    model,
    n,
    pyramid,
    shapes,
    transforms,
)

import dlc
from dlc import DlcError, Source
from dlc.base.diagnostics import ExitCode
from dlc.driver.program import Compiler
from dlc.runtime.install import install

Array = Any

CASES: Mapping[str, tuple[Callable[[], bytes], dict[str, str], Sequence[Sequence[int]]]] = {
    "attention": (attention, {"batch": "1..3", "seq": "1..40"}, [(1, 1), (2, 17), (3, 40), (1, 39)]),
    "cached": (cached, {"batch": "1..2", "new": "1..4", "past len": "0..20"}, [(2, 4, 0), (1, 1, 20), (2, 3, 7)]),
    "decoder": (
        decoder,
        {"batch": "1..2", "new": "1..5", "past len": "0..20"},
        [(2, 5, 0), (1, 1, 20), (2, 3, 7), (1, 5, 1), (2, 5, 20)],
    ),
    "pyramid": (pyramid, {"h": "4..24/2", "w": "4..40/4"}, [(4, 4), (24, 40), (14, 20)]),
    "chosen": (chosen, {"rows": "20..40", "columns": "2..9"}, [(20, 2), (40, 9), (33, 4)]),
    "copies": (copies, {"rows": "1..7", "columns": "2..10/2"}, [(1, 2), (7, 10), (3, 4)]),
    "backward": (backward, {"rows": "3..9"}, [(3,), (9,), (4,)]),
    "shapes": (shapes, {"batch": "1..4", "seq": "2..16"}, [(1, 2), (4, 16), (3, 5)]),
    # Of other lengths onnxruntime is exact to 1e-5 only: see `test_transforms_of_every_length`.
    "transforms": (transforms, {"rows": "1..3", "length": "1..20"}, [(1, 1), (3, 16), (2, 8), (1, 4)]),
    "cuts": (cuts, {"k": "1..12"}, [(1,), (3,), (4,), (5,), (6,), (9,), (12,)]),
}


def test_transforms_of_every_length(builds: Path) -> None:
    program: Any = dlc.build(transforms(), QUICK, dims={"rows": "1..3", "length": "1..20"}, cache_dir=builds)
    for length in range(1, 21):
        x = np.random.default_rng(length).standard_normal((2, length, 1)).astype(np.float32)
        found = {name: np.asarray(y) for name, y in program(x=x).items()}
        want = np.fft.fft(x[..., 0].astype(np.float64), axis=1)
        for name, y in (("whole", want), ("half", want[:, : length // 2 + 1]), ("back", x[..., 0])):
            parts = np.stack([y.real, y.imag], axis=-1)
            np.testing.assert_allclose(found[name], parts, rtol=1e-5, atol=1e-5, err_msg=f"{name} of {length}")


@pytest.mark.parametrize("name", CASES)
def test_one_program_for_every_size(name: str, builds: Path) -> None:
    make, dims, several = CASES[name]
    content = make()
    program: Any = dlc.build(content, QUICK, dims=dims, cache_dir=builds)
    loaded = onnx.load_model_from_string(content)
    names = [o.name for o in loaded.graph.output]
    for sizes in several:
        given = feeds(content, dict(zip(dims, sizes, strict=True)))
        got = program(**given)
        for output, wanted in zip(names, runtime(loaded, names, given), strict=True):
            assert got[output].shape == np.shape(wanted)
            np.testing.assert_allclose(got[output], wanted, rtol=1e-4, atol=1e-5, err_msg=f"{output} at {sizes}")


@pytest.fixture(scope="module")
def pair(builds: Path) -> Any:
    """Two inputs that share a dimension."""
    content = model([n("Mul", ["a", "b"], ["y"])], {"a": ["k", "m"], "b": [1, "m"]}, ["y"], {})
    dims = {"k": "1..4", "m": "2..8/2"}
    return dlc.build(content, QUICK, dims=dims, cache_dir=builds)


def test_inputs_that_nothing_reads_have_any_size(builds: Path) -> None:
    content = model([n("Neg", ["a"], ["y"])], {"a": ["k", 3], "b": ["m", "k"], "c": ["m"]}, ["y"], {})
    program = dlc.build(content, QUICK, dims={"k": "1..4", "m": "2..5"}, cache_dir=builds)
    for k, m in ((1, 2), (4, 5)):
        assert program(a=ones(k, 3), b=ones(m, k), c=ones(m))["y"].shape == (k, 3)
    assert 'dimension 0 of input "b" is 6: m is 2..5' in refused(program, a=ones(1, 3), b=ones(6, 1), c=ones(6))
    assert "found float32[3]" in refused(program, a=ones(1, 3), b=ones(2, 1), c=ones(3))


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def refused(program: Any, **arrays: Array) -> str:
    with pytest.raises(DlcError) as caught:
        program(**arrays)
    assert caught.value.exit_code == ExitCode.USAGE
    return str(caught.value)


def test_sizes_are_checked(pair: Any) -> None:
    assert pair(a=ones(4, 6), b=ones(1, 6))["y"].shape == (4, 6)
    assert 'dimension 0 of input "a" is 5: k is 1..4' in refused(pair, a=ones(5, 2), b=ones(1, 2))
    assert "dimension 1" in refused(pair, a=ones(1, 3), b=ones(1, 3))
    assert "2..8 in steps of 2" in refused(pair, a=ones(1, 10), b=ones(1, 10))
    assert "expected float32[1,4], found float32[1,6]" in refused(pair, a=ones(2, 4), b=ones(1, 6))
    assert "no dimension of an input is k" in refused(pair, a=ones(2, 4, 1), b=ones(1, 4))
    assert "missing" in refused(pair, a=ones(2, 4))


def test_a_buffer_for_an_output_has_the_shape_of_the_call(pair: Any) -> None:
    arrays = {"a": ones(2, 4), "b": 3 * ones(1, 4)}
    buffer = np.zeros((2, 4), np.float32)
    pair(out={"y": buffer}, **arrays)
    assert buffer.tolist() == [[3] * 4] * 2
    with pytest.raises(DlcError, match=r"expected float32\[2,4\]"):
        pair(out={"y": np.zeros((4, 8), np.float32)}, **arrays)


def test_a_range_of_one_size_is_a_number(builds: Path) -> None:
    content = model([n("Neg", ["a"], ["y"])], {"a": ["k", 3]}, ["y"], {})
    program = dlc.build(content, QUICK, dims={"k": "4..4"}, cache_dir=builds)
    assert [p.type.shape for p in program.signature.inputs] == [(4, 3)]


@pytest.mark.parametrize("text", ["4..2", "..", "1..", "0..8/0", "3..9/2", "-1..4", "1...4", "1..4..5"])
def test_what_is_no_range_is_reported(text: str) -> None:
    content = model([n("Neg", ["a"], ["y"])], {"a": ["k", 3]}, ["y"], {})
    with pytest.raises(DlcError, match="is not a dimension and its size"):
        dlc.build(content, dims={"k": text}, cache="off")


def test_a_decision_that_sizes_leave_open_is_reported_with_the_formula() -> None:
    begin = [n("Shape", ["a"], ["k"], end=1), n("Sub", ["k", "five"], ["start"])]
    cut = [*begin, n("Slice", ["a", "start", "nine", "zero"], ["y"])]
    content = model(cut, {"a": ["k", 3]}, ["y"], {"zero": np.array([0]), "five": np.array([5]), "nine": np.array([9])})
    with pytest.raises(DlcError, match="whether k-5 < 0 is not known before the program runs"):
        dlc.build(content, dims={"k": "1..8"}, cache="off")


def test_dimensions_of_different_names_are_not_known_to_be_equal() -> None:
    content = model([n("Add", ["a", "b"], ["y"])], {"a": ["k"], "b": ["m"]}, ["y"], {})
    with pytest.raises(DlcError, match="do not broadcast"):
        dlc.build(content, dims={"k": "2..8", "m": "2..8"}, cache="off")


def test_names_of_dimensions_may_be_anything(builds: Path) -> None:
    content = model([n("Add", ["batch", "b"], ["y"])], {"batch": ["batch", "1+ü"], "b": ["batch", 1]}, ["y"], {})
    program: Any = dlc.build(content, QUICK, dims={"batch": "1..3", "1+ü": "1..5"}, cache_dir=builds)
    assert program({"batch": ones(2, 4), "b": ones(2, 1)})["y"].shape == (2, 4)


def test_dimensions_without_a_name_are_ranges_of_an_input(builds: Path) -> None:
    content = model([n("Neg", ["a"], ["y"])], {"a": ["", 3]}, ["y"], {})
    program: Any = dlc.build(content, QUICK, settings=["onnx.input=a:1..4x3"], cache_dir=builds)
    assert [p.name for p in program.signature.inputs] == ["a", "a_0"]
    assert program(a=ones(2, 3))["y"].shape == (2, 3)


MAIN = r"""
#include <stdlib.h>
#include "attn.h"
static float *of(int64_t count) {
    float *p = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) p[i] = (float)(i % 7);
    return p;
}
int main(void) {
    for (int64_t batch = 1; batch <= 3; batch++) {
        for (int64_t seq = 1; seq <= 40; seq += 13) {
            float *x = of(batch * seq * 24), *mask = of(batch * seq), *y = of(batch * seq * 24), *mean = of(batch * 24);
            const void *inputs[] = {x, mask, &batch, &seq};
            void *outputs[] = {y, mean};
            void *arena = aligned_alloc(ATTN_ARENA_ALIGN, attn_arena_bytes(batch, seq));
            if (attn_run(inputs, outputs, arena) != ATTN_OK) return 1;
            free(arena); free(x); free(mask); free(y); free(mean);
        }
    }
    void *arena = aligned_alloc(ATTN_ARENA_ALIGN, 1 << 16);
    int64_t wrong = 4, seq = 1;
    if (attn_arena_bytes(wrong, seq) != 0 || attn_arena_bytes(3, 40) > ATTN_ARENA_BYTES) return 3;
    const void *inputs[] = {arena, arena, &wrong, &seq};
    void *outputs[] = {arena, arena};
    if (attn_run(inputs, outputs, arena) != ATTN_ERROR_SHAPE) return 2;
    free(arena);
    return 0;
}
"""


@pytest.mark.parametrize("tools", SANITIZERS)
@pytest.mark.parametrize("cpu", ["generic", "native"])
def test_c_stays_inside_of_buffers_of_just_the_size(tools: str, cpu: str, tmp_path: Path, builds: Path) -> None:
    source, dims = Source(data=attention(), label="m.onnx"), {"batch": "1..3", "seq": "1..40"}
    made = Compiler.open(builds).artifact(source, f"c{{cpu={cpu} lib=none weights=text prefix=attn}}", dims=dims)
    install(made, tmp_path / "m")
    run_sanitized(tmp_path / "m", "attn", MAIN, tools)
