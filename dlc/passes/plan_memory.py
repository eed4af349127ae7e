"""plan-memory: every intermediate value gets an offset in the arena.

    plan with an order   →   plan with offsets; values whose lifetimes overlap never share bytes

A reshape shares the memory of its operand, and an elementwise kernel may overwrite an argument that it reads for the
last time. The arena also holds the workspaces that kernels need while they run, and a copy of every input that is still
read after an output may have overwritten it. `--explain plan-memory` prints the size of the arena, the lower bound (the
most bytes that are live at once in this order) and the overhead over it.

Offsets are a problem of their own (dynamic storage allocation, NP-complete), and the strategies differ in what they
spend on it. `search` draws with a seed and counts its work, so results repeat. `exact` asks an allocator, which plugins
offer, whether the values fit into the bound, then into more, until nothing smaller is possible or its work is spent.
Only what is proven is called optimal. A limit in seconds makes results depend on the machine:
what it cut short is not kept in the cache.

With `regions`, values lie in several memories, those with most accesses per live byte in the first. Where that saves
more than it costs, values are copied between these: to slow memory while they wait for a late reader, to fast memory
before they are read. `--explain plan-memory` names the copies, and a lower bound of what accesses cost.

A graph that an operation holds has an arena of its own, which lies in the workspace of that operation, beside second
places of the values that a loop carries.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

from dlc.api.parts import Part
from dlc.api.passes import Level, Pass
from dlc.api.plan import Plan
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error
from dlc.base.memories import costs_problem, problem_of
from dlc.base.report import Report
from dlc.graph.closed import unlimited, without_limit
from dlc.passes.memory_fixed import with_fixed
from dlc.passes.memory_inputs import ONLY, beside_inputs, consumable
from dlc.passes.memory_limit import beyond_limit
from dlc.passes.memory_regions import Memories, several
from dlc.passes.memory_wanted import Wanted, origin_of
from dlc.placement import Allocator, Buffer, Placement, Region, check_placement, place
from dlc.placement.place import any_fixed
from dlc.spec import Bytes, OptionError, option

_WORK: Final = {"auto": 400, "exact": 10_000}
"""Millions of steps of the allocator by default."""


@dataclass(frozen=True)
class PlanMemory(Pass[Plan, Plan]):
    """Give every intermediate value a place: a plan with an order  →  the plan with offsets in the arena."""

    name: ClassVar[str] = "plan-memory"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "plan"
    level_out: ClassVar[Level] = "plan"
    allocators: ClassVar[tuple[Part[Allocator], ...]] = ()
    strategy: Literal["none", "greedy", "best-fit", "search", "exact", "auto"] = option(
        "search",
        "how offsets are chosen; none: values share no memory; exact: proven optimal where the work suffices; "
        "auto: search, then exact where an allocator can be used",
    )
    align: int = option(64, "alignment of every offset, in bytes", low=1)
    in_place: bool = option(True, "let an elementwise kernel overwrite an argument that it reads for the last time")
    seed: int = option(0, "seed of the search; equal seeds give equal plans", low=0)
    limit: Bytes | None = option(
        None, "maximum size of the arena; a larger one is an error that lists the largest values at the peak"
    )
    regions: tuple[tuple[str, Bytes], ...] = option(
        (),
        "memories and their sizes, the fastest first: fast:64KiB,slow:8MiB; a single one is a limit of the arena",
    )
    costs: tuple[tuple[str, float], ...] = option(
        (),
        "what reading or writing a byte of a memory costs, relative to others: fast:1,slow:8; by default 1 for the "
        "fastest, and four times as much in each that follows",
    )
    copies: bool = option(True, "copy values between several memories where accesses then cost less, copies included")
    fixed: tuple[tuple[str, Bytes], ...] = option(
        (), "offsets of values, by the nodes of the model that give them: conv1:0,relu2:4KiB; for one memory"
    )
    inputs: Literal["kept", "consumed"] = option(
        "kept",
        "consumed: values may lie in the memory of an input after its last reader, where the target says so to callers",
    )
    allocator: str = option("", "what decides for exact and auto; by default the first that can be used")
    work: int | None = option(
        None,
        "what the allocator may do, in millions of its steps, of which 200 take about a second; "
        "by default 400 for auto, 10000 for exact",
        low=1,
    )
    seconds: float | None = option(
        None, "wall-clock limit of the allocator; results that it cuts short are not kept in the cache", low=0.0
    )

    def __post_init__(self) -> None:
        """Refuse memories that are none."""
        problem = problem_of(self.regions)
        if len(self.regions) > 1 and self.limit is not None:
            problem = "of several memories each has its own size: limit is for one"
        if len(self.regions) > 1 and self.inputs == "consumed":
            problem = "inputs are consumed beside one memory only"
        of = "regions" if problem else "costs"
        if not problem and not (problem := costs_problem(self.regions, self.costs)) and self.fixed:
            of = "fixed"
            problem = "offsets are for one memory" if len(self.regions) > 1 or self.inputs == "consumed" else ""
        if problem:
            message = f"plan-memory: option {of}: {problem}"
            raise OptionError(error("bad-option", message, exit_code=ExitCode.USAGE), of)

    @property
    def _most(self) -> int | None:
        """Bytes that the only arena may take."""
        return min(
            [size for size in (self.limit, *(size for _, size in self.regions)) if size is not None], default=None
        )

    def compares(self) -> frozenset[str] | None:
        """See `Pass`. Values with fixed offsets are chosen by name."""
        return None if self.fixed else frozenset()

    def with_allocators(self, allocators: Sequence[Part[Allocator]]) -> PlanMemory:
        """This pass with the solvers that it may ask."""
        new = copy(self)
        object.__setattr__(new, "allocators", tuple(allocators))
        return new

    def changed(self, **options: Any) -> PlanMemory:
        """This pass with other options and the same solvers, which `dataclasses.replace` does not know."""
        return replace(self, **options).with_allocators(self.allocators)

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of the solvers that it may ask."""
        asked = self.allocators if self.strategy in ("exact", "auto") else ()
        return tuple(dict.fromkeys(package for part in asked for package in part.packages))

    def placed(self, buffers: Sequence[Buffer], report: Report) -> Placement:
        """Offsets of buffers, checked.

        Raises:
            DlcError: (USAGE) no allocator has the name; (TOOL) exact has none that can be used.
        """
        if self.strategy == "exact" and any_fixed(buffers):
            raise error(
                "no-effect",
                "plan-memory: strategy=exact knows no fixed offsets",
                help="use strategy=search",
                exit_code=ExitCode.USAGE,
            )
        solver = self._allocator() if self.strategy == "exact" else None  # an error without one, needed or not
        reasons: list[str] = []
        found = place(
            buffers,
            align=self.align,
            strategy=self.strategy,
            seed=self.seed,
            allocator=lambda: solver or self._allocator(reasons),
            work=(self.work or _WORK.get(self.strategy, 1)) * 10**6,
            deadline=None if self.seconds is None else time.monotonic() + self.seconds,
        )
        wrong = check_placement(buffers, found.offsets, self.align, found.arena)
        moved = [b.id for b, o in zip(buffers, found.offsets, strict=True) if b.fixed not in (None, o)]
        wrong += [f"buffers {moved} have other offsets than the fixed ones"] if moved else []
        assert not wrong, wrong
        if found.late:
            report.passing = f"the allocator was stopped after {self.seconds:g} s"
        elif reasons and not found.proven:
            report.passing = f"auto: no allocator can be used on this machine: {'; '.join(reasons)}"
        if report.passing:
            report.note(f"{report.passing}; another run may find other offsets, so the cache does not keep these")
        return found

    def _known(self, found: Placement) -> str:
        """What the allocator proved, to be appended to the figures."""
        if self.strategy not in ("exact", "auto"):
            return ""
        if found.proven:
            return ", optimal for this order"
        return f", smallest arena that is not disproved {found.floor:,} B"

    def _allocator(self, reasons: list[str] | None = None) -> Allocator | None:
        """The solver to ask; None where `auto` goes on without one, whose `reasons` are appended."""
        named = [part for part in self.allocators if self.allocator in ("", part.name)]
        if self.allocator and not named:
            raise error(
                "unknown-allocator",
                f"plan-memory: there is no allocator {self.allocator}",
                help=did_you_mean(self.allocator, [part.name for part in self.allocators], "allocators"),
                exit_code=ExitCode.USAGE,
            )
        reasons = [] if reasons is None else reasons
        for part in named:
            kind = part.load()
            lacks = kind.lacks()
            if not lacks:
                return kind()
            reasons.append(f"{part.name}: {lacks}")
        if self.strategy == "exact" or self.allocator:
            raise error(
                "no-allocator",
                f"plan-memory: no allocator can be used for strategy={self.strategy}",
                notes=reasons,
                help='pip install "dlc[c]", whose search needs a C compiler, or pip install "dlc[exact]"; '
                "or use strategy=search",
                exit_code=ExitCode.TOOL,
            )
        reasons += [] if reasons else ["none is installed"]
        return None

    def run(self, state: Plan, report: Report) -> Plan:
        """The plan with a slot for every intermediate value, and one for every step whose kernel works in memory."""
        # What bodies take is a part of the arena, which has the limit.
        inner, within = self.changed(limit=None, regions=(), costs=(), fixed=(), inputs="kept"), Report()
        state = replace(state, bodies={d: inner.run(body, within) for d, body in state.bodies.items()})
        report.passing = within.passing
        wanted = Wanted.of(state, self.in_place)
        if wanted.kept:
            names = ", ".join(i.name for i in wanted.kept)
            report.note(f"copied first, because an output may be written over them: {names}")
        if len(self.regions) > 1:
            return self._in_regions(state, wanted, report)
        wanted, given = with_fixed(state, wanted, self.fixed, self.align, self._most)
        free_inputs = consumable(state) if self.inputs == "consumed" else ()
        if free_inputs:
            return self._beside_inputs(state, wanted, free_inputs, report)
        found = self.placed(wanted.lives.buffers, report)
        overhead = 100.0 * (found.arena - found.bound) / found.bound if found.bound else 0.0
        free, most = without_limit(state.graph), self._most
        if free and most is not None:
            raise unlimited(free, f"a limit of the arena ({most:,} B) needs one of every size")
        if free:
            report.note(f"no arena for the largest call: {', '.join(s.name for s in free)} without a limit")
        else:
            bound = f"bound {found.bound:,} B at operation {found.bound_step}"
            report.note(f"arena {found.arena:,} B, {bound}, overhead {overhead:.2f} %{self._known(found)}")
        if most is not None and found.arena > most:
            raise self._too_large(state, found, wanted, most)
        facts: dict[str, int | str] = {
            "arena": found.arena,
            "bound": found.bound,
            "bound_step": found.bound_step,
            "overhead_percent": f"{overhead:.2f}",
            "method": found.method,
            **({"floor": found.floor} if found.floor > found.bound else {}),
            "unshared": wanted.unshared,
            **given,
        }
        return wanted.plan(state, lambda buffer: (ONLY, found.offsets[buffer]), {ONLY: found.arena}, facts)

    def _in_regions(self, state: Plan, wanted: Wanted, report: Report) -> Plan:
        """The plan in several memories. Raises DlcError: (USAGE) open sizes; (LIMIT) they are too small."""
        quick = self.changed(strategy="greedy", regions=(), costs=())

        def placer(some: Sequence[Buffer], enough: int | None) -> Placement:
            found = quick.placed(some, report) if enough is not None else None
            return found if found and enough is not None and found.arena <= enough else self.placed(some, report)

        memories = Memories.of(self.regions, self.costs, self.copies, self.align)
        return several(state, wanted, memories, placer, report)

    def _beside_inputs(self, state: Plan, wanted: Wanted, free: Sequence[Region], report: Report) -> Plan:
        """The plan with values in the memory of inputs that nobody reads any more."""
        found = beside_inputs(wanted.lives.buffers, free, self.align, lambda some, _: self.placed(some, report))
        report.note(found.note)
        if self._most is not None and found.placement.arena > self._most:
            raise self._too_large(state, found.placement, wanted, self._most)
        facts = {**found.facts, "unshared": wanted.unshared}
        return wanted.plan(state, found.place, found.sizes, facts)

    def _too_large(self, plan: Plan, found: Placement, wanted: Wanted, limit: int) -> DlcError:
        """The error that names the peak, and who holds the most memory there."""

        step = found.bound_step
        held = [
            (v.type.nbytes, f"{v.type}, {v.type.nbytes} bytes, from {origin_of(plan, v)}")
            for v in wanted.alive(plan, step)
        ]
        work = plan.workspace_of(plan.steps[step])
        held += [(work, f"{work} bytes that {origin_of(plan, plan.steps[step])} works in")] if work else []
        held.sort(key=lambda each: -each[0])
        return beyond_limit(
            found,
            limit,
            given="in this order of operations",
            at_peak=(
                f"the peak is at step {step} ({origin_of(plan, plan.steps[step])})",
                *(f"in use there: {text}" for _, text in held[:5]),
            ),
            smaller="use a smaller batch or input; the passes stream and rematerialise compute more to need less "
            "memory",
            search="try plan-memory{strategy=auto}, or more work for it",
        )
