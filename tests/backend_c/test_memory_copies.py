"""Programs that copy values between memories give the bits of programs that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.manifest import read

from dlc import Report, Spec
from dlc.api.plan import Plan
from dlc.graph import Copy
from dlc.passes.plan_memory import PlanMemory
from tests.backend_c.models import shell
from tests.passes.skip_networks import NETWORKS, ordered
from tests.placement.aliased_graphs import Pair, failures, with_copies
from tests.tools import COMPILERS, SANITIZE, SANITIZING


def pairs() -> list[Pair]:
    """Each network without reuse, and in two memories that fit it badly."""
    found: list[Pair] = []
    for network in NETWORKS.values():
        plan = ordered(network(), fused=False)
        whole = PlanMemory().run(plan, Report()).memory
        plain = PlanMemory(strategy="none", in_place=False).run(plan, Report())
        regions = (("fast", whole // 3), ("slow", 1 << 20))
        found.append(Pair(len(found), plain, PlanMemory(regions=regions).run(plan, Report())))
    assert sum(copies(pair.shared) > 0 for pair in found) >= 2
    return found


def copies(plan: Plan) -> int:
    return sum(isinstance(step, Copy) for step in plan.steps)


@pytest.mark.parametrize("cc", COMPILERS)
def test_networks(cc: str, tmp_path: Path) -> None:
    sanitize = SANITIZE if cc in SANITIZING else ()
    assert failures(pairs(), tmp_path, (cc, "-O0", *sanitize)) == []


@pytest.mark.parametrize("cc", COMPILERS)
def test_random_graphs(cc: str, tmp_path: Path) -> None:
    drawn = [pair for seed in range(60) if copies((pair := with_copies(seed)).shared)]
    assert len(drawn) >= 3
    sanitize = SANITIZE if cc in SANITIZING else ()
    assert failures(drawn, tmp_path, (cc, "-O0", *sanitize)) == []


@pytest.mark.parametrize("cc", COMPILERS)
def test_the_text_has_no_warnings(cc: str, tmp_path: Path) -> None:
    """What is copied is copied by memcpy: no function is generated for it."""
    plan = ordered(NETWORKS["unet"](), fused=False)
    whole = PlanMemory().run(plan, Report()).memory
    plan = PlanMemory(regions=(("fast", whole // 3), ("slow", 1 << 20))).run(plan, Report())
    backend = C.from_spec(Spec.parse(f"c{{cpu=generic prefix=net memory=fast:{whole // 3},slow:1MiB steps=yes}}"))
    for name, content in backend.emit(plan, Report()).files.items():
        (tmp_path / name).write_bytes(read(content))
    text = (tmp_path / "net.c").read_text()
    assert text.count("memcpy(") >= copies(plan) > 0
    shell(cc, "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-c", "net.c", cwd=tmp_path)
