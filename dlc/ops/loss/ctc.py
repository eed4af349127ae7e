"""Connectionist temporal classification: how likely scores over time make labels that say nothing of when.

A way through time takes one class at every step; it reads as its labels when classes that follow themselves are taken
once and blanks are dropped. The labels l₁ … lₙ of a row thus have 2n + 1 states, blank l₁ blank … lₙ blank, and with
S places for labels a row has L = 2S + 1. Graves et al. 2006, "Connectionist Temporal Classification: Labelling
Unsegmented Sequence Data with Recurrent Neural Networks"; torch.nn.functional.ctc_loss.

Logarithms of what cannot be are -∞, in every step exactly; sums of them keep to ln 0 = -∞ without NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from dlc.base.types import Type, bool_, i64
from dlc.graph.op import Op
from dlc.graph.structure import Splat
from dlc.kernel.define import Comp, ShapeError, comp, grid
from dlc.kernel.expr import Expr, apply, select
from dlc.ops.elementwise import Add, And, Cast, Div, Equal, Greater, Maximum, Mul, Neg, Not, Or, Sub, Where
from dlc.ops.index import GatherElements
from dlc.ops.linear import MatMul
from dlc.ops.loss.labels import LabelMask, counted
from dlc.ops.loss.reduction import check_floats, reduced
from dlc.ops.normalize import LogSoftmax, Softmax
from dlc.ops.pointwise import literal, scalar
from dlc.ops.reduce import CumSum, ReduceLogSumExp, ReduceSum
from dlc.ops.shape import Concat, Expand, Pad, Reshape, Slice

LONGEST: Final = 1024
"""Steps in time; each becomes ops of its own."""


class CtcStep(Op):
    """y[n,0,s] = ln (eˣ[n,0,s] + eˣ[n,0,s-1] + eˣ[n,0,s-2] if skip[n,0,s]): a step in time from state to state.

    With `back` the step that it undoes: s+1 and s+2 for s-1 and s-2, and skip[n,0,s+2]. States outside are -∞.
    """

    x: Op
    skip: Op
    back: bool = False

    def define(self, *params: Any) -> Comp:
        x, skip = params
        if len(x.shape) != 3 or not x.dtype.is_float or self.skip.type != Type(bool_, x.shape):
            raise ShapeError(f"x {x.type} and skip {self.skip.type} must be [N, 1, L], x of floats and skip of bool")
        i = grid(x.shape)
        n, t, s = i
        none = literal(-math.inf, x.dtype)

        def state(away: int) -> tuple[Expr, Expr]:
            place = s + away if self.back else s - away
            return place, place < s.extent if self.back else place >= 0

        (one, has_one), (two, has_two) = state(1), state(2)
        allowed = skip[n, t, two if self.back else s]
        parts: list[Expr] = [
            x[i],
            select(has_one, x[n, t, one], none),
            select(has_two, select(allowed, x[n, t, two], none), none),
        ]
        top = apply("max", parts[0], apply("max", parts[1], parts[2]))
        # Both choices keep ln 0 out of the derivative too, where 0 · ∞ would be NaN.
        nothing = apply("eq", top, none)
        most = select(nothing, literal(0, x.dtype), top)
        total = apply("exp", parts[0] - most) + apply("exp", parts[1] - most) + apply("exp", parts[2] - most)
        return comp(i, select(nothing, none, most + apply("log", select(nothing, literal(1, x.dtype), total))))


class CtcRows(Op):
    """y[n] = -ln of the probability that scores[N,T,C] make the labels[N,S] of row n.

    Labels of a row end before its first blank. ∞ where T is too short for them, NaN where one is no class; such rows
    have no part in the gradient.
    """

    scores: Op
    labels: Op
    blank: int = 0

    def expand(self) -> Op:
        states = _States(self.scores, self.labels, self.blank)
        loss = Neg(ReduceLogSumExp(states.ended(states.reached[-1]), axes=(1, 2)))
        return Where(states.wrong, scalar(math.nan, self.scores.dtype), loss)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # g · (p - q), with q how likely a class is at a time in view of all labels: Graves et al., equation 16. One
        # step back for each step, where the derivation of the steps would add a whole tensor for each.
        (g,) = seeds
        if g is None:
            return [None, None]
        states = _States(self.scores, self.labels, self.blank)
        # Softmax: e^(reached + left + loss), without what rounding has left in the loss.
        share = Softmax(Add(Concat(states.reached, axis=1), Concat(states.left, axis=1)), axis=2)
        classes = LabelMask(states.names, classes=self.scores.shape[2], axis=2)
        change = Sub(Softmax(self.scores, axis=2), MatMul(share, Cast(classes, to=self.scores.dtype)))
        counts = Not(Or(states.wrong, Equal(self, scalar(math.inf, self.dtype))))
        by_row = (Reshape(v, to=(*self.shape, 1, 1)) for v in (counts, g))
        return [Where(next(by_row), Mul(change, next(by_row)), scalar(0.0, self.dtype)), None]


class Ctc(Op):
    """y = -ln of the probability of labels[N,S], which end at `blank`, in scores[N,T,C]; reduced.

    A mean is that of the rows, each divided by the number of its labels, or by 1 if it has none, as in PyTorch. With
    `zero_infinity` rows whose labels do not fit into T steps count 0 instead of ∞.
    """

    scores: Op
    labels: Op
    blank: int = 0
    zero_infinity: bool = False
    reduction: str = "mean"

    def expand(self) -> Op:
        rows: Op = CtcRows(self.scores, self.labels, self.blank)
        dtype = rows.dtype
        if self.zero_infinity:
            rows = Where(Equal(rows, scalar(math.inf, dtype)), scalar(0.0, dtype), rows)
        if self.reduction == "mean":
            count = Reshape(_States(self.scores, self.labels, self.blank).count, to=rows.shape)
            rows = Div(rows, Cast(Maximum(count, scalar(1, i64)), to=dtype))
        return reduced(rows, self.reduction)


class _States:
    """What the states of rows of labels are, and how likely they are to be reached, and to end."""

    def __init__(self, scores: Op, labels: Op, blank: int) -> None:
        """Refuse what has no such states."""
        check_floats(scores.type)
        if len(scores.shape) != 3 or not scores.shape[1]:
            raise ShapeError(f"scores must be rows, steps in time and classes: {scores.type}")
        if scores.shape[1] > LONGEST:
            raise ShapeError(f"{scores.shape[1]} steps in time: at most {LONGEST} are written out")
        if not labels.dtype.is_integer or len(labels.shape) != 2 or labels.shape[0] != scores.shape[0]:
            raise ShapeError(f"labels {labels.type} of scores {scores.type} must be integers, some for each row")
        if not 0 <= blank < scores.shape[2]:
            raise ShapeError(f"blank {blank} is none of the {scores.shape[2]} classes of {scores.type}")
        self._blank, self._scores = Splat(blank, Type(i64, ())), scores
        wide = labels if labels.dtype == i64 else Cast(labels, to=i64)
        blanks = CumSum(Cast(Equal(wide, self._blank), to=i64), axis=1)
        live = Equal(blanks, scalar(0, i64))
        self._labels = Where(live, wide, self._blank)
        self.count = ReduceSum(Cast(live, to=i64), axes=(1,), keep=True)
        """[N,1]: labels of each row."""

    @cached_property
    def wrong(self) -> Op:
        """[N]: whether a label of the row is no class."""
        bad = Not(counted(self._labels, self._scores.shape[2], None))
        return Greater(ReduceSum(Cast(bad, to=i64), axes=(1,)), scalar(0, i64))

    @cached_property
    def names(self) -> Op:
        """[N,L]: the class of each state."""
        rows, places = self._labels.shape
        label = Reshape(self._labels, to=(rows, places, 1))
        pairs = Concat((Expand(self._blank, to=label.shape), label), axis=2)
        return Concat((Reshape(pairs, to=(rows, 2 * places)), Expand(self._blank, to=(rows, 1))), axis=1)

    @cached_property
    def reached(self) -> tuple[Op, ...]:
        """[N,1,L] for each time: ln of the probability to have read the labels up to a state, and to be there."""
        first, *others = self._logs
        rows, _, states = first.shape
        start = Slice(first, starts=(0, 0, 0), sizes=(rows, 1, min(states, 2)))
        found: list[Op] = [Pad(start, pads=(0, 0, 0, 0, 0, max(states - 2, 0)), value=-math.inf)]
        for log in others:
            found.append(Add(CtcStep(found[-1], self._skip), log))
        return tuple(found)

    @cached_property
    def left(self) -> tuple[Op, ...]:
        """[N,1,L] for each time: ln of the probability to read the other labels after it, from a state."""
        found = [self.ended(Expand(scalar(0.0, self._scores.dtype), to=self._logs[-1].shape))]
        for log in reversed(self._logs[1:]):
            found.append(CtcStep(Add(found[-1], log), self._skip, back=True))
        return tuple(reversed(found))

    def ended(self, states: Op) -> Op:
        """[N,1,L], -∞ where a state is neither the last label nor the blank behind it."""
        last = Mul(self.count, scalar(2, i64))
        places = (last, Sub(last, scalar(1, i64)))
        blank, label = (LabelMask(p, classes=states.shape[2], axis=2) for p in places)
        return Where(Or(blank, label), states, self._none)

    @cached_property
    def _logs(self) -> tuple[Op, ...]:
        """[N,1,L] for each time: ln of the probability of the class of a state."""
        rows, times, _ = self._scores.shape
        states = self.names.shape[1]
        to = (rows, times, states)
        names = Expand(Reshape(self.names, to=(rows, 1, states)), to=to)
        logs = GatherElements(LogSoftmax(self._scores, axis=2), names, axis=2)
        return tuple(Slice(logs, starts=(0, t, 0), sizes=(rows, 1, states)) for t in range(times))

    @cached_property
    def _skip(self) -> Op:
        """[N,1,L]: whether a way may pass over the state before: a blank between labels that differ."""
        rows, states = self.names.shape
        before = Pad(self.names, pads=(0, 2, 0, -2), value=self._blank.value)
        differs = And(Not(Equal(self.names, before)), Not(Equal(self.names, self._blank)))
        return Reshape(differs, to=(rows, 1, states))

    @property
    def _none(self) -> Op:
        return scalar(-math.inf, self._scores.dtype)
