"""Results that have nothing in common but their arguments, as kernels of their own.

Of the gradient da[i,k] += g[i,j]·b[k,j], db[k,j] += a[i,k]·g[i,j] each may then be stored, joined and run as suits it.

    (da, db) = call(g, a, b)   →   da = call(g, b);  db = call(g, a)
"""

from __future__ import annotations

from dlc.kernel.kernel import Kernel
from dlc.kernel.schedules.groups import is_product


def alone(kernel: Kernel, result: int) -> tuple[Kernel, tuple[int, ...]] | None:
    """The kernel of one result, and the positions of the parameters that it keeps.

    None if another result needs the same nests, or if no sum of products is among them: results of element-wise
    statements had better share their loops.
    """
    if len(kernel.results) < 2:
        return None
    needed = [kernel.needed(r.name) for r in kernel.results]
    mine = needed[result]
    if any(mine & other for k, other in enumerate(needed) if k != result):
        return None
    nests = tuple(n for k, n in enumerate(kernel.nests) if k in mine)
    if not any(is_product(n) and n.reduction_axes for n in nests):
        return None
    named = {name for n in nests for name in (n.out, *n.reads())}
    kept = tuple(k for k, p in enumerate(kernel.params) if p.name in named)
    params = tuple(kernel.params[k] for k in kept)
    locals_ = tuple(p for p in kernel.locals if p.name in named)
    return Kernel.canonical(params, (kernel.results[result],), nests, locals_), kept
