"""How a narrow float lies in its bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Specials = Literal["ieee", "fn", "fnuz", "finite", "scale"]


@dataclass(frozen=True)
class FloatFormat:
    """How a narrow float lies in its bits: sign (but for `scale`), exponent, fraction, from the highest bit down.

    Attributes:
        exponent: Bits of the exponent.
        fraction: Bits of the fraction.
        bias: What is added to the exponent of a value.
        specials: `ieee`: the largest exponent means infinity and NaN. `fn`: NaN is all ones, there is no infinity.
            `fnuz`: NaN is where -0 would be, there is neither infinity nor -0. `finite`: there are neither; what is too
            large becomes the largest value. `scale`: a power of two alone, without sign and zero; NaN is all ones;
            halves round up, and so does all between the two smallest values. What `fn`, `fnuz` and `scale` cannot
            represent, because it is too large or in another way, becomes NaN.
    """

    exponent: int
    fraction: int
    bias: int
    specials: Specials = "ieee"

    @property
    def signed(self) -> bool:
        """Whether there are negative values."""
        return self.specials != "scale"

    @property
    def symmetric(self) -> bool:
        """Whether every value, zero included, has a negative."""
        return self.specials not in ("fnuz", "scale")

    @property
    def largest_bits(self) -> int:
        """The bits of the largest finite value."""
        ones = (1 << self.exponent + self.fraction) - 1
        return {"ieee": ones - (1 << self.fraction), "fn": ones - 1, "scale": ones - 1}.get(self.specials, ones)

    @property
    def largest(self) -> float:
        """The largest finite value."""
        exponent, fraction = divmod(self.largest_bits, 1 << self.fraction)
        return math.ldexp(1 + fraction / (1 << self.fraction), exponent - self.bias)

    @property
    def smallest(self) -> float:
        """The smallest positive value."""
        return math.ldexp(1.0, -self.bias if self.specials == "scale" else 1 - self.bias - self.fraction)
