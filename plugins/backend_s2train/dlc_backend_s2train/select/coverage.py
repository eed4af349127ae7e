"""How much of a model the device computes, and holding that against what was asked for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dlc.base.diagnostics import ExitCode, error, quote
from dlc.base.types import Type
from dlc.graph import Constant, Graph, Input, Item, Op, Splat
from dlc.ops.shape import Reshape
from dlc_backend_s2train.build_lines import COUNTS, coverage_text, shares
from dlc_backend_s2train.decompose.blocks import blocks_of
from dlc_backend_s2train.host_functions import compiled
from dlc_backend_s2train.instruction import S2Host, S2Instruction, geometry_of, kind_of
from dlc_backend_s2train.select.host_fallback import Left


def coverage_facts(graph: Graph, steps: Iterable[Op]) -> dict[str, int | str]:
    """What the accelerator does of a graph, and what the host; `steps` are its instructions and host functions.

    `device_ops` and `host_ops` count nodes of the model, those that nobody named by step; one that both work for, such
    as a node whose gradient the host computes, is the host's. MACs are products that results need, those with padding
    among them, of the host by the definitions of its ops. `host` tells kinds of ops, `host_calls` how often the device
    waits for it in a run, `host_bytes` what it reads and writes then, `coverage` all of it in words.
    """
    host: set[str] = set()
    device: set[str] = set()
    macs = {"device_macs": 0, "host_macs": 0}
    kinds: Counter[str] = Counter()
    calls = crossed = 0
    for number, step in enumerate(steps):
        names = {_node(name) for name in graph.origin(step)} or {f"step {number}"}
        if isinstance(step, S2Host):
            host |= names
            calls += 1
            crossed += sum(Type(x.dtype, shape).nbytes for x, (shape, _) in zip(step.args, step.reads, strict=True))
            crossed += sum(t.nbytes for t in step.results)
            macs["host_macs"] += compiled(step.text).macs
            kinds.update(kind_of(op) for op in compiled(step.text).graph.ops if not isinstance(op, _SILENT))
        else:
            device |= names
            macs["device_macs"] += macs_of(step)
    host_kinds = ", ".join(f"{kind} x {count}" for kind, count in sorted(kinds.items()))
    facts: dict[str, int | str] = {"device_ops": len(device - host), "host_ops": len(host), **macs, "host": host_kinds}
    facts |= {"host_calls": calls, "host_bytes": crossed}
    return {**facts, "coverage": coverage_text(facts)}


def macs_of(step: Op) -> int:
    """Products that an instruction's results need; the gradient of a bias is a product with ones."""
    g = geometry_of(step.geometry) if isinstance(step, S2Instruction) else None
    if not isinstance(step, S2Instruction) or g is None or step.opcode not in ("conv", "linear"):
        return 0
    results = g.n * g.co * g.ho * g.wo
    if all(slot != "src1" for slot, _, _ in step.reads):
        return results
    return results * (g.ci // g.groups) * math.prod((g.kh, g.kw)) * step.times


_SILENT = (Input, Constant, Splat, Item, Reshape)
"""What computes nothing."""


def _node(name: str) -> str:
    """The node of a name; blocks of a kernel are one."""
    found = blocks_of(name)
    return name if found is None else found[0]


_MOST: Final = 20
"""Nodes that a message names; the others are counted."""


def check_coverage(graph: Graph, left: Left, least: Mapping[str, float]) -> None:
    """Hold a graph of instructions and host functions against percentages of `ops` and `macs`.

    Raises:
        DlcError: (LIMIT) the device computes less; with the nodes that are left to the host, and why.
    """
    found = coverage_facts(graph, (op for op in graph.ops if isinstance(op, S2Instruction | S2Host)))
    counts = {what: (int(found[f"device_{what}"]), int(found[f"host_{what}"])) for what in least}
    short = [what for what, (device, host) in counts.items() if 100 * device < least[what] * (device + host)]
    if not short:
        return
    asked = " and ".join(f"{least[what]:g} % of the {COUNTS[what]}" for what in short)
    raise error(
        "offload-limit",
        f"the device computes {shares(found)}; at least {asked} is asked for",
        notes=_notes(left),
        help="ask for less with --min-offload, replace these ops in the model, or compile for target c",
        exit_code=ExitCode.LIMIT,
    )


def _notes(left: Left) -> Iterator[str]:
    every = list(left.by_node().items())
    for node, why in every[:_MOST]:
        yield f"left to the host: node {quote(node)}: {why}"
    if len(every) > _MOST:
        yield f"and {len(every) - _MOST} more; --explain s2-select names all of a build without the limit"
