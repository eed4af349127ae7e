"""Decision trees: the nodes of all trees lie in tables, and rows of features go down them level by level."""

from __future__ import annotations

from typing import Any

from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, axes, comp
from dlc.kernel.expr import apply, select
from dlc.ops.index import valid_place


class TreeStep(Op):
    """y[b,t]: i64 = where tree t takes row b from node n = at[b,t]: yes[n] if x[b,feature[n]] <= split[n], else no[n].

    A missing feature, NaN, leads to missing[n]. x is [B, C]; the tables have one element for each node.
    """

    x: Op
    at: Op
    feature: Op
    split: Op
    yes: Op
    no: Op
    missing: Op

    def define(self, *params: Any) -> Comp:
        x, at, feature, split, yes, no, missing = params
        tables = (feature, split, yes, no, missing)
        if len(x.shape) != 2 or len(at.shape) != 2 or x.shape[0] != at.shape[0] or not x.dtype.is_float:
            raise ShapeError(f"rows {x.type} at nodes {at.type}")
        if any(t.shape != split.shape for t in tables) or len(split.shape) != 1 or split.dtype is not x.dtype:
            raise ShapeError(f"nodes {', '.join(str(t.type) for t in tables)} for rows {x.type}")
        if any(t.dtype.kind != "int" for t in (at, feature, yes, no, missing)):
            raise ShapeError("nodes and features are signed integers")
        if at.type.capacity and (not split.shape[0] or not x.shape[1]):
            raise ShapeError(f"no nodes or features for {at.type}")
        b, t = axes("b t", *at.shape)
        node = valid_place(at[b, t], split.shape[0], at.dtype)
        value = x[b, valid_place(feature[node], x.shape[1], feature.dtype)]
        there = select(value <= split[node], apply("i64", yes[node]), apply("i64", no[node]))
        return comp((b, t), select(apply("isnan", value), apply("i64", missing[node]), there))
