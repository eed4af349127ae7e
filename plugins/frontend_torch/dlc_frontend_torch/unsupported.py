"""What rules raise, and the collection of all that is wrong with a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location
from dlc_frontend_torch.nodes import Node

HELP: Final = "write this part of the module with other operators; dlc list torch shows those that are supported"
MOST: Final = 50
"""Operators and reasons that are reported one by one."""


class Unsupported(Exception):
    """A call that dlc does not import."""

    def __init__(self, reason: str, help: str = "") -> None:
        """`reason` without names of nodes, so that equal reasons are reported once."""
        super().__init__(reason)
        self.reason, self.help = reason, help


@dataclass
class Refusals:
    """Findings so far: nodes with equal operator and reason become one diagnostic."""

    source: str
    found: dict[tuple[str, str, str], list[Node]] = field(default_factory=dict[tuple[str, str, str], list[Node]])

    def refuse(self, node: Node, reason: str, help: str = "") -> None:
        """A node that is not imported."""
        self.found.setdefault((node.target, reason, help), []).append(node)

    def check(self) -> None:
        """Raise everything that was found, if anything was."""
        if self.found:
            raise DlcError(*self._diagnostics(), exit_code=ExitCode.MODEL)

    def _diagnostics(self) -> list[Diagnostic]:
        shown: list[Diagnostic] = []
        for (target, reason, help), nodes in list(self.found.items())[:MOST]:
            places = dict.fromkeys(str(n.place) for n in nodes if n.place.module)
            first = nodes[0]
            notes = [f"in {place}" for place in list(places)[:5]]
            notes += [f"and at {len(places) - 5} more places"] if len(places) > 5 else []
            many = f", {len(nodes)} nodes" if len(nodes) > 1 else ""
            shown.append(
                Diagnostic(
                    "unsupported-op",
                    f"{target}{many}: {reason}",
                    location=Location(first.place.file, node=first.name, line=first.place.line)
                    if first.place.file
                    else Location(self.source, node=first.name),
                    notes=tuple(notes),
                    help=help or HELP,
                    source_line=first.place.code,
                    nodes=tuple(n.name for n in nodes) if len(nodes) > 1 else (),
                )
            )
        if (left := len(self.found) - MOST) > 0:
            shown.append(Diagnostic("unsupported-op", f"and {left} more operators and reasons"))
        return shown
