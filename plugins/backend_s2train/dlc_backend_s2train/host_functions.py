"""Host functions: text of a graph → a function of arrays, with all that is refused before anything is computed.

The device stores what a function reads and writes: floats as fp16 (stored constants as fp32), integers and truth
values as int32. The host reads them as they are, computes in the types of the text (float32, as models have them), and
rounds once, when it stores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from dlc.base.diagnostics import DlcError, error
from dlc.base.types import Array, Type
from dlc.driver.state_text import op_classes
from dlc.graph import Call, Graph, Item, Op, evaluate, parse_graph, toposort, verify
from dlc.kernel.expr import Apply, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.plugins.discovery import load_registry
from dlc_backend_s2train.codes import Element
from dlc_backend_s2train.isa.access import MOST_TENSORS
from dlc_backend_s2train.program import Function, Program, Tensor

MOST_BYTES: Final = 1 << 30
"""Of all values of a function together."""
MOST_POINTS: Final = 1 << 34
"""Elements that a function computes or adds up, over all loops of its ops."""
MOST_ADDENDS: Final = 4096
"""Elements that a result adds up, where its op reads fewer."""
MOST_TEXT: Final = 1 << 20
"""Bytes of the texts of all functions of a program."""
_FLOATS: Final = (Element.FP16, Element.FP32)


@dataclass(frozen=True)
class Compiled:
    """A function's text, understood."""

    graph: Graph
    nbytes: int
    """Of all its values."""
    macs: int
    """Products of sums of products (convolutions, matrix products) in it."""

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Results for operands, both in the order of the text.

        Raises:
            DlcError: "bad-program": an op does not take these values.
        """
        feeds = {i.name: np.asarray(a) for i, a in zip(self.graph.inputs, arrays, strict=True)}
        try:
            found = evaluate(self.graph, feeds)
        except (ValueError, IndexError, TypeError, ArithmeticError) as problem:
            raise _refused(f"an op does not take the values that it meets: {problem}") from None
        except MemoryError as problem:
            raise error("too-large", f"a host function needs more memory than there is: {problem}") from None
        return [_stored(found[name]) for name in self.graph.names]


@lru_cache(maxsize=256)
def compiled(text: str) -> Compiled:
    """What a text says.

    Raises:
        DlcError: the text does not parse; ops that compute nothing here; a graph that makes no sense; more memory or
            work than `MOST_BYTES` and `MOST_POINTS`.
    """
    if len(text) > MOST_TEXT:
        raise _refused(f"its text has {len(text):,} characters; {MOST_TEXT:,} are the most")
    graph = parse_graph(text, _ops(), source="host function")
    if problems := verify(graph):
        raise DlcError(*problems)
    if graph.aliases or any(i.role != "data" or i.initial is not None for i in graph.inputs):
        raise _refused("its inputs are plain values, and none is written over")
    types = [t for op in graph.ops for t in op.types]
    nbytes = sum(t.nbytes for t in types)
    if nbytes > MOST_BYTES:
        raise _refused(f"its values take {nbytes:,} bytes; {MOST_BYTES:,} are the most")
    points = macs = 0
    for op in graph.ops:
        done, products = work(op)
        points, macs = points + done, macs + products
    if points > MOST_POINTS:
        raise _refused(f"it takes {points:,} steps; {MOST_POINTS:,} are the most")
    return Compiled(graph, nbytes, macs)


def work(op: Op) -> tuple[int, int]:
    """(steps of an op's loops, those that add up products), by the op's own definition."""
    pending, points, macs = [op], 0, 0
    while pending:
        x = pending.pop()
        if not x.operands or isinstance(x, Item):
            continue
        if (whole := x.expansion) is not None:
            pending += toposort((whole,), x.operands)
            continue
        kernel = x.body if isinstance(x, Call) else x.kernel
        # Windows far larger than what they are over would be padded in memory.
        held = sum(t.size for o in x.operands for t in o.types)
        if not isinstance(x, Call) and (most := max(map(_addends, kernel.nests), default=1)) > max(held, MOST_ADDENDS):
            raise _refused(f"{x.text_name} adds up {most:,} elements for each result, of {held:,} that there are")
        points += sum(nest.points for nest in kernel.nests)
        macs += sum_products(kernel)
    return points, macs


def _addends(nest: Nest) -> int:
    """Elements that come together in one of the result."""
    return math.prod(a.extent for a in nest.reduction_axes)


def sum_products(kernel: Kernel) -> int:
    """Products that a kernel adds up, those with padding among them."""
    return sum(n.points for n in kernel.nests if n.reduce is not None and _is_product(n.body))


def _is_product(body: object) -> bool:
    match body:
        case Apply("mul", (Load(), Load())):
            return True
        case Apply("select", (_, body, _)):
            return _is_product(body)
        case _:
            return False


def problem_of(function: Function, tensors: Sequence[Tensor]) -> str:
    """Why a function and the tensors that it names do not go together; "" where they do, and it makes sense."""
    try:
        graph = compiled(function.text).graph
    except DlcError as refused:
        first = refused.diagnostics[0]
        place = f"line {first.location.line}: " if first.location and first.location.line > 0 else ""
        return f"{place}{first.message}"
    if (count := len(function.reads) + len(function.writes)) > MOST_TENSORS:
        return f"it reads and writes {count} tensors; {MOST_TENSORS} are the most"
    sides = (
        ("reads", [i.type for i in graph.inputs], function.reads),
        ("writes", [o.type for o in graph.outputs], function.writes),
    )
    for verb, types, numbers in sides:
        if len(types) != len(numbers):
            return f"its text {verb} {len(types)} values, but it names {len(numbers)} tensors"
        for k, (type, number) in enumerate(zip(types, numbers, strict=True)):
            tensor = tensors[number]
            if tensor.shape != type.shape or tensor.element not in elements_of(type):
                held = f"{tensor.element.name.lower()}{list(tensor.shape)}"
                return f"value {k} that it {verb} is {type}, but its tensor {number} is {held}"
    return ""


def elements_of(type: Type) -> tuple[Element, ...]:
    """How values of a type may be stored."""
    return _FLOATS if type.dtype.is_float else (Element.INT32,)


def room(program: Program) -> int:
    """Bytes that the host needs at most while one of the functions runs."""
    return max((compiled(f.text).nbytes for f in program.functions), default=0)


def _stored(values: Array) -> Array:
    """As memory takes them: fp32, or i32."""
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    limits = np.iinfo(np.int32)
    if values.size and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
        raise _refused(f"a result lies between {values.min()} and {values.max()}, outside of int32")
    return values.astype(np.int32)


@lru_cache(maxsize=1)
def _ops() -> Mapping[str, type[Op]]:
    """The ops that a text may name: what computes by itself, that is, neither gradients by name nor instructions."""
    found = op_classes(load_registry(kinds=("ops",)))
    return {name: op for name, op in found.items() if (not op.runs or op is Call) and name != "cotangent"}


def _refused(message: str) -> DlcError:
    return error("bad-program", message, help="build the model again, and report this if it stays")
