"""Ensembles of decision trees as tables of nodes that compare by <= only, and the ops that evaluate them.

x < v    →  x <= the number before v
x >= v   →  x < v with the branches exchanged
x = v    →  x <= v, and then not x < v
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlc.base.types import f32, f64, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.index import Gather
from dlc.ops.shape import Expand, Reshape
from dlc.ops.trees import TreeStep
from dlc_frontend_onnx.node import Array, cast, constant
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported

DEEPEST: Final = 512
"""Levels of a tree; each becomes an op."""


@dataclass
class Forest:
    """Nodes of all trees; a leaf leads to itself."""

    precise: bool
    """Whether features are f64, else they are f32."""
    feature: list[int] = field(default_factory=list[int])
    split: list[float] = field(default_factory=list[float])
    yes: list[int] = field(default_factory=list[int])
    no: list[int] = field(default_factory=list[int])
    missing: list[int] = field(default_factory=list[int])
    roots: list[int] = field(default_factory=list[int])

    def reserve(self, count: int) -> int:
        """So many leaves; the number of the first."""
        first = len(self.split)
        numbers = range(first, first + count)
        self.feature += [0] * count
        self.split += [math.nan] * count
        for links in (self.yes, self.no, self.missing):
            links += numbers
        return first

    def branch(self, node: int, mode: str, feature: int, value: float, yes: int, no: int, tracks: bool = False) -> None:
        """Make a leaf an inner node that leads to `yes` where the feature compares to the value as `mode` says.

        NaN is unequal to the value, and otherwise leads to `no`, unless the node `tracks` missing features.
        """
        missing = yes if tracks or mode == "NEQ" else no
        match mode:
            case "LEQ":
                self._set(node, feature, value, yes, no, missing)
            case "LT":
                self._set(node, feature, self._before(value), yes, no, missing)
            case "GT":
                self._set(node, feature, value, no, yes, missing)
            case "GTE":
                self._set(node, feature, self._before(value), no, yes, missing)
            case "EQ" | "NEQ":
                equal, other = (yes, no) if mode == "EQ" else (no, yes)
                below = self.reserve(1)
                self._set(node, feature, value, below, other, missing)
                self._set(below, feature, self._before(value), other, equal, missing)
            case _:
                raise Unsupported(f"a node of mode {mode!r}", MALFORMED)

    def member(self, node: int, feature: int, members: Sequence[float], yes: int, no: int, tracks: bool) -> None:
        """Make a leaf an inner node that leads to `yes` where the feature is one of the members."""
        missing = yes if tracks else no
        self._set(node, feature, math.inf, no, no, missing)
        for k, value in enumerate(members):
            following = no if k == len(members) - 1 else self.reserve(1)
            self.branch(node, "EQ", feature, value, yes, following)
            self.missing[node] = missing
            node = following

    def _set(self, node: int, feature: int, split: float, yes: int, no: int, missing: int) -> None:
        self.feature[node], self.split[node] = feature, split
        self.yes[node], self.no[node], self.missing[node] = yes, no, missing

    def _before(self, value: float) -> float:
        """The largest number below; NaN, which nothing is below, for none."""
        kind = np.float64 if self.precise else np.float32
        return float(np.nextafter(kind(value), kind(-np.inf))) if value > -math.inf else math.nan

    def depth(self) -> int:
        """Levels of the deepest tree; nodes that form a circle are refused."""
        parents = [0] * len(self.split)
        reached, stack = set(self.roots), list(self.roots)
        while stack:
            for link in self._links(stack.pop()):
                parents[link] += 1
                if link not in reached:
                    reached.add(link)
                    stack.append(link)
        level = dict.fromkeys((n for n in reached if not parents[n]), 0)
        stack = list(level)
        while stack:
            node = stack.pop()
            for link in self._links(node):
                level[link] = max(level.get(link, 0), level[node] + 1)
                parents[link] -= 1
                if not parents[link]:
                    stack.append(link)
        if any(parents[n] for n in reached):
            raise Unsupported("nodes of a tree form a circle", MALFORMED)
        return max(level.values(), default=0)

    def _links(self, node: int) -> set[int]:
        return {self.yes[node], self.no[node], self.missing[node]} - {node}

    def leaves(self, x: Op) -> Op:
        """The leaf [B, T] that each row of x [B, C] comes to in each tree."""
        count = len(self.split)
        links = (self.yes, self.no, self.missing)
        if any(not 0 <= link < count for each in (*links, self.roots) for link in each):
            raise Unsupported("a node leads to one that is not there", MALFORMED)
        if not 0 <= min(self.feature, default=0) <= max(self.feature, default=0) < x.shape[1]:
            raise ShapeError(f"nodes compare features that {x.type} does not have")
        dtype = f64 if self.precise else f32
        tables = [constant(self.feature, i64), constant(self.split, dtype), *(constant(each, i64) for each in links)]
        at: Op = Expand(constant([self.roots], i64), to=(x.shape[0], len(self.roots)))
        if (depth := self.depth()) > DEEPEST:
            raise Unsupported(f"a tree of {depth} levels", f"at most {DEEPEST} are supported: limit the depth of trees")
        for _ in range(depth):
            at = TreeStep(x, at, *tables)
        return at


def features(x: Op) -> Op:
    """Rows of features as floating point: [B, C], a vector is one row."""
    if not 1 <= len(x.shape) <= 2:
        raise ShapeError(f"features {x.type} must be [C] or [B, C]")
    rows = Reshape(x, to=(1, *x.shape)) if len(x.shape) == 1 else x
    return rows if rows.dtype in (f32, f64) else cast(rows, f32)


def values_of(leaves: Op, table: Array, like: Op) -> Op:
    """[B, T, N]: the figures that the table [nodes, N] has for each leaf."""
    check_count(table.size, "the figures of all leaves")
    check_count(math.prod(leaves.shape) * table.shape[1], "the figures of all rows and trees")
    return Gather(constant(table, like.dtype), leaves, axis=0)
