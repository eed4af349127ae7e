"""Any state of the compiler as text in a `.dlc` file, and back: a graph, or a plan behind its graph.

    graph(%0 "x": f32[2]) { … }
    plan {"steps":[…],"slots":[…],"regions":{…},"facts":{…}}

Large constants stand in the text by digest only. Reading such a text back needs their values from elsewhere, or
stand-ins: values of the same type that depend on nothing but the digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from dlc.api.artifact import Artifact
from dlc.api.plan import Plan, parse_plan, plan_text
from dlc.base.diagnostics import Location, error
from dlc.base.types import Type
from dlc.graph.branch import If
from dlc.graph.gradient import Cotangent
from dlc.graph.graph import Graph
from dlc.graph.loops import Loop, Scan
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant, Input, Item, Splat
from dlc.graph.tensor import Array, LazyData, Tensor
from dlc.graph.text import Lookup, parse_graph, print_graph
from dlc.plugins.registry import Registry

_PLAN = "\nplan {"
"""What ends the graph of a plan. Quoted names hold no line ends, so no graph contains it."""


def print_state(state: object, *, origins: bool = False) -> str:
    """A state as text.

    Args:
        state: A graph, a plan, or an artifact (of which the files are listed).
        origins: Also write, behind each op, the nodes of the model it came from.
    """
    match state:
        case Graph():
            return print_graph(state, origins)
        case Plan():
            return f"{print_graph(state.graph, origins)}plan {plan_text(state)}\n"
        case Artifact():
            files = [f"# {name}" for name in state.files]
            return "\n".join([f"# files of {state.target}", *files]) + "\n"
        case _:
            return ""


def parse_state(text: str, ops: Mapping[str, type[Op]], tensors: Lookup, source: str) -> Graph | Plan:
    """The inverse of `print_state` for graphs and plans. Raises DlcError with line and column."""
    head, mark, tail = text.partition(_PLAN)
    graph = parse_graph(head + "\n" if mark else text, ops, tensors, source)
    if not mark:
        return graph
    try:
        return parse_plan(graph, "{" + tail)
    except (ValueError, KeyError, IndexError, TypeError, AssertionError) as problem:
        line = head.count("\n") + 2
        raise error(
            "bad-plan",
            f"the plan does not fit the graph above it: {problem}",
            location=Location(source, line=line),
            help="a plan's text is written by dlc; run `order,plan-memory` on the graph instead",
        ) from None


def op_classes(registry: Registry) -> Mapping[str, type[Op]]:
    """Every op by text name: those that graphs themselves need, and those of the core and its plugins."""
    return {**structure_ops(), **registry.loaded_ops()}


def structure_ops() -> dict[str, type[Op]]:
    """The ops that graphs themselves need, by text name."""
    structure: tuple[type[Op], ...] = (Input, Constant, Splat, Call, Item, Cotangent, If, Loop, Scan)
    return {op.text_name: op for op in structure}


def stand_in(type: Type, digest: str) -> Tensor:
    """A constant whose values are not at hand, under its own digest: only for work whose results are not kept."""
    return Tensor(type, digest, LazyData(lambda: _values(type, digest)))


def fresh_stand_in(type: Type, digest: str) -> Tensor:
    """Like `stand_in`, under a digest of its own, so that no cached result of the real values can be taken for it."""
    own = blake2b(f"stand-in\0{type}\0{digest}".encode(), digest_size=16).hexdigest()
    return Tensor(type, own, LazyData(lambda: _values(type, digest)))


def _values(type: Type, digest: str) -> Array:
    """Weights keep the scale of what they multiply (variance 1 / fan-in); vectors (scales, variances) are positive."""
    generator = np.random.default_rng(int.from_bytes(digest.encode(), "big"))
    dtype = type.dtype
    if not dtype.is_float:
        return generator.integers(0, 2, type.shape).astype(dtype.numpy)
    if type.rank < 2:
        return generator.uniform(0.5, 1.5, type.shape).astype(dtype.numpy)
    bound = (3.0 * type.shape[0] / max(type.size, 1)) ** 0.5
    return generator.uniform(-bound, bound, type.shape).astype(dtype.numpy)
