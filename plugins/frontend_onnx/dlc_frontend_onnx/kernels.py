"""Nodes that carry a kernel as text: operators of the domain `dlc.kernel`, read by the frontend `kernel`.

    node(domain="dlc.kernel", op_type="Blur", kernel="A<8,8>[i,j] = B<10,8>[i,j] + B<10,8>[i+2,j];")

Any name of an operator will do. The attribute `kernel` is the text, `name` chooses one of several kernels in it. The
node's inputs are those of the kernel, in their order, and so are its outputs. Tensors without an element type in the
text have that of the node's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dlc import DlcError, Frontend, Graph, Location, Op, Report, Source, Spec
from dlc.base.diagnostics import error
from dlc.base.types import DType, f32, f64, i32
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported

DOMAIN: Final = "dlc.kernel"
READER: Final = Spec("kernel")
Find = Callable[[Spec], Frontend]
"""Gives the frontend that a spec selects."""
_WORDS: Final = {f32: "float", f64: "double", i32: "int"}
"""Element types as the reader's option `data-type` names them."""


@dataclass
class Kernels:
    """Reads the kernels of one model."""

    source: str
    """How messages call the model."""
    find: Find | None
    """None: the importer was made without a way to other frontends."""
    known: dict[tuple[str, str, str], Graph] = field(default_factory=dict[tuple[str, str, str], Graph])
    """Text, name and element type → graph: the same text may stand in many nodes."""

    def read(self, node: Node) -> Sequence[Op]:
        """The results of a node, inlined. Raises DlcError or Unsupported."""
        text, name = node.text("kernel"), node.text("name")
        if not text:
            raise Unsupported("the attribute kernel, the kernel's text, is missing or empty", MALFORMED)
        if ignored := sorted(set(node.attributes) - node.seen):
            raise Unsupported(f"attribute {', '.join(ignored)} is not understood", "it has kernel and name")
        key = text, name, _word(node.inputs)
        if key not in self.known:
            self.known[key] = self._graph(*key, node.name)
        graph = self.known[key]
        given = _operands(graph, node)
        return graph.substitute(dict(zip(graph.inputs, given, strict=True))).outputs

    def _graph(self, text: str, name: str, word: str, node: str) -> Graph:
        spec = READER
        for option, value in (("name", name), ("data-type", word)):
            if value:
                spec = spec.with_option(option, value)
        try:
            source = Source(data=text.encode("utf-8", "replace"), label=f"{self.source}: kernel")
            return self._reader(spec).parse(source, Report())
        except DlcError as problem:
            raise _placed(problem, node) from None

    def _reader(self, spec: Spec) -> Frontend:
        missing = Unsupported("no frontend that reads kernels is installed", 'pip install "dlc[kernel]"')
        if self.find is None:
            raise missing
        try:
            return self.find(spec)
        except DlcError as problem:
            if any(d.code == "unknown-frontend" for d in problem.diagnostics):
                raise missing from None
            raise


def _word(inputs: Sequence[Op | None]) -> str:
    """The inputs' one element type, as the reader names it; "" when there is none."""
    found: set[DType] = {x.dtype for x in inputs if x is not None}
    return _WORDS.get(found.pop(), "") if len(found) == 1 else ""


def _operands(graph: Graph, node: Node) -> tuple[Op, ...]:
    """The node's inputs, if they are what the kernel takes."""
    if len(node.inputs) != len(graph.inputs):
        takes = ", ".join(f"{i.name}: {i.type}" for i in graph.inputs) or "nothing"
        count = len(node.inputs)
        raise _misfit(f"the node has {count} input{'s' if count != 1 else ''}, the kernel takes {takes}")
    for k, (x, formal) in enumerate(zip(node.inputs, graph.inputs, strict=True)):
        if x is None:
            raise _misfit(f"input {k}, {formal.name} of the kernel, is left out")
        if x.type != formal.type:
            raise _misfit(f"input {k} is {x.type}, {formal.name} of the kernel is {formal.type}")
    return tuple(x for x in node.inputs if x is not None)


def _misfit(message: str) -> DlcError:
    return error("kernel-node", message, help="the node's inputs are those of its kernel, in their order")


def _placed(problem: DlcError, node: str) -> DlcError:
    """What is wrong with a text, with the node that carries it beside line and column."""
    notes = [
        replace(
            d,
            location=replace(d.location or Location(), node=node),
            help="name it in the attribute name" if d.code == "which-kernel" else d.help,
        )
        for d in problem.diagnostics
    ]
    return DlcError(*notes)
