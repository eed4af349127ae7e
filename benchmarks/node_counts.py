"""How many ops are left of a model: dlc after `simplify` and `fuse`, onnxsim, onnxslim, onnxruntime's extended level.

    python benchmarks/node_counts.py                      # the light models that ship with the onnx package
    python benchmarks/node_counts.py a.onnx b.onnx

Ops that compute something are counted: no constants, no constant expressions, after fusion no views. Named open
dimensions are 1. onnxruntime's counts are of fused nodes (a convolution with its activation is one), so that it is the
count after `fuse` which has to be at most the smallest of the others; the command fails where it is not. The other
tools' files are kept in memory only, but they may be large: some models of a few KB describe 500 MB of weights.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from dlc_frontend_onnx.frontend import Onnx

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError
from dlc.base.report import Report
from dlc.graph import Graph
from dlc.graph.constants import compute_ops
from dlc.passes.presets import PIPELINES
from dlc.passes.views import is_view
from dlc.plugins.builtin import dlc_passes
from dlc.spec import Spec

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def ours(path: Path) -> tuple[int, int]:
    """(ops after simplify, ops after fuse)."""
    passes = {lazy.name: lazy.load() for lazy in dlc_passes()}
    state: Any = Onnx(dims=tuple(f"{name}:1" for name in open_dims(path))).parse(Source(path), Report())
    found: dict[str, int] = {}
    for spec in Spec.parse_pipeline(PIPELINES["infer"], "infer"):
        state = passes[spec.name].from_spec(spec).run(state, Report())
        if isinstance(state, Graph):
            found[spec.name] = sum(not is_view(op) for op in compute_ops(state))
    return found["simplify"], found["fuse"]


def open_dims(path: Path) -> list[str]:
    """Names of the dimensions that the model's inputs leave open."""
    inputs = onnx.load(str(path), load_external_data=False).graph.input
    return sorted({d.dim_param for i in inputs for d in i.type.tensor_type.shape.dim if d.dim_param})


def counted(model: onnx.ModelProto) -> int:
    return sum(node.op_type != "Constant" for node in model.graph.node)


def with_onnxsim(path: Path) -> int:
    import onnxsim

    return counted(onnxsim.simplify(onnx.load(path))[0])


def with_onnxslim(path: Path) -> int:
    import onnxslim

    return counted(onnxslim.slim(onnx.load(path)))


def with_onnxruntime(path: Path) -> int:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/model.onnx"
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return counted(onnx.load(options.optimized_model_filepath))


OTHERS: dict[str, Callable[[Path], int]] = {
    "onnxsim": with_onnxsim,
    "onnxslim": with_onnxslim,
    "ort_ext": with_onnxruntime,
}


def attempt(tool: Callable[[Path], int], path: Path) -> str:
    try:
        return str(tool(path))
    except Exception as problem:  # noqa: BLE001 - a tool that fails on a model is a row of the table, whatever it raises
        return type(problem).__name__


def main(paths: list[Path]) -> None:
    above = 0
    print(f"{'model':24}{'simplify':>10}{'fuse':>8}" + "".join(f"{name:>12}" for name in OTHERS))
    for path in paths:
        try:
            simplified, fused = ours(path)
        except DlcError as refused:
            print(f"{path.stem:24}{refused.diagnostics[0].message}")
            continue
        found = [attempt(tool, path) for tool in OTHERS.values()]
        above += fused > min((int(count) for count in found if count.isdigit()), default=fused)
        print(f"{path.stem:24}{simplified:10}{fused:8}" + "".join(f"{text:>12}" for text in found), flush=True)
    sys.exit(f"{above} models have more ops than another tool leaves" if above else 0)


if __name__ == "__main__":
    main([Path(p) for p in sys.argv[1:]] or sorted(LIGHT.glob("light_*.onnx")))
