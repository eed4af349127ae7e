"""Models with open dimensions, as exporters write them: computed shapes, caches that grow, images of any size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = Any
n: Callable[..., onnx.NodeProto] = helper.make_node
RNG = np.random.default_rng(11)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Mapping[str, Any],
    integers: Sequence[str] = (),
) -> bytes:
    """A model with these shapes of inputs, of which those named are i64."""
    kinds = {k: TensorProto.INT64 if k in integers else TensorProto.FLOAT for k in inputs}
    infos = [helper.make_tensor_value_info(k, kinds[k], list(s)) for k, s in inputs.items()]
    results = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outputs]
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(list(nodes), "g", infos, results, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


def attention() -> bytes:
    """Heads split by computed shapes, scores of open rows and columns, a mask, softmax along an open dimension."""
    nodes = [
        n("Shape", ["x"], ["shape"]),
        n("Gather", ["shape", "zero"], ["batch"]),
        n("Gather", ["shape", "one"], ["length"]),
        n("Unsqueeze", ["batch", "axis0"], ["b"]),
        n("Unsqueeze", ["length", "axis0"], ["l"]),
        n("Concat", ["b", "l", "heads", "width"], ["apart"], axis=0),
        n("Concat", ["b", "l", "all"], ["together"], axis=0),
    ]
    for k in "qkv":
        nodes += [n("MatMul", ["x", f"w{k}"], [f"{k}0"]), n("Reshape", [f"{k}0", "apart"], [f"{k}1"])]
        nodes += [n("Transpose", [f"{k}1"], [k], perm=[0, 2, 3, 1] if k == "k" else [0, 2, 1, 3])]
    nodes += [
        n("MatMul", ["q", "k"], ["s"]),
        n("Mul", ["s", "scale"], ["scaled"]),
        n("Unsqueeze", ["mask", "axis12"], ["m"]),
        n("Add", ["scaled", "m"], ["masked"]),
        n("Softmax", ["masked"], ["p"], axis=-1),
        n("MatMul", ["p", "v"], ["c"]),
        n("Transpose", ["c"], ["t"], perm=[0, 2, 1, 3]),
        n("Reshape", ["t", "together"], ["y"]),
        n("ReduceMean", ["y"], ["mean"], axes=[1], keepdims=0),
    ]
    constants = {
        **{f"w{k}": weights(24, 24) for k in "qkv"},
        "zero": np.int64(0),
        "one": np.int64(1),
        "axis0": np.array([0]),
        "axis12": np.array([1, 2]),
        "heads": np.array([3]),
        "width": np.array([8]),
        "all": np.array([24]),
        "scale": np.float32(0.3),
    }
    return model(nodes, {"x": ["batch", "seq", 24], "mask": ["batch", "seq"]}, ["y", "mean"], constants)


def cached() -> bytes:
    """New rows behind those of a cache, positions counted from its end, and what lies before each of them."""
    nodes = [
        n("Shape", ["past"], ["sp"]),
        n("Gather", ["sp", "one"], ["before"]),
        n("Shape", ["x"], ["sx"]),
        n("Gather", ["sx", "one"], ["new"]),
        n("Add", ["before", "new"], ["behind"]),
        n("Range", ["before", "behind", "step"], ["positions"]),
        n("Gather", ["table", "positions"], ["embedded"]),
        n("Add", ["x", "embedded"], ["e"]),
        n("Concat", ["past", "e"], ["present"], axis=1),
        n("Range", ["none", "behind", "step"], ["every"]),
        n("Unsqueeze", ["positions", "axis1"], ["rows"]),
        n("Unsqueeze", ["every", "axis0"], ["columns"]),
        n("LessOrEqual", ["columns", "rows"], ["causal"]),
        n("Transpose", ["present"], ["pt"], perm=[0, 2, 1]),
        n("MatMul", ["e", "pt"], ["scores"]),
        n("Where", ["causal", "scores", "low"], ["seen"]),
        n("Softmax", ["seen"], ["p"], axis=-1),
        n("MatMul", ["p", "present"], ["y"]),
    ]
    constants = {
        "one": np.int64(1),
        "none": np.int64(0),
        "step": np.int64(1),
        "axis0": np.array([0]),
        "axis1": np.array([1]),
        "table": weights(64, 8),
        "low": np.float32(-1e9),
    }
    return model(nodes, {"x": ["batch", "new", 8], "past": ["batch", "past len", 8]}, ["present", "y"], constants)


def decoder(layers: int = 2, width: int = 16, heads: int = 2) -> bytes:
    """New tokens after the keys and values of those before: a cache of all layers, which every layer adds rows to."""
    nodes = [
        n("Shape", ["x"], ["sx"]),
        n("Gather", ["sx", "one"], ["new"]),
        n("Shape", ["past"], ["sp"]),
        n("Gather", ["sp", "four"], ["before"]),
        n("Add", ["before", "new"], ["behind"]),
        n("Range", ["before", "behind", "one"], ["rows"]),
        n("Range", ["zero", "behind", "one"], ["columns"]),
        n("Unsqueeze", ["rows", "last"], ["rows1"]),
        n("LessOrEqual", ["columns", "rows1"], ["causal"]),
        n("Where", ["causal", "seen", "hidden"], ["mask"]),
    ]
    constants: dict[str, Any] = {
        **{name: np.int64(k) for k, name in enumerate(("zero", "one", "two", "three", "four"))},
        "last": np.array([1]),
        "front": np.array([0]),
        "seen": np.float32(0),
        "hidden": np.float32(-1e9),
        "apart": np.array([0, 0, heads, width // heads]),
        "together": np.array([0, 0, width]),
    }
    for k in range(layers):
        at = str(k)
        constants |= {f"w{k}": weights(width, 3 * width), f"o{k}": weights(width, width), f"layer{k}": np.int64(k)}
        x = f"x{k}" if k else "x"
        nodes += [
            n("MatMul", [x, f"w{k}"], [f"qkv{k}"]),
            n("Split", [f"qkv{k}"], [f"{t}{k}" for t in "qkv"], axis=2),
            n("Gather", ["past", f"layer{k}"], [f"past{k}"], axis=0),
        ]
        for t in "qkv":
            nodes += [n("Reshape", [t + at, "apart"], [t + at + "r"])]
            nodes += [n("Transpose", [t + at + "r"], [t + at + "t"], perm=[0, 2, 1, 3])]
        for t, which in (("k", "zero"), ("v", "one")):
            nodes += [n("Gather", [f"past{k}", which], [t + at + "p"], axis=0)]
            nodes += [n("Concat", [t + at + "p", t + at + "t"], [t + at + "a"], axis=2)]
            nodes += [n("Unsqueeze", [t + at + "a", "front"], [t + at + "u"])]
        nodes += [
            n("Concat", [f"k{k}u", f"v{k}u"], [f"kv{k}"], axis=0),
            n("Unsqueeze", [f"kv{k}", "front"], [f"present{k}"]),
            n("Transpose", [f"k{k}a"], [f"turned{k}"], perm=[0, 1, 3, 2]),
            n("MatMul", [f"q{k}t", f"turned{k}"], [f"scores{k}"]),
            n("Add", [f"scores{k}", "mask"], [f"masked{k}"]),
            n("Softmax", [f"masked{k}"], [f"p{k}"], axis=-1),
            n("MatMul", [f"p{k}", f"v{k}a"], [f"c{k}"]),
            n("Transpose", [f"c{k}"], [f"ct{k}"], perm=[0, 2, 1, 3]),
            n("Reshape", [f"ct{k}", "together"], [f"cr{k}"]),
            n("MatMul", [f"cr{k}", f"o{k}"], [f"y{k}"]),
            n("Add", [x, f"y{k}"], [f"x{k + 1}" if k + 1 < layers else "y"]),
        ]
    nodes += [n("Concat", [f"present{k}" for k in range(layers)], ["present"], axis=0)]
    shapes = {"x": ["batch", "new", width], "past": [layers, 2, "batch", heads, "past len", width // heads]}
    return model(nodes, shapes, ["y", "present"], constants)


def pyramid() -> bytes:
    """Windows that halve an image and double it again, beside what it was."""
    nodes = [
        n("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1]),
        n("Relu", ["a"], ["r"]),
        n("MaxPool", ["r"], ["h"], kernel_shape=[2, 2], strides=[2, 2]),
        n("Conv", ["h", "w1"], ["c"], pads=[1, 1, 1, 1]),
        n("ConvTranspose", ["c", "w2"], ["u"], strides=[2, 2]),
        n("Concat", ["u", "r"], ["both"], axis=1),
        n("Conv", ["both", "w3"], ["y"]),
        n("GlobalAveragePool", ["y"], ["g"]),
    ]
    constants = {
        "w0": weights(6, 3, 3, 3),
        "b0": weights(6),
        "w1": weights(8, 6, 3, 3),
        "w2": weights(8, 6, 2, 2),
        "w3": weights(2, 12, 1, 1),
    }
    return model(nodes, {"x": [1, 3, "h", "w"]}, ["y", "g"], constants)


def shapes() -> bytes:
    """What exporters write around shapes: slices to an end, constants of a shape, expansion, flattening, tokens."""
    nodes = [
        n("Shape", ["ids"], ["s"]),
        n("Gather", ["table", "ids"], ["e"]),
        n("Slice", ["s", "begin", "end"], ["l"]),
        n("Slice", ["positions", "begin0", "l", "axis0"], ["p"]),
        n("Add", ["e", "p"], ["x"]),
        n("ConstantOfShape", ["s"], ["zeros"], value=numpy_helper.from_array(np.array([2.0], np.float32))),
        n("Reshape", ["x", "rows"], ["flat"]),
        n("Gemm", ["flat", "w", "b"], ["g"]),
        n("Concat", ["s", "width"], ["shape"], axis=0),
        n("Reshape", ["g", "shape"], ["back"]),
        n("Expand", ["unit", "shape"], ["wide"]),
        n("Mul", ["back", "wide"], ["y"]),
        n("Slice", ["y", "one", "large", "axis1"], ["rest"]),
        n("Size", ["rest"], ["count"]),
    ]
    constants = {
        "table": weights(20, 6),
        "positions": weights(16, 6),
        "w": weights(6, 5),
        "b": weights(5),
        "begin": np.array([1]),
        "end": np.array([2]),
        "begin0": np.array([0]),
        "axis0": np.array([0]),
        "axis1": np.array([1]),
        "one": np.array([1]),
        "large": np.array([(1 << 63) - 1]),
        "rows": np.array([-1, 6]),
        "width": np.array([5]),
        "unit": weights(1, 1, 5),
    }
    return model(nodes, {"ids": ["batch", "seq"]}, ["zeros", "y", "rest", "count"], constants, ["ids"])


def chosen() -> bytes:
    """Elements at places that data says along open dimensions, the largest of many, and what is reflected at an end."""
    nodes = [
        n("GatherElements", ["x", "places"], ["picked"], axis=0),
        n("Flatten", ["x"], ["line"], axis=0),
        n("TopK", ["line", "count"], ["most", "where"], axis=1),
        n("Pad", ["x", "pads"], ["reflected"], mode="reflect"),
    ]
    constants = {"count": np.array([3]), "pads": np.array([0, 1, 0, 1])}
    inputs = {"x": ["rows", "columns"], "places": [1, "columns"]}
    return model(nodes, inputs, ["picked", "most", "where", "reflected"], constants, ["places"])


def copies() -> bytes:
    """One value as several outputs, in rows, as a vector, as it is given; of sizes that a call has, or finds."""
    nodes = [
        n("Neg", ["x"], ["y"]),
        n("Identity", ["y"], ["again"]),
        n("Flatten", ["y"], ["line"], axis=0),
        n("Identity", ["x"], ["given"]),
        n("NonZero", ["x"], ["found"]),
        n("Identity", ["found"], ["found again"]),
    ]
    outputs = ["y", "again", "line", "given", "found", "found again"]
    return model(nodes, {"x": ["rows", "columns"]}, outputs, {})


def backward() -> bytes:
    """Rows from the last to the first, by slices and by subscripts, of an open dimension."""
    bounds = {"all": (-1, -(1 << 63), -1), "some": (-1, -3, -1), "early": (2, -1 << 62, -1), "few": (2, 0, -2)}
    nodes = [n("Slice", ["x", *(f"{k} {part}" for part in ("start", "end")), "axis", f"{k} step"], [k]) for k in bounds]
    nodes += [n("Gather", ["x", "places"], ["picked"]), n("Add", ["all", "x"], ["sum"])]
    constants = {
        f"{k} {part}": np.array([v])
        for k, values in bounds.items()
        for part, v in zip(("start", "end", "step"), values, strict=True)
    }
    constants |= {"axis": np.array([0]), "places": np.array([-1, -2, -3])}
    return model(nodes, {"x": ["rows", 3]}, [*bounds, "picked", "sum"], constants)


def transforms() -> bytes:
    """Fourier transforms along an open dimension: whole, the first half, and back."""
    nodes = [
        n("DFT", ["x"], ["whole"], axis=1),
        n("DFT", ["x"], ["half"], axis=1, onesided=1),
        n("DFT", ["whole"], ["back"], axis=1, inverse=1),
    ]
    return model(nodes, {"x": ["rows", "length", 1]}, ["whole", "half", "back"], {})


def cuts() -> bytes:
    """The first five, what follows, the largest few, and all but those that are cut: parts that not every size has."""
    nodes = [
        n("Slice", ["x", "zero", "five", "zero"], ["first"]),
        n("Slice", ["x", "five", "nine", "zero"], ["then"]),
        n("Concat", ["then", "first"], ["turned"], axis=0),
        n("MatMul", ["turned", "w"], ["y"]),
        n("Shape", ["x"], ["count"], end=1),
        n("Concat", ["count", "four"], ["both"], axis=0),
        n("ReduceMin", ["both"], ["k"], keepdims=1),
        n("TopK", ["x", "k"], ["top", "places"], axis=0),
        n("Shape", ["top"], ["tops"], end=1),
        n("Slice", ["x", "tops", "nine", "zero"], ["rest"]),
        n("ReduceMax", ["both"], ["most"], keepdims=1),
        n("Concat", ["most", "three"], ["shape"], axis=0),
        n("Expand", ["one", "shape"], ["filled"]),
        n("Softmax", ["filled"], ["p"], axis=0),
    ]
    constants = {
        **{name: np.array([k]) for name, k in (("zero", 0), ("three", 3), ("four", 4), ("five", 5), ("nine", 9))},
        "one": np.ones((1, 1), np.float32),
        "w": weights(3, 6),
    }
    return model(nodes, {"x": ["k", 3]}, ["first", "then", "y", "top", "places", "rest", "p"], constants)


def feeds(content: bytes, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Random inputs at these sizes; integers from 0 to 19."""
    out: dict[str, Array] = {}
    for i in onnx.load_model_from_string(content).graph.input:
        shape = [sizes.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim]
        whole = i.type.tensor_type.elem_type == TensorProto.INT64
        out[i.name] = RNG.integers(0, 20, shape) if whole else RNG.standard_normal(shape).astype(np.float32)
    return out
