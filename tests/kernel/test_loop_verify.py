"""Loops that are no program are found before they become C; those of schedules are programs."""

from __future__ import annotations

import random

import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.target import GENERIC

from dlc import DlcError
from dlc.base.types import Type, bool_, f32, f64, i32, i64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply
from dlc.kernel.loops.names import fresh, names_of
from dlc.kernel.loops.program import (
    Block,
    Buffer,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Local,
    LoopProgram,
    Set,
    Shuffle,
    Stmt,
    Store,
    loop,
)
from dlc.kernel.loops.verify import verify_loops
from dlc.kernel.nest import Param
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel
from tests.kernel.random_kernels import random_kernel
from tests.machines import MACHINES, random_machine

AT, J = Axis("i", 8), Axis("j", 8)
A, B, V = Local("a", f32), Local("b", f64), Local("v", f32, 4)
X, N, OUT = Load("x", (AT,)), Load("n", (AT,)), "y"


def store(value: Expr, at: Expr = AT, out: str = OUT, lanes: int = 1) -> Store:
    return Store(out, at, value, lanes)


def program(*body: Stmt, buffers: tuple[Buffer, ...] = ()) -> LoopProgram:
    """Statements that read x: f32[8] and n: i32[8], and write y: f32[8] and m: bool[8]."""
    params = (Param("x", Type(f32, (8,))), Param("n", Type(i32, (8,))))
    return LoopProgram(params, (Param(OUT, Type(f32, (8,))), Param("m", Type(bool_, (8,)))), buffers, body)


RIGHT: dict[str, LoopProgram] = {
    "a name again after its block": program(Block((Let(A, Const(1.0)),)), Block((Let(A, Const(2.0)),))),
    "an axis again after its loop": program(loop(AT, store(X)), loop(AT, store(X))),
    "a literal for a vector": program(loop(AT, Let(V, Const(0.0)), store(V, Const(0), lanes=4))),
    "a choice between literals": program(loop(AT, store(apply("select", X > 0.0, 1.0, 2)))),
    "an operation on literals": program(loop(AT, store(Apply("sqrt", (Const(2),)) * X))),
    "a subscript of data": program(loop(AT, store(Load("x", (N,))))),
    "data of data": program(loop(AT, store(X, at=apply("i64", N)))),
    "a truth value": program(loop(AT, store(X > 1.0, out="m"))),
}
WRONG: dict[str, tuple[LoopProgram, str]] = {
    "declared twice": (program(loop(AT, Let(A, X), Let(A, X), store(A))), "a is declared again"),
    "declared inside again": (program(loop(AT, Let(A, X), Block((Let(A, X), store(A))))), "a is declared again"),
    "an axis inside itself": (program(loop(AT, loop(AT, store(X)))), "i is declared again"),
    "a variable as an axis": (program(loop(AT, Let(Local("i", f32), X))), "i is declared again"),
    "the name of a tensor": (program(loop(AT, Let(Local("x", f32), X), store(X))), "the name of a tensor"),
    "no declaration": (program(loop(AT, store(A))), "a is used, and is not declared"),
    "declared later": (program(loop(AT, store(A), Let(A, X))), "a is used, and is not declared"),
    "declared in another block": (program(loop(AT, Block((Let(A, X),)), store(A))), "a is used, and is not declared"),
    "declared in a branch": (program(loop(AT, If(X > 0.0, (Let(A, X),)), store(A))), "a is used, and is not declared"),
    "set before declared": (program(loop(AT, Set(A, X))), "a is used, and is not declared"),
    "an axis outside of its loop": (program(loop(J, store(X, at=J))), "i is used, and is not declared"),
    "another type": (program(loop(AT, Let(A, X), store(Apply("f32", (B,))))), "b is used, and is not declared"),
    "used as another type": (program(loop(AT, Let(A, X), store(Apply("f32", (Local("a", f64),))))), "declared as f32"),
    "used as a vector": (program(loop(AT, Let(A, X), store(Local("a", f32, 4), lanes=4))), "declared as f32"),
    "a value of another type": (program(loop(AT, store(N))), "a value of i32 goes to an element of y"),
    "operands of two types": (program(loop(AT, store(Apply("add", (X, N))))), "different types"),
    "a function of another domain": (program(loop(AT, Let(Local("k", i32), Apply("exp", (N,))))), "floating point"),
    "a literal of another kind": (
        program(loop(AT, Let(Local("k", i32), N + Const(0.5)))),
        "0.5 is used as a value of i32",
    ),
    "a truth value as a number": (program(loop(AT, store(X + Const(True)))), "True is used as a value of f32"),
    "a number as a truth value": (program(loop(AT, store(Const(1), out="m"))), "used as a truth value"),
    "a literal of no domain": (program(loop(AT, Let(Local("k", i32), Apply("sqrt", (Const(2),))))), "a value of i32"),
    "a condition of floats": (program(loop(AT, If(X, (store(X),)))), "a value of f32 goes to a condition"),
    "a choice by a number": (program(loop(AT, store(Apply("select", (X, X, X))))), "select by a condition of type f32"),
    "a subscript of floats": (program(loop(AT, store(Load("x", (X,))))), "a subscript is of type f32"),
    "two subscripts": (program(loop(AT, store(Load("x", (AT, AT))))), "2 subscripts"),
    "a bound of floats": (program(For(AT, Const(0), Load("x", (Const(0),)), (store(X),))), "a bound of a loop"),
    "a parameter written": (program(loop(AT, store(X, out="x"))), "x is written, and is no result"),
    "no tensor": (program(loop(AT, store(Load("z", (AT,))))), "z is no tensor"),
    "another arity": (program(loop(AT, store(Apply("exp", (X, X))))), "exp of 2 arguments"),
    "no function": (program(loop(AT, store(Apply("foo", (X,))))), "foo of 1 arguments"),
    "lanes that differ": (program(loop(AT, store(Apply("add", (Lanes(X, 4), Lanes(X, 8))), lanes=8))), "4 and 8 lanes"),
    "a vector as a scalar": (program(loop(AT, store(Lanes(X, 4)))), "a value of 4 lanes"),
    "a shuffle of no lane": (
        program(loop(AT, Let(V, Const(0.0)), store(Shuffle(V, V, (0, 1, 2, 8)), lanes=4))),
        "a shuffle of 8 lanes by 8",
    ),
    "a fold that is none": (program(loop(AT, Let(V, Const(0.0)), store(Fold("sub", V)))), "sub of 4 lanes"),
    "a step of nothing": (
        program(For(AT, Const(0), Const(8), (store(X),), step=0)),
        "the step of the loop over i is 0",
    ),
    "own of no buffer": (program(For(AT, Const(0), Const(8), (store(X),), parallel=True, own=("t",))), "no buffer"),
    "no name": (program(loop(AT, Let(Local("s1 a", f32), X))), "'s1 a' is no name"),
    "a word of C": (program(loop(AT, Let(Local("double", f32), X))), "double is a word of C"),
    "two tensors of a name": (program(buffers=(Buffer("x", Type(f32, (8,))),)), "two tensors are named x"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    assert verify_loops(RIGHT[name]) is None


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    wrong, words = WRONG[name]
    fault = verify_loops(wrong)
    assert fault is not None
    assert words in str(fault)


def test_a_finding_names_the_loop_and_the_statement() -> None:
    fault = verify_loops(program(loop(J, loop(AT, Let(A, X), Let(A, X)))))
    assert str(fault) == "a is declared again, in for j in 0..8: for i in 0..8: a: f32 = x[i]"


def test_loops_of_schedules_pass() -> None:
    for seed in range(6):
        kernel, machine = random_kernel(seed), random_machine(random.Random(seed))
        for m in (*MACHINES.values(), machine):
            assert verify_loops(schedule(kernel, m)) is None, kernel.text()


def test_loops_are_verified_before_they_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An internal error names the kernel, the loop and the statement."""
    kernel = parse_kernel("kernel(p0: f32[8]) -> (r0: f32[8]) { i<8: r0[i] = exp(p0[i]) }")
    wrong = LoopProgram(kernel.params, kernel.results, (), (loop(AT, Store("r0", AT, A)),))

    def loops(*_: object) -> tuple[LoopProgram, tuple[()]]:
        return wrong, ()

    monkeypatch.setattr("dlc_backend_c.function.loops_of", loops)
    with pytest.raises(DlcError) as found:
        c_function(kernel, "f", GENERIC)
    (diagnostic,) = found.value.diagnostics
    assert diagnostic.code == "invalid-loops"
    assert int(found.value.exit_code) == 70
    assert kernel.digest[:16] in diagnostic.message
    assert "for i in 0..8: r0[i] = a" in diagnostic.message


def test_new_names_are_not_taken() -> None:
    taken = names_of(program(loop(AT, Let(Local("v1", f32), X), Let(Local("v3", i64), Const(0)))))
    names = fresh("v", taken)
    assert [next(names) for _ in range(3)] == ["v2", "v4", "v5"]
    assert {"x", "y", "i", "workspace"} <= taken


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("columns", [6, 8, 11])
def test_copies_of_integers_are_filled_up_with_integers(columns: int, machine: Machine) -> None:
    """Columns of a product of integers, copied as panels that have more of them."""
    body = f"""(u8[3,4,{columns}], i8[16,4]) -> (f32[3,3,{columns}]) local (i32[3,{columns},3]) {{
  m<4: t0[i,j,k] += i32(p0[i,m,j])*i32(p1[k,m])
  i<3 j<{columns} k<3: r0[k,i,j] = f32(t0[i,j,k])*0.5
}}"""
    assert verify_loops(schedule(parse_kernel(f"kernel{body}"), machine)) is None
