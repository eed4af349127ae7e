"""Programs whose values share memory compute what programs without sharing compute, whatever aliases there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dlc.verify.plan_check import check_plan
from tests.placement.aliased_graphs import Pair, failures, planned

FIRST, GRAPHS = 60, 16


def harmed(pair: Pair) -> Pair:
    """The same with all values at one place."""
    slots = {d: replace(slot, offset=0, region="arena") for d, slot in pair.shared.slots.items()}
    most = max((slot.size for slot in slots.values()), default=0)
    return replace(pair, seed=-pair.seed, shared=replace(pair.shared, slots=slots, regions={"arena": most}))


def test_sharing_changes_no_bit(tmp_path: Path) -> None:
    """Of graphs one after another, then of those whose values were put in one place, which must be noticed."""
    pairs = [planned(seed) for seed in range(FIRST, FIRST + GRAPHS)]
    assert [check_plan(pair.shared) for pair in pairs] == [[]] * GRAPHS
    assert any(len(pair.shared.own_regions) > 1 for pair in pairs)
    assert any(pair.shared.consumed for pair in pairs)
    assert any(pair.shared.held for pair in pairs)
    assert any(pair.shared.graph.aliases for pair in pairs)
    assert sum(pair.shared.memory for pair in pairs) < 0.8 * sum(pair.plain.memory for pair in pairs)
    wrong = [harmed(pair) for pair in pairs if check_plan(harmed(pair).shared)][:4]
    found = failures([*pairs, *wrong], tmp_path)
    assert set(found) <= {pair.seed for pair in wrong}
    assert len(found) >= 3, "values in one place were hardly noticed"
