"""What is wrong with a model, collected over all of it and reported at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dlc.base.diagnostics import NODES_SHOWN, Diagnostic, DlcError, ExitCode, Location
from dlc_frontend_onnx.unsupported import Unsupported

TENSORS: Final = ("input", "initializer")
"""What stands in the place of an operator where no node is at fault."""
MOST = 20
"""Errors of one kind that are reported one by one."""
GROUPS = 100
"""Operators and reasons that are reported one by one."""
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
    open: DlcError | None = None
    """Dimensions of the inputs without a size: what else was found assumes some size."""
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
            self.errors.append(replace(d, location=place, help=d.help or REMEDIES.get(d.code, "")))
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
        return bool(self.errors or self.unsupported or self.open)

    def check(self) -> None:
        """Raise everything that was found, if anything was: errors, open dimensions, then operators, each once."""
        found = [*_limited(_merged(self.errors)), *(self.open.diagnostics if self.open else ())]
        only_open = self.open is not None and not self.errors and not self.unsupported
        places = list(dict.fromkeys(operator for operator, _, _ in self.unsupported))
        groups = sorted(self.unsupported.items(), key=lambda group: places.index(group[0][0]))
        for (operator, reason, help), nodes in groups[:GROUPS]:
            found.append(self._group(operator, reason, help, nodes))
        if len(groups) > GROUPS:
            left = sum(len(nodes) for _, nodes in groups[GROUPS:])
            note = f"and {len(groups) - GROUPS} more operators and reasons, at {left} nodes"
            found[-1] = replace(found[-1], notes=(*found[-1].notes, note))
        if found:
            raise DlcError(*found, exit_code=ExitCode.USAGE if only_open else self.exit_code)

    def _group(self, operator: str, reason: str, help: str, nodes: Sequence[str]) -> Diagnostic:
        """One operator and reason, with all nodes."""
        kind = "tensor" if operator in TENSORS else "node"
        many = f"{len(nodes)} {kind}s" if len(nodes) > 1 else f"1 {kind}"
        left = f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else ""
        names = f"tensors: {', '.join(nodes[:NODES_SHOWN])}{left}"
        return Diagnostic(
            "unsupported-op",
            f"{operator}, {many}: {reason}",
            location=Location(self.source, node=nodes[0]),
            notes=(names,) if kind == "tensor" else (),
            help=help or UNSUPPORTED,
            nodes=tuple(nodes) if kind == "node" else (),
        )


def _merged(errors: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Errors that differ by their node only as one with all nodes, where the first one stood."""
    groups: dict[Diagnostic, list[Diagnostic]] = {}
    for d in errors:
        place = d.location and replace(d.location, node="")
        groups.setdefault(replace(d, location=place), []).append(d)
    merged: list[Diagnostic] = []
    for first, *others in groups.values():
        nodes = dict.fromkeys(d.location.node for d in (first, *others) if d.location and d.location.node)
        merged.append(replace(first, nodes=tuple(nodes)) if len(nodes) > 1 else first)
    return merged


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
