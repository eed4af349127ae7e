"""Models written back: `template` leaves out the values of parameters, `filled` puts others in.

A template is a ModelProto like any other but for initializers that have elements and no data. Everything else is in
it, also what the model keeps in other files, so that a program needs nothing but its template to become a model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from dlc.base.diagnostics import ExitCode, Location, did_you_mean, error, quote
from dlc.base.types import Array, Type, dtype_of_numpy, f32
from dlc_frontend_onnx.order import node_names
from dlc_frontend_onnx.parameters import repeated
from dlc_frontend_onnx.tensors import Storage, code_of, type_of
from dlc_frontend_onnx.unsupported import Unsupported
from dlc_frontend_onnx.wire import Place

MOST: Final = (1 << 31) - 1
"""Bytes that protobuf allows in one message."""
INPUTS_NAME_ALL: Final = 3
"""The last version of the format in which every initializer is an input of the graph as well."""
_FIELDS: Final = (
    *("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"),
    *("raw_data", "external_data", "data_location"),
)
_STATISTICS: Final = {"mean": 3, "var": 4}
"""Operands of BatchNormalization that training changes, by the name that it gives those without one."""


def template(
    model: onnx.ModelProto,
    places: Sequence[Place | None],
    storage: Storage,
    names: Collection[str],
    inputs: Mapping[str, Type],
    tied: Sequence[str],
) -> bytes:
    """The model without the values of the parameters `names`; see `dlc.Frontend.template`.

    Args:
        model: The model without its large data; changed.
        places: For every initializer where that data is.
        storage: Gives the data.
        names: Initializers, Identities of initializers, inputs, and statistics of batch normalisations (NODE.mean,
            NODE.var) that are none of these.
        inputs: Types of the model's inputs.
        tied: Patterns of Identities that stay what they are.

    Raises:
        DlcError: a name is no parameter, data is missing, or the whole is larger than ONNX allows in one file.
    """
    graph, source = model.graph, storage.source.name
    held = dict(zip((t.name for t in graph.initializer), places, strict=True))
    known = repeated(graph, tied)
    split = _split(known, names)
    new = (*_copies(graph, split), *_of_inputs(graph, names, inputs), *_of_norms(graph, names, known))
    added = {t.name: t for t in new}
    missing = [name for name in names if name not in held and name not in added]
    if missing:
        help = did_you_mean(missing[0], sorted({*held, *known}), "parameters")
        message = f"{source} has no parameter {quote(missing[0])}"
        raise error("unknown-name", message, location=Location(source), help=help)
    _check_size(model, added, source)
    values = {t.name: (t, held[t.name]) for t in graph.initializer}
    for name, t in added.items():
        if name not in names and name in split:
            t.raw_data = _data(*values[split[name]], storage)
    for t in graph.initializer:
        external = t.data_location == onnx.TensorProto.EXTERNAL
        if t.name not in names and (external or held[t.name] is not None):
            data = _data(t, held[t.name], storage)
            _clear(t)
            t.raw_data = data
    for t in graph.initializer:
        if t.name in names:
            _clear(t)
    kept = [n for n in graph.node if not (len(n.output) == 1 and n.output[0] in split)]
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(added.values())
    if model.ir_version <= INPUTS_NAME_ALL:
        given = {i.name for i in graph.input}
        of_graph = (t for name, t in added.items() if name not in given)
        graph.input.extend(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in of_graph)
    return model.SerializeToString()


def filled(template: bytes, values: Mapping[str, Array]) -> bytes:
    """The model that a template becomes with the values of its parameters; see `dlc.Frontend.filled`."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(template)
        open_ = {t.name: (t, of) for t in model.graph.initializer if (of := type_of(t)).size and not _has_data(t)}
    except (DecodeError, ValueError, RecursionError, Unsupported) as e:
        raise error("not-a-model", f"the template ({len(template)} bytes) is not one of an ONNX model: {e}") from None
    unknown, missing = [n for n in values if n not in open_], [n for n in open_ if n not in values]
    if unknown:
        help = did_you_mean(unknown[0], open_, "parameters")
        raise error("unknown-name", f"the model has no parameter {quote(unknown[0])} without a value", help=help)
    if missing:
        raise error("missing-value", f"parameters without a value: {', '.join(map(quote, missing[:8]))}")
    for name, (t, of) in open_.items():
        array = np.asarray(values[name])
        dtype = dtype_of_numpy(array.dtype)
        if dtype is f32 and of.dtype.is_float and of.dtype.compute is f32:
            dtype = of.dtype  # of a target that gives all floats as f32; rounded below
        if (dtype, array.shape) != (of.dtype, of.shape):
            shown = Type(dtype, array.shape) if dtype else f"{array.dtype}{list(array.shape)}"
            raise error("bad-value", f"the value of {quote(name)} is {shown}, the parameter {of}")
        t.raw_data = np.ascontiguousarray(array, of.dtype.numpy).tobytes()
    return model.SerializeToString()


def _split(found: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Identities that become initializers: all that repeat the same one, where any of these gets another value."""
    moved = {found.get(name, name) for name in names}
    return {name: root for name, root in found.items() if root in moved}


def _copies(graph: onnx.GraphProto, split: Mapping[str, str]) -> list[onnx.TensorProto]:
    of = {t.name: t for t in graph.initializer}
    return [onnx.TensorProto(name=name, dims=of[s].dims, data_type=of[s].data_type) for name, s in split.items()]


def _of_inputs(graph: onnx.GraphProto, names: Collection[str], inputs: Mapping[str, Type]) -> list[onnx.TensorProto]:
    """Initializers of inputs that are parameters: the inputs stay, and what is stored is their default."""
    stored = {t.name for t in graph.initializer}
    given = (name for name in names if name in inputs and name not in stored)
    return [onnx.TensorProto(name=n, dims=inputs[n].shape, data_type=code_of(inputs[n].dtype)) for n in given]


def _of_norms(graph: onnx.GraphProto, names: Collection[str], known: Mapping[str, str]) -> list[onnx.TensorProto]:
    """Initializers of running statistics that the model computes from constants; their nodes read them from now on."""
    stored = {t.name: t for t in graph.initializer}
    found: list[onnx.TensorProto] = []
    for node_name, node in zip(node_names(graph.node), graph.node, strict=True):
        for key, k in _STATISTICS.items():
            name = f"{node_name}.{key}"
            if node.op_type != "BatchNormalization" or name not in names or name in stored or len(node.input) < 5:
                continue
            like = stored.get(known.get(node.input[1], node.input[1]))
            if like is not None:
                node.input[k] = name
                found.append(onnx.TensorProto(name=name, dims=like.dims, data_type=like.data_type))
    return found


def _check_size(model: onnx.ModelProto, added: Mapping[str, onnx.TensorProto], source: str) -> None:
    """Refuse before memory is taken what protobuf could not write."""
    try:
        size = model.ByteSize() + sum(type_of(t).nbytes + 64 for t in (*model.graph.initializer, *added.values()))
    except Unsupported as e:
        raise error("bad-tensor", f"{source}: {e}", location=Location(source), help=e.help) from None
    if size > MOST:
        message = f"{source} with its parameters takes {size:,} bytes; one ONNX file holds at most {MOST:,}"
        help = "train it without writing it back, or train fewer of its layers in a model of their own"
        raise error("too-large", message, location=Location(source), help=help, exit_code=ExitCode.LIMIT)


def _data(proto: onnx.TensorProto, place: Place | None, storage: Storage) -> bytes:
    try:
        return storage.tensor(proto, place).array().tobytes()
    except Unsupported as e:
        at = Location(storage.source.name, node=proto.name)
        raise error("bad-tensor", f"initializer {proto.name}: {e}", location=at, help=e.help) from None


def _has_data(t: onnx.TensorProto) -> bool:
    return any(len(getattr(t, field)) for field in _FIELDS[:-1])


def _clear(t: onnx.TensorProto) -> None:
    for field in _FIELDS:
        t.ClearField(field)
