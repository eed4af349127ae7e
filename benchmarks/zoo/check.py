"""One model of the zoo in a process of its own.

    python -m benchmarks.zoo.check MODEL ORACLE TOLERANCE [open/UNIT|free] [OPTION OF dlc build…]

Prints one line of JSON: the result and its detail.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
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


def built(path: Path, directory: Path, options: Sequence[str]) -> Mapping[str, Any]:
    """What `dlc build` prints of a model, with these options."""
    command = [sys.executable, "-m", "dlc", "build", str(path), "-o", str(directory), "--json", "-q", "--cache=off"]
    done = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout)


def check(
    path: Path, oracle: str, tolerance: float, unit: int = 0, free: bool = False, options: Sequence[str] = ()
) -> Mapping[str, Any]:
    """result and detail.

    `unit`: the build is for a range of sizes, multiples of it, and run for two of them; `free`: nothing is said of any
    size; `options`: more for `dlc build`. A program without a library is not run.
    """
    feeds = inputs(path)
    if free and not open_shapes(path, feeds):
        return {"result": "fixed", "detail": "all sizes are numbers"}
    dims, shapes = ranges(path, feeds, unit) if unit else ({}, {} if free else open_shapes(path, feeds))
    said = [
        *(f"--dim={name}={size}" for name, size in dims.items()),
        *(f"--input={name}:{'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items()),
        *["--lenient"] * (oracle == "stored"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        document = built(path, Path(folder), (*said, *options))
        seconds = time.perf_counter() - start
        if not document["ok"]:
            return problem(document)
        checked = [kernel["milliseconds"] / 1e3 for kernel in document.get("verify_loops", ())]
        told = f", loops of {len(checked)} kernels checked in {sum(checked):.1f} s" if checked else ""
        row = {"seconds": seconds, "checks": checked}
        if "lib=shared" not in document["target"]:
            return {"result": "built", "detail": f"built in {seconds:.1f} s{told}", **row}
        second = halved(path, feeds, unit or 1) if unit or free else shuffled(feeds)
        program: Any = dlc.load(Path(folder))
        worst = 0.0
        for given in (feeds,) if oracle == "stored" else (feeds, second):
            try:
                want = wanted(path, oracle, given)
            except Exception:
                if given is feeds or not (unit or free):
                    raise
                break  # halves of sizes that belong together need not fit any more
            off, difference = compared(program, given, want, tolerance)
            if difference:
                return {"result": "differs", "detail": difference, **row}
            worst = max(worst, off)
    return {"result": "matches", "detail": f"error {worst:.1e}, built in {seconds:.1f} s{told}", "error": worst, **row}


def problem(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """result and detail of a build that came to nothing."""
    first, *others = document["diagnostics"]
    more = f" (and {len(others)} more)" if others else ""
    ours = first["code"] in ("internal-error", "wrong-loops")
    text = " ".join((first["message"], *first.get("notes", ()))) if ours else first["message"]
    reasons = [d["message"] for d in document["diagnostics"]]
    return {"result": "fails" if ours else "refused", "detail": f"{text}{more}", "reasons": reasons}


def compared(program: Any, feeds: Feeds, want: Sequence[Any], tolerance: float) -> tuple[float, str]:
    """The largest error of a call, and the first output whose error is beyond the tolerance, or ""."""
    names = [p.name for p in program.inputs]
    found = program(**{k: v for k, v in feeds.items() if k in names})
    labels = {p.name: p.labels for p in program.outputs}
    worst = 0.0
    for (name, got), right in zip(found.items(), map(np.asarray, want), strict=True):
        plain = np.array(labels[name])[got] if labels[name] and got.dtype.kind == "i" else got
        worst = max(worst, off := error(plain, right))
        if off > tolerance:
            shapes = f"{plain.dtype}{list(plain.shape)} for {right.dtype}{list(right.shape)}"
            return worst, f"{name}: {off:.1e} of the largest magnitude, {shapes}"
    return worst, ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    model, oracle, tolerance, *rest = sys.argv[1:]
    units = [int(a.removeprefix("open/")) for a in rest if a.startswith("open/")]
    flags = [a for a in rest if a.startswith("-")]
    print(json.dumps(check(Path(model), oracle, float(tolerance), *units, free="free" in rest, options=flags)))
