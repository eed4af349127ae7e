"""A scatter as a gather: nests that write at computed subscripts, turned into nests that read instead.

    out[g(v)] += body(v)  where D(v)      →      out[u] += body(v(u, w))  where D'(u, w)

The points v with g(v) = u are enumerated exactly, each once (`dlc.kernel.solve`). The method follows C. Urban and
P. van der Smagt, Automatic differentiation for tensor algebras (arXiv 1711.01348), and TVM's solvers of linear
equations and inequalities, with quotients and remainders by literals made affine first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlc.kernel.expr import Axis, Const, Expr, substitute
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import simplify_nest
from dlc.kernel.solve.flatten import Unsolvable
from dlc.kernel.solve.system import solve
from dlc.kernel.take_apart import scatter_apart


@dataclass(frozen=True)
class NoInverse:
    """Why a nest stays a scatter: "subscript 0 of x reads data (idx)"."""

    reason: str


def gather(nest: Nest, shape: tuple[int, ...]) -> tuple[Nest, ...] | NoInverse:
    """Equal nests with plain left sides.

    Args:
        nest: Any nest; its subscripts lie inside `shape` wherever its guard holds.
        shape: Of the tensor that it writes.

    Returns:
        Nests over axes u0, u1, … of the output's dimensions (a dimension of size 1 has the subscript 0) and w0, w1, …
        of what is reduced; none when the nest has no points. Each element combines the same values as before, perhaps
        in another order. `NoInverse` when a subscript reads data, or multiplies axes, or takes their minimum.
    """
    if any(a.extent <= 0 for a in nest.axes) or 0 in shape:
        return ()
    own = {a: Axis(f"x{k}", a.extent) for k, a in enumerate(nest.axes)}
    nest = scatter_apart(simplify_nest(nest.substitute(own, tuple(own.values()))))
    outs = tuple(Axis(f"u{d}", extent) for d, extent in enumerate(shape))
    plain = tuple(u if u.extent > 1 else Const(0) for u in outs)
    found = solve(nest.axes, tuple(zip(nest.index, plain, strict=True)), nest.where)
    if isinstance(found, Unsolvable):
        return NoInverse(f"{nest.out}: {found.reason}")
    if found is None:
        return ()
    names: Mapping[Expr, Expr] = {w: Axis(f"w{k}", w.extent) for k, w in enumerate(found.free)}
    values: Mapping[Expr, Expr] = {a: substitute(e, names) for a, e in found.values.items()}
    axes = (*(u for u in outs if u.extent > 1), *(Axis(f"w{k}", w.extent) for k, w in enumerate(found.free)))
    body = substitute(nest.body, values)
    where = None if found.guard is None else substitute(found.guard, names)
    return (simplify_nest(Nest(nest.out, plain, axes, body, nest.reduce, where)),)
