"""Models made for tests, and what the frontend and an oracle say about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import onnx
from dlc_frontend_onnx.frontend import Onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dlc import Report, Source
from dlc.graph import Graph, evaluate
from dlc.verify.reference import exact_session

Array = Any
QUICK = "c{flags=-O0}"
"""The target of programs whose numbers are compared. What compilers make of C when they optimise, tests/backend_c and
tests/models see."""
IR_VERSIONS = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10}


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model whose inputs have the types of the arrays."""
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()
    ]
    results = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outputs]
    stored = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", infos, results, stored)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSIONS.get(opset, 10))


def parse(model: onnx.ModelProto | bytes, **options: Any) -> Graph:
    """The graph of a model."""
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return Onnx(**options).parse(Source(data=data, label="test.onnx"), Report())


Oracle = Callable[[onnx.ModelProto, Sequence[str], Mapping[str, Array]], list[Array]]


def reference(model: onnx.ModelProto, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """What ONNX's reference implementation gives."""
    evaluator: Any = ReferenceEvaluator(model)
    return evaluator.run(list(outputs), dict(feeds))


def runtime(model: onnx.ModelProto, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """What onnxruntime gives, without optimisations, and without overflow on processors that have no VNNI."""
    untyped = onnx.ModelProto()
    untyped.CopyFrom(model)
    for output in untyped.graph.output:  # of an output without a type it infers the type, of an undefined one not
        if output.type.tensor_type.elem_type == TensorProto.UNDEFINED:
            output.ClearField("type")
    session = exact_session(import_module("onnxruntime"), untyped.SerializeToString())
    return session.run(list(outputs), dict(feeds))


def compare(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    oracle: Oracle = reference,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    **options: Any,
) -> Graph:
    """Assert that dlc and the oracle give the same results; the graph."""
    graph = parse(model, **options)
    got = evaluate(graph, {i.name: feeds[i.name] for i in graph.inputs})
    for name, want in zip(graph.names, oracle(model, graph.names, feeds), strict=True):
        have, want = got[name], np.asarray(want)
        assert have.dtype == want.dtype, name
        assert have.shape == want.shape, name
        np.testing.assert_allclose(have, want, rtol=rtol, atol=atol, err_msg=name)
    return graph
