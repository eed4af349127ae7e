"""Every op: over random shapes, broadcasting and attributes its gradients are the differences, to a millionth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.graph import Constant, Input, Op, Splat, Tensor, toposort
from dlc.graph.gradient import gradients
from dlc.ops.elementwise import Mul
from dlc.ops.reduce import ReduceSum
from dlc.plugins.builtin import dlc_ops
from dlc.verify.differences import RELATIVE, Differences, Subject
from tests.ops.gradient_checks import SAMPLES, floats
from tests.ops.random_ops import BY_NAME, random_op
from tests.ops.samples import feed


def subject(op: Op, seed: int) -> Subject:
    """The sum of the op's result, each element times a random number."""
    factors = Constant(Tensor.of(np.asarray(np.random.default_rng(seed).standard_normal(op.shape))))
    # Opened where it reads integers: what depends on them alone, as masks drawn from a seed, is then computed once.
    integers = any(not x.dtype.is_float for x in op.operands)
    result = op.expansion if integers and op.expansion is not None else op
    value = ReduceSum(Mul(result, factors), axes=tuple(range(op.type.rank)), keep=False)
    wrt = list(dict.fromkeys(op.operands[k] for k in floats(op)))
    found = gradients((value,), (Splat(1.0, value.type),), wrt)
    values = feed(op, seed)
    names: dict[Op, str] = {x: f"operand {op.operands.index(x)}" for x in wrt}
    known: dict[Op, Any] = {x: values[x.name] for x in toposort((op,)) if isinstance(x, Input)}
    return Subject(value, dict(zip(wrt, found, strict=True)), names, known)


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=1)
@given(seed=st.integers(0, 1 << 30))
def test_gradients_are_the_differences(name: str, seed: int) -> None:
    op = random_op(name, seed)
    for checked in Differences.at(subject(op, seed)).check(2, seed):
        worst = checked.worst
        assert worst is not None, (op.attrs, [x.type for x in op.operands], checked.directions)
        error = checked.error(worst)
        assert error <= RELATIVE, (op.attrs, [str(x.type) for x in op.operands], checked.name, worst, error)


def test_every_op_with_a_gradient_is_varied() -> None:
    """In shapes or in attributes: what is generated is more than the samples."""
    assert set(BY_NAME) == {op.text_name for op in SAMPLES if floats(op)}
    assert set(BY_NAME) <= {cls.text_name for cls in dlc_ops()}
    # Places are drawn for the sizes of the samples, and what it does with duplicates is a word.
    for name in set(BY_NAME) - {"scatter_nd"}:
        samples = BY_NAME[name]
        own = {shown(op) for op in samples}
        assert any(shown(random_op(name, k)) not in own for k in range(30)), name


def shown(op: Op) -> tuple[str, tuple[str, ...]]:
    return str(op.attrs), tuple(str(x.type) for x in op.operands)
