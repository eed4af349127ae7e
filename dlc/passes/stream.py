"""stream: the first layers are computed some rows at a time, so that none of their values exists as a whole.

    y = f(x); z = g(y)    →    y0 = f(x), rows 0..9; z0 = g(y0), rows 0..4; …    z = z0 over z1 over …

What a convolution reads beyond the rows that it writes is computed by two bands, as by MCUNet's patches (Lin et al.,
2021): that is extra work, which is reported. `memory` is the size that the arena should have: of the layers up to
which rows flow, and of the numbers of bands, those with the least extra work are taken that fit. `bands` fixes the
number, and without `memory` the layers with the smallest arena are taken. Without either, nothing changes. Every
element is the sum of the same terms as before. What kernels work in comes on top: schedules are chosen afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

from dlc.api.passes import Level, Pass
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.report import Report
from dlc.graph.closed import unlimited, without_limit
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.nest import Param
from dlc.kernel.rows import ByRows, NoRowsError, Rows, joined
from dlc.kernel.work import work
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from dlc.spec import Bytes, option

_BANDS: Final = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
_TRIES: Final = 48
"""Plans that are made, at most: the least extra work first."""


@dataclass(frozen=True)
class Stream(Pass[Graph, Graph]):
    """Compute layers some rows at a time: z = g(f(x))  →  rows of z from rows of f(x), band after band."""

    name: ClassVar[str] = "stream"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    memory: Bytes | None = option(None, "maximum size of the arena, which is met with the least extra work")
    bands: int = option(0, "number of bands of rows; 0: what memory asks for", low=0)
    align: int = option(64, "alignment of every offset, in bytes, as that of plan-memory", low=1)

    def run(self, state: Graph, report: Report) -> Graph:
        """The same outputs.

        Raises:
            DlcError: (LIMIT) no bands were found whose arena is within the memory.
        """
        if self.memory is None and self.bands < 2:
            return state
        if free := without_limit(state):
            raise unlimited(free, "stream needs a limit of every size")
        before = least = self._arena(state)
        if self.memory is not None and before <= self.memory:
            report.note(f"nothing is computed by rows: the arena takes {before:,} B")
            return state
        best: tuple[_Banded, Graph] | None = None
        for tried, banded in enumerate(self._candidates(state)):
            if tried == _TRIES:
                break
            made = banded.graph()
            arena = self._arena(made)
            if arena < least:
                best, least = (banded, made), arena
                if self.memory is not None and arena <= self.memory:
                    break
        if self.memory is not None and least > self.memory:
            raise self._too_large(before, least, best[0] if best else None)
        if best is None:
            report.note(f"nothing is computed by rows: no layers were found whose arena is below {before:,} B")
            return state
        report.note(f"{best[0].text()}: arena {before:,} B → {least:,} B")
        report.count("layers by rows", len(best[0].region.members))
        return best[1]

    def _candidates(self, graph: Graph) -> Iterator[_Banded]:
        """What may be computed by rows, the least extra work first."""
        costs = {op.digest: work(op.body)[1] for op in graph.ops if isinstance(op, Call)}
        found: list[_Banded] = []
        search = _Search(graph)
        for region in search.regions():
            if self.memory is not None and max(search.outside(region), 2 * region.last.type.nbytes) > self.memory:
                continue
            some = [n for n in ((self.bands,) if self.bands else _BANDS) if 2 <= n <= region.extent]
            found += [_Banded.of(graph, region, n, costs) for n in some]
        return iter(sorted(found, key=lambda b: (b.extra, b.bands, b.region.last.digest)))

    def _arena(self, graph: Graph) -> int:
        plan = Order(state_limit=2000).run(graph, Report())
        return PlanMemory(align=self.align).run(plan, Report()).regions["arena"]

    def _too_large(self, before: int, least: int, best: _Banded | None) -> DlcError:
        found = f"the least arena that was found takes {least:,} bytes ({best.text()})" if best else ""
        return error(
            "memory-limit",
            f"stream: no bands of rows within {self.memory:,} bytes were found",
            notes=(f"the arena takes {before:,} bytes with whole layers", *([found] if found else [])),
            help="use a smaller input, or more memory",
            exit_code=ExitCode.LIMIT,
        )


@dataclass(frozen=True)
class _Region:
    """Calls that can be computed by rows: `last`, and what only it needs."""

    members: tuple[Call, ...]
    by_rows: Mapping[str, ByRows]
    """Digest of a member → its kernel by rows."""
    dim: int  # of the rows of the last

    @property
    def last(self) -> Call:
        return self.members[-1]

    @property
    def extent(self) -> int:
        return self.last.body.results[0].shape[self.dim]

    @cached_property
    def inside(self) -> frozenset[str]:
        return frozenset(call.digest for call in self.members)

    def needs(self, start: int, stop: int) -> dict[str, Rows]:
        """Digest of a member → its rows that some rows of the last one need."""
        found = {self.last.digest: Rows(self.dim, start, stop)}
        for call in reversed(self.members):
            own = found[call.digest]
            rows = self.by_rows[call.digest].needed(own.start, own.stop)
            for p, a in zip(call.body.params, call.args, strict=True):
                if a.digest in self.inside:
                    found[a.digest] = found[a.digest].hull(rows[p.name]) if a.digest in found else rows[p.name]
        return found


class _Search:
    """The regions of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._constant: dict[str, bool] = {}
        self._by_rows: dict[tuple[str, int], ByRows | None] = {}

    def regions(self) -> Iterator[_Region]:
        """All of two calls or more, for every value that they may end at and every dimension but the first and last."""
        for last in self.graph.ops:
            if isinstance(last, Call) and len(last.types) == 1 and not is_constant(last, self._constant):
                for dim in range(1, last.type.rank - 1):
                    region = self._region(last, dim)
                    if region is not None and len(region.members) > 1:
                        yield region

    def outside(self, region: _Region) -> int:
        """Bytes that are in use at least while what is not in the region runs, but for what is the caller's."""
        return max((self._read(op) for op in self.graph.ops if op.digest not in region.inside), default=0)

    def _region(self, last: Call, dim: int) -> _Region | None:
        """The calls that only this value needs, as long as they can be computed by rows."""
        members: dict[str, Call] = {}
        found: dict[str, ByRows] = {}
        dims: dict[str, int | None] = {last.digest: dim}
        for op in reversed(self.graph.ops):
            along = dims.get(op.digest)
            if along is None or not isinstance(op, Call) or is_constant(op, self._constant):
                continue
            if op != last and self.graph.readers(op) != sum(u.digest in members for u in self.graph.users[op]):
                continue
            by_rows = self._kernel(op, along)
            if by_rows is None:
                continue
            members[op.digest], found[op.digest] = op, by_rows
            for p, a in zip(op.body.params, op.args, strict=True):
                own = by_rows.reads.get(p.name)
                dims[a.digest] = own if dims.get(a.digest, own) == own else None
        return _Region(tuple(reversed(members.values())), found, dim) if last.digest in members else None

    def _kernel(self, call: Call, dim: int) -> ByRows | None:
        """A call by rows; None where it has none, or where they are its vectors: what lies together stays together."""
        key = call.body.digest, dim
        if key not in self._by_rows:
            try:
                self._by_rows[key] = ByRows(call.body, dim) if dim < call.type.rank - 1 else None
            except NoRowsError:
                self._by_rows[key] = None
        return self._by_rows[key]

    def _read(self, op: Op) -> int:
        if not isinstance(op, Call) or is_constant(op, self._constant):
            return 0
        read = (a.type.nbytes for a in op.args if isinstance(a, Call) and not is_constant(a, self._constant))
        return max(read, default=0)


@dataclass(frozen=True)
class _Banded:
    """A region in bands."""

    source: Graph
    region: _Region
    bands: int
    needs: tuple[Mapping[str, Rows], ...]
    """For each band, the rows of each member."""
    extra: float
    """Extra work, in percent of all operations."""

    @classmethod
    def of(cls, graph: Graph, region: _Region, bands: int, costs: Mapping[str, int]) -> _Banded:
        ends = [region.extent * k // bands for k in range(bands + 1)]
        needs = tuple(region.needs(start, stop) for start, stop in itertools.pairwise(ends))
        more = 0.0
        for call in region.members:
            rows = [need[call.digest] for need in needs]
            extent = call.body.results[0].shape[rows[0].dim]
            more += costs[call.digest] * (sum(map(len, rows)) / extent - 1)
        return cls(graph, region, bands, needs, 100 * max(0.0, more) / max(1, sum(costs.values())))

    def text(self) -> str:
        """What is computed how."""
        names = ", ".join(self.source.origin(self.region.last)) or "a value"
        layers = len(self.region.members)
        return f"{layers} layers up to {names} in {self.bands} bands of rows, {self.extra:.2f} % of extra work"

    def graph(self) -> Graph:
        """The graph with the region in bands."""
        origins = dict(self.source.origins)
        parts: list[Op] = []
        for need in self.needs:
            made: dict[str, Op] = {}
            for call in self.region.members:
                given = {
                    p.name: need[a.digest] for p, a in zip(call.body.params, call.args, strict=True) if a.digest in need
                }
                rows = need[call.digest]
                body = self.region.by_rows[call.digest].part(rows.start, rows.stop, given)
                made[call.digest] = Call(body, tuple(made.get(a.digest, a) for a in call.args))
                if names := self.source.origin(call):
                    origins.setdefault(made[call.digest].digest, names)
            parts.append(made[self.region.last.digest])
        last, dim = self.region.last, self.region.dim
        params = tuple(Param(f"part{k}", part.type) for k, part in enumerate(parts))
        whole = Call(joined(params, Param("whole", last.type), dim), tuple(parts))
        origins.setdefault(whole.digest, self.source.origin(last))
        new = replace(self.source, origins=origins).rewrite(lambda op: whole if op == last else None)
        return with_live_origins(new)
