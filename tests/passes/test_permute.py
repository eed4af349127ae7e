"""Kernels on tensors whose dimensions are stored in another order, subscripts that are data among them."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.graph import Input, Op
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import loads
from dlc.passes.layout import permute
from dlc.passes.lower import composite_kernel
from tests.ops.samples import feed, samples

SAMPLES = list(samples())


@pytest.mark.parametrize("number", range(len(SAMPLES)), ids=[s.text_name for s in SAMPLES])
def test_a_permuted_kernel_gives_the_permuted_results(number: int) -> None:
    op: Op = SAMPLES[number]
    kernel = op.kernel if op.expansion is None else composite_kernel(op)
    orders = {p.name: (*range(1, p.type.rank), *range(min(1, p.type.rank))) for p in kernel.tensors.values()}
    values = feed(op)
    args = [values[x.name] for x in op.operands if isinstance(x, Input)]
    changed = permute(kernel, orders)
    assert kernel_problems(changed) == ()
    moved = [np.transpose(a, orders[p.name]) for a, p in zip(args, kernel.params, strict=True)]
    for want, got, p in zip(run_kernel(kernel, args), run_kernel(changed, moved), kernel.results, strict=True):
        np.testing.assert_allclose(got, np.transpose(want, orders[p.name]), rtol=1e-5, atol=1e-6)


def test_samples_load_in_every_place_of_a_nest() -> None:
    nests = [n for s in SAMPLES if s.expansion is None for n in s.kernel.nests]
    assert any(any(loads(i)) for n in nests for i in n.index), "no subscript of a store is data"
    assert any(any(loads(i)) for n in nests for x in loads(n.body) for i in x.index), "no subscript of a load is data"
