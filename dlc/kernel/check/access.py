"""The loads and stores of a nest, with what holds whenever they run, and the range of a subscript by intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlc.base.types import DType, bool_, i64
from dlc.kernel.expr import Apply, Const, Expr, Load, apply, children, loads
from dlc.kernel.nest import Nest, dtype_of
from dlc.kernel.scalar import SCALARS
from dlc.kernel.simplify import Interval, bounds, combined, conjuncts

COMPLEMENT: Mapping[str, str] = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True)
class Access:
    """One load or store: a tensor, its subscripts, and what holds whenever they are evaluated."""

    tensor: str
    index: tuple[Expr, ...]
    conditions: tuple[Expr, ...]


def accesses(nest: Nest) -> Iterator[Access]:
    """The store of a nest and all its loads, those in subscripts and in the guard included."""
    guard = conjuncts(nest.where)
    yield Access(nest.out, nest.index, guard)
    # Loads of a guard's part are evaluated where the parts before it hold.
    stack = [(g, guard[:k]) for k, g in enumerate(guard)]
    stack += [(e, guard) for e in (nest.body, *nest.index)]
    seen = set[tuple[Expr, tuple[Expr, ...]]]()
    while stack:
        e, conditions = stack.pop()
        match e:
            case Load(param, index):
                if (e, conditions) in seen:
                    continue
                seen.add((e, conditions))
                yield Access(param, index, conditions)
                stack += [(i, conditions) for i in index]
            case Apply("select", (condition, then, otherwise)):
                stack.append((condition, conditions))
                stack.append((then, (*conditions, *conjuncts(condition))))
                stack.append((otherwise, (*conditions, *negated(condition))))
            case Apply("and", (a, b)):
                stack += [(a, conditions), (b, (*conditions, *_plain(conjuncts(a))))]
            case Apply("or", (a, b)):
                stack += [(a, conditions), (b, (*conditions, *_plain(negated(a))))]
            case _:
                stack += [(x, conditions) for x in children(e)]


def _plain(conditions: Iterable[Expr]) -> Iterable[Expr]:
    """Those without data: both sides of an operator on data may be evaluated, whatever one of them is."""
    return (c for c in conditions if not any(loads(c)))


def negated(e: Expr) -> tuple[Expr, ...]:
    """What holds where a condition does not, as far as it is a conjunction."""
    match e:
        case Apply(fn, (x, y)) if fn in COMPLEMENT:
            return (apply(COMPLEMENT[fn], x, y),)
        case Apply("not", (x,)):
            return conjuncts(x)
        case Apply("or", (x, y)):
            return (*negated(x), *negated(y))
        case Const(bool() as value):
            return (Const(not value),)
        case _:
            return (apply("not", e),)


# ---- intervals ----
_ANY: Interval = i64.limits


def span_of(e: Expr, dtypes: Mapping[str, DType]) -> Interval:
    """Smallest and largest value of an integer expression, as far as intervals tell; data have the range of a type."""
    if (known := bounds(e)) is not None:
        return known
    match e:
        case Load(param, _) if dtypes[param].is_integer:
            return dtypes[param].limits
        case Load(param, _) if dtypes[param] is bool_:
            return 0, 1
        case Apply("select", (_, x, y)):
            a, b = span_of(x, dtypes), span_of(y, dtypes)
            return min(a[0], b[0]), max(a[1], b[1])
        case Apply("min" | "max" as fn, (x, y)):
            return combined(fn, span_of(x, dtypes), span_of(y, dtypes)) or _ANY
        case Apply(fn, args):
            limits = _limits(e, dtypes)
            spans = [span_of(a, dtypes) for a in args]
            found = _applied(fn, spans)
            # What leaves the range of its type wraps.
            return found if found is not None and limits[0] <= found[0] and found[1] <= limits[1] else limits
        case _:
            return _ANY


def _applied(fn: str, spans: Sequence[Interval]) -> Interval | None:
    if SCALARS[fn].rule == "cast" and SCALARS[fn].to is not None:
        return spans[0]
    if fn == "neg":
        return -spans[0][1], -spans[0][0]
    return combined(fn, spans[0], spans[1]) if len(spans) == 2 else None


def _limits(e: Expr, dtypes: Mapping[str, DType]) -> Interval:
    dtype = dtype_of(e, dtypes)
    return dtype.limits if dtype is not None and dtype.is_integer else (0, 1) if dtype is bool_ else _ANY
