"""Documentation of a class that is not imported: `dlc list` reads the declaration, not the module.

Importing every pass means importing numpy, which alone takes longer than a listing may. The class's docstring and its
`option(...)` lines say all that a listing shows; a declaration that needs more than literals is imported after all.
"""

import ast
import re
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

from dlc.base.lazy import Lazy
from dlc.spec import Bytes, Configurable, OptionDoc, Spec
from dlc.spec.convert import describe, format_option

_FIELD = re.compile(r"^    \w+: .*\boption\(", re.MULTILINE)
_DECORATOR = re.compile(r"(\n    @.*)+\Z")
_BASES = {"Pass", "ProgramPass", "Backend", "Frontend", "Configurable", "Op"}
"""Classes that have no fields of their own."""
_PLAIN_TYPES: dict[str, object] = {"bool": bool, "int": int, "float": float, "str": str, "Bytes": Bytes, "Spec": Spec}


@dataclass(frozen=True)
class Declaration:
    """What a listing shows of one class."""

    doc: str
    """The whole docstring."""
    options: tuple[OptionDoc, ...]

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return self.doc.partition("\n")[0].strip()


class _NotLiteral(Exception):
    """The declaration uses names whose values only an import can tell."""


def declaration(target: type[Any] | Lazy) -> Declaration:
    """What `target` declares, without importing it where its source is plain enough."""
    if isinstance(target, Lazy):
        try:
            return _from_source(target)
        except _NotLiteral:
            found: type[Any] = target.load()
    else:
        found = target
    doc = (found.__doc__ or "").strip()
    return Declaration(doc, found.options_doc() if issubclass(found, Configurable) else ())


def _from_source(lazy: Lazy) -> Declaration:
    module, _, name = lazy.target.partition(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise _NotLiteral
    source = Path(spec.origin).read_text(encoding="utf-8")
    for node in _parsed(source, name).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            if not {ast.unparse(base).partition("[")[0] for base in node.bases} <= _BASES:
                raise _NotLiteral  # whose fields it may inherit
            options = [_option(line, source) for line in node.body if _is_option(line)]
            return Declaration(ast.get_docstring(node) or "", tuple(o for o in options if o))
    raise _NotLiteral


def _parsed(source: str, name: str) -> ast.Module:
    """The fields of one class, where they can be cut out of its module: parsing whole modules takes six times as long.

    They can where all fields stand before the first method, as they do in every class that is written as usual.
    """
    start = re.search(rf"^class {re.escape(name)}\b", source, re.MULTILINE)
    head, method, rest = source[start.start() :].partition("\n    def ") if start else ("", "", "")
    another_class = re.search(r"\n[^\s)]", head)
    if method and not another_class and not _FIELD.search(rest):
        with suppress(SyntaxError):
            return ast.parse(_DECORATOR.sub("", head))
    return ast.parse(source)


def _is_option(line: ast.stmt) -> bool:
    """A dataclass field; ClassVars and plain assignments are none."""
    return isinstance(line, ast.AnnAssign) and not ast.unparse(line.annotation).startswith(("ClassVar", "Final"))


def _option(line: ast.stmt, source: str) -> OptionDoc:
    """`source` is that of the module: a default may be one of its constants."""
    match line:
        case ast.AnnAssign(
            target=ast.Name(id=name),
            annotation=annotation,
            value=ast.Call(func=ast.Name(id="option"), args=[default, ast.Constant(value=str(doc))], keywords=keywords),
        ):
            kind, key = _type(annotation), name.rstrip("_").replace("_", "-")
            runs = any(word.arg == "runs" and _value(word.value) for word in keywords)
            value = _constant(default.id, source) if isinstance(default, ast.Name) else _value(default)
            return OptionDoc(key, describe(kind), format_option(kind, value), doc, runs)
        case _:
            raise _NotLiteral


def _constant(name: str, source: str) -> Any:
    """The value of a constant of a module, or of one that it imports it from: `PANEL = 16`."""
    if found := re.search(rf"^{name}(?:: [\w\[\]]+)? = (.+)$", source, re.MULTILINE):
        return _value(ast.parse(found[1], mode="eval").body)
    imported = re.search(rf"^from (\w+)([\w.]*) import .*\b{name}\b", source, re.MULTILINE)
    package = find_spec(imported[1]) if imported else None
    if not imported or package is None or not package.submodule_search_locations:
        raise _NotLiteral
    # Not find_spec of the module itself, which would import the packages above it.
    path = Path(package.submodule_search_locations[0], *imported[2].split(".")[1:]).with_suffix(".py")
    if not path.is_file():
        raise _NotLiteral
    return _constant(name, path.read_text(encoding="utf-8"))


def _type(node: ast.expr) -> object:
    match node:
        case ast.Name(id=name) if name in _PLAIN_TYPES:
            return _PLAIN_TYPES[name]
        case ast.Constant(value=None):
            return type(None)
        case ast.Constant(value=value) if value is ...:
            return ...
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return cast("Any", _type(left)) | _type(right)
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=items)):
            return tuple[tuple(_type(item) for item in items)]  # pyright: ignore[reportInvalidTypeArguments]
        case ast.Subscript(value=ast.Name(id="Literal"), slice=items):
            values = _value(items)
            return Literal[values if isinstance(values, tuple) else (values,)]  # pyright: ignore
        case _:
            raise _NotLiteral


def _value(node: ast.expr) -> Any:
    """A literal, a product or shift of integers (`1 << 20`), or a spec without options (`Spec("sgd")`)."""
    match node:
        case ast.Call(func=ast.Name(id="Spec"), args=[ast.Constant(value=str(name))], keywords=[]):
            return Spec(name)
        case ast.BinOp(left=left, op=ast.LShift(), right=right):
            return int(_value(left)) << int(_value(right))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return int(_value(left)) * int(_value(right))
        case _:
            try:
                return ast.literal_eval(node)
            except ValueError:
                raise _NotLiteral from None
