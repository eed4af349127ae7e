"""What decides whether iterations of a long loop may be left out, and how many are run."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.kernel.expr import Load
from dlc.kernel.loops.program import Block, For, If, Let, Set, Stmt, Store, exprs_of, subexpressions, walk_stmts


class Work:
    """About how many values statements compute, found once for each loop."""

    def __init__(self) -> None:
        """With nothing counted."""
        self._of_loops: dict[int, int] = {}

    def of(self, body: Sequence[Stmt]) -> int:
        """Of some statements, where conditions choose the longer ones."""
        found = 0
        for s in body:
            match s:
                case For(axis, _, _, inner, step):
                    if id(s) not in self._of_loops:
                        self._of_loops[id(s)] = self.of(inner) * -(-max(1, axis.extent) // step)
                    found += self._of_loops[id(s)]
                case If(_, then, otherwise):
                    found += max(self.of(then), self.of(otherwise))
                case Block(inner):
                    found += self.of(inner)
                case Let(local, _) | Set(local, _):
                    found += local.lanes
                case Store(_, _, _, lanes):
                    found += lanes
                case _:
                    pass
        return found


def shared_variables(s: For) -> Sequence[str]:
    """The variables that iterations of a loop set and that are declared outside of it."""
    inside = list(walk_stmts(s.body))
    declared = {x.local.name for x in inside if isinstance(x, Let)}
    return list(dict.fromkeys(x.local.name for x in inside if isinstance(x, Set) and x.local.name not in declared))


def starts_anew(body: Sequence[Stmt], name: str) -> bool:
    """Whether the first statement that touches a buffer writes it, and reads nothing of it."""
    for s in walk_stmts(tuple(body)):
        read = {x.param for x in subexpressions(exprs_of(s)) if isinstance(x, Load)}
        if name in read:
            return False
        if isinstance(s, Store) and s.out == name:
            return True
    return True
