"""How many ops are left of a model: dlc after `simplify` and `fuse`, onnxsim, onnxslim, onnxruntime's extended level.

    python benchmarks/node_counts.py                      # the light models that ship with the onnx package
    python benchmarks/node_counts.py a.onnx b.onnx

Ops that compute something are counted: no constants, no constant expressions, after fusion no views. The other tools'
files are kept in memory only, but they may be large: some models of a few KB describe 500 MB of weights.
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
    state: Any = Onnx().parse(Source(path), Report())
    found: dict[str, int] = {}
    for spec in Spec.parse_pipeline(PIPELINES["infer"], "infer"):
        state = passes[spec.name].from_spec(spec).run(state, Report())
        if isinstance(state, Graph):
            found[spec.name] = sum(not is_view(op) for op in compute_ops(state))
    return found["simplify"], found["fuse"]


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
    print(f"{'model':24}{'simplify':>10}{'fuse':>8}" + "".join(f"{name:>12}" for name in OTHERS))
    for path in paths:
        try:
            simplified, fused = ours(path)
        except DlcError as refused:
            print(f"{path.stem:24}{refused.diagnostics[0].message}")
            continue
        others = "".join(f"{attempt(tool, path):>12}" for tool in OTHERS.values())
        print(f"{path.stem:24}{simplified:10}{fused:8}{others}", flush=True)


if __name__ == "__main__":
    main([Path(p) for p in sys.argv[1:]] or sorted(LIGHT.glob("light_*.onnx")))
