"""What register tiles ask of a group: a reduction into elements of its own, then assignments to the same ones."""

from __future__ import annotations

from dlc.kernel.schedules.choice import Place
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.schedules.unfit import require


def check_reduction(place: Place) -> None:
    """Raise Unfit for a group whose first nest is no reduction into elements of its own, or has other followers."""
    group, kernel = place.group, place.kernel
    nest = group.nests[0]
    shape = kernel.tensors[nest.out].shape
    kept = [a for a in nest.axes if a not in nest.reduction_axes]
    conditions = (
        (nest.out not in place.written, f"{nest.out} has a value before"),
        (nest.reduce is not None and bool(nest.reduction_axes), "it adds nothing up"),
        (all(a.extent > 0 for a in nest.axes), "it is empty"),
        (plain_write(nest, shape), f"output axes and elements of {nest.out} do not correspond one to one"),
        (set(kept) == set(group.shared), "its followers do not share all loops"),
        (all(n.reduce is None and set(n.axes) == set(group.shared) for n in group.nests[1:]), "a follower adds up"),
    )
    require(conditions)
