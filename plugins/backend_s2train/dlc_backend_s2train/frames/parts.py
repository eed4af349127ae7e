"""What the array takes in one go: cuts of an operator.

`Ways` is an operator along one axis as parts that the array has, each a line of the plane and a line of the kernel:

    forward          y[j]  += x[j·s + m·d - before]·w[m]
    backward         dx[j] += dy[(j + before - (k - 1 - m)·d) / s]·w[k - 1 - m]
    weight gradient  dw[m] += x[j·s + m·d - before]·dy[j]

for input i, output j, kernel k, stride s, dilation d, and m in the part. Source: sections 3.3 to 3.7 and 6.4 of the
S2Train compiler's published encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from dlc.base.diagnostics import error
from dlc_backend_s2train.codes import Stage

BLOCK: Final = 3
"""Size of the array's kernels, beside 1."""
STRIDES: Final = (1, 2)
"""Of the array's kernels of 3 x 3."""
STRIP: Final = 16
"""Columns of a kernel in the weight gradient's mode, and outputs of a column in a linear layer's."""
_PARTS_LIMIT: Final = 1 << 12
"""Parts along one axis; a kernel or map that needs more is none."""


@dataclass(frozen=True)
class Index:
    """Positions along an axis of a tensor: element i is that at (begin + step·i) / zoom, or a zero.

    It is a zero where the division leaves a rest, and outside 0 to `limit`.
    """

    begin: int
    step: int
    count: int
    limit: int
    zoom: int = 1

    def part(self, begin: int, end: int) -> Index:
        """Elements `begin` to before `end`."""
        return replace(self, begin=self.begin + self.step * begin, count=end - begin)


@dataclass(frozen=True)
class Cuts:
    """`extent` elements cut in parts of `length` that overlap; the last one may be shorter."""

    extent: int
    length: int
    overlap: int = 0

    def __len__(self) -> int:
        """Number of parts."""
        return max(-(-(self.extent - self.overlap) // (self.length - self.overlap)), 0)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(begin, end) of each part."""
        for begin in range(0, max(self.extent - self.overlap, 0), self.length - self.overlap):
            yield begin, min(begin + self.length, self.extent)

    def runs(self) -> tuple[tuple[int, int], ...]:
        """(parts, their length), for the parts of full length and the last."""
        if not (count := len(self)):
            return ()
        return (count - 1, self.length), (1, self.extent - (count - 1) * (self.length - self.overlap))


@dataclass(frozen=True)
class Part:
    """Along one axis: positions of the plane, and positions of the kernel that go over them."""

    plane: Index
    kernel: Index
    result: int = 0
    """First row or column of the result that this part adds to; only weight gradients have several."""


def array_strides(k: int, s: int, d: int) -> frozenset[int]:
    """The array's strides with which an axis of k taps, stride s and dilation d can be run.

    The loader sends every d-th sample only, on which the stride is s / d; of a single tap, any that a stride of the
    array leaves.
    """
    return frozenset(q for q in STRIDES if (s % q == 0 if k == 1 else s == q * d))


@dataclass(frozen=True)
class Axis:
    """Input and output size, kernel, stride, dilation, and pads before and behind."""

    i: int
    o: int
    k: int
    s: int
    d: int
    before: int
    behind: int


@dataclass(frozen=True)
class Ways:
    """How both axes are decomposed."""

    stage: Stage
    exact: bool
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def point(self) -> bool:
        """Whether the kernel is 1 x 1."""
        return self.kernel == (1, 1)

    @property
    def on_grid(self) -> int:
        """The array's stride on samples that lie a dilation apart; 0 where there is none for both axes."""
        axes = zip(self.kernel, self.stride, self.dilation, strict=True)
        both = frozenset(STRIDES).intersection(*(array_strides(*axis) for axis in axes))
        return 0 if self.point or self.stage is Stage.BACKWARD else max(both, default=0)

    @property
    def taps(self) -> bool:
        """Whether each tap of the kernel is a kernel of 1 x 1."""
        if self.on_grid:
            return False
        strided = self.stage is Stage.FORWARD and self.stride not in ((1, 1), (2, 2))
        return self.point or self.dilation != (1, 1) or strided

    @property
    def paired(self) -> bool:
        """Whether the array works with stride 2."""
        return self.stage is Stage.FORWARD and self.on_grid == 2

    def _apart(self, a: Axis) -> tuple[int, int]:
        """(samples from one that is sent to the next, the stride on those)."""
        return (a.s // self.on_grid, self.on_grid) if self.on_grid else (1, a.s)

    def parts(self, a: Axis) -> tuple[Part, ...]:
        """The parts of an axis."""
        size = STRIP if self.stage is Stage.WEIGHT_GRADIENT else BLOCK
        starts = range(0, a.k, 1 if self.taps else size)
        if len(starts) > _PARTS_LIMIT:
            unframed("too-large", f"a kernel of {a.k} elements needs {len(starts)} smaller ones along one axis")
        make = {
            Stage.FORWARD: self._forward,
            Stage.BACKWARD: self._backward,
            Stage.WEIGHT_GRADIENT: self._gradient,
        }[self.stage]
        return tuple(make(a, at) for at in starts)

    def _forward(self, a: Axis, at: int) -> Part:
        """y[j] += x[j·s + m·d - before]·w[m] for m in the part that begins `at`."""
        if self.taps:
            return Part(Index(at * a.d - a.before, a.s, a.o, a.i), Index(at, 1, 1, a.k))
        apart, stride = self._apart(a)
        count = (a.o - 1) * stride + BLOCK
        if not self.exact and a.k <= BLOCK and apart == 1:
            count = max(a.i + a.before + a.behind + BLOCK - a.k, count)
        return Part(Index(at * apart - a.before, apart, count, a.i), Index(at, 1, BLOCK, a.k))

    def _backward(self, a: Axis, at: int) -> Part:
        """dx[j] += dy[(j + before - (k - 1 - m)·d) / s]·w[k - 1 - m]."""
        if self.point:
            # Of a 1 x 1 kernel the results lie a stride apart; the store puts them there.
            begin, end = max(-(-a.before // a.s), 0), min((a.i - 1 + a.before) // a.s + 1, a.o)
            return Part(Index(begin, 1, max(end - begin, 0), a.o), Index(0, 1, 1, 1))
        begin = at * a.d + a.before - (a.k - 1) * a.d
        if self.taps:
            return Part(Index(begin, 1, a.i, a.o, a.s), Index(a.k - 1 - at, -1, 1, a.k))
        count = a.i + BLOCK - 1
        if not self.exact and a.k <= BLOCK:
            dilated = (a.o - 1) * a.s + 1
            begin, count = 1 - a.k, dilated + a.k - 1 + max(BLOCK - 1, a.i + a.before - dilated)
        return Part(Index(begin, 1, count, a.o, a.s), Index(a.k - 1 - at, -1, BLOCK, a.k))

    def _gradient(self, a: Axis, at: int) -> Part:
        """dw[m] += x[j·s + m·d - before]·dy[j]."""
        if self.taps:
            return Part(Index(at * a.d - a.before, a.s, a.o, a.i), Index(0, 1, a.o, a.o), at)
        apart, stride = self._apart(a)
        dilated = (a.o - 1) * stride + 1
        results = min(a.k - at, STRIP)
        plane = Index(at * apart - a.before, apart, dilated + results - 1, a.i)
        return Part(plane, Index(0, 1, dilated, a.o, stride), at)


def strips(parts: tuple[Part, ...], length: int) -> tuple[Part, ...]:
    """Parts whose kernels are cut to `length`, the planes with them."""
    if sum(-(-part.kernel.count // length) for part in parts) > _PARTS_LIMIT:
        unframed("too-large", f"a map of {parts[0].kernel.count} rows or columns needs too many strips of {length}")
    found: list[Part] = []
    for part in parts:
        shared = part.plane.count - part.kernel.count
        for begin, end in Cuts(part.kernel.count, length):
            found.append(Part(part.plane.part(begin, end + shared), part.kernel.part(begin, end), part.result))
    return tuple(found)


def unframed(code: str, message: str) -> NoReturn:
    """Raise the error of a geometry that has no frames."""
    help = "compile the model again; if dlc made this program, that is a defect of dlc"
    raise error(code, f"frames: {message}", help=help)
