"""Texts in a model: every different one has a number, and a value of texts is one of their numbers.

dlc computes with numbers only. Where a model only moves texts, as the labels of classes on their way to an output, it
is read as one that moves their numbers, and the output says which texts they stand for (`Graph.labels`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from dlc.base.types import i64
from dlc.graph import Constant, Op, Tensor
from dlc.kernel.define import ShapeError
from dlc_frontend_onnx.unsupported import Unsupported

if TYPE_CHECKING:
    import onnx

MOVES: Final = frozenset(
    (
        *("ArrayFeatureExtractor", "Compress", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"),
    )
)
"""Operators that move elements and compute nothing from them."""
COMPARES: Final = frozenset(("Equal", "LabelEncoder", "OneHotEncoder"))
"""Operators whose result is the same for numbers."""


@dataclass
class Texts:
    """The texts of one model."""

    known: dict[str, int] = field(default_factory=dict[str, int])
    """Number by text, in the order in which they were met."""
    values: set[str] = field(default_factory=set[str])
    """Digests of the ops that hold numbers of texts."""
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    """Digests of ops → names of the entries along their last dimension."""

    def numbers(self, texts: Iterable[str]) -> tuple[int, ...]:
        """The numbers of texts, which are known from then on."""
        return tuple(self.known.setdefault(text, len(self.known)) for text in texts)

    def constant(self, proto: onnx.TensorProto) -> Constant:
        """A stored tensor of texts. Raises ShapeError: it has another number of them than its shape says."""
        shape = tuple(proto.dims)
        if min(shape, default=0) < 0 or len(proto.string_data) != int(np.prod(shape, dtype=np.float64)):
            raise ShapeError(f"{len(proto.string_data)} texts for a tensor of shape {list(shape)}")
        numbers = self.numbers(s.decode("utf-8", "replace") for s in proto.string_data)
        found = Constant(Tensor.of(np.array(numbers, np.int64).reshape(shape), i64), proto.name)
        self.values.add(found.digest)
        return found

    def follow(self, operator: str, operands: Sequence[Op | None], results: Sequence[Op | None]) -> None:
        """Note which results of a node are texts. Raises Unsupported: it computes with texts."""
        if not any(x is not None and x.digest in self.values for x in operands):
            return
        if operator in MOVES:
            self.values.update(x.digest for x in results if x is not None)
        elif operator not in COMPARES:
            raise Unsupported("an operand of element type string", "dlc moves and compares texts; compute with numbers")

    def labels(self, op: Op) -> tuple[str, ...]:
        """What an output stands for: all texts by their numbers, or the names of columns."""
        return tuple(self.known) if op.digest in self.values else self.columns.get(op.digest, ())
