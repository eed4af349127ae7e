"""What a build warns of: numbers of the model that the device's types cannot hold.

Weights, biases and parameters of norms are fp16, so is what selection folds of them (1/std, products of scales);
numbers of instructions, as learning rates and epsilons, and constants of host functions are fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import numpy as np

from dlc.base.narrowing import Record, narrowed
from dlc.base.report import Report
from dlc.base.types import f32
from dlc.graph import Constant, Graph, Input, Op, Tensor
from dlc_backend_s2train.select.selection import Group, Selection

_NUMBERS: Final[Mapping[str, str]] = {
    "rate": "learning rate",
    "momentum": "momentum",
    "decay": "weight decay",
    "scale": "loss scale",
    "threshold": "threshold of pruning",
    "keep": "probability to keep",
    "epsilon": "epsilon",
}
"""Hyper-parameters that the file has as fp32, and what users call them."""


def tell_losses(record: Record, report: Report, work: Selection, made: Graph) -> None:
    """Warn of what conversions lost of tensors that the program has, and of its instructions' numbers.

    Args:
        record: Conversions of this selection, and of those before it that were refused.
        report: Of the pass.
        work: The selection.
        made: Its instructions.
    """
    stored = {t.digest for op in made.ops if (t := _tensor(op)) is not None}
    record.found[:] = [each for each in record.found if Tensor.of(each.result).digest in stored]
    for group in work.groups:
        if group.hyper is not None:
            number = {name: getattr(group.hyper, name) for name in _NUMBERS}
            narrowed(np.array(list(number.values())), f32, _subject(group), _NUMBERS.values())
    names = _Names(work.graph)
    record.tell(report, names.of, "s2train")


def _tensor(op: Op) -> Tensor | None:
    held = op.tensor if isinstance(op, Constant) else op.initial if isinstance(op, Input) else None
    return held if isinstance(held, Tensor) else None


def _subject(group: Group) -> Op:
    """What an instruction's numbers are of: the weight that it updates, or its first op."""
    updated = group.reads.get("dst0")
    if updated is not None and isinstance(updated.value, Op):
        return updated.value
    return group.origin[0] if group.origin else group.tail


class _Names:
    """What users call ops."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._readers: dict[str, Op] = {}
        for op in reversed(graph.ops):
            self._readers |= {x.digest: op for x in op.operands}

    def of(self, what: Any) -> tuple[str, tuple[str, ...]]:
        """The tensor's name, and nodes of the model."""
        if isinstance(what, tuple):
            several = [self.of(each) for each in cast("tuple[Op, ...]", what)]
            nodes = tuple(dict.fromkeys(node for _, found in several for node in found))
            return ", ".join(dict.fromkeys(name for name, _ in several)), nodes
        op: Op = what
        nodes = self._graph.origin(op)
        reader = self._readers.get(op.digest)
        name = op.name if isinstance(op, Input | Constant) else ""
        if name and not nodes and reader is not None:
            nodes = self._graph.origin(reader)
        return name or ", ".join(nodes) or f"{op.text_name} {op.type}", nodes
