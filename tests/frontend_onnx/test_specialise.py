"""`--specialise`: programs for a range of sizes with fast paths for single ones."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from building import QUICK
from sanitized import SANITIZERS, run_sanitized
from sized_models import attention, feeds, model, n, pyramid
from test_no_limit import check, dlc_run, images, with_workspace

import dlc
from dlc import DlcError, Source
from dlc.base.diagnostics import ExitCode
from dlc.driver.program import Compiler
from dlc.runtime.install import install

Array = Any
RANGES = {"batch": "1..4", "seq": "1..9"}


def found_rows() -> bytes:
    """As many rows as an input has elements that are not 0."""
    nodes = [n("NonZero", ["a"], ["places"]), n("Neg", ["a"], ["y"])]
    return model(nodes, {"a": ("batch", 5)}, ["places", "y"], {})


CASES: Mapping[str, tuple[bytes, Mapping[str, str], Mapping[str, tuple[int, ...]], list[Mapping[str, int]]]] = {
    "without a limit": (images(), {}, {"batch": (1, 8)}, [{"batch": b} for b in (1, 2, 8, 9)]),
    "one of two": (
        attention(),
        RANGES,
        {"batch": (1, 3)},
        [{"batch": b, "seq": s} for b, s in ((1, 9), (1, 2), (2, 5), (3, 1), (4, 9))],
    ),
    "both": (
        attention(),
        RANGES,
        {"batch": (1, 4), "seq": (9,)},
        [{"batch": b, "seq": s} for b, s in ((1, 9), (1, 8), (4, 9), (4, 1), (2, 9))],
    ),
    "places of a workspace": (with_workspace("places"), {}, {"batch": (2,)}, [{"batch": b} for b in (1, 2, 3)]),
    "sizes that a call finds": (found_rows(), {"batch": "1..6"}, {"batch": (1, 6)}, [{"batch": b} for b in (1, 3, 6)]),
}


@pytest.mark.parametrize("cpu", ["generic", "native"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_onnxruntime(name: str, cpu: str, builds: Path) -> None:
    content, dims, special, sizes = CASES[name]
    program: Any = dlc.build(content, f"c{{cpu={cpu} flags=-O0}}", dims=dims, specialise=special, cache_dir=builds)
    check(program, content, sizes)


def test_a_fast_path_is_the_program_of_its_size(builds: Path) -> None:
    """It has the plan of that program, and its kernels are those of that program; weights are there once."""
    content = images()
    program: Any = dlc.build(content, QUICK, specialise={"batch": (1, 8)}, cache_dir=builds)
    general: Any = dlc.build(content, QUICK, cache_dir=builds)
    manifest = program._library.manifest
    kernels = {k["digest"] for k in manifest["kernels"]}
    assert manifest["memory"]["fast_paths"] == "batch=1; batch=8"
    for batch in (1, 8):
        fixed: Any = dlc.build(content, QUICK, dims={"batch": batch}, cache_dir=builds)
        assert program.arena_bytes_at(batch=batch) == fixed.arena_bytes < general.arena_bytes_at(batch=batch)
        assert {k["digest"] for k in fixed._library.manifest["kernels"]} <= kernels
        given = feeds(content, {"batch": batch})
        np.testing.assert_array_equal(program(**given)["y"], fixed(**given)["y"])
    assert program.arena_bytes_at(batch=3) == general.arena_bytes_at(batch=3)
    weights = [int(p._library.manifest["memory"]["weights_bytes"]) for p in (program, general)]
    assert weights[0] <= 1.1 * weights[1]


MAIN = r"""
#include <stdlib.h>
#include "attn.h"
int main(void) {
    for (int64_t batch = 1; batch <= 4; batch++) {
        for (int64_t seq = 1; seq <= 9; seq += 4) {
            const size_t bytes = attn_arena_bytes(batch, seq), rows = (size_t)(batch * seq);
            float *x = calloc(rows * 24, sizeof(float)), *mask = calloc(rows, sizeof(float));
            float *y = malloc(rows * 24 * sizeof(float)), *mean = malloc((size_t)batch * 24 * sizeof(float));
            const void *inputs[] = {x, mask, &batch, &seq};
            void *outputs[] = {y, mean}, *arena = aligned_alloc(ATTN_ARENA_ALIGN, (bytes + 63) / 64 * 64);
            if (!bytes || attn_run(inputs, outputs, arena) != ATTN_OK) return 1;
            free(arena); free(x); free(mask); free(y); free(mean);
        }
    }
    return attn_arena_bytes(5, 1) != 0;
}
"""


@pytest.mark.parametrize("special", [{"batch": (1, 3)}, {"batch": (2,), "seq": (5, 9)}], ids=str)
@pytest.mark.parametrize("tools", SANITIZERS)
def test_c_works_in_the_memory_that_it_asks_for(
    tools: str, special: Mapping[str, tuple[int, ...]], tmp_path: Path, builds: Path
) -> None:
    out = tmp_path / "m"
    source = Source(data=attention(), label="m.onnx")
    target = "c{cpu=generic lib=none weights=text prefix=attn}"
    install(Compiler.open(builds).artifact(source, target, dims=RANGES, specialise=special), out)
    assert len(re.findall(r"^static int attn_v\d+\(", (out / "attn.c").read_text(), re.M)) == 2
    run_sanitized(out, "attn", MAIN, tools)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (["--specialise", "batch"], "bad-option", "--specialise batch is not of the form NAME=N,N"),
        (["--specialise", "batch=1,,2"], "bad-option", "is not of the form NAME=N,N"),
        (["--specialise", "batch=1", "--specialise", "batch=2"], "bad-option", "names batch twice"),
        (["--specialise", "btch=1"], "bad-option", "btch is no dimension that is open"),
        (["--specialise", "batch=0"], "bad-option", "batch=0 is not one of its sizes, 1 or more"),
        (["--dim", "batch=1..8", "--specialise", "batch=9"], "bad-option", "batch=9 is not one of its sizes, 1..8"),
        (["--dim", "batch=2", "--specialise", "batch=2"], "bad-option", "batch is no dimension that is open"),
        (["--specialise", f"batch={','.join(map(str, range(1, 40)))}"], "bad-option", "39 fast paths, of at most 32"),
        (["--specialise", "batch=1", "--target", "s2train"], "no-variants", "programs of one size only"),
        (["--dim", "batch=8", "--specialise", "batch=1", "--train", "loss=mse"], "conflict", "--train"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_is_reported(line: list[str], code: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(images())
    done = dlc_run("build", "m.onnx", "-q", *line, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert done.stderr.startswith(f"error[{code}]: ") and said in done.stderr, done.stderr
    assert not (tmp_path / "m").exists()


def test_the_command_line_builds_says_and_remembers(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(images())
    line = ["build", "m.onnx", "--target", "c{cpu=generic}", "--specialise", "batch=1,8", "-o", "m"]
    first = dlc_run(*line, cwd=tmp_path, cache="rw")
    assert first.returncode == 0 and first.stdout.rstrip().endswith("fast paths for batch=1; batch=8")
    again = dlc_run(*line, "--json", cwd=tmp_path, cache="rw")
    steps = json.loads(again.stdout)["steps"]
    assert all(s["cached"] for s in steps) and {s.get("function", "") for s in steps} == {
        "",
        "any",
        "batch=1",
        "batch=8",
    }
    planned = dlc_run("plan", "m.onnx", "-q", "--dim", "batch=1..8", "--specialise", "batch=1", cwd=tmp_path)
    assert planned.returncode == 0 and re.search(r"^any .*\nbatch=1 ", planned.stdout, re.M)


def test_every_combination_has_a_fast_path(builds: Path) -> None:
    program: Any = dlc.build(
        attention(), QUICK, dims=RANGES, specialise={"batch": (1, 2), "seq": (3, 4)}, cache_dir=builds
    )
    paths = "batch=1,seq=3; batch=1,seq=4; batch=2,seq=3; batch=2,seq=4"
    assert program._library.manifest["memory"]["fast_paths"] == paths


def test_sizes_in_steps(builds: Path) -> None:
    content, dims = pyramid(), {"h": "8..24/8", "w": "8..24/8"}
    with pytest.raises(DlcError, match=r"h=12 is not one of its sizes, 8\.\.24 in steps of 8"):
        dlc.build(content, dims=dims, specialise={"h": (12,)}, cache_dir=builds)
    program: Any = dlc.build(content, QUICK, dims=dims, specialise={"h": (16,)}, cache_dir=builds)
    check(program, content, [{"h": 16, "w": 8}, {"h": 16, "w": 24}, {"h": 8, "w": 16}])
