"""What a build prints of its coverage. Imports nothing: a build that the cache has prints it too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def coverage_lines(facts: Mapping[str, int | str]) -> Sequence[str]:
    """The coverage in a line; nothing where it is not known."""
    return (f"coverage: {facts['coverage']}",) if "coverage" in facts else ()


def coverage_text(facts: Mapping[str, int | str]) -> str:
    """`66 of 68 ops (97.0 %), 654 of 654 MACs (100 %) on the accelerator; host: lrn x 2`."""
    host = f"; host: {facts['host']}" if facts["host"] else ""
    return f"{shares(facts)} on the accelerator{host}"


def shares(facts: Mapping[str, int | str]) -> str:
    """`66 of 68 ops (97.0 %), 654 of 654 MACs (100 %)`."""
    parts = (_part(int(facts[f"device_{what}"]), int(facts[f"host_{what}"]), name) for what, name in NAMES.items())
    return ", ".join(parts)


NAMES = {"ops": "ops", "macs": "MACs"}
"""What is counted, and what it is called."""


def _part(device: int, host: int, name: str) -> str:
    """Rounded down, so that 100 % are all."""
    whole = device + host
    share = "100" if not host else f"{1000 * device // whole / 10:.1f}"
    return f"{device:,} of {whole:,} {name} ({share} %)"
