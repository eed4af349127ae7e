"""What is wrong with a model, collected over all of it and reported at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location
from dlc_frontend_onnx.unsupported import Unsupported

TENSORS: Final = ("input", "initializer")
"""What stands in the place of an operator where no node is at fault."""
SHOWN = 5
"""Nodes that one diagnostic names."""
MOST = 20
"""Errors of one kind that are reported one by one."""
REMEDIES: Final = {
    "duplicate": "every value has one definition: rename one of the two",
    "cycle": "a graph has no cycles: unroll the loop, or use the value of the step before as an input",
    "undefined": "the model is incomplete: export it again, or check it with onnx.checker.check_model(path)",
    "no-outputs": "declare the values to compute as the graph's outputs",
    "bad-tensor": "the file is damaged, or was written wrongly: export the model again",
    "bad-shape": "give the input another shape with --input, or export the model again",
    "shape": "the shapes contradict each other: onnx.shape_inference.infer_shapes(model, strict_mode=True) tells more",
}
"""What helps where the one who found an error did not say it."""
UNSUPPORTED: Final = "write this part of the model with other operators; dlc list onnx shows those that are supported"


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
        help = help or REMEDIES.get(code, "")
        self.errors.append(Diagnostic(code, message, location=place, help=help, notes=notes))

    def caught(self, problem: DlcError, node: str) -> None:
        """An error raised while a node was imported."""
        for d in problem.diagnostics:
            place = d.location or Location(self.source, node=node)
            help = d.help or REMEDIES.get(d.code, "")
            self.errors.append(Diagnostic(d.code, d.message, d.severity, place, d.notes, help, d.source_line))
        if problem.exit_code != ExitCode.MODEL:
            self.exit_code = problem.exit_code

    def add(self, other: Refusals) -> None:
        """All that others found, too."""
        for key, nodes in other.unsupported.items():
            self.unsupported.setdefault(key, []).extend(nodes)
        self.errors += other.errors
        if other.exit_code != ExitCode.MODEL:
            self.exit_code = other.exit_code

    @property
    def found(self) -> bool:
        """Whether anything was found so far."""
        return bool(self.errors or self.unsupported)

    def check(self) -> None:
        """Raise everything that was found, if anything was."""
        found = _limited(self.errors)
        for (operator, reason, help), nodes in self.unsupported.items():
            shown_nodes = ", ".join(nodes[:SHOWN]) + (f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else "")
            kind = "tensor" if operator in TENSORS else "node"
            many = f"{len(nodes)} {kind}s" if len(nodes) > 1 else f"1 {kind}"
            found.append(
                Diagnostic(
                    "unsupported-op",
                    f"{operator}, {many}: {reason}",
                    location=Location(self.source, node=nodes[0]),
                    notes=(f"{kind}s: {shown_nodes}",),
                    help=help or UNSUPPORTED,
                )
            )
        if found:
            raise DlcError(*found, exit_code=self.exit_code)


def _limited(errors: list[Diagnostic]) -> list[Diagnostic]:
    """The errors, of each kind so many that they can be read, and how many are left out."""
    counts = Counter(d.code for d in errors)
    seen: Counter[str] = Counter()
    shown: list[Diagnostic] = []
    for d in errors:
        seen[d.code] += 1
        if seen[d.code] < MOST or counts[d.code] == MOST:
            shown.append(d)
        elif seen[d.code] == MOST:
            shown.append(replace(d, notes=(*d.notes, f"and {counts[d.code] - MOST} more errors of this kind")))
    return shown
