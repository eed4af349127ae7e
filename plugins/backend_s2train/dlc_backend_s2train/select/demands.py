"""Whether the device computes as much of a model as was asked for; if not, what is left to the host, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dlc.base.diagnostics import ExitCode, error, quote
from dlc.graph import Graph
from dlc_backend_s2train.host.coverage import coverage_facts
from dlc_backend_s2train.host.lines import NAMES, shares
from dlc_backend_s2train.host.op import S2Host
from dlc_backend_s2train.instruction import S2Instruction
from dlc_backend_s2train.select.hosting import Left

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
    asked = " and ".join(f"{least[what]:g} % of the {NAMES[what]}" for what in short)
    raise error(
        "offload-limit",
        f"the device computes {shares(found)}; at least {asked} is asked for",
        notes=_notes(left),
        help="ask for less with --min-offload, replace these ops in the model, or compile for target c",
        exit_code=ExitCode.LIMIT,
    )


def _notes(left: Left) -> Iterator[str]:
    every = list(left.told().items())
    for node, why in every[:_MOST]:
        yield f"left to the host: node {quote(node)}: {why}"
    if len(every) > _MOST:
        yield f"and {len(every) - _MOST} more; --explain s2-select names all of a build without the limit"
