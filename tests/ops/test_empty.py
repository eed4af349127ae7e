"""Tensors without elements: every op that takes them computes what its reference does, in C that compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, CTarget, target_for

from dlc.graph import Input, Op
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.passes.lower import composite_kernel
from tests.backend_c.harness import STRICT, Compiled
from tests.ops.empty_samples import empty_samples
from tests.ops.samples import feed, samples
from tests.tools import COMPILERS

EMPTY = empty_samples()
REFUSE = {"batch_norm_training", "expand", "unpool"}
"""Ops that take nothing empty in the place of a sample: statistics, a size and windows of nothing."""


def described(op: Op) -> str:
    return f"{op.text_name}({', '.join(str(x.type) for x in op.operands)}) {dict(op.attrs)}"


def kernel_of(op: Op) -> Kernel:
    return op.kernel if op.expansion is None else composite_kernel(op)


def arguments(op: Op) -> list[Any]:
    values = feed(op)
    return [values[x.name] for x in op.operands if isinstance(x, Input)]


def test_most_ops_have_an_empty_sample() -> None:
    shaped = {op.text_name for op in samples() if any(x.shape for x in op.operands)}
    assert shaped - {op.text_name for op in EMPTY} == REFUSE
    assert len(EMPTY) > 500


def test_kernels_are_sound_and_agree_with_the_reference() -> None:
    for op in EMPTY:
        kernel, args = kernel_of(op), arguments(op)
        assert kernel_problems(kernel) == (), described(op)
        want = op.evaluate(*args)
        for a, b, t in zip(run_kernel(kernel, args), want if len(op.types) > 1 else (want,), op.types, strict=True):
            assert np.shape(b) == t.shape, described(op)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=described(op))


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", [GENERIC, target_for("native")], ids=["generic", "native"])
def test_c_agrees_with_the_kernels(target: CTarget, cc: str, tmp_path: Path) -> None:
    kernels = [kernel_of(op) for op in EMPTY]
    program = Compiled(kernels, target, tmp_path, cc, (*STRICT, "-O1"))
    for n, op in enumerate(EMPTY):
        args = arguments(op)
        for got, want in zip(program(n, args), run_kernel(kernels[n], args), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=described(op))
