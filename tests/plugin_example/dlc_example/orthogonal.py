"""`Orthogonal`: initial values of weights."""

import math
from dataclasses import dataclass

import numpy as np

from dlc import option
from dlc.base.types import Array
from dlc.training.parts import Draw, Drawn, Fans


@dataclass(frozen=True)
class Orthogonal(Drawn):
    """A matrix with orthonormal rows or columns; Saxe et al. 2014, as torch.nn.init.orthogonal_."""

    name = "orthogonal"
    gain: float = option(1.0, "factor", low=0)

    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """The first dimension against all others."""
        del fans
        rows, columns = shape[0], math.prod(shape[1:])
        tall = draw.normal(0.0, 1.0, (max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(tall)
        q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # so that it is uniform over orthogonal matrices
        return self.gain * (q if rows >= columns else q.T).reshape(shape)
