"""running: sums of all elements up to each one, in one pass over them.

for i: for k<=i: y[i] += x[k]   →   a = 0; for i: a = a + x[i]; y[i] = a

The terms of every sum are added in the same order, so results are the same to the bit.
"""

from dataclasses import dataclass

from dlc.schedules import (
    Applied,
    Apply,
    Axis,
    Choice,
    Const,
    Let,
    Local,
    Nest,
    Place,
    Set,
    Stmt,
    Store,
    Unfit,
    apply,
    at,
    axes_in,
    linear,
    loop,
    wrap,
)


@dataclass(frozen=True)
class Running(Choice):
    """Sums of the elements up to each one, as cumulative sums are, in one pass."""

    name = "running"

    def apply(self, place: Place) -> Applied:
        """The loops; raises Unfit."""
        if place.scope is None or len(place.scope.nests) != 1:
            raise Unfit("several nests share its loops")
        (nest,), (plain,) = place.scope.nests, place.scope.plain
        if nest.reduce is None or not plain or nest.out in place.written:
            raise Unfit("it does not reduce to elements that nothing else writes")
        along, term, last = _ends(nest)
        if along in axes_in(nest.body):
            raise Unfit(f"its terms differ from element to element of {along.name}")
        total = Local("total", place.kernel.tensors[nest.out].dtype)
        add: Stmt = Set(total, apply(nest.reduce, total, at(nest.body, {term: along})))
        keep: Stmt = Store(nest.out, nest.index[0], total)
        body = (add, keep) if last == 0 else (keep, add)
        around = tuple(a for a in nest.axes if a not in (along, term))
        start = Let(total, Const(place.kernel.start_of(nest.out)))
        return Applied(self, wrap(around, (start, loop(along, *body))), ())


def _ends(nest: Nest) -> tuple[Axis, Axis, int]:
    """(axis of elements, axis of terms, 0 or -1): an element has the terms up to it, or up to the one before it."""
    match nest.where, nest.reduction_axes:
        case Apply("le" | "lt" as fn, (a, b)), (term,):
            form = linear(a - b)
        case _:
            raise Unfit("its terms are not those up to each element")
    # term - along <= last
    last = 0 if form is None else -form.constant - (fn == "lt")
    others = [] if form is None else [atom for atom, c in form.terms if isinstance(atom, Axis) and c == -1]
    if form is None or len(form.terms) != 2 or form.coefficient(term) != 1 or len(others) != 1 or last not in (0, -1):
        raise Unfit("its terms are not those up to each element")
    (along,) = others
    if (along.extent, along.stop) != (term.extent, term.stop):
        raise Unfit(f"it has {along.extent} elements and {term.extent} terms")
    return along, term, last
