"""Ensembles of decision trees (domain ai.onnx.ml)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dlc.base.types import f64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.reduce import ReduceMax, ReduceMin, ReduceSum
from dlc_frontend_onnx.forest import Forest, features, values_of
from dlc_frontend_onnx.node import Array, Node, constant, number
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.scores import ML, POST, as_scores, best, labels_of, of_two, post
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported

_MODES: Final = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")


def _same(node: Node, keys: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Attributes with one number for each node or leaf."""
    found = tuple(node.ints(key) or () for key in keys)
    if len({len(each) for each in found}) > 1:
        sizes = ", ".join(f"{key} {len(each)}" for key, each in zip(keys, found, strict=True))
        raise Unsupported(f"attributes of different lengths: {sizes}", MALFORMED)
    return found


@onnx("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(node: Node) -> Op:
    """What the leaves say that each row comes to, added up or otherwise combined."""
    node.ignore("nodes_hitrates")
    x = features(node.x())
    forest = Forest(precise=x.dtype is f64)
    keys = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")
    feature, yes, no, yes_leaf, no_leaf = _same(node, keys)
    splits, modes = _array(node, "nodes_splits"), _array(node, "nodes_modes")
    targets, weights = node.ints("leaf_targetids") or (), _array(node, "leaf_weights")
    tracks = node.ints("nodes_missing_value_tracks_true") or (0,) * len(feature)
    if not len(feature) == len(splits) == len(modes) == len(tracks) or len(targets) != len(weights):
        raise Unsupported(f"{len(feature)} nodes, {len(splits)} splits, {len(modes)} modes", MALFORMED)
    if any(not 0 <= m < len(_MODES) for m in modes.tolist()):
        raise Unsupported("a mode of a node that is not defined", MALFORMED)
    first = forest.reserve(len(feature) + len(targets)) + len(feature)
    _check_links(len(feature), len(targets), (yes, yes_leaf), (no, no_leaf))
    members = iter(_members(node))
    for k in range(len(feature)):
        a, b = (link + (first if leaf else 0) for link, leaf in ((yes[k], yes_leaf[k]), (no[k], no_leaf[k])))
        if _MODES[int(modes[k])] == "MEMBER":
            forest.member(k, feature[k], next(members, ()), a, b, bool(tracks[k]))
        else:
            forest.branch(k, _MODES[int(modes[k])], feature[k], float(splits[k]), a, b, bool(tracks[k]))
    forest.roots = list(node.ints("tree_roots") or ())
    how = node.int("aggregate_function", 1)
    if not 0 <= how < len(_AGGREGATES):
        raise Unsupported(f"aggregate_function {how}", MALFORMED)
    pairs = list(zip(range(first, first + len(targets)), targets, weights.tolist(), strict=True))
    total = _aggregated(forest, x, _AGGREGATES[how], node.int("n_targets", 1), pairs)
    kind = node.int("post_transform")
    if not 0 <= kind < len(POST):
        raise Unsupported(f"post_transform {kind}", MALFORMED)
    return post(total, POST[kind])


def _array(node: Node, key: str) -> Array:
    found = node.tensor(key)
    return np.zeros(0) if found is None else found.array().reshape(-1)


def _members(node: Node) -> list[list[float]]:
    """Sets of values, each ended by NaN."""
    sets: list[list[float]] = [[]]
    for value in _array(node, "membership_values").tolist():
        if math.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    return sets[:-1] if not sets[-1] else sets


def _check_links(nodes: int, leaves: int, *links: tuple[Sequence[int], Sequence[int]]) -> None:
    for ids, is_leaf in links:
        for link, leaf in zip(ids, is_leaf, strict=True):
            if not 0 <= link < (leaves if leaf else nodes):
                raise Unsupported(f"a node leads to {'leaf' if leaf else 'node'} {link}", MALFORMED)


def _aggregated(forest: Forest, x: Op, how: str, targets: int, pairs: Sequence[tuple[int, int, float]]) -> Op:
    """[B, targets] from figures (leaf, target, weight)."""
    check_count(len(forest.split) * max(targets, 0), "the figures of all leaves")
    if targets < 1 or any(not 0 <= target < targets for _, target, _ in pairs) or not forest.roots:
        raise Unsupported(f"{targets} targets of {len(forest.roots)} trees", MALFORMED)
    largest = float(np.finfo(x.dtype.numpy.name).max)
    empty = {"MIN": largest, "MAX": -largest}.get(how, 0.0)
    combine = {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add)
    table = np.full((len(forest.split), targets), empty)
    where, columns = [leaf for leaf, _, _ in pairs], [target for _, target, _ in pairs]
    combine.at(table, (where, columns), [weight for _, _, weight in pairs])
    figures = values_of(forest.leaves(x), table, x)
    if how in ("MIN", "MAX"):
        return ReduceMin(figures, axes=(1,)) if how == "MIN" else ReduceMax(figures, axes=(1,))
    total = ReduceSum(figures, axes=(1,))
    return e.Div(total, number(len(forest.roots), total)) if how == "AVERAGE" else total


def _read(node: Node, precise: bool) -> tuple[Forest, Mapping[tuple[int, int], int]]:
    """The forest of a node whose nodes have numbers of their own in each tree: (tree, number) → node."""
    node.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    keys = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")
    trees, numbers, feature, yes, no = _same(node, keys)
    values, modes = _floats(node, "nodes_values"), node.texts("nodes_modes")
    tracks = node.ints("nodes_missing_value_tracks_true") or (0,) * len(trees)
    if not len(trees) == len(values) == len(modes) == len(tracks):
        raise Unsupported(f"{len(trees)} nodes, {len(values)} values, {len(modes)} modes", MALFORMED)
    place = {key: k for k, key in enumerate(zip(trees, numbers, strict=True))}
    forest = Forest(precise=precise)
    forest.reserve(len(trees))
    roots: dict[int, int] = {}
    for k, tree in enumerate(trees):
        roots.setdefault(tree, k)
        if modes[k] == "LEAF":
            continue
        ends = [place.get((tree, link)) for link in (yes[k], no[k])]
        if ends[0] is None or ends[1] is None:
            raise Unsupported(f"node {numbers[k]} of tree {tree} leads to one that is not there", MALFORMED)
        forest.branch(
            k, modes[k].removeprefix("BRANCH_"), feature[k], float(values[k]), ends[0], ends[1], bool(tracks[k])
        )
    forest.roots = [roots[tree] for tree in sorted(roots)]
    return forest, place


def _floats(node: Node, key: str) -> Array:
    """Numbers that are a list or a tensor."""
    tensor = node.tensor(f"{key}_as_tensor")
    return np.array(node.floats(key) or (), np.float64) if tensor is None else tensor.array().reshape(-1)


def _figures(node: Node, place: Mapping[tuple[int, int], int], kind: str) -> list[tuple[int, int, float]]:
    trees, numbers, targets = _same(node, (f"{kind}_treeids", f"{kind}_nodeids", f"{kind}_ids"))
    weights = _floats(node, f"{kind}_weights")
    if len(weights) != len(trees):
        raise Unsupported(f"{len(weights)} weights for {len(trees)} leaves", MALFORMED)
    pairs = zip(trees, numbers, targets, weights.tolist(), strict=True)
    try:
        return [(place[tree, k], target, weight) for tree, k, target, weight in pairs]
    except KeyError as missing:
        raise Unsupported(f"a weight of node {missing.args[0]}, which is not there", MALFORMED) from None


@onnx("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(node: Node) -> Op:
    """What the leaves say, added up or otherwise combined; plus base values."""
    x = features(node.x())
    forest, place = _read(node, x.dtype is f64)
    how, targets = node.text("aggregate_function", "SUM"), node.int("n_targets", 1)
    if how not in _AGGREGATES:
        raise Unsupported(f"aggregate_function {how!r}", f"defined are {', '.join(_AGGREGATES)}")
    y = _with_base(node, _aggregated(forest, x, how, targets, _figures(node, place, "target")))
    return post(y, node.text("post_transform", "NONE"))


def _with_base(node: Node, y: Op) -> Op:
    base = _floats(node, "base_values")
    if not base.size:
        return y
    if base.size not in (1, y.shape[1]):
        raise ShapeError(f"{base.size} base values for {y.shape[1]} results")
    return e.Add(y, constant(base, y.dtype))


@onnx("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(node: Node) -> tuple[Op, Op]:
    """The class with the highest score, and all scores."""
    x = features(node.x())
    forest, place = _read(node, x.dtype is f64)
    labels = labels_of(node, "classlabels_int64s", "classlabels_strings")
    pairs = _figures(node, place, "class")
    only = {target for _, target, _ in pairs}
    kind = node.text("post_transform", "NONE")
    if len(only) > 1 or len(labels) != 2:
        scores = _with_base(node, _aggregated(forest, x, "SUM", len(labels), pairs))
        return best(scores, labels), as_scores(post(scores, kind))
    # Two classes with scores of one: those of the other are what is left to 1, or the opposite if any is negative.
    score = _aggregated(forest, x, "SUM", 1, [(leaf, 0, weight) for leaf, _, weight in pairs])
    return of_two(_with_base(node, score), labels, all(w >= 0 for _, _, w in pairs), kind)
