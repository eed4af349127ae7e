"""How long a convolution takes directly and by Winograd's algorithm, in cycles, from the numbers of a machine.

    direct     multiply-adds of all register tiles, or reading the weights, whichever takes longer
    winograd   for each block of tiles: the same of the products of all points; and the transforms of data and outputs:
               their sums, loads and stores, and what is written and read between them

Two multiply-adds of vectors start in a cycle. What fits the second-level cache is read at its rate, all else at that of
what lies beyond: weights are read once per call, so they come from memory unless a block finds them where the block
before it left them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dlc.base.types import f32
from dlc.kernel.cook_toom import POINTS, CookToom, Matrix, cook_toom
from dlc.kernel.expr import Expr
from dlc.kernel.loops.program import Local
from dlc.kernel.schedules import coefficients
from dlc.kernel.schedules.heights import row_limit, rows_cycles
from dlc.kernel.schedules.machine import Machine

VECTORS = 2
"""Vectors of a register tile's row."""
ISSUED = 1.5
"""Sums, loads and stores of vectors that a transform gets done in a cycle."""
MOST_BLOCKS = 256
ALIKE = 1.001
"""Estimates that far apart are the same."""
WAITING = 0.25
"""Of the time of a block, what threads lose that share its loops one after the other."""


@dataclass(frozen=True)
class Sizes:
    """Extents of a convolution.

    Attributes:
        images: Product of the batch axes.
        height, width: Of the output.
        channels, columns: Of data and output.
        taps: Of the window in each dimension.
    """

    images: int
    height: int
    width: int
    channels: int
    columns: int
    taps: int

    @property
    def values_bytes(self) -> int:
        """What data and outputs take, those of a window's border not counted."""
        return self.images * self.height * self.width * (self.channels + self.columns) * f32.itemsize

    def weights_bytes(self, f: CookToom) -> int:
        """What transformed weights take."""
        return f.size**2 * self.channels * self.columns * f32.itemsize

    def block_bytes(self, f: CookToom, machine: Machine) -> int:
        """What the transformed data and products of a block of tiles take."""
        size = block_size(self.tiles(f.outputs), self.channels, self.columns, f, machine)
        return f.size**2 * size * (self.channels + self.columns) * f32.itemsize

    def step_bytes(self, f: CookToom, machine: Machine, constant: bool) -> int:
        """What the convolution takes, with its weights where they are not constant."""
        return self.values_bytes + self.block_bytes(f, machine) + (0 if constant else self.weights_bytes(f))

    def tiles(self, outputs: int) -> int:
        """Tiles of so many outputs in each dimension."""
        return self.images * -(-self.height // outputs) * -(-self.width // outputs)


def direct_cycles(s: Sizes, machine: Machine) -> float:
    """Cycles of the convolution as it stands."""
    rows = s.images * s.height * rows_cycles(s.width, row_limit(VECTORS, machine.registers), VECTORS)
    compute = rows * s.channels * s.taps**2 * _panels(s.columns, machine)
    return max(compute, s.taps**2 * s.channels * s.columns * f32.itemsize / machine.memory_rate)


def winograd_cycles(s: Sizes, f: CookToom, machine: Machine, constant: bool = True) -> float:
    """Cycles with F(outputs, taps) in both dimensions and the fastest size of blocks.

    Weights that are not constant are transformed first: read from and written to memory.
    """
    tiles = s.tiles(f.outputs)
    more = 0.0 if constant else (1 + s.taps**2 / f.size**2) * s.weights_bytes(f) / machine.memory_rate
    return more + _cycles(
        tiles, block_size(tiles, s.channels, s.columns, f, machine), s.channels, s.columns, f, machine
    )


@lru_cache(maxsize=1024)
def block_size(tiles: int, channels: int, columns: int, f: CookToom, machine: Machine) -> int:
    """Tiles of a block: as is fastest by the estimate, on as many threads as work at the same time.

    Of those that are as fast, the most whose transforms take no more than the data and outputs of all tiles do, or the
    least: what they take counts in the arena.
    """
    found = {
        size: _cycles(tiles, size, channels, columns, f, machine) * _part(-(-tiles // size), machine.parallelism)
        for size in _block_sizes(tiles, row_limit(VECTORS, machine.registers))
    }
    alike = [size for size, cycles in found.items() if cycles <= min(found.values()) * ALIKE]
    return max((size for size in alike if size * f.size**2 <= tiles * f.outputs**2), default=min(alike))


def _part(blocks: int, threads: int) -> float:
    """Of all blocks, what one thread does: whole blocks, or its part of each at the cost of waiting for others."""
    return min(-(-blocks // threads) / blocks, 1 / threads + WAITING) if threads > 1 else 1.0


def _block_sizes(tiles: int, unit: int) -> Iterator[int]:
    """Equal blocks, as they are and as whole register tiles, the largest first."""
    for blocks in range(1, min(tiles, MOST_BLOCKS) + 1):
        size = -(-tiles // blocks)
        yield size
        if size > unit:
            yield min(-(-size // unit) * unit, tiles)


def _cycles(tiles: int, size: int, channels: int, columns: int, f: CookToom, machine: Machine) -> float:
    points = f.size**2
    item = f32.itemsize
    blocks = -(-tiles // size)
    compute = (
        points
        * channels
        * _panels(columns, machine)
        * rows_cycles(size, row_limit(VECTORS, machine.registers), VECTORS)
    )
    weights = points * channels * columns * item
    between = points * size * (channels + columns) * item
    stays = weights + between <= machine.l2
    near, far = machine.l2_rate, machine.memory_rate
    products = max(compute, weights / far) + (blocks - 1) * max(compute, weights / (near if stays else far))
    moved = 2 * points * tiles * (channels + columns) * item / (near if between <= machine.l2 else far)
    return products + moved + tiles * _transform_cycles(channels, columns, f, machine)


def _panels(columns: int, machine: Machine) -> int:
    return -(-columns // (VECTORS * machine.lanes(f32.itemsize)))


def _transform_cycles(channels: int, columns: int, f: CookToom, machine: Machine) -> float:
    """Of one tile: its data and its outputs."""
    lanes = machine.lanes(f32.itemsize)
    into = f.size**2 * 2 + sums(f.input) * 2 * f.size
    back = f.size**2 + f.outputs**2 + sums(f.output) * (f.size + f.outputs)
    return (into * -(-channels // lanes) + back * -(-columns // lanes)) / ISSUED


@lru_cache
def sums(matrix: Matrix) -> int:
    """Variables that a product with a matrix takes, sums that are shared counted once."""
    made = list[Expr]()

    def name(e: Expr) -> Expr:
        made.append(e)
        return Local(f"x{len(made)}", f32)

    coefficients.product(matrix, [Local(f"y{k}", f32) for k in range(len(matrix[0]))], name)
    return len(made)


def algorithms(taps: int) -> tuple[CookToom, ...]:
    """What there is to choose from.

    F(6x6,3x3) was measured too: 1.04 to 1.23 times as fast as F(4x4,3x3) for 24x24 and 28x28 outputs, slower for other
    sizes, with 1.8 times its weights and twice its errors.
    """
    return tuple(cook_toom(outputs, taps) for outputs in (2, 4) if outputs + taps <= len(POINTS) + 2)
