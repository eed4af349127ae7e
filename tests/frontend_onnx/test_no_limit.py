"""Outermost dimensions of which nothing is said: programs for any size, and what needs a limit."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import QUICK, runtime
from sanitized import SANITIZERS, run_sanitized
from sized_models import feeds, model, n, weights

import dlc
from dlc import DlcError, Source
from dlc.base.diagnostics import ExitCode
from dlc.cli.frame import run
from dlc.driver.program import Compiler
from dlc.runtime.install import install

Array = Any
SIZES = [1, 3, 64, 2, 515]


def images() -> bytes:
    """Convolutions, pooling, a product of rows whose number is batch times 16, another of rows of the batch."""
    nodes = [
        n("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        n("Relu", ["a"], ["b"]),
        n("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        n("Reshape", ["c", "rows"], ["d"]),
        n("MatMul", ["d", "w2"], ["e"]),
        n("Reshape", ["e", "flat"], ["f"]),
        n("Gemm", ["f", "w3", "bias"], ["y"]),
    ]
    constants = {
        "w1": weights(8, 3, 3, 3),
        "rows": np.array([-1, 8]),
        "w2": weights(8, 5),
        "flat": np.array([-1, 80]),
        "w3": weights(80, 10),
        "bias": weights(10),
    }
    return model(nodes, {"x": ("batch", 3, 8, 8)}, ["y"], constants)


def check(program: Any, content: bytes, sizes: Sequence[Mapping[str, int]]) -> None:
    """A program gives what onnxruntime does at these sizes."""
    loaded = onnx.load_model_from_string(content)
    names = [o.name for o in loaded.graph.output]
    for size in sizes:
        given = feeds(content, size)
        got = program(**given)
        for name, wanted in zip(names, runtime(loaded, names, given), strict=True):
            np.testing.assert_allclose(got[name], wanted, rtol=1e-4, atol=1e-5, err_msg=f"{name} of {size}")


def refused(content: bytes, target: str = "c", **options: Any) -> DlcError:
    with pytest.raises(DlcError) as caught:
        dlc.build(content, target, **options)
    return caught.value


@pytest.mark.parametrize("cpu", ["generic", "native"])
def test_any_batch_without_a_flag(cpu: str, builds: Path) -> None:
    content = images()
    program: Any = dlc.build(content, f"c{{cpu={cpu} flags=-O0}}", cache_dir=builds)
    check(program, content, [{"batch": batch} for batch in SIZES])
    memory = program._library.manifest["memory"]
    needs = [program.arena_bytes_at(batch=batch) for batch in SIZES]
    assert needs == [eval(memory["arena_formula"], {"max": max, "batch": batch}) for batch in SIZES]
    assert program._own.arena.size == max(needs)


def several(kind: str) -> bytes:
    """Networks with more rows for an image than tiles have, and with a part whose size is that of a batch or less."""
    x = {"x": ("batch", 3, 8, 8)}
    if kind == "rows":
        nodes = [n("Reshape", ["x", "rows"], ["a"]), n("MatMul", ["a", "w"], ["y"])]
        return model(nodes, x, ["y"], {"rows": np.array([-1, 3]), "w": weights(3, 5)})
    nodes = [n("Slice", ["x", "zero", "five", "zero"], ["a"]), n("Neg", ["a"], ["y"])]
    return model(nodes, x, ["y"], {"zero": np.array([0]), "five": np.array([5])})


@pytest.mark.parametrize("kind", ["rows", "the first five"])
def test_networks_of_any_batch(kind: str, builds: Path) -> None:
    content = several(kind)
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    check(program, content, [{"batch": batch} for batch in SIZES])


def test_bounds_do_not_change_what_a_call_computes(builds: Path) -> None:
    content = images()
    free: Any = dlc.build(content, QUICK, cache_dir=builds)
    limited: Any = dlc.build(content, QUICK, dims={"batch": "1..600"}, cache_dir=builds)
    for batch in SIZES:
        given = feeds(content, {"batch": batch})
        np.testing.assert_allclose(free(**given)["y"], limited(**given)["y"], rtol=1e-5, atol=1e-6)


MAIN = r"""
#include <stdlib.h>
#include "images.h"
#ifdef IMAGES_ARENA_BYTES
#error "there is no largest call"
#endif
int main(void) {
    for (int64_t batch = 1; batch <= 40; batch += 13) {
        const size_t bytes = images_arena_bytes(batch);
        float *x = calloc((size_t)batch * 192, sizeof(float)), *y = malloc((size_t)batch * 10 * sizeof(float));
        const void *inputs[] = {x, &batch};
        void *outputs[] = {y}, *arena = aligned_alloc(IMAGES_ARENA_ALIGN, (bytes + 63) / 64 * 64);
        if (!bytes || images_run(inputs, outputs, arena) != IMAGES_OK) return 1;
        free(arena); free(x); free(y);
    }
    return images_arena_bytes(0) != 0;
}
"""


@pytest.mark.parametrize("tools", SANITIZERS)
def test_c_works_in_the_memory_that_it_asks_for(tools: str, tmp_path: Path, builds: Path) -> None:
    target = "c{cpu=generic lib=none weights=text prefix=images}"
    install(Compiler.open(builds).artifact(Source(data=images(), label="m.onnx"), target), tmp_path / "m")
    run_sanitized(tmp_path / "m", "images", MAIN, tools)


def test_a_dimension_without_a_name_is_called_after_its_input(builds: Path) -> None:
    content = model([n("Relu", ["a"], ["y"])], {"a": ["", 3]}, ["y"], {})
    free: Any = dlc.build(content, QUICK, cache_dir=builds)
    assert [p.name for p in free.signature.inputs] == ["a", "a_0"]
    assert free(a=np.ones((7, 3), np.float32))["y"].shape == (7, 3)
    fixed: Any = dlc.build(content, QUICK, dims={"a_0": 2}, cache_dir=builds)
    assert [p.type.shape for p in fixed.signature.inputs] == [(2, 3)]


def test_what_has_no_single_outermost_dimension_needs_sizes(builds: Path) -> None:
    inner = model([n("Relu", ["a"], ["y"])], {"a": [3, "seq"]}, ["y"], {})
    both = model([n("MatMul", ["a", "b"], ["y"])], {"a": ["k", 3], "b": [3, "k"]}, ["y"], {})
    unnamed = model([n("Add", ["a", "b"], ["y"])], {"a": ["", 3], "b": ["", 3]}, ["y"], {})
    for content in (inner, both, unnamed):
        caught = refused(content, cache_dir=builds)
        assert (caught.diagnostics[0].code, caught.exit_code) == ("unbound-dimension", ExitCode.USAGE)


def inside(kind: str) -> bytes:
    """Networks that have the batch inside: rows of time first, or of both in one dimension."""
    if kind == "transposed":
        nodes = [n("Transpose", ["a"], ["t"]), n("MatMul", ["w", "t"], ["y"])]
        return model(nodes, {"a": ("batch", 6)}, ["y"], {"w": weights(4, 6)})
    if kind == "recurrent":
        nodes = [
            n("Transpose", ["a"], ["t"], perm=[1, 0, 2]),
            n("LSTM", ["t", "w", "r", "b"], ["s", "last"], hidden_size=8),
            n("Squeeze", ["s", "one"], ["y"]),
        ]
        constants = {"w": weights(1, 32, 5), "r": weights(1, 32, 8), "b": weights(1, 64), "one": np.array([1])}
        return model(nodes, {"a": ("batch", 5, 5)}, ["y", "last"], constants)
    nodes = [
        n("Transpose", ["a"], ["t"], perm=[1, 0, 2]),
        n("MatMul", ["t", "w"], ["p"]),
        n("Shape", ["t"], ["shape"]),
        n("Gather", ["shape", "one"], ["batch"]),
        n("Mul", ["batch", "two"], ["rows"]),
        n("Concat", ["length", "rows", "half"], ["split"], axis=0),
        n("Reshape", ["p", "split"], ["h"]),
        n("Transpose", ["h"], ["q"], perm=[1, 0, 2]),
        n("Transpose", ["h"], ["k"], perm=[1, 2, 0]),
        n("MatMul", ["q", "k"], ["scores"]),
        n("Softmax", ["scores"], ["weights"], axis=-1),
        n("MatMul", ["weights", "q"], ["o"]),
        n("Transpose", ["o"], ["back"], perm=[1, 0, 2]),
        n("Reshape", ["back", "flat"], ["y"]),
    ]
    constants = {"w": weights(16, 16), "one": np.array([1]), "two": np.array([2]), "length": np.array([12])}
    return model(
        nodes, {"a": ("batch", 12, 16)}, ["y"], {**constants, "half": np.array([8]), "flat": np.array([-1, 16])}
    )


@pytest.mark.parametrize("cpu", ["generic", "native", "x86-64-v3"])
@pytest.mark.parametrize("kind", ["transposed", "recurrent", "heads"])
def test_a_batch_inside_is_stored_outermost(kind: str, cpu: str, builds: Path) -> None:
    content = inside(kind)
    program: Any = dlc.build(content, f"c{{cpu={cpu} flags=-O0}}", cache_dir=builds)
    check(program, content, [{"batch": batch} for batch in SIZES])
    assert program.arena_bytes_at(batch=2) < 1 << 20


def test_a_value_with_two_dimensions_of_any_size_needs_a_limit(builds: Path) -> None:
    content = model([n("Transpose", ["a"], ["t"]), n("MatMul", ["a", "t"], ["y"])], {"a": ["batch", 6]}, ["y"], {})
    (found,) = refused(content, cache_dir=builds).diagnostics
    assert found.code == "unbound-dimension" and "batch: a value f32[" in found.message
    assert found.help == "give sizes, or ranges such as 1..8, for example --dim batch=1"
    program: Any = dlc.build(content, QUICK, dims={"batch": "1..8"}, cache_dir=builds)
    assert program(a=np.ones((5, 6), np.float32))["y"].shape == (5, 5)


def with_workspace(kind: str) -> bytes:
    """Networks whose kernels keep something for every row of all the batch."""
    if kind == "many":  # one kernel of so many statements that it is several functions
        nodes = [n("Neg", ["a"], ["b"]), n("Concat", ["a", "b"] * 40, ["y"], axis=1)]
        return model(nodes, {"a": ("batch", 3)}, ["y"], {})
    if kind == "gathered":
        nodes = [
            n("Gather", ["a", "rows"], ["b"], axis=1),
            n("ReduceMean", ["b"], ["m"], axes=[1]),
            n("Sub", ["b", "m"], ["y"]),
        ]
        return model(nodes, {"a": ("batch", 20, 9), "rows": (4,)}, ["y"], {}, integers=("rows",))
    if kind == "places":
        nodes = [n("TopK", ["a", "k"], ["y", "places"], axis=1)]
        return model(nodes, {"a": ("batch", 99)}, ["y", "places"], {"k": np.array([2])})
    nodes = [
        n("MatMul", ["a", "w"], ["b"]),
        n("LayerNormalization", ["b", "scale"], ["c"]),
        n("Softmax", ["c"], ["d"], axis=-1),
        n("MatMul", ["d", "wide"], ["y"]),
    ]
    constants = {"w": weights(99, 40), "scale": weights(40), "wide": weights(40, 300)}
    return model(nodes, {"a": ("batch", 7, 99)}, ["y"], constants)


@pytest.mark.parametrize("cpu", ["generic", "native", "x86-64-v3"])
@pytest.mark.parametrize("kind", ["places", "normalised", "many", "gathered"])
def test_kernels_work_in_memory_for_the_rows_of_a_call(kind: str, cpu: str, builds: Path) -> None:
    content = with_workspace(kind)
    program: Any = dlc.build(content, f"c{{cpu={cpu} flags=-O0}}", cache_dir=builds)
    check(program, content, [{"batch": batch} for batch in SIZES])
    if program._library.manifest["memory"]["arena_bytes"]:
        needs = [program.arena_bytes_at(batch=batch) for batch in SIZES]
        assert needs[0] < needs[3] < needs[1] < needs[4] < 1 << 23
    parts = [k["function"] for k in program._library.manifest["kernels"] if kind == "many"]
    assert (
        not parts or "dlc_p_" in (program._library.directory / f"{program._library.manifest['prefix']}.c").read_text()
    )


def test_what_needs_numbers_says_so(builds: Path) -> None:
    found = refused(images(), "c{arena=static}", cache_dir=builds).diagnostics[0]
    assert found.code == "unbound-dimension" and "arena=static" in found.message
    found = refused(images(), "s2train", cache_dir=builds).diagnostics[0]
    assert (found.code, found.help) == ("symbolic-dimension", "give one size: --dim batch=1")
    assert found.notes == ('batch is 1 or more: of input "x"',)


def test_a_model_that_cannot_be_read_for_any_size_is_refused_as_before(builds: Path) -> None:
    """The size decides something: that it is missing is the error, not what it would decide."""
    nodes = [n("Reshape", ["a", "to"], ["b"]), n("MatMul", ["b", "w"], ["y"])]
    content = model(nodes, {"a": ["batch", 6]}, ["y"], {"to": np.array([1, -1]), "w": weights(12, 2)})
    (found,) = refused(content, cache_dir=builds).diagnostics[:1]
    assert found.code == "unbound-dimension" and "1 dimension of the inputs has no size" in found.message
    program: Any = dlc.build(content, QUICK, dims={"batch": 2}, cache_dir=builds)
    assert program(a=np.ones((2, 6), np.float32))["y"].shape == (1, 2)


def test_the_program_says_which_size_is_wrong(builds: Path) -> None:
    program: Any = dlc.build(images(), QUICK, cache_dir=builds)
    with pytest.raises(DlcError, match='dimension 0 of input "x" is 0: batch is 1 or more'):
        program(x=np.ones((0, 3, 8, 8), np.float32))


def dlc_run(*line: str, cwd: Path, cache: str = "off") -> subprocess.CompletedProcess[str]:
    """A command line in this process: starting another one takes longer than most of them."""
    out, errors = io.StringIO(), io.StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(errors):
        code = run([*line, "--cache", cache, "--cache-dir", "cache"])
    return subprocess.CompletedProcess(line, code, out.getvalue(), errors.getvalue())


def test_what_evaluates_graphs_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(images())
    done = dlc_run("build", "m.onnx", "--verify-steps", "-q", "--target", "c{lib=none}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the size of batch has no limit; a range (--dim) has one" in done.stdout
    done = dlc_run("verify", "m.onnx", "--gradients", "-q", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE and done.stderr.startswith("error[symbolic-dimension]: the check of")


def test_what_plans_the_largest_call_needs_limits(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(images())
    built = ["build", "m.onnx", "--set", "plan-memory.limit=1MiB"]
    for line in (["plan", "m.onnx"], built, ["build", "m.onnx", "--stats", "--target", "c{lib=none}"]):
        done = dlc_run(*line, "-q", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
        assert done.stderr.startswith("error[unbound-dimension]: batch: ") and "--dim batch=1" in done.stderr
    assert not (tmp_path / "m").exists()
