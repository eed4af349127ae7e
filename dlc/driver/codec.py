"""States of the compiler as bytes for the cache, and back: graphs, plans, artifacts. Text and raw bytes only."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dlc.api.artifact import Artifact
from dlc.api.plan import Plan, parse_plan, plan_text
from dlc.api.program import Port, Signature
from dlc.base.allowed import Allowed
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.table import NAMES, Table, names_bytes, table_of
from dlc.base.types import Type
from dlc.cache.envelope import Damaged
from dlc.cache.step_record import FILE
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.placeholders import number_of, stand_in
from dlc.graph.tensor import Data, FileData, LazyData, MemoryData, PlaceholderData, Tensor
from dlc.graph.text import is_inline, parse_graph, print_graph

if TYPE_CHECKING:
    from dlc.graph.tensor import Array

State: TypeAlias = Graph | Plan | Artifact
Payload: TypeAlias = bytes | memoryview | Path
_TENSOR = "tensor/"
TENSORS = "tensors"
"""Payload of a table beside `NAMES`: the list of tensors."""
_SMALL = 1024
"""Bytes of a tensor that stands in the list: most models have many of these, and a file for each would take longer."""


@dataclass(frozen=True)
class Context:
    """What decoding needs beside the bytes."""

    ops: Callable[[], Mapping[str, type[Op]]]
    """Op classes by text name; called only when a graph is decoded."""
    model: Path = Path()
    """The model's file: weights lie in it, or in files that are found from its directory."""


def kind_of(state: State) -> str:
    """The word that says how a state is encoded."""
    return "artifact" if isinstance(state, Artifact) else state.kind


def encode(state: State) -> dict[str, Payload]:
    """A state as named payloads."""
    match state:
        case Graph():
            return _encode_graph(state)
        case Plan():
            return {**_encode_graph(state.graph), "plan": plan_text(state).encode()}
        case Artifact():
            head: dict[str, object] = {
                "target": state.target,
                "entry": state.entry,
                "inputs": [[p.name, str(p.type), p.allowed.text if p.allowed else ""] for p in state.signature.inputs],
                "outputs": [[p.name, str(p.type), p.labels] for p in state.signature.outputs],
                "aliases": state.signature.aliases,
                "facts": dict(state.facts),
            }
            return {"artifact": _json(head), **{FILE + name: content for name, content in state.files.items()}}
        case _:  # pyright: ignore[reportUnnecessaryComparison]  # a plugin may return anything
            raise TypeError(f"a step gives a graph, a plan or an artifact, not {type(state).__name__}")


def decode(
    kind: str,
    read: Callable[[str], memoryview | None],
    names: tuple[str, ...],
    context: Context,
    file: Callable[[str], Payload | None] | None = None,
    table: Callable[[], Table] = Table,
) -> State:
    """The inverse of `encode`.

    Args:
        kind: What `kind_of` said.
        read: A payload by name; None when it is gone.
        names: The names of all payloads.
        context: See there.
        file: The same for files of an artifact, which need not be read; `read` by default.
        table: What numbers of tensors stand for.

    Raises:
        Damaged: a payload is missing or does not decode.
    """
    try:
        if kind == "artifact":
            return _decode_artifact(read, names, file or read)
        graph = _decode_graph(read, names, context, table)
        return graph if kind == "graph" else parse_plan(graph, _text(read, "plan"))
    except Damaged:
        raise
    # The payloads are what was stored, but another version may have stored them. A cache that is required to have
    # everything is no such case: its complaint is for the user.
    except DlcError as problem:
        if problem.exit_code is ExitCode.CACHE_MISS:
            raise
        raise Damaged(f"cached {kind} does not parse: {problem}") from problem
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise Damaged(f"cached {kind} does not decode: {problem!r}") from problem


def _encode_graph(graph: Graph) -> dict[str, Payload]:
    out: dict[str, Payload] = {"graph": print_graph(graph, origins=True).encode()}
    files: dict[str, list[str | int]] = {}
    for tensor in graph.tensors:
        if is_inline(tensor) or isinstance(tensor.data, PlaceholderData):
            continue
        if isinstance(tensor.data, FileData):
            files[tensor.digest] = [tensor.data.name, tensor.data.offset]
        else:
            out[_TENSOR + tensor.digest] = np.ascontiguousarray(tensor.array()).reshape(-1).view(np.uint8).data
    return {**out, "files": _json(files)}


def _decode_graph(
    read: Callable[[str], memoryview | None], names: tuple[str, ...], context: Context, table: Callable[[], Table]
) -> Graph:
    files: dict[str, list[str | int]] = json.loads(_text(read, "files"))
    stored = frozenset(names)

    def tensor(type: Type, digest: str) -> Tensor | None:
        data: Data
        if (number := number_of(digest)) is not None:
            known = table().tensors
            return stand_in(known[number] if number < len(known) else Tensor(type, digest, LazyData(_unknown)), number)
        if digest in files:
            data = _in_file(context, *files[digest])
        elif _TENSOR + digest in stored:
            data = LazyData(lambda: _array(read, digest, type))
        else:
            return None
        return Tensor(type, digest, data)

    return parse_graph(_text(read, "graph"), context.ops(), tensor, "cached graph")


def encode_table(table: Table) -> dict[str, Payload]:
    """Names and tensors as named payloads."""
    return {NAMES: names_bytes(table), **encode_tensors(table.tensors)}


def encode_tensors(tensors: Sequence[Tensor]) -> dict[str, Payload]:
    """Tensors in their order as named payloads: those of the model's files by place, small ones in the list itself."""
    out: dict[str, Payload] = {}
    rows: list[list[str | int]] = []
    for tensor in tensors:
        row: list[str | int] = [str(tensor.type), tensor.digest]
        if isinstance(tensor.data, FileData):
            row += [tensor.data.name, tensor.data.offset]
        else:
            content = np.ascontiguousarray(tensor.array()).reshape(-1).view(np.uint8).data
            if content.nbytes <= _SMALL:
                row.append(bytes(content).hex())
            else:
                out[_TENSOR + tensor.digest] = content
        rows.append(row)
    return {TENSORS: json.dumps(rows, separators=(",", ":")).encode(), **out}


def decode_table(read: Callable[[str], memoryview | None], context: Context, given: Table | None = None) -> Table:
    """The inverse of `encode_table`; where tensors are added to a given table, that of `encode_tensors`.

    Raises Damaged.
    """
    try:
        rows: list[list[Any]] = json.loads(_text(read, TENSORS))
        tensors = tuple(_row(read, context, *row) for row in rows)
        if given is not None:
            return replace(given, tensors=(*given.tensors, *tensors))
        return replace(table_of(_text(read, NAMES).encode()), tensors=tensors)
    except (ValueError, KeyError, TypeError) as problem:
        raise Damaged(f"cached table of weights does not decode: {problem!r}") from problem


def _unknown() -> Array:
    raise Damaged("a state without weights has no elements")


def _row(read: Callable[[str], memoryview | None], context: Context, text: str, digest: str, *place: Any) -> Tensor:
    of = Type.parse(text)
    data: Data
    match place:
        case (str(name), int(offset)):
            data = _in_file(context, name, offset)
        case (str(content),):
            found = np.frombuffer(bytes.fromhex(content), of.dtype.numpy).reshape(of.shape)
            data = MemoryData(found)
        case _:
            data = LazyData(lambda: _array(read, digest, of))
    return Tensor(of, digest, data)


def _in_file(context: Context, name: str | int, offset: str | int) -> FileData:
    return FileData(context.model.parent if name else context.model, str(name), int(offset))


def _array(read: Callable[[str], memoryview | None], digest: str, type: Type) -> Array:
    found = read(_TENSOR + digest)
    if found is None or len(found) != type.nbytes:
        raise Damaged(f"tensor {digest} is gone from the cache")
    return np.frombuffer(found, type.dtype.numpy).reshape(type.shape)


def _decode_artifact(
    read: Callable[[str], memoryview | None], names: tuple[str, ...], file: Callable[[str], Payload | None]
) -> Artifact:
    head = json.loads(_text(read, "artifact"))
    files: dict[str, bytes | memoryview | Path] = {}
    for name in names:
        if name.startswith(FILE):
            content = file(name)
            if content is None:
                raise Damaged(f"{name} is gone from the cache")
            files[name.removeprefix(FILE)] = content
    inputs = tuple(Port(n, Type.parse(t), Allowed.parse(a) if a else None) for n, t, a in head["inputs"])
    outputs = tuple(Port(n, Type.parse(t), labels=tuple(labels)) for n, t, labels in head["outputs"])
    signature = Signature(inputs, outputs, tuple((i, j) for i, j in head["aliases"]))
    return Artifact(head["target"], files, head["entry"], signature, head["facts"])


def _text(read: Callable[[str], memoryview | None], name: str) -> str:
    found = read(name)
    if found is None:
        raise Damaged(f"{name} is gone from the cache")
    return bytes(found).decode()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
