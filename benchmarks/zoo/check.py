"""One model of the zoo in a process of its own: python -m benchmarks.zoo.check MODEL ORACLE TOLERANCE [open/UNIT|free].

Prints one line of JSON: the result and its detail.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx

import dlc
from benchmarks.zoo.entry import BITS, Array, Feeds


def inputs(path: Path) -> Feeds:
    """What is stored beside a model."""
    found: Feeds = {}
    with np.load(path.with_suffix(".npz")) as data:
        for key in data.files:
            name = key.removeprefix(BITS)
            found[name] = data[key] if name == key else data[key].view(ml_dtypes.bfloat16)
    return found


def shuffled(feeds: Feeds) -> Feeds:
    """The same inputs with the numbers of every array of floats in another order."""
    random = np.random.default_rng(3)
    return {k: random.permuted(v) if v.dtype.kind == "f" and v.dtype.itemsize > 2 else v for k, v in feeds.items()}


def open_shapes(path: Path, feeds: Feeds) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs that the model leaves open."""
    graph = onnx.load(str(path), load_external_data=False).graph
    return {
        i.name: feeds[i.name].shape
        for i in graph.input
        if i.name in feeds
        and (
            not i.type.tensor_type.HasField("shape")
            or any(not d.HasField("dim_value") for d in i.type.tensor_type.shape.dim)
        )
    }


def ranges(path: Path, feeds: Feeds, unit: int = 1) -> tuple[dict[str, str], dict[str, Any]]:
    """Dimensions with a name, and shapes of inputs that have open ones without: each from half to twice its size."""
    dims: dict[str, str] = {}
    shapes: dict[str, Any] = {}
    for port in onnx.load(str(path), load_external_data=False).graph.input:
        if (x := feeds.get(port.name)) is None:
            continue
        declared = list(port.type.tensor_type.shape.dim) or [onnx.TensorShapeProto.Dimension() for _ in x.shape]
        pairs = list(zip(declared, x.shape, strict=True))
        dims |= {d.dim_param: _range(size, unit) for d, size in pairs if d.dim_param}
        if any(not d.dim_param and not d.HasField("dim_value") for d in declared):
            shapes[port.name] = [size if d.HasField("dim_value") else _range(size, unit) for d, size in pairs]
    return dims, shapes


def _range(size: int, unit: int) -> str:
    step = unit if size % unit == 0 else 1
    return f"{_half(size, unit)}..{2 * size}/{step}"


def _half(size: int, unit: int) -> int:
    step = unit if size % unit == 0 else 1
    return -(-size // (2 * step)) * step


def halved(path: Path, feeds: Feeds, unit: int = 1) -> Feeds:
    """The inputs cut to half of every open dimension."""
    cut = dict(feeds)
    for port in onnx.load(str(path), load_external_data=False).graph.input:
        if (x := feeds.get(port.name)) is not None and port.type.tensor_type.HasField("shape"):
            pairs = zip(port.type.tensor_type.shape.dim, x.shape, strict=True)
            cut[port.name] = x[tuple(slice(n if d.HasField("dim_value") else _half(n, unit)) for d, n in pairs)]
    return cut


def wanted(path: Path, oracle: str, feeds: Feeds) -> list[Any]:
    """Outputs in the model's order; of maps from labels the numbers."""
    if oracle == "stored":
        with np.load(path.with_suffix(".outputs.npz")) as data:
            return [data[o.name] for o in onnx.load(str(path), load_external_data=False).graph.output]
    if oracle == "reference":
        from onnx.reference import ReferenceEvaluator

        return list(ReferenceEvaluator(str(path)).run(None, feeds))
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if oracle == "plain onnxruntime":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = session.run(None, feeds)
    return [
        np.array([list(row.values()) for row in x]) if isinstance(x, list) and x and isinstance(x[0], dict) else x
        for x in found
    ]


def error(got: Array, want: Array) -> float:
    """The largest difference relative to the largest magnitude; infinite where shapes or special values differ."""
    if got.shape != want.shape:
        return float("inf")
    if want.dtype.kind in "biuOUS":
        return 0.0 if np.array_equal(got, want) else float("inf")
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)) or not np.array_equal(
        a[~np.isfinite(a)], b[~np.isfinite(b)], equal_nan=True
    ):
        return float("inf")
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    return float(np.abs(np.where(np.isfinite(a), a - b, 0)).max(initial=0.0)) / (scale or 1.0)


def check(path: Path, oracle: str, tolerance: float, unit: int = 0, free: bool = False) -> Mapping[str, Any]:
    """result and detail.

    `unit`: the build is for a range of sizes, multiples of it, and run for two of them; `free`: nothing is said of any
    size.
    """
    feeds = inputs(path)
    if free and not open_shapes(path, feeds):
        return {"result": "fixed", "detail": "all sizes are numbers"}
    start = time.perf_counter()
    try:
        settings = ("onnx.lenient=true",) if oracle == "stored" else ()
        dims, shapes = ranges(path, feeds, unit) if unit else ({}, {} if free else open_shapes(path, feeds))
        program: Any = dlc.build(path, dims=dims, shapes=shapes, settings=settings, cache="off")
    except dlc.DlcError as problem:
        first, *others = problem.diagnostics
        more = f" (and {len(others)} more)" if others else ""
        return {
            "result": "refused",
            "detail": f"{first.message}{more}",
            "reasons": [d.message for d in problem.diagnostics],
        }
    seconds = time.perf_counter() - start
    worst = 0.0
    second = halved(path, feeds, unit or 1) if unit or free else shuffled(feeds)
    for given in (feeds,) if oracle == "stored" else (feeds, second):
        try:
            want = wanted(path, oracle, given)
        except Exception:
            if given is feeds or not (unit or free):
                raise
            break  # halves of sizes that belong together need not fit any more
        names = [p.name for p in program.inputs]
        found = program(**{k: v for k, v in given.items() if k in names})
        labels = {p.name: p.labels for p in program.outputs}
        found = {k: np.array(labels[k])[v] if labels[k] and v.dtype.kind == "i" else v for k, v in found.items()}
        pairs = list(zip(found.items(), want, strict=True))
        for (name, got), right in pairs:
            off = error(got, np.asarray(right))
            if off > tolerance:
                shapes = f"{got.dtype}{list(got.shape)} for {np.asarray(right).dtype}{list(np.shape(right))}"
                detail = f"{name}: {off:.1e} of the largest magnitude, {shapes}"
                return {"result": "differs", "detail": detail, "seconds": seconds}
            worst = max(worst, off)
    return {
        "result": "matches",
        "detail": f"error {worst:.1e}, built in {seconds:.1f} s",
        "seconds": seconds,
        "error": worst,
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    units = [int(a.removeprefix("open/")) for a in sys.argv[4:] if a != "free"]
    print(json.dumps(check(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *units, free="free" in sys.argv[4:])))
