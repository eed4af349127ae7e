"""Gradients of cases against differences of what they are the gradients of, in double precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from dlc.base.types import Array
from dlc.graph.walk import evaluate_ops
from dlc.passes.autodiff import Autodiff
from dlc.spec import Spec
from dlc.verify.differences import Differences, Subject
from dlc.verify.gradient_check import GradientProblem, of_loss, of_outputs
from tests.frontend_onnx.building import parse
from tests.fuzz.case import Case

STEPS: Final = (1e-5, 1e-6, 1e-4)
"""Of differences, relative to the size of what moves."""
RELATIVE, ABSOLUTE = 1e-5, 1e-7
"""How far a derivative may be off, and how far relative to the loss."""


def against_differences(case: Case) -> str:
    """What is wrong with a gradient by finite differences in double precision; "" where nothing is.

    Inputs move off the points that were drawn, because those have ties, at which differences give what is no gradient.
    """
    given = case.model.inputs
    if not all(np.isfinite(v).all() for v in given.values() if v.dtype.kind == "f"):
        return ""
    problem = ""
    for seed in (case.seed, case.seed + 1):
        rng = np.random.default_rng(seed)
        feeds = {n: _beside(v, rng) if v.dtype.kind == "f" else v for n, v in given.items()}
        problem = _differing(case, feeds)
        if not problem:
            break
    return problem


def _beside(array: Array, rng: np.random.Generator) -> Array:
    shape: tuple[int, ...] = array.shape
    return array + rng.normal(0.0, 0.1, shape)


def _differing(case: Case, feeds: Mapping[str, Array]) -> str:
    names = [n for n, v in feeds.items() if v.dtype.kind == "f" and v.size]
    if not names:
        return ""
    found = Differences.at(of_outputs(parse(case.model.onnx), names, case.seed).at(feeds))
    if not np.isfinite(found.loss):
        return ""
    for checked in found.check(2, case.seed, relative=1e-5, absolute=1e-6):
        worst = checked.worst
        if worst is not None and checked.error(worst) > checked.relative:
            return f"d{checked.name}: {worst.derivative} by dlc, {worst.difference} by differences"
    return ""


def along_a_direction(case: Case) -> str:
    """What is wrong with the derivative along one direction in which all inputs or weights move; "" if nothing is.

    Where no two steps agree, as at a rounding or between two maxima, the direction decides nothing.
    """
    subject = _problem(case)
    if subject is None:
        return ""
    at = Differences.at(subject)
    if not np.isfinite(at.loss):
        return ""
    rng = np.random.default_rng(case.seed)
    moved = {w: rng.choice((-1.0, 1.0), w.shape) * (np.abs(subject.feeds[w]) + 0.01) for w in subject.gradients}
    derivative = sum(float(np.sum(at.arrays[w] * d)) for w, d in moved.items())

    def loss(step: float) -> float:
        feeds = {**subject.feeds, **{w: subject.feeds[w] + step * d for w, d in moved.items()}}
        return float(evaluate_ops((subject.value,), feeds)[0])

    for h in STEPS:
        wide, narrow = ((loss(s) - loss(-s)) / (2 * s) for s in (h, h / 2))
        found = (4 * narrow - wide) / 3
        limit = RELATIVE * max(abs(found), abs(derivative)) + ABSOLUTE * abs(at.loss)
        if abs(found - narrow) <= limit:
            return "" if abs(found - derivative) <= limit else f"{derivative} by dlc, {found} by differences"
    return ""


def _problem(case: Case) -> Subject | None:
    """The loss or the sum of outputs of a case, at its inputs; None where nothing is differentiated."""
    graph, given = parse(case.model.onnx), case.model.inputs
    rng = np.random.default_rng(case.seed)
    if case.kind == "train":
        problem: GradientProblem = of_loss(graph, Autodiff.from_spec(Spec.parse(f"autodiff{{{case.train}}}", "fuzz")))
    else:
        names = [n for n, v in given.items() if v.dtype.kind == "f" and v.size]
        if not names:
            return None
        problem = of_outputs(graph, names, case.seed)
    feeds: dict[str, Array] = dict(given)
    for port in problem.ports:
        if port.name not in feeds:
            feeds[port.name] = rng.standard_normal(port.type.shape)
    return problem.at(feeds)
