"""Values that lie side by side in one memory: which calls join them, and which of these have nothing left to do.

concat:  r[i] = p0[i];  r[n + j] = p1[j]               an operand is somewhere in the result
overlay: r[i] = p0[i];  r[n + j] = p1[n + j]           it is there already, in a value as large as the result
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TypeGuard

from dlc.base.types import Type
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Item
from dlc.kernel.check.access import Access, accesses
from dlc.kernel.check.inside import find
from dlc.kernel.expr import Const, Load
from dlc.kernel.fusion.inline import reads_each_once
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.box import Box, apart, written_box
from dlc.kernel.schedules.start import needs_fill, tile
from dlc.kernel.simplify import simplify


def _has_a_nest_for_each(op: Op) -> TypeGuard[Call]:
    """Whether an op is a call of a kernel with a nest for each of several operands, and one result."""
    return isinstance(op, Call) and len(op.types) == 1 and len(op.args) == len(op.body.nests) > 1


def joined_boxes(op: Op) -> tuple[Box, ...] | None:
    """Where a concatenation has each of its operands; None: the op is none, or one of values with open sizes."""
    return _joined(op.body) if _has_a_nest_for_each(op) else None


@lru_cache(maxsize=4096)
def _joined(kernel: Kernel) -> tuple[Box, ...] | None:
    (result,) = kernel.results
    boxes = _copied(kernel)
    if boxes is None or result.type.is_open or result.type.dense:
        return None
    for p, nest in zip(kernel.params, kernel.nests, strict=True):
        assert isinstance(nest.body, Load)
        if p.type.is_open or not p.type.capacity or not reads_each_once(nest, nest.body, p.shape):
            return None
    return boxes if tile(boxes, result.shape) else None


def _copied(kernel: Kernel) -> tuple[Box, ...] | None:
    """The boxes that the nests of a kernel copy to, each from a parameter of its own, which may be shifted."""
    boxes: list[Box] = []
    for p, nest in zip(kernel.params, kernel.nests, strict=True):
        body, box = nest.body, written_box(nest)
        if nest.reduce is not None or nest.where is not None or box is None or nest.out != kernel.results[0].name:
            return None
        if not isinstance(body, Load) or body.param != p.name or len(body.index) != len(nest.index):
            return None
        if any(not isinstance(simplify(i - j), Const) for i, j in zip(nest.index, body.index, strict=True)):
            return None
        boxes.append(box)
    return tuple(boxes)


def overlaid_boxes(op: Op) -> tuple[Box, ...] | None:
    """The part of an overlay that each operand has; None: the op is no overlay."""
    return overlaid(op.body) if _has_a_nest_for_each(op) else None


@lru_cache(maxsize=4096)
def overlaid(kernel: Kernel) -> tuple[Box, ...] | None:
    """The part of the result that each parameter of an overlay has; None: the kernel is none."""
    if len(kernel.results) != 1 or len(kernel.params) != len(kernel.nests) or len(kernel.params) < 2:
        return None
    result = kernel.results[0]
    if any(p.type != result.type for p in kernel.params) or result.type.is_open:
        return None
    if any(not isinstance(n.body, Load) or n.body.index != n.index for n in kernel.nests):
        return None
    boxes = _copied(kernel)
    return boxes if boxes is not None and all(apart(a, b) for a, b in combinations(boxes, 2)) else None


@dataclass(frozen=True)
class Overlays:
    """The overlays of a graph that have nothing to do, because their operands lie where the result does.

    Attributes:
        root: Digest of such an overlay, or of an operand of one → digest of the overlay that all of them lie in.
        parts: Digest of such an overlay → the values that are computed for it, behind overlays of overlays.
    """

    root: Mapping[str, str]
    parts: Mapping[str, tuple[Op, ...]]

    @classmethod
    def of(cls, graph: Graph, calls: Sequence[Op], steps: Set[str]) -> Overlays:
        """Those among the calls of a graph that are none of the steps, by their digests, and may be none.

        Each operand is computed, is no output, is an operand of one overlay alone, and what computes it writes the
        elements of its part, all of them and no others. Nobody reads others: they are 0, but here they are those of
        other operands, or nobody's.
        """
        outputs = {o.digest for o in graph.outputs}
        computed = {op.digest for op in calls} - outputs
        boxes = {op.digest: b for op in calls if (b := overlaid_boxes(op)) is not None}
        holders = [op for op in calls if op.digest in boxes and op.digest not in {*steps, *outputs}]
        held: dict[str, int] = {}
        for op in holders:
            for x in op.operands:
                held[x.digest] = held.get(x.digest, 0) + 1
        parts: dict[str, tuple[Op, ...]] = {}
        for op in holders:
            fits = all(
                held[x.digest] == 1
                and x.digest in computed
                and _writes_all_of(x, box, boxes, parts)
                and all(_reads_inside(u, x, box) for u in graph.users.get(x, ()))
                for x, box in zip(op.operands, boxes[op.digest], strict=True)
            )
            if fits:
                parts[op.digest] = tuple(p for x in op.operands for p in parts.get(x.digest, (x,)))
        root: dict[str, str] = {}
        for op in reversed(holders):
            if op.digest not in parts:
                continue
            if op.digest not in root and not tile(boxes[op.digest], op.type.room):
                del parts[op.digest]
                continue
            whole = root.setdefault(op.digest, op.digest)
            root |= dict.fromkeys((x.digest for x in op.operands), whole)
        return cls(root, parts)


def _writes_all_of(x: Op, box: Box, boxes: Mapping[str, tuple[Box, ...]], parts: Mapping[str, tuple[Op, ...]]) -> bool:
    """Whether what computes an operand writes the elements of a box, and no others."""
    if not isinstance(x, Call) or isinstance(x, Item) or len(x.types) != 1:
        return False
    if x.digest in boxes:
        return x.digest in parts and _tile(boxes[x.digest], box)
    return _stores_all_of(x.body, box)


def _tile(boxes: Sequence[Box], whole: Box) -> bool:
    """Whether boxes divide a box."""
    moved = [tuple((a - first, b - first) for (a, b), (first, _) in zip(box, whole, strict=True)) for box in boxes]
    return tile(moved, tuple(stop - start for start, stop in whole))


def _reads_inside(user: Op, x: Op, box: Box) -> bool:
    """Whether an op is proved to read elements of a box alone."""
    if not isinstance(user, Call):
        return False
    names = frozenset(p.name for p, a in zip(user.body.params, user.args, strict=True) if a.digest == x.digest)
    return _loads_inside(user.body, names, box)


@lru_cache(maxsize=4096)
def _loads_inside(kernel: Kernel, names: frozenset[str], box: Box) -> bool:
    """The same of a kernel's parameters, as if each were a tensor of the shape of the box."""
    shape = tuple(stop - start for start, stop in box)
    partial = [d for d, n in enumerate(kernel.tensors[min(names)].shape) if n != shape[d]]
    params = (replace(p, type=Type(p.dtype, shape)) if p.name in names else p for p in kernel.params)
    cut = replace(kernel, params=tuple(params))

    def shifted(access: Access) -> Access:
        return replace(access, index=tuple(i - start for i, (start, _) in zip(access.index, box, strict=True)))

    loads = (shifted(a) for n in kernel.nests for a in accesses(n) if a.tensor in names)
    return all(find(cut, a, d).verdict == "inside" for a in loads for d in partial)


@lru_cache(maxsize=4096)
def _stores_all_of(kernel: Kernel, box: Box) -> bool:
    """Whether a kernel writes all of a box of its result, and nothing else: as if it were a tensor of that shape."""
    result, shape = kernel.results[0], tuple(stop - start for start, stop in box)
    writers = [n for n in kernel.nests if n.out == result.name]
    if result.name in kernel.readers or any(n.reduce is not None for n in writers):
        return False

    def shifted(nest: Nest) -> Nest:
        index = tuple(simplify(i - start) for i, (start, _) in zip(nest.index, box, strict=True))
        return replace(nest, index=index)

    own = replace(result, type=Type(result.dtype, shape))
    cut = replace(kernel, results=(own,), nests=tuple(shifted(n) if n.out == result.name else n for n in kernel.nests))
    stores = [next(accesses(n)) for n in cut.nests if n.out == result.name]
    partial = [d for d, n in enumerate(result.shape) if n != shape[d]]
    return all(find(cut, a, d).verdict == "inside" for a in stores for d in partial) and not needs_fill(cut, own.name)
