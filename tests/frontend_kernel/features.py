"""What a kernel has of what the language offers, by name: for the summary of a long run."""

from __future__ import annotations

from itertools import product

from tests.frontend_kernel.brute_force import place_of, ranges
from tests.frontend_kernel.small_language import Bin, Case, Group, Statement, Tree, Var, refs, terms, variables


def features(case: Case) -> set[str]:
    """The names of everything that the kernel uses."""
    found = {f"{len(case.statements)} statements"}
    if set(case.ins) & set(case.outs):
        found.add("in/out tensor")
    for s in case.statements:
        found |= _features(s)
    return found


def _features(s: Statement) -> set[str]:
    own, every = variables(s.left), list(refs(s.right))
    parts = [set(variables(t)) - set(own) for _, t in terms(s.right)]
    subscripts = [e for r in every for e in r.index or ()]
    signs = {
        "reduction": any(parts),
        "terms with different reductions": len({frozenset(p) for p in parts}) > 1,
        "several references to one tensor": len({r.name for r in every}) < len(every),
        "scalar": any(r.index is None for r in every),
        "quotient": any(isinstance(x, Bin) and x.op == "/" for x in _arithmetic(s.right)),
        "product": any(isinstance(x, Bin) and x.op == "*" for x in _arithmetic(s.right)),
        "difference": any(isinstance(x, Bin) and x.op == "-" for x in _arithmetic(s.right)),
        "parentheses": "(" in str(s.right) and any(isinstance(x, Group) for x in _arithmetic(s.right)),
        "floor division in a subscript": any(" // " in f" {_ops(e)} " for e in subscripts),
        "remainder in a subscript": any(" % " in f" {_ops(e)} " for e in subscripts),
        "two indices in a subscript": any(len(variables(e)) > 1 for e in subscripts),
        "constant subscript": any(not variables(e) for e in subscripts),
        "diagonal": any(len([v for e in r.index or () for v in variables(e)]) > len(variables(r)) for r in every),
        "compound left side": any(not isinstance(e, Var) for e in s.left.index or ()),
        "broadcast": bool(set(own) - set(variables(s.right))),
        "clipped": _clipped(s),
    }
    return {name for name, there in signs.items() if there}


def _arithmetic(tree: Tree) -> list[Tree]:
    match tree:
        case Bin(_, left, right):
            return [tree, *_arithmetic(left), *_arithmetic(right)]
        case Group(inner):
            return [tree, *_arithmetic(inner)]
        case _:
            return [tree]


def _ops(e: Tree) -> str:
    return " ".join(x.op for x in _arithmetic(e) if isinstance(x, Bin))


def _clipped(s: Statement) -> bool:
    """Whether some reference of the statement leaves its tensor within the ranges of the indices."""
    spans = ranges(s)
    for _, term in terms(s.right):
        names = tuple(dict.fromkeys((*variables(s.left), *variables(term))))
        for ref in refs(term):
            place = place_of(ref)
            own = [n for n in names if n in variables(ref)]
            if any(place(dict(zip(own, p, strict=True))) is None for p in product(*(spans[n] for n in own))):
                return True
    return False
