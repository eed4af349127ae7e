"""Classical models (domain ai.onnx.ml) against onnxruntime and ONNX's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from building import Oracle, compare, model_of, parse, reference, runtime
from dlc_frontend_onnx.scores import ML
from onnx import helper, numpy_helper

from dlc import DlcError

RNG = np.random.default_rng(5)
X = RNG.standard_normal((9, 4)).astype(np.float32)
HOLES = np.where(RNG.random((9, 4)) < 0.2, np.nan, X.round(1)).astype(np.float32)
WHOLE = RNG.integers(0, 4, (5, 3))
POST = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def model(op: str, *arrays: Any, version: int = 3, outputs: int = 1, **attributes: Any) -> tuple[onnx.ModelProto, Any]:
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, list(feeds), results, domain=ML, **attributes)
    made = model_of([node], feeds, results, domains=[ML])
    made.opset_import[1].version = version
    return made, feeds


def check(op: str, *arrays: Any, oracle: Oracle = runtime, **more: Any) -> None:
    made, feeds = model(op, *arrays, **more)
    compare(made, feeds, oracle)


def trees(count: int, depth: int, kind: str, targets: int, low: float = -1.0, mixed: bool = False) -> dict[str, Any]:
    """Complete trees with random features and values, in the words of versions 1 to 3."""
    rng: Any = np.random.default_rng(count + depth)
    inner, leaves = 2**depth - 1, 2**depth
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ")
    out: dict[str, list[Any]] = {}

    def add(key: str, values: Any) -> None:
        out.setdefault(key, []).extend(values)

    for tree in range(count):
        every = range(inner + leaves)
        add("nodes_treeids", [tree] * len(every))
        add("nodes_nodeids", every)
        add("nodes_featureids", rng.integers(0, 4, len(every)).tolist())
        add("nodes_values", rng.standard_normal(len(every)).round(1).tolist())
        add("nodes_modes", [modes[rng.integers(5 if mixed else 1)] if n < inner else "LEAF" for n in every])
        add("nodes_truenodeids", [2 * n + 1 if n < inner else 0 for n in every])
        add("nodes_falsenodeids", [2 * n + 2 if n < inner else 0 for n in every])
        add("nodes_missing_value_tracks_true", rng.integers(0, 2, len(every)).tolist())
        add(f"{kind}_treeids", [tree] * leaves)
        add(f"{kind}_nodeids", range(inner, inner + leaves))
        add(f"{kind}_ids", rng.integers(0, targets, leaves).tolist())
        add(f"{kind}_weights", rng.uniform(low, 1, leaves).tolist())
    return out


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regression_by_trees(how: str) -> None:
    found = trees(3, 3, "target", 1)
    check("TreeEnsembleRegressor", HOLES, n_targets=1, aggregate_function=how, **found)
    check("TreeEnsembleRegressor", HOLES, n_targets=1, base_values=[0.5], aggregate_function=how, **found)


def test_nodes_of_all_modes() -> None:
    found = trees(4, 4, "target", 1, mixed=True)
    check("TreeEnsembleRegressor", HOLES, n_targets=1, **found)
    check("TreeEnsembleRegressor", HOLES.astype(np.float64), n_targets=1, oracle=reference, **found)


@pytest.mark.parametrize("kind", POST)
def test_classification_by_trees(kind: str) -> None:
    found = trees(3, 3, "class", 3, 0.0)
    check("TreeEnsembleClassifier", HOLES, outputs=2, classlabels_int64s=[7, 3, 5], post_transform=kind, **found)


@pytest.mark.parametrize("low", [-1.0, 0.0])
@pytest.mark.parametrize("kind", ["NONE", "LOGISTIC"])
def test_classification_of_two_classes(low: float, kind: str) -> None:
    found = trees(1, 3, "class", 1, low)
    check("TreeEnsembleClassifier", HOLES, outputs=2, classlabels_int64s=[7, 3], post_transform=kind, **found)


@pytest.mark.parametrize("kind", ["SOFTMAX", "SOFTMAX_ZERO"])
def test_two_classes_by_softmax(kind: str) -> None:
    """The reference alone applies it."""
    found = {**trees(1, 3, "class", 1), "classlabels_int64s": [7, 3], "post_transform": kind}
    check("TreeEnsembleClassifier", HOLES, outputs=2, oracle=reference, **found)


def test_two_classes_by_probit() -> None:
    """Onnxruntime gives the scores in another order."""
    found = {**trees(1, 3, "class", 1, 0.0), "classlabels_int64s": [7, 3], "post_transform": "PROBIT"}
    check("TreeEnsembleClassifier", HOLES, outputs=2, oracle=reference, **found)


def ensemble(modes: list[int], **more: Any) -> dict[str, Any]:
    splits, weights = np.array([0.5, -0.5, 1.0], np.float32), np.array([1, 10, 100, 1000], np.float32)
    return {
        "n_targets": 2,
        "tree_roots": [0, 1],
        "nodes_featureids": [0, 1, 2],
        "nodes_truenodeids": [1, 0, 2],
        "nodes_falsenodeids": [2, 1, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falseleafs": [0, 1, 1],
        "nodes_modes": numpy_helper.from_array(np.array(modes, np.uint8)),
        "nodes_splits": numpy_helper.from_array(splits),
        "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": numpy_helper.from_array(weights),
        **more,
    }


@pytest.mark.parametrize("aggregate", range(4))
def test_ensembles_of_version_5(aggregate: int) -> None:
    for modes in ([0, 1, 2], [3, 4, 5]):
        found = ensemble(modes, aggregate_function=aggregate, nodes_missing_value_tracks_true=[0, 1, 0])
        check("TreeEnsemble", HOLES.round(0), version=5, oracle=reference, **found)


def test_a_circle_of_nodes_is_refused() -> None:
    for wrong in ({"nodes_truenodeids": [1, 0, 0], "nodes_trueleafs": [0, 1, 0]}, {"nodes_truenodeids": [1, 0, 9]}):
        with pytest.raises(DlcError, match=r"circle|leads to"):
            parse(model("TreeEnsemble", X, version=5, **ensemble([0, 0, 0], **wrong))[0])


@pytest.mark.parametrize("kind", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_linear_models(kind: str) -> None:
    some: dict[str, Any] = {"coefficients": X[:3].reshape(-1).tolist(), "intercepts": [0.5, -0.5, 0.25]}
    check("LinearRegressor", X, targets=3, version=1, **some)
    check("LinearClassifier", X, outputs=2, version=1, classlabels_ints=[4, 2, 9], post_transform=kind, **some)
    one: dict[str, Any] = {"coefficients": X[0].tolist(), "intercepts": [0.5]}
    # Onnxruntime takes the score of one class for a share of 1.
    two = {**one, "classlabels_ints": [4, 2], "post_transform": kind}
    check("LinearClassifier", X, outputs=2, version=1, oracle=reference, **two)


@pytest.mark.parametrize("kind", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_regression_by_support_vectors(kind: str) -> None:
    vectors: dict[str, Any] = {
        "support_vectors": X[:3].reshape(-1).tolist(),
        "coefficients": [0.5, -1.0, 2.0],
        "n_supports": 3,
    }
    figures: dict[str, Any] = {"kernel_params": [0.5, 0.25, 3.0], "kernel_type": kind, "rho": [0.75]}
    check("SVMRegressor", X, version=1, **vectors, **figures)
    check("SVMRegressor", X, version=1, one_class=1, **vectors, **figures)


def test_preparation_of_features() -> None:
    check("Scaler", X, version=1, offset=[0.5, 1, 2, 3], scale=[2.0, 1, 0.5, 4])
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", np.abs(X), version=1, norm=norm)
    check("Binarizer", X, version=1, threshold=0.25)
    check("Imputer", HOLES, version=1, imputed_value_floats=[1.0, 2, 3, 4], replaced_value_float=float("nan"))
    check("Imputer", WHOLE, version=1, imputed_value_int64s=[9], replaced_value_int64=2)
    check("FeatureVectorizer", X, HOLES, version=1, inputdimensions=[2, 6])
    check("OneHotEncoder", WHOLE, version=1, cats_int64s=[0, 2, 3], zeros=1)


@pytest.mark.parametrize("values", [{"values_floats": [0.5, 1.5]}, {"values_int64s": [5, 6], "default_int64": 8}])
def test_labels_are_looked_up(values: dict[str, Any]) -> None:
    check("LabelEncoder", WHOLE, version=2, keys_int64s=[1, 3], **values)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("LinearRegressor", {"coefficients": [1.0] * 3}),
        ("LinearRegressor", {"coefficients": [1.0] * 4, "post_transform": "NO"}),
        ("TreeEnsembleRegressor", {**trees(1, 2, "target", 1), "nodes_values": [1.0]}),
        ("TreeEnsembleRegressor", {**trees(1, 2, "target", 1), "nodes_featureids": [9] * 7}),
        ("TreeEnsembleRegressor", {**trees(1, 2, "target", 3), "n_targets": 1}),
    ],
)
def test_what_does_not_fit_is_refused(op: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(DlcError):
        parse(model(op, X, outputs=2 if op == "LinearClassifier" else 1, **attributes)[0])
