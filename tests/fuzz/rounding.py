"""How far rounding may move each element of a result: Monte Carlo arithmetic on the reference (Parker, 1997).

    y' = op(x·(1 + δ))·(1 + δ')        δ, δ' uniform within a few units in the last place, new for every element and op

A stable algorithm gives the exact result of slightly wrong operands, so what another order of sums, a fused
multiply-add or another library function may make of a result lies among what these perturbations make of it. Ops that
only choose, move, compare or count round nothing and perturb nothing: results of such ops alone have to be equal. Where
a perturbation flips a choice, as an argmax between near ties, the element and what follows from it are undecided.

The sign of a zero that a minimum or maximum gives is open (IEEE 754 leaves it so, numpy's depends on its vectors): it
is drawn, so that 1/max(x, 0) is undecided where x is -0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final

import numpy as np

from dlc.graph import Call, Graph, Input, Item, Op
from dlc.graph.bodies import Region
from dlc.graph.walk import as_result, evaluate_ops, toposort
from dlc.kernel.evaluate import Functions, run_kernel
from dlc.kernel.expr import Apply, Expr, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.scalar import SCALARS
from tests.fuzz.model import Array
from tests.fuzz.narrow import NARROW, figures, is_float, wide

EXACT: Final = frozenset(
    (
        "select",
        "min",
        "max",
        "neg",
        "abs",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "xor",
        "not",
        "sign",
        "floor",
    )
) | {"ceil", "round"}
"""Functions that give one of their operands, a truth value, or an integer."""
SPREADS: Final = 8.0
"""How many times the observed spread is allowed."""


@dataclass(frozen=True)
class Spread:
    """A result and how it moves.

    Attributes:
        value: Of the reference as it is.
        most: For each element how far perturbations moved it; infinite where they decide whether it is finite, and for
            integers and booleans where they change it.
    """

    value: Array
    most: Array

    @property
    def decided(self) -> Array:
        """Elements whose value says something: rounding moves them by less than a thousandth of the largest."""
        if not is_float(self.value.dtype):
            return self.most == 0
        values = self.value.astype(np.float64)
        finite = np.abs(values)[np.isfinite(values)]
        return self.most <= 1e-3 * float(finite.max(initial=0.0))


def spreads(graph: Graph, feeds: Mapping[str, Array], samples: int, ulps: float, seed: int = 0) -> dict[str, Spread]:
    """Every output with its spread, of `samples` evaluations with perturbations of `ulps` units."""
    known: dict[Op, Array] = {i: as_result(feeds[i.name], i.type) for i in graph.inputs}
    rng = np.random.default_rng(seed)
    values: list[Array] = evaluate_ops(graph.outputs, known)
    perturbed = _Perturbation(ulps, rng).value
    found = spread_of(values, (evaluate_ops(graph.outputs, known, perturbed) for _ in range(samples)))
    return dict(zip(graph.names, found, strict=True))


def spread_of(values: Sequence[Array], samples: Iterable[Sequence[Array]]) -> list[Spread]:
    """How far samples are from values."""
    most = [np.zeros(v.shape) for v in values]
    for moved in samples:
        most = [np.maximum(m, _apart(v, w)) for m, v, w in zip(most, values, moved, strict=True)]
    return [Spread(v, m) for v, m in zip(values, most, strict=True)]


def of_another_type(got: Array, want: Array) -> bool:
    """Whether shape or dtype are not the same."""
    return got.shape != want.shape or got.dtype != want.dtype


def differing(
    graph: Graph, feeds: Mapping[str, Array], got: Mapping[str, Array], *, widely: bool = False
) -> tuple[list[str], dict[str, Spread]]:
    """Outputs among `got` that differ by more than rounding explains, in the order of the graph, and every spread.

    Those of narrow types are compared as such, or `widely`, as values of a type that numpy has.

    A few perturbations settle most cases; what they do not explain is looked at with more and larger ones.
    """
    bad: list[str] = []
    found: dict[str, Spread] = {}
    for samples, ulps in ((3, 2.0), (24, 8.0), (120, 8.0)):
        found = spreads(graph, feeds, samples, ulps)
        if widely:
            found = {name: replace(s, value=wide(s.value)) for name, s in found.items()}
        bad = [
            name
            for name, want in found.items()
            if name in got and (of_another_type(got[name], want.value) or wrong(got[name], want).any())
        ]
        if not bad:
            break
    return bad, found


def _apart(a: Array, b: Array) -> Array:
    """Distance of elements; infinite between different ones that are not both finite, or not floats."""
    with np.errstate(all="ignore"):
        same = (a == b) | ((a != a) & (b != b))
        if not is_float(a.dtype):
            return np.where(same, 0.0, np.inf)
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


def wrong(got: Array, want: Spread) -> Array:
    """Which elements of an array rounding does not explain."""
    apart = _apart(want.value, got)
    if is_float(want.value.dtype):
        info = figures(want.value.dtype)
        least = 4.0 * float(info.smallest_subnormal)
        small = np.abs(want.value.astype(np.float64)) < float(info.smallest_normal)  # what underflows loses digits
        small &= want.value.dtype.itemsize > 1  # of float8, that is much of what is drawn
        return ~((apart <= SPREADS * want.most + np.where((want.most > 0) | small, least, 0.0)) | np.isinf(want.most))
    return (apart > 0) & (want.most == 0)


@dataclass(frozen=True)
class _Perturbation:
    """Evaluates ops with operands, results and, where that is affordable, every rounding between moved a little."""

    ulps: float
    rng: np.random.Generator

    def value(self, op: Op, args: Sequence[Any]) -> Any:
        if isinstance(op, Region):
            found = op.evaluate_by(self._body, *args)
            return found if len(op.types) > 1 else found[0]
        if not rounds(op):
            got: Any = op.evaluate(*args)
            return self.either_zero(got) if _picks(op) else got
        moved = [self.moved(a) for a in args]
        if op.expansion is not None:
            known = dict(zip(op.operands, moved, strict=True))
            return evaluate_ops((op.expansion,), known, self.value)[0]
        if len(op.types) > 1 or (not isinstance(op, Call) and _costly(op)):
            got = op.evaluate(*moved)
            return tuple(self.moved(g) for g in got) if len(op.types) > 1 else self.moved(got)
        found = tuple(map(self.moved, run_kernel(op.kernel, moved, self.functions)))
        return found if len(op.types) > 1 else found[0]

    def _body(self, body: Graph, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        known: dict[Op, Array] = {i: as_result(feeds[i.name], i.type) for i in body.inputs}
        return dict(zip(body.names, evaluate_ops(body.outputs, known, self.value), strict=True))

    @cached_property
    def functions(self) -> Functions:
        exact = {name: self._picking(s.value) if name in _PICKING else s.value for name, s in SCALARS.items()}
        return {name: f if name in EXACT else self._around(f) for name, f in exact.items()}

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: self.moved(function(*args))

    def _picking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: self.either_zero(function(*args))

    def either_zero(self, x: Any) -> Any:
        """Floats with a sign drawn for every zero; all else as it is."""
        if isinstance(x, tuple):
            return x  # pyright: ignore[reportUnknownVariableType]
        array: Array = np.asarray(x)
        if array.dtype.kind != "f" or array.all():
            return x
        signs = self.rng.choice((-1.0, 1.0), array.shape)
        return np.where(array == 0, np.copysign(array, signs), array)

    def moved(self, x: Any) -> Any:
        """Elements a few units off; integers, truth values and tuples of results as they are."""
        if isinstance(x, tuple):
            return x  # pyright: ignore[reportUnknownVariableType]
        array: Array = np.asarray(x)
        if not is_float(array.dtype):
            return array
        shape: tuple[int, ...] = array.shape
        # A narrow result was rounded once: another order of sums moves it to a neighbour.
        ulps = 1.0 if str(array.dtype) in NARROW else self.ulps
        width = ulps * float(figures(array.dtype).eps)
        factor = self.rng.uniform(1.0 - width, 1.0 + width, shape)
        with np.errstate(all="ignore"):
            return np.asarray(wide(array) * factor).astype(array.dtype)


def _costly(op: Op) -> bool:
    """Whether the loops of an op are slow to interpret: its rounding is that of one sum, which its operands show."""
    return any(n.reduce in ("add", "mul") for n in op.kernel.nests)


_PICKING: Final = frozenset(("min", "max"))
_PICKS: dict[str, bool] = {}
_ROUNDS: dict[str, bool] = {}


def _parts(expansion: Op, op: Op) -> list[Op]:
    """The ops that an op's expansion consists of."""
    return [p for p in toposort((expansion,), dict.fromkeys(op.operands)) if p not in op.operands]


def _picks(op: Op) -> bool:
    """Whether an op gives one of several floats, of which two may be zeros of different signs."""
    if isinstance(op, (Input, Item)) or not op.operands:
        return False
    if op.digest not in _PICKS:
        if op.expansion is not None:
            _PICKS[op.digest] = any(map(_picks, _parts(op.expansion, op)))
        else:
            found = (e for n in op.kernel.nests for e in n.exprs() for e in walk(e))
            calls = any(isinstance(e, Apply) and e.fn in _PICKING for e in found)
            _PICKS[op.digest] = calls or any(n.reduce in _PICKING for n in op.kernel.nests)
    return _PICKS[op.digest]


def rounds(op: Op) -> bool:
    """Whether an op computes with floats, rather than to choose among, move, compare or count them."""
    if isinstance(op, (Input, Item)) or not op.operands:
        return False
    if not any(t.dtype.is_float for t in op.types):
        return not all(not x.dtype.is_float for x in op.operands if len(x.types) == 1) and _kernel_rounds(op)
    return _kernel_rounds(op)


def _kernel_rounds(op: Op) -> bool:
    if op.digest not in _ROUNDS:
        if op.expansion is not None:
            _ROUNDS[op.digest] = any(map(rounds, _parts(op.expansion, op)))
        else:
            _ROUNDS[op.digest] = _of_kernel(op.kernel)
    return _ROUNDS[op.digest]


@cache
def _of_kernel(kernel: Kernel) -> bool:
    for nest in kernel.nests:
        of = kernel.tensors[nest.out].dtype
        if of.is_float and nest.reduce in ("add", "mul"):
            return True
        if _expr_rounds(nest.body, kernel) or (nest.where is not None and _expr_rounds(nest.where, kernel)):
            return True
    return False


def _expr_rounds(e: Expr, kernel: Kernel) -> bool:
    if not isinstance(e, Apply):
        return False
    inside = any(_expr_rounds(a, kernel) for a in e.args)
    scalar = SCALARS[e.fn]
    if inside or e.fn in EXACT:
        return inside
    if scalar.to is not None and str(scalar.to.numpy) in NARROW:
        return False  # rounded once, by the same rule everywhere
    if scalar.to is not None:
        have = kernel.dtype_of(e.args[0])
        return scalar.to.is_float and not (have is not None and have.is_float and have.itemsize <= scalar.to.itemsize)
    found = kernel.dtype_of(e)
    return found is None or found.is_float


def leaves_range(factors: Array) -> bool:
    """Whether a product of floats may overflow or underflow in some order of its factors."""
    if factors.dtype.kind != "f":
        return False
    exponents = np.frexp(factors.astype(np.float64))[1]
    info = np.finfo(factors.dtype)
    return bool(exponents[exponents > 0].sum() > info.maxexp or exponents[exponents < 0].sum() < info.minexp)


__all__ = ["Spread", "differing", "leaves_range", "rounds", "spread_of", "spreads", "wrong"]
