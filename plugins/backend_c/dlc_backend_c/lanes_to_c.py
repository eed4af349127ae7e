"""Values of several lanes as C text: the types and functions of vectors that the prelude defines."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.base.types import DType, bf16, f32, i8, i32, u8
from dlc.kernel.expr import Const, Expr
from dlc.kernel.loops.program import Dots, Local, Shuffle
from dlc.kernel.scalar import SCALARS
from dlc_backend_c import spelling


def vector(fn: str, dtype: DType, n: int, texts: tuple[str, ...], args: tuple[Expr, ...]) -> str:
    """A lane-wise function; schedules build vectors of these functions only."""
    if fn in ("min", "max"):
        number = isinstance(args[1], Const) and args[1].value == args[1].value
        return f"dlc_{fn}{'c' if number else ''}_{dtype}x{n}({texts[0]}, {texts[1]})"
    if fn == "neg":
        return f"(-{texts[0]})"
    if fn in spelling.OPERATORS and dtype.is_float:
        return f"({texts[0]} {SCALARS[fn].infix} {texts[1]})"
    return f"dlc_{fn}_{dtype}x{n}({', '.join(texts)})"


BYTES = (i8, u8)
"""Types whose vectors have an i32 for each lane: loads widen, stores narrow."""


def converted(source: DType | None, to: DType, n: int, text: str) -> str:
    """Lanes as another type: rounded to a narrow one or taken for what they were rounded to; f32, i32, bytes."""
    if to.narrow:
        return f"dlc_round_{to}_{to.compute}x{n}({text})"
    if source is f32 and to in BYTES:
        return f"dlc_bounded_i32x{n}({text})"
    if to is f32 and source in (i32, *BYTES):
        return f"__builtin_convertvector({text}, f32x{n})"
    return text


def dots(e: Dots, n: int, sum_: str) -> str:
    """Sums to which products of words are added, those of one word for each lane."""
    return f"dlc_dots_{e.dtype}{f'x{n}' * (n > 1)}({sum_}, {e.a.name}, {e.b.name})"


def shuffle(e: Shuffle) -> str:
    """Lanes of two vectors in an order."""
    return f"dlc_shuffle_{e.a.dtype}x{e.a.lanes}({e.a.name}, {e.b.name}, {', '.join(map(str, e.order))})"


def pick(parts: Sequence[Local], places: str, ahead: int) -> str:
    """Lanes of vectors that lie one behind the other, by i32 in memory that count them."""
    of = f"{parts[0].dtype}x{parts[0].lanes}"
    at = f"dlc_places_{of}({places}, {ahead})"
    pairs = [(parts[k], parts[min(k + 1, len(parts) - 1)]) for k in range(0, len(parts), 2)]
    texts = [f"{a.name}, {b.name}" for a, b in pairs]
    return f"dlc_picked{'4' if len(texts) > 1 else ''}_{of}({', '.join(texts)}, {at})"


def splat(dtype: DType, lanes: int, text: str) -> str:
    """A scalar in every lane, or a word of two bf16 in every second one."""
    if dtype is bf16:
        dtype, lanes = i32, lanes // 2
    return text if lanes == 1 else f"dlc_splat_{dtype}x{lanes}({text})"


def variable(local: Local) -> str:
    """The C type of a variable."""
    if local.dtype is bf16 and local.lanes > 1:
        return f"i32x{local.lanes // 2}"
    if local.lanes == 1:
        return spelling.VALUE[local.dtype]
    return f"{i32 if local.dtype in BYTES else local.dtype.compute}x{local.lanes}"
