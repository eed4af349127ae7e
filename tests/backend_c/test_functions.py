"""C functions compute what kernels say: random kernels, every scalar function at every type, every op."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, X86_64_V3, CTarget, target_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlc.base.types import DTYPES, DType, Type, bool_, f32
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS
from dlc.kernel.text import print_kernel
from tests.backend_c.harness import STRICT, Array, Compiled, close, samples
from tests.kernel.random_kernels import random_kernel
from tests.tools import COMPILERS

HAS_VECTORS = target_for("native").vector_bytes >= 32
PARTS = 4
"""Of the table of scalar functions: with optimisation, it takes a compiler half a minute."""
TARGETS = [GENERIC, *([X86_64_V3] if HAS_VECTORS else [])]


def flags(target: CTarget, cc: str) -> tuple[str, ...]:
    """Optimised as users have it by one compiler for one processor; elsewhere the numbers are what is looked at."""
    return STRICT if (target, cc) == (TARGETS[-1], "gcc") else (*STRICT, "-O0")


def agree(kernels: Sequence[Kernel], target: CTarget, folder: Path, cc: str = "gcc") -> None:
    compiled = Compiled(kernels, target, folder, cc, flags(target, cc))
    for n, kernel in enumerate(kernels):
        args = samples(kernel)
        for got, want in zip(compiled(n, args), run_kernel(kernel, args), strict=True):
            assert close(got, want), f"{target.cpu} {cc}\n{print_kernel(kernel)}\n{got}\n{want}"


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
def test_random_kernels(target: CTarget, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    agree([random_kernel(seed + n) for n in range(30)], target, tmp_path_factory.mktemp("c"))


def table() -> list[Kernel]:
    """r = fn(args) for every function and element type that numpy defines it for."""
    return [applied(s, t) for s in SCALARS for t in DTYPES.values() if defined(s, t)]


def defined(name: str, dtype: DType) -> bool:
    scalar = SCALARS[name]
    if scalar.rule == "bits":
        return scalar.to is not None and scalar.to.bits == dtype.bits
    wanted = {"any": True, "float": dtype.is_float, "int": dtype.is_integer, "bool": dtype is bool_}
    arithmetic_on_bool = dtype is bool_ and name not in ("min", "max", "add", "mul")
    return wanted.get(scalar.domain, not arithmetic_on_bool)


def applied(name: str, dtype: DType) -> Kernel:
    scalar = SCALARS[name]
    types = [dtype] * scalar.arity
    if name == "select":
        types[0] = bool_
    result = bool_ if scalar.rule == "bool" else scalar.to or dtype
    i = Axis("i", 64)
    params = tuple(Param(f"p{k}", Type(t, (64,))) for k, t in enumerate(types))
    body = apply(name, *(p[i] for p in params))
    return Kernel.canonical(params, (Param("r", Type(result, (64,))),), (Nest("r", (i,), (i,), body),))


def extremes(kernel: Kernel) -> list[Array]:
    """Values at the edges of the types, and some ordinary ones."""
    rng = np.random.default_rng(1)
    out: list[Array] = []
    for p in kernel.params:
        if p.dtype.is_float:
            edge = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -3.5, 100.0, -100.0, 3e9, -3e9])
            values = np.concatenate([edge, rng.standard_normal(52) * 3])
        elif p.dtype is bool_:
            values = rng.random(64) < 0.5
        else:
            low, high = p.dtype.limits
            wide = 8 * p.dtype.itemsize  # the first number of bits that is too large for a shift
            edge = np.array([low, high, 0, 1, min(2, high), min(3, high), high - 1], p.dtype.numpy)
            shifts = np.array([wide, wide - 1] if high >= wide else [1, 0], p.dtype.numpy)
            values = np.concatenate([edge, shifts, rng.integers(0, 9, 55).astype(p.dtype.numpy)])
        with np.errstate(over="ignore", invalid="ignore"):  # 3e9 is infinite in f16
            out.append(rng.permutation(values).astype(p.dtype.numpy))
    return out


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_every_scalar_function(target: CTarget, cc: str, part: int, tmp_path: Path) -> None:
    kernels = table()[part::PARTS]
    compiled = Compiled(kernels, target, tmp_path, cc, flags(target, cc))
    wrong: list[str] = []
    for n, kernel in enumerate(kernels):
        args = extremes(kernel)
        name = print_kernel(kernel)
        if "pow(" in name and not kernel.params[0].dtype.is_float:
            whole = args[1].astype(np.int64) % 8 - 3 * (kernel.params[1].dtype.kind == "int")
            args[1] = whole.astype(args[1].dtype)
        with np.errstate(all="ignore"):
            (want,) = run_kernel(kernel, args)
        (got,) = compiled(n, args)
        if not close(got, want):
            bad = np.flatnonzero(~((got == want) | ((got != got) & (want != want))))[:4]
            wrong.append(f"{name}: {[a[bad] for a in args]} gives {got[bad]}, not {want[bad]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("cc", COMPILERS)
def test_no_compiler_warns_of_what_is_always_so(cc: str, tmp_path: Path) -> None:
    """Comparisons with what a truth value, or an unsigned number, cannot be."""
    x, i = Param("p0", Type(f32, (9,))), Axis("i", 9)
    kernels: list[Kernel] = []
    for dtype in (d for d in DTYPES.values() if d.is_integer or d is f32):
        for fn in ("lt", "le", "gt", "ge", "eq", "ne"):
            y = Param("p1", Type(dtype, (9,)))
            for value in (0, 1, 2, 3) if dtype.bits > 2 else (0, 1):
                number = float(value) if dtype.is_float else value
                body = apply(fn, apply(dtype.name, x[i] > 0.5), number)
                other = apply(fn, y[i], number)
                nests = (Nest("r0", (i,), (i,), body), Nest("r1", (i,), (i,), other))
                results = tuple(Param(r, Type(bool_, (9,))) for r in ("r0", "r1"))
                kernels.append(Kernel((x, y), results, (), nests))
    agree(kernels, GENERIC, tmp_path, cc)
