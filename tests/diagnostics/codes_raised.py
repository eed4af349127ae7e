"""Which diagnostic codes the sources can raise, by following constants from where they are written to `Diagnostic`.

A code may be a literal, a choice between literals, a constant of a module, a parameter of a function (then what its
callers give), an f-string around one of those, or what a function returns. What cannot be followed is reported: the
list would not be complete without it.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.diagnostics.sources import Function, Module, Modules

_SOURCES = ("error", "Diagnostic")
_ROOT = "dlc.base.diagnostics"
_NOT_RAISED = (_ROOT, "dlc.plugins.explanations")
"""Modules that handle codes of others."""

_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Sink:
    """A parameter of a function that becomes a diagnostic's code."""

    place: int
    """Position in a call; a method's without `self`."""
    name: str
    template: str = "{}"
    """The code, with {} for the value of the parameter."""


@dataclass
class Codes:
    """What was found."""

    raised: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Code → files and lines."""
    lost: list[str] = field(default_factory=list[str])
    """Places whose code could not be followed."""


def codes_raised(roots: dict[str, Path]) -> Codes:
    """The codes of packages, name → directory."""
    return _Search(Modules(roots)).run()


class _Search:
    """The fixed point: a parameter that becomes a code makes its function's callers places to look at."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.sinks: dict[tuple[str, str], set[Sink]] = {(_ROOT, name): {Sink(0, "code")} for name in _SOURCES}
        self.found = Codes()
        self._grew = True

    def run(self) -> Codes:
        for module in self.modules.having({"code: str"}):
            for name, fields in module.classes.items():
                if "code: str" in fields and module.name not in _NOT_RAISED:
                    self._sink(module.name, name, Sink(fields.index("code: str"), "code"))
        names: set[str] = set()
        while self._grew:
            self._grew = False
            self.found = Codes()
            names |= {name for _, name in self.sinks}
            for module in self.modules.having(names):
                # A function may have another name where it is imported.
                names |= {own for own, (_, there) in module.imports.items() if there in names}
                for call, inside, owner in module.calls if module.name not in _NOT_RAISED else ():
                    if _called(call.func) in names:
                        self._call(module, call, inside, owner)
        self.found.lost = sorted(set(self.found.lost))
        return self.found

    def _sink(self, module: str, function: str, sink: Sink) -> None:
        known = self.sinks.setdefault((module, function), set())
        if sink not in known:
            known.add(sink)
            self._grew = True

    def _call(self, module: Module, call: ast.Call, inside: Function | None, owner: str) -> None:
        sinks, guessed = self._sinks_of(module, call.func, owner)
        for sink in sinks:
            given = next((k.value for k in call.keywords if k.arg == sink.name), None)
            if given is None and len(call.args) > sink.place:
                given = call.args[sink.place]
            if given is None or isinstance(given, ast.Starred):
                continue
            if guessed and not (isinstance(given, ast.Constant) and _CODE.fullmatch(str(given.value))):
                continue
            where = f"{module.path}:{call.lineno}"
            for code in self._values(module, given, inside, sink.template, owner, where):
                self.found.raised.setdefault(code, []).append(where)

    def _sinks_of(self, module: Module, function: ast.expr, owner: str) -> tuple[set[Sink], bool]:
        """Parameters that become codes, and whether only the name of a method says so."""
        match function:
            case ast.Name(id=name):
                return self.sinks.get(self._origin(module, name), set()), False
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in module.functions:
                return self.sinks.get((module.name, name), set()), False
            case ast.Attribute(attr=name) if name not in _SOURCES:
                return {s for (_, known), found in self.sinks.items() if known == name for s in found}, True
            case _:
                return set(), False

    def _values(
        self, module: Module, value: ast.expr, inside: Function | None, template: str, owner: str, where: str
    ) -> Iterator[str]:
        def again(part: ast.expr, template: str = template) -> Iterator[str]:
            return self._values(module, part, inside, template, owner, where)

        match value:
            case ast.Constant(value=str(text)):
                yield template.format(text)
            case ast.IfExp():
                yield from again(value.body)
                yield from again(value.orelse)
            case ast.BoolOp():
                for part in value.values:
                    yield from again(part)
            case ast.JoinedStr():
                holes = [part.value for part in value.values if isinstance(part, ast.FormattedValue)]
                text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in value.values)
                if len(holes) == 1:
                    yield from again(holes[0], template=template.format(text))
                else:
                    self.found.lost.append(where)
            case ast.Subscript(value=ast.Name(id=name)) if table := self._constant(module, name):
                for row in table:
                    for part in row.values if isinstance(row, ast.Dict) else []:
                        yield from self._values(module, part, None, template, owner, where)
            case ast.Name(id=name):
                yield from self._name(module, name, inside, template, owner, where)
            case ast.Attribute(attr="code"):
                pass  # of a diagnostic, or of an error on its way: written elsewhere
            case _:
                self.found.lost.append(f"{where} {ast.unparse(value)}")

    def _name(
        self, module: Module, name: str, inside: Function | None, template: str, owner: str, where: str
    ) -> Iterator[str]:
        if inside is not None:
            names = [a.arg for a in (*inside.args.posonlyargs, *inside.args.args, *inside.args.kwonlyargs)]
            if name in names:
                arguments = [*inside.args.posonlyargs, *inside.args.args, *inside.args.kwonlyargs]
                if literals := self._literals(module, arguments[names.index(name)].annotation):
                    yield from (template.format(text) for text in literals)
                    return
                bound = names[0] in ("self", "cls")
                if (default := _default(inside, name)) is not None:
                    yield from self._values(module, default, None, template, owner, where)
                called = owner if inside.name == "__init__" else inside.name
                self._sink(module.name, called, Sink(names.index(name) - bound, name, template))
                return
            local = [n.value for n in ast.walk(inside) if isinstance(n, ast.Assign) and _is(n.targets, name)]
            if local:
                # What a variable had before says nothing new: `code = code or "other"`.
                for part in (
                    p for p in local if not any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(p))
                ):
                    yield from self._values(module, part, inside, template, owner, where)
                return
            if unpacked := list(_firsts(module, inside, name)):
                for part in unpacked:
                    yield from self._values(module, part, None, template, owner, where)
                return
        if constants := self._constant(module, name):
            for part in constants:
                yield from self._values(module, part, None, template, owner, where)
            return
        self.found.lost.append(f"{where} {name}")

    def _literals(self, module: Module, annotation: ast.expr | None) -> list[str]:
        """The values of a parameter whose type is a `Literal`, or the name of one."""
        match annotation:
            case ast.Name(id=name):
                return [text for found in self._constant(module, name) for text in self._literals(module, found)]
            case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=parts)):
                return [str(p.value) for p in parts if isinstance(p, ast.Constant)]
            case _:
                return []

    def _constant(self, module: Module, name: str) -> list[ast.expr]:
        source, there = self._origin(module, name)
        known = self.modules.get(source)
        return known.constants.get(there, []) if known else []

    def _origin(self, module: Module, name: str) -> tuple[str, str]:
        """Module and name of what a module calls `name`, which others may have re-exported."""
        if name in module.imports and not (name in module.functions or name in module.constants):
            source, there = module.imports[name]
            known = self.modules.get(source)
            return self._origin(known, there) if known else (source, there)
        return module.name, name


def _called(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _default(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter."""
    a = function.args
    placed = [*a.posonlyargs, *a.args]
    defaults = dict(zip([p.arg for p in placed[len(placed) - len(a.defaults) :]], a.defaults, strict=True))
    defaults |= {p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}
    return defaults.get(name)


def _firsts(module: Module, inside: Function, name: str) -> Iterator[ast.expr]:
    """What `name` may be where a function unpacks pairs (code, what else): the first parts of the pairs.

    Of `code, words = function()`, of what the function returns; of a loop over pairs, of the pairs that the module
    writes with a code of several words.
    """
    for node in ast.walk(inside):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=first), *_])], value=ast.Call(func=function)):
                called = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
                if first == name:
                    for made in module.functions.get(called, ()):
                        returned = [n.value for n in ast.walk(made) if isinstance(n, ast.Return)]
                        yield from (r.elts[0] for r in returned if isinstance(r, ast.Tuple))
            case ast.For(target=ast.Tuple(elts=[ast.Name(id=first), *_])) if first == name:
                for pair in ast.walk(module.tree):
                    match pair:
                        case ast.Tuple(
                            elts=[ast.Constant(value=str(text)), ast.Name() | ast.Call() | ast.JoinedStr(), *_]
                        ) if "-" in text:
                            yield pair.elts[0]
                        case _:
                            pass
            case _:
                pass


def _is(targets: list[ast.expr], name: str) -> bool:
    return any(isinstance(t, ast.Name) and t.id == name for t in targets)
