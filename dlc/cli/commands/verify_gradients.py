"""`dlc verify --gradients`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dlc.base.diagnostics import DlcError, ExitCode, error, escape
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Outcome, Terminal, columns, json_number

if TYPE_CHECKING:
    from dlc.base.types import Array
    from dlc.graph import Graph
    from dlc.plugins.registry import Registry
    from dlc.verify.differences import Checked, Direction, Subject
    from dlc.verify.gradient_check import GradientProblem

_REFERENCES = ("auto", "numpy", "torch")


@dataclass(frozen=True)
class Asked:
    """What the flags of `dlc verify` say beside those that choose a model."""

    files: Sequence[str]
    reference: str
    relative: float | None
    absolute: float | None
    samples: int | None
    seed: int


def verify_gradients(terminal: Terminal, chosen: BuildOptions, cache: CacheOptions, asked: Asked) -> Outcome:
    """Gradients that dlc derives against differences, and against PyTorch's where it is there."""
    from dlc.cli.programs import tell_random
    from dlc.cli.workspace import Workspace
    from dlc.graph.closed import check_closed
    from dlc.runtime.feeds import random_feeds, read_feeds
    from dlc.verify import differences as g

    _refuse(chosen, asked)
    workspace = Workspace.open(terminal, cache)
    model = workspace.graph(chosen, forward=True)
    check_closed(model, "the check of gradients")
    question = _question(model, chosen, asked.seed, workspace.registry)
    given = read_feeds(asked.files, question.ports)
    tell_random(terminal, tuple(p.name for p in question.ports if p.name not in given), asked.seed)
    subject = question.at({**random_feeds(question.ports, asked.seed), **given})
    found = g.Differences.at(subject)
    if not isfinite(found.loss):
        raise error(
            "not-finite",
            f"the value is {found.loss} at these inputs: it has no gradients to compare",
            help="give inputs that the model is made for",
            exit_code=ExitCode.MISMATCH,
        )
    limits = (
        g.RELATIVE if asked.relative is None else asked.relative,
        g.ABSOLUTE if asked.absolute is None else asked.absolute,
    )
    with terminal.bar(len(subject.gradients)) as bar:
        done = iter(range(len(subject.gradients)))
        checked = found.check(asked.samples or 2, asked.seed, *limits, on_weight=lambda name: bar.at(next(done), name))
    other, why = _torch(subject, asked.reference)
    return _judged(question, found.loss, checked, _apart(found.arrays, other, subject), why)


def _question(model: Graph, chosen: BuildOptions, seed: int, registry: Registry) -> GradientProblem:
    from dlc.passes.autodiff import Autodiff
    from dlc.spec import OptionError, Spec
    from dlc.verify.gradient_check import of_loss, of_outputs

    if chosen.train is not None:
        spec = Spec.parse_options(Autodiff.name, chosen.train, "--train")
        try:
            return of_loss(model, cast("Autodiff", registry.stage(spec)))
        except OptionError as problem:
            raise spec.pointed(problem) from None
    try:
        return of_outputs(model, chosen.by, seed)
    except DlcError as problem:
        if problem.diagnostics[0].code != "no-weights":
            raise
        raise error(
            "no-weights",
            "the model has no weights that its outputs depend on",
            help="--grad INPUT differentiates with respect to an input",
            exit_code=ExitCode.USAGE,
        ) from None


def _refuse(chosen: BuildOptions, asked: Asked) -> None:
    """Raises DlcError (USAGE): flags that say nothing about gradients, or contradict each other."""
    if Path(chosen.model).is_dir():
        raise _usage(f"{chosen.model} holds a program, but gradients are derived from a model", "give the model's file")
    if asked.reference not in _REFERENCES:
        raise _usage(
            f"--reference {asked.reference}: not a reference for gradients", "auto, torch, or numpy for differences"
        )
    if asked.reference == "torch" and not find_spec("torch"):
        raise error(
            "missing-package",
            "--reference torch: PyTorch is not installed",
            help="pip install torch, or use --reference numpy",
            exit_code=ExitCode.USAGE,
        )
    if chosen.train is not None and chosen.grad:
        raise _usage(
            "--grad and --train: the loss is differentiated with respect to the weights", "leave one of the two out"
        )
    for flag in ("--target", "--pipeline", "--without", "--specialise"):
        if flag in chosen.given:
            raise _usage(f"{flag}: --gradients builds no program", "leave it out")


def _usage(message: str, help: str) -> DlcError:
    return error("no-effect", message, help=help, exit_code=ExitCode.USAGE)


def _torch(subject: Subject, reference: str) -> tuple[list[Array] | None, str]:
    """Gradients by PyTorch; else why there are none."""
    if reference == "numpy":
        return None, ""
    if not find_spec("torch"):
        return None, "PyTorch is not installed"
    from dlc.verify.autograd import torch_gradients

    try:
        return torch_gradients(subject.value, list(subject.gradients), subject.feeds), ""
    except DlcError as problem:
        if reference == "torch":
            raise
        return None, problem.diagnostics[0].message


def _apart(own: Mapping[Any, Array], other: list[Array] | None, subject: Subject) -> dict[str, float]:
    """How far PyTorch's gradients are from dlc's, by weight: relative to the weight's largest.

    A millionth of the largest of all is added to that: gradients that are zero but for rounding are no measure.
    """
    import numpy as np

    if other is None:
        return {}
    tops = [float(np.max(np.abs(theirs), initial=0.0)) for theirs in other]
    least = 1e-6 * max(tops, default=0.0) or 1.0
    found: dict[str, float] = {}
    for (w, ours), theirs, top in zip(own.items(), other, tops, strict=True):
        found[subject.names[w]] = float(np.max(np.abs(ours - theirs), initial=0.0)) / (top + least)
    return found


def _judged(
    question: GradientProblem, value: float, checked: Sequence[Checked], torch: dict[str, float], why: str
) -> Outcome:
    rows = [("weight", "shape", "worst error", "at", "settled", *(["PyTorch"] if torch else []), "")]
    ok = {c.name: c.ok and not torch.get(c.name, 0.0) > c.relative for c in checked}
    for c in checked:
        error = "-" if c.worst is None else f"{c.error(c.worst):.2g}"
        settled = f"{len(c.settled)}/{len(c.directions)}"
        own = [f"{torch[c.name]:.2g}"] if torch else []
        at = "-" if c.worst is None else _at(c.worst)
        rows.append((escape(c.name), str(list(c.shape)), error, at, settled, *own, _verdict(c, ok[c.name], torch)))
    first, *_ = checked
    text = f"{question.what}: {value:.6g}\n{columns(rows)}\n"
    text += f"limit: {first.relative:.3g} of the larger of derivative and difference, plus {first.absolute:.3g} of "
    text += f"{first.scale:.3g}; everything in f64"
    text += f"\nnot compared with PyTorch: {why}" if why else ""
    data = {
        "value": json_number(value),
        "of": question.what,
        "rtol": first.relative,
        "atol": first.absolute,
        "scale": json_number(first.scale),
        "torch": why or bool(torch),
        "weights": [_json(c, ok[c.name], torch) for c in checked],
    }
    return Outcome(text, data, ExitCode.OK if all(ok.values()) else ExitCode.MISMATCH)


def _at(d: Direction) -> str:
    return "everywhere" if d.where is None else str(list(d.where))


def _verdict(c: Checked, ok: bool, torch: Mapping[str, float]) -> str:
    if ok:
        return "ok"
    if c.worst is None:
        return "UNDECIDED: no difference settles"
    if c.error(c.worst) <= c.relative:
        return f"MISMATCH: PyTorch's gradient is {torch[c.name]:.2g} apart"
    return f"MISMATCH: derivative {c.worst.derivative:.7g}, difference {c.worst.difference:.7g}"


def _json(c: Checked, ok: bool, torch: Mapping[str, float]) -> dict[str, Any]:
    worst = c.worst
    return {
        "name": c.name,
        "ok": ok,
        "shape": list(c.shape),
        "error": None if worst is None else json_number(c.error(worst)),
        "at": None if worst is None or worst.where is None else list(worst.where),
        "derivative": None if worst is None else json_number(worst.derivative),
        "difference": None if worst is None else json_number(worst.difference),
        "directions": len(c.directions),
        "settled": len(c.settled),
        "torch": json_number(torch[c.name]) if torch else None,
    }
