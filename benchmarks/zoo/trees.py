"""Models of tables: scikit-learn, LightGBM and XGBoost through their converters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo.entry import Entry, Feeds, quiet

CLASSIFIERS = {
    "forest": ("sklearn.ensemble", "RandomForestClassifier", {"n_estimators": 12, "max_depth": 6}),
    "extra-trees": ("sklearn.ensemble", "ExtraTreesClassifier", {"n_estimators": 8, "max_depth": 5}),
    "boosting": ("sklearn.ensemble", "GradientBoostingClassifier", {"n_estimators": 10}),
    "tree": ("sklearn.tree", "DecisionTreeClassifier", {"max_depth": 5}),
    "logistic": ("sklearn.linear_model", "LogisticRegression", {}),
    "svc": ("sklearn.svm", "SVC", {"probability": False}),
    "linear-svc": ("sklearn.svm", "LinearSVC", {}),
    "mlp": ("sklearn.neural_network", "MLPClassifier", {"hidden_layer_sizes": (16,), "max_iter": 50}),
    "bayes": ("sklearn.naive_bayes", "GaussianNB", {}),
    "neighbours": ("sklearn.neighbors", "KNeighborsClassifier", {"n_neighbors": 3}),
    "adaboost": ("sklearn.ensemble", "AdaBoostClassifier", {"n_estimators": 5}),
    "discriminant": ("sklearn.discriminant_analysis", "LinearDiscriminantAnalysis", {}),
    "calibrated": ("sklearn.calibration", "CalibratedClassifierCV", {"cv": 2}),
    "lightgbm": ("lightgbm", "LGBMClassifier", {"n_estimators": 8, "verbose": -1}),
    "xgboost": ("xgboost", "XGBClassifier", {"n_estimators": 8, "max_depth": 4}),
}
REGRESSORS = {
    "forest": ("sklearn.ensemble", "RandomForestRegressor", {"n_estimators": 12, "max_depth": 6}),
    "svr": ("sklearn.svm", "SVR", {}),
    "ridge": ("sklearn.linear_model", "Ridge", {}),
    "gaussian-process": ("sklearn.gaussian_process", "GaussianProcessRegressor", {}),
    "lightgbm": ("lightgbm", "LGBMRegressor", {"n_estimators": 8, "verbose": -1}),
    "xgboost": ("xgboost", "XGBRegressor", {"n_estimators": 8, "max_depth": 4}),
}


def table(classes: int) -> tuple[Any, Any, Any]:
    """Rows of 10 numbers, a class and a value for each."""
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 10)).astype(np.float32)
    value = x[:, 0] * 2 + np.sin(3 * x[:, 1]) + x[:, 2] * x[:, 3]
    return x, np.digitize(value, np.quantile(value, np.linspace(0, 1, classes + 1)[1:-1])), value


def save(model: Any, path: Path, x: Any, *, booster: str = "") -> Feeds:
    """Convert a fitted model, for an open number of rows."""
    with quiet():
        if booster:
            tools = import_module("onnxmltools")
            kind = import_module("onnxmltools.convert.common.data_types").FloatTensorType([None, x.shape[1]])
            found = getattr(tools, f"convert_{booster}")(model, initial_types=[("x", kind)], target_opset=15)
        else:
            convert = import_module("skl2onnx").convert_sklearn
            kind = import_module("skl2onnx.common.data_types").FloatTensorType([None, x.shape[1]])
            found = convert(model, initial_types=[("x", kind)], target_opset={"": 18, "ai.onnx.ml": 3})
    path.write_bytes(found.SerializeToString())
    return {"x": x[:40]}


def fitted(
    path: Path, *, module: str, name: str, arguments: dict[str, Any], classes: int, texts: bool = False
) -> Feeds:
    """A classifier, perhaps of classes with names, or for no classes a regressor."""
    x, label, value = table(classes or 2)
    label = np.array(["no", "yes", "maybe"])[label] if texts else label
    model = getattr(import_module(module), name)(**arguments)
    with quiet():
        model.fit(x, label if classes else value)
    return save(model, path, x, booster=module if module in ("lightgbm", "xgboost") else "")


def pipeline(path: Path) -> Feeds:
    """Imputation, scaling, polynomials, a choice of features, principal components, and logistic regression."""
    parts = {
        "impute": ("sklearn.impute", "SimpleImputer", {}),
        "scale": ("sklearn.preprocessing", "StandardScaler", {}),
        "bins": (
            "sklearn.preprocessing",
            "KBinsDiscretizer",
            {"n_bins": 4, "encode": "onehot-dense", "quantile_method": "averaged_inverted_cdf"},
        ),
        "pca": ("sklearn.decomposition", "PCA", {"n_components": 6}),
        "norm": ("sklearn.preprocessing", "Normalizer", {}),
        "model": ("sklearn.linear_model", "LogisticRegression", {}),
    }
    x, label, _ = table(3)
    steps = [(k, getattr(import_module(m), n)(**a)) for k, (m, n, a) in parts.items()]
    model = import_module("sklearn.pipeline").Pipeline(steps)
    with quiet():
        model.fit(x, label)
    return save(model, path, x)


def unsupervised(path: Path, *, module: str, name: str, arguments: dict[str, Any]) -> Feeds:
    """Clusters, outliers."""
    x, _, _ = table(2)
    model = getattr(import_module(module), name)(**arguments)
    with quiet():
        model.fit(x)
    return save(model, path, x)


def entries() -> Iterator[Entry]:
    """All of them."""
    for key, (module, name, arguments) in CLASSIFIERS.items():
        classes = 2 if key in ("svc", "xgboost", "boosting") else 3
        make: Callable[[Path], Feeds] = partial(fitted, module=module, name=name, arguments=arguments, classes=classes)
        yield Entry(f"{key}-classes", "tables", make)
        if key in ("forest", "logistic", "svc", "neighbours", "bayes", "lightgbm"):
            yield Entry(f"{key}-names", "tables", partial(make, classes=3, texts=True))
    for key, (module, name, arguments) in REGRESSORS.items():
        yield Entry(
            f"{key}-values", "tables", partial(fitted, module=module, name=name, arguments=arguments, classes=0)
        )
    yield Entry("pipeline", "tables", pipeline)
    yield Entry(
        "k-means",
        "tables",
        partial(unsupervised, module="sklearn.cluster", name="KMeans", arguments={"n_clusters": 4, "n_init": 2}),
    )
    yield Entry(
        "isolation-forest",
        "tables",
        partial(unsupervised, module="sklearn.ensemble", name="IsolationForest", arguments={"n_estimators": 6}),
    )
