"""Mutations of valid models: bytes, and fields of the protobuf that no exporter writes so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import onnx

NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    5,
    -2,
    7,
    100,
    4097,
    1 << 16,
    1 << 31,
    1 << 40,
    1 << 62,
    -(1 << 31),
    -(1 << 63),
    (1 << 63) - 1,
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e38, float("nan"), float("inf"), float("-inf"))
TEXTS = (b"", b"\xff\xfe", b"SAME_UPPER", b"linear", b"NOTSET", b"x" * 100, b'"; int y; /*', b"bij,bjk->bik", b"...")
NAMES = ("", "x", "y", 'a"b', "*/ int x; /*", "\n", "%s", "../../x", "é", "x" * 300)

Mutation = Callable[[onnx.ModelProto, Random], None]


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Every node, those of branches and functions among them."""
    waiting = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    found: list[onnx.NodeProto] = []
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += (n for a in node.attribute for g in (a.g, *a.graphs) for n in g.node)
    return found


def tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Initializers and tensors in attributes."""
    return [*model.graph.initializer, *(a.t for n in nodes(model) for a in n.attribute if a.HasField("t"))]


def values(model: onnx.ModelProto) -> list[str]:
    """Names of all values."""
    graph = model.graph
    return [*(v.name for v in (*graph.input, *graph.initializer)), *(o for n in graph.node for o in n.output)] or ["x"]


def attribute(model: onnx.ModelProto, rng: Random) -> None:
    """An attribute with another value, another type, another name, twice, or away."""
    owners = [n for n in nodes(model) if n.attribute]
    if not owners:
        return
    node = rng.choice(owners)
    a = rng.choice(node.attribute)
    match rng.randrange(9):
        case 0:
            a.type = rng.randrange(15)  # type: ignore[assignment]
        case 1:
            node.attribute.remove(a)
        case 2:
            a.name = rng.choice(("axis", "axes", "kernel_shape", "mode", "to", "body", *NAMES))
        case 3:
            node.attribute.add().CopyFrom(a)
        case _ if a.ints:
            a.ints[rng.randrange(len(a.ints))] = rng.choice(NUMBERS)
            if rng.random() < 0.3:
                a.ints.extend(rng.choices(NUMBERS, k=rng.randrange(1, 5)))
        case _ if a.floats:
            a.floats[rng.randrange(len(a.floats))] = rng.choice(FLOATS)
        case _ if a.strings:
            a.strings[rng.randrange(len(a.strings))] = rng.choice(TEXTS)
        case _:
            a.i, a.f, a.s = rng.choice(NUMBERS), rng.choice(FLOATS), rng.choice(TEXTS)


def operand(model: onnx.ModelProto, rng: Random) -> None:
    """A node reads another value, perhaps its own; one operand more or one less; a result of another name."""
    node = rng.choice(nodes(model) or [model.graph.node.add()])
    ends = rng.choice((node.input, node.input, node.output))
    match rng.randrange(4):
        case 0:
            ends.append(rng.choice(values(model)))
        case 1 if ends:
            del ends[rng.randrange(len(ends))]
        case _ if ends:
            ends[rng.randrange(len(ends))] = rng.choice((*values(model), *node.output, *NAMES[:2]))
        case _:
            pass


def operator(model: onnx.ModelProto, rng: Random) -> None:
    """Another operator or domain, a node twice, in another place, or away."""
    graph = model.graph
    if not graph.node:
        return
    node = rng.choice(graph.node)
    match rng.randrange(5):
        case 0:
            node.op_type = rng.choice(rng.choice(OPERATORS))
        case 1:
            node.domain = rng.choice(("com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx", *NAMES))
        case 2:
            graph.node.add().CopyFrom(node)
        case 3:
            moved = onnx.NodeProto()
            moved.CopyFrom(node)
            graph.node.remove(node)
            graph.node.insert(rng.randrange(len(graph.node) + 1), moved)
        case _:
            graph.node.remove(node)


OPERATORS = [
    ("Relu", "Neg", "Exp", "Not", "Shape", "Size", "NonZero", "Cast", "Softmax", "Flatten", "Det", "Squeeze"),
    ("Add", "Div", "Mod", "Pow", "MatMul", "Gather", "Reshape", "Expand", "Tile", "BitShift", "Equal", "Concat"),
    ("Conv", "ConvTranspose", "MaxPool", "Resize", "Pad", "Slice", "Split", "TopK", "OneHot", "Scan", "Loop", "If"),
    ("LSTM", "Einsum", "GridSample", "STFT", "DFT", "ScatterND", "QuantizeLinear", "Attention", "Range", "CumSum"),
]


def stored(model: onnx.ModelProto, rng: Random) -> None:
    """A stored tensor: its type, shape, numbers, length, or where it lies."""
    found = tensors(model)
    if not found:
        return
    t = rng.choice(found)
    match rng.randrange(7):
        case 0:
            t.data_type = rng.choice((*range(-1, 30), 1 << 20))
        case 1:
            t.dims.append(rng.choice(NUMBERS))
        case 2 if t.dims:
            t.dims[rng.randrange(len(t.dims))] = rng.choice(NUMBERS)
        case 3 if t.raw_data:
            t.raw_data = t.raw_data[: rng.randrange(len(t.raw_data))] + rng.randbytes(rng.randrange(9))
        case 4 if t.raw_data and len(t.raw_data) < 4096:
            data = bytearray(t.raw_data)
            width = 8 if t.data_type == onnx.TensorProto.INT64 else 4
            at = rng.randrange(0, len(data), width)
            data[at : at + width] = (rng.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, "little")
            t.raw_data = bytes(data)
        case 5:
            t.int64_data.extend(rng.choices(NUMBERS, k=rng.randrange(1, 4)))
        case _:
            t.data_location = onnx.TensorProto.EXTERNAL
            t.external_data.add(key="location", value=rng.choice(("/etc/passwd", "../x", "x", "")))


def declared(model: onnx.ModelProto, rng: Random) -> None:
    """The declared type of an input or output: a dimension, the rank, the element type, the kind."""
    ports = [*model.graph.input, *model.graph.output]
    if not ports:
        return
    tensor = rng.choice(ports).type.tensor_type
    match rng.randrange(5):
        case 0:
            tensor.elem_type = rng.choice((*range(30), 1 << 20))
        case 1:
            tensor.shape.dim.add().dim_value = rng.choice(NUMBERS)
        case 2 if tensor.shape.dim:
            rng.choice(tensor.shape.dim).dim_param = rng.choice(NAMES)
        case 3 if tensor.shape.dim:
            del tensor.shape.dim[rng.randrange(len(tensor.shape.dim))]
        case _ if tensor.shape.dim:
            rng.choice(tensor.shape.dim).dim_value = rng.choice(NUMBERS)
        case _:
            tensor.Clear()


def name(model: onnx.ModelProto, rng: Random) -> None:
    """A name of a port, node, initializer or function."""
    graph = model.graph
    owners = [*graph.input, *graph.output, *graph.initializer, *graph.node, *model.functions]
    if owners:
        rng.choice(owners).name = rng.choice((*NAMES, *values(model)))


def version(model: onnx.ModelProto, rng: Random) -> None:
    """Another operator set or format."""
    if rng.random() < 0.2:
        model.ir_version = rng.choice((0, 1, 3, 10, 99, 1 << 40))
    elif model.opset_import:
        chosen = rng.choice(model.opset_import)
        chosen.version = rng.choice((*range(30), -1, 1 << 40))


FIELDS: tuple[Mutation, ...] = (
    attribute,
    attribute,
    operand,
    operand,
    operator,
    stored,
    stored,
    declared,
    name,
    version,
)


def by_bytes(data: bytes, rng: Random) -> bytes:
    """Some bytes changed, added, lost or repeated."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, length = rng.randrange(len(out)), rng.randrange(1, 12)
        match rng.randrange(5):
            case 0:
                out[at] = rng.randrange(256)
            case 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2 if len(out) > 200:
                del out[at : at + length]
            case 3:
                out[at:at] = rng.randbytes(length)
            case _:
                out[at:at] = out[rng.randrange(len(out)) :][:length]
    return bytes(out)


def mutated(data: bytes, rng: Random) -> bytes:
    """A model after one to three mutations of its fields, of its bytes, or of both."""
    if rng.random() < 0.75:
        model = onnx.ModelProto()
        model.ParseFromString(data)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            rng.choice(FIELDS)(model, rng)
        data = model.SerializeToString()
        if rng.random() < 0.9:
            return data
    return by_bytes(data, rng)


def seeds(folder: Path | None = None) -> Iterator[tuple[str, bytes]]:
    """(name, model): those of a folder up to 1 MiB; or ONNX's own node tests, made here, and its light networks."""
    if folder is not None:
        for path in sorted(folder.glob("*.onnx")):
            if path.stat().st_size < 1 << 20:
                yield path.stem, path.read_bytes()
        return
    import logging
    import warnings

    from onnx.backend.test.case.node import collect_testcases

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for case in collect_testcases(None):  # type: ignore[arg-type]  # None: all operators
        if case.model is not None and case.model.ByteSize() < 1 << 16:
            yield case.name, case.model.SerializeToString()
    for path in sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx")):
        yield path.stem, path.read_bytes()
