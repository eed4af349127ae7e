"""The range of every index of a statement.

A subscript e of a dimension of size d says 0 <= e < d. Read backwards through + - * // that bounds every index in it,
where indices are known to be at least 0 and nothing else: `i+1` of 10 gives i < 9, `p+r` of 7 gives p < 7 and r < 7,
`i//3` of 4 gives i < 12, `i%4` gives nothing. An index runs over the intersection of what all its occurrences say.

An index that only occurs where others must be known for a bound (`i-j`), or in a branch of `select`, takes its range
from there: these occurrences are asked when nothing else bounds it.

The method is one backward step of interval constraint propagation (HC4-revise, Benhamou et al. 1999).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlc_frontend_kernel.syntax import Call, Group, Index, Node, Number, Operation, Reduction, Ref, Statement, parts

Bound = int | float
"""An integer or ±infinity."""
Interval = tuple[Bound, Bound]
NATURAL: Interval = (0, math.inf)
ANYTHING: Interval = (-math.inf, math.inf)
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Occurrence:
    """A subscript and the size of its dimension; `soft` in a branch of `select`, where it restricts nothing."""

    subscript: Node
    size: int
    ref: Ref
    soft: bool


def occurrences(statement: Statement, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Occurrence]:
    """Every subscript of a statement, those of tensors in subscripts included."""
    stack: list[tuple[Node, bool]] = [(statement.value, False), (statement.target, False)]
    while stack:
        node, soft = stack.pop()
        if isinstance(node, Ref):
            for subscript, size in zip(node.subscripts, shapes[node.tensor], strict=True):
                yield Occurrence(subscript, size, node, soft)
        branches = isinstance(node, Call) and node.fn == "select"
        stack.extend((part, soft or (branches and k > 0)) for k, part in reversed(list(enumerate(parts(node)))))


def ranges(found: Sequence[Occurrence]) -> dict[str, Interval]:
    """Smallest and largest value of every index that a subscript bounds, by key; largest may be infinite."""
    out: dict[str, Interval] = {}
    for o in found:
        if not o.soft:
            _backward(o.subscript, (0, o.size - 1), {}, out)
    # Each round can bound an index through one that the round before has bounded.
    for soft in (False, True):
        for _ in range(len(out) + 1):
            later = [o for o in found if o.soft <= soft and any(_open(out, k) for k in keys(o.subscript))]
            fresh: dict[str, Interval] = {}
            for o in later:
                _backward(o.subscript, (0, o.size - 1), out, fresh)
            fresh = {k: _meet(out.get(k, NATURAL), v) for k, v in fresh.items() if _open(out, k)}
            if all(out.get(k) == v for k, v in fresh.items()):
                break
            out |= fresh
    return out


def keys(node: Node) -> Iterator[str]:
    """The indices in an expression."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Index):
            yield node.key
        stack.extend(parts(node))


def _open(known: Mapping[str, Interval], key: str) -> bool:
    return known.get(key, NATURAL)[1] == math.inf


def _meet(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def forward(node: Node, known: Mapping[str, Interval]) -> Interval:
    """Bounds of the value of a subscript."""
    match node:
        case Number(int(value), _):
            return value, value
        case Index(_, key, _):
            return known.get(key, NATURAL)
        case Group(inner, _):
            return forward(inner, known)
        case Operation("neg", (x,), _):
            low, high = forward(x, known)
            return -high, -low
        case Operation(op, (x, y), _):
            return _forward(op, forward(x, known), forward(y, known))
        case Call("min" | "max" as fn, (x, y), _):
            a, b = forward(x, known), forward(y, known)
            pick = min if fn == "min" else max
            return pick(a[0], b[0]), pick(a[1], b[1])
        case Number() | Operation() | Call() | Ref() | Reduction():
            return ANYTHING


def _forward(op: str, a: Interval, b: Interval) -> Interval:
    match op:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "*":
            corners = [_times(x, y) for x in a for y in b]
            return min(corners), max(corners)
        case "//" if b[0] == b[1] and b[0] > 0:
            return _floor(a[0], int(b[0])), _floor(a[1], int(b[0]))
        case "%" if b[0] == b[1] and b[0] > 0:
            inside = a[0] >= 0 and a[1] < b[0]
            return a if inside else (0, b[0] - 1)
        case _:
            return ANYTHING


def _times(x: Bound, y: Bound) -> Bound:
    """A product; what no address can reach is infinite, which keeps a hostile text's numbers small."""
    if x == 0 or y == 0:
        return 0
    sign = 1 if (x > 0) == (y > 0) else -1
    product = math.inf if math.isinf(x) or math.isinf(y) else abs(x * y)
    return sign * (math.inf if product > _LARGEST else product)


def _floor(x: Bound, c: int) -> Bound:
    return x if math.isinf(x) else x // c


def _ceil(x: Bound, c: int) -> Bound:
    return x if math.isinf(x) else -(-x // c)


def _backward(node: Node, span: Interval, known: Mapping[str, Interval], out: dict[str, Interval]) -> None:
    """Tell the indices of a subscript what follows from its value lying in an interval."""
    low, high = span
    match node:
        case Index(_, key, _):
            out[key] = _meet(out.get(key, NATURAL), span)
        case Group(inner, _):
            _backward(inner, span, known, out)
        case Operation("neg", (x,), _):
            _backward(x, (-high, -low), known, out)
        case Operation("+", (x, y), _):
            a, b = forward(x, known), forward(y, known)
            _backward(x, (low - b[1], high - b[0]), known, out)
            _backward(y, (low - a[1], high - a[0]), known, out)
        case Operation("-", (x, y), _):
            a, b = forward(x, known), forward(y, known)
            _backward(x, (low + b[0], high + b[1]), known, out)
            _backward(y, (a[0] - high, a[1] - low), known, out)
        case Operation("*", (x, y), _):
            for part, other in ((x, forward(y, known)), (y, forward(x, known))):
                if other[0] == other[1] and other[0] != 0 and not math.isinf(other[0]):
                    _backward(part, _quotient(span, int(other[0])), known, out)
        case Operation("//", (x, y), _):
            c = forward(y, known)[0]
            if isinstance(c, int) and c > 0:
                _backward(x, (_times(low, c), _times(high, c) + c - 1), known, out)
        case Call("min", (x, y), _):
            _backward(x, (low, math.inf), known, out)
            _backward(y, (low, math.inf), known, out)
        case Call("max", (x, y), _):
            _backward(x, (-math.inf, high), known, out)
            _backward(y, (-math.inf, high), known, out)
        case _:
            pass


def _quotient(span: Interval, c: int) -> Interval:
    """The x with c·x in an interval."""
    low, high = span if c > 0 else (-span[1], -span[0])
    return _ceil(low, abs(c)), _floor(high, abs(c))
