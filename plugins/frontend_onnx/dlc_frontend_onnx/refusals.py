"""What is wrong with a model, collected over all of it and told at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc.diagnostics import Diagnostic, DlcError, ExitCode, Location
from dlc_frontend_onnx.rules import Unsupported

SHOWN = 5
"""Nodes that one diagnostic names."""


@dataclass
class Refusals:
    """Findings so far: those with equal operator and reason become one diagnostic."""

    source: str
    unsupported: dict[tuple[str, str, str], list[str]] = field(default_factory=dict[tuple[str, str, str], list[str]])
    """(operator, reason, help) → nodes."""
    errors: list[Diagnostic] = field(default_factory=list[Diagnostic])
    exit_code: ExitCode = ExitCode.MODEL

    def refuse(self, operator: str, node: str, finding: Unsupported) -> None:
        """A node that dlc does not import."""
        self.unsupported.setdefault((operator, finding.reason, finding.help), []).append(node)

    def fail(self, code: str, message: str, node: str = "", help: str = "", notes: tuple[str, ...] = ()) -> None:
        """Something wrong with the model itself."""
        place = Location(self.source, node=node)
        self.errors.append(Diagnostic(code, message, location=place, help=help, notes=notes))

    def caught(self, problem: DlcError, node: str) -> None:
        """An error raised while a node was imported."""
        for d in problem.diagnostics:
            place = d.location or Location(self.source, node=node)
            self.errors.append(Diagnostic(d.code, d.message, d.severity, place, d.notes, d.help, d.source_line))
        if problem.exit_code != ExitCode.MODEL:
            self.exit_code = problem.exit_code

    def check(self) -> None:
        """Raise everything that was found, if anything was."""
        found = list(self.errors)
        for (operator, reason, help), nodes in self.unsupported.items():
            told = ", ".join(nodes[:SHOWN]) + (f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else "")
            many = f"{len(nodes)} nodes" if len(nodes) > 1 else "1 node"
            found.append(
                Diagnostic(
                    "unsupported-op",
                    f"{operator}, {many}: {reason}",
                    location=Location(self.source, node=nodes[0]),
                    notes=(f"nodes: {told}",),
                    help=help,
                )
            )
        if found:
            raise DlcError(*found, exit_code=self.exit_code)
