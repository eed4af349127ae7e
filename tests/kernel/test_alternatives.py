"""Schedules that are worth measuring: other ways and other numbers, all of which apply and compute the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.schedules.alternatives import HOPELESS, alternatives
from dlc.kernel.schedules.choice import Choice
from dlc.kernel.schedules.contraction import Tiles
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.plain import Loops
from dlc.kernel.schedules.schedule import groups_of, scheduled
from dlc.kernel.schedules.text import print_choices
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.backend_c.test_schedules import depthwise, matmul
from tests.machines import MACHINES

PRODUCT = parse_kernel(matmul(10, 32, 16, False))
SMALL = parse_kernel(matmul(6, 16, 8, False))
SOFTMAX = parse_kernel(
    """kernel(f32[6,40]) -> (f32[6,40]) local (f32[6], f32[6]) {
  k<40: t0[i] max= p0[i,k]
  k<40: t1[i] += exp(p0[i,k]-t0[i])
  r0[i,j] = exp(p0[i,j]-t0[i])/t1[i]
}"""
)
KERNELS = {"product": PRODUCT, "depthwise": parse_kernel(depthwise(8, 16, 1)), "softmax": SOFTMAX}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("machine", MACHINES)
def test_all_compute_what_the_kernel_says(name: str, machine: str) -> None:
    kernel = KERNELS[name]
    found = alternatives(kernel, MACHINES[machine], 12)
    assert found[0].choices == scheduled(kernel, MACHINES[machine]).choices
    assert len({a.choices for a in found}) == len(found)
    inputs = samples(kernel)
    want = run_kernel(kernel, inputs)
    for a in found:
        again = scheduled(kernel, MACHINES[machine], a.choices)
        assert again.choices == a.choices, "all numbers are known"
        for x, y in zip(run_loops(again.program, inputs), want, strict=True):
            assert close(x, y)


def plain(choice: Choice) -> bool:
    """Whether it is tiles that copy nothing, as the default."""
    return (
        choice == Tiles(columns=1, vectors=choice.vectors, rows=choice.rows, block=choice.block)
        if isinstance(choice, Tiles)
        else False
    )


def test_ways_come_before_numbers_and_little_before_much() -> None:
    machine = Machine(32, 16)
    found = alternatives(PRODUCT, machine, 1000)
    first, *others = found
    ways = [a for a in others if not plain(a.choices[0])]
    assert ways
    assert found[1] in ways
    numbers = [a.cycles for a in others if plain(a.choices[0])]
    assert len(numbers) > 4
    assert numbers == sorted(numbers)
    assert max(a.cycles for a in found) <= HOPELESS * first.cycles
    assert alternatives(PRODUCT, machine, 5) == found[:5]


def test_each_differs_in_one_group() -> None:
    machine = Machine(32, 16)
    first, *others = alternatives(SOFTMAX, machine, 1000)
    for a in others:
        assert sum(x != y for x, y in zip(a.choices, first.choices, strict=True)) == 1


def test_the_seed_decides_between_equals_only() -> None:
    found = {seed: alternatives(SMALL, Machine(32, 16), 1000, seed) for seed in range(2)}
    assert found[0] == alternatives(SMALL, Machine(32, 16), 1000, 0)
    assert {frozenset(a.choices for a in f) for f in found.values()} == {frozenset(a.choices for a in found[0])}


def variants(choice: Choice, machine: Machine) -> set[str]:
    (place,) = groups_of(PRODUCT, machine)
    return {v.brief for v in choice.variants(place)}


def test_numbers_after_the_one_that_changes_are_left_open() -> None:
    found = variants(Tiles(columns=1, vectors=2, rows=6, block=10), Machine(32, 16))
    assert {"tiles{columns=1 vectors=1}", "tiles{columns=1 vectors=3}"} <= found
    assert {"tiles{columns=1 vectors=2 rows=5}", "tiles{columns=1 vectors=2 rows=12}"} <= found
    assert {"tiles{columns=1 vectors=2 rows=6 block=8}", "tiles{columns=1 vectors=2 rows=6 block=20}"} <= found
    assert "tiles{columns=1 panels=yes}" in found
    assert not any("parallel" in text for text in found)


def test_threads_may_be_left_out() -> None:
    several = replace(Machine(32, 16), threads=2)
    assert variants(Loops(parallel=("i",)), several) == {"loops{parallel=no}"}
    assert variants(Loops(parallel=("no",)), several) == set()
    assert variants(Loops(), Machine(32, 16)) == set()
    assert print_choices([Loops()]) == "loops"
