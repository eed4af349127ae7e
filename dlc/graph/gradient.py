"""Reverse-mode differentiation of a graph: one sweep from the outputs to what is differentiated.

    y = f(x), dy   →   dx = vjp of f;   x read twice   →   dx = dx₁ + dx₂

An op's cotangents come from its `vjp` where it gives any, else from the ops of its expansion, else from the derivative
of its kernel. Only ops between `wrt` and the outputs are looked at, and only cotangents that lead on to `wrt` are made.

A sum of contributions is a call of a kernel: the op `add` is declared above this layer, and every level of a pipeline
takes calls. See Griewank and Walther, Evaluating Derivatives (2008), chapter 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import ClassVar, Final

from dlc.base.diagnostics import Diagnostic, DlcError, Location, error
from dlc.base.types import Type
from dlc.graph.derivative import Derivatives, Refused
from dlc.graph.kinds import check_ops
from dlc.graph.op import Op
from dlc.graph.opened import Names, opened, path_of
from dlc.graph.precise import computed_once, rounded, unrounded_value
from dlc.graph.structure import Call, Input, Item, Splat
from dlc.graph.walk import toposort
from dlc.kernel.define import comp, grid, kernel_of
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Param

_SHOWN: Final = 5
"""Nodes that one message names."""


@dataclass(frozen=True)
class Sweep:
    """Gradients, and what there is to say of them."""

    gradients: tuple[Op, ...]
    """One per op of `wrt`, of its type."""
    origins: Names
    """Those given, and for each new op those of the op whose derivative it belongs to."""
    scattered: tuple[tuple[str, str], ...]
    """(node, reason) of derivatives that add into memory at computed places instead of gathering."""
    outputs: tuple[Op, ...]
    """The outputs and then `also`, computed from the parts that the gradients read: for graphs that hold both."""


def gradients(outputs: Sequence[Op], seeds: Sequence[Op], wrt: Sequence[Op]) -> tuple[Op, ...]:
    """The gradients of Σ ⟨outputs[k], seeds[k]⟩ with respect to each op of `wrt`; zeros where nothing depends on it.

    Args:
        outputs: What is differentiated: single values.
        seeds: Their cotangents, of the same types.
        wrt: Inputs, or any ops that the outputs are computed from; float.

    Returns:
        One op for each of `wrt`, of its type.

    Raises:
        DlcError: ops on the way cannot be differentiated: all of them, with the reasons; (USAGE) something is no op.
        ValueError: seeds do not match the outputs, or something in `wrt` is no float.
    """
    for name, ops in (("outputs", outputs), ("seeds", seeds), ("wrt", wrt)):
        check_ops(name, ops)
    return sweep(outputs, seeds, wrt).gradients


def sweep(
    outputs: Sequence[Op],
    seeds: Sequence[Op],
    wrt: Sequence[Op],
    origins: Names = MappingProxyType({}),
    also: Sequence[Op] = (),
    named: frozenset[str] = frozenset(),
) -> Sweep:
    """`gradients`, with the origins of what was made and the derivatives that stay scatters.

    `also` are further values of the same graph, which are not differentiated. Derivatives of ops of the names in
    `named`, which stay whole, are left as `Cotangent`.
    """
    _check(outputs, seeds, wrt)
    whole, targets, known = opened((*outputs, *also), wrt, origins, named)
    roots = whole[: len(outputs)]
    work = _Work(known, named)
    for op, seed in zip(roots, seeds, strict=True):
        work.add(op, seed)
    order = toposort(roots)
    path = path_of(order, targets)
    work.settled = {op.digest for op in toposort((*roots, *seeds))}
    for op in reversed(order):
        if op.digest in path and not isinstance(op, Input | Item):
            work.step(op, path)
    if work.problems:
        raise DlcError(*_diagnostics(work.problems))
    found = tuple(work.cotangents.get(_key(w)) or Splat(0.0, w.type) for w in targets)
    return Sweep(found, work.origins, tuple(dict.fromkeys(work.scattered)), whole)


def _check(outputs: Sequence[Op], seeds: Sequence[Op], wrt: Sequence[Op]) -> None:
    if len(outputs) != len(seeds):
        raise ValueError(f"{len(outputs)} outputs have {len(seeds)} seeds")
    for k, (output, seed) in enumerate(zip(outputs, seeds, strict=True)):
        if output.types != seed.types:
            raise ValueError(f"seed {k} is {seed.type}, the output is {output.type}")
    for k, op in enumerate(wrt):
        if not op.dtype.is_float:
            raise ValueError(f"operand {k} to differentiate by is {op.type}: only floats have gradients")


Key = tuple[str, int]


def _key(op: Op) -> Key:
    """Where cotangents of a value gather: its op, and which of the op's results it is."""
    return (op.of.digest, op.index) if isinstance(op, Item) else (op.digest, 0)


class _Work:
    """The state of one sweep."""

    def __init__(self, origins: dict[str, tuple[str, ...]], named: frozenset[str] = frozenset()) -> None:
        self.cotangents: dict[Key, Op] = {}
        self.origins = origins
        self.scattered: list[tuple[str, str]] = []
        self.problems: list[tuple[str, str, Refused]] = []
        self.settled: set[str] = set()
        """Ops whose origin needs no more thought."""
        self._derive = Derivatives()
        self._named = named

    def add(self, op: Op, contribution: Op) -> None:
        """One more contribution to the cotangent of a value."""
        before = self.cotangents.get(_key(op))
        self.cotangents[_key(op)] = contribution if before is None else _sum(op.type, before, contribution)

    def step(self, op: Op, path: frozenset[str]) -> None:
        """Hand the cotangents of an op's results, if it has any, on to its operands."""
        seeds = [self.cotangents.get((op.digest, k)) for k in range(len(op.types))]
        wanted = tuple(x.digest in path for x in op.operands)
        if not any(wanted) or all(s is None for s in seeds):
            return
        try:
            found = self._named_vjp(op, seeds, wanted) or self.vjp(op, seeds, wanted)
        except Refused as e:
            self.problems.append((op.text_name, self._node(op), e))
            for x, use in zip(op.operands, wanted, strict=True):
                if use:  # there will be no gradient, but what is behind may have problems to tell too
                    self.add(x, Splat(0.0, x.type))
            return
        for x, dx, use in zip(op.operands, found, wanted, strict=True):
            if use and dx is not None:
                self.add(x, dx)
                self._remember(self.cotangents[_key(x)], op)

    def _named_vjp(self, op: Op, seeds: Sequence[Op | None], wanted: Sequence[bool]) -> Sequence[Op | None]:
        match seeds:
            case [Op() as seed] if op.text_name in self._named:
                return [Cotangent.make(op, seed, k) if use else None for k, use in enumerate(wanted)]
            case _:
                return ()

    def vjp(self, op: Op, seeds: Sequence[Op | None], wanted: Sequence[bool]) -> Sequence[Op | None]:
        """The cotangents of an op's operands. Raises Refused."""
        if op.symbols:
            names = ", ".join(s.name for s in op.symbols)
            help = "give its dimensions one size each, or do this part before or after what is trained"
            raise Refused(f"the size of {names} is known only when the program runs", help)
        own = op.vjp(*seeds)
        if own is not None:
            return rounded_cotangents(op, seeds, _checked(op, own))
        if op.expansion is None:
            found, reasons = self._derive(op, seeds, wanted)
            self.scattered += [(self._node(op), reason) for reason in reasons]
            return found
        # Only an op that has a `vjp` and declines comes here whole; the others were opened before.
        (seed,) = seeds
        assert seed is not None
        needed = [x for x, use in zip(op.operands, wanted, strict=True) if use]
        inner = sweep((op.expansion,), (seed,), needed, self.origins)
        self.scattered += inner.scattered
        gradients = iter(inner.gradients)
        return [next(gradients) if use else None for use in wanted]

    def _node(self, op: Op) -> str:
        return ", ".join(self.origins.get(op.digest, ())) or op.text_name

    def _remember(self, made: Op, cause: Op) -> None:
        """What a derivative consists of comes from where its op came from."""
        names = self.origins.get(cause.digest)
        stack = [made]
        while stack:
            op = stack.pop()
            if op.digest in self.settled:
                continue
            self.settled.add(op.digest)
            if names:
                self.origins.setdefault(op.digest, names)
            stack += op.operands


class Cotangent(Op):
    """A gradient that stays named, for targets that have an instruction for it.

        y = f(x, w), dy   →   dx = cotangent(y, dy, x, w) operand=0

    It computes nothing of its own: its expansion is what `vjp` of the op, or the derivative of its kernel, gives.

    `of` is there for what it is, more than for its value; `xs` are its operands, because a derivative may read them.
    `name` is the name of that op: when a pass has rewritten that op, the expansion is refused.
    """

    is_rounded: ClassVar[bool] = True
    of: Op
    seed: Op
    xs: tuple[Op, ...] = ()
    operand: int = 0
    name: str = ""

    @classmethod
    def make(cls, of: Op, seed: Op, operand: int) -> Cotangent:
        """The cotangent of operand number `operand` of an op with a single result."""
        return cls(of, seed, of.operands, operand, of.text_name)

    def derive_types(self) -> tuple[Type, ...]:
        return self.xs[self.operand].types

    def expand(self) -> Op | None:
        if self.of.text_name != self.name or self.of.operands != self.xs:
            raise error(
                "lost-op",
                f"a gradient of {self.name} is left, but the op itself has become {self.of.text_name}",
                help="run passes that rewrite ops before autodiff, or leave `named` out",
            )
        return cotangent_of(self.of, self.seed, self.operand)


def cotangent_of(op: Op, seed: Op, operand: int) -> Op:
    """What the cotangent of an op with one result adds to that of an operand; zeros where that is nothing.

    Raises:
        DlcError: the op has no gradient.
    """
    try:
        found = _Work({}).vjp(op, [seed], [k == operand for k in range(len(op.operands))])[operand]
    except Refused as e:
        raise DlcError(*_diagnostics([(op.text_name, op.text_name, e)])) from None
    return Splat(0.0, op.operands[operand].type) if found is None else found


def _checked(op: Op, found: Sequence[Op | None]) -> Sequence[Op | None]:
    """What an op's own `vjp` gave, if it fits the operands."""
    if len(found) != len(op.operands):
        raise Refused(f"its vjp gives {len(found)} cotangents for {len(op.operands)} operands")
    for k, (x, dx) in enumerate(zip(op.operands, found, strict=True)):
        if dx is not None and dx.types != x.types:
            raise Refused(f"its vjp gives {dx.type} for operand {k}, which is {x.type}")
    return found


def _sum(type: Type, a: Op, b: Op) -> Op:
    """Two contributions to a cotangent of a type. Sums of narrow floats are f32, rounded once after the last one."""
    wide = replace(type, dtype=type.dtype.compute) if type.dtype.is_float else type
    return rounded(Call(sum_kernel(wide), (unrounded_value(a), unrounded_value(b))), type.dtype)


def rounded_cotangents(op: Op, seeds: Sequence[Op | None], own: Sequence[Op | None]) -> Sequence[Op | None]:
    """What an op's `vjp` gives, computed in f32 and rounded once where it has several steps."""

    def again(operands: Sequence[Op | None]) -> Sequence[Op | None]:
        count = len(op.operands)
        wide = op.with_operands([x for x in operands[:count] if x is not None])
        return _checked(wide, wide.vjp(*operands[count:]) or own)

    return computed_once(own, (*op.operands, *seeds), again)


@cache
def sum_kernel(type: Type) -> Kernel:
    """r[i] = p0[i] + p1[i]: what adds the contributions to one cotangent."""
    a, b = Param("a", type), Param("b", type)
    i = grid(type.shape)
    return kernel_of((a, b), [comp(i, a[i] + b[i])], type.dtype)


def _diagnostics(problems: Sequence[tuple[str, str, Refused]]) -> list[Diagnostic]:
    """One message per kind of op and reason, with the nodes."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, node, problem in problems:
        groups.setdefault((name, problem.reason, problem.help), []).append(node)
    found: list[Diagnostic] = []
    for (name, reason, help), nodes in groups.items():
        more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
        count = f"{len(nodes)} nodes" if len(nodes) > 1 else "1 node"
        notes = (f"nodes: {', '.join(nodes[:_SHOWN])}{more}",)
        place = Location(node=nodes[0])
        found.append(Diagnostic("no-gradient", f"{name}, {count}: {reason}", location=place, notes=notes, help=help))
    return found
