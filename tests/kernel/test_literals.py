"""Operations on literals become literals, in the type that they are computed in: of every function and type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC

from dlc.base.types import DType, Type, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, Number, apply, select, walk
from dlc.kernel.fusion.merge import inline_locals
from dlc.kernel.kernel import Kernel
from dlc.kernel.literals import fold, fold_literals, typed
from dlc.kernel.nest import Nest, Param
from dlc.kernel.rounding import rounded_once
from dlc.kernel.scalar import SCALARS, Scalar
from dlc.kernel.text import parse_kernel, print_kernel
from tests.backend_c.harness import Compiled
from tests.tools import COMPILERS

TYPES = (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
OF: dict[str, tuple[DType, ...]] = {
    "bool": (bool_,),
    "int": tuple(t for t in TYPES if t.is_integer),
    "float": tuple(t for t in TYPES if t.is_float),
    "number": tuple(t for t in TYPES if t is not bool_),
    "any": TYPES,
}
SKIPPED = {"pow", "mod", "floordiv", "truncdiv", "fmod"}
"""Of integers by zero, C and the reference say what they like: they get divisors from 1 up."""
NUMBERS: dict[str, tuple[Number, ...]] = {
    "bool": (True, False),
    "int": (3, 2, 7, 1),
    "float": (0.3, 2.0, -1.75, 0.0, 1e30),
}


def literals(dtype: DType, fn: str, place: int) -> tuple[Const, ...]:
    """Numbers of a type for an argument of a function."""
    kind = "bool" if dtype is bool_ else "float" if dtype.is_float else "int"
    found = [*NUMBERS[kind], *([-5] if dtype.kind == "int" else [])]
    if fn in SKIPPED and place == 1 and kind != "float":
        found = [3, 2, 7, 1]
    return tuple(map(Const, found))


def applied(scalar: Scalar, dtype: DType) -> Iterator[Expr]:
    """A function of literals, a few times."""
    for k in range(3):
        args: list[Expr] = []
        for place in range(scalar.arity):
            if scalar.rule == "select" and place == 0:
                args.append(Const(bool(k % 2)) if k < 1 else apply("lt", Const(k), Const(3.5)))
                continue
            numbers = literals(dtype, scalar.name, place)
            args.append(numbers[(k + 2 * place) % len(numbers)])
        if scalar.to is not None or scalar.rule == "bool":
            args = [Apply(dtype.name, (a,)) for a in args]  # else literals alone decide their type
        yield Apply(scalar.name, tuple(args))


def kernels() -> Iterator[tuple[str, Kernel]]:
    """Of every function and type: a value of literals alone, and one beside an element, as an operand or a divisor."""
    for scalar in SCALARS.values():
        for dtype in OF[scalar.domain]:
            if scalar.rule == "bits" and (scalar.to is None or scalar.to.bits != dtype.bits or dtype.narrow):
                continue  # the bits of a narrow literal are those of what it is computed in
            if (scalar.to or dtype) not in TYPES:
                continue
            out = scalar.to or (bool_ if scalar.rule == "bool" else dtype)
            i = Axis("i", 2)
            params = [Param("x", Type(out, (2,)))]
            results, nests = list[Param](), list[Nest]()
            for k, e in enumerate(applied(scalar, dtype)):
                results.append(Param(f"y{k}", Type(out, (2,))))
                beside = [Apply("add", (Load("x", (i,)), e)), Apply("max", (e, Load("x", (i,))))]
                body = e if out is bool_ or k > 1 else beside[k]
                nests.append(Nest(f"y{k}", (i,), (i,), body))
            yield f"{scalar.name} {dtype}", rounded_once(Kernel.canonical(tuple(params), tuple(results), tuple(nests)))


ALL = dict(kernels())
PARTS = 5
"""Of these, libraries; all but the first are long."""


def args_of(kernel: Kernel) -> list[np.ndarray]:
    return [np.ones(p.shape, p.dtype.numpy) for p in kernel.params]


def alike(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal, but for the last bits of functions of floats, which libraries round as they like."""
    if got.dtype.kind in "biu":
        return np.array_equal(got, want)
    wide, expected = got.astype(np.float64), want.astype(np.float64)
    tolerance = {2: 1e-2, 4: 1e-6, 8: 1e-14}[got.dtype.itemsize]
    return np.allclose(wide, expected, rtol=tolerance, atol=0, equal_nan=True)


def left(kernel: Kernel) -> list[Expr]:
    """Operations on literals that a kernel has, but for conversions of one."""
    parts = (x for n in kernel.nests for e in n.exprs() for x in walk(e) if isinstance(x, Apply))
    return [x for x in parts if all(isinstance(a, Const) for a in x.args) and SCALARS[x.fn].rule != "cast"]


def test_folded_kernels_compute_the_same_and_have_no_operations_on_literals() -> None:
    assert len(ALL) > 400
    for name, kernel in ALL.items():
        folded = fold_literals(kernel)
        assert not left(folded), name
        assert parse_kernel(print_kernel(folded)) == folded, f"{name}: its text reads as another kernel"
        for got, want in zip(run_kernel(folded, args_of(kernel)), run_kernel(kernel, args_of(kernel)), strict=True):
            assert alike(got, want), f"{name}: {got} {want}\n{kernel.text()}\n{folded.text()}"


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_c_computes_the_same(part: int, tmp_path: Path) -> None:
    """In one library: what is folded, and what C computes."""
    some = dict(list(ALL.items())[part::PARTS])
    compiled = Compiled(list(some.values()), GENERIC, tmp_path, COMPILERS[0], ("-O0", "-w"))
    for n, (name, kernel) in enumerate(some.items()):
        for got, want in zip(compiled(n, args_of(kernel)), run_kernel(kernel, args_of(kernel)), strict=True):
            assert alike(got, want), f"{name}: {got} {want}\n{kernel.text()}"


X32, X64 = {"p0": f32}, {"p0": f64}
P = Load("p0", (Axis("i", 4),))
ROOT = Apply("sqrt", (Const(2),))


@pytest.mark.parametrize(
    ("e", "tensors", "like", "want"),
    [
        (P / ROOT, X32, f32, P / 1.4142135381698608),
        (P / ROOT, X64, f64, P / 1.4142135623730951),
        (ROOT < P, X32, bool_, apply("lt", Const(1.4142135381698608), P)),
        (ROOT, {}, f64, Const(1.4142135623730951)),
        (Apply("add", (ROOT, Const(1))), {}, f64, Const(2.414213562373095)),
        (Apply("f64", (Apply("neg", (Const(0.1),)),)), {}, f64, Apply("f64", (Const(-0.10000000149011612),))),
        (Apply("sqrt", (Apply("f64", (Const(2.0),)),)), {}, f64, Apply("f64", (Const(1.4142135623730951),))),
        (Apply("lt", (Const(1), Const(2))), {}, bool_, Const(True)),
        (select(Apply("lt", (Const(1), Const(2))), P, 0.0), X32, f32, P),
        (Apply("div", (Const(1.0), Const(0.0))), {}, f32, Const(float("inf"))),
        (Apply("floordiv", (Const(-7), Const(2))), {}, i32, Const(-4)),
        (Apply("shl", (Const(1), Const(7))), {}, i8, Const(-128)),
        (Apply("mul", (Const(100), Const(3))), {}, u8, Const(44)),
        (P + 1.0, X32, f32, P + 1.0),
    ],
    ids=str,
)
def test_literals_fold_in_the_type_around_them(e: Expr, tensors: dict[str, DType], like: DType, want: Expr) -> None:
    assert fold(e, tensors, like) == want


def test_a_chosen_literal_that_moves_elsewhere_keeps_its_type() -> None:
    """As a value of f64 it is 0.1, not the f32 next to it: each literal gets the type."""
    chosen = select(P > 0.0, Const(0.1), ROOT)
    assert typed(fold(chosen, X64, f64), f64) == select(
        P > 0.0, Apply("f64", (Const(0.1),)), Apply("f64", (Const(1.4142135623730951),))
    )


@pytest.mark.parametrize("body", ["sqrt(2.0)", "select(i < 2, 0.1, 0.2)", "1.0/3.0", "exp(1.0)*0.1"])
def test_locals_of_literals_are_inlined_without_another_rounding(body: str) -> None:
    kernel = parse_kernel(
        f"kernel(p0: f64[4]) -> (r0: f64[4]) local (t0: f64[4]) {{\n i<4: t0[i] = {body}\n i<4: r0[i] = p0[i]*t0[i]\n}}"
    )
    merged = inline_locals(kernel)
    assert not merged.locals
    args = [np.arange(1.0, 5.0)]
    np.testing.assert_array_equal(run_kernel(merged, args)[0], run_kernel(kernel, args)[0])


def test_a_kernel_without_such_operations_is_left_as_it_is() -> None:
    kernel = parse_kernel("kernel(p0: f32[4]) -> (r0: f32[4]) { i<4: r0[i] = p0[i]*2.0+f32(3) }")
    assert fold_literals(kernel) is kernel
    assert replace(kernel) == kernel
