"""Every rule with figures that no exporter writes: read or refused with place and remedy, never anything else."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import onnx
import pytest
from building import model_of, parse
from cases import CASES, Case
from onnx import helper, numpy_helper

from dlc import DlcError

FIGURES = (-1, 0, 1, 2, 3, -2, 7, 100, 1 << 31, 1 << 40, 1 << 62, -(1 << 63), (1 << 63) - 1)
TEXTS = (b"", b"\xff\xfe", b"SAME_UPPER", b"linear", b"x" * 100)
NUMBERS = (0.0, -1.0, 1e38, float("nan"), float("inf"))


def model_for(case: Case, all_constant: bool) -> onnx.ModelProto:
    """The model of a case; with `all_constant` integers and short lists are initializers."""
    arrays = {f"x{k}": np.asarray(v) for k, v in enumerate(case.operands)}
    node = helper.make_node(case.op, list(arrays), [f"y{k}" for k in range(case.outputs)], **case.attributes)
    fixed = {
        k: v
        for n, (k, v) in enumerate(arrays.items())
        if n in case.fixed or (all_constant and (v.dtype.kind == "i" or v.size < 4))
    }
    feeds = {k: v for k, v in arrays.items() if k not in fixed}
    return model_of([node], feeds, list(node.output), fixed, case.opsets[-1])


def attribute(model: onnx.ModelProto, rng: Random) -> None:
    """An attribute with another value or of another type."""
    attributes = model.graph.node[0].attribute
    if not attributes:
        return
    a = rng.choice(attributes)
    if rng.random() < 0.2:
        a.type = rng.randrange(15)  # type: ignore[assignment]
    elif a.type == onnx.AttributeProto.INT:
        a.i = rng.choice(FIGURES)
    elif a.type == onnx.AttributeProto.FLOAT:
        a.f = rng.choice(NUMBERS)
    elif a.type == onnx.AttributeProto.STRING:
        a.s = rng.choice(TEXTS)
    elif a.ints:
        a.ints[rng.randrange(len(a.ints))] = rng.choice(FIGURES)
        if rng.random() < 0.3:
            a.ints.append(rng.choice(FIGURES))


def operand(model: onnx.ModelProto, rng: Random) -> None:
    """An operand more, one less, or another one."""
    inputs = model.graph.node[0].input
    if not inputs:
        return
    match rng.randrange(3):
        case 0:
            inputs.append(rng.choice(inputs))
        case 1:
            del inputs[rng.randrange(len(inputs))]
        case _:
            inputs[rng.randrange(len(inputs))] = rng.choice(["", *inputs])


def stored(model: onnx.ModelProto, rng: Random) -> None:
    """A stored number, shape or type."""
    tensors = [t for t in model.graph.initializer if t.data_type not in (0, onnx.TensorProto.UNDEFINED)]
    if not tensors:
        return
    t = rng.choice(tensors)
    if rng.random() < 0.2:
        t.data_type = rng.randrange(-1, 30)
    elif t.dims and rng.random() < 0.3:
        t.dims[rng.randrange(len(t.dims))] = rng.choice(FIGURES)
    elif t.data_type == onnx.TensorProto.INT64 and t.raw_data:
        values = np.frombuffer(t.raw_data, np.int64).copy()
        values[rng.randrange(values.size)] = rng.choice(FIGURES)
        t.raw_data = values.tobytes()


def given(model: onnx.ModelProto, rng: Random) -> None:
    """A dimension or the element type of an input."""
    if not model.graph.input:
        return
    tensor = rng.choice(model.graph.input).type.tensor_type
    if tensor.shape.dim and rng.random() < 0.8:
        rng.choice(tensor.shape.dim).dim_value = rng.choice(FIGURES)
    else:
        tensor.elem_type = rng.randrange(30)


def version(model: onnx.ModelProto, rng: Random) -> None:
    """Another operator set."""
    model.opset_import[0].version = rng.randrange(6, onnx.defs.onnx_opset_version() + 1)


CHANGES: tuple[Callable[[onnx.ModelProto, Random], None], ...] = (attribute, operand, stored, given, version)


@pytest.mark.parametrize("seed", range(4))
def test_rules_read_or_refuse_any_figures(seed: int) -> None:
    rng = Random(seed)
    refused = 0
    for case in CASES:
        model = model_for(case, all_constant=rng.random() < 0.5)
        for _ in range(rng.choice((1, 1, 2, 3))):
            rng.choice(CHANGES)(model, rng)
        try:
            parse(model)
        except DlcError as problem:
            refused += 1
            assert all(d.help and d.location is not None for d in problem.diagnostics), str(problem)
    assert 0 < refused < len(CASES)


def test_computing_with_constants_of_text_is_refused() -> None:
    text = numpy_helper.from_array(np.array(["a"], dtype=object), "t")
    model = model_of([helper.make_node("Neg", ["t"], ["y"])], {}, ["y"])
    model.graph.initializer.append(text)
    with pytest.raises(DlcError, match="element type string"):
        parse(model)
