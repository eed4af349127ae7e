"""The arena of a program for a range of sizes: what a call needs is what the formula says, and it suffices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import QUICK, runtime
from sized_models import feeds
from test_sizes import CASES

import dlc

Array = Any
GUARD = 4096
"""Bytes behind the arena that have to stay as they are."""


def told(formula: str, sizes: dict[str, int]) -> int:
    """The value of a formula as the manifest has it."""
    return int(eval(formula, {"min": min, "max": max}, dict(sizes)))


@pytest.mark.parametrize("cpu", ["generic", "native"])
@pytest.mark.parametrize("name", CASES)
def test_what_a_call_needs_suffices(name: str, cpu: str, builds: Path) -> None:
    make, dims, several = CASES[name]
    content = make()
    program: Any = dlc.build(content, f"c{{cpu={cpu} flags=-O0}}", dims=dims, cache_dir=builds)
    memory = program._library.manifest["memory"]
    formula = memory.get("arena_formula", str(memory["arena_bytes"]))
    loaded = onnx.load_model_from_string(content)
    names = [o.name for o in loaded.graph.output]
    found: list[int] = []
    for sizes in several:
        told_by = dict(zip((d.replace(" ", "_") for d in dims), sizes, strict=True))
        need = program.arena_bytes_at(**told_by) if "arena_sizes" in memory else program.arena_bytes
        found.append(need)
        assert need == told(formula, told_by)
        room = np.full(need + GUARD + 64, 0xA5, np.uint8)
        start = -room.ctypes.data % 64
        program._own.arena = room[start:]
        given = feeds(content, dict(zip(dims, sizes, strict=True)))
        got = program(**given)
        assert (room[start + need :] == 0xA5).all(), f"behind the arena at {sizes}"
        for output, wanted in zip(names, runtime(loaded, names, given), strict=True):
            np.testing.assert_allclose(got[output], wanted, rtol=1e-4, atol=1e-5, err_msg=f"{output} at {sizes}")
    assert max(found) <= program.arena_bytes
    # Loops of small values go behind their ends, and how far subscripts of data go is not known.
    assert min(found) < program.arena_bytes or name in ("shapes", "cuts", "chosen")


def test_a_program_of_one_size_has_no_formula(builds: Path) -> None:
    make, dims, _ = CASES["attention"]
    program: Any = dlc.build(make(), QUICK, dims={**dims, "batch": "2", "seq": "8"}, cache_dir=builds)
    assert "arena_formula" not in program._library.manifest["memory"]
    assert program.arena_bytes_at() == program.arena_bytes


def test_sizes_that_a_program_is_not_built_for_are_reported(builds: Path) -> None:
    make, dims, _ = CASES["attention"]
    program: Any = dlc.build(make(), QUICK, dims=dims, cache_dir=builds)
    with pytest.raises(dlc.DlcError, match="not built for batch=4, seq=1"):
        program.arena_bytes_at(batch=4, seq=1)
    with pytest.raises(dlc.DlcError, match="sizes are needed of batch, seq"):
        program.arena_bytes_at(batch=1)
