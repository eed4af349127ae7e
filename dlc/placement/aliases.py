"""Values that are part of other values share one storage: reshapes, slices, concatenations written in place."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A wish: the value is the bytes of another value from `offset` on.

    A reshape or an outermost slice is a view of its input; for a concatenation along the
    outermost axis each input is a view of the output. The caller vouches that whoever
    reads or writes the value can do so there.
    """

    value: int
    of: int
    offset: int = 0  # bytes


@dataclass(frozen=True)
class Storages:
    """Where each value lives. Storages are numbered in the order of the values that own them."""

    of: tuple[int, ...]  # the storage of each value
    offset: tuple[int, ...]  # bytes from the start of that storage, per value
    sizes: tuple[int, ...]  # bytes, per storage
    owner: tuple[int, ...]  # the value that is the whole of each storage
    refused: tuple[View, ...]  # wishes that were unsafe: these values need a copy

    def pair(self, read: int, written: int) -> tuple[int, int] | None:
        """The storages of an in-place pair of values for Task.inplace; None where either is only part of a storage.

        Handing a part over would end the whole storage for its other values; two values in one
        storage already share it.
        """
        old, new = self.of[read], self.of[written]
        whole = self.owner[old] == read and self.owner[new] == written
        return (old, new) if whole and old != new and self.sizes[old] == self.sizes[new] else None


def merge_views(
    sizes: Sequence[int], views: Sequence[View], *, pinned: Collection[int] = (), align: int = 1
) -> Storages:
    """Grant views in the order given; `sizes` are bytes per value.

    Refused are views by a value that already lies in another (each value has one place) or
    is pinned (inputs, outputs, constants: memory that is not ours to move), and views that
    would close a cycle, leave the bounds of the other value or start off the alignment.
    Where wishes compete the first wins, so list those that save the largest copies first.
    """
    parent: dict[int, View] = {}
    refused: list[View] = []
    for view in views:
        inside = view.offset >= 0 and view.offset + sizes[view.value] <= sizes[view.of]
        root, base = _place(parent, view.of)
        # Only a root can be granted a view, so a cycle would have to close at the root of the other value.
        free = view.value not in parent and view.value not in pinned and root != view.value
        if inside and free and (base + view.offset) % align == 0:
            parent[view.value] = view
        else:
            refused.append(view)
    owners = [value for value in range(len(sizes)) if value not in parent]
    number = {value: storage for storage, value in enumerate(owners)}
    places = [_place(parent, value) for value in range(len(sizes))]
    return Storages(
        of=tuple(number[root] for root, _ in places),
        offset=tuple(offset for _, offset in places),
        sizes=tuple(sizes[value] for value in owners),
        owner=tuple(owners),
        refused=tuple(refused),
    )


def _place(parent: dict[int, View], value: int) -> tuple[int, int]:
    """The value at the root of the chain of views, and the offset in it."""
    offset = 0
    while value in parent:
        view = parent[value]
        value, offset = view.of, offset + view.offset
    return value, offset
