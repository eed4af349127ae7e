"""Forward-mode differentiation of a graph: how outputs change along given directions of what they are computed from.

    y = f(x), dx   →   dy = J dx

The rules are those of reverse mode. Its result Jᵀu is linear in u; transposing that map in turn gives J:

    d⟨Jᵀu, dx⟩ / du = J dx

u then appears nowhere, and what only led to it is gone with it. See Christianson, Automatic Hessians by reverse
accumulation (1992); Radul et al., You only linearize once (2022), for the relation between the three maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from dlc.graph.gradient import Names, Sweep, sweep
from dlc.graph.op import Op
from dlc.graph.structure import Input
from dlc.graph.walk import toposort


def jvp(outputs: Sequence[Op], tangents: Sequence[Op], wrt: Sequence[Op]) -> tuple[Op, ...]:
    """The change of each output with `wrt` along `tangents`, to first order; zeros where nothing depends on `wrt`.

    Args:
        outputs: What is differentiated: single values, float.
        tangents: Directions, one per op of `wrt`, of its type.
        wrt: Inputs, or any ops that the outputs are computed from; float.

    Returns:
        One per output, of its type: Σ_k ∂output/∂wrt[k] · tangents[k]. Linear in the tangents.

    Raises:
        DlcError: ops on the way cannot be differentiated: all of them, with the reasons.
        ValueError: tangents do not match `wrt`, or something is no float.
    """
    return push_forward(outputs, tangents, wrt).gradients


def push_forward(
    outputs: Sequence[Op], tangents: Sequence[Op], wrt: Sequence[Op], origins: Names = MappingProxyType({})
) -> Sweep:
    """`jvp`, with the origins of what was made and the derivatives that stay scatters."""
    if len(tangents) != len(wrt):
        raise ValueError(f"{len(wrt)} values to differentiate by have {len(tangents)} tangents")
    taken = {op.name for op in toposort((*outputs, *tangents, *wrt)) if isinstance(op, Input)}
    cotangents = tuple(Input(_fresh(f"u{k}", taken), y.type) for k, y in enumerate(outputs))
    back = sweep(outputs, cotangents, wrt, origins)
    found = sweep(back.gradients, tangents, cotangents, back.origins)
    left = set(cotangents) & set(toposort(found.gradients))
    assert not left, f"a vjp is not linear in its seeds: its derivative still reads {sorted(u.name for u in left)}"
    return found


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
