"""Join kernels: concatenate the nests of a producer and a consumer, and inline locals that need no storage.

k1: t = f(a);   k2: r = g(t, b)     →     k: t local; t = f(a); r = g(t, b)     →     k: r = g(f(a), b)

`inline`, `ends` and `forward` tell which locals need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, loads, walk
from dlc.kernel.fusion.ends import ended_refusal, is_ended_copy
from dlc.kernel.fusion.forward import forwarded
from dlc.kernel.fusion.inline import inline, is_pointwise_map, reads_each_once
from dlc.kernel.kernel import Kernel, readers_of, writers_of
from dlc.kernel.literals import fold, typed
from dlc.kernel.nest import LITERAL_DTYPES, Nest, Param
from dlc.kernel.roles import product
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.groups import reused

# Inlining copies a producer's expression to every load of it; beyond this many nodes a body is left in a local.
MAX_BODY = 96
# A consumer with so many nests more than its producer has grown, and keeps the names that it has.
GROWN = 8


@dataclass(frozen=True)
class Joined:
    """A merged kernel.

    Attributes:
        arguments: Per parameter, the value it stands for (as the caller numbered them).
        between: The local between the two.
        given: The producer's locals, as they are named now.
        taken: The consumer's.
    """

    kernel: Kernel
    arguments: tuple[int, ...]
    between: str
    given: tuple[str, ...]
    taken: tuple[str, ...]


def join(producer: Kernel, given: Sequence[int], consumer: Kernel, taken: Sequence[int], value: int) -> Joined:
    """The producer followed by the consumer, the value between them a local.

    Args:
        producer: A kernel with one result.
        given: A number for each of its arguments; equal numbers are equal values.
        consumer: A kernel that reads the result.
        taken: A number for each of its arguments.
        value: The number of the producer's result.
    """
    # Canonical names at once, which a kernel that grows step by step keeps, and with them the nests that it has.
    grown = len(consumer.nests) > len(producer.nests) + GROWN
    rest = [n for n in taken if n != value]
    numbers = tuple(dict.fromkeys((*rest, *given) if grown else (*given, *rest)))
    param = {n: f"p{k}" for k, n in enumerate(numbers)}
    ahead = consumer.locals if grown else producer.locals
    between = f"t{len(ahead)}"
    first = {p.name: param[n] for p, n in zip(producer.params, given, strict=True)}
    second = {p.name: between if n == value else param[n] for p, n in zip(consumer.params, taken, strict=True)}
    first[producer.results[0].name] = between
    places = (len(ahead) + 1, 0) if grown else (0, len(ahead) + 1)
    first |= {p.name: f"t{k}" for k, p in enumerate(producer.locals, places[0])}
    second |= {p.name: f"t{k}" for k, p in enumerate(consumer.locals, places[1])}
    second |= {p.name: f"r{k}" for k, p in enumerate(consumer.results)}
    types = {first[p.name]: p.type for p in producer.params} | {second[p.name]: p.type for p in consumer.params}
    own = tuple(Param(first[p.name], p.type) for p in producer.locals)
    other = tuple(Param(second[p.name], p.type) for p in consumer.locals)
    middle = Param(between, producer.results[0].type)
    locals_ = (*other, middle, *own) if grown else (*own, middle, *other)
    nests = (*_renamed(producer.nests, first), *_renamed(consumer.nests, second))
    params = tuple(Param(name, types[name]) for name in param.values())
    results = tuple(Param(second[p.name], p.type) for p in consumer.results)
    kernel = Kernel(params, results, locals_, nests)
    return Joined(kernel, numbers, between, tuple(p.name for p in own), tuple(p.name for p in other))


def _renamed(nests: Sequence[Nest], names: Mapping[str, str]) -> Iterable[Nest]:
    changed = {old: new for old, new in names.items() if old != new}
    return (n.rename(changed) for n in nests)


def inline_locals(kernel: Kernel, suspects: Iterable[str] | None = None) -> Kernel:
    """The kernel without the locals whose value can be computed where it is read, at no extra work.

    Args:
        kernel: Its locals keep their order.
        suspects: Names of the locals to look at, and at what else inlining them touches; by default all.
    """
    nests, kept = list(kernel.nests), list(kernel.locals)
    waiting = {p.name for p in kept} if suspects is None else set(suspects)
    # A local is asked again only when a nest that writes or reads it has changed: kernels grow join by join, and most
    # of their locals were refused before.
    while waiting:
        writers, readers = writers_of(nests), readers_of(nests)
        touched: frozenset[str] = frozenset()
        for local in [p for p in kept if p.name in waiting]:
            waiting.remove(local.name)
            if touched := _inline_local(kernel, local, nests, writers, readers):
                kept.remove(local)
                break
        waiting = {p.name for p in kept if p.name in waiting or p.name in touched}
    if len(kept) == len(kernel.locals):
        return kernel
    return Kernel.canonical(kernel.params, kernel.results, tuple(nests), tuple(kept))


def without_local(kernel: Kernel, name: str) -> Kernel:
    """The kernel with the value of a local, which one elementwise nest writes, computed wherever it is read."""
    (writer,) = (n for n in kernel.nests if n.out == name)
    nests = (
        inline(n, name, writer, kernel.dtype_of) if name in n.loads else n for n in kernel.nests if n is not writer
    )
    kept = tuple(p for p in kernel.locals if p.name != name)
    return Kernel.canonical(kernel.params, kernel.results, tuple(nests), kept)


Positions: TypeAlias = Mapping[str, tuple[int, ...]]
"""Positions of nests by the tensor that they write, or read."""


def _inline_local(
    kernel: Kernel, local: Param, nests: list[Nest], all_writers: Positions, all_readers: Positions
) -> frozenset[str]:
    """Make `nests` do without a local. Gives the tensors that the changed nests name; none when it stays."""
    writers, readers = all_writers.get(local.name, ()), all_readers.get(local.name, ())
    producer = nests[writers[0]] if len(writers) == 1 else None
    ends = producer is not None and is_ended_copy(producer, kernel)
    if producer is None or not (ends or is_pointwise_map(producer, local.shape)):
        return _forward(kernel, local, nests, writers, readers)
    (writer,) = writers
    if any(k <= writer for k in readers):  # what is read before it is written is the start value
        return frozenset()
    if not producer.loads:
        producer = replace(producer, body=typed_literal(kernel, producer.body, local))
    overwritten = any(k > writer for name in producer.loads for k in all_writers.get(name, ()))
    if overwritten or (len(readers) > 1 and not is_movement(producer.body)):
        return frozenset()
    if any(
        ended_refusal(producer, kernel, nests[k], kernel, local.name) if ends else refusal(producer, local, nests[k])
        for k in readers
    ):
        return frozenset()
    for k in readers:
        nests[k] = inline(nests[k], local.name, producer, kernel.dtype_of)
    touched = {local.name, *producer.loads}.union(*({nests[k].out, *nests[k].loads} for k in readers))
    del nests[writer]
    return frozenset(touched)


def _forward(
    kernel: Kernel, local: Param, nests: list[Nest], writers: Sequence[int], readers: Sequence[int]
) -> frozenset[str]:
    """Make `nests` write the parts of a local to where they are moved. Gives the same as `_inline_local`."""
    found = forwarded(kernel, local, nests, writers, readers)
    if found is None:
        return frozenset()
    touched = {local.name}.union(*({n.out, *n.loads} for n in found if n not in nests))
    nests[:] = found
    return frozenset(touched)


def typed_literal(kernel: Kernel, body: Expr, local: Param) -> Expr:
    """A body of literals with the type that storing it in a local gives it: where it is read, others could differ."""
    if kernel.dtype_of(body) is not None:
        return body
    if isinstance(body, Const) and LITERAL_DTYPES[type(body.value)] == local.dtype:
        return body
    return typed(fold(body, kernel.dtypes, local.dtype), local.dtype)


def is_movement(body: Expr) -> bool:
    """Whether a body only fetches: a load or a literal, no arithmetic on data."""
    return isinstance(body, Load) or _is_literal(body)


def _is_literal(body: Expr) -> bool:
    """Whether a body is a literal, perhaps with its type."""
    match body:
        case Const():
            return True
        case Apply(fn, (Const(),)):
            return SCALARS[fn].rule == "cast"
        case _:
            return False


def refusal(producer: Nest, value: Param, consumer: Nest) -> str:
    """Why a pointwise producer of `value` should not be inlined into a consumer; "" when it should."""
    found = consumer.loads.get(value.name, ())
    if is_movement(producer.body):
        if consumer.reduce is None or _is_literal(producer.body):
            return ""
        changed = inline(consumer, value.name, producer)
        # What is read once, as in a matrix times a vector, is read as it lies: copying it first takes longer.
        once = not value.type.is_open and consumer.points <= value.type.capacity
        summed = set(consumer.reduction_axes)
        rough = any(
            isinstance(x, Apply) and x.fn in ("floordiv", "mod") and not (once and summed.isdisjoint(axes_in(x)))
            for load in loads(changed.body)
            for x in _index(load)
        )
        if rough:
            return "its subscripts would no longer be linear in a reduction"
        if once:
            return ""
        return "an operand of a reduction would no longer be contiguous" if _torn(consumer, changed, value.name) else ""
    if any(x.param == value.name for i in consumer.index for x in loads(i)):
        return "it computes subscripts"
    distinct = len(set(found))
    if consumer.points * distinct > max(1, value.type.capacity) * (
        2 if distinct > 1 and consumer.reduce is None else 1
    ):
        return "its values are read more than once"
    if product(consumer) is not None and any(reused(consumer)):
        return "it feeds a contraction"
    nodes = consumer.nodes + len(found) * producer.nodes
    return f"the joined body would have {nodes} nodes" if nodes > MAX_BODY else ""


def _torn(before: Nest, after: Nest, name: str) -> bool:
    """Whether a reduction axis along which another operand than `name` is contiguous was taken apart."""
    gone = set(before.reduction_axes) - set(after.axes)
    return any(x.index[-1] in gone for x in loads(before.body) if x.param != name and x.index)


def _index(load: Load) -> list[Expr]:
    return [x for i in load.index for x in walk(i)]


def is_epilogue(nest: Nest, value: Param) -> bool:
    """Whether a nest is a map over `value`, element by element: it can run while a producer's tile is in registers."""
    found = set(nest.loads.get(value.name, ()))
    if nest.reduce is not None or nest.where is not None or len(found) != 1 or nest.points != value.type.capacity:
        return False
    return reads_each_once(nest, next(iter(found)), value.shape)


def align_epilogue(nest: Nest, value: Param) -> Nest:
    """The nest with its axes in the order of the value's dimensions."""
    load = nest.loads[value.name][0]
    order = tuple(i for i in load.index if isinstance(i, Axis))
    return replace(nest, axes=order)


def compose(
    parts: Sequence[tuple[Kernel, Sequence[int]]], inputs: Mapping[int, Param], outputs: Sequence[int]
) -> Kernel:
    """One kernel for a sequence of kernels with one result each.

    Args:
        parts: (kernel, numbers of its arguments); part k computes value `outputs[k]`.
        inputs: Number → parameter of the whole.
        outputs: Number of each part's value; the last is the result.
    """
    nests: list[Nest] = []
    locals_: list[Param] = []
    names = {n: p.name for n, p in inputs.items()}
    for k, ((kernel, numbers), value) in enumerate(zip(parts, outputs, strict=True)):
        renamed = {p.name: names[n] for p, n in zip(kernel.params, numbers, strict=True)}
        for j, p in enumerate(kernel.locals):
            renamed[p.name] = f"l{k}_{j}"
            locals_.append(Param(renamed[p.name], p.type))
        names[value] = renamed[kernel.results[0].name] = f"v{k}"
        locals_.append(Param(f"v{k}", kernel.results[0].type))
        nests += [n.rename(renamed) for n in kernel.nests]
    result = locals_.pop()
    whole = Kernel.canonical(tuple(inputs.values()), (result,), tuple(nests), tuple(locals_))
    return inline_locals(whole)
