"""row-blocks: products of matrices with what is computed row by row between them become one kernel.

    s = q·kᵀ;  p[i,j] = exp(s[i,j] - max s[i,:]) / Σⱼ …;  r = p·v     →     r = call(q, k, v)

Its loops compute a block of rows of `s` and `p` at a time, in a buffer that stays in a cache: no matrix between the
products is stored, which of attention is larger than everything else. What a row of the second product is divided by is
divided at the end, once for each of its elements.

An estimate of cycles for the numbers of the machine decides; `--explain row-blocks` lists it for each pair of products.
A value with several consumers stays as it is: in training the gradient reads it again. So does one with open sizes, and
one of which the second-level cache holds a few rows only. Nothing is changed for machines without vectors, or with
`c{math=ordered}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import MAX_ORIGINS, Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.expr import Apply, Load, axes_in
from dlc.kernel.fusion.merge import inline_locals, join, without_local
from dlc.kernel.kernel import Kernel
from dlc.kernel.schedules.groups import has_reuse
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled, scheduled_by_blocks
from dlc.kernel.schedules.stages import stages_of
from dlc.kernel.schedules.text import print_choices
from dlc.passes.estimated import cycle_count, machine_of
from dlc.spec import Bytes, option

MOST_STEPS = 3
"""Kernels of a chain between its products, at most."""


@dataclass(frozen=True)
class RowBlocks(Pass[Graph, Graph]):
    """Products with rows between them by blocks of rows: r = softmax(q k') v  →  r = call(q, k, v)."""

    name: ClassVar[str] = "row-blocks"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    idempotent: ClassVar[bool] = True
    vector_bytes: int = option(0, "bytes of the machine's vectors; 0: nothing is changed", low=0)
    registers: int = option(16, "number of its vector registers", low=1)
    l1: Bytes = option(32 << 10, "its first-level cache", low=0)
    l2: Bytes = option(512 << 10, "its second-level cache", low=0)
    l2_rate: float = option(32.0, "bytes that it reads from there in a cycle", low=0.01)
    memory_rate: float = option(6.0, "bytes that it reads from beyond in a cycle", low=0.01)

    def run(self, state: Graph, report: Report) -> Graph:
        """The same outputs, up to rounding; what was chosen is reported."""
        report.missed_as = "products"
        if self.vector_bytes < 16:
            return state
        work = _Rewriting(machine_of(self), state, report)
        return work.with_origins(state.rewrite(work))


@dataclass(frozen=True)
class _Chain:
    """Calls that become one.

    Attributes:
        kernel: The kernel.
        args: Its arguments.
        parts: The kernels that it is made of.
        names: Where they came from.
    """

    kernel: Kernel
    args: tuple[Op, ...]
    parts: tuple[Kernel, ...]
    names: tuple[str, ...]


@dataclass
class _Rewriting:
    """One traversal: the rule that `Graph.rewrite` calls once per op, in the graph's order."""

    machine: Machine
    graph: Graph
    report: Report
    constant: dict[str, bool] = field(default_factory=dict[str, bool])
    sources: dict[str, Op] = field(default_factory=dict[str, Op])
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    done: dict[tuple[str, ...], tuple[bool, str]] = field(default_factory=dict[tuple[str, ...], tuple[bool, str]])
    order: Iterator[Op] = field(init=False)

    def __post_init__(self) -> None:
        self.order = iter(self.graph.ops)
        self.outputs = {o.digest for o in self.graph.outputs}

    def with_origins(self, graph: Graph) -> Graph:
        """The new graph with the origins of all calls that became a part of one."""
        found = {d: names for d, names in self.origins.items() if d in graph.origins}
        return replace(graph, origins={**graph.origins, **found})

    def __call__(self, op: Op) -> Op | None:
        original = next(self.order)
        self.sources[op.digest] = original
        if not isinstance(op, Call) or len(op.types) != 1 or not _multiplies(op.body):
            return None
        chain = self._chain(op, original)
        if chain is None:
            return None
        key = (chain.kernel.digest, *(k.digest for k in chain.parts))
        if key not in self.done:
            self.done[key] = self._chosen(chain)
        chosen, text = self.done[key]
        self.report.missed(f"{chain.names[0]} … {chain.names[-1]}" if chain.names else repr(op), text)
        if not chosen:
            return None
        self.report.count("joined", len(chain.parts) - 1)
        call = Call(chain.kernel, chain.args)
        self.sources[call.digest] = original
        self.origins[call.digest] = chain.names
        return call

    def _chain(self, op: Call, original: Op) -> _Chain | None:
        """A product with the calls that lead to a factor of it from another product; None where there are none."""
        factors = {
            f.param
            for n in op.body.nests
            if has_reuse(n) and isinstance(n.body, Apply)
            for f in n.body.args
            if isinstance(f, Load)
        }
        values = [a for p, a in zip(op.body.params, op.args, strict=True) if p.name in factors]
        if any(is_constant(a, self.constant) for a in values):
            return None  # weights are large, and each block would read them again
        first = _Chain(op.body, op.args, (op.body,), self.graph.origin(original))
        for value in values:
            if isinstance(value, Call) and value.body.reduces and not _multiplies(value.body):
                found = self._up_to_product(value, first, MOST_STEPS)
                if found is not None and stages_of(found.kernel) is not None:
                    return found
        return None

    def _up_to_product(self, value: Op, chain: _Chain, most: int) -> _Chain | None:
        """A chain with a call before it, and those before that up to a product; None where there is none."""
        longer = self._longer(value, chain) if most and isinstance(value, Call) else None
        if longer is None or _multiplies(longer.parts[0]):
            return longer and replace(longer, kernel=_divided_last(longer.kernel))
        before = (a for a in value.operands if a.type.size == value.type.size)
        return next((found for a in before if (found := self._up_to_product(a, longer, most - 1))), None)

    def _longer(self, value: Call, chain: _Chain) -> _Chain | None:
        """A chain with the call before it; None if others need its value as well, or it is constant."""
        source = self.sources.get(value.digest)
        alone = source is not None and source.digest not in self.outputs and len(self.graph.users.get(source, ())) == 1
        if not alone or chain.args.count(value) != 1 or len(value.types) != 1 or is_constant(value, self.constant):
            return None
        ops = tuple(dict.fromkeys((*value.args, *chain.args)))
        number = {op.digest: k for k, op in enumerate(ops)}
        made, read = ([number[a.digest] for a in args] for args in (value.args, chain.args))
        ops = (*ops, value) if value.digest not in number else ops
        joined = join(value.body, made, chain.kernel, read, number[value.digest])
        names = (*self.graph.origin(self.sources[value.digest]), *chain.names)
        return _Chain(
            inline_locals(joined.kernel),
            tuple(ops[n] for n in joined.arguments),
            (value.body, *chain.parts),
            tuple(dict.fromkeys(names))[:MAX_ORIGINS],
        )

    def _chosen(self, chain: _Chain) -> tuple[bool, str]:
        """Whether a chain becomes a kernel, and what there is to say of it."""
        if any(p.type.is_open for p in (*chain.kernel.params, *chain.kernel.locals)):
            return False, "apart, because their sizes are open"
        found = scheduled_by_blocks(chain.kernel, self.machine)
        if found is None:
            return False, "apart, because the second-level cache holds a few rows only of what lies between them"
        apart = sum(scheduled(k, self.machine).cycles for k in chain.parts)
        text = f"cycles apart {cycle_count(apart)}, as {print_choices(found.choices)} {cycle_count(found.cycles)}"
        return found.cycles < apart, text


def _multiplies(kernel: Kernel) -> bool:
    """Whether a kernel has a product that is computed by tiles."""
    return any(map(has_reuse, kernel.nests))


def _divided_last(kernel: Kernel) -> Kernel:
    """The kernel with quotients that all terms of a sum share in the sum: schedules divide by them at its end.

    p[i,j] = e[i,j]/s[i];  r[i,k] += p[i,j]·v[j,k]      →      r[i,k] += e[i,j]/s[i]·v[j,k]
    """
    for p in kernel.locals:
        writers, readers = kernel.writers.get(p.name, ()), kernel.readers.get(p.name, ())
        if len(writers) != 1 or len(readers) != 1:
            continue
        writer, reader = kernel.nests[writers[0]], kernel.nests[readers[0]]
        match writer.body:
            case Apply("div", (Load(), divisor)) if writer.reduce is None and writer.where is None:
                once = set(axes_in(divisor)) < set(writer.axes) == {i for i in writer.index if i in writer.axes}
            case _:
                once = False
        if once and has_reuse(reader) and len(reader.loads[p.name]) == 1:
            return without_local(kernel, p.name)
    return kernel
