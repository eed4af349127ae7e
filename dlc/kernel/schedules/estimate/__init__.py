"""How long loops take on a machine, from their text alone."""

from dlc.kernel.schedules.estimate.estimate import Estimate, estimate, least_cycles

__all__ = ["Estimate", "estimate", "least_cycles"]
