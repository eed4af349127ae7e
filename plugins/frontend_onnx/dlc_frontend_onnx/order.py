"""The order in which nodes are imported: operands before users, whatever order the file has them in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from dlc_frontend_onnx.refusals import Refusals


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
            for i in reversed(_reads(nodes[k])):
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


def _reads(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads, those of its branches among them."""
    found = [i for i in node.input if i]
    pending = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    while pending:
        graph = pending.pop()
        for inner in graph.node:
            found += [i for i in inner.input if i]
            pending += [a.g for a in inner.attribute if a.type == onnx.AttributeProto.GRAPH]
        found += [o.name for o in graph.output]
    return found
