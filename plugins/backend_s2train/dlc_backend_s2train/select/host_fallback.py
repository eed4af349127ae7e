"""What no instruction computes, left to the host: ops that may run together become one function.

    y = lrn(x), z = transpose(y)   →   one call: the host reads x, computes both, stores z

Selection runs again with the ops that it refused as the host's, until nothing is refused. A gradient that stays named
(`Cotangent`) is opened into the ops that it consists of, for selection to place those. Two ops of the host run together
if one reads the other and no instruction stands between them; so functions are convex, and values inside of one are
not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from dlc.base.narrowing import narrowed
from dlc.base.types import f32, i32
from dlc.graph import Constant, Cotangent, Graph, Input, Item, Op, Splat, Tensor, print_graph
from dlc.graph.graph import make_graph
from dlc.graph.text import is_inline
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNormTraining
from dlc.ops.shape import Reshape
from dlc.passes.lower import lower_op
from dlc_backend_s2train.codes import Element, Role, Stage
from dlc_backend_s2train.instruction import kind_of
from dlc_backend_s2train.isa.access import MOST_TENSORS
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.select import memory
from dlc_backend_s2train.select.memory import Key, key, offset, source
from dlc_backend_s2train.select.selection import Given, Group, Made, Selection

_STORED = "the host computes on values and weights, not on states, which the device holds in its own way"


@dataclass(frozen=True)
class Why:
    """Why something is the host's."""

    node: str
    """What a user calls it."""
    kind: str
    """What it is."""
    reason: str


@dataclass
class Left:
    """What the host takes over."""

    ops: set[str] = field(default_factory=set[str])
    """Digests of ops."""
    gradients: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """Gradients that are opened: digest of the op, number of its operand."""
    reasons: dict[str, Why] = field(default_factory=dict[str, Why])
    """Digest of what was refused → why, in the order of the refusals."""

    def take(self, work: Selection, trains: bool) -> bool:
        """Take over what can be of what a selection refused; whether there was any of it."""
        before = len(self.ops) + len(self.gradients)
        for op, reason in zip(work.refused, work.reasons, strict=True):
            match op:
                case Cotangent() if (op.of.digest, op.operand) not in self.gradients:
                    self.gradients.add((op.of.digest, op.operand))
                case _ if computes(op, trains) and op.digest not in self.ops:
                    self.ops.add(op.digest)
                case _:
                    continue
            if not isinstance(op, Item):  # a part of what is reported
                self.reasons.setdefault(op.digest, Why(work.name(op), kind_of(op), reason))
        return len(self.ops) + len(self.gradients) > before

    def wider(self, work: Selection, more: Set[str]) -> Left:
        """The same with further ops of a selection, that read and give what the host computes."""
        ops = [op for op in work.graph.ops if op.digest in more]
        reasons = {op.digest: Why(work.name(op), kind_of(op), "what is around it is the host's") for op in ops}
        return Left(self.ops | more, set(self.gradients), {**self.reasons, **reasons})

    def by_node(self) -> Mapping[str, str]:
        """Node → what of it is left to the host, and why: `mul, pow: it has no instruction`."""
        kinds: dict[tuple[str, str], dict[str, None]] = {}
        for why in self.reasons.values():
            kinds.setdefault((why.node, why.reason), {})[why.kind] = None
        found: dict[str, str] = {}
        for (node, reason), several in kinds.items():
            text = f"{', '.join(several)}: {reason}"
            found[node] = f"{found[node]}; {text}" if node in found else text
        return found

    def opened(self, op: Op) -> Op | None:
        """What a gradient becomes; None: it stays."""
        taken = isinstance(op, Cotangent) and (op.of.digest, op.operand) in self.gradients
        return op.expansion if taken else None


def computes(op: Op, trains: bool) -> bool:
    """Whether the host may compute an op: it reads values, and nothing but its own result comes of it."""
    if isinstance(op, Input | BatchNormTraining | Cotangent) or (trains and isinstance(op, LabelCrossEntropy)):
        return False
    return not any(isinstance(x, Input) and x.role == "state" for x in op.operands)


def place(work: Selection, op: Op) -> None:
    """An op as a function by itself; `joined` puts those together that may be."""
    group = Group(Opcode.HOST, Stage.FORWARD, op, origin=[op])
    for x in op.operands:
        behind = source(x)
        if isinstance(behind, Input) and behind.role == "state":
            work.refuse(op, _STORED)
        if memory.known_value(behind) is None:
            # Of an op with several results only its parts have shapes; functions are put together by keys.
            group.sources.append(Given(key(x), ()))
    work.groups.append(group)


def joined(work: Selection, outputs: Iterable[Key]) -> None:
    """Put the host's ops of a selection together, and write the functions' texts."""
    hosted = [g for g in work.groups if g.opcode is Opcode.HOST]
    if not hosted:
        return
    wanted = {*outputs}
    sets = _sets(work.groups)
    inside = {id(g): number for number, several in enumerate(sets) for g in several}
    owner = {g.tail.digest: inside[id(g)] for g in hosted}
    for group in work.groups:
        mine = inside.get(id(group))
        for given in _given(group):
            if isinstance(given.value, str) and owner.get(given.value, mine) != mine:
                wanted.add(given.value)
    made = [_function(work, several, wanted) for several in sets]
    work.groups[:] = [g for g in work.groups if g.opcode is not Opcode.HOST] + [g for g in made if g is not None]


def _given(group: Group) -> tuple[Given, ...]:
    return (*group.reads.values(), *group.sources)


def _sets(groups: Sequence[Group]) -> list[list[Group]]:
    """The host's ops that run together, in the order of computation.

    Each has a level: the number of changes from the device to the host on the longest way to it. A way from one op of
    the host over the device to another adds one, so ops of one level that read each other are convex together.
    """
    made: dict[Key, Group] = {}
    for group in groups:
        made |= {m.key: group for m in group.writes.values()}
        if group.opcode is Opcode.HOST:
            made[group.tail.digest] = group
    levels: dict[int, int] = {}
    leader: dict[int, list[Group]] = {}
    for group in _ordered(groups, made):
        host = group.opcode is Opcode.HOST
        before = {id(b): b for g in _given(group) if isinstance(g.value, str) and (b := made.get(g.value))}
        before.pop(id(group), None)
        level = max((levels[i] + (host and b.opcode is not Opcode.HOST) for i, b in before.items()), default=0)
        levels[id(group)] = level
        if not host:
            continue
        mine = [group]
        near = {id(leader[i]): leader[i] for i in before if i in leader and levels[i] == level}
        several = sorted(near.values(), key=len)
        if several:
            # The largest set takes the others in: each op moves as often as the logarithm of their number.
            mine = several.pop()
            for other in several:
                mine += other
                leader |= {id(g): mine for g in other}
            mine.append(group)
        leader[id(group)] = mine
    place = {id(g): k for k, g in enumerate(groups)}
    found = {id(s): s for s in leader.values()}
    return [sorted(s, key=lambda g: place[id(g)]) for s in found.values()]


def _ordered(groups: Sequence[Group], made: Mapping[Key, Group]) -> list[Group]:
    """Groups, those before the others that they give something to."""
    order: list[Group] = []
    done: set[int] = set()
    for group in groups:
        stack = [group]
        while stack:
            now = stack[-1]
            if id(now) in done:
                stack.pop()
                continue
            before = [made[g.value] for g in _given(now) if isinstance(g.value, str) and g.value in made]
            if missing := [b for b in before if id(b) not in done and b is not now]:
                stack += missing
                continue
            done.add(id(now))
            order.append(now)
            stack.pop()
    return order


def _function(work: Selection, several: Sequence[Group], wanted: set[Key]) -> Group | None:
    """One group of several; None where nothing reads what they compute."""
    ops = [g.tail for g in several]
    results = [op for op in ops if op.digest in wanted]
    if not results:
        return None
    group = Group(Opcode.HOST, Stage.FORWARD, results[-1], origin=ops)
    writing = _Writing(work, {op.digest for op in ops}, group)
    for op in ops:
        writing.add(op)
    for op in results:
        kind = Element.FP16 if op.dtype.is_float else Element.INT32
        group.results.append(Made(op.digest, kind, work.shown.get(op.digest, op.shape), Role.ACTIVATION))
    outputs: dict[str, Op] = {}
    for k, (op, stored) in enumerate(zip(results, group.results, strict=True)):
        value = writing.ops[op.digest]
        outputs[f"y{k}"] = value if stored.shape == op.shape else Reshape(value, to=stored.shape)
    group.text = print_graph(make_graph(writing.inputs, outputs))
    if (count := len(group.sources) + len(results)) > MOST_TENSORS:
        work.refuse(
            results[-1], f"a function of the host would read and write {count} values; {MOST_TENSORS} are the most"
        )
    return group


@dataclass
class _Writing:
    """A function's graph in the making."""

    work: Selection
    inside: set[str]
    """Digests of its ops."""
    group: Group
    ops: dict[str, Op] = field(default_factory=dict[str, Op])
    """Digest of an op of the model → the function's."""
    inputs: list[Input] = field(default_factory=list[Input])

    def add(self, op: Op) -> None:
        """One more op, whose operands are there."""
        found = op.with_operands([self._operand(x) for x in op.operands])
        self.ops[op.digest] = lower_op(found) if found.of_pack else found

    def _operand(self, x: Op) -> Op:
        if x.digest in self.ops:
            return self.ops[x.digest]
        behind = source(x)
        if behind.digest in self.inside:
            self.ops[x.digest] = Reshape(self.ops[behind.digest], to=x.shape)
        elif isinstance(x, Splat):
            self.ops[x.digest] = x
        elif isinstance(behind, Input) and behind.role == "weight":
            self.ops[x.digest] = self._input(x, Given(memory.stored_weight(behind), x.shape))
        elif (values := None if isinstance(behind, Input) else memory.known_value(x)) is not None:
            tensor = Tensor.of(np.asarray(values, order="C"))
            inline = is_inline(tensor)
            self.ops[x.digest] = Constant(tensor) if inline else self._input(x, Given(self._stored(x, tensor), x.shape))
        else:
            self.ops[x.digest] = self._input(x, Given(key(x), x.shape, offset(x)))
        return self.ops[x.digest]

    def _input(self, x: Op, given: Given) -> Op:
        found = Input(f"x{len(self.inputs)}", x.type)
        self.inputs.append(found)
        self.group.sources.append(given)
        return found

    def _stored(self, of: Op, tensor: Tensor) -> Constant:
        """A constant as the device's memory holds it for the host: fp32, or int32."""
        values = tensor.array()
        dtype = f32 if tensor.type.dtype.is_float else i32
        stored = narrowed(values, dtype, of if dtype is f32 else None)
        if dtype is i32 and not np.array_equal(stored, values):
            self.work.refuse(self.group.tail, f"a constant {tensor.type} has numbers outside of int32")
        return Constant(Tensor.of(stored))


def hosted_graph(graph: Graph, left: Left) -> Graph:
    """The graph with the gradients opened that the host takes over."""
    return graph.rewrite(left.opened) if left.gradients else graph
