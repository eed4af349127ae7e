"""Whether a model's names are text: the parser hands over bytes as they are where a string is no UTF-8."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from dlc.base.diagnostics import Location, error


def check_names(model: onnx.ModelProto, source: str) -> None:
    """Raise DlcError when a name that the import uses is not UTF-8."""
    for name in _of_model(model):
        if isinstance(name, bytes):
            shown = name[:40].decode("utf-8", "backslashreplace")
            raise error(
                "bad-name",
                f'a name in the model is not UTF-8: "{shown}"',
                location=Location(source),
                help="check that the file is not damaged; names in ONNX are UTF-8",
            )


def _of_model(model: onnx.ModelProto) -> Iterator[str | bytes]:
    for o in model.opset_import:
        yield o.domain
    yield from _of_graph(model.graph)
    for f in model.functions:
        yield from (f.name, f.domain, *f.input, *f.output, *f.attribute)
        yield from (a.name for a in f.attribute_proto)
        yield from (o.domain for o in f.opset_import)
        for node in f.node:
            yield from _of_node(node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[str | bytes]:
    yield graph.name
    for i in graph.input:
        yield i.name
        yield from (d.dim_param for d in i.type.tensor_type.shape.dim)
    yield from (o.name for o in graph.output)
    for t in graph.initializer:
        yield t.name
        for entry in t.external_data:
            yield from (entry.key, entry.value)
    yield from (s.values.name for s in graph.sparse_initializer)
    for node in graph.node:
        yield from _of_node(node)


def _of_node(node: onnx.NodeProto) -> Iterator[str | bytes]:
    yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
    for a in node.attribute:
        yield from (a.name, a.ref_attr_name)
        if a.type == onnx.AttributeProto.GRAPH:
            yield from _of_graph(a.g)
