"""Index arithmetic as C text, in ptrdiff_t."""

from __future__ import annotations

from dlc.kernel.expr import Apply, Axis, Const, Expr
from dlc.kernel.simplify import bounds

_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}


def index(e: Expr) -> str:
    """Index arithmetic in ptrdiff_t, safe as an operand of comparisons and inside brackets."""
    match e:
        case Const(v):
            return str(int(v))
        case Axis(name, _):
            return name
        case Apply("neg", (x,)):
            return f"(-{_operand(x)})"
        case Apply("add" | "sub" | "mul" as fn, (a, b)):
            if fn == "mul":
                return f"{_operand(a)} * {_operand(b)}"
            return f"{index(a)} {_OPERATORS[fn]} {_operand(b) if fn == 'sub' else index(b)}"
        case Apply("min" | "max" as fn, (a, b)):
            return f"dlc_{fn}_index({index(a)}, {index(b)})"
        case Apply("floordiv" | "mod" as fn, (a, b)):
            return _divide(fn, a, b)
        case _:
            raise AssertionError(e)


def _operand(e: Expr) -> str:
    text = index(e)
    atom = isinstance(e, Axis) or (isinstance(e, Const) and int(e.value) >= 0)
    call = isinstance(e, Apply) and e.fn in ("min", "max", "neg")
    return text if atom or call else f"({text})"


def _divide(fn: str, a: Expr, b: Expr) -> str:
    """C's operators where both sides are known to be non-negative; division by zero cannot be meant."""
    low, divisor = bounds(a), bounds(b)
    if low is not None and low[0] >= 0 and divisor is not None and divisor[0] > 0:
        return f"({_operand(a)} {'/' if fn == 'floordiv' else '%'} {_operand(b)})"
    return f"dlc_{fn}_index({index(a)}, {index(b)})"
