"""plan-memory and its allocators: which is asked, what is kept, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.report import Report
from dlc.base.types import Type, f32
from dlc.cache import open_cache
from dlc.cache.step_record import Handle
from dlc.driver.codec import Context
from dlc.driver.session import Session, Stage
from dlc.graph import Graph, Input, make_graph
from dlc.passes.plan_memory import PlanMemory
from dlc.placement import Buffer
from dlc.plugins.discovery import load_registry
from dlc.spec import Spec
from dlc.verify.kit.allocators import GAPS

BUFFERS = [Buffer(k, size, birth, death) for k, (birth, death, size) in enumerate(GAPS[0])]
REGISTRY = load_registry(kinds=("passes", "allocators"))


def stage(options: str) -> PlanMemory:
    found = REGISTRY.stage(Spec.parse(f"plan-memory{{align=1 {options}}}"))
    assert isinstance(found, PlanMemory)
    return found


@pytest.mark.parametrize("strategy", ["exact", "auto"])
def test_what_it_finds_is_proven_and_kept(strategy: str) -> None:
    report = Report()
    found = stage(f"strategy={strategy}").placed(BUFFERS, report)
    assert (found.arena, found.floor, found.proven, report.passing) == (7, 7, True, "")


def test_code_of_allocators_counts_where_it_may_act() -> None:
    assert "dlc_backend_c" in stage("strategy=auto").packages
    assert stage("strategy=exact").packages == stage("strategy=auto").packages
    assert stage("").packages == ()


def test_no_allocator() -> None:
    """As in an installation without the C backend."""
    report = Report()
    found = PlanMemory(strategy="auto", align=1).placed(BUFFERS, report)
    assert (found.arena, found.floor, found.proven) == (7, 6, False)
    assert report.passing == "auto: no allocator can be used on this machine: none is installed"
    with pytest.raises(DlcError, match="no allocator can be used for strategy=exact") as caught:
        PlanMemory(strategy="exact").placed(BUFFERS, Report())
    assert caught.value.exit_code == ExitCode.TOOL
    assert 'pip install "dlc[c]"' in caught.value.diagnostics[0].help


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DlcError) as caught:
        stage("strategy=exact allocator=branch-and-bound").placed(BUFFERS, Report())
    assert caught.value.diagnostics[0].notes == ("branch-and-bound: no C compiler found: install gcc or clang",)


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(DlcError, match="there is no allocator branch-and-bond") as caught:
        stage("strategy=auto allocator=branch-and-bond").placed(BUFFERS, Report())
    assert caught.value.diagnostics[0].help == "did you mean branch-and-bound?"


def test_what_a_clock_ended_is_told() -> None:
    report = Report()
    found = stage("strategy=auto seconds=0").placed(BUFFERS, report)
    assert found.late and not found.proven
    assert report.passing == "the allocator was stopped after 0 s"
    assert report.notes == [f"{report.passing}; another run may find other offsets, so the cache does not keep these"]


@pytest.mark.parametrize("passing", ["", "a clock ended it"])
def test_the_cache_keeps_only_what_repeats(passing: str, tmp_path: Path) -> None:
    runs: list[int] = []
    x = Input("x", Type(f32, (2,)))
    graph = make_graph([x], {"y": x})

    def run(given: Graph, report: Report) -> Graph:
        runs.append(1)
        report.passing = passing
        return given

    with open_cache(tmp_path, "rw") as cache:
        session = Session(cache, Context(dict))
        handle: Handle[Graph] = Handle("graph", graph.digest, lambda: graph, ())
        done = [session.step(Stage("timed", "dlc", run), handle) for _ in range(2)]
    assert [d.cached for d in done] == [False, not passing]
    assert len(runs) == (2 if passing else 1)
