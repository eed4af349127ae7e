"""s2-select: a graph of ops becomes a graph of instructions of the accelerator.

    relu(batch_norm(conv(x, w)))   →   one instruction: forward conv, bn_forward, relu

It works on a model, or on a training step whose gradients stay named (`autodiff{named=…}`); see `selection` for which
stages an instruction absorbs. What cannot be placed is reported all at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc.diagnostics import DlcError
from dlc.graph import Graph, Input, Op
from dlc.ops.elementwise import Div
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc.passes.base import Level, Pass
from dlc.report import Report
from dlc.spec import option
from dlc.types import Type, f32
from dlc_backend_s2train.program import Element, Hyper, Opcode, Role, Stage
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.build import built
from dlc_backend_s2train.select.effects import Key, key, needs, owner, source
from dlc_backend_s2train.select.group import Given, Group, Made
from dlc_backend_s2train.select.products import product_of
from dlc_backend_s2train.select.selection import Selection
from dlc_backend_s2train.select.updates import Update, update_of


@dataclass(frozen=True)
class S2Select(Pass[Graph, Graph]):
    """Choose instructions of the S2Train accelerator: relu(batch_norm(conv(x, w)))  →  one instruction."""

    name: ClassVar[str] = "s2-select"
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "kernels"
    computes_other: ClassVar[bool] = True
    loss_scale: float = option(1024.0, "what gradients are multiplied by while they are fp16; a power of two", low=1)

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph of instructions.

        Raises:
            DlcError: ops that no instruction computes: all of them, with the reasons.
        """
        work = Selection(state, report, self.loss_scale)
        roots, plain, updates = self._ends(state, work)
        order = _placed(state, roots)
        work.count(order, tuple(roots))
        for op in order:
            work.visit(op)
        if work.problems:
            raise DlcError(*work.problems)
        work.close()
        new: dict[Input, tuple[str, Key]] = {}
        for name, weight, velocity, update in updates:
            new |= self._update(work, state, name, weight, velocity, update)
        graph = built(state, work.groups, plain, new)
        report.count("instructions", len(work.groups))
        report.count("ops", len(order))
        return graph

    def _ends(
        self, state: Graph, work: Selection
    ) -> tuple[list[Op], list[tuple[str, Key]], list[tuple[str, Input, Input | None, Update]]]:
        """What is computed in the end: the values wanted, plain outputs by name, and the updates of weights."""
        over = {i: state.inputs[j] for i, j in state.aliases}
        outputs = {over[i].name: op for i, op in enumerate(state.outputs) if i in over}
        inputs = {i.name: i for i in state.inputs}
        roots: list[Op] = []
        plain: list[tuple[str, Key]] = []
        updates: list[tuple[str, Input, Input | None, Update]] = []
        for i, (name, op) in enumerate(zip(state.names, state.outputs, strict=True)):
            if i not in over:
                roots.append(loss_of(op) or source(op))
                plain.append((name, key(roots[-1])))
            elif over[i].role == "weight":
                velocity = inputs.get(f"{name}.momentum") or inputs.get(f"{name}.velocity")
                found = update_of(over[i], op, velocity, outputs.get(velocity.name) if velocity else None)
                if isinstance(found, str):
                    work.refuse(op, f"{name}: {found}", "the accelerator trains by sgd{lr=… momentum=… weight-decay=…}")
                    continue
                roots.append(source(found.gradient))
                updates.append((name, over[i], velocity, found))
        return roots, plain, updates

    def _update(
        self, work: Selection, state: Graph, name: str, weight: Input, velocity: Input | None, update: Update
    ) -> dict[Input, tuple[str, Key]]:
        """Add the instruction that updates a weight."""
        held, shape, offset = _place_of(state, weight)
        hyper = Hyper(update.rate, update.momentum, update.decay, self.loss_scale, nesterov=update.nesterov)
        group = Group(Opcode.UPDATE, Stage.WEIGHT_UPDATE, weight, hyper=hyper, origin=[update.gradient])
        group.reads["src0"] = Given(key(update.gradient), shape)
        group.reads["dst0"] = Given(held, shape, offset)
        whole = held.shape if held.shape != shape else ()
        group.writes["dst0"] = Made(f"{weight.digest}.new", Element.FP16, shape, Role.WEIGHT, offset, whole)
        new = {held: (name, f"{weight.digest}.new")}
        if velocity is not None:
            state_input = Input(velocity.name, Type(f32, shape), "state", 0.0)
            group.reads["aux"] = Given(state_input, shape)
            group.writes["aux"] = Made(f"{velocity.digest}.new", Element.FP32, shape, Role.STATE)
            new[state_input] = velocity.name, f"{velocity.digest}.new"
        work.groups.append(group)
        return new


def loss_of(op: Op) -> LabelCrossEntropy | None:
    """The cross-entropy of which a value is the mean over all rows."""
    match op:
        case ReduceMean(x=LabelCrossEntropy() as loss):
            return loss
        case Div(a=ReduceSum(x=LabelCrossEntropy() as loss), b=b):
            count = parameters.known_value(b)
            return loss if count is not None and count.size == 1 and float(count) == loss.type.size else None
        case _:
            return None


def _placed(graph: Graph, roots: list[Op]) -> tuple[Op, ...]:
    """The ops that instructions are for: what the roots need, through what instructions read."""
    ops = {op.digest: op for op in graph.ops}
    wanted: set[str] = set()
    pending = [op.digest for op in roots]
    while pending:
        digest = pending.pop()
        op = ops[digest]
        if digest in wanted or isinstance(op, Input) or parameters.known_value(op) is not None:
            continue
        wanted.add(digest)
        pending += [owner(value) for value in needs(op)]
    return tuple(op for op in graph.ops if op.digest in wanted)


def _place_of(graph: Graph, weight: Input) -> tuple[Input, tuple[int, ...], int]:
    """Where a weight lies: the input that holds it, the shape there, and bytes before it."""
    values = parameters.known_value(weight)
    assert values is not None, "a weight of a training step begins with something"
    for op in graph.ops:
        found = product_of(op)
        if isinstance(found, str):
            continue
        if found.w == weight:
            held = found.weight
            assert isinstance(held, Input)
            return held, held.shape, 0
        if found.bias == weight:
            channels = found.geometry.co
            held = parameters.held(weight, parameters.bias_rows(values, channels))
            assert isinstance(held, Input)
            return held, (channels,), parameters.SHIFT * channels * 2
    raise AssertionError(f"{weight.name} is no weight of a product")
