"""How long loops take on a machine, from their text alone."""

from dlc.kernel.schedules.estimate.estimate import BESIDES, Estimate, Sizes, estimate, least_cycles, sizes_of

__all__ = ["BESIDES", "Estimate", "Sizes", "estimate", "least_cycles", "sizes_of"]
