"""How much of a model the accelerator does: nodes of the model, and products of its sums of products."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from dlc.graph import Constant, Graph, Input, Item, Op, Splat
from dlc.ops.shape import Reshape
from dlc_backend_s2train.decompose.names import blocks_of
from dlc_backend_s2train.host.function import compiled
from dlc_backend_s2train.host.lines import coverage_text
from dlc_backend_s2train.host.op import S2Host, kind_of
from dlc_backend_s2train.instruction import S2Instruction, geometry_of


def coverage_facts(graph: Graph, steps: Iterable[Op]) -> dict[str, int | str]:
    """What the accelerator does of a graph, and what the host; `steps` are its instructions and host functions.

    `device_ops` and `host_ops` count nodes of the model, those that nobody named by step; one that both work for, such
    as a node whose gradient the host computes, is the host's. MACs are products that results need, those with padding
    among them, of the host by the definitions of its ops. `host` tells kinds of ops, `coverage` all of it in words.
    """
    host: set[str] = set()
    device: set[str] = set()
    macs = {"device_macs": 0, "host_macs": 0}
    kinds: Counter[str] = Counter()
    for number, step in enumerate(steps):
        names = {_node(name) for name in graph.origin(step)} or {f"step {number}"}
        if isinstance(step, S2Host):
            host |= names
            macs["host_macs"] += compiled(step.text).macs
            kinds.update(kind_of(op) for op in compiled(step.text).graph.ops if not isinstance(op, _SILENT))
        else:
            device |= names
            macs["device_macs"] += macs_of(step)
    told = ", ".join(f"{kind} x {count}" for kind, count in sorted(kinds.items()))
    facts: dict[str, int | str] = {"device_ops": len(device - host), "host_ops": len(host), **macs, "host": told}
    return {**facts, "coverage": coverage_text(facts)}


def macs_of(step: Op) -> int:
    """Products that an instruction's results need; the gradient of a bias is a product with ones."""
    g = geometry_of(step.geometry) if isinstance(step, S2Instruction) else None
    if not isinstance(step, S2Instruction) or g is None or step.opcode not in ("conv", "linear"):
        return 0
    results = g.n * g.co * g.ho * g.wo
    if all(slot != "src1" for slot, _, _ in step.reads):
        return results
    return results * (g.ci // g.groups) * math.prod((g.kh, g.kw))


_SILENT = (Input, Constant, Splat, Item, Reshape)
"""What computes nothing."""


def _node(name: str) -> str:
    """The node of a name; blocks of a kernel are one."""
    found = blocks_of(name)
    return name if found is None else found[0]
