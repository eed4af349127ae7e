"""How long loops take on a machine, from their text alone."""

from dlc.kernel.schedules.estimate.estimate import BESIDES, Estimate, estimate, least_cycles

__all__ = ["BESIDES", "Estimate", "estimate", "least_cycles"]
