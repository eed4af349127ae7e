"""The derivative of every op that has loops of its own, as C: the values of the interpreter."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, target_for

from dlc.graph import Input, Op
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.gradient.adjoint import Adjoint, adjoint
from tests.backend_c.harness import STRICT, Compiled, called
from tests.lanes import on_one_machine
from tests.ops.gradient_checks import IDS, floats
from tests.ops.samples import feed, samples

Array = Any

OPS: list[Op] = [op for op in samples() if op.expansion is None and floats(op)]


CASES = on_one_machine(list(map(IDS, OPS)), ("generic", "native"), lambda text: text.partition("-")[0])


@cache
def adjoints() -> list[Adjoint]:
    return [adjoint(op.kernel, floats(op)) for op in OPS]


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return library(
        request.param, frozenset(called(request, "n")), tmp_path_factory.getbasetemp() / f"gradients-{request.param}"
    )


@cache  # a worker that takes over the tests of another comes to a machine more than once
def library(machine: str, only: frozenset[int], folder: Path) -> Compiled:
    folder.mkdir()
    target = GENERIC if machine == "generic" else target_for("native")
    # Numbers are looked at, not speed: optimising takes most of the time.
    kernels = [a.kernel for a in adjoints()]
    return Compiled(kernels, target, folder, flags=(*STRICT, "-O0"), only=only)


@pytest.mark.parametrize(("compiled", "n"), CASES, indirect=["compiled"])
def test_c_computes_what_the_interpreter_does(n: int, compiled: Compiled) -> None:
    op, found = OPS[n], adjoints()[n]
    values = feed(op)
    args: list[Array] = [values[x.name] for x in op.operands if isinstance(x, Input)]
    seed = np.random.default_rng(7).standard_normal(op.shape).astype(op.dtype.numpy)
    given = [*(args[k] for k in found.primals), *([seed] * len(found.cotangents))]
    for got, expected in zip(compiled(n, given), run_kernel(found.kernel, given), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)
