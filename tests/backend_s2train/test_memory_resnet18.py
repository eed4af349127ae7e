"""Memory and traffic of ResNet-18's training step, of four images: bounds that are reached, and published figures."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.cost.counts import by_kind, traffic_of
from dlc_backend_s2train.cost.picture import peak_and_bound, planned
from dlc_backend_s2train.cost.unfused import unfused_of
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.legacy_plan import Life, legacy_plan, lives_from, lives_of
from dlc_backend_s2train.program import Element, Program, Role

from tests.backend_s2train.networks import S2_NETWORKS
from tests.backend_s2train.torch_steps import SGD, step_of

pytestmark = pytest.mark.slow
LIVES = json.loads((Path(__file__).parents[1] / "data" / "s2train" / "lifetimes.json").read_text(encoding="utf-8"))
PUBLISHED = {
    "resnet18_b1_merge_imm": 6_952_960,
    "resnet18_b4_merge_imm": 13_656_064,
    "resnet18_b16_merge_imm": 40_468_480,
    "alexnet_b4_merge_imm": 20_881_408,
}
"""The most bytes that live at once; the published compiler's plan for ResNet-18 and four images takes 13,721,600."""
COMPACT = 9_601_024
"""The same of ResNet-18 and four images with masks of one bit and pointers of four, in the published order."""


def resnet18(select: str = "") -> Program:
    return step_of(S2_NETWORKS["resnet18"], SGD, select)


def test_the_plan_reaches_its_bound_and_reads_nothing_unwritten() -> None:
    program = resnet18()
    assert list(verify(program)) == []
    peak, bound = peak_and_bound([program.storages[n] for n in planned(program)])
    assert peak == bound == 6_209_536 <= COMPACT
    assert (program.meta["arena"], program.meta["gap_percent"]) == (str(peak), "0.00")


def test_masks_and_pointers_are_compact() -> None:
    tensors = [t for t in resnet18().tensors if t.role in (Role.MASK, Role.POINTER)]
    # 17 relus, one pool.
    assert Counter(t.element for t in tensors) == {Element.BIT: 17, Element.PTR4: 1}


@pytest.mark.parametrize("name", PUBLISHED)
def test_first_fit_reaches_published_bounds(name: str) -> None:
    """Full masks, and the lifetimes of the published compiler."""
    found = legacy_plan(lives_from(LIVES[name]))
    assert (found.arena, found.bound, found.tries) == (PUBLISHED[name], PUBLISHED[name], 1)


def totals(lives: list[Life]) -> Counter[str]:
    """Bytes by kind."""
    found: Counter[str] = Counter()
    for life in lives:
        found[life.kind] += life.size
    return found


def test_our_step_in_the_published_count() -> None:
    """Full masks: the same bytes but for what the other compiler stores needlessly; and our order needs fewer."""
    lives = lives_of(resnet18())
    ours, theirs = totals(lives), totals(lives_from(LIVES["resnet18_b4_merge_imm"]))
    features = 2 * 4 * 512
    """Bytes of what the classifier reads."""
    # It copies what it flattens, in both directions; undoes the last pool, relu and norm in three instructions, where
    # ours keep the gradient behind the norm and that before; computes the gradient of the images; and has no bias.
    assert theirs["ACTIVATION"] - ours["ACTIVATION"] == features
    assert theirs["FEATURE_GRAD"] - ours["FEATURE_GRAD"] == features + 2 * 4 * 512 * 4 * 4 + 2 * 4 * 3 * 32 * 32
    assert theirs["WEIGHT_GRAD"] - ours["WEIGHT_GRAD"] == -2 * 10
    found = legacy_plan(lives, "search")
    assert found.arena == found.bound == 9_658_368 < PUBLISHED["resnet18_b4_merge_imm"]


FEATURES = (Role.INPUT, Role.ACTIVATION, Role.MASK, Role.POINTER, Role.FEATURE_GRADIENT)


def bytes_by_role(program: Program) -> Counter[Role]:
    """Bytes that instructions read and write."""
    found: Counter[Role] = Counter()
    for instruction in program.instructions:
        for slot, way in access(instruction).items():
            tensor = program.tensors[instruction.operands[slot]]
            found[tensor.role] += tensor.nbytes * (2 if way == "update" else 1)
    return found


def test_what_fusion_saves() -> None:
    """Less than 55 % of the traffic of features and their gradients; what moves for weights is the same for both."""
    fused, unfused = resnet18(), resnet18("fuse=no")
    assert list(verify(unfused)) == []
    assert (len(fused.instructions), len(unfused.instructions)) == (86, 178)
    one, other = bytes_by_role(fused), bytes_by_role(unfused)
    part = sum(one[role] for role in FEATURES) / sum(other[role] for role in FEATURES)
    assert 0.45 < part < 0.46
    assert {role: size for role, size in one.items() if role not in FEATURES} == {
        role: size for role, size in other.items() if role not in FEATURES
    }
    # 223 of 260 million bytes are weights, their gradients and the optimizer's state, eleven million of each.
    assert traffic_of(fused).bytes == sum(one.values())
    assert 0.85 < traffic_of(fused).bytes / traffic_of(unfused).bytes < 0.86
    # What the build prints, without compiling the network again.
    assert unfused_of(fused) == by_kind(unfused)
