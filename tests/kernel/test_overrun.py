"""How far loops go behind the last element of a call: at every size no further than `overruns` says, on any machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import dlc.kernel.loops.evaluate as evaluate
from dlc.base.extents import symbol, value
from dlc.kernel.loops.memory import Memory
from dlc.kernel.schedules import overruns, schedule
from dlc.passes.lower import Kernels, lower_op
from tests.kernel.test_limits import OPS, TARGETS

Array = Any
LARGEST = 40
SIZES = (1, 2, 3, 7, 8, 13, 16, 31, 39, 40)


class Watched(Memory):
    """Memory that notes the largest subscript of every tensor, and lets what nobody wrote be read."""

    last: Mapping[str, int] = {}

    def spots(self, name: str, first: Array, lanes: int) -> Array:
        found = super().spots(name, first, lanes)
        seen = dict(type(self).last)
        seen[name] = max(seen.get(name, -1), int(found.max(initial=-1)))
        type(self).last = seen
        return found

    def read(self, name: str, spots: Array) -> Array:
        return self.tensors[name][spots]

    def result(self, name: str) -> Array:
        return self.tensors[name]


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("name", OPS)
def test_no_subscript_is_larger(name: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "Memory", Watched)
    kernel = lower_op(OPS[name](symbol("n", 1, LARGEST)), Kernels()).body
    program = schedule(kernel, TARGETS[machine].machine)
    tensors = (*program.params, *program.results)
    behind = dict(zip((p.name for p in tensors), overruns(program), strict=True))
    rng = np.random.default_rng(3)
    for size in SIZES:
        Watched.last = {}
        sized = [p.type.symbol is not None for p in program.params]
        arrays = [
            np.asarray(size, np.int64) if is_size else rng.random(p.type.room).astype(np.float32)
            for p, is_size in zip(program.params, sized, strict=True)
        ]
        evaluate.run_loops(program, arrays)
        for p in tensors:
            if p.type.is_open and p.name in Watched.last:
                extra = behind[p.name]
                assert extra is not None
                assert Watched.last[p.name] < value(p.type.reach, {"n": size}) + extra, (p.name, size)
