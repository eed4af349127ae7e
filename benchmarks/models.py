"""Models for benchmarks, from the onnx package's light ones: real architectures, whose weights are made here.

The light models hold splats (`ConstantOfShape`) for weights; a compiler may fold those away, so that figures
would say little. Here every splat becomes an initializer with random values, scaled so that activations stay finite.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def with_random_weights(name: str, path: Path, *, seed: int = 0, external: bool = False) -> Path:
    """Write light model `name` ("resnet50") with random weights to `path`; `external`: weights to `path.data`."""
    model = onnx.load(str(LIGHT / f"light_{name}.onnx"))
    randomise(model, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    if external:
        onnx.save(model, str(path), save_as_external_data=True, location=f"{path.name}.data")
    else:
        onnx.save(model, str(path))
    return path


def randomise(model: onnx.ModelProto, seed: int) -> None:
    """Replace splats and float initializers by random values."""
    random = np.random.default_rng(seed)
    graph = model.graph
    known = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    splats = {n.output[0]: known[n.input[0]] for n in graph.node if n.op_type == "ConstantOfShape"}
    shapes = {n.input[0] for n in graph.node if n.op_type == "ConstantOfShape"}
    variances = {n.input[4] for n in graph.node if n.op_type == "BatchNormalization"}
    kept = [n for n in graph.node if n.op_type != "ConstantOfShape"]
    floats = {k: v.shape for k, v in known.items() if v.dtype == np.float32}
    made = {**floats, **{k: tuple(int(d) for d in v) for k, v in splats.items()}}
    others = [i for i in graph.initializer if i.name not in made and i.name not in shapes]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(others)
    graph.initializer.extend(
        numpy_helper.from_array(_values(random, shape, n in variances), n) for n, shape in made.items()
    )
    inputs = [i for i in graph.input if i.name not in shapes]
    del graph.input[:]
    graph.input.extend(inputs)


def _values(random: Any, shape: tuple[int, ...], variance: bool) -> Any:
    if variance:
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    scale = np.sqrt(2.0 / fan_in) if len(shape) > 1 else 0.1
    return random.standard_normal(shape, np.float32) * np.float32(scale)


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with other names for every node, tensor, input and output."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    names: dict[str, str] = {"": ""}

    def new(name: str) -> str:
        return names.setdefault(name, f"renamed_{len(names)}")

    graph = found.graph
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = new(value.name)
    for number, node in enumerate(graph.node):
        node.name = f"node_{number}"
        node.input[:] = [new(n) for n in node.input]
        node.output[:] = [new(n) for n in node.output]
    return found


def _main(arguments: list[str]) -> Iterator[str]:
    for name in arguments[1:]:
        yield str(with_random_weights(name, Path(arguments[0]) / f"{name}.onnx"))


if __name__ == "__main__":
    print("\n".join(_main(sys.argv[1:])))
