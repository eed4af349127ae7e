"""Loops under other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dlc.kernel.expr import Apply, Expr, Load
from dlc.kernel.loops.program import (
    Block,
    Dots,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Local,
    Pick,
    Prefetch,
    Set,
    Shuffle,
    Stmt,
    Store,
    Words,
)
from dlc.kernel.simplify import is_index, simplify


def _same(_: str, at: Expr) -> Expr:
    return at


@dataclass(frozen=True)
class Renaming:
    """New names of tensors, buffers and variables; what is not named stays.

    Attributes:
        tensors: Of parameters, results and buffers.
        variables: Of variables.
        place: (tensor by its old name, flat subscript) → the subscript to use instead.
        axes: What replaces axes; subscripts are simplified then.
    """

    tensors: Mapping[str, str] = field(default_factory=dict[str, str])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    place: Callable[[str, Expr], Expr] = _same
    axes: Mapping[Expr, Expr] = field(default_factory=dict[Expr, Expr])

    def expr(self, e: Expr) -> Expr:
        """The expression under the new names."""
        match e:
            case Load():
                return self._load(e)
            case Lanes(first, n, step):
                return Lanes(self._load(first), n, step)
            case Words(first, n, step):
                return Words(self._load(first), n, step)
            case Dots(a, b):
                return Dots(self._local(a), self._local(b))
            case Shuffle(a, b, order):
                return Shuffle(self._local(a), self._local(b), order)
            case Pick(parts, places, ahead):
                at = replace(places, first=self._load(places.first))
                return Pick(tuple([self._local(x) for x in parts]), at, ahead)
            case Apply(fn, args):
                return Apply(fn, tuple([self.expr(a) for a in args]))
            case Local():
                return self._local(e)
            case Fold(fn, vector):
                return Fold(fn, self._local(vector))
            case _:
                return self.axes.get(e, e)

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements under the new names."""
        return tuple([self._stmt(s) for s in body])

    def _load(self, load: Load) -> Load:
        name = self.tensors.get(load.param, load.param)
        return Load(name, tuple([self._at(load.param, i) for i in load.index]))

    def _at(self, tensor: str, e: Expr) -> Expr:
        changed = self.expr(self.place(tensor, e))
        return simplify(changed) if self.axes and is_index(changed) else changed

    def _local(self, local: Local) -> Local:
        name = self.variables.get(local.name, local.name)
        return local if name == local.name else replace(local, name=name)

    def _stmt(self, s: Stmt) -> Stmt:
        match s:
            case For(_, start, stop, inner):
                own = tuple(self.tensors.get(name, name) for name in s.own)
                return replace(s, start=self.expr(start), stop=self.expr(stop), body=self.body(inner), own=own)
            case If(condition, then, otherwise):
                return If(self.expr(condition), self.body(then), self.body(otherwise))
            case Let(local, value):
                return Let(self._local(local), self.expr(value))
            case Set(local, value):
                return Set(self._local(local), self.expr(value))
            case Store(out, at, value):
                name = self.tensors.get(out, out)
                return replace(s, out=name, at=self._at(out, at), value=self.expr(value))
            case Prefetch(tensor, at):
                return replace(s, tensor=self.tensors.get(tensor, tensor), at=self._at(tensor, at))
            case Block(inner):
                return Block(self.body(inner))


def rename(body: tuple[Stmt, ...], names: Mapping[str, str]) -> tuple[Stmt, ...]:
    """Statements with tensors and buffers under other names."""
    return Renaming(names).body(body)
