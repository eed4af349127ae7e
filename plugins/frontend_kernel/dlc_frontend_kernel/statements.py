"""One statement → nests. Every statement makes a new version of the tensor that it writes.

    A[i] = t1 - t2;   →   A'[i] = t1;  A'[i] += neg(t2) over the indices of t2 that the left side lacks

Every term is a unit of summation: its nest adds to the element in the order of plain loops, left side's indices
outermost, then the term's own in the order of the text. Terms without own indices in front are one expression.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.base.types import DType, Type, bool_
from dlc.kernel.expr import Axis, Const, Expr, Load, apply, axes_in, both, walk
from dlc.kernel.nest import Nest, Param
from dlc.kernel.simplify import simplify_guard
from dlc_frontend_kernel import recurrence
from dlc_frontend_kernel.inference import Types
from dlc_frontend_kernel.injective import is_injective
from dlc_frontend_kernel.keep import is_whole, kept, kept_by_mask
from dlc_frontend_kernel.ranges import Interval, forward, occurrences, ranges
from dlc_frontend_kernel.syntax import BOUND, Index, Node, Operation, Reduction, Ref, Statement, bare, free, walk_nodes
from dlc_frontend_kernel.values import Conditions, Values
from dlc_frontend_kernel.workspace import Workspace

_FOLDED = 64
"""Terms that become one expression; the nests of the others are added one by one."""
MAX_TERMS = 1000
MAX_INDICES = 64


def lower_statement(work: Workspace, statement: Statement) -> None:
    """Add the nests of a statement. Raises DlcError with the place of what is not possible."""
    _Lowering(work, statement).run()


@dataclass(frozen=True)
class _Term:
    """A summand: its value, what it adds up over beside the left side's indices, and what must hold."""

    value: Expr
    own: tuple[Axis, ...]
    conditions: Conditions


class _Lowering:
    def __init__(self, work: Workspace, statement: Statement) -> None:
        self.work, self.statement, self.tokens = work, statement, work.tokens
        self._check_reductions()
        self.types = Types(self.tokens, lambda ref: self.read(ref).dtype)
        self.dtype = self._dtype()
        self.intervals = self._intervals()
        # Their own names: an axis of the statement must not be taken for one of another.
        self.axes = {key: Axis(key, int(high) + 1) for key, (_, high) in self.intervals.items()}
        self.values = Values(self.tokens, self.types, self.read, self.axes, self.intervals, self.as_local, self.dtype)
        self.left = tuple(self.axes[k] for k in dict.fromkeys(k for s in statement.target.subscripts for k in free(s)))

    # ---- what the statement is about ----
    def read(self, ref: Ref) -> Param:
        """The version of a tensor that the statement reads; for its left side, the tensor that it writes."""
        if ref is self.statement.target:
            name = ref.tensor
            return Param(name, Type(self.dtype, self.work.program.tensors[name].shape))
        found = self.work.current.get(ref.tensor)
        if found is None:
            message = f"{ref.tensor} is read before anything is written to it"
            raise self.tokens.fault("undefined", message, ref.at, f"make {ref.tensor} an input, or write it first")
        return found

    def _dtype(self) -> DType:
        target, program = self.statement.target, self.work.program
        found = self.types.of(self.statement.value)
        declared = program.tensors[target.tensor].dtype
        if declared is None and target.tensor in self.work.current:
            declared = self.work.current[target.tensor].dtype
        if declared is None and target.tensor in program.outs:
            declared = program.dtype
        wanted = declared or found or program.dtype
        if found is not None and found != wanted:
            what = "a comparison" if found is bool_ else f"a value of type {found}"
            help = "choose numbers by it: select(condition, 1, 0)" if found is bool_ else f"convert it: {wanted}(…)"
            message = f"{what} is stored into {target.tensor} of type {wanted}"
            raise self.tokens.fault("type", message, self.statement.value.at, help)
        return wanted

    def _intervals(self) -> dict[str, Interval]:
        shapes = {name: d.shape for name, d in self.work.program.tensors.items()}
        nodes = (*walk_nodes(self.statement.target), *walk_nodes(self.statement.value))
        indices = [n for n in nodes if isinstance(n, Index)]
        if (count := len({n.key for n in indices})) > MAX_INDICES:
            message = f"a statement with {count} indices; the limit is {MAX_INDICES}"
            raise self.tokens.fault("too-large", message, self.statement.at)
        out = ranges(list(occurrences(self.statement, shapes)))
        for node in indices:
            low, high = out.get(node.key, (0, math.inf))
            if high == math.inf:
                help = f"a subscript such as B<8>[{node.name}] would"
                raise self.tokens.fault("unbounded-index", f"nothing bounds the index {node.name}", node.at, help)
            if high < low:
                message = f"the index {node.name} has no values: at least {low}, at most {high}"
                raise self.tokens.fault("empty-range", message, node.at, "compare the subscripts with the shapes")
        return out

    def _check_reductions(self) -> None:
        reductions = [n for n in walk_nodes(self.statement.value) if isinstance(n, Reduction)]
        for node in reductions:
            for key in node.indices:
                if key not in free(node.body):
                    message = f"the reduction runs over {key.partition(BOUND)[0]}, which does not occur in it"
                    raise self.tokens.fault("unbounded-index", message, node.at)

    def lows(self, axes: Sequence[Axis]) -> Iterator[Expr]:
        """Conditions for the smallest values of indices that do not start at 0."""
        for axis in axes:
            low = int(self.intervals[axis.name][0])
            if low > 0:
                yield axis >= low

    # ---- reductions by name ----
    def as_local(self, node: Reduction, want: DType) -> Expr:
        """The reduction's value for all free indices, in a tensor of its own."""
        body, conditions = self.values.collect(node.body, want)
        kept_axes = tuple(self.axes[k] for k in free(node))
        bound = tuple(self.axes[k] for k in node.indices)
        where = _all((*self.lows((*kept_axes, *bound)), *conditions))
        at = node.at
        out = self.work.shared(Nest("", kept_axes, (*kept_axes, *bound), body, node.kind, where), want, at)
        self.values.require({c: None for c in conditions if not set(axes_in(c)) & set(bound)})
        return Load(out.name, kept_axes)

    # ---- the statement ----
    def run(self) -> None:
        """Emit the nests of the statement, and make its result the tensor's current version."""
        target = self.statement.target
        index, conditions = self._place()
        self._check_recurrence(index)
        if self._direct(index, conditions):
            return
        signs, nodes = _terms(self.statement.value)
        if len(nodes) > MAX_TERMS:
            message = f"a sum of {len(nodes)} terms; the limit is {MAX_TERMS}"
            raise self.tokens.fault("too-large", message, self.statement.at, "divide it into several statements")
        continued = self._continued(nodes)
        terms = [self._term(n) for n in nodes[continued is not None :]]
        signs = signs[continued is not None :]
        whole = self._statement_conditions(conditions, terms)
        old = self.work.current.get(target.tensor)
        out = continued or self._version()
        if continued is None and old is not None and not is_whole(out, index, whole):
            self._keep(out, old, index, whole)
        self._sum(out, index, whole, signs, terms, fold=continued is None)
        self.work.current[target.tensor] = out

    def _version(self) -> Param:
        target = self.statement.target
        return self.work.fresh(target.tensor, self.dtype, self.work.program.tensors[target.tensor].shape, target.at)

    def _place(self) -> tuple[tuple[Expr, ...], Conditions]:
        """The left side's subscripts, checked, and the conditions for them to lie in the tensor."""
        target = self.statement.target
        for s in target.subscripts:
            for n in walk_nodes(s):
                if isinstance(n, Ref):
                    message = f"the left side's subscript reads {n.tensor}: elements could be written twice"
                    raise self.tokens.fault("left-side", message, n.at)
        index, conditions = self.values.place(target)
        plain = [e for e in index if isinstance(e, Axis)]
        help = "every element is written once; sum over the other indices on the right side"
        if len(set(plain)) < len(plain):
            double = next(e for k, e in enumerate(plain) if e in plain[:k])
            message = f"the index {double.name} stands twice on the left side"
            raise self.tokens.fault("left-side", message, target.at, help)
        if not is_injective(index, self.read(target).shape, self.left):
            message = f"different index values write the same element of {target.tensor}, or may do so"
            raise self.tokens.fault("left-side", message, target.at, help)
        return index, conditions

    def _check_recurrence(self, index: tuple[Expr, ...]) -> None:
        target = self.statement.target
        spans = [forward(s, self.intervals) for s in target.subscripts]
        for node in walk_nodes(self.statement.value):
            if not isinstance(node, Ref) or node.tensor != target.tensor:
                continue
            if any(isinstance(n, Ref) for s in node.subscripts for n in walk_nodes(s)):
                continue  # what data point at, before the statement
            if recurrence.is_recurrence(index, self.values.subscripts(node), spans):
                message = f"this element of {target.tensor} is written by the same statement, for other indices"
                raise self.tokens.fault("recurrence", message, node.at, recurrence.HELP)

    def _term(self, node: Node) -> _Term:
        value, conditions = self.values.collect(node, self.dtype)
        own = tuple(a for k in free(node) if (a := self.axes[k]) not in self.left)
        if own and self.dtype is bool_:
            raise self.tokens.fault("type", "comparisons cannot be summed", node.at, "sum select(condition, 1, 0)")
        return _Term(value, own, conditions)

    def _statement_conditions(self, own: Conditions, terms: Sequence[_Term]) -> list[Expr]:
        """What holds of left side's indices alone guards the whole statement: elsewhere nothing is written."""
        left = set(self.left)
        found: Conditions = dict.fromkeys((*self.lows(self.left), *own))
        found.update({c: None for t in terms for c in t.conditions if set(axes_in(c)) <= left})
        return list(found)

    def _sum(
        self,
        out: Param,
        index: tuple[Expr, ...],
        whole: Sequence[Expr],
        signs: Sequence[str],
        terms: Sequence[_Term],
        fold: bool,
    ) -> None:
        at = self.statement.at
        first = 0
        value: Expr | None = None
        while fold and first < min(len(terms), _FOLDED) and not terms[first].own:
            term = terms[first].value
            value = term if value is None else apply("sub" if signs[first] == "-" else "add", value, term)
            first += 1
        if value is not None:
            self.work.emit(Nest(out.name, index, self.left, value, None, _all(whole)), at)
        for sign, term in zip(signs[first:], terms[first:], strict=True):
            body = apply("neg", term.value) if sign == "-" else term.value
            where = _all((*whole, *self.lows(term.own), *(c for c in term.conditions if c not in whole)))
            self.work.emit(Nest(out.name, index, (*self.left, *term.own), body, "add", where), at)

    def _keep(self, out: Param, old: Param, index: tuple[Expr, ...], whole: Sequence[Expr]) -> None:
        at = self.statement.at
        if all(isinstance(e, Axis | Const) for e in index):
            nests = kept(out, old, index, whole)
        else:
            mask = self.work.fresh("written", bool_, out.shape, at)
            nests = kept_by_mask(out, old, mask, Nest(out.name, index, self.left, Const(0), None, _all(whole)))
        for nest in nests:
            if simplify_guard(nest.where) != Const(False):
                self.work.emit(nest, at)

    # ---- two statements that need no tensor of their own ----
    def _direct(self, index: tuple[Expr, ...], conditions: Conditions) -> bool:
        """`A[i] = max[k](…);` over all of A: the result itself collects the values."""
        node = bare(self.statement.value)
        left = set(self.left)
        if not isinstance(node, Reduction) or {self.axes[k] for k in free(node)} - left:
            return False
        whole = not conditions and not any(self.lows(self.left))
        if not whole or not is_whole(self.read(self.statement.target), index, ()):
            return False
        body, required = self.values.collect(node.body, self.dtype)
        if any(set(axes_in(c)) <= left for c in required):
            return False
        out = self._version()
        bound = tuple(self.axes[k] for k in node.indices)
        where = _all((*self.lows(bound), *required))
        self.work.emit(Nest(out.name, index, (*self.left, *bound), body, node.kind, where), self.statement.at)
        self.work.current[self.statement.target.tensor] = out
        return True

    def _continued(self, nodes: Sequence[Node]) -> Param | None:
        """`A[i] = A[i] + …;` where nothing else has read A since it was made: the sum goes on in the same tensor."""
        target, first = self.statement.target, nodes[0]
        old = self.work.current.get(target.tensor)
        if old is None or old.name not in self.work.made or not isinstance(first, Ref):
            return None
        same = first.tensor == target.tensor and _plain_keys(first) == _plain_keys(target) is not None
        again = [n for n in walk_nodes(self.statement.value) if isinstance(n, Ref) and n.tensor == target.tensor]
        sums = all(n.reduce in (None, "add") for n in self.work.nests if n.out == old.name)
        read = any(old.name in n.reads() for n in self.work.nests)
        return old if same and len(again) == 1 and len(nodes) > 1 and sums and not read else None


def _plain_keys(ref: Ref) -> tuple[str, ...] | None:
    found = tuple(s.key for s in ref.subscripts if isinstance(s, Index))
    return found if len(found) == len(ref.subscripts) else None


def _terms(node: Node) -> tuple[list[str], list[Node]]:
    """The signs and summands of a sum, left to right; what stands in parentheses is one."""
    signs: list[str] = []
    nodes: list[Node] = []
    while isinstance(node, Operation) and node.op in ("+", "-"):
        signs.append(node.op)
        nodes.append(node.args[1])
        node = node.args[0]
    return ["+", *reversed(signs)], [node, *reversed(nodes)]


def _all(conditions: Sequence[Expr]) -> Expr | None:
    """The conjunction; conditions that read data come last, behind those that make them legal."""
    ordered = sorted(dict.fromkeys(conditions), key=lambda c: any(isinstance(x, Load) for x in walk(c)))
    out: Expr | None = None
    for c in ordered:
        out = both(out, c)
    return out
