"""`imported`: a program of ATen calls → Graph, with everything that is not supported reported at once."""

# pyright: basic
# Arguments of calls are anything.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dlc.base.extents import Undecided, is_open
from dlc.base.types import Type
from dlc.graph import Input, Op
from dlc.graph.precise import computed_once, is_narrow
from dlc.kernel.define import ShapeError
from dlc_frontend_torch.nodes import Node, Ref
from dlc_frontend_torch.rules import DROPPED, Rule, rule_of
from dlc_frontend_torch.unsupported import Refusals, Unsupported

FUNCTIONAL: Final = "save the program in its functional form: program.run_decompositions({}), then torch.export.save"


class _Refused:
    """The value of a node that was refused; what reads it is not reported."""


REFUSED: Final = _Refused()


@dataclass
class Importer:
    """Values of a program so far."""

    refusals: Refusals
    values: dict[str, Any]
    types: Mapping[str, Type] = field(default_factory=dict[str, Type])
    """What PyTorch says of values; -1 is a dimension that it does not know."""
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    refused: set[str] = field(default_factory=set[str])
    """Names of refused nodes."""

    def run(self, nodes: Sequence[Node], outputs: Sequence[Any] = ()) -> None:
        """Import all nodes, in order. `outputs` are read after all of them."""
        aliases = Aliases.of(nodes)
        aliases.last |= dict.fromkeys(_names(list(outputs)), len(nodes))
        for at, node in enumerate(nodes):
            try:
                found = self._call(node, aliases, at)
            except Unsupported as problem:
                self._refuse(node, problem.reason, problem.help)
            except ShapeError as problem:
                self._refuse(node, str(problem))
            except Undecided as problem:
                self._refuse(node, str(problem), "give the dimension one size: --dim NAME=SIZE")
            else:
                self._bind(node, found)

    def _refuse(self, node: Node, reason: str, help: str = "") -> None:
        self.refused.add(node.name)
        self.refusals.refuse(node, reason, help)
        for name in node.results:
            self.values[name] = self._stand_in(name)

    def _stand_in(self, name: str) -> Any:
        """A value in the place of one that is refused, so that what reads it is tried too."""
        known = self.types.get(name)
        return REFUSED if known is None or -1 in known.shape else Input(f"refused {name}", known)

    def _call(self, node: Node, aliases: Aliases, at: int) -> Any:
        args, kwargs = self._value(node.args), self._value(dict(node.kwargs))
        if _has_refused((args, kwargs)):
            self.refused.add(node.name)
            return self._stand_in(node.results[0]) if node.single else REFUSED
        target = node.target
        in_place = target.startswith("aten.") and target.split(".")[1].endswith("_") and "__" not in target
        if in_place:
            packet, name, *overload = target.split(".")
            target = ".".join((packet, name.removesuffix("_"), *overload))
            if (other := aliases.conflict(node, at)) is not None:
                raise Unsupported(f"it writes into a tensor of which {other} is a view", FUNCTIONAL)
        rule = rule_of(target)
        if rule is None:
            raise Unsupported("dlc has no rule for this operator")
        kwargs = {k: v for k, v in kwargs.items() if k not in DROPPED}
        if kwargs.pop("generator", None) is not None:
            raise Unsupported("a random generator of PyTorch")
        if "self" in kwargs:
            args = (kwargs.pop("self"), *args)
        try:
            found = _computed_once(rule, args, kwargs)
        except TypeError as problem:
            if "argument" not in str(problem):
                raise
            raise Unsupported(f"arguments that dlc does not know: {problem}") from None
        if in_place:
            written = node.args[0].name
            found = cast_like(found, self.values[written])
            for name in aliases.same(written):
                self.values[name] = found
        return found

    def _bind(self, node: Node, found: Any) -> None:
        if node.single:
            self.values[node.results[0]] = found
            pairs = [(node.results[0], found)]
        elif found is REFUSED:
            pairs = [(name, REFUSED) for name in node.results]
        else:
            pairs = list(zip(node.results, found, strict=False))
        for name, value in pairs:
            if name:
                self.values[name] = value
            if isinstance(value, Op):
                self._check(node, name, value)
        origin = (str(node.place) or node.name,)
        for value in found if isinstance(found, (list, tuple)) else [found]:
            if isinstance(value, Op):
                self._explain(value, origin)

    def _explain(self, op: Op, origin: tuple[str, ...]) -> None:
        """All new ops below `op` come from a place."""
        waiting = [op]
        while waiting:
            x = waiting.pop()
            if x.digest not in self.origins and not isinstance(x, Input):
                self.origins[x.digest] = origin
                waiting += x.operands

    def _check(self, node: Node, name: str, value: Op) -> None:
        """A rule that gives another type than PyTorch's is wrong: refused, never used."""
        known = self.types.get(name)
        if known is None:
            return
        shape = tuple(d for d in known.shape)
        same = len(shape) == len(value.shape) and all(
            a == b or a == -1 or is_open((b,)) for a, b in zip(shape, value.shape, strict=True)
        )
        if not same or known.dtype != value.dtype:
            self._refuse(node, f"the result would be {value.type.text}, not {known.dtype}{list(shape)}")

    def _value(self, arg: Any) -> Any:
        match arg:
            case Ref(name):
                return self.values.get(name, REFUSED)  # an input of a type that dlc does not have
            case list() | tuple():
                return type(arg)(self._value(a) for a in arg)  # type: ignore[call-arg]
            case dict():
                return {k: self._value(v) for k, v in arg.items()}
            case _:
                return arg


def _computed_once(rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a rule makes of a call: of operands of narrow floats in f32, rounded once, as PyTorch's kernels do."""
    found = rule(*args, **kwargs)
    operands = list(dict.fromkeys(_ops((args, kwargs))))
    if not any(map(is_narrow, operands)):
        return found

    def again(wide: Sequence[Op | None]) -> Sequence[Op | None]:
        instead = dict(zip(operands, wide, strict=True))
        return list(_ops(rule(*_with_ops(args, instead), **_with_ops(kwargs, instead))))

    results = list(_ops(found))
    return _with_ops(found, dict(zip(results, computed_once(results, operands, again), strict=True)))


def _ops(value: Any) -> Iterator[Op]:
    """The ops in arguments or results, in order."""
    match value:
        case Op():
            yield value
        case list() | tuple():
            for v in value:
                yield from _ops(v)
        case dict():
            yield from _ops(list(value.values()))
        case _:
            pass


def _with_ops(value: Any, instead: Mapping[Op, Op | None]) -> Any:
    """Arguments or results with other ops in the place of theirs."""
    match value:
        case Op():
            return instead.get(value, value)
        case list() | tuple():
            return type(value)(_with_ops(v, instead) for v in value)  # type: ignore[call-arg]
        case dict():
            return {k: _with_ops(v, instead) for k, v in value.items()}
        case _:
            return value


def cast_like(found: Any, old: Any) -> Any:
    """What an in-place operator writes: of the shape and element type of the tensor that it writes into."""
    from dlc_frontend_torch.values import cast, expanded

    return expanded(cast(found, old.dtype), old.shape) if isinstance(found, Op) and isinstance(old, Op) else found


def _has_refused(value: Any) -> bool:
    match value:
        case _Refused():
            return True
        case list() | tuple():
            return any(map(_has_refused, value))
        case dict():
            return any(map(_has_refused, value.values()))
        case _:
            return False


VIEWS: Final = frozenset(
    [
        "alias",
        "as_strided",
        "chunk",
        "contiguous",
        "detach",
        "diagonal",
        "expand",
        "expand_as",
        "flatten",
        "getitem",
        "lift_fresh",
        "movedim",
        "narrow",
        "permute",
        "ravel",
        "real",
        "reshape",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "swapaxes",
        "t",
        "to",
        "transpose",
        "unbind",
        "unflatten",
        "unfold",
        "unsqueeze",
        "view",
        "view_as",
    ]
)
"""Operators of which the result may share memory with the first operand."""


@dataclass
class Aliases:
    """Which values may share memory, in a program that writes in place."""

    base: dict[str, str]
    last: dict[str, int]
    """Name → the last node that reads it."""
    born: dict[str, int]
    """Name → the node that gives it."""
    equal: dict[str, str]
    """Result of an in-place operator → the value that it wrote into."""

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Aliases:
        """The aliases of a program."""
        found = cls({}, {}, {}, {})
        for at, node in enumerate(nodes):
            for name in _names(node.args):
                found.last[name] = at
            for name in node.results:
                found.born[name] = at
            operator = node.target.split(".")[1] if "." in node.target else node.target
            first = node.args[0] if node.args else None
            if isinstance(first, Ref):
                own = found.base.get(first.name, first.name)
                for name in node.results:
                    if operator in VIEWS or (operator.endswith("_") and "__" not in operator):
                        found.base[name] = own
                    if operator.endswith("_"):
                        found.equal[name] = found.equal.get(first.name, first.name)
        return found

    def same(self, name: str) -> list[str]:
        """All names of one tensor."""
        root = self.equal.get(name, name)
        return [root, *(n for n, of in self.equal.items() if of == root)]

    def conflict(self, node: Node, at: int) -> str | None:
        """Another value, read later, that shares memory with what the node writes into."""
        written = node.args[0].name
        base, same = self.base.get(written, written), set(self.same(written))
        group = {base, *(n for n, of in self.base.items() if of == base)}
        others = sorted(n for n in group - same if self.born.get(n, -1) < at < self.last.get(n, -1))
        return others[0] if others else None


def _names(value: Any) -> list[str]:
    match value:
        case Ref(name):
            return [name]
        case list() | tuple():
            return [n for v in value for n in _names(v)]
        case _:
            return []
