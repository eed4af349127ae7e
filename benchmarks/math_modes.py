"""Matrix products and convolutions in each mode of `--math`: times and errors, calls taking turns.

    python benchmarks/math_modes.py [M,N,K…] [--conv C,F,SIZE,TAPS…] [--rounds 60] [--cpu native]

Weights are constant, data and weights normal. Prints per mode the median in milliseconds, how many times as fast as
`fast` it is, and as onnxruntime; the root mean square of the error relative to that of the output, and the largest
error relative to Σ|x·w|. Modes in which f32 is faster are made to use bf16 (`bf16.when=always`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from dlc_backend_c.options import PARTS
from dlc_backend_c.runtime import Model
from onnx import TensorProto, helper, numpy_helper

from benchmarks.kernels import timed
from benchmarks.peers import build, peer

SIZES = ((128, 256, 1024), (784, 128, 1152), (512, 512, 512), (1024, 1024, 1024))
CONVS = ((64, 64, 56, 1), (256, 64, 56, 1), (128, 128, 28, 3), (256, 256, 14, 3))
Array = np.ndarray[Any, np.dtype[Any]]


def model(node: onnx.NodeProto, x: Array, w: Array) -> onnx.ModelProto:
    """A product of the input x and the constant w."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in (("x", x.shape), ("y", None))]
    graph = helper.make_graph([node], "product", ports[:1], ports[1:], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product(m: int, n: int, k: int) -> tuple[onnx.ModelProto, Array, Array, Array]:
    """A matrix product, its data, its value in double precision and Σ|x·w|."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32)
    found = model(helper.make_node("MatMul", ["x", "w"], ["y"]), x, w)
    a, b = x.astype(np.float64), w.astype(np.float64)
    return found, x, a @ b, np.abs(a) @ np.abs(b)


def conv(c: int, f: int, size: int, taps: int) -> tuple[onnx.ModelProto, Array, Array, Array]:
    """The same of a convolution with padding."""
    random = np.random.default_rng(0)
    x, w = (
        random.standard_normal((1, c, size, size), np.float32),
        random.standard_normal((f, c, taps, taps), np.float32),
    )
    pad = taps // 2
    found = model(helper.make_node("Conv", ["x", "w"], ["y"], pads=[pad] * 4), x, w)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x[0], ((0, 0), (pad, pad), (pad, pad))), (taps, taps), (1, 2)
    )
    a, b = windows.astype(np.float64), w.astype(np.float64)
    value, sizes = (np.einsum("chwuv,fcuv->fhw", g(a), g(b), optimize=True)[None] for g in (np.positive, np.abs))
    return found, x, value, sizes


def measure(name: str, case: tuple[onnx.ModelProto, Array, Array, Array], cpu: str, rounds: int, folder: Path) -> str:
    """One product as lines."""
    source, x, want, sizes = case
    path = folder / "product.onnx"
    path.write_bytes(source.SerializeToString())
    calls: dict[str, Callable[[], Any]] = {}
    for mode in ("strict", "fast", *PARTS):
        settings = ("bf16.when=always", "layout.pairs=yes") if mode in PARTS else ()
        build(path, folder / mode, cpu, 1, mode, settings)
        loaded = Model.load(folder / mode)
        calls[mode] = lambda loaded=loaded: loaded({"x": x})["y"]
    session = peer(path)
    calls["onnxruntime"] = lambda: session.run(None, {"x": x})[0]
    times: dict[str, list[float]] = {mode: [] for mode in calls}
    for _ in range(rounds):
        for mode, call in calls.items():
            times[mode].append(timed(call) * 1e3)
    medians = {mode: statistics.median(found) for mode, found in times.items()}
    lines = [name]
    for mode, call in calls.items():
        error = np.asarray(call(), np.float64) - want
        spread = np.sqrt(np.mean(error**2) / np.mean(want**2))
        largest = np.max(np.abs(error) / sizes)
        lines.append(
            f"  {mode:<12} {medians[mode]:8.3f} ms  {medians['fast'] / medians[mode]:5.2f}x fast  "
            f"{medians['onnxruntime'] / medians[mode]:5.2f}x onnxruntime  error {spread:.1e}, largest {largest:.1e}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sizes", nargs="*")
    parser.add_argument("--conv", nargs="*")
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()

    def read(texts: list[str]) -> list[tuple[int, ...]]:
        return [tuple(map(int, text.split(","))) for text in texts]

    plain = not (options.sizes or options.conv)
    cases = [("product", product, size) for size in (read(options.sizes) if not plain else SIZES)]
    cases += [("convolution", conv, size) for size in (read(options.conv or []) if not plain else CONVS)]
    for title, make, (a, b, c, *rest) in cases:
        with tempfile.TemporaryDirectory() as folder:
            name = f"{title} {','.join(map(str, (a, b, c, *rest)))}"
            print(measure(name, make(a, b, c, *rest), options.cpu, options.rounds, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
