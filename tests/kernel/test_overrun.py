"""How far loops go behind the last element of a call: no further than `overruns` and `lengths` say, at any size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import dlc.kernel.loops.evaluate as evaluate
from dlc.base.extents import Dim, symbol, value
from dlc.base.polynomials import LONGEST
from dlc.kernel.expr import Axis, Const, Expr, Load, lift
from dlc.kernel.loops.memory import Memory
from dlc.kernel.loops.program import For
from dlc.kernel.schedules.largest import Largest
from dlc.kernel.schedules.overrun import lengths, overruns
from dlc.kernel.schedules.schedule import schedule
from dlc.ops.normalize import LayerNorm
from dlc.ops.order import FirstOf
from dlc.passes.lower import Kernels, lower_op
from tests.kernel.test_limits import OPS, TARGETS, x

Array = Any
LARGEST = 40
SIZES = (1, 2, 3, 7, 8, 13, 16, 31, 40)


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
        for name, length in lengths(program).items():
            assert Watched.last.get(name, -1) < value(length, {"n": size}), (name, size)


@pytest.mark.parametrize("machine", TARGETS)
def test_a_buffer_for_all_rows_is_as_long_as_a_call_needs_it(machine: str) -> None:
    n = symbol("n", 1, LONGEST)
    scale, rows, places = x("s", 24), x("a", n, 3, 24), x("b", n, 50)
    # Norms compute one row after the other.
    for op, elements in ((LayerNorm(rows, scale, scale), []), (FirstOf(places, axis=1, count=3), [50 * n])):
        program = schedule(lower_op(op, Kernels()).body, TARGETS[machine].machine)
        assert [length for length in lengths(program).values() if isinstance(length, Dim)] == elements


def loops_of(*axes: tuple[str, Expr | int]) -> dict[str, tuple[int, For]]:
    return {name: (k + 1, For(Axis(name, 1 << 30), Const(0), lift(stop), ())) for k, (name, stop) in enumerate(axes)}


def test_numbers_that_no_subscript_is_above() -> None:
    size0, i, k = Axis("size0", 1 << 20), Axis("i", 1 << 30), Axis("k", 12)
    n = size0 + 1
    rows = loops_of(("i", n), ("k", 12))
    assert Largest(rows).of(k * n + i - 12 * n) == -1
    assert Largest(rows).of((k + 3) * n + i - 15 * n) == -1
    assert Largest(rows).of(i * 7 - n * 7 - k) == -7
    flat = loops_of(("i", n * 12))
    assert Largest(flat).of(i // n) == 11
    assert Largest(flat).of((i % n) * 5 - n * 5) == -5
    fours = {"k": (1, For(k, Const(0), Const(12), (), step=4))}
    assert Largest(fours).of(k + 3) == 11
    assert Largest(rows).of(i // 2 - n // 3) is not None
    assert Largest(rows).of(Load("p", (i,)) - n) is None
