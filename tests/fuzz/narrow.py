"""Element types that numpy does not have, as values of types that it has; models of them as onnxruntime takes them.

    y = op(a, b), all of bfloat16   →   y = Cast(op(Cast(a, float), Cast(b, float)), bfloat16)

So ONNX defines it: a type of storage says how results are rounded. onnxruntime has few operators for these types but
Cast, QuantizeLinear and DequantizeLinear. Inputs and outputs of the model are cast, too, because its interface for
Python does not take or give such arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import ml_dtypes
import numpy as np
from onnx import helper

from tests.fuzz.model import Array, Model, Node

FLOATS: Final = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
INTEGERS: Final = ("int4", "uint4")
NARROW: Final = frozenset((*FLOATS, *INTEGERS))
CONVERTING: Final = ("Cast", "CastLike", "QuantizeLinear", "DequantizeLinear")
"""Operators that onnxruntime has for these types."""


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether elements are floats of any width."""
    return dtype.kind == "f" or str(dtype) in FLOATS


def figures(dtype: np.dtype[Any]) -> Any:
    """numpy's `finfo` of floats of any width."""
    library: Any = ml_dtypes if str(dtype) in FLOATS else np
    return library.finfo(dtype)


def wide_type(dtype: np.dtype[Any]) -> str:
    """A type of numpy that holds every value of a narrow one; of others the type itself."""
    return "float32" if str(dtype) in FLOATS else "int8" if str(dtype) in INTEGERS else str(dtype)


def wide(array: Array) -> Array:
    """The same values in a type of numpy."""
    return array.astype(wide_type(array.dtype)) if str(array.dtype) in NARROW else array


def code(dtype: np.dtype[Any] | str) -> int:
    """ONNX's number of an element type."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


CODES: Final = {code(name): name for name in NARROW}


def narrow_types(model: Model) -> set[str]:
    """Such types among those of the values of a model."""
    given = {str(v.dtype) for v in (*model.inputs.values(), *model.constants.values())}
    made = {n.attributes.get(a) for n in model.nodes for a in ("to", "output_dtype")}
    return given & NARROW | {CODES[c] for c in made if c in CODES}


def readable(model: Model, types: Mapping[str, np.dtype[Any]]) -> Model:
    """The same model for onnxruntime: wide inputs and outputs, and wide operands of most nodes.

    Args:
        model: The model.
        types: Element types of all that is computed.
    """
    known = {**types, **{k: v.dtype for k, v in (*model.inputs.items(), *model.constants.items())}}
    narrow = {k: d for k, d in known.items() if str(d) in NARROW}
    nodes: list[Node] = []
    inputs = dict(model.inputs)
    renamed: dict[str, str] = {}

    def cast(source: str, to: str, dtype: np.dtype[Any] | str, **how: int) -> str:
        if all(to not in n.outputs for n in nodes):
            nodes.append(Node("Cast", (source,), (to,), {"to": code(dtype), **how}))
        return to

    for name in [k for k in model.inputs if k in narrow]:
        inputs[name] = wide(model.inputs[name])
        exact = {"saturate": 0} if str(narrow[name]).startswith("float8") else {}  # infinity stays what it is
        renamed[name] = cast(name, f"{name}.narrow", narrow[name], **exact)

    def widened(name: str) -> str:
        return cast(renamed.get(name, name), f"{name}.wide", wide_type(narrow[name])) if name in narrow else name

    for node in model.nodes:
        if node.op in CONVERTING or not any(n in narrow for n in (*node.inputs, *node.outputs)):
            nodes.append(replace(node, inputs=tuple(renamed.get(n, n) for n in node.inputs)))
            continue
        operands = tuple(map(widened, node.inputs))
        results = tuple(f"{o}.result" if o in narrow else o for o in node.outputs)
        nodes.append(replace(node, inputs=operands, outputs=results))
        for o in (o for o in node.outputs if o in narrow):
            cast(f"{o}.result", o, narrow[o])
    return replace(model, inputs=inputs, outputs=tuple(map(widened, model.outputs)), nodes=tuple(nodes))
