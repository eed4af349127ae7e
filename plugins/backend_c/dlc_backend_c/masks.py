"""In which loops some gcc must not turn conditions into masks.

    for i < 6: for j < 2: r[2·i + j] = i >= 2 ? p[2·i + j - 4] : 0      →      zeros in rows 2 and 3 as well

gcc 12.2 takes the stores or sums that one iteration makes of one array as a group, its conditional loads as a group
under a mask, and gives elements of the group the masks of other elements (it drops permutations of masked loads: GCC
PR tree-optimization/114375, mended in 12.4, 13.3 and 14). Groups arise where an iteration stores several elements, also
after an inner loop of at most 16 iterations was unrolled. A load that happens anyway has no mask, and loops that keep
their branches have none at all, which an empty assembler statement achieves: it cannot be made conditional by a mask.
Only these loops have it, and only versions that may be mistaken see it; an attribute of the function would cost all its
other loops speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from dlc.kernel.expr import Apply, Const, Expr, Load
from dlc.kernel.loops.program import Block, For, If, Lanes, Let, Set, Stmt, Store, exprs_of, parts
from dlc_backend_c import spelling

MACRO: Final = "DLC_BRANCHES"
DEFINITION: Final = f"""
/* gcc before 14 may give elements of a group of conditional loads the masks of others (GCC PR 114375). */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14
#define {MACRO} __asm__ volatile("")
#else
#define {MACRO} ((void)0)
#endif
"""
UNROLLED: Final = 16
"""Iterations up to which gcc unrolls a loop completely (max-completely-peel-times)."""


def keeps_branches(loop: For) -> bool:
    """Whether a loop writes one tensor or variable several times per iteration and loads something on a condition."""
    counts = _written(loop.body)
    if counts is None or max(counts.values(), default=0) < 2:
        return False
    found = set(_loads(loop.body, guarded=False))
    return any(guarded and (load, False) not in found for load, guarded in found)


def _written(body: tuple[Stmt, ...]) -> Counter[str] | None:
    """How often an iteration writes each tensor and each variable from outside of it; None with a loop inside."""
    found, own = Counter[str](), set[str]()
    for stmt in body:
        match stmt:
            case For(_, _, _, inner, _):
                times, counts = _iterations(stmt), _written(inner)
                if times > UNROLLED or counts is None:
                    return None
                found.update({name: times * n for name, n in counts.items()})
            case If(_, then, otherwise):
                for branch in (then, otherwise):
                    if (counts := _written(branch)) is None:
                        return None
                    found.update(counts)
            case Block(inner):
                if (counts := _written(inner)) is None:
                    return None
                found.update(counts)
            case Let(local, _):
                own.add(local.name)
            case Set(local, _) if local.lanes == 1:
                found[local.name] += 1
            case Store(out, _, _, 1):
                found[out] += 1
            case _:
                pass
    return Counter({name: n for name, n in found.items() if name not in own})


def _iterations(loop: For) -> int:
    match loop:
        case For(_, Const(start), Const(stop), _, step):
            return -(-(int(stop) - int(start)) // step)
        case For(axis, _, _, _, step):
            return -(-axis.extent // step)


def _loads(body: tuple[Stmt, ...], *, guarded: bool) -> Iterator[tuple[Load, bool]]:
    """Every scalar load, with whether it is skipped in some iterations."""
    for stmt in body:
        yield from _loads_of(exprs_of(stmt), guarded=guarded)
        match stmt:
            case If(_, then, otherwise):
                yield from _loads((*then, *otherwise), guarded=True)
            case For(_, _, _, inner, _) | Block(inner):
                yield from _loads(inner, guarded=guarded)
            case _:
                pass


def _loads_of(values: tuple[Expr, ...], *, guarded: bool) -> Iterator[tuple[Load, bool]]:
    stack = [(e, guarded) for e in values]
    seen = set(stack)
    while stack:
        e, masked = stack.pop()
        if isinstance(e, Load):
            yield e, masked
        lazy = isinstance(e, Apply) and e.fn in spelling.LAZY
        inner = e.first.index if isinstance(e, Lanes) else parts(e)  # vectors are loaded whole
        for k, part in enumerate(inner):
            if (item := (part, masked or (lazy and k > 0))) not in seen:
                seen.add(item)
                stack.append(item)
