"""Graphs without what structural passes do not look at: names are numbers in a table, and so are weights.

    graph(%0 "image": f32[4]) { %1 = constant() tensor=f32[4]:9ab1… name="w" … }

    →  graph(%0 "⟨0⟩": f32[4]) { %1 = constant() tensor=f32[4]:0…00 name="⟨1⟩" … }     names: image, w; tensors: 9ab1…

Two models that differ in names, or in the elements of their weights, are one graph then, and so is what passes make of
them. The characters ⟨ and ⟩ are two of Unicode's private ones: no text of dlc has any, so that names that a pass put
together (`⟨1⟩.gradient`), and what it says of its input, get their names back by substitution.

Equal names stay equal, and so do equal weights. A weight may still be read: `Tensor.array` notes it (`dlc.base.uses`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dlc.base.table import OPEN, TOKEN, Table, token
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Constant, Input
from dlc.graph.tensor import PlaceholderData, Tensor

DIGITS: Final = 32
"""Of the digest of what stands for a tensor."""


def stand_in(real: Tensor, number: int) -> Tensor:
    """A tensor of the same type that is told from others by its number."""
    return Tensor(real.type, f"{number:0{DIGITS}d}", PlaceholderData(real, number))


def number_of(digest: str) -> int | None:
    """The number of a tensor that stands for one, by its digest; None for any other, but for one in 2^80."""
    return int(digest) if digest.startswith("0" * 20) and digest.isdecimal() else None


def with_placeholders(graph: Graph) -> tuple[Graph, Table]:
    """A graph without names and weights, and what it is without. Of unused inputs and of bodies too."""
    inputs = dict.fromkeys(name for each in graph.graphs for name in _inputs(each) if name)
    outputs = dict.fromkeys(name for each in graph.graphs for name in each.names if name)
    nodes = dict.fromkeys(name for each in graph.graphs for op in each.ops for name in each.origin(op))
    names = {name: number for number, name in enumerate({**inputs, **outputs, **nodes})}
    found = {t.digest: t for each in graph.graphs for t in each.tensors}
    numbers = {digest: number for number, digest in enumerate(found)}

    def name(text: str) -> str:
        return token(names[text]) if text else ""

    def tensor(of: Tensor) -> Tensor:
        return stand_in(of, numbers[of.digest])

    ports = frozenset(names[n] for n in inputs), frozenset(names[n] for n in outputs)
    return changed(graph, name, tensor), Table(tuple(names), *ports, tuple(found.values()))


def with_names(graph: Graph, table: Table) -> Graph:
    """A graph with placeholders, with its names, and with stand-ins for its weights."""
    return changed(graph, table.text, lambda tensor: tensor)


def without_placeholders(graph: Graph, table: Table) -> Graph:
    """A graph with placeholders, with its names and weights."""

    def tensor(of: Tensor) -> Tensor:
        return table.tensors[of.data.number] if isinstance(of.data, PlaceholderData) else of

    return changed(graph, table.text, tensor)


def made_inputs(graph: Graph) -> frozenset[str]:
    """Names of inputs and parameters of a graph with placeholders that are none of the table: passes made them."""
    return frozenset(n for each in graph.graphs for n in _inputs(each) if n and not TOKEN.fullmatch(n))


def made_outputs(graph: Graph) -> frozenset[str]:
    """The same of outputs."""
    return frozenset(n for each in graph.graphs for n in each.names if n and not TOKEN.fullmatch(n))


def literals(graph: Graph) -> Mapping[str, Tensor]:
    """Tensors of a graph with placeholders that stand for themselves, by digest."""
    found = (t for each in graph.graphs for t in each.tensors)
    return {t.digest: t for t in found if not isinstance(t.data, PlaceholderData)}


def name_pattern(graph: Graph) -> Iterator[str]:
    """What a graph's digest leaves out: the names of nodes, op by op, each after an empty text."""
    return (name for each in graph.graphs for op in each.ops for name in ("", *each.origin(op)))


def _inputs(graph: Graph) -> Iterable[str]:
    return (*(i.name for i in graph.inputs), *(op.name for op in graph.ops if isinstance(op, Input | Constant)))


def changed(graph: Graph, name: Callable[[str], str], tensor: Callable[[Tensor], Tensor]) -> Graph:
    """A graph with other names and tensors, in the graphs that its ops hold too."""
    new: dict[str, Op] = {}

    def made(op: Op) -> Op:
        match op:
            case Input():
                initial = tensor(op.initial) if isinstance(op.initial, Tensor) else op.initial
                return Input(name(op.name), op.of, op.role, initial, op.allowed)
            case Constant():
                return Constant(tensor(op.tensor), name(op.name))
            case _:
                moved = op.with_operands([new[x.digest] for x in op.operands])
                if op.body_names:
                    moved = moved.with_bodies([changed(body, name, tensor) for body in op.bodies])
                return _with_texts(moved, name)

    for op in graph.ops:
        new[op.digest] = made(op)
    inputs: list[Any] = [new[i.digest] if i.digest in new else made(i) for i in graph.inputs]
    return replace(
        graph,
        inputs=tuple(inputs),
        outputs=tuple(new[o.digest] for o in graph.outputs),
        names=tuple(map(name, graph.names)),
        origins={new[d].digest: tuple(map(name, names)) for d, names in graph.origins.items() if d in new},
        labels={name(output): texts for output, texts in graph.labels.items()},
    )


def _with_texts(op: Op, name: Callable[[str], str]) -> Op:
    """The op with the names that a pass put into its attributes."""
    texts = {key: value for key, value in op.attrs.items() if isinstance(value, str) and OPEN in value}
    if not texts:
        return op
    new = {key: name(value) for key, value in texts.items()}
    return op.remade(op.operands, {**op.attrs, **new})
