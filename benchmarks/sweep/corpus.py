"""The kernels that compilers are tried with: those of ops, of scalar functions and of models, at sizes around vectors.

A case is a kernel with arguments and the values that the reference gives: numpy's evaluation of the op, or of the
kernel's nests. A dimension is a number in a kernel of its own for each size, and a symbol in one kernel for all.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.sweep.models import MODELS, kernels_of
from dlc.base.diagnostics import DlcError
from dlc.base.extents import Undecided, symbol, value
from dlc.base.types import DTYPES, DType, Type, bf16, bool_, f16, f32, f64
from dlc.graph import Input, Op, evaluate_ops
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS
from dlc.passes.lower import lower_op
from tests.ops.narrow_samples import of_type
from tests.ops.resized import ROOM, replaced, spread
from tests.ops.samples import feed, samples

Array = Any
LARGEST: Final = {"det": 9}
"""Ops whose kernels grow with every element → the largest size that is tried."""
MOST_POINTS: Final = 20_000_000
"""Points of the nests of a kernel that numpy evaluates as the reference."""
FORMS: Final = (f32, f16, bf16)
"""Types of floats in which each op is tried."""
INTEGERS: Final = ("i8", "u8", "i32", "i64")


@dataclass(frozen=True)
class Run:
    """Arguments of a kernel and the results that it should have, as far as they have a meaning."""

    title: str
    args: tuple[Array, ...]
    wanted: tuple[Array, ...]


@dataclass(frozen=True)
class Case:
    """A kernel to be compiled once, with its runs."""

    title: str
    kernel: Kernel
    runs: tuple[Run, ...]


Maker = Callable[[], Iterator[Case]]


def cases(cpu: str, sizes: Sequence[int], words: Sequence[str], seed: int = 0) -> Iterator[Case]:
    """All cases whose title has one of the words, in an order that mixes their kinds; each kernel once."""
    makers = [*_of_ops(sizes), *_of_functions(sizes), *_of_models(cpu, sizes)]
    chosen = [m for m in makers if not words or any(w in m[0] for w in words)]
    random.Random(seed).shuffle(chosen)
    known: set[Kernel] = set()
    for title, make in chosen:
        for case in _made(title, make):
            if case.kernel not in known and case.runs:
                known.add(case.kernel)
                yield case


def _made(title: str, make: Maker) -> list[Case]:
    """What could not be made is told, and left out."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return list(make())
    except (DlcError, ValueError, TypeError, IndexError) as problem:
        print(f"\n{title}: not made: {problem}", file=sys.stderr)
        return []


def _of_ops(sizes: Sequence[int]) -> Iterator[tuple[str, Maker]]:
    for op in samples():
        if not op.operands or any(not isinstance(x, Input) for x in op.operands):
            continue
        floats = any(x.dtype is f32 for x in op.operands)
        for size in sorted({d for x in op.operands for d in x.shape if d > 1}):
            title = f"op {op.text_name} {op.type.text} {size}"
            for dtype in FORMS if floats else FORMS[:1]:
                yield f"{title} {dtype}", partial(_resized, op, size, sizes, dtype)


def _resized(op: Op, size: int, sizes: Sequence[int], dtype: DType) -> Iterator[Case]:
    """An op with one of the sizes of its operands replaced, by each number and by a symbol."""
    try:
        op = op if dtype is f32 else of_type(op, dtype)
    except (ValueError, TypeError, DlcError):  # no op of this type
        return
    sizes = [n for n in sizes if n <= LARGEST.get(op.text_name, n)]
    fixed = {n: found for n in sizes if (found := _replaced(op, size, n))}
    for n, other in fixed.items():
        kernel = lower_op(other).body
        if _is_small(kernel):
            values, wanted = _evaluated(other)
            args = tuple(values[x.name] for x in other.operands if isinstance(x, Input))
            yield Case(f"{op.text_name} {dtype} {size}→{n}", kernel, (Run(str(n), args, (wanted,)),))
    opened = _replaced(op, size, symbol("n", 1, max(sizes) + ROOM)) if sizes else None
    if opened is not None and _is_small(lower_op(opened).body):
        runs = tuple(_open_run(opened, other, n) for n, other in fixed.items())
        yield Case(f"{op.text_name} {dtype} {size}→n", lower_op(opened).body, runs)


def _replaced(op: Op, size: int, by: int) -> Op | None:
    for also in (False, True):
        try:
            return replaced(op, size, by, also)
        except (Undecided, ValueError, TypeError):  # no such op
            continue
    return None


def _evaluated(op: Op) -> tuple[dict[str, Array], Array]:
    values = feed(op)
    known: dict[Op, Array] = {x: values[x.name] for x in op.operands if isinstance(x, Input)}
    return values, evaluate_ops((op,), known)[0]


def _open_run(opened: Op, other: Op, n: int) -> Run:
    values, wanted = _evaluated(other)
    generator = np.random.default_rng(3)
    pairs = zip(other.operands, opened.operands, strict=True)
    args = [spread(values[x.name], of.type, generator) for x, of in pairs if isinstance(x, Input)]
    return Run(f"n={n}", (*args, *(np.asarray(n, np.int64) for _ in opened.symbols)), (wanted,))


def _is_small(kernel: Kernel) -> bool:
    return sum(nest.points for nest in kernel.nests) <= MOST_POINTS


def _of_functions(sizes: Sequence[int]) -> Iterator[tuple[str, Maker]]:
    """Every scalar function, of every type that computes and of integers, for rows of each size."""
    for name, scalar in SCALARS.items():
        for dtype in DTYPES.values():
            wanted = {"any": True, "float": dtype.is_float, "int": dtype.is_integer, "bool": dtype is bool_}
            if scalar.rule == "bits" or not wanted.get(scalar.domain, dtype is not bool_):
                continue
            if dtype in (*FORMS, f64) or dtype.name in INTEGERS:
                yield f"function {name} {dtype}", partial(_function, name, dtype, sizes)


def _function(name: str, dtype: DType, sizes: Sequence[int]) -> Iterator[Case]:
    for n in sizes:
        scalar, i = SCALARS[name], Axis("i", n)
        types = [bool_ if name == "select" and k == 0 else dtype for k in range(scalar.arity)]
        params = tuple(Param(f"p{k}", Type(t, (n,))) for k, t in enumerate(types))
        result = Param("r", Type(bool_ if scalar.rule == "bool" else scalar.to or dtype, (n,)))
        try:
            body = apply(name, *(p[i] for p in params))
            kernel = Kernel.canonical(params, (result,), (Nest("r", (i,), (i,), body),))
            args = tuple(_small_numbers(p.type, k) for k, p in enumerate(params))
            wanted = run_kernel(kernel, args)
        except (TypeError, ValueError):  # no function of this type
            return
        yield Case(f"{name} {dtype} {n}", kernel, (Run(str(n), args, tuple(wanted)),))


def _small_numbers(of: Type, seed: int) -> Array:
    """Numbers for which every function has a value, or NaN: floats around 1, small whole numbers."""
    rng = np.random.default_rng(seed)
    if of.dtype is bool_:
        return rng.random(of.room) < 0.5
    if of.dtype.is_float:
        return rng.uniform(0.05, 3.0, of.room).astype(of.dtype.numpy)
    return rng.integers(1, 4, of.room).astype(of.dtype.numpy)


def _of_models(cpu: str, sizes: Sequence[int]) -> Iterator[tuple[str, Maker]]:
    for name in MODELS:
        yield f"model {name}", partial(_model, name, cpu, sizes)


def _model(name: str, cpu: str, sizes: Sequence[int]) -> Iterator[Case]:
    for kernel in kernels_of(name, cpu, max(sizes)):
        if not _is_small(kernel):
            continue
        held = {p.type.symbol for p in kernel.params if p.type.symbol is not None}
        runs = [_model_run(kernel, n) for n in (sizes if held else sizes[:1])]
        yield Case(f"{name} {kernel.digest[:16]}", kernel, tuple(runs))


def _model_run(kernel: Kernel, n: int) -> Run:
    rng = np.random.default_rng(n)
    sizes = {p.type.symbol: min(max(n, s.least), s.most) for p in kernel.params if (s := p.type.symbol) is not None}
    known = {s.name: size // s.unit for s, size in sizes.items()}
    args: list[Array] = []
    for p in kernel.params:
        if p.type.symbol is not None:
            args.append(np.asarray(sizes[p.type.symbol], np.int64))
        elif p.dtype.is_float:
            args.append(rng.standard_normal(p.shape).astype(p.dtype.numpy))
        elif p.dtype is bool_:
            args.append(rng.random(p.shape) < 0.5)
        else:
            args.append(rng.integers(0, 4, p.shape).astype(p.dtype.numpy))
    results = run_kernel(kernel, args)
    parts = [tuple(slice(value(d, known)) for d in r.type.shape) for r in kernel.results]
    wanted = tuple(np.asarray(r)[part] for r, part in zip(results, parts, strict=True))
    return Run(" ".join(f"{k}={v}" for k, v in known.items()) or "fixed", tuple(args), wanted)
