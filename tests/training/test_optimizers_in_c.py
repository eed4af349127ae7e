"""Optimizers through the pipeline: how many kernels a weight's step becomes, and what they compute as C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, target_for

from dlc import Report
from dlc.api.passes import run_passes
from dlc.base.types import Array, Type, f32, i64
from dlc.graph import Call, Graph, Input, Op, evaluate, make_graph
from dlc.graph.walk import evaluate_ops
from dlc.passes.expand import Expand
from dlc.passes.fold_constants import FoldConstants
from dlc.passes.fuse import Fuse
from dlc.passes.layout import Layout
from dlc.passes.lower import Lower
from dlc.passes.simplify import Simplify
from dlc.training.step.clip import clip_by_global_norm
from dlc.training.step.optimizers import parse_optimizer
from tests.backend_c.harness import Compiled

PASSES = (FoldConstants(), Simplify(), Expand(), FoldConstants(), Lower(), Layout(), Fuse())
SHAPES = ((33, 7), (10,))
SCHEDULE = "schedule=warmup{steps=3 then=cosine{steps=9}}"
COUNTS = {
    "sgd": 1,
    "sgd{weight-decay=0.1}": 1,
    f"sgd{{{SCHEDULE} momentum=0.9 nesterov=yes}}": 2,
    "sgd{momentum=0.9 dampening=0.5}": 2,
    "adagrad{lr-decay=0.1}": 2,
    "rmsprop": 2,
    "rmsprop{momentum=0.9 centered=yes}": 4,
    "adam": 3,
    f"adamw{{{SCHEDULE}}}": 3,
    "adam{amsgrad=yes}": 4,
    "adam{weight-decay=0.1}": 4,
    "lamb": 6,
}
"""Spec → kernels per weight: one for the weight and one per state, which are outputs of the step all.

One more is a gradient with decay that two states read; LAMB has its direction, two norms and their ratio besides.
"""


def step_of(text: str, clip: bool = False) -> Graph:
    """One step of two weights."""
    optimizer = parse_optimizer(text)
    step = Input("step", Type(i64, ()), "state")
    weights = [Input(f"w{k}", Type(f32, s), "weight") for k, s in enumerate(SHAPES)]
    given = [Input(f"g{k}", w.type) for k, w in enumerate(weights)]
    inputs = [step, *weights, *given]
    outputs: dict[str, Op] = {}
    for w, g in zip(weights, clip_by_global_norm(given, 1.0)[0] if clip else given, strict=True):
        kept = {n: Input(f"{w.name}.{n}", t, "state") for n, (t, _) in optimizer.state(w.type).items()}
        inputs += kept.values()
        new, after = optimizer.update(w, g, {**kept}, step, optimizer.rate(step))
        outputs |= {f"{w.name}'": new, **{f"{w.name}.{n}'": op for n, op in after.items()}}
    return make_graph(inputs, outputs)


def fused(graph: Graph) -> Graph:
    return run_passes(PASSES, graph, Report())


def feeds(graph: Graph, step: int) -> dict[str, Array]:
    random = np.random.default_rng(step)
    found: dict[str, Array] = {"step": np.asarray(step)}
    for i in graph.inputs[1:]:
        value = random.standard_normal(i.type.shape).astype(np.float32)
        # Squares are at least the square of the mean, as those of gradients are.
        found[i.name] = np.abs(value) + 2 if i.name.endswith(("square", "largest", "sum")) else value / 3
    return found


@pytest.mark.parametrize("text", COUNTS)
def test_a_step_is_so_many_kernels(text: str) -> None:
    made = fused(step_of(text))
    for shape in SHAPES:
        own = [op for op in made.ops if isinstance(op, Call) and op.type.shape == shape]
        inner = [
            op
            for op in made.ops
            if isinstance(op, Call) and op.type.shape == () and f"w{SHAPES.index(shape)}" in names(op)
        ]
        assert len(own) + len(inner) == COUNTS[text]


def names(op: Op) -> set[str]:
    """Weights that a value depends on."""
    found: set[str] = set()
    stack = [op]
    while stack:
        x = stack.pop()
        found |= {x.name.partition(".")[0]} if isinstance(x, Input) else set[str]()
        stack += x.operands
    return found


def test_what_depends_on_the_step_only_is_computed_once_for_all_weights() -> None:
    made = fused(step_of("adam"))
    scalars = [op for op in made.ops if isinstance(op, Call) and op.type.shape == ()]
    assert scalars
    assert all(names(op) == {"step"} for op in scalars)
    assert len({op.digest for op in scalars}) == len(scalars)


CASES = [*((text, False) for text in COUNTS), ("adam", True)]


@pytest.mark.parametrize("native", [False, True], ids=["generic", "native"])
def test_c_computes_what_the_interpreter_does(native: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    graphs = [step_of(text, clip) for text, clip in CASES]
    lowered = [fused(g) for g in graphs]
    kernels = list(dict.fromkeys(op.body for g in lowered for op in g.ops if isinstance(op, Call)))
    target = target_for("native") if native else GENERIC
    compiled = Compiled(kernels, target, tmp_path_factory.mktemp("c"))
    number = {kernel.digest: n for n, kernel in enumerate(kernels)}
    for (text, _), graph, low in zip(CASES, graphs, lowered, strict=True):
        for step in (1, 2, 40, 100_000):
            given = feeds(graph, step)
            want = evaluate(graph, given)
            values: dict[Op, Any] = {i: given[i.name] for i in low.inputs}
            for op in low.ops:
                if isinstance(op, Call):
                    (values[op],) = compiled(number[op.body.digest], [values[a] for a in op.args])
                elif op not in values:
                    (values[op],) = evaluate_ops((op,), values)
            for name, op in zip(low.names, low.outputs, strict=True):
                np.testing.assert_allclose(values[op], want[name], rtol=5e-6, atol=1e-6, err_msg=f"{text}: {name}")
