"""States of the compiler as bytes for the cache, and back: graphs, plans, artifacts. Text and raw bytes only."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dlc.api.artifact import Artifact
from dlc.api.plan import Plan, parse_plan, plan_text
from dlc.api.program import Port, Signature
from dlc.base.allowed import Allowed
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.types import Type
from dlc.cache.envelope import Damaged
from dlc.cache.step_record import FILE
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.tensor import Data, FileData, LazyData, Tensor
from dlc.graph.text import is_inline, parse_graph, print_graph

if TYPE_CHECKING:
    from dlc.graph.tensor import Array

State: TypeAlias = Graph | Plan | Artifact
Payload: TypeAlias = bytes | memoryview | Path
_TENSOR = "tensor/"


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
) -> State:
    """The inverse of `encode`.

    Args:
        kind: What `kind_of` said.
        read: A payload by name; None when it is gone.
        names: The names of all payloads.
        context: See there.
        file: The same for files of an artifact, which need not be read; `read` by default.

    Raises:
        Damaged: a payload is missing or does not decode.
    """
    try:
        if kind == "artifact":
            return _decode_artifact(read, names, file or read)
        graph = _decode_graph(read, names, context)
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
        if is_inline(tensor):
            continue
        if isinstance(tensor.data, FileData):
            files[tensor.digest] = [tensor.data.name, tensor.data.offset]
        else:
            out[_TENSOR + tensor.digest] = np.ascontiguousarray(tensor.array()).reshape(-1).view(np.uint8).data
    return {**out, "files": _json(files)}


def _decode_graph(read: Callable[[str], memoryview | None], names: tuple[str, ...], context: Context) -> Graph:
    files: dict[str, list[str | int]] = json.loads(_text(read, "files"))
    stored = frozenset(names)

    def tensor(type: Type, digest: str) -> Tensor | None:
        data: Data
        if digest in files:
            name, offset = files[digest]
            root = context.model.parent if name else context.model
            data = FileData(root, str(name), int(offset))
        elif _TENSOR + digest in stored:
            data = LazyData(lambda: _array(read, digest, type))
        else:
            return None
        return Tensor(type, digest, data)

    return parse_graph(_text(read, "graph"), context.ops(), tensor, "cached graph")


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
