"""Graphs as `.dlc` text, printed and parsed.

    kernel @k0(f32[2,3]) -> (f32[2,3]) { … }
    graph(%0 "x": f32[2,3]) {
      %1 = constant() tensor=f32[3]{1.0,2.0,3.0}
      %2 = add(%0, %1)
      %3 = @k0(%2) | "relu_1" "relu_2"
      return %3 "y"
      workspace @k0 4096
    }

An op that holds graphs has them as attributes, indented, with values of their own:

      %4 = loop(%1, none, [%2], []) body=graph(%0 "i": i64[], %1 "c0": f32[2]) {
        …
        return %5 "y0", %6 "y1"
      }

Types are derived, so they are not written; a call is written as its kernel's name. `%5 = @k0(%2) again 1` is another
execution of one (`Again`), `%6 = @k1(%2) copied 1` a copy of a value in another memory (`Copy`). Behind `|` stand the
nodes of the source model that an op came from; `workspace` tells the bytes that a kernel works in. An input tells its
role and what it starts with: `"w": f32[2] weight = 0.0`, or what its integers may be: `"n": i64[8] in "index -10..9"`;
a constant that is a parameter has a `name`. Small constants stand in the text, large ones by digest; reading those back
needs a `tensors` function that finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

import numpy as np

from dlc.base.lexer import Tokens
from dlc.base.types import Type, shortest
from dlc.graph.attributes import Lookup
from dlc.graph.graph import Graph
from dlc.graph.op import Op, attr_text, quote
from dlc.graph.reader import GraphReader
from dlc.graph.structure import Again, Call, Copy, Input
from dlc.graph.tensor import PlaceholderData, Tensor
from dlc.kernel.kernel import Kernel
from dlc.kernel.print import print_literal
from dlc.kernel.text import print_kernel

__all__ = ["Lookup", "is_inline", "parse_graph", "print_graph"]

# Constants of at most this many elements are written out (see `is_inline`): shape vectors, scalars, small biases.
INLINE_ELEMENTS = 16


def print_graph(graph: Graph, origins: bool = False) -> str:
    """A graph as text.

    Args:
        graph: The graph.
        origins: Also write, behind each op, the source nodes it came from.
    """
    kernels: dict[str, str] = {}
    lines: list[str] = []
    for op in (op for each in graph.graphs for op in each.ops):
        for value in op.attrs.values():
            if isinstance(value, Kernel) and value.digest not in kernels:
                kernels[value.digest] = f"@k{len(kernels)}"
                lines.append(print_kernel(value, kernels[value.digest]))
    return "\n".join([*lines, *_lines(graph, kernels, origins)]) + "\n"


def _lines(graph: Graph, kernels: Mapping[str, str], origins: bool) -> list[str]:
    """A graph without its kernels; the bodies of its ops are indented."""
    names = {op.digest: f"%{k}" for k, op in enumerate((*graph.inputs, *_rest(graph)))}
    inputs = ", ".join(f"{names[i.digest]} {_print_input(i)}" for i in graph.inputs)
    lines = [f"graph({inputs}) {{"]
    for op in _rest(graph):
        origins_text = f" | {' '.join(quote(n) for n in graph.origin(op))}" if origins and graph.origin(op) else ""
        text = _print_op(op, names, kernels)
        for name, body in zip(op.body_names, op.bodies, strict=True):
            text += f" {name}=" + "\n  ".join(_lines(body, kernels, origins))
        lines.append(f"  {names[op.digest]} = {text}{origins_text}")
    returned = ", ".join(f"{names[o.digest]} {quote(n)}" for o, n in zip(graph.outputs, graph.names, strict=True))
    lines.append(f"  return {returned}")
    lines += [f"  alias {i} {j}" for i, j in graph.aliases]
    lines += [f"  workspace {name} {graph.workspaces[d]}" for d, name in kernels.items() if d in graph.workspaces]
    lines += [f"  schedule {name} {quote(graph.schedules[d])}" for d, name in kernels.items() if d in graph.schedules]
    lines += [f"  labels {' '.join(map(quote, (output, *texts)))}" for output, texts in graph.labels.items()]
    return "\n".join([*lines, "}"]).split("\n")


def _rest(graph: Graph) -> list[Op]:
    declared = {i.digest for i in graph.inputs}
    return [op for op in graph.ops if op.digest not in declared]


def _print_input(i: Input) -> str:
    role = "" if i.role == "data" else f" {i.role}"
    initial = "" if i.initial is None else f" = {_print_attr(i.initial, {})}"
    return f"{quote(i.name)}: {i.of}{role}{initial}{f' in {quote(i.allowed)}' if i.allowed else ''}"


def _print_op(op: Op, names: Mapping[str, str], kernels: Mapping[str, str]) -> str:
    if isinstance(op, Call):
        word = "again" if isinstance(op, Again) else "copied"
        repeated = f" {word} {op.number}" if isinstance(op, Again | Copy) else ""
        return f"{kernels[op.body.digest]}({', '.join(names[a.digest] for a in op.args)}){repeated}"
    parts: list[str] = []
    for _, value in op.operand_fields():
        if value is None:
            parts.append("none")
        elif isinstance(value, tuple):
            parts.append("[" + ",".join(names[o.digest] for o in value) + "]")
        else:
            parts.append(names[value.digest])
    defaults = {f.name: f.default for f in fields(cast("Any", op))}
    plain = ((k, v) for k, v in op.attrs.items() if k not in op.body_names and not _equal(v, defaults.get(k)))
    attrs = "".join(f" {k}={_print_attr(v, kernels)}" for k, v in plain)
    return f"{op.text_name}({', '.join(parts)}){attrs}"


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and attr_text(a) == attr_text(b) if not isinstance(a, (Kernel, Tensor)) else False


def _print_attr(value: Any, kernels: Mapping[str, str]) -> str:
    if isinstance(value, Kernel):
        return kernels[value.digest]
    if isinstance(value, Tensor) and is_inline(value):
        elements = (shortest(v, value.type.dtype) for v in value.array().reshape(-1).tolist())
        return f"{value.type}{{{','.join(map(print_literal, elements))}}}"
    return attr_text(value)


def is_inline(tensor: Tensor) -> bool:
    """Whether a constant stands in the text: a small one without NaNs, whose bits decimal numbers do not tell."""
    if tensor.type.size > INLINE_ELEMENTS or isinstance(tensor.data, PlaceholderData):
        return False
    return not (tensor.type.dtype.is_float and np.isnan(tensor.array()).any())


def parse_graph(text: str, ops: Mapping[str, type[Op]], tensors: Lookup | None = None, source: str = "<text>") -> Graph:
    """The inverse of `print_graph`.

    Args:
        text: The `.dlc` text.
        ops: Op classes by text name.
        tensors: Finds a large constant by type and digest.
        source: What errors call the text.

    Raises:
        DlcError: syntax, unknown ops, operands or tensors, shape errors; with line and column.
    """
    return GraphReader(Tokens(text, source), ops, tensors or _no_tensor).graph()


def _no_tensor(type: Type, digest: str) -> Tensor | None:
    del type, digest
    return None
