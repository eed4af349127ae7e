"""What a register tile consists of: `dlc.kernel.schedules.tiles` writes its statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlc.base.types import DType
from dlc.kernel.expr import Axis, Expr, Load
from dlc.kernel.loops.program import Local
from dlc.kernel.nest import Nest


@dataclass(frozen=True)
class Parts:
    """Sums that wait in memory between parts of the reduction.

    Attributes:
        buffer: Where they lie, one tile row after another.
        place: Position of a tile row, in terms of the axes around tiles and of the tile's own row axis.
        finish: Nothing is left to add: followers take over.
        result: They lie in the result itself, where no element exists behind the last column.
    """

    buffer: str
    place: Expr
    finish: bool
    result: bool = False


@dataclass(frozen=True)
class Ahead:
    """What tiles fetch of the panel that comes next, while they read one: see `dlc.kernel.schedules.ahead`.

    Attributes:
        load: The operand of the columns.
        step: From an element to the same one of the next panel.
        last: The last element with which a sum may begin.
        position: The row of a panel that a tile begins with, in terms of the axes around it and of its row axis.
        rows: Rows of a panel.
        shares: Parts in which a panel is fetched, by one tile each.
    """

    load: Load
    step: Expr
    last: int
    position: Expr
    rows: int
    shares: int


@dataclass(frozen=True)
class Tile:
    """What every tile of a contraction has in common.

    Attributes:
        product: The flat nest of the reduction.
        followers: Flat element-wise nests on its result, in order.
        total: The variable that followers read the result from; None: the product's own output is stored.
        scalars: Locals that live only between followers.
        row: Axis that the tile's rows walk, or None for a single row.
        column: Axis that the vectors walk.
        reduced: Reduction axes, outermost first.
        lanes: Elements per vector.
        start: What sums start from.
        dtypes: Element types of all tensors.
        parts: Where sums wait when the reduction is cut into parts; None: it runs through.
        words: Terms that each step multiplies and adds at once; 0: one. See `dlc.kernel.schedules.words`.
        packed: Packed tensors, with the elements of a word of 32 bits.
        beside: A variable to which each step adds an expression that all columns share.
        ahead: What is fetched of the next panel meanwhile; None: nothing.
        digits: Whether blocks of terms are summed by digits of a factor. See `dlc.kernel.schedules.digit_tiles`.
    """

    product: Nest
    followers: tuple[Nest, ...]
    total: Local | None
    scalars: Mapping[str, Local]
    row: Axis | None
    column: Axis
    reduced: tuple[Axis, ...]
    lanes: int
    start: bool | int | float
    dtypes: Mapping[str, DType]
    parts: Parts | None = None
    words: int = 0
    packed: Mapping[str, int] = field(default_factory=dict[str, int])
    beside: tuple[Local, Expr] | None = None
    ahead: Ahead | None = None
    digits: bool = False

    @property
    def dtype(self) -> DType:
        """Type of the sums."""
        return self.dtypes[self.product.out]


@dataclass(frozen=True)
class Spot:
    """Where a tile lies: first row, first column, its size, and how many of its columns exist."""

    row: Expr
    column: Expr
    rows: int
    vectors: int
    columns: int


def mapping_of(t: Tile, s: Spot, r: int | Axis, column: Expr) -> dict[Expr, Expr]:
    """What a tile's axes are in its row `r`, at a column."""
    return {t.column: column} if t.row is None else {t.column: column, t.row: s.row + r}
