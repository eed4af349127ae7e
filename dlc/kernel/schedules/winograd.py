"""Tiles are transformed, multiplied and transformed back, a block of them at a time, so that a block stays in a cache.

    for blocks of tiles:
        for tiles, channels:   s = B·x·Bᵀ             straight-line sums of vectors
        for points:            z = s·w                register tiles, as any contraction
        for tiles, columns:    y = A·z·Aᵀ, followers  straight-line sums of vectors, stored once

A tile at the border of the data is gathered into a patch first, zeros where there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count, product
from typing import Self

from dlc.base.types import Type, f32
from dlc.kernel.cook_toom import cook_toom
from dlc.kernel.expr import Axis, Const, Expr, Load, apply, both
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Buffer, For, If, Lanes, Local, Stmt, Store, loop
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.contraction import Tiles
from dlc.kernel.schedules.flat import at, flat_expr
from dlc.kernel.schedules.groups import single
from dlc.kernel.schedules.lanes import vectorise
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.tile import Tile
from dlc.kernel.schedules.tiles import element, scalar_element
from dlc.kernel.schedules.transform_loops import Vectors, column_loop, lanes_along, row_loop
from dlc.kernel.schedules.transformed import Transformed, places
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.schedules.winograd_estimate import block_size
from dlc.kernel.simplify import conjuncts, simplify, simplify_guard
from dlc.spec import option

ROWS = 3
"""Rows of transformed data that are written out one after another: gcc does not by itself, and a loop takes time."""


@dataclass(frozen=True)
class Winograd(Choice):
    """Tiles transformed, multiplied point by point and transformed back, a block at a time."""

    name = "winograd"
    block: int = option(0, "tiles that are transformed at a time", low=0)

    @classmethod
    def candidates(cls, place: Place) -> Iterator[Self]:
        if place.transformed is None:
            raise Unfit("it does not transform tiles")
        yield cls()

    def apply(self, place: Place) -> Applied:
        found, machine = place.transformed, place.machine
        if found is None:
            raise Unfit("it does not transform tiles")
        conditions = (
            (not machine.ordered, "sums keep the order of their axes"),
            (machine.vector_bytes >= 16, f"vectors have {machine.vector_bytes} bytes, tiles need 16"),
            (not {*found.inside, found.output.nest.out} & place.written, "its sums have a value before"),
            (all(place.kernel.dtypes[n] is f32 for x in found.nests for n in (x.out, *x.reads())), "it is not in f32"),
        )
        require(conditions)
        size = min(self.block or fastest_block(found, machine), found.tile.extent)
        writer = _Writer(place, found, size)
        return Applied(replace(self, block=size), writer.body(), tuple(writer.buffers))


def fastest_block(t: Transformed, machine: Machine) -> int:
    """Tiles of a block: as is fastest by the estimate."""
    points, outputs = len(t.input.rows), len(t.output.rows)
    f = cook_toom(outputs, points - outputs + 1)
    return block_size(t.tile.extent, t.channel.extent, t.column.extent, f, machine)


@dataclass
class _Writer:
    """Writes the loops of one group; `size` tiles are a block."""

    place: Place
    found: Transformed
    size: int
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    fresh: Iterator[int] = field(default_factory=count)

    def body(self) -> tuple[Stmt, ...]:
        """The loops over blocks."""
        tiles = self.found.tile.extent
        if self.size >= tiles:
            return self._block(Const(0), Const(tiles))
        start = Axis("wb", tiles)
        body = self._block(start, apply("min", start + self.size, tiles))
        return (For(start, Const(0), Const(tiles), body, self.size),)

    def _block(self, start: Expr, stop: Expr) -> tuple[Stmt, ...]:
        """The tiles from `start` to before `stop`."""
        t = self.found
        points = len(t.input.rows) * len(t.input.columns)
        lanes = [lanes_along(a.extent, self.place.machine) for a in (t.channel, t.column)]
        # Planes of points that are a power of two apart would share a few lines of the cache.
        plane = self.size * t.channel.extent + lanes[0]
        source = self._buffer("tiles", points * plane)
        target = self._buffer("products", points * self.size * t.column.extent)
        forward = self._forward(source, plane, lanes[0], start, stop)
        return (*forward, *self._multiply(source, plane, target), *self._backward(target, lanes[1], start, stop))

    def _buffer(self, name: str, elements: int) -> str:
        found = buffer(f"{name}{self.place.number}", Type(f32, (elements,)))
        self.buffers.append(found)
        return found.name

    # ---- data ----
    def _forward(self, out: str, plane: int, lanes: int, start: Expr, stop: Expr) -> tuple[Stmt, ...]:
        """The transformed data of a block."""
        t, kernel = self.found.input, self.place.kernel
        tile, channel = t.nest.index[2:]
        channels = self.found.channel.extent
        load = flat_expr(t.load, kernel.tensors)
        number, column = Axis("wt", self.found.tile.extent), Axis("wc", channels)
        height, width = (x.extent for x in t.inner)
        place = simplify((number - start) * channels + column)

        def element_at(u: Expr, v: Expr) -> Expr:
            lane = Axis("lane", lanes)
            mapping: dict[Expr, Expr] = {tile: number, channel: column + lane, t.inner[0]: u, t.inner[1]: v}
            value = vectorise(load, mapping, lane, kernel.dtypes, f32)
            if not isinstance(value, Lanes):
                raise Unfit("the channels of what it reads are not contiguous")
            return value

        def store(i: Axis, j: int, value: Expr) -> tuple[Stmt, ...]:
            return (Store(out, simplify(place + (i * len(t.columns) + j) * plane), value, lanes),)

        half, vector = self._buffer("half", len(t.rows) * width * lanes), Vectors(self.fresh, lanes)
        where = t.nest.where
        second = row_loop(t, half, store, vector, unroll=ROWS)
        first: Stmt = column_loop(t, half, element_at, vector)
        if where is not None:
            patch = self._buffer("patch", height * width * lanes)
            u, v = Axis("wu", height), Axis("wv", width)
            spot = (u * width + v) * lanes
            gathered = If(
                at(where, {tile: number, t.inner[0]: u, t.inner[1]: v}),
                (Store(patch, spot, element_at(u, v), lanes),),
                (Store(patch, spot, Const(0.0), lanes),),
            )
            # Tiles of the border are few.
            patches = replace(loop(u, replace(loop(v, gathered), unroll=1)), unroll=1)

            def patch_at(u: Expr, v: Expr) -> Expr:
                return Lanes(Load(patch, ((u * width + v) * lanes,)), lanes)

            patched = column_loop(t, half, patch_at, vector, unroll=1)
            first = If(_everywhere(where, {tile: number}, t.inner), (first,), (patches, patched))
        body = For(column, Const(0), Const(channels), (first, second), lanes)
        parts: list[Stmt] = [For(number, start, stop, (body,), apart=True)]
        # Rows that the last block lacks are multiplied with the others.
        if self.found.tile.extent % self.size:
            point, row = Axis("wp", len(t.rows) * len(t.columns)), Axis("wr", self.size)
            zero = Store(out, simplify(point * plane + row * channels + column), Const(0.0), lanes)
            columns = For(column, Const(0), Const(channels), (zero,), lanes)
            parts.append(loop(point, For(row, simplify(stop - start), Const(self.size), (columns,))))
        return tuple(parts)

    # ---- products ----
    def _multiply(self, source: str, plane: int, target: str) -> tuple[Stmt, ...]:
        """The products of a block, as a contraction of its own."""
        t, kernel, machine = self.found, self.place.kernel, self.place.machine
        points, channel, column = t.product.index[:2], t.channel, t.column
        sizes = len(t.input.rows), len(t.input.columns)
        row = Axis(t.tile.name, self.size)
        data = Param(source, Type(f32, (*sizes, plane)))
        result = Param(target, Type(f32, (*sizes, self.size, column.extent)))
        axes = tuple(row if a == t.tile else a for a in t.product.axes)
        body = data[(*points, row * channel.extent + channel)] * t.weights
        sums = Nest(target, (*points, row, column), axes, body, "add")
        of = Kernel((data, kernel.tensors[t.weights.param]), (result,), (), (sums,))
        products = _products(of, machine, self.place.number)
        self.buffers += products.buffers
        return products.body

    # ---- results ----
    def _backward(self, source: str, lanes: int, start: Expr, stop: Expr) -> tuple[Stmt, ...]:
        """The outputs of a block, and what follows on each."""
        t, found, kernel = self.found.output, self.found, self.place.kernel
        scope = open_scope(found.group, kernel, found.group.shared)
        first, *followers = scope.nests
        guards = any(n.where is not None for n in followers)
        column = t.load.index[3]
        assert isinstance(column, Axis)
        tile = Tile(
            first,
            tuple(followers),
            scope.scalars.get(first.out),
            scope.scalars,
            None,
            column,
            (),
            lanes,
            0.0,
            kernel.dtypes,
        )
        number, vector = Axis("wt", found.tile.extent), Axis("wc", column.extent)
        lane = Axis("lane", lanes)
        points = len(t.columns[0])
        place = simplify((number - start) * column.extent + vector)

        def product_at(a: Expr, b: Expr) -> Expr:
            spot = place + (a * points + b) * (self.size * column.extent)
            return Lanes(Load(source, (simplify(spot),)), lanes)

        outputs: list[str] = []

        def one_by_one(mapping: Mapping[Expr, Expr], value: Expr) -> list[Stmt]:
            if not outputs:
                outputs.append(self._buffer("outputs", lanes))
            single = Axis("wo", lanes)
            scalar = scalar_element(tile, {**mapping, column: vector + single}, Load(outputs[0], (single,)))
            return [Store(outputs[0], Const(0), value, lanes), loop(single, *scalar)]

        def store(i: Axis, j: int, value: Expr) -> tuple[Stmt, ...]:
            mapping: dict[Expr, Expr] = {**places(found, number, (i, Const(j))), column: vector + lane}
            assert isinstance(value, Local)
            stores = None if guards else element(tile, mapping, value, f"w{j}", lane)
            if stores is None:
                stores = one_by_one(mapping, value)
            exists: Expr | None = None
            for digit in found.digits[-2:]:
                exists = both(exists, apply("lt", mapping[digit.axis], digit.axis.extent))
            guard = simplify_guard(exists)
            return tuple(stores) if guard is None else (If(guard, tuple(stores)),)

        half, vectors = self._buffer("halfback", len(t.rows) * points * lanes), Vectors(self.fresh, lanes)
        body = column_loop(t, half, product_at, vectors), row_loop(t, half, store, vectors)
        vectors_of = For(vector, Const(0), Const(column.extent), body, lanes)
        return (For(number, start, stop, (vectors_of,), apart=True),)


@lru_cache(maxsize=64)  # the same for who asks whether there are loops, and then for the loops
def _products(kernel: Kernel, machine: Machine, number: int) -> Applied:
    """The only nest of a kernel in register tiles."""
    group = single(kernel.nests[0])
    place = Place(group, kernel, machine, frozenset(), number, open_scope(group, kernel))
    problem = Unfit("no vector fits its products")
    for choice in Tiles.candidates(place):
        try:
            return choice.apply(place)
        except Unfit as found:
            problem = found
    raise problem


def _everywhere(where: Expr, mapping: Mapping[Expr, Expr], inner: tuple[Axis, Axis]) -> Expr:
    """Whether a guard that is linear in two axes holds for all their values: it does if it holds at the corners."""
    found: Expr | None = None
    for part in conjuncts(where):
        for ends in product(*((0, x.extent - 1) for x in inner)):
            corner = {**mapping, **{x: Const(e) for x, e in zip(inner, ends, strict=True)}}
            found = both(found, at(part, corner))
    guard = simplify_guard(found)
    return Const(True) if guard is None else guard
