"""Reductions along rows and what reads their results as one kernel, which reads each row from memory once.

s[i] = Σⱼ g[i,j]·y[i,j];   r[i,j] = (g[i,j] - s[i])·y[i,j]      →      for i: s = …; for j: r[i,j] = …
"""

from __future__ import annotations

import math
from typing import Final

from dlc.kernel.expr import Apply, axes_in, loads, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.groups import has_reuse, partition, reads_rows
from dlc.kernel.simplify import is_index

MOST_BYTES: Final = 128 << 10
"""Of what an iteration reads: a second-level cache holds it until the row is read again."""

MOST_READ: Final = 1.125
"""Bytes that a map reads at most to be computed again, in units of what its value takes."""
MOST_CYCLES: Final = 4.0
"""Cycles of a vector of its values at most: an addition takes 1."""


def share_rows(kernel: Kernel) -> bool:
    """Whether all nests run in common loops whose iterations read whole rows, few enough for a cache to hold them."""
    group, *others = partition(kernel)
    if others or not reads_rows(group) or any(map(has_reuse, group.nests)):
        return False
    sizes: dict[str, int] = {}
    for x in (x for n in group.nests for e in n.exprs() for x in loads(e)):
        own = {a for i in x.index for a in axes_in(i)} - set(group.shared)
        size = math.prod(a.extent for a in own) * kernel.dtypes[x.param].itemsize
        sizes[x.param] = max(size, sizes.get(x.param, 0))
    return sum(sizes.values()) <= MOST_BYTES


def is_light(nest: Nest, kernel: Kernel) -> bool:
    """Whether a map is computed again in less time than its value is read from beyond the caches.

    It reads one tensor as large as its value, and little else.
    """
    value = kernel.results[0].type.nbytes
    read = sum(p.type.nbytes for p in kernel.params)
    work = sum(SCALARS[e.fn].cycles for e in walk(nest.body) if isinstance(e, Apply) and not is_index(e))
    return value >= MOST_BYTES and read <= value * MOST_READ and work <= MOST_CYCLES
