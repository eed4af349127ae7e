"""Names of loops: those that are taken, and new ones that are not.

Whoever adds variables to a program asks for their names here, so that two of them never choose the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count
from typing import Final

from dlc.kernel.loops.program import For, Let, LoopProgram, walk_stmts

_WORDS: Final = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
alignas alignof asm bool constexpr false nullptr static_assert thread_local true typeof
workspace loop_context loop_first loop_last loop_share loop_start loop_stop loop_end
"""
RESERVED: Final = frozenset(_WORDS.split())
"""Words of C, and names that functions of the C backend have beside those of a program."""


def names_of(program: LoopProgram) -> frozenset[str]:
    """All names of a program: of tensors, buffers, axes and variables."""
    tensors = {t.name for t in (*program.params, *program.results, *program.buffers)}
    found = {
        s.axis.name if isinstance(s, For) else s.local.name
        for s in walk_stmts(program.body)
        if isinstance(s, For | Let)
    }
    return frozenset(tensors | found | RESERVED)


def fresh(prefix: str, taken: Collection[str]) -> Iterator[str]:
    """Names that begin with a prefix and are not taken, each once."""
    return (name for n in count(1) if (name := f"{prefix}{n}") not in taken)
