"""The vocabulary that schedules are written in, for plugins and their tests.

    from dlc import option
    from dlc.schedules import Applied, Choice, Place, Unfit, guarded

    @dataclass(frozen=True)
    class InOrder(Choice):
        \"""Loops over elements in the order of their axes.\"""

        name = "in-order"

        def apply(self, place: Place) -> Applied:
            …

A `Choice` turns the nests of a `Place` into statements for its `Machine`, or raises `Unfit` with the reason. Statements
are those of `LoopProgram`: `print_loops` shows them, `run_loops` evaluates them, `check_loops` compares them with the
kernel.
"""

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.print import print_loops
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
    Prefetch,
    Set,
    Stmt,
    Store,
    loop,
    wrap,
)
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.clip import guarded
from dlc.kernel.schedules.flat import at
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import Scheduled, scheduled
from dlc.kernel.schedules.scope import Scope
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.simplify import conjuncts, linear, simplify
from dlc.kernel.text import parse_kernel

__all__ = [
    "Applied",
    "Apply",
    "Axis",
    "Block",
    "Buffer",
    "Choice",
    "Const",
    "Expr",
    "Fold",
    "For",
    "If",
    "Kernel",
    "Lanes",
    "Let",
    "Load",
    "Local",
    "LoopProgram",
    "Machine",
    "Nest",
    "Place",
    "Prefetch",
    "Scheduled",
    "Scope",
    "Set",
    "Stmt",
    "Store",
    "Unfit",
    "apply",
    "at",
    "axes_in",
    "buffer",
    "check_loops",
    "conjuncts",
    "guarded",
    "linear",
    "loop",
    "parse_choices",
    "parse_kernel",
    "print_choices",
    "print_loops",
    "run_kernel",
    "run_loops",
    "scheduled",
    "simplify",
    "substitute",
    "wrap",
]
