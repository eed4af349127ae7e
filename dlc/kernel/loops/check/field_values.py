"""Values of the expressions of loops in the arithmetic of `residues`, some of which are not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dlc.base.types import Array, DType
from dlc.kernel.expr import Apply, Expr, Load
from dlc.kernel.loops.check.digits import added_up
from dlc.kernel.loops.check.modular import reduced
from dlc.kernel.loops.check.residues import Field, Unknowable
from dlc.kernel.loops.memory import Batch
from dlc.kernel.loops.program import Dots, Words
from dlc.kernel.loops.values import Tensors, Values


@dataclass
class Marks:
    """What a program is run with, beside its tensors.

    Attributes:
        field: Its arithmetic.
        digits: Buffers of digits of numbers, which are kept as residues.
        digit_words: Variable with a word of digits → the buffer that it was read from.
        left_out: Whether iterations were left out so far: what they write is not known.
    """

    field: Field
    digits: frozenset[str]
    digit_words: Mapping[str, str]
    left_out: bool = False


class FieldValues(Values):
    """Values of which some are not known, once iterations were left out."""

    def __init__(self, tensors: Tensors, marks: Marks, batch: Batch, active: Array | None) -> None:
        """At the active points of a batch."""
        super().__init__(tensors, batch, active)
        self._marks = marks

    def leaf(self, e: Expr) -> Array:
        """A word of digits is where they lie; the sum of its products is that of residues."""
        match e:
            case Words(Load(name, (place,))) if name in self._marks.digits:
                self._read(name, place, e.span(1))
                return self.index(place).astype(np.int32)
            case Dots(a, b) if b.name in self._marks.digit_words:
                digits = self._tensors.memory.tensors[self._marks.digit_words[b.name]]
                return added_up(self.leaf(a), digits, self.leaf(b))
            case _:
                return super().leaf(e)

    def applied(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> Array:
        """Sums of products of digits stay residues."""
        found = super().applied(fn, args, like)
        if fn == "add" and isinstance(args[1], Dots) and args[1].b.name in self._marks.digit_words:
            return reduced(found.astype(np.float64)).astype(np.int32)
        return found

    def select(self, args: tuple[Expr, ...], like: DType | None) -> Array:
        """What an unknown condition chooses is unknown."""
        unknown = self._unknown(args[0])
        if unknown is None or not unknown.any():
            return super().select(args, like)
        with self._marks.field.guessing():
            self.value(args[0], None)
        found = super().select(args, like)
        if found.dtype.kind != "f":
            raise Unknowable
        return np.where(unknown, np.nan, found)

    def _unknown(self, condition: Expr) -> Array | None:
        """Where a condition depends on what is not known; None: nowhere."""
        if not self._marks.left_out or not isinstance(condition, Apply):
            return None
        if condition.fn in ("and", "or"):
            return self._unknown_of_two(condition)
        found: Array | None = None
        for a in condition.args:
            dtype = self.dtype(a)
            here = np.isnan(self.value(a, None)) if dtype is not None and dtype.is_float else self._unknown(a)
            found = here if found is None else found if here is None else found | here
        return found

    def _unknown_of_two(self, condition: Apply) -> Array | None:
        """The second condition is looked at where the first does not decide."""
        first, second = condition.args
        found = self._unknown(first)
        with self._marks.field.guessing():
            holds = np.broadcast_to(self.matrix(self.value(first, None)), (self.rows, 1))[:, 0]
        asked = holds if condition.fn == "and" else ~holds
        if found is not None:
            asked = asked | np.broadcast_to(found, (self.rows, 1))[:, 0]
        if not asked.any():
            return found
        here = FieldValues(self._tensors, self._marks, self.batch, self.points[asked])._unknown(second)
        if here is None:
            return found
        whole = np.zeros((self.rows, 1), bool)
        whole[asked] = here
        return whole if found is None else found | whole
