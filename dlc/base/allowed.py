"""`Allowed`: what the integers of an input may be, because something is chosen by them: rows of a table, classes, or
the shape of a result that the program is compiled for.

    index -10..9                    every element is a subscript of 10 rows, from either end
    label 0..4|-100                 a class, or -100 for what does not count
    index [0:2,0:1]-10..9;…         boxes of elements (start:stop per dimension), with what those in it may be
    shape [0:1]2..2;[1:2]-1..-1|3..3    the sizes 2 and 3, which the model declares for a result; -1 stands for 3
    size 1..64                      the size of a dimension

Elements in no box may be anything. The text stands in graphs, the JSON in manifests; both are read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np

from dlc.base.diagnostics import ExitCode, Location, error, quote
from dlc.base.extents import capacity
from dlc.base.polynomials import Symbol
from dlc.base.types import Array, Type

Interval: TypeAlias = tuple[int, int]
Intervals: TypeAlias = tuple[Interval, ...]
"""(low, high), both included; ascending, none with a value of another."""
What = Literal["index", "label", "shape", "size"]


@dataclass(frozen=True)
class _Words:
    """How messages speak of a kind of restriction."""

    noun: str
    """What the elements are, many of them."""
    code: str
    refusal: str
    help: str
    besides: str = ""
    """After sets of values other than the largest."""


_WORDS: Final[Mapping[str, _Words]] = {
    "index": _Words(
        "indices",
        "bad-index",
        "is out of range: indices are",
        "dlc show prints the valid values of every input; nothing has changed",
    ),
    "label": _Words(
        "labels",
        "bad-label",
        "is not a valid label: labels are",
        "number classes from 0; nothing has changed",
        " for what does not count",
    ),
    "shape": _Words(
        "values for the declared shape",
        "other-shape",
        "leads to another shape than the model declares, for which the program is compiled: possible are",
        "export the model with another declared shape, or with this value as a constant; nothing has changed",
    ),
    "size": _Words(
        "sizes",
        "other-size",
        "is outside of what the program is built for: sizes are",
        "build the model with other bounds: --dim NAME=LOW..HIGH; nothing has changed",
    ),
}
_PART = re.compile(r"(?:\[(\d+:\d+(?:,\d+:\d+)*)\])?(-?\d+\.\.-?\d+(?:\|-?\d+\.\.-?\d+)*)")


@dataclass(frozen=True)
class Part:
    """What the elements of a box may be."""

    intervals: Intervals
    box: tuple[Interval, ...] = ()
    """Start and stop of every dimension; () is all there is."""

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as numpy's subscripts."""
        return tuple(slice(start, stop) for start, stop in self.box)

    def words(self, what: What) -> str:
        """`-10 to 9`; `0 to 4, or -100 for what does not count`; `3, or -1`."""
        first, *others = sorted(self.intervals, key=lambda i: -i[1] if what == "shape" else i[0] - i[1])
        besides = _WORDS[what].besides
        return ", or ".join([_words(first), *(f"{_words(i)}{besides}" for i in others)])

    def wrong(self, values: Array) -> Array | None:
        """Which of these are not allowed: bool, of their shape; None where all are, which is found first."""
        if not values.size:
            return None
        # A size is one number, and numpy takes longer for its least than for all else of a call.
        least, largest = (values.min(), values.max()) if values.size > 1 else (values.item(),) * 2
        if any(low <= least and largest <= high for low, high in self.intervals):
            return None
        found = np.ones(values.shape, np.bool_)
        for low, high in self.intervals:
            found &= ~((values >= low) & (values <= high))  # NaN lies nowhere
        return found if found.any() else None


@dataclass(frozen=True)
class Allowed:
    """What the elements of an input may be."""

    parts: tuple[Part, ...]
    what: What = "index"

    @cached_property
    def text(self) -> str:
        """See the head of this module."""
        return f"{self.what} {';'.join(map(_part_text, self.parts))}"

    @property
    def words(self) -> str:
        """For people: `-10 to 9`, with the box behind it where it is not all."""
        boxes = (f" at [{', '.join(f'{a}:{b}' for a, b in p.box)}]" if p.box else "" for p in self.parts)
        return "; ".join(f"{p.words(self.what)}{box}" for p, box in zip(self.parts, boxes, strict=True))

    @property
    def whole(self) -> Part | None:
        """What every element may be, where that is one set for all."""
        return self.parts[0] if len(self.parts) == 1 and not self.parts[0].box else None

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str) -> Allowed:
        """The inverse of `text`. Raises ValueError."""
        what, _, rest = text.partition(" ")
        if what not in _WORDS:
            raise ValueError(f"{text!r} is of neither {', '.join(_WORDS)}")
        return cls(tuple(_parsed(part) for part in rest.split(";")), cast("What", what))

    @property
    def json(self) -> dict[str, Any]:
        """{"what": "index", "parts": [{"intervals": [[-10, 9]], "box": [[0, 2], [0, 1]]}]}; no box: all."""
        parts = [{"intervals": p.intervals, **({"box": p.box} if p.box else {})} for p in self.parts]
        return {"what": self.what, "parts": parts}

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Allowed:
        """The inverse of `json`; raises what wrong types raise."""
        parts = tuple(Part(_intervals(p["intervals"]), _intervals(p.get("box", ()))) for p in value["parts"])
        return cls.parse(cls(parts, value["what"]).text)

    def fits(self, of: Type) -> bool:
        """Whether an input of this type can be restricted so."""
        boxes = [p.box for p in self.parts if p.box]
        inside = all(
            len(box) == of.rank and all(0 <= a < b <= n for (a, b), n in zip(box, of.shape, strict=True))
            for box in boxes
        )
        return inside and (of.dtype.is_integer or (of.dtype.is_float and self.what == "shape"))

    def wrong(self, array: Array) -> tuple[tuple[int, ...], Part] | None:
        """Where the first element lies that is not allowed, and what it may be; None: all are."""
        for part in self.parts:
            bad = part.wrong(array[part.slices] if part.box else array)
            if bad is not None:
                place = np.unravel_index(int(np.argmax(bad)), bad.shape)
                starts = [start for start, _ in part.box] or [0] * bad.ndim
                return tuple(int(k) + start for k, start in zip(place, starts, strict=True)), part
        return None

    def refusal(self, part: Part) -> tuple[str, str]:
        """(code, `is out of range: indices are -10 to 9`) for an element of a part."""
        words = _WORDS[self.what]
        return words.code, f"{words.refusal} {part.words(self.what)}"

    @property
    def noun(self) -> str:
        """What the elements are, for people: indices, labels."""
        return _WORDS[self.what].noun

    def check(self, name: str, array: Array, location: Location | None = None) -> None:
        """Raises DlcError (USAGE): an element of this input is not allowed; names it, and what it may be."""
        if (found := self.wrong(array)) is None:
            return
        place, part = found
        code, words = self.refusal(part)
        raise error(
            code,
            f"{quote(name)}: {array[place]} at [{','.join(map(str, place))}] {words}",
            location=location,
            help=_WORDS[self.what].help,
            exit_code=ExitCode.USAGE,
        )

    def draw(self, generator: np.random.Generator, of: Type) -> Array:
        """Random elements that are allowed, of this type; what may be anything is 0 or 1."""
        found = np.asarray(generator.integers(0, 2, of.shape))
        for part in self.parts:
            # Of several ways to state a shape the plain one: not -1, which may stand only once.
            widest = part.intervals[-1] if self.what == "shape" else max(part.intervals, key=lambda i: i[1] - i[0])
            low, high = widest
            view = found[part.slices] if part.box else found
            # Values that are not the largest set, such as the label that does not count, would say nothing of the rest.
            view[...] = generator.integers(low, high, view.shape, endpoint=True)
        return found.astype(of.dtype.numpy)


def check_found(of: Symbol, found: int) -> None:
    """Raises DlcError (USAGE, `other-shape`): what a call computed for a size is none that the program has room for."""
    if of.least <= found <= of.most:
        return
    wanted = str(of.least) if of.low == of.high else of.sizes
    raise error(
        "other-shape",
        f"{quote(of.name)} is {found} for these inputs: the program is compiled for {wanted}",
        help="export the model with another declared shape, or with the inputs that decide it as constants",
        exit_code=ExitCode.USAGE,
    )


_ENDLESS: Final = (1 << 63) - 1


def everywhere(intervals: Intervals, what: What = "index") -> Allowed:
    """The same for all elements."""
    return Allowed((Part(intervals),), what)


def subscripts(extent: int) -> Intervals:
    """What a subscript may be of so many rows, of an open size at most: counted from the front, or from the end."""
    return ((-capacity(extent), capacity(extent) - 1),)


def classes(count: int, ignore: int | None = None) -> Intervals:
    """Labels of so many classes, and one more of what does not count."""
    own = ((0, count - 1),) if count else ()
    return own if ignore is None else union((*own, (ignore, ignore)))


def union(intervals: Iterable[Interval]) -> Intervals:
    """All that lies in one of them, those that overlap as one."""
    return _merged(intervals, 0)


def joined(intervals: Iterable[Interval]) -> Intervals:
    """As `union`, and those that touch each other as one."""
    return _merged(intervals, 1)


def _merged(intervals: Iterable[Interval], gap: int) -> Intervals:
    found: list[Interval] = []
    for low, high in sorted(i for i in intervals if i[0] <= i[1]):
        if found and low < found[-1][1] + 1 + gap:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def common(a: Intervals, b: Intervals) -> Intervals:
    """What lies in both."""
    return union((max(x[0], y[0]), min(x[1], y[1])) for x in a for y in b)


def _words(interval: Interval) -> str:
    low, high = interval
    if high == _ENDLESS:
        return f"at least {low}"
    return f"at most {high}" if low == -_ENDLESS - 1 else f"{low} to {high}" if low < high else str(low)


def _part_text(part: Part) -> str:
    box = f"[{','.join(f'{a}:{b}' for a, b in part.box)}]" if part.box else ""
    return box + "|".join(f"{low}..{high}" for low, high in part.intervals)


def _parsed(text: str) -> Part:
    if (found := _PART.fullmatch(text)) is None:
        raise ValueError(f"{text!r} does not say what integers may be: -10..9, [0:2,0:1]0..4|-100..-100")
    box = (pair.split(":") for pair in found[1].split(",")) if found[1] else ()
    intervals = _intervals(pair.split("..") for pair in found[2].split("|"))
    if union(intervals) != intervals:
        raise ValueError(f"{text!r}: intervals ascend and do not overlap")
    return Part(intervals, _intervals(box))


def _intervals(pairs: Iterable[Sequence[Any]]) -> Intervals:
    return tuple((int(a), int(b)) for a, b in pairs)


@dataclass(frozen=True)
class Demand:
    """What an op says of an operand whose elements choose something."""

    intervals: tuple[Intervals, ...]
    """One for all elements, or one for each place along the last dimension."""
    what: What = "index"

    @classmethod
    def rows(cls, *extents: int) -> Demand:
        """Subscripts of so many rows, counted from either end; of the largest size that a dimension may have."""
        return cls(tuple(map(subscripts, extents)))

    @classmethod
    def labels(cls, count: int, ignore: int | None = None) -> Demand:
        """Numbers of classes, of the largest size that their dimension may have."""
        return cls((classes(capacity(count), ignore),), "label")
