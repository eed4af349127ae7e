"""Which further ops the host computes, so that less crosses between it and the device: a minimum cut.

    sigmoid (host) → add (either) → tanh (host)   →   all three on the host: nothing in between is stored

Ops are nodes; those that only the host computes hang on the source, those that only the device computes on the sink. A
value that one side computes and the other reads costs its bytes once for each direction, whoever reads it:

    host → device    op ─bytes→ value ─∞→ each reader
    device → host    each reader ─∞→ value ─bytes→ op

By the theorem of Ford and Fulkerson (1956) a cheapest cut separates what the source still reaches when the flow is as
large as can be; of several it is the one that leaves most to the device. The flow is found by Dinic's method (1970).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from dlc.graph import Cotangent, Input, Op
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNormTraining
from dlc.ops.random import Dropout
from dlc_backend_s2train.select.memory import Key, key, needs, owner, source
from dlc_backend_s2train.select.products import is_product

CROSSING: Final = 256
"""Bytes that are as dear as the crossing of one value by itself: an address, and the wait for both sides."""
_HALF, _WORD = 2, 4
_NEVER: Final = 1 << 60


def moved(
    order: Sequence[Op], hosted: Set[str], computes: Callable[[Op], bool], outputs: Collection[Key]
) -> frozenset[str]:
    """Digests of the ops that had better be the host's, besides those that are.

    Args:
        order: All ops that are placed, operands first.
        hosted: Digests of those that the host has to compute.
        computes: Whether the host may compute an op.
        outputs: Keys of the values that are wanted in the device's memory, where the inputs lie as well.
    """
    if not hosted:
        return frozenset()
    network = _Network()
    readers = _readers(order, hosted)
    both = {op.digest for op in order if computes(op) and not _stays(op)} - _kept(order, hosted) - hosted
    given = {x.digest: x for op in order for x in map(source, op.operands) if isinstance(x, Input)}
    for op in (*given.values(), *order):
        if op.digest in hosted:
            network.edge("host", op.digest, _NEVER)
        elif op.digest not in both:
            network.edge(op.digest, "device", _NEVER)
        used = [*readers.get(op.digest, ()), *(["device"] if op.digest in outputs else [])]
        if used:
            cost = sum((_HALF if t.dtype.is_float else _WORD) * t.size for t in op.types) + CROSSING
            down, up = f"{op.digest} down", f"{op.digest} up"
            network.edge(op.digest, down, cost)
            network.edge(up, op.digest, cost)
            for reader in used:
                network.edge(down, reader, _NEVER)
                network.edge(reader, up, _NEVER)
    return frozenset(network.side("host", "device") & both)


def _stays(op: Op) -> bool:
    """What is not moved though the host may compute it: products, losses, what keeps something, gradients."""
    products = isinstance(op, Conv | Gemm | MatMul) or is_product(op)
    return products or isinstance(op, Cotangent | BatchNormTraining | Dropout | LabelCrossEntropy) or len(op.types) != 1


def _kept(order: Sequence[Op], hosted: Set[str]) -> set[str]:
    """Digests of ops of which something else than the value is read: masks, pointers, statistics."""
    return {owner(value) for op in order for value in needs(op, hosted) if owner(value) != value}


def _readers(order: Sequence[Op], hosted: Set[str]) -> Mapping[str, list[str]]:
    """Digest of an op → those of the ops that read its value."""
    found: dict[str, dict[str, None]] = {}
    for op in order:
        reads = [key(x) for x in op.operands] if op.digest in hosted else [*needs(op, hosted)]
        for value in reads:
            found.setdefault(value, {})[op.digest] = None
    return {digest: [*several] for digest, several in found.items()}


@dataclass
class _Network:
    """Edges with capacities, each beside the one that takes its flow back."""

    ends: list[int] = field(default_factory=list[int])
    room: list[int] = field(default_factory=list[int])
    """Of each edge; edge k ^ 1 goes the other way."""
    out: list[list[int]] = field(default_factory=list[list[int]])
    """Edges that leave a node."""
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def node(self, name: str) -> int:
        """The number of a node."""
        if name not in self.numbers:
            self.numbers[name] = len(self.out)
            self.out.append([])
        return self.numbers[name]

    def edge(self, begin: str, end: str, capacity: int) -> None:
        """One more edge."""
        for a, b, room in ((begin, end, capacity), (end, begin, 0)):
            self.out[self.node(a)].append(len(self.ends))
            self.ends.append(self.node(b))
            self.room.append(room)

    def side(self, begin: str, end: str) -> set[str]:
        """The names on the side of `begin` of a cheapest cut, the smallest such side."""
        first, last = self.node(begin), self.node(end)
        while (levels := self._levels(first))[last] >= 0:
            self._fill(first, last, levels)
        return {name for name, number in self.numbers.items() if levels[number] >= 0}

    def _levels(self, first: int) -> list[int]:
        """Edges with room between the first node and each other; -1: there is no way."""
        levels = [-1] * len(self.out)
        levels[first] = 0
        waiting = deque([first])
        while waiting:
            node = waiting.popleft()
            for k in self.out[node]:
                if self.room[k] and levels[self.ends[k]] < 0:
                    levels[self.ends[k]] = levels[node] + 1
                    waiting.append(self.ends[k])
        return levels

    def _fill(self, first: int, last: int, levels: list[int]) -> None:
        """Send flow along all shortest ways until each is full."""
        tried = [0] * len(self.out)
        way: list[int] = []
        node = first
        while True:
            if node == last:
                flow = min(self.room[k] for k in way)
                for k in way:
                    self.room[k] -= flow
                    self.room[k ^ 1] += flow
                full = next(i for i, k in enumerate(way) if not self.room[k])
                node = self.ends[way[full] ^ 1]
                del way[full:]
                continue
            edges = self.out[node]
            while tried[node] < len(edges):
                k = edges[tried[node]]
                if self.room[k] and levels[self.ends[k]] == levels[node] + 1:
                    break
                tried[node] += 1
            if tried[node] < len(edges):
                way.append(edges[tried[node]])
                node = self.ends[way[-1]]
            elif way:
                node = self.ends[way.pop() ^ 1]
                tried[node] += 1
            else:
                return
