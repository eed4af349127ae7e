"""s2-decompose: products that the array does not have become sums of products that it has.

    y = conv5x5(x, w)   →   y = Σ over 4 blocks of at most 3 x 3 taps of conv(x shifted, w's block)

A weight that is trained lies in blocks from then on: inputs `W[r0:r1:rs,c0:c1:cs]`, each with its gradient, its update
and its velocity; `blocks.assembled` puts the whole ones together again. See `blocks` for what the array has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from dlc.api.backend import Reason
from dlc.api.passes import Level, Pass
from dlc.base.diagnostics import Diagnostic, DlcError
from dlc.base.report import Report
from dlc.graph import Graph
from dlc_backend_s2train.decompose.blocks import KERNEL
from dlc_backend_s2train.decompose.kernels import Blocks, cut, product, refusal
from dlc_backend_s2train.decompose.rewrite import Rewriting
from dlc_backend_s2train.instruction import COUNTED, S2Instruction, sample_parts
from dlc_backend_s2train.program import Geometry, Target


@dataclass(frozen=True)
class S2Decompose(Pass[Graph, Graph]):
    """Make products of kernels that the array has: conv 5 x 5  →  four of at most 3 x 3, added up in fp32."""

    name: ClassVar[str] = "s2-decompose"
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    idempotent: ClassVar[bool] = True

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph with legal products only.

        Raises:
            DlcError: products that no blocks make up: all of them, with the reasons.
        """
        _tell_groups(state, report)
        found, problems = cut(state)
        if problems:
            raise DlcError(*problems)
        work = Rewriting(state, found)
        graph = work.run()
        if work.problems:
            raise DlcError(*work.problems)
        _tell(state, work.decomposed, report)
        made = graph if work.decomposed else state
        if problems := _tell_samples(made, report):
            raise DlcError(*problems)
        return made


def macs(g: Geometry, several: Blocks) -> tuple[int, int]:
    """Products of a convolution in any stage, and what the array runs for its blocks, zeros among them."""
    each = g.n * g.co * g.ho * g.wo * (g.ci // g.groups)
    return each * g.kh * g.kw, each * sum(block.products for block in several)


def _tell(graph: Graph, decomposed: list[tuple[S2Instruction, Geometry, Blocks]], report: Report) -> None:
    """Counts of products, and a line for each kind of them."""
    kinds: Counter[str] = Counter()
    for op, g, several in decomposed:
        before, after = macs(g, several)
        report.count("products decomposed")
        report.count("products made", len(several))
        report.count("MACs before", before)
        report.count("MACs after", after)
        taps, full = g.kh * g.kw, KERNEL * KERNEL * len(several)
        text = f"{len(several)} products, {after / before:.2f} times the MACs"
        # What zeros around the kernel would cost, which is how the published figures count.
        text += f" ({full / taps:.2f} with single taps in kernels of 3 x 3)" if before * full != after * taps else ""
        kinds[f"{', '.join(graph.origin(op)) or op.opcode} {op.stage} {_words(g)}: {text}"] += 1
    for text, times in kinds.items():
        report.note(f"{text}, {times} times" if times > 1 else text)


def _tell_groups(graph: Graph, report: Report) -> None:
    """How much of the array grouped convolutions use."""
    columns = Target().cores * Target().columns
    for op in graph.ops:
        g = product(op)
        if isinstance(op, S2Instruction) and g is not None and g.groups > 1:
            used = min((g.ci if op.stage == "backward" else g.co) // g.groups, columns)
            name = ", ".join(graph.origin(op)) or op.opcode
            report.note(f"{name} {op.stage}: {g.groups} groups run one by one, on {used} of {columns} columns")


def _tell_samples(graph: Graph, report: Report) -> list[Diagnostic]:
    """What the program will run on some samples at a time; and what it cannot."""
    problems: list[Diagnostic] = []
    for op in graph.ops:
        if not isinstance(op, S2Instruction):
            continue
        found = sample_parts(op)
        if isinstance(found, Reason):
            problems.append(refusal(graph, op, found))
        elif len(found) > 1:
            name = ", ".join(graph.origin(op)) or op.opcode
            report.note(f"{name} {op.stage}: its samples in {len(found)} parts, of at most {COUNTED:,} in a channel")
            report.count("parts of batches", len(found))
    return problems


def _words(g: Geometry) -> str:
    """Kernel, stride and dilation."""
    text = f"{g.kh} x {g.kw}"
    text += f" stride {g.stride[0]} x {g.stride[1]}" if g.stride != (1, 1) else ""
    return text + (f" dilation {g.dilation[0]} x {g.dilation[1]}" if g.dilation != (1, 1) else "")
