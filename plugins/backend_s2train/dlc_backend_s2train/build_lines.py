"""What a build prints of its cost and its coverage. Imports no arrays: a build that the cache has prints it too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from dlc_backend_s2train.v1.encoding import TENSORS

_MEGA: Final = 1_000_000


class CostModel(StrEnum):
    """How a PE is taken to compute, see `cost.cycles`."""

    PARALLEL = "parallel"
    SERIAL = "serial"


def cost_lines(facts: Mapping[str, int | str]) -> Sequence[str]:
    """The figures in a few lines; nothing where there are none."""
    if "cost_of" not in facts:
        return ()
    number = {key: f"{value:,}" for key, value in facts.items() if isinstance(value, int)}
    cycles = [f"{number[f'cycles_{r}']} {r} (array {facts[f'use_{r}_percent']} % used)" for r in CostModel]
    frames = (f"frames: {number['frames_bytes']} B in the file",) if "frames_bytes" in number else ()
    return (
        f"{facts['cost_of']}: {number['instructions']} instructions, {number['macs']} MACs; "
        f"over the link {number['link_in_bytes']} B in, {number['link_out_bytes']} B out",
        f"cycles: {', '.join(cycles)}; {number['steps']} array steps",
        f"traffic of operands: {fusion_line(facts)}",
        *frames,
    )


def word_lines(facts: Mapping[str, int | str]) -> Sequence[str]:
    """How many words of version 1 there are, and what has none, in a line; nothing where there are none."""
    if "v1_words" not in facts:
        return ()
    number = {key: f"{value:,}" for key, value in facts.items() if isinstance(value, int)}
    numbers = f"{number['v1_numbers']} of {TENSORS} numbers for {number['v1_tensors']} tensors"
    without = f"; version 1 has no word for {facts['v1_without']}" if facts["v1_without"] else ""
    return (f"version 1: {number['v1_words']} words, {numbers}{without}",)


def published_lines(facts: Mapping[str, int | str]) -> Sequence[str]:
    """Memory in the published count in a line, what that counts in another; nothing where nobody asked."""
    if "published_of" not in facts:
        return ()
    peak, bound = int(facts["published_peak"]), int(facts["published_bound"])
    overhead = f"{100 * (peak - bound) / bound:.2f} %" if bound else "0 %"
    return (
        f"{facts['published_of']} in the published count: "
        f"peak {peak:,} B, lower bound {bound:,} B, overhead {overhead}",
        f"that count: {facts['published_operators']:,} operators breadth first, each weight updated at once; tensors "
        "live from first to last touch; masks of fp16; nothing in place; without weights",
    )


def fusion_line(facts: Mapping[str, int | str]) -> str:
    """What fusion leaves of the traffic of operands: `126.6 MB, 58.7 % of 215.6 MB without fusion (…)`.

    Args:
        facts: `traffic_…` and `unfused_…`, in bytes, as `cost.operand_traffic.fusion_facts` tells them.
    """
    # What a planner places over time, and what stays in memory from one run to the next.
    passing = _share(["features_bytes", "weight_gradients_bytes"], facts)
    staying = _share(["weights_bytes", "states_bytes"], facts)
    whole = f"{_size(int(facts['traffic_bytes']))}, {_share(['bytes'], facts)} of {_size(int(facts['unfused_bytes']))}"
    return f"{whole} without fusion (features and all gradients {passing}, weights and states {staying})"


def _share(keys: Sequence[str], facts: Mapping[str, int | str]) -> str:
    one, other = (sum(int(facts[f"{side}_{key}"]) for key in keys) for side in ("traffic", "unfused"))
    return f"{100 * one / other:.1f} %" if other else "none"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= _MEGA else f"{count:,} B"


def coverage_lines(facts: Mapping[str, int | str]) -> Sequence[str]:
    """The coverage in a line; nothing where it is not known."""
    return (f"coverage: {facts['coverage']}",) if "coverage" in facts else ()


def coverage_text(facts: Mapping[str, int | str]) -> str:
    """`66 of 68 ops (97.0 %), 654 of 654 MACs (100 %) on the accelerator; host: lrn x 2 in 2 calls, 9 B to and fro`."""
    if not facts["host_calls"]:
        return f"{shares(facts)} on the accelerator"
    calls, crossed = int(facts["host_calls"]), int(facts["host_bytes"])
    host = f"{facts['host'] or 'copies'} in {calls:,} {'call' if calls == 1 else 'calls'}, {crossed:,} B to and fro"
    return f"{shares(facts)} on the accelerator; host: {host}"


def shares(facts: Mapping[str, int | str]) -> str:
    """`66 of 68 ops (97.0 %), 654 of 654 MACs (100 %)`."""
    parts = (_part(int(facts[f"device_{what}"]), int(facts[f"host_{what}"]), name) for what, name in COUNTS.items())
    return ", ".join(parts)


COUNTS = {"ops": "ops", "macs": "MACs"}
"""What is counted, and what it is called."""


def _part(device: int, host: int, name: str) -> str:
    """Rounded down, so that 100 % are all."""
    whole = device + host
    share = "100" if not host else f"{1000 * device // whole / 10:.1f}"
    return f"{device:,} of {whole:,} {name} ({share} %)"
