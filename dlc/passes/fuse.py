"""fuse: kernels are merged with their consumers.

    b = f(a);  c = g(b)            →   c = (g∘f)(a)           f elementwise: inlined where each value is read once
    t = Σ a·w; c = relu(t + bias)  →   c = call(a, w, bias)   bias and relu are the epilogue of the contraction
    t = Σⱼ a·b; c = a·(b - t)      →   c = call(a, b)         rows of a and b, which a cache holds, are read once
    b = softmax(x); t, c as above  →   c = call(a, x)         rows of b stay in a cache
    c = concat(f(a), g(b))         →   c = call(a, b)         f and g write their part of the result in place
    d = transpose(concat(a, b))    →   d = call(a, b)         parts that are only moved are written to where they end up

A kernel with one consumer is merged into it. A kernel that only moves elements may be merged into several consumers.
A constant expression of constants with less than 8 bits per element becomes a part of the matrix product that reads it:
they are stored as they are. `--explain fuse` lists the pairs that were not fused, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import MAX_ORIGINS, Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.expr import loads
from dlc.kernel.fusion.ends import ended_refusal, is_ended_copy
from dlc.kernel.fusion.forward import may_forward
from dlc.kernel.fusion.inline import is_pointwise_map
from dlc.kernel.fusion.merge import (
    Joined,
    align_epilogue,
    inline_locals,
    is_epilogue,
    is_movement,
    join,
    refusal,
    without_local,
)
from dlc.kernel.fusion.rows import is_light, share_rows
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.box import commute
from dlc.passes.overlays import overlaid
from dlc.passes.packed_constants import PackedConstants, columns_last
from dlc.passes.packed_panels import row_in_panels
from dlc.passes.panels import reads_panels
from dlc.passes.views import is_view
from dlc.passes.widening import widens
from dlc.spec import option


@dataclass(frozen=True)
class Fuse(Pass[Graph, Graph]):
    """Merge kernels with their consumers: b = f(a); c = g(b)  →  c = (g∘f)(a)."""

    name: ClassVar[str] = "fuse"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    max_nests: int = option(32, "maximum number of nests in a merged kernel", low=1)
    max_arguments: int = option(127, "maximum number of parameters of a merged kernel; C99 guarantees 127", low=1)
    epilogues: bool = option(True, "merge a reduction with the elementwise kernel that reads its result")
    words: bool = option(True, "store constants of less than 8 bits that one row is multiplied by in panels of words")

    def run(self, state: Graph, report: Report) -> Graph:
        """The same computation in fewer kernels."""
        report.missed_as = "not fused"
        return _Fuser(self, state, report).graph()


@dataclass(frozen=True)
class _Group:
    """A call that grows: what it is so far, and what is known of it. It becomes an op, with a digest, in the end."""

    kernel: Kernel
    args: tuple[Op, ...]
    origins: tuple[str, ...]
    settled: bool
    """Whether every local of the kernel has been asked whether it can be inlined."""
    widens: bool = False
    """Whether it only makes elements larger for a reduction that can do so itself."""

    @cached_property
    def names(self) -> Mapping[str, set[str]]:
        """The parameters that each argument is given to, by its digest: there may be many, asked one by one."""
        found: dict[str, set[str]] = {}
        for p, a in zip(self.kernel.params, self.args, strict=True):
            found.setdefault(a.digest, set()).add(p.name)
        return found


class _Fuser:
    """One walk from inputs to outputs; every call absorbs what it can of its producers."""

    def __init__(self, options: Fuse, source: Graph, report: Report) -> None:
        self._options, self._source, self._report = options, source, report
        self._new: dict[str, Op] = {}
        self._readers: dict[str, int] = {}
        self._sources: dict[str, Op] = {}
        self._constant: dict[str, bool] = {}
        self._packed = PackedConstants(source)
        self._origins = dict(source.origins)
        self._missed: dict[str, list[tuple[str, str]]] = {}
        self._settled: set[str] = set()
        self._wide: set[str] = set()
        # By identity, which is found faster than a digest: equal ops were lowered to the same kernel, so the layers of
        # a model that repeats itself are joined once. The kernels are held, or another could take their place.
        self._joined: dict[tuple[object, ...], tuple[Kernel, Kernel, Joined, Kernel]] = {}

    def graph(self) -> Graph:
        source = self._source
        outputs = {o.digest for o in source.outputs}
        for op in source.ops:
            moved = op.with_operands([self._new[x.digest] for x in op.operands])
            result = moved
            if isinstance(moved, Call) and len(moved.types) == 1 and not is_constant(moved, self._constant):
                assert isinstance(op, Call)
                result = self._fused(
                    moved, source.origin(op), widens(op, source, lambda x: is_constant(x, self._constant))
                )
            else:
                self._tell(moved, source.origin(op))
            self._new[op.digest] = result
            if op.digest not in outputs:
                self._sources[result.digest] = op
            # An output has the caller as a further reader and can be absorbed by nobody.
            readers = len(source.users.get(op, ())) + 2 * (op.digest in outputs)
            self._readers[result.digest] = self._readers.get(result.digest, 0) + readers
        for subject, why in (m for ms in self._missed.values() for m in ms):
            self._report.missed(subject, why)
        new = tuple(self._new[o.digest] for o in source.outputs)
        return with_live_origins(replace(source, outputs=new, origins=self._origins))

    def _tell(self, op: Op, names: tuple[str, ...]) -> None:
        if names:
            self._origins[op.digest] = _together(self._origins.get(op.digest, ()), names)

    def _fused(self, call: Call, origins: tuple[str, ...], wider: bool) -> Call:
        """The call with what it absorbs; one that widens elements leaves sums where they are."""
        names = _together(self._origins.get(call.digest, ()), origins)
        group = _Group(call.body, call.args, names, settled=False, widens=wider)
        group, missed = self._absorb(group, repr(call))
        kernel, args = _aligned(group.kernel), group.args
        if any(x.digest in self._packed.opened for x in args):
            moved = row_in_panels(kernel, args, self._packed.opened) if self._options.words else None
            kernel, args = moved or columns_last(kernel, args, self._packed.opened)
        result = call if kernel is call.body else Call(kernel, args)
        if group.widens:
            self._wide.add(result.digest)
        self._tell(result, group.origins)
        self._missed[result.digest] = missed
        # Aligning moves nests, and what could not be inlined before might be afterwards.
        if group.settled and kernel is group.kernel:
            self._settled.add(result.digest)
        return result

    def _absorb(self, group: _Group, text: str) -> tuple[_Group, list[tuple[str, str]]]:
        """A group with all that it can absorb, and what it cannot absorb and why; `text` names it without origins."""
        refused: dict[str, tuple[str, str]] = {}
        while True:
            for arg in group.args:
                if arg.digest in refused or not isinstance(arg, Call):
                    continue
                if is_constant(arg, self._constant):
                    if not self._computed_by(arg, group):
                        continue
                    group = self._inlined(arg, group)
                    self._report.count("packed constants inlined")
                    break
                why = _held(arg.body, group.kernel) or self._refusal(arg, group)
                if not why and not self._report.applies("joined", arg):
                    why = "it is withheld"
                if why:
                    refused[arg.digest] = (_named(self._origins.get(arg.digest, ()), repr(arg)), why)
                    continue
                for one in self._read_once(arg, group):
                    refused.pop(one, None)
                group = self._join(arg, group)
                # What was refused to a call that is now a part of this one is asked for by this one.
                self._missed.pop(arg.digest, None)
                break
            else:
                name = _named(group.origins, text)
                return group, [(f"{refused_name} → {name}", why) for refused_name, why in refused.values()]

    def _read_once(self, producer: Call, consumer: _Group) -> Set[str]:
        """What both read has one consumer less once they are one, if the producer has no other consumer."""
        if self._readers[producer.digest] > 1:
            return frozenset()
        both = {a.digest for a in producer.args} & consumer.names.keys() & self._readers.keys()
        for digest in both:
            self._readers[digest] -= 1
        return both

    def _refusal(self, producer: Call, consumer: _Group) -> str:
        """Why the consumer cannot absorb the producer; "" when it can."""
        if len(producer.types) != 1 or producer.types[0].symbol is not None:
            return "it has several results" if len(producer.types) != 1 else "it is a size, which loops end at"
        kernel = producer.body
        if consumer.widens and kernel.reduces:
            return "its elements are made larger where they are read"
        single = kernel.nests[0] if len(kernel.nests) == 1 else None
        result = kernel.results[0]
        mapped = single is not None and is_pointwise_map(single, result.shape)
        ends = single is not None and is_ended_copy(single, kernel)
        movement = ends or (mapped and single is not None and is_movement(single.body))
        if self._readers[producer.digest] > 1 and not movement and not self._computed_again(producer):
            return f"it has {self._readers[producer.digest]} consumers"
        if consumer.kernel.reduces and is_view(producer):
            return "it is only another view of the same memory"
        nests = len(kernel.nests) + len(consumer.kernel.nests)
        if nests > self._options.max_nests:
            return f"the joined kernel would have {nests} nests, more than {self._options.max_nests}"
        arguments = len(consumer.names) - 1 + len({a.digest for a in producer.args} - consumer.names.keys())
        if arguments > self._options.max_arguments:
            return f"the joined kernel would have {arguments} arguments, more than {self._options.max_arguments}"
        names = consumer.names[producer.digest]
        readers = sorted({k for name in names for k in consumer.kernel.readers.get(name, ())})
        for nest in (reading := [consumer.kernel.nests[k] for k in readers]):
            for name in sorted(names & nest.reads()):
                if movement and any(x.param == name and reads_panels(nest, x) for x in loads(nest.body)):
                    return "it stores a factor in panels"
                if single is not None and ends:
                    if why := ended_refusal(single, kernel, nest, consumer.kernel, name):
                        return why
                    continue
                value = Param(name, result.type)
                inlined = refusal(single, value, nest) if mapped and single is not None else "it is not elementwise"
                if not inlined:
                    continue
                if not mapped and len(names) == 1 and may_forward(kernel, value, reading):
                    continue
                why = inlined if movement else self._epilogue_refusal(nest, value, consumer.kernel)
                if why and (mapped or not self._rows_of(producer, consumer)):
                    # Of a map, why it was not inlined says more than that it leads no epilogue.
                    return inlined if mapped else why
        return ""

    def _epilogue_refusal(self, nest: Nest, value: Param, consumer: Kernel) -> str:
        """Why a nest cannot follow the nests that make `value` in one kernel; "" when it can."""
        if not self._options.epilogues:
            return "epilogues are off"
        if not is_epilogue(nest, value):
            return "its consumer is not elementwise"
        sums = (name for name in nest.reads() if name in consumer.local_numbers)
        if any(consumer.nests[k].reduce is not None for name in sums for k in consumer.writers.get(name, ())):
            return "its consumer is already the epilogue of another reduction"
        return ""

    def _computed_again(self, producer: Call) -> bool:
        """Whether all consumers are to compute a light map by themselves, which takes less time than to read it."""
        source = self._sources.get(producer.digest)
        if source is None or len(producer.body.nests) != 1:
            return False
        (nest,) = producer.body.nests
        result = producer.body.results[0]
        if not is_pointwise_map(nest, result.shape) or not is_light(nest, producer.body):
            return False
        users = self._source.users.get(source, ())
        return all(isinstance(u, Call) and not self._reads(u, source, nest, result) for u in users)

    def _reads(self, user: Call, source: Op, nest: Nest, result: Param) -> str:
        """Why a consumer as it is in the source graph should not compute a map itself; "" when it should."""
        names = {p.name for p, a in zip(user.body.params, user.args, strict=True) if a is source}
        reading = ((n, name) for n in user.body.nests for name in sorted(names & n.reads()))
        return next((why for n, name in reading if (why := refusal(nest, Param(name, result.type), n))), "")

    def _rows_of(self, producer: Call, consumer: _Group) -> bool:
        """Whether a reduction along rows reads rows of its consumer, or makes them: a loop over rows does for both."""
        if not self._options.epilogues or not producer.body.reduces:
            return False
        largest = max((a.types[0].capacity for a in producer.args), default=0)
        common = {a.digest for a in producer.args} & consumer.names.keys()
        if not common and producer.types[0].capacity < largest:
            return False
        return share_rows(self._joined_with(producer, consumer)[0].kernel)

    def _joined_with(self, producer: Call, consumer: _Group) -> tuple[Joined, tuple[Op, ...]]:
        """The producer followed by the consumer, and the arguments by number."""
        ops = tuple(dict.fromkeys((*producer.args, *consumer.args)))
        number = {op.digest: k for k, op in enumerate(ops)}
        made, read = ([number[a.digest] for a in args] for args in (producer.args, consumer.args))
        return join(producer.body, made, consumer.kernel, read, number[producer.digest]), ops

    def _computed_by(self, constant: Call, consumer: _Group) -> bool:
        """Whether the consumer is to compute a constant expression, so that what it is computed of stays packed."""
        kernel, names = consumer.kernel, consumer.names[constant.digest]
        if len(names) != 1 or len(consumer.names) + len(constant.args) > self._options.max_arguments:
            return False
        (name,) = names
        return self._packed.inlined(constant, [kernel.nests[k] for k in kernel.readers.get(name, ())], name)

    def _inlined(self, constant: Call, consumer: _Group) -> _Group:
        joined, ops = self._joined_with(constant, consumer)
        self._packed.open(constant)
        kernel = without_local(joined.kernel, joined.between)
        return _Group(
            kernel, tuple(ops[n] for n in joined.arguments), consumer.origins, consumer.settled, consumer.widens
        )

    def _join(self, producer: Call, consumer: _Group) -> _Group:
        ops = tuple(dict.fromkeys((*producer.args, *consumer.args)))
        number = {op.digest: k for k, op in enumerate(ops)}
        made = [number[a.digest] for a in producer.args]
        read = [number[a.digest] for a in consumer.args]
        settled = producer.digest in self._settled
        value = number[producer.digest]
        key = (id(producer.body), tuple(made), id(consumer.kernel), tuple(read), value, settled, consumer.settled)
        if key in self._joined:
            *_, joined, kernel = self._joined[key]
        else:
            joined = join(producer.body, made, consumer.kernel, read, value)
            given = () if settled else joined.given
            suspects = (joined.between, *given, *(() if consumer.settled else joined.taken))
            kernel = inline_locals(joined.kernel, suspects)
            self._joined[key] = (producer.body, consumer.kernel, joined, kernel)
        return _Group(
            kernel,
            tuple(ops[n] for n in joined.arguments),
            _together(self._origins.get(producer.digest, ()), consumer.origins),
            settled=True,
            widens=consumer.widens or (producer.digest in self._wide and not consumer.kernel.reduces),
        )


def _held(producer: Kernel, consumer: Kernel) -> str:
    """Why a concatenation that holds its operands stays by itself; "" where neither kernel is one."""
    held = overlaid(producer) is not None or overlaid(consumer) is not None
    return "what is concatenated lies where it should be" if held else ""


def _together(*names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for ns in names for n in ns))[:MAX_ORIGINS]


def _named(origins: tuple[str, ...], text: str) -> str:
    """Where a call came from, in few words; `text` names one from nowhere."""
    names = origins or (text,)
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def _aligned(kernel: Kernel) -> Kernel:
    """Every epilogue right behind its reduction and walking in the same order: a schedule can run it tile by tile."""
    reduced = {n.out for n in kernel.nests if n.reduce is not None}
    if not reduced:
        return kernel
    locals_ = [p for p in kernel.locals if p.name in reduced]
    order: list[Nest] = []
    waiting = list(kernel.nests)
    while waiting:
        nest = waiting.pop(0)
        order.append(nest)
        if nest.reduce is None:
            continue
        ready = [n for n in waiting if nest.out in n.reads() and _may_follow(n, waiting)]
        if len(ready) == 1:
            waiting.remove(ready[0])
            order.append(ready[0])
    for k, nest in enumerate(order):
        for local in locals_:
            if is_epilogue(nest, local):
                order[k] = align_epilogue(nest, local)
    return Kernel.canonical(kernel.params, kernel.results, tuple(order), kernel.locals)


def _may_follow(nest: Nest, waiting: list[Nest]) -> bool:
    """Whether a map can move up to right behind the nest that writes what it reads."""
    before = waiting[: waiting.index(nest)]
    return nest.reduce is None and all(commute(n, nest) for n in before)
