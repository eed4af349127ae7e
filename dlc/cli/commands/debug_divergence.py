"""`dlc debug first-divergence`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import ExitCode, escape, quote
from dlc.cli.commands.debug_bisect import search_steps
from dlc.cli.debugging import Asked, Subject, loaded, rows_text
from dlc.cli.progress import BuildProgress
from dlc.cli.terminal import Outcome, json_number, size
from dlc.debug.compiled import PartPrograms, function_name, passes_after
from dlc.debug.divergence import Divergence, first_divergence, numpy_run
from dlc.debug.suspect import first_tensor
from dlc.graph.graph import Graph
from dlc.graph.structure import Call, Item
from dlc.verify.steps import obstacle

if TYPE_CHECKING:
    from dlc.base.types import Array
    from dlc.debug.states import StepState
    from dlc.graph.op import Op


@dataclass(frozen=True)
class _Stage:
    """Between which two a tensor differs."""

    title: str
    divergence: Divergence | None


def diverge(subject: Subject, asked: Asked) -> Outcome:
    """What the command says."""
    found, used = search_steps(subject, asked)
    if not found.is_fault:
        text = f"no tensor differs: the program computes what {found.reference} does"
        return Outcome(text, {"found": False, "reference": found.reference})
    feeds, want, chain = used["feeds"], used["want"], used["chain"]
    wrong = found.wrong
    if wrong is None:
        stage = _Stage("the program", _of_program(subject, chain, feeds, asked))
    else:
        path, close = Path(subject.chosen.model), subject.close(asked)
        stage = _Stage(wrong.state.name, first_tensor(wrong, path, feeds, want, close))
    step = wrong.state.spec if wrong else "emit"
    if stage.divergence is None:
        text = f"{stage.title} makes the result wrong, but no single tensor of it can be compared with one before it"
        rows = [("next", subject.line("debug bisect-passes"))]
        data = {"found": True, "reference": found.reference, "step": step, "tensor": None}
        return Outcome("\n".join([text, *rows_text(rows)]), data, ExitCode.MISMATCH)
    kernel = _kernel_of(stage.divergence.op, chain)
    with loaded(subject, used["artifact"]) as (_, directory):
        function = function_name(directory, kernel) if kernel else ""
    return _outcome(stage, step, found.reference, kernel, function)


def _of_program(
    subject: Subject, chain: Sequence[StepState], feeds: Mapping[str, Array], asked: Asked
) -> Divergence | None:
    """Parts as they are compiled against what the last graph that can be evaluated says, one of kernels if possible."""
    state = next(s for s in reversed(chain) if isinstance(s.value, Graph) and not obstacle(s.graph))
    graph, pipeline = state.graph, subject.prepared.pipeline
    with subject.terminal.progress() as line:
        assert subject.prepared.source.path is not None
        session = subject.space.session(subject.cache, subject.prepared.source.path, 0, BuildProgress(line).at)
        parts = PartPrograms(graph, pipeline, passes_after(state, pipeline), session, subject.space.registry)
        return first_divergence(graph, numpy_run(graph, feeds), parts.run, feeds, subject.close(asked), tell=line.at)


def _kernel_of(op: Op, chain: Sequence[StepState]) -> str:
    """The digest of the kernel that computes a tensor, or what it became; "" where no kernel does."""
    base = op.of if isinstance(op, Item) else op
    calls = [x for x in chain[-1].graph.ops if isinstance(x, Call)]
    if isinstance(base, Call) and any(base.body.digest == x.body.digest for x in calls):
        return base.body.digest
    names = {name for state in chain for name in state.graph.origin(base)}
    return next((x.body.digest for x in calls if names & set(chain[-1].graph.origin(x))), "")


def _outcome(stage: _Stage, step: str, reference: str, kernel: str, function: str) -> Outcome:
    found = stage.divergence
    assert found is not None
    c = found.comparison
    place = f"[{','.join(map(str, c.worst))}]"
    of = f" of node {', '.join(map(quote, found.nodes))}" if found.nodes else ""
    text = f"{stage.title}: the first tensor that differs is {found.op.text_name}{of}"
    if found.accumulated:
        text = f"{stage.title}: errors within the tolerance add up to that of {found.op.text_name}{of}"
    rows = [
        ("tensor", f"{found.op.type}, number {found.position} of {found.total}"),
        ("error", f"{found.got:.6g} at {place} instead of {found.want:.6g}; largest {c.max_abs:.3g}"),
        ("wrong", f"{c.wrong:,} of {c.size:,} elements beyond {c.tolerance}"),
    ]
    if kernel:
        rows.append(("kernel", kernel[:16] + (f", C function {escape(function)}" if function else "")))
    rows += [
        ("reference", reference),
        ("search", f"{found.parts} parts; {size(found.held)} of tensors held at once, at most {size(found.bound)}"),
    ]
    data: dict[str, Any] = {
        "found": True,
        "reference": reference,
        "step": step,
        "tensor": {
            "op": found.op.text_name,
            "type": str(found.op.type),
            "nodes": list(found.nodes),
            "position": found.position,
            "total": found.total,
            "max_abs": json_number(c.max_abs),
            "worst": list(c.worst),
            "got": json_number(found.got),
            "want": json_number(found.want),
            "wrong": c.wrong,
            "size": c.size,
            "accumulated": found.accumulated,
        },
        "kernel": kernel,
        "function": function,
        "parts": found.parts,
        "held_bytes": found.held,
        "bound_bytes": found.bound,
    }
    return Outcome("\n".join([text, *rows_text(rows)]), data, ExitCode.MISMATCH)
