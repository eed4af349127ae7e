"""Values of several lanes as C text: the types and functions of vectors that the prelude defines."""

from __future__ import annotations

from dlc.base.types import DType
from dlc.kernel.expr import Const, Expr
from dlc.kernel.loops.program import Local
from dlc.kernel.scalar import SCALARS
from dlc_backend_c import spelling


def vector(fn: str, dtype: DType, n: int, texts: tuple[str, ...], args: tuple[Expr, ...]) -> str:
    """A lane-wise function; schedules build vectors of these functions only."""
    if fn in ("min", "max"):
        number = isinstance(args[1], Const) and args[1].value == args[1].value
        return f"dlc_{fn}{'c' if number else ''}_{dtype}x{n}({texts[0]}, {texts[1]})"
    if fn == "neg":
        return f"(-{texts[0]})"
    if fn in spelling.OPERATORS:
        return f"({texts[0]} {SCALARS[fn].infix} {texts[1]})"
    return f"dlc_{fn}_{dtype}x{n}({', '.join(texts)})"


def rounding(to: DType, n: int, text: str) -> str:
    """Lanes rounded to a narrow type, or taken for what they were rounded to: schedules convert no other vectors."""
    return f"dlc_round_{to}_{to.compute}x{n}({text})" if to.narrow else text


def splat(dtype: DType, lanes: int, text: str) -> str:
    """A scalar in every lane."""
    return f"dlc_splat_{dtype}x{lanes}({text})"


def variable(local: Local) -> str:
    """The C type of a variable."""
    return spelling.VALUE[local.dtype] if local.lanes == 1 else f"{local.dtype.compute}x{local.lanes}"
