"""Convolutions as products of transformed tiles: the nests of Winograd's algorithm, made from one nest and found again.

    y[n,i,j,f] += x[n,i+u-p,j+v-q,c]·w[u,v,c,f]      u, v < r
    →
    s[a,b,t,c] += Bᵀ[a,u]·Bᵀ[b,v]·x[n,m·ty+u-p,m·tx+v-q,c]         t = (n·TY + ty)·TX + tx
    z[a,b,t,f] += s[a,b,t,c]·u[a,b,c,f]                            u = G·w·Gᵀ, made of the weights beforehand
    y[n,i,j,f] += Aᵀ[i%m,a]·Aᵀ[j%m,b]·z[a,b,(n·TY + i//m)·TX + j//m,f]

The roles of axes decide: any sum of products with two window axes of 3, 5 or 7 taps, which an output axis each moves
along by steps of one, has this form: the gradient of a convolution for its data as well, where the window runs
backwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dlc.base.types import Type, f32
from dlc.kernel.cook_toom import CookToom
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, both, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.roles import product, roles
from dlc.kernel.schedules.coefficients import coefficient_expr, multiplies_constants
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.simplify import conjuncts, linear, simplify, simplify_guard
from dlc.kernel.work import macs_of

TAPS = (3, 5, 7)
"""Extents that both window axes may have."""
SMALL = 11
"""Largest extent of what is a window for readers; the sums of weights' gradients slide as well."""


@dataclass(frozen=True)
class Slide:
    """A window axis and the output axis that it moves along.

    Attributes:
        out: The output axis.
        window: The window axis.
        dim: The dimension of the data that both subscript.
        forwards: Whether the subscript grows with the window axis.
    """

    out: Axis
    window: Axis
    dim: int
    forwards: bool


@dataclass(frozen=True)
class Window:
    """A convolution that Winograd's algorithm can compute.

    Attributes:
        nest: The nest.
        data: What the windows slide over.
        weights: What it is multiplied with.
        slides: Of rows and columns.
        batch: Output axes that only the data has, but for those of `slides`.
        channel: The axis that is added up, but for those of the window.
        column: The output axis that only the weights have.
    """

    nest: Nest
    data: Load
    weights: Load
    slides: tuple[Slide, Slide]
    batch: tuple[Axis, ...]
    channel: Axis
    column: Axis

    @property
    def taps(self) -> int:
        """Elements of the window along each of its axes."""
        return self.slides[0].window.extent

    def tiles(self, outputs: int) -> tuple[int, ...]:
        """How many tiles there are along every batch axis, rows and columns."""
        return (*(a.extent for a in self.batch), *(-(-s.out.extent // outputs) for s in self.slides))


def window_of(nest: Nest, kernel: Kernel) -> Window:
    """The convolution that a nest is.

    Raises:
        Unfit: it is none, or not of this form.
    """
    found = product(nest, kernel.dtypes)
    if found is None:
        raise Unfit("it is no sum of products")
    out = kernel.tensors[nest.out]
    conditions = (
        (all(kernel.tensors[n].dtype is f32 for n in (nest.out, *(x.param for x in found))), "it is not in f32"),
        (plain_write(nest, out.shape), f"output axes and elements of {nest.out} do not correspond one to one"),
        (len(kernel.writers[nest.out]) == 1, f"{nest.out} has several writers"),
        (not any(kernel.tensors[n].type.is_open for n in (nest.out, *(x.param for x in found))), "sizes are open"),
    )
    require(conditions)
    for a, b in (found, found[::-1]):
        r = roles(nest, a, b)
        if len(r.window) == 2:
            break
    else:
        raise Unfit("it has no window of two axes")
    slides = tuple(_slide(axis, a, b, nest) for axis in r.window)
    channels = [x for x in r.reduction if x not in r.window]
    conditions = (
        (not r.batch, "it is grouped"),
        (len(r.columns) == 1 and len(channels) == 1, "its channels are not one axis each"),
        (slides[0].out != slides[1].out, "its window axes move along one output axis"),
        (slides[0].window.extent == slides[1].window.extent, "its window is not square"),
    )
    require(conditions)
    slides = sorted(slides, key=lambda s: s.dim)
    moved = {s.out for s in slides}
    batch = tuple(x for x in r.rows if x not in moved)
    window = Window(nest, a, b, (slides[0], slides[1]), batch, channels[0], r.columns[0])
    _check_guard(window)
    return window


def is_near(nest: Nest, kernel: Kernel) -> bool:
    """Whether a nest is a convolution with a small window in two dimensions: why it stays one is worth a word."""
    found = product(nest, kernel.dtypes)
    windows = () if found is None else (roles(nest, a, b).window for a, b in (found, found[::-1]))
    return any(len(w) == 2 and all(2 <= x.extent <= SMALL for x in w) for w in windows)


def _slide(axis: Axis, data: Load, weights: Load, nest: Nest) -> Slide:
    """How one window axis moves over the data."""
    allowed = ", ".join(map(str, TAPS[:-1])) + f" or {TAPS[-1]}"
    require(((axis.extent in TAPS, f"its window has {axis.extent} elements along an axis, not {allowed}"),))
    dims = [d for d, i in enumerate(data.index) if axis in axes_in(i)]
    form = linear(data.index[dims[0]]) if len(dims) == 1 else None
    terms = {} if form is None else dict(form.terms)
    others = [a for a in terms if a != axis]
    if len(others) != 1 or not isinstance(others[0], Axis) or others[0] in nest.reduction_axes:
        raise Unfit("its window and one output axis do not share a subscript")
    out = others[0]
    if terms[out] != 1 or abs(terms[axis]) != 1:
        raise Unfit(f"its window has steps of {terms[out]} and {abs(terms[axis])} elements, not 1")
    if sum(out in axes_in(i) for i in data.index) != 1 or list(weights.index).count(axis) != 1:
        raise Unfit("an axis of its window has several subscripts")
    if sum(axis in axes_in(i) for i in weights.index) != 1:
        raise Unfit("an axis of its window has several subscripts")
    return Slide(out, axis, dims[0], terms[axis] == 1)


def _check_guard(w: Window) -> None:
    """Raises Unfit: whether a term counts depends on more than the place in the data."""
    for part in conjuncts(w.nest.where):
        match part:
            case Apply("lt" | "le" | "gt" | "ge" | "eq", (x, y)):
                form = linear(x - y)
            case _:
                form = None
        terms = {} if form is None else dict(form.terms)
        if not terms or any(
            terms.get(s.window, 0) != terms.get(s.out, 0) * (1 if s.forwards else -1) for s in w.slides
        ):
            raise Unfit("its guard depends on more than the place in the data")
        if set(terms) - {a for s in w.slides for a in (s.out, s.window)}:
            raise Unfit("its guard depends on more than the place in the data")


def input_nest(w: Window, f: CookToom, out: str, kernel: Kernel) -> Nest:
    """The nest that transforms tiles of the data: s[a,b,t,c]."""
    a, b = Axis("a", f.size), Axis("b", f.size)
    u, v = Axis("u", f.size), Axis("v", f.size)
    tiles = w.tiles(f.outputs)
    t = Axis("t", math.prod(tiles))
    *batch, row, column = mixed_radix(t, tiles)
    mapping: dict[Expr, Expr] = dict(zip(w.batch, batch, strict=True))
    for s, tile, inner in zip(w.slides, (row, column), (u, v), strict=True):
        mapping[s.out] = tile * f.outputs + inner - (0 if s.forwards else w.taps - 1)
        mapping[s.window] = Const(0)
    load = substitute(w.data, mapping)
    assert isinstance(load, Load)
    where = None if w.nest.where is None else substitute(w.nest.where, mapping)
    for s in w.slides:  # the last tiles may reach beyond the data
        where = both(where, apply("ge", load.index[s.dim], 0))
        where = both(where, apply("lt", load.index[s.dim], kernel.tensors[load.param].shape[s.dim]))
    load = Load(load.param, tuple(simplify(i) for i in load.index))
    factors = coefficient_expr(f.input, a, u) * coefficient_expr(f.input, b, v)
    index = (a, b, t, w.channel)
    return Nest(out, index, (*index, u, v), factors * load, "add", simplify_guard(where))


def product_nest(w: Window, f: CookToom, transformed: str, weights: str, out: str) -> Nest:
    """The products of every point of the tiles: z[a,b,t,f]."""
    a, b = Axis("a", f.size), Axis("b", f.size)
    t = Axis("t", math.prod(w.tiles(f.outputs)))
    rest = tuple(i for i in w.weights.index if i not in {s.window for s in w.slides})
    left = Load(transformed, (a, b, t, w.channel))
    index = (a, b, t, w.column)
    return Nest(out, index, (*index, w.channel), left * Load(weights, (a, b, *rest)), "add")


def output_nest(w: Window, f: CookToom, products: str) -> Nest:
    """The nest that makes outputs of products: y[n,i,j,f]."""
    a, b = Axis("a", f.size), Axis("b", f.size)
    rows, columns = w.slides
    position: Expr = Const(0)
    places = (*w.batch, *(s.out // f.outputs for s in w.slides))
    for place, extent in zip(places, w.tiles(f.outputs), strict=True):
        position = position * extent + place
    first = coefficient_expr(f.output, rows.out % f.outputs, a)
    second = coefficient_expr(f.output, columns.out % f.outputs, b)
    body = first * second * Load(products, (a, b, simplify(position), w.column))
    kept = tuple(x for x in w.nest.axes if x not in w.nest.reduction_axes)
    return Nest(w.nest.out, w.nest.index, (*kept, a, b), body, "add")


def mixed_radix(number: Expr, extents: tuple[int, ...]) -> tuple[Expr, ...]:
    """The digits of a number below the product of the extents, the first most significant."""
    digits: list[Expr] = []
    step = math.prod(extents)
    for extent in extents:
        step //= extent
        digits.append(simplify(number // step % extent))
    return tuple(digits)


def weights_kernel(w: Window, f: CookToom, kernel: Kernel) -> Kernel:
    """The kernel that transforms weights which change between calls: u = G·w·Gᵀ."""
    of = kernel.tensors[w.weights.param].type
    a, b = Axis("a", f.size), Axis("b", f.size)
    inner = Axis("u", w.taps), Axis("v", w.taps)
    index: list[Expr] = [Axis(f"d{d}", n) for d, n in enumerate(of.shape)]
    for s, axis in zip(w.slides, inner, strict=True):
        index[w.weights.index.index(s.window)] = axis if s.forwards else w.taps - 1 - axis
    rest = tuple(i for i in index if isinstance(i, Axis) and i not in inner)
    factors = coefficient_expr(f.filter, a, inner[0]) * coefficient_expr(f.filter, b, inner[1])
    nest = Nest("u", (a, b, *rest), (a, b, *rest, *inner), factors * Load("w", tuple(index)), "add")
    return Kernel.canonical((Param("w", of),), (Param("u", weights_type(w, f, kernel)),), (nest,))


def weights_type(w: Window, f: CookToom, kernel: Kernel) -> Type:
    """The type of transformed weights: points, and the dimensions that are left."""
    of = kernel.tensors[w.weights.param].type
    dims = {w.weights.index.index(s.window) for s in w.slides}
    return of.with_shape((f.size, f.size, *(n for d, n in enumerate(of.shape) if d not in dims)))


def transformed(kernel: Kernel, windows: Mapping[int, tuple[Window, CookToom]]) -> Kernel:
    """The kernel with the nests at these positions as Winograd's algorithm on transformed weights.

    The parameter of each one's weights has the type of `weights_type`.
    """
    params = {p.name: p for p in kernel.params}
    locals_, nests = list(kernel.locals), list[Nest]()
    for k, nest in enumerate(kernel.nests):
        if k not in windows:
            nests.append(nest)
            continue
        w, f = windows[k]
        params[w.weights.param] = Param(w.weights.param, weights_type(w, f, kernel))
        t = math.prod(w.tiles(f.outputs))
        tiles, products = f"tiles{k}", f"products{k}"
        locals_ += [
            Param(tiles, Type(f32, (f.size, f.size, t, w.channel.extent))),
            Param(products, Type(f32, (f.size, f.size, t, w.column.extent))),
        ]
        nests.append(input_nest(w, f, tiles, kernel))
        nests.append(product_nest(w, f, tiles, w.weights.param, products))
        nests.append(output_nest(w, f, products))
    return Kernel.canonical(tuple(params.values()), kernel.results, tuple(nests), tuple(locals_))


def model_macs(kernel: Kernel) -> int:
    """Multiply-accumulates of what a kernel computes: of tiles and their transforms those of the convolution."""
    writers = {nest.out: nest for nest in kernel.nests}
    local = {p.name for p in kernel.locals}
    transforms = {nest.out for nest in kernel.nests if multiplies_constants(nest)}
    macs, done = 0, set[str]()
    for nest in kernel.nests:
        products = [writers[name] for name in nest.reads() & local if nest.out in transforms and name in writers]
        tiles = [name for p in products for name in p.reads() & local & transforms]
        if products and tiles:
            macs += _convolution_macs(nest, products[0])
            done |= {nest.out, products[0].out, *tiles}
    return macs + sum(macs_of(nest) for nest in kernel.nests if nest.out not in done)


def _convolution_macs(outputs: Nest, products: Nest) -> int:
    """Those of the convolution that a transform of products gives: points of the output, times channels and taps."""
    size = products.index[0]
    assert isinstance(size, Axis)
    points = math.prod(a.extent for a in outputs.axes if a not in outputs.reduction_axes)
    channels = math.prod(a.extent for a in products.reduction_axes)
    tiles = next(a.extent for a in products.index[2:3] if isinstance(a, Axis))
    columns = math.prod(a.extent for a in products.index[3:] if isinstance(a, Axis))
    # As many outputs in a tile as the tiles have, rounded to an algorithm that there is.
    fitting = (m for m in (2, 4, 6) if size.extent - m + 1 in TAPS and tiles * columns * m * m >= points)
    outputs_of_tile = next(fitting, 2)
    return points * channels * (size.extent - outputs_of_tile + 1) ** 2
