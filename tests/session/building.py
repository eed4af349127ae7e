"""Models and real `dlc` processes: what the tests of builds share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests import warm

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    ROOT,
    ROOT / "plugins" / "frontend_onnx",
    ROOT / "plugins" / "frontend_kernel",
    ROOT / "plugins" / "backend_c",
)


_STATE = {"XDG_STATE_HOME": os.environ.get("XDG_STATE_HOME", "/nonexistent/state")}
"""Where the key of the cache is: commands share caches."""


@dataclass(frozen=True)
class Layer:
    """A convolution with batch normalisation and a rectifier."""

    channels: int
    stride: int = 1
    kernel: int = 3


MID: tuple[Layer, ...] = (Layer(16, 2), Layer(32, 2), Layer(32, 1, 1), Layer(48, 2), Layer(64, 1, 5), Layer(64))
SMALL: tuple[Layer, ...] = (Layer(4, 2),)


def conv_net(layers: Sequence[Layer] = MID, *, seed: int = 0, size: int = 32, prefix: str = "") -> onnx.ModelProto:
    """Convolutions, then a fully connected layer. Equal seeds give equal weights; `prefix` begins every name."""
    random = np.random.default_rng(seed)
    made: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def weight(name: str, *shape: int) -> str:
        value = random.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(np.prod(shape[1:]) or 1))
        made.append(numpy_helper.from_array(np.abs(value) + np.float32(0.1) if "var" in name else value, prefix + name))
        return prefix + name

    def node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [prefix + output], name=f"{prefix}node_{output}", **attributes))
        return prefix + output

    value, channels = f"{prefix}x", 3
    for k, layer in enumerate(layers):
        w = weight(f"w{k}", layer.channels, channels, layer.kernel, layer.kernel)
        pads = [layer.kernel // 2] * 4
        value = node("Conv", [value, w], f"conv{k}", strides=[layer.stride] * 2, pads=pads)
        norm = [weight(f"{part}{k}", layer.channels) for part in ("scale", "bias", "mean", "var")]
        value = node("BatchNormalization", [value, *norm], f"norm{k}")
        value, channels = node("Relu", [value], f"relu{k}"), layer.channels
    value = node("Flatten", [node("GlobalAveragePool", [value], "pool")], "flat")
    value = node("Gemm", [value, weight("dense", channels, 10)], "y")
    graph = helper.make_graph(
        nodes,
        f"{prefix}net",
        [helper.make_tensor_value_info(f"{prefix}x", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, 10])],
        made,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save(model: onnx.ModelProto, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def environment(**changes: str) -> dict[str, str]:
    """A small one: what a process needs to run this checkout, and what a test asks for."""
    paths = os.pathsep.join([*map(str, SOURCES), *(p for p in sys.path if p)])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "HOME": "/nonexistent", **_STATE, **changes}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "dlc", *map(str, arguments)]


def dlc(*arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A `dlc` process; it imports what the environment says, if one is given."""
    line = command(*arguments) if env else [str(warm.commands() / "dlc"), *map(str, arguments)]
    return subprocess.run(line, cwd=cwd, env=env or environment(), capture_output=True, text=True, check=False)


def build(*arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`dlc build … --json`, which must succeed; its document."""
    done = dlc("build", *arguments, "--json", cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def compiled(document: Mapping[str, Any]) -> int:
    """How many compilers a build ran."""
    return sum(0 if s["cached"] else int(s["counts"].get("compile runs", 0)) for s in document["steps"])


def generated(document: Mapping[str, Any]) -> int:
    """For how many kernels a build generated text."""
    return sum(0 if s["cached"] else int(s["counts"].get("generate runs", 0)) for s in document["steps"])


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}
