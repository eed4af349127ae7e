"""The order in which nodes are imported: operands before users, whatever order the file has them in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import onnx

from dlc_frontend_onnx.refusals import Refusals

TRAINING: Final = "ai.onnx.preview.training"
"""Domain of the optimizers and of Gradient."""


def node_names(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    """The nodes' names; operator and number where the model gives none."""
    return [n.name or f"{n.op_type}_{k}" for k, n in enumerate(nodes)]


def ordered(
    nodes: Sequence[onnx.NodeProto], given: Iterable[str], wanted: Iterable[str], refusals: Refusals
) -> list[onnx.NodeProto]:
    """The nodes that the wanted values need, operands before users; tells cycles, double and missing definitions."""
    names = node_names(nodes)
    made: dict[str, int] = {}
    given = set(given)
    before = len(refusals.errors)
    for k, node in enumerate(nodes):
        for output in node.output:
            if output and (output in made or output in given):
                first = names[made[output]] if output in made else "an input or initializer"
                refusals.fail("duplicate", f"{names[k]} defines {output}, as {first} does", names[k])
            elif output:
                made[output] = k
    if len(refusals.errors) > before:
        refusals.check()
    order: list[int] = []
    state: dict[int, int] = {}  # 1 while its operands are being visited, 2 when done
    stack = [(made[w], False) for w in reversed(list(wanted)) if w in made]
    while stack:
        k, done = stack.pop()
        if done:
            state[k] = 2
            order.append(k)
        elif state.get(k) is None:
            state[k] = 1
            stack.append((k, True))
            for i in reversed(reads(nodes[k])):
                if i in made and state.get(made[i]) == 1 and i not in given:
                    refusals.fail("cycle", f"{names[k]} reads {i}, which is computed from its own result", names[k])
                    refusals.check()
                if i in made and i not in given:
                    stack.append((made[i], False))
    out: list[onnx.NodeProto] = []
    for k in order:  # names count nodes of the whole model, so that they do not depend on what is left out
        copy = nodes[k]
        if not copy.name:
            copy.name = names[k]
        out.append(copy)
    return out


def named(node: onnx.NodeProto) -> list[str]:
    """Values that a node names in its attributes: what Gradient differentiates, and by what."""
    if (node.domain, node.op_type) != (TRAINING, "Gradient"):
        return []
    found: list[str] = []
    for a in node.attribute:
        if a.name in ("xs", "zs", "y"):
            found += [s.decode("utf-8", "replace") for s in (*a.strings, *((a.s,) if a.s else ()))]
    return found


def reads(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads, those of its branches among them."""
    found = [i for i in (*node.input, *named(node)) if i]
    pending = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    while pending:
        graph = pending.pop()
        for inner in graph.node:
            found += [i for i in (*inner.input, *named(inner)) if i]
            pending += [a.g for a in inner.attribute if a.type == onnx.AttributeProto.GRAPH]
        found += [o.name for o in graph.output]
    return found


def between(nodes: Sequence[onnx.NodeProto], changed: Iterable[str], wanted: str) -> list[onnx.NodeProto]:
    """The nodes, of those given in topological order, that lead from changed values to a wanted one."""
    given = set(changed)
    touched, after = set(given), list[onnx.NodeProto]()
    for node in nodes:
        if not touched.isdisjoint(reads(node)):
            touched.update(node.output)
            after.append(node)
    needed, found = {wanted} - given, list[onnx.NodeProto]()
    for node in reversed(after):
        if not needed.isdisjoint(node.output):
            needed.update(i for i in reads(node) if i not in given)
            found.append(node)
    return found[::-1]
