"""What messages a call that raises a diagnostic can print, as far as its own text says: patterns of literals."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_ANY = ".*?"
_LEAST = 8
"""Characters that are written out; with fewer, a pattern says nothing."""


def messages(place: str, code: str) -> list[str]:
    """Patterns of the texts that calls at FILE:LINE give for a code; none where one of them is computed elsewhere."""
    file, _, line = place.rpartition(":")
    tree = _tree(file)
    inside = [n for n in _functions(tree) if n.lineno <= int(line) <= (n.end_lineno or 0)]
    function = max(inside, key=lambda n: n.lineno, default=None)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.lineno == int(line)]
    found = [text for call in calls for value in _behind(call, code) for text in _texts(value, function, ())]
    return found if all(len(text.replace(_ANY, "").replace("\\", "")) >= _LEAST for text in found) else []


def _behind(call: ast.Call, code: str) -> list[ast.expr]:
    """The argument behind the code, which is the message of everything that raises one."""
    codes = [k for k, value in enumerate(call.args) if isinstance(value, ast.Constant) and value.value == code]
    return call.args[codes[0] + 1 : codes[0] + 2] if codes else []


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


def _texts(value: ast.expr, function: ast.FunctionDef | None, seen: tuple[str, ...]) -> list[str]:
    match value:
        case ast.Constant(value=str(text)):
            return [re.escape(text)]
        case ast.JoinedStr(values=parts):
            return ["".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else _ANY for p in parts)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [a + b for a in _texts(left, function, seen) for b in _texts(right, function, seen)]
        case ast.IfExp(body=body, orelse=other):
            return [*_texts(body, function, seen), *_texts(other, function, seen)]
        case ast.Name(id=name) if function is not None and name not in seen:
            given = [
                n.value
                for n in ast.walk(function)
                if (isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in n.targets))
                or (isinstance(n, ast.NamedExpr) and n.target.id == name)
            ]
            return [text for part in given for text in _texts(part, function, (*seen, name))] or [_ANY]
        case _:
            return [_ANY]
