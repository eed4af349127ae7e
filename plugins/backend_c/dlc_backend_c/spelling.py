"""The C text of every scalar function at every element type: the counterpart of `dlc.kernel.scalar`.

Values of narrow types are those of their compute type that they can represent: every operation on them rounds. Integer
operations wrap, by way of unsigned arithmetic. Values of bool are 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from dlc.base.types import DTYPES, DType, bool_, f16, f32, f64
from dlc.kernel.expr import Number
from dlc.kernel.scalar import SCALARS

Text = Callable[..., str]

_NAMED: Mapping[DType, str] = {f64: "double", f32: "float", bool_: "unsigned char"}

STORAGE: Mapping[DType, str] = {
    t: _NAMED.get(t) or f"{'uint' if t.narrow else t.kind}{t.itemsize * 8}_t" for t in DTYPES.values()
}
"""How elements lie in memory: those of narrow types as their bits, each in bytes of its own."""

VALUE: Mapping[DType, str] = {t: "int" if t is bool_ else STORAGE[t.compute] for t in DTYPES.values()}
"""The type of a value while it is computed with."""

OPERATORS = frozenset(("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge"))
"""Functions of floats that C writes as kernel text does."""
LAZY = frozenset(("select", "and", "or"))
"""Functions whose arguments but the first may be skipped at run time."""
_LOGIC = {"and": "&&", "or": "||", "xor": "!="}
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^"}
_BOOL_ARITHMETIC = {"add": "||", "mul": "&&", "min": "&&", "max": "||", "sub": "!="}
_FAST = ("exp", "tanh", "erf")
"""Those of floats that the prelude may replace."""
_LIBM = {"round": "rint", "abs": "fabs"}
"""Names of libm that are not those of `SCALARS`; all others are the same, but for the suffix f."""


def spell(fn: str, dtype: DType, args: tuple[str, ...]) -> str:
    """`fn(args)` in C.

    Args:
        fn: A name from `SCALARS`.
        dtype: Type of the arguments (of the branches, for `select`; of the source, for casts).
        args: Their C text, each safe to use as an operand.
    """
    scalar = SCALARS[fn]
    if scalar.to is not None:
        return (_cast if scalar.rule == "cast" else _reread)(dtype, scalar.to, args[0])
    if fn == "select":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if fn in OPERATORS and scalar.rule == "bool":
        return f"({args[0]} {scalar.infix} {args[1]})"
    if fn in _LOGIC:
        return f"({args[0]} {_LOGIC[fn]} {args[1]})"
    if fn == "not":
        return f"(!{args[0]})"
    if dtype.narrow:
        return _narrow(fn, dtype, args)
    if dtype.is_float:
        return _float(fn, dtype, args)
    if dtype is bool_:
        return _bool(fn, args)
    if fn in _BITS:
        return f"({args[0]} {_BITS[fn]} {args[1]})"
    return f"dlc_{fn}_{dtype}({', '.join(args)})"


def _narrow(fn: str, dtype: DType, args: tuple[str, ...]) -> str:
    """Computed in the compute type, and rounded unless every result is a value of the type."""
    found = spell(fn, dtype.compute, args)
    exact = ("min", "max", "neg", "abs") if dtype.format and dtype.format.symmetric else ("min", "max")
    return found if SCALARS[fn].rule == "bool" or fn in exact else _rounded(dtype, found)


def _rounded(dtype: DType, value: str) -> str:
    return f"dlc_round_{dtype}({value})"


def _bool(fn: str, args: tuple[str, ...]) -> str:
    if fn in _BOOL_ARITHMETIC:
        return f"({args[0]} {_BOOL_ARITHMETIC[fn]} {args[1]})"
    if fn == "neg":
        return f"(!{args[0]})"
    return args[0] if fn in ("abs", "sign") else _widened(fn, args)


def _widened(fn: str, args: tuple[str, ...]) -> str:
    """No array library defines these on bool; C's meaning of the same arithmetic on 0 and 1."""
    return f"(dlc_{fn}_i32({', '.join(args)}) != 0)"


def _float(fn: str, dtype: DType, args: tuple[str, ...]) -> str:
    suffix = "" if dtype is f64 else "f"
    if fn == "isnan":
        return f"({args[0]} != {args[0]})"
    if fn == "isinf":
        return f"(isinf({args[0]}) != 0)"
    if fn in OPERATORS:
        return f"({args[0]} {SCALARS[fn].infix} {args[1]})"
    if fn == "neg":
        return f"(-{args[0]})"
    if fn in ("min", "max", "sign", "mod", "floordiv"):
        return f"dlc_{fn}_{dtype}({', '.join(args)})"
    if fn in _FAST and dtype is f32:
        return f"dlc_{fn}_f32({args[0]})"
    if fn == "truncdiv":
        return f"trunc{suffix}({args[0]} / {args[1]})"
    return f"{_LIBM.get(fn, fn)}{suffix}({', '.join(args)})"


def _cast(source: DType, to: DType, x: str) -> str:
    if source.compute is to or source is to:
        return x
    if to is bool_:
        return f"({x} != 0)"
    if to is f16 and source is f64:
        return f"dlc_round_f16_f64({x})"  # at once, as numpy does
    if to.narrow:
        return _rounded(to, _cast(source.compute, to.compute, x))
    if to.is_float:
        return f"(({VALUE[to]}){x})"
    if source.is_float:
        return f"dlc_{to}_of_{source.compute}({x})"
    if source is bool_:  # of a comparison in another one, compilers say that it is always false
        return f"(({VALUE[to]})({x} ? 1 : 0))"
    return f"(({VALUE[to]}){x})"


def _reread(source: DType, to: DType, x: str) -> str:
    """The bits of x as a value of another type of that size."""
    if source is to:
        return x
    if source.is_float:
        x = f"dlc_{source}_bits({x})" if source.narrow else f"dlc_bits_of_{source}({x})"
    if to is bool_:
        return f"({x} != 0)"
    if to.narrow:
        return f"dlc_{to}_value(({STORAGE[to]}){x})"
    return f"dlc_{to}_of_bits((uint{8 * to.itemsize}_t){x})" if to.is_float else f"(({VALUE[to]}){x})"


def load(dtype: DType, element: str) -> str:
    """The value of an element in memory."""
    return f"dlc_{dtype}_value({element})" if dtype.narrow else element


def store(dtype: DType, value: str) -> str:
    """What is written to memory for a value."""
    if dtype.narrow:
        return f"dlc_{dtype}_bits({value})"
    return f"({STORAGE[dtype]}){value}" if dtype is bool_ else value


def literal(value: Number, dtype: DType) -> str:
    """A number as a C constant of this type, exact for floats."""
    if dtype is bool_:
        return "1" if value else "0"
    if dtype.is_float:
        return _float_literal(float(value), dtype)
    whole = dtype.wrapped(int(value))
    if VALUE[dtype].startswith("int"):
        smallest = -(1 << 63)
        return "(-9223372036854775807 - 1)" if whole == smallest else f"({whole})" if whole < 0 else str(whole)
    return f"{whole}u"


def _float_literal(value: float, dtype: DType) -> str:
    suffix = "" if dtype is f64 else "f"
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(value).astype(dtype.numpy))
    if math.isnan(rounded):
        return "NAN" if dtype is not f64 else "((double)NAN)"
    if math.isinf(rounded):
        text = "INFINITY" if dtype is not f64 else "((double)INFINITY)"
        return text if rounded > 0 else f"(-{text})"
    digits = repr(rounded) if dtype is f64 else f"{rounded:.9g}"
    if not any(c in digits for c in ".en"):
        digits += ".0"
    return f"({digits}{suffix})" if digits.startswith("-") else digits + suffix
