"""Three nests that transform tiles, multiply them point by point and transform them back, found by their form.

    s[a,b,t,c] += B[a,u]·B[b,v]·x[…]     z[a,b,t,f] += s[a,b,t,c]·w[…]     y[…,i,j,f] += A[i%m,a]·A[j%m,b]·z[a,b,t,f]

`dlc.kernel.schedules.winograd_nests` makes them of convolutions. Matrices are what factors without loads evaluate to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.kernel.cook_toom import Matrix
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.coefficients import matrix_of
from dlc.kernel.schedules.groups import Group, plain_write
from dlc.kernel.simplify import linear


@dataclass(frozen=True)
class Transform:
    """A nest that multiplies both short dimensions of tiles by a matrix each.

    Attributes:
        nest: The nest.
        load: What is transformed.
        rows, columns: The matrices.
        inner: The axes that are added up, of rows and columns.
        outer: What the rows of the matrices are numbered by: an axis each, or a remainder of one.
    """

    nest: Nest
    load: Load
    rows: Matrix
    columns: Matrix
    inner: tuple[Axis, Axis]
    outer: tuple[Expr, Expr]


@dataclass(frozen=True)
class Digit:
    """A coordinate of a tile: its number over `step`, modulo `extent`."""

    axis: Axis
    step: int
    extent: int


@dataclass(frozen=True)
class Transformed:
    """Three nests as the module says, and what follows element by element.

    Attributes:
        input: s of x.
        product: z of s.
        output: y of z.
        tile: The axis that numbers tiles, in `input` and `product`.
        channel: The axis that `product` adds up, a subscript of what `input` writes.
        column: The other axis of `product`.
        weights: What `product` multiplies s with.
        group: The nest of `output` and its followers, which share loops.
        digits: Where the outputs of a tile lie: of each axis, that of rows and that of columns last.
        groups: The three as they are by themselves.
    """

    input: Transform
    product: Nest
    output: Transform
    tile: Axis
    channel: Axis
    column: Axis
    weights: Load
    group: Group
    digits: tuple[Digit, ...]
    groups: tuple[Group, ...]

    @property
    def inside(self) -> tuple[str, str]:
        """Locals that only these nests touch."""
        return self.input.nest.out, self.product.out

    @property
    def nests(self) -> tuple[Nest, ...]:
        """All nests in order."""
        return (self.input.nest, self.product, *self.group.nests)


def transformed_groups(groups: Sequence[Group], kernel: Kernel) -> list[Group | Transformed]:
    """The groups, three in a row as one where they have the form."""
    out: list[Group | Transformed] = []
    waiting = list(groups)
    while waiting:
        found = _found(waiting[:3], kernel) if len(waiting) > 2 else None
        out.append(found or waiting[0])
        del waiting[: 3 if found else 1]
    return out


def _found(groups: Sequence[Group], kernel: Kernel) -> Transformed | None:
    first, second, third = groups
    if len(first.nests) != 1 or len(second.nests) != 1:
        return None
    source, product, target = first.nests[0], second.nests[0], third.nests[0]
    if not _feeds(source, product, kernel) or not _feeds(product, target, kernel) or product.where is not None:
        return None
    if not all(plain_write(n, kernel.tensors[n.out].shape) and n.reduce == "add" for n in (source, product, target)):
        return None
    match product.index, product.body:
        case (a, b, Axis() as tile, Axis() as column), Apply("mul", (Load() as data, Load() as weights)):
            into, back = _transform(source, source.index[:2]), _back(target)
        case _:
            return None
    if into is None or back is None or data.param != source.out or tile in axes_in(weights):
        return None
    channel = data.index[-1]
    if data.index[:-1] != (a, b, tile) or not isinstance(channel, Axis):
        return None
    x, y, number, f = back.load.index
    if product.reduction_axes != (channel,) or (x, y) != back.inner or f not in target.index:
        return None
    digits = _digits(number, tile.extent, back)
    if digits is None:
        return None
    return Transformed(into, product, back, tile, channel, column, weights, third, digits, tuple(groups))


def transform_of(group: Group, kernel: Kernel) -> Transform | None:
    """The transform that the only nest of a group is, numbered by the first two axes of what it writes."""
    nest = group.nests[0]
    if len(group.nests) != 1 or nest.reduce != "add" or len(nest.index) < 3 or kernel.start_of(nest.out):
        return None
    return _transform(nest, nest.index[:2]) if plain_write(nest, kernel.tensors[nest.out].shape) else None


def _feeds(nest: Nest, reader: Nest, kernel: Kernel) -> bool:
    """Whether a nest alone writes a local that another one alone reads."""
    name = nest.out
    return name in kernel.local_numbers and len(kernel.touching(name)) == 2 and name in reader.loads


def _back(nest: Nest) -> Transform | None:
    """The transform of a nest by the remainders of two of its output axes."""
    if nest.where is not None or len(nest.reduction_axes) != 2:
        return None
    match nest.body:
        case Apply("mul", (Apply("mul", (first, second)), _)):
            outer = [_remainder(e, nest) for e in (first, second)]
        case _:
            return None
    return None if None in outer else _transform(nest, [e for e in outer if e is not None])


def _remainder(e: Expr, nest: Nest) -> Expr | None:
    """What a factor depends on besides an axis that is added up: i % m."""
    found = {x for x in _parts(e) if x.fn == "mod" and not set(axes_in(x)) & set(nest.reduction_axes)}
    return found.pop() if len(found) == 1 else None


def _parts(e: Expr) -> list[Apply]:
    return [] if not isinstance(e, Apply) else [e, *(y for x in e.args for y in _parts(x))]


def _transform(nest: Nest, outer: Sequence[Expr]) -> Transform | None:
    match nest.body:
        case Apply("mul", (Apply("mul", (first, second)), Load() as load)) if len(nest.reduction_axes) == 2:
            u, v = nest.reduction_axes
        case _:
            return None
    factors = [(_matrix(first, outer[0], k), _matrix(second, outer[1], o)) for k, o in ((u, v), (v, u))]
    for (rows, columns), inner in zip(factors, ((u, v), (v, u)), strict=True):
        if rows is not None and columns is not None:
            return Transform(nest, load, rows, columns, inner, (outer[0], outer[1]))
    return None


def _matrix(e: Expr, outer: Expr, inner: Axis) -> Matrix | None:
    match outer:
        case Axis():
            return matrix_of(e, outer, inner)
        case Apply("mod", (Axis(), Const(int() as m))):
            row = Axis("remainder", m)
            return matrix_of(substitute(e, {outer: row}), row, inner)
        case _:
            return None


def _digits(tile: Expr, tiles: int, back: Transform) -> tuple[Digit, ...] | None:
    """Which tile an output comes from, as digits of its number; None if outputs of a tile lie elsewhere."""
    form = linear(tile)
    if form is None or form.constant:
        return None
    sizes: dict[Axis, int] = {}
    for outer in back.outer:
        match outer:
            case Apply("mod", (Axis() as axis, Const(int() as m))):
                sizes[axis] = m
            case _:
                return None
    found: dict[Axis, Digit] = {}
    step = 1
    for place, k in sorted(form.terms, key=lambda term: term[1]):
        match place:
            case Axis() as axis if axis not in sizes:
                extent = axis.extent
            case Apply("floordiv", (Axis() as axis, Const(int() as m))) if sizes.get(axis) == m:
                extent = -(-axis.extent // m)
            case _:
                return None
        if k != step:
            return None
        found[axis] = Digit(axis, step, extent)
        step *= extent
    for axis, m in sizes.items():  # a single tile along an axis has no place in the number
        if axis.extent > m * found.setdefault(axis, Digit(axis, step, 1)).extent:
            return None
    kept = {x for x in back.nest.axes if x not in back.nest.reduction_axes}
    if step != tiles or kept != {*found, back.load.index[3]}:
        return None
    rows, columns = (next(a for a in sizes if a in axes_in(o)) for o in back.outer)
    return (*(d for a, d in found.items() if a not in sizes), found[rows], found[columns])


def places(t: Transformed, number: Expr, inner: tuple[Expr, Expr]) -> dict[Expr, Expr]:
    """The output axes at one element of a tile."""
    found: dict[Expr, Expr] = {}
    *batch, rows, columns = t.digits
    for d in batch:
        found[d.axis] = number // d.step % d.extent
    for d, matrix, e in ((rows, t.output.rows, inner[0]), (columns, t.output.columns, inner[1])):
        found[d.axis] = number // d.step % d.extent * len(matrix) + e
    return found
