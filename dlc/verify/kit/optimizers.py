"""Checks of optimizers: step by step against another implementation, in every element type, and as programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dlc.base.types import Array, DType, Type, f16, f32, f64, i64
from dlc.graph import Graph, Input, Op, evaluate, make_graph
from dlc.plugins.plugin import pip_install
from dlc.spec import Spec
from dlc.verify.compare import Tolerance, compare
from dlc.verify.kit.check import Check, Skipped, Wrong
from dlc.verify.kit.programs import agree, program_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dlc.plugins.entry import Entry
    from dlc.training.step.optimizer import Optimizer
    from dlc.verify.kit.subject import Subject

NEAR: Final = Tolerance(1e-6, 1e-8)
"""How far a weight may be from its reference, in double precision; references may be written with seven digits."""
SHAPES: Final = ((3, 2), (4,), ())
STEPS: Final = 3


def _optimizers(subject: Subject, entry: Entry) -> Iterator[tuple[str, Optimizer]]:
    for spec in subject.specs(entry):
        yield str(spec), entry.load().from_spec(spec)


def _step(optimizer: Optimizer, of: Type) -> tuple[Graph, dict[str, Array]]:
    """One step as a graph, and the state before the first. Raises Wrong: it does not keep its types."""
    kept = optimizer.state(of)
    w, g, step = Input("w", of), Input("g", of), Input("step", Type(i64, ()))
    state: dict[str, Op] = {name: Input(f"state {name}", t) for name, (t, _) in kept.items()}
    rate = optimizer.rate(step, f64 if of.dtype == f64 else f32)
    new, after = optimizer.update(w, g, state, step, rate)
    if new.type != of:
        raise Wrong(f"{optimizer} makes {new.type} of a weight of {of}", "_step keeps the type of the weight")
    if set(after) != set(kept):
        text = f"{optimizer} keeps {sorted(kept)} and gives {sorted(after)} for it"
        raise Wrong(text, "_kept and the second result of _step have the same names")
    for name, (t, _) in kept.items():
        if after[name].type != t:
            raise Wrong(f"{optimizer}: {name} was {t} and becomes {after[name].type}", "keep the type of the state")
    outputs: dict[str, Op] = {"w": new, **{f"state {name}": op for name, op in after.items()}}
    inputs = [i for i in (w, g, step, *state.values()) if isinstance(i, Input)]
    start = {f"state {name}": np.full(t.shape, first, t.dtype.numpy) for name, (t, first) in kept.items()}
    return make_graph(inputs, outputs), start


def follows_its_reference(subject: Subject, entry: Entry) -> str:
    """That weights are those of another implementation, after every step."""
    samples = [s for s in subject.samples.steps if Spec.parse(s.spec).name == entry.name]
    if not samples:
        help = f'add StepsSample("{entry.name}", weight, gradients, weights) to steps of the Samples of dlc_samples'
        raise Wrong(f"no sample says what {entry.name} makes of a weight", help)
    count = 0
    for sample in samples:
        optimizer: Optimizer = entry.load().from_spec(Spec.parse(sample.spec))
        if len(sample.gradients) != len(sample.weights):
            text = f"the sample {sample.spec} has {len(sample.gradients)} gradients and {len(sample.weights)} weights"
            raise Wrong(text, "give the weight after each step")
        w = np.asarray(sample.weight, np.float64)
        graph, state = _step(optimizer, Type(f64, w.shape))
        for number, (g, want) in enumerate(zip(sample.gradients, sample.weights, strict=True), 1):
            found = evaluate(
                graph, {"w": w, "g": np.asarray(g, np.float64), "step": np.array(number, np.int64), **state}
            )
            w, state = found.pop("w"), found
            compared = compare("w", w, np.asarray(want, np.float64), NEAR)
            if not compared.ok:
                off = f"off by {compared.max_abs:.3g} at {list(compared.worst)}"
                text = f"{sample.spec}: after step {number} the weight is {off}"
                raise Wrong(text, "mend _step, or the sample")
            count += 1
    return f"{count} steps"


def keeps_types(subject: Subject, entry: Entry) -> str:
    """That weights of every shape and element type keep theirs, and stay finite; the first step moves them."""
    count = 0
    for text, optimizer in _optimizers(subject, entry):
        for dtype in (f16, f32, f64):
            for shape in SHAPES:
                _moves(text, optimizer, dtype, shape, subject.seed)
                count += 1
    return f"{count} weights"


def _moves(text: str, optimizer: Optimizer, dtype: DType, shape: tuple[int, ...], seed: int) -> None:
    graph, state = _step(optimizer, Type(dtype, shape))
    w, gradients = _values(dtype, shape, seed)
    before = w
    for number, g in enumerate(gradients, 1):
        found = evaluate(graph, {"w": w, "g": g, "step": np.array(number, np.int64), **state})
        w, state = found.pop("w"), found
    if not np.all(np.isfinite(w.astype(np.float64))):
        raise Wrong(
            f"{text}: a weight of {dtype}{list(shape)} is not finite after {STEPS} steps", "mind division by zero"
        )
    if optimizer.lr and np.array_equal(before, w) and dtype != f16:
        raise Wrong(
            f"{text}: a weight of {dtype}{list(shape)} is the same after {STEPS} steps", "use the gradient and the rate"
        )


def _values(dtype: DType, shape: tuple[int, ...], seed: int) -> tuple[Array, list[Array]]:
    rng = np.random.default_rng(seed)
    drawn = [np.asarray(rng.standard_normal(shape)).astype(dtype.numpy) for _ in range(STEPS + 1)]
    return drawn[0], drawn[1:]


def builds(subject: Subject, entry: Entry) -> str:
    """That a step is the same in programs for every target."""
    done: list[str] = []
    for spec in subject.all_targets:
        backend = subject.registry.backend(Spec.parse(spec))
        for text, optimizer in _optimizers(subject, entry):
            graph, state = _step(optimizer, Type(f32, (3, 2)))
            w, (g, *_) = _values(f32, (3, 2), subject.seed)
            feeds: Mapping[str, Any] = {"w": w, "g": g, "step": np.asarray(1, np.int64), **state}
            if (program := program_of(subject, graph, spec)) is not None:
                agree(f"{text}: a program for {spec}", program, feeds, evaluate(graph, feeds), backend)
                done.append(spec)
    if not done:
        raise Skipped("no installed target builds a step", pip_install("c"))
    return ", ".join(dict.fromkeys(done))


CHECKS = (
    Check(
        "optimizer-steps",
        "weights are those of another implementation, step by step",
        follows_its_reference,
        "optimizers",
    ),
    Check("optimizer-types", "weights of every shape and type keep theirs", keeps_types, "optimizers"),
    Check("optimizer-target", "programs for every target make the same step", builds, "optimizers"),
)
