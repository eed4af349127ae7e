"""Random kernels of the language: small, valid, and of every kind that the solver tells apart.

`random_case(rng)` makes one from any `random.Random`: a seeded one for long runs, or Hypothesis's own (`cases()`),
which shrinks what fails.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from itertools import product

from hypothesis import strategies as st

from tests.frontend_kernel.brute_force import Unbounded, place_of, ranges
from tests.frontend_kernel.small_language import (
    Bin,
    Case,
    Group,
    Num,
    Ref,
    Statement,
    Tree,
    Var,
    refs,
    terms,
    variables,
)

MAX_POINTS = 600
"""Points of one term's loops."""
MAX_ELEMENTS = 120
"""Elements of one tensor."""
_OUTER, _INNER = ("i", "j", "k"), ("r", "s")


class _Unlucky(Exception):
    """What was drawn is no valid kernel; another is drawn."""


def random_case(rng: random.Random, *, dtype: str = "float", statements: int = 0) -> Case:
    """A valid kernel with `grad_to` filled in.

    Args:
        dtype: "float" with quotients, or "int" with floor division and remainder.
        statements: How many; 0: one to three.
    """
    for _ in range(1000):
        try:
            return _Maker(rng, dtype).case(statements or rng.choice((1, 1, 1, 2, 3)))
        except (_Unlucky, Unbounded):
            continue
    raise AssertionError("1000 draws without a valid kernel")


def cases(dtype: str = "float", statements: int = 0) -> st.SearchStrategy[Case]:
    """Hypothesis strategy of `random_case`."""
    return st.randoms(use_true_random=False).map(lambda rng: random_case(rng, dtype=dtype, statements=statements))


def inputs(case: Case, seed: int) -> dict[str, list[float]]:
    """Values for the inputs: of magnitude 0.5 to 1.5 and either sign (denominators), or integers of -4 to 4."""
    rng = random.Random(seed)
    found: dict[str, list[float]] = {}
    for name, shape in case.shapes.items():
        size = math.prod(shape)
        if case.dtype == "int":
            found[name] = [rng.randint(-4, 4) for _ in range(size)]
        else:
            found[name] = [rng.choice((-1, 1)) * rng.uniform(0.5, 1.5) for _ in range(size)]
    return {name: found[name] for name in case.ins}


class _Maker:
    """Draws one kernel; every choice comes from `rng`."""

    def __init__(self, rng: random.Random, dtype: str) -> None:
        self.rng, self.dtype = rng, dtype
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ins: list[str] = []
        self.written: list[str] = []
        self.sizes: dict[str, int] = {}

    def case(self, statements: int) -> Case:
        """The whole kernel."""
        made = tuple(self.statement() for _ in range(statements))
        rng, ins = self.rng, list(self.ins)
        rng.shuffle(ins)
        count = 0 if self.dtype == "int" else rng.randint(1, min(3, len(ins)))
        wanted = tuple(rng.sample(ins, count))
        return Case("random", tuple(ins), tuple(dict.fromkeys(self.written)), self.dtype, made, wanted)

    def statement(self) -> Statement:
        """One statement; its indices and their sizes are its own."""
        rng = self.rng
        outer, inner = _OUTER[: rng.choice((1, 1, 2, 2, 3))], _INNER[: rng.choice((0, 1, 1, 2))]
        self.sizes = {v: rng.choice((1, 2, 3, 4, 5, 6)) for v in outer} | {v: rng.choice((2, 3, 4)) for v in inner}
        if math.prod(self.sizes.values()) > MAX_POINTS:
            raise _Unlucky
        left = self.left(outer)
        if left.name in self.written and rng.random() < 0.5 and all(isinstance(e, Var) for e in left.index or ()):
            right: Tree = Bin(rng.choice("+-"), left, self.term(outer, inner))  # A = A + …
        else:
            right = self.term(outer, inner)
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            right = Bin(rng.choice("++-"), right, self.term(outer, inner))
        if not any(n not in self.written for n in self.ins):
            raise _Unlucky  # nothing to differentiate with respect to
        made = Statement(left, right)
        self.check(made)
        self.written.append(left.name)
        return made

    def check(self, s: Statement) -> None:
        """Every range has points, loops are small, no element is written twice, and nothing reads as a recurrence."""
        constants = [(e, d) for r in refs(s.right) for e, d in zip(r.index or (), r.shape, strict=False)]
        if any(isinstance(e, Num) and not 0 <= e.value < d for e, d in constants):
            raise _Unlucky
        spans = ranges(s)
        if any(len(span) == 0 for span in spans.values()):
            raise _Unlucky
        for _, term in terms(s.right):
            names = {*variables(s.left), *variables(term)}
            if math.prod(len(spans[n]) for n in names) > MAX_POINTS:
                raise _Unlucky
        place, own = place_of(s.left), variables(s.left)
        written = [place(dict(zip(own, p, strict=True))) for p in product(*(spans[n] for n in own))]
        if None in written or len(set(written)) < len(written):
            raise _Unlucky
        if any(_shifted(s.left, r, spans) for r in refs(s.right) if r.name == s.left.name):
            raise _Unlucky

    def left(self, outer: Sequence[str]) -> Ref:
        """The tensor that is written: new, one that is there already, or one of the inputs."""
        rng = self.rng
        index = list[Tree](map(Var, outer))
        if self.written and rng.random() < 0.3:
            name = rng.choice(self.written)
            if len(self.shapes[name]) != len(outer):
                raise _Unlucky
            self.sizes |= dict(zip(outer, self.shapes[name], strict=True))
            return Ref(name, self.shapes[name], tuple(index))
        if rng.random() < 0.12:
            at = rng.randrange(len(index))
            index[at] = rng.choice((self.shifted, self.mirrored, self.strided))(outer[at])
        rng.shuffle(index)
        name = "ABCDE"[len(set(self.written))]
        self.shapes[name] = tuple(self.reach(e)[1] + 1 for e in index)
        if min(self.shapes[name]) < 1:
            raise _Unlucky
        if rng.random() < 0.15:
            self.ins.append(name)
        return Ref(name, self.shapes[name], tuple(index))

    # ---- values ----
    def term(self, outer: Sequence[str], inner: Sequence[str]) -> Tree:
        """A unit of summation: a product over some of the indices."""
        rng = self.rng
        own = [*outer, *rng.sample(inner, rng.randint(0, len(inner)))]
        return self.product(own, depth=2)

    def product(self, over: Sequence[str], depth: int) -> Tree:
        """Factors, and denominators that stay away from zero."""
        rng = self.rng
        tree = self.factor(over, depth)
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            if self.dtype == "int" and rng.random() < 0.3:
                tree = Bin(rng.choice(("//", "%")), tree, Num(rng.randint(1, 4)))
            elif self.dtype == "float" and rng.random() < 0.25:
                tree = Bin("/", tree, self.denominator(over))
            else:
                tree = Bin("*", tree, self.factor(over, depth))
        return tree

    def denominator(self, over: Sequence[str]) -> Tree:
        """A constant, an input (0.5 or more away from zero), or 2 plus a square."""
        rng = self.rng
        pick = rng.random()
        if pick < 0.4:
            return Num(rng.choice((2, 3.0, 0.5, 4)))
        ref = self.read(over, written=False)
        return ref if pick < 0.8 else Bin("+", Num(2.5), Bin("*", ref, ref))

    def factor(self, over: Sequence[str], depth: int) -> Tree:
        """A reference, a constant, a scalar, or a sum in parentheses."""
        rng = self.rng
        pick = rng.random()
        if pick < 0.1:
            return Num(rng.choice((1, 2, 3)) if self.dtype == "int" else rng.choice((2, 1.5, 0.25, 3.0, -2)))
        if pick < 0.17:
            name = rng.choice("uv")
            if name not in self.shapes:
                self.shapes[name] = ()
                self.ins.append(name)
            return Ref(name, (1,), None)
        if pick < 0.35 and depth:
            tree = self.product(over, depth - 1)
            for _ in range(rng.randint(0, 2)):
                tree = Bin(rng.choice("+-"), tree, self.product(over, depth - 1))
            return Group(tree)
        return self.read(over)

    # ---- references ----
    def read(self, over: Sequence[str], *, written: bool = True) -> Ref:
        """A reference to a tensor that is there (its subscripts fitted to it) or to a new input."""
        rng = self.rng
        there = [n for n, s in self.shapes.items() if s and (n in self.ins or n in self.written)]
        there = [n for n in there if written or n not in {*self.written, *"ABCDE"}]
        if there and rng.random() < 0.5:
            name = rng.choice(there)
            index = tuple(self.fitted(over, d) for d in self.shapes[name])
            return Ref(name, self.shapes[name], index)
        index = tuple(self.subscript(over) for _ in range(rng.choice((1, 2, 2, 3))))
        shape = tuple(self.dim(e) for e in index)
        if math.prod(shape) > MAX_ELEMENTS:
            raise _Unlucky
        name = f"X{sum(n.startswith('X') for n in self.shapes)}"
        self.shapes[name] = shape
        self.ins.append(name)
        return Ref(name, shape, index)

    def dim(self, e: Tree) -> int:
        """A dimension for a subscript: mostly exact, sometimes larger, sometimes so small that ranges are clipped."""
        high = self.reach(e)[1]
        if high < 0:
            raise _Unlucky
        extra = self.rng.choice((1, 1, 1, 1, 1, 2, 3, 0, -1) if variables(e) else (1, 2))
        return max(1, high + extra)

    def fitted(self, over: Sequence[str], d: int) -> Tree:
        """A subscript that stays in a dimension, or mostly."""
        for _ in range(6):
            e = self.subscript(over)
            low, high = self.reach(e)
            slack = self.rng.choice((0, 0, 0, 1))
            if low >= -slack and high <= d - 1 + slack:
                return e
        return Num(self.rng.randrange(d))

    def reach(self, e: Tree) -> tuple[int, int]:
        """Smallest and largest value of a subscript over the sizes drawn."""
        own = variables(e)
        place = place_of(Ref("", (1 << 20,), (Bin("+", e, Num(1 << 10)),)))
        points = product(*(range(self.sizes[v]) for v in own))
        found = [(place(dict(zip(own, p, strict=True))) or 0) - (1 << 10) for p in points]
        return min(found), max(found)

    # ---- subscripts ----
    def subscript(self, over: Sequence[str]) -> Tree:
        """One of the kinds of subscripts over one or two indices."""
        rng = self.rng
        v = rng.choice(over)
        others = [x for x in over if x != v]
        if rng.random() < 0.4:
            return Var(v)
        # Not `i - i`: what an index says of itself through another occurrence is not for its range to find out.
        return rng.choice((*self.of_one(v), *(self.of_two(v, rng.choice(others)) if others else ())))

    def of_one(self, v: str) -> tuple[Tree, ...]:
        """Subscripts of one index, or none."""
        rng, a, c = self.rng, Var(v), self.rng.choice((2, 2, 3, 4))
        return (
            self.shifted(v),
            self.strided(v),
            self.mirrored(v),
            Bin("//", a, Num(c)),
            Bin("%", a, Num(c)),
            Bin("%", Bin("+", a, Num(rng.randint(1, 5))), Num(self.sizes[v])),
            Bin("%", Bin("+", Bin("*", a, Num(c)), Num(1)), Num(rng.choice((2, 3, 5)))),
            Bin("%", Bin("//", a, Num(2)), Num(2)),
            Bin("//", Bin("+", a, Num(rng.randint(1, 3))), Num(c)),
            Num(rng.randint(0, 2)),
        )

    def of_two(self, v: str, w: str) -> tuple[Tree, ...]:
        """Subscripts of two indices."""
        rng, a, b, c = self.rng, Var(v), Var(w), self.rng.choice((2, 2, 3, 4))
        scaled = Bin("*", a, Num(c))
        return (
            Bin("+", a, b),
            Bin("+", Bin("-", a, b), Num(self.sizes[w] - 1)),
            Bin("+", scaled, b),
            Bin("+", scaled, Bin("*", b, Num(rng.choice((2, 3))))),
            Bin("%", Bin("+", a, b), Num(self.sizes[v])),
            Bin(rng.choice(("//", "%")), Bin("+", scaled, b), Num(rng.choice((2, 3)))),
            Bin("+", Bin("*", Bin("%", a, Num(2)), Num(2)), Bin("%", b, Num(2))),
            Bin("+", Bin("*", Num(c), a), Bin("//", b, Num(2))),
        )

    def shifted(self, v: str) -> Tree:
        return Bin(self.rng.choice("++-"), Var(v), Num(self.rng.randint(1, 2)))

    def strided(self, v: str) -> Tree:
        e: Tree = Bin("*", Var(v), Num(self.rng.choice((2, 3))))
        return Bin(self.rng.choice("+-"), e, Num(self.rng.randint(1, 2))) if self.rng.random() < 0.5 else e

    def mirrored(self, v: str) -> Tree:
        return Bin("-", Num(self.sizes[v] - 1 + self.rng.choice((0, 0, 1, -1))), Var(v))


def _shifted(written: Ref, read: Ref, spans: Mapping[str, Sequence[int]]) -> bool:
    """Whether what is read lies at one distance from what is written, wherever both lie inside the tensor."""
    names = tuple(dict.fromkeys((*variables(written), *variables(read))))
    points = [dict(zip(names, p, strict=True)) for p in product(*(spans[n] for n in names))]
    places = [(place_of(written)(at), place_of(read)(at)) for at in points]
    distances = {b - a for a, b in places if a is not None and b is not None}
    return len(distances) < 2 and distances != {0}
