"""Random operands, drawn by hypothesis."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from dlc.base.types import DType, Type, f32
from dlc.graph import Constant, Input, Tensor

Shape = tuple[int, ...]
T = TypeVar("T")


@dataclass
class Draw:
    """Random operands of one example."""

    data: st.DataObject
    count: int = 0

    def pick(self, *choices: T) -> T:
        return self.data.draw(st.sampled_from(choices))

    def size(self, low: int = 1, high: int = 4) -> int:
        return self.data.draw(st.integers(low, high))

    def shape(self, low: int = 1, high: int = 4) -> Shape:
        return tuple(self.data.draw(st.lists(st.integers(1, 4), min_size=low, max_size=high)))

    def x(self, shape: Shape | None = None, dtype: DType = f32) -> Input:
        self.count += 1
        return Input(f"x{self.count}", Type(dtype, self.shape() if shape is None else shape))

    def c(self, *shape: int) -> Constant:
        values = np.random.default_rng(self.data.draw(st.integers(0, 999))).uniform(0.5, 2.0, shape)
        return Constant(Tensor.of(values.astype(np.float32)))

    def perm(self, rank: int) -> Shape:
        return tuple(self.data.draw(st.permutations(range(rank))))

    def turn(self, rank: int) -> Shape:
        """A permutation that is no identity."""
        return self.data.draw(st.permutations(range(rank)).map(tuple).filter(lambda p: p != tuple(range(rank))))
