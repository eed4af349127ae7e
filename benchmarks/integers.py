"""Quantised models against onnxruntime, and against dlc in floating point: one thread each, calls taking turns.

    python benchmarks/integers.py [WORD…] [--rounds 30] [--cpu native] [--json]

Models with random weights are quantised statically by onnxruntime (QDQ, u8 activations, i8 weights per channel, scales
from four random inputs). Prints the medians of dlc and onnxruntime on the quantised model and on the float model, how
many times as fast as both dlc's integers are, and how far its results differ from onnxruntime's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from dlc_backend_c.runtime import Model

from benchmarks.kernels import timed
from benchmarks.peers import build, feeds, peer
from tests.frontend_onnx.quantising import read, statically_quantised
from tests.models.zoo import bert, light, mobilenet_v2

AXES_OF_SCALES = 13
"""Opset from which on a scale may belong to a channel."""


def resnet50() -> onnx.ModelProto:
    """With operators that quantisers know."""
    found = light("resnet50", 1)
    convert: Any = import_module("onnx.version_converter").convert_version
    return found if found.opset_import[0].version >= AXES_OF_SCALES else convert(found, 17)


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "mobilenet_v2": partial(mobilenet_v2, size=224, width=1.0, classes=1000),
    "bert-mini": partial(bert, length=128, hidden=256, layers=4, heads=8, vocabulary=1000, norm="decomposed"),
}


def measure(name: str, folder: Path, rounds: int, cpu: str) -> dict[str, Any]:
    """One model: quantised, built, compared and timed."""
    plain, path = folder / f"{name}.onnx", folder / f"{name}-int8.onnx"
    model = MODELS[name]()
    plain.write_bytes(model.SerializeToString())
    types: Any = import_module("onnxruntime.quantization").QuantType
    write = statically_quantised("QDQ", per_channel=True, activation_type=types.QUInt8, weight_type=types.QInt8)
    write(model, path)
    weights = sum(t.ByteSize() for t in read(path).graph.initializer)
    for source in (plain, path):
        build(source, folder / source.stem, cpu)
    loaded = {s: (Model.load(folder / s.stem), peer(s)) for s in (plain, path)}
    given = feeds(loaded[path][1])
    calls: dict[str, Callable[[], Any]] = {}
    for kind, (own, other) in zip(("float", "int8"), loaded.values(), strict=True):
        calls[kind] = partial(own, given)
        calls[f"{kind}_onnxruntime"] = partial(other.run, None, given)
    want = calls["int8_onnxruntime"]()
    got = list(calls["int8"]().values())
    times: dict[str, list[float]] = {kind: [] for kind in calls}
    for _ in range(rounds):
        for kind, call in calls.items():
            times[kind].append(timed(call))
    medians = {kind: statistics.median(t) * 1e3 for kind, t in times.items()}
    return {
        "model": name,
        "milliseconds": medians,
        "over_own_float": medians["float"] / medians["int8"],
        "over_onnxruntime": medians["int8_onnxruntime"] / medians["int8"],
        "weight_bytes": max(p.stat().st_size for p in (folder / path.stem).glob("*weights*.bin")),
        "model_weight_bytes": weights,
        "differing": sum(int(np.count_nonzero(g != w)) for g, w in zip(got, want, strict=True)),
        "elements": sum(w.size for w in want),
        "relative_difference": max(
            float(np.max(np.abs(g - w)) / np.max(np.abs(w))) for g, w in zip(got, want, strict=True)
        ),
    }


def line(row: Mapping[str, Any]) -> str:
    """One model as text."""
    ms = row["milliseconds"]
    return (
        f"{row['model']:14} int8 {ms['int8']:7.2f} ms  onnxruntime {ms['int8_onnxruntime']:7.2f} ms "
        f"({row['over_onnxruntime']:.2f}x)  float {ms['float']:7.2f} ms ({row['over_own_float']:.2f}x)  "
        f"onnxruntime float {ms['float_onnxruntime']:7.2f} ms  weights {row['weight_bytes']:,} B  "
        f"{row['differing']} of {row['elements']} elements differ, by {row['relative_difference']:.1e} of the largest"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        for name in MODELS:
            if not options.words or any(w in name for w in options.words):
                rows.append(measure(name, Path(directory), options.rounds, options.cpu))
                if not options.json:
                    print(line(rows[-1]), flush=True)
    if options.json:
        print(json.dumps({"models": rows}, indent=1))


if __name__ == "__main__":
    main()
