"""A program's cost in a few figures, as facts of an artifact, and as pages."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from dlc.api.artifact import Artifact
from dlc.api.source import Source
from dlc_backend_s2train.build_lines import READINGS
from dlc_backend_s2train.container.reader import read
from dlc_backend_s2train.cost.cycles import Assumptions
from dlc_backend_s2train.cost.estimate import estimate, total
from dlc_backend_s2train.cost.packing import gains, saved_steps
from dlc_backend_s2train.cost.picture import memory_html
from dlc_backend_s2train.cost.report import data, table, timeline_html
from dlc_backend_s2train.cost.unfused import fusion_facts
from dlc_backend_s2train.program import Entry, Program


def cost_facts(program: Program, entry: Entry) -> dict[str, int | str]:
    """What one run of an entry costs: instructions, MACs, bytes over the link, cycles under both readings.

    `steps` are those that broadcast an element, `unpacked_steps` what they would be if the program had no mosaics of
    images, `packed_steps` if it had all that help. `use` is,
    per reading, the part of all cycles that would do if every PE worked in each of them, in percent.

    Raises:
        DlcError: as `estimate` does.
    """
    target = program.target
    saved = saved_steps(program, entry.begin, entry.end)
    possible = sum(gain.before - gain.after for _, gain in gains(program, entry.begin, entry.end))
    facts: dict[str, int | str] = {"cost_of": entry.name, "instructions": entry.end - entry.begin}
    for reading in READINGS:
        found = total(estimate(program, Assumptions(reading), entry.begin, entry.end), target)
        facts |= {"macs": found.macs, "link_in_bytes": found.inward, "link_out_bytes": found.outward}
        unpacked = found.steps + saved
        facts |= {"steps": found.steps, "unpacked_steps": unpacked, "packed_steps": unpacked - possible}
        width = target.lanes if reading == "parallel" else 1
        products = target.cores * target.columns * target.rows * width * found.cycles
        use = float(100 * Fraction(found.macs, products)) if products else 0.0
        facts |= {f"cycles_{reading}": found.cycles, f"use_{reading}_percent": f"{use:.3g}"}
    return {**facts, **fusion_facts(program, entry)}


def stats(artifact: Artifact) -> tuple[str, dict[str, Any]]:
    """The cost of every instruction of a built program, as a table for each entry, and as data.

    Raises:
        DlcError: as `estimate` does.
    """
    program = _program(artifact)
    return table(program), {"instructions": data(program)}


def pages(artifact: Artifact) -> dict[str, str]:
    """Pages on a built program, by name: its costs over time with their table, and its memory over time."""
    program = _program(artifact)
    return {
        "timeline.html": timeline_html(program, artifact.entry),
        "memory.html": memory_html(program, artifact.entry),
    }


def _program(artifact: Artifact) -> Program:
    content = artifact.files[artifact.entry]
    source = Source(content) if isinstance(content, Path) else Source(data=bytes(content), label=artifact.entry)
    return read(source.view(), source.name)
