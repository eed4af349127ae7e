"""Terms that data pick from rows are added up along whole rows first, where rows are no longer than what is picked.

    r[y,x] = u[y]·(v[x]·p[i[y],j[x]] + w[x]·p[i[y],j[x]+1]) + s[y]·(v[x]·p[i[y]+1,j[x]] + w[x]·p[i[y]+1,j[x]+1])
    →
    t[y,k] = u[y]·p[i[y],k] + s[y]·p[i[y]+1,k];  r[y,x] = v[x]·t[y,j[x]] + w[x]·t[y,j[x]+1]

Linear resampling has this form. Only one row of t exists at a time, whose elements are read as they lie. Sums are
rounded in another order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.base.types import Type, f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, both, combined, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.groups import partition, plain_write
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.simplify import bounds, conjuncts, is_index

MOST_NODES = 200
"""Of a body that is looked at."""
MOST_TERMS = 16
"""Of its sum."""


@dataclass(frozen=True)
class _Term:
    """A product with an element of a tensor.

    Attributes:
        outer: Factors that are the same along a row of the result.
        inner: The others.
        element: The element.
    """

    outer: tuple[Expr, ...]
    inner: tuple[Expr, ...]
    element: Load

    def times(self, factor: Expr, row: Axis) -> _Term:
        """The term with one factor more."""
        if row in axes_in(factor):
            return replace(self, inner=(*self.inner, factor))
        return replace(self, outer=(*self.outer, factor))


def with_row_terms(kernel: Kernel, machine: Machine) -> Kernel:
    """An equal kernel (see the module's equation), but for the rounding of sums."""
    if not machine.reciprocals:
        return kernel
    for k in range(len(kernel.nests)):
        if (changed := _changed(kernel, k)) is not None:
            kernel = changed
    return kernel


def _changed(kernel: Kernel, k: int) -> Kernel | None:
    """The kernel with a nest as two; None where it has no such form, or gains nothing."""
    nest = kernel.nests[k]
    if nest.reduce is not None or nest.nodes > MOST_NODES or not nest.index or not isinstance(nest.index[-1], Axis):
        return None
    row, out = nest.index[-1], kernel.tensors[nest.out]
    tables = [name for name, xs in nest.loads.items() if any(_is_picked(x, row) for x in xs)]
    floats = out.storage in (f32, f64) and not out.type.is_open and all(a.limit is None for a in nest.axes)
    if len(tables) != 1 or not floats or not plain_write(nest, out.shape):
        return None
    table = kernel.tensors[tables[0]]
    terms = _terms(nest.body, table.name, row)
    if table.storage is not out.dtype or table.packed or table.type.is_open or not 1 < len(terms) <= MOST_TERMS:
        return None
    picked: dict[tuple[tuple[Expr, ...], Expr], list[tuple[tuple[Expr, ...], tuple[Expr, ...]]]] = {}
    for t in terms:
        *line, column = t.element.index
        if not _exists(line, row, table):
            return None
        picked.setdefault((t.inner, column), []).append((t.outer, tuple(line)))
    lines, *others = picked.values()
    length, count = table.shape[-1], len(lines)
    # A row is read as it lies, what is picked element by element.
    if count < 2 or any(x != lines for x in others) or length * count > row.extent * len(picked) * (count - 1):
        return None
    axes = tuple(i for i in nest.index[:-1] if isinstance(i, Axis))
    along = Axis(f"{row.name}row", length)
    made = Param(f"{nest.out}_row{len(kernel.locals)}", Type(out.dtype, (*(a.extent for a in axes), length)))
    guard: Expr | None = None
    for c in conjuncts(nest.where):
        guard = guard if row in axes_in(c) else both(guard, c)
    total = combined("add", [combined("mul", (*outer, Load(table.name, (*line, along)))) for outer, line in lines])
    body = combined("add", [combined("mul", (*inner, Load(made.name, (*axes, column)))) for inner, column in picked])
    first = Nest(made.name, (*axes, along), (*axes, along), total, where=guard)
    nests = (*kernel.nests[:k], first, replace(nest, body=body), *kernel.nests[k + 1 :])
    changed = replace(kernel, nests=nests, locals=(*kernel.locals, made))
    together = any({made.name, nest.out} <= {n.out for n in g.nests} for g in partition(changed))
    return changed if together else None


def _is_picked(x: Load, row: Axis) -> bool:
    """Whether data decide which element of a row is read."""
    return bool(x.index) and row in axes_in(x.index[-1]) and not is_index(x.index[-1])


def _exists(line: list[Expr], row: Axis, table: Param) -> bool:
    """Whether a row is the same along a row of the result, and exists wherever data do not decide which it is."""
    for i, extent in zip(line, table.shape, strict=False):
        span = bounds(i) if is_index(i) else (0, extent - 1)
        if row in axes_in(i) or span is None or span[0] < 0 or span[1] >= extent:
            return False
    return True


def _terms(e: Expr, table: str, row: Axis) -> list[_Term]:
    """A sum of products with elements of a tensor, taken apart; [] where it is none."""
    match e:
        case Load(name, _) if name == table:
            return [_Term((), (), e)]
        case Apply("add" | "sub" as fn, (a, b)):
            first, second = _terms(a, table, row), _terms(b, table, row)
            if fn == "sub":
                second = [t.times(Const(-1.0), row) for t in second]
            return [*first, *second] if first and second else []
        case Apply("mul", (a, b)):
            factor, rest = (b, a) if any(x.param == table for x in loads(a)) else (a, b)
            if any(x.param == table for x in loads(factor)):
                return []
            return [t.times(factor, row) for t in _terms(rest, table, row)]
        case _:
            return []
