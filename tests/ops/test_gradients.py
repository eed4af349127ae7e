"""Every op: its derivative equals finite differences, in both forms of its loops, and what it overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dlc.graph import Input, Op, toposort
from dlc.graph.gradient import gradients
from dlc.graph.walk import evaluate_ops
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, walk
from dlc.kernel.gradient import adjoint as module
from dlc.kernel.gradient.adjoint import Adjoint, adjoint
from dlc.kernel.gradient.gather import NoInverse
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS
from tests.ops.gradient_checks import IDS, SAMPLES, arguments, close, differences, floats, seed_of

Array = Any
DEFINED = [op for op in SAMPLES if op.expansion is None]


def applied(found: Adjoint, args: Sequence[Array], seed: Array) -> tuple[Array, ...]:
    given = [seed] * len(found.cotangents)
    return run_kernel(found.kernel, [*(args[k] for k in found.primals), *given])


@pytest.mark.parametrize("op", DEFINED, ids=IDS)
def test_the_derivative_of_a_definition_equals_differences(op: Op) -> None:
    args, seed, wrt = arguments(op), seed_of(op), floats(op)
    found = adjoint(op.kernel, wrt)
    for k, got in zip(wrt, applied(found, args, seed), strict=True):
        assert got.dtype == op.operands[k].dtype.numpy
        close(got, differences(lambda xs: run_kernel(op.kernel, xs)[0], args, seed, k), f"operand {k}")


@pytest.mark.parametrize("op", [op for op in DEFINED if floats(op)], ids=IDS)
def test_gathering_equals_scattering(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    args, seed, wrt = arguments(op), seed_of(op), floats(op)
    gathered = adjoint(op.kernel, wrt)

    def refuse(nest: Nest, shape: tuple[int, ...]) -> NoInverse:
        return NoInverse("asked for")

    monkeypatch.setattr(module, "gather", refuse)
    scattered = adjoint(op.kernel, wrt)
    assert len(scattered.scattered) >= len(gathered.scattered)
    for got, expected in zip(applied(gathered, args, seed), applied(scattered, args, seed), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def reads_data(kernel: Kernel, wrt: Sequence[int]) -> bool:
    """Whether subscripts of what is differentiated, or of the results, are data."""
    names = {kernel.params[k].name for k in wrt} | {r.name for r in kernel.results}
    for nest in kernel.nests:
        indices = [nest.index, *(getattr(x, "index", ()) for x in walk(nest.body) if getattr(x, "param", "") in names)]
        if any(hasattr(x, "param") for index in indices for i in index for x in walk(i)):
            return True
    return False


@pytest.mark.parametrize("op", [op for op in DEFINED if floats(op)], ids=IDS)
def test_only_subscripts_from_data_or_that_are_clipped_stay_scatters(op: Op) -> None:
    found = adjoint(op.kernel, floats(op))
    clipped = any(isinstance(x, Apply) and x.fn in ("min", "max") for n in op.kernel.nests for x in index_parts(n))
    assert reads_data(op.kernel, floats(op)) or clipped or not found.scattered


def index_parts(nest: Nest) -> list[Any]:
    return [y for x in walk(nest.body) for i in getattr(x, "index", ()) for y in walk(i)]


def test_ops_without_a_derivative_say_why() -> None:
    """No operand of floating point, no such result, or functions that are constant between their steps."""
    without: set[str] = set()
    for op in DEFINED:
        if floats(op) and all(n.points for n in op.kernel.nests) and not adjoint(op.kernel, floats(op)).kernel.nests:
            functions = {x.fn for n in op.kernel.nests for x in walk(n.body) if isinstance(x, Apply)}
            assert any(SCALARS[fn].steps for fn in functions), op
            without.add(op.text_name)
    assert without == {"sign", "floor", "ceil", "round"}


@pytest.mark.parametrize("op", [op for op in SAMPLES if floats(op)], ids=IDS)
def test_the_gradient_of_an_op_equals_differences(op: Op) -> None:
    """By whatever way it is found: the op's own `vjp`, the parts of its composition, or its kernel."""
    args, seed, wrt = arguments(op), seed_of(op), floats(op)
    given = Input("seed", op.type)
    sums = gradients((op,), (given,), [op.operands[k] for k in wrt])

    def value(xs: list[Array]) -> Array:
        return evaluate_ops((op,), dict(zip(op.operands, xs, strict=True)))[0]

    env = {**dict(zip(op.operands, args, strict=True)), given: seed}
    for k, got in zip(wrt, evaluate_ops(sums, env), strict=True):
        close(got, differences(value, args, seed, k), f"operand {k}")


OVERRIDDEN = [op for op in SAMPLES if floats(op) and type(op).vjp is not Op.vjp]


@pytest.mark.parametrize("op", OVERRIDDEN, ids=IDS)
def test_an_override_equals_the_derivation(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    args, seed, wrt = arguments(op), seed_of(op), floats(op)
    given = Input("seed", op.type)
    env = {**dict(zip(op.operands, args, strict=True)), given: seed}
    asked = [op.operands[k] for k in wrt]
    own = evaluate_ops(gradients((op,), (given,), asked), env)
    for cls in {type(x) for x in toposort((op,))} | {type(x) for x in OVERRIDDEN}:
        monkeypatch.setattr(cls, "vjp", Op.vjp)
    derived = evaluate_ops(gradients((op,), (given,), asked), env)
    for a, b in zip(own, derived, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
