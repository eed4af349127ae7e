"""Source files as syntax trees, with what they define and call by name."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """One file: what it defines, and where its names come from."""

    path: Path
    name: str
    tree: ast.Module
    functions: dict[str, list[Function]] = field(default_factory=dict[str, list[Function]])
    """Functions and methods by name; a class by its `__init__`."""
    classes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What classes are called with, as text: parameters of `__init__`, or else the fields of a dataclass."""
    constants: dict[str, list[ast.expr]] = field(default_factory=dict[str, list[ast.expr]])
    imports: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Name → module and name there."""
    calls: list[tuple[ast.Call, Function | None, str]] = field(
        default_factory=list[tuple[ast.Call, Function | None, str]]
    )
    """Each with the function and the class that it stands in."""


class Modules:
    """Modules by name, parsed when they are asked for: most of the sources have to do with no code."""

    def __init__(self, roots: dict[str, Path]) -> None:
        self._paths: dict[str, Path] = {}
        for package, root in roots.items():
            for path in sorted(root.rglob("*.py")):
                parts = [package, *path.relative_to(root).with_suffix("").parts]
                self._paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self._texts = {name: path.read_text(encoding="utf-8") for name, path in self._paths.items()}
        self._parsed: dict[str, Module] = {}

    def get(self, name: str) -> Module | None:
        if name not in self._parsed and name in self._paths:
            self._parsed[name] = _parsed(name, self._paths[name], self._texts[name])
        return self._parsed.get(name)

    def having(self, words: set[str]) -> list[Module]:
        """Those whose text has one of these words."""
        wanted = re.compile(rf"\b({'|'.join(sorted(map(re.escape, words)))})\b")
        return [m for name, text in self._texts.items() if wanted.search(text) and (m := self.get(name))]


def _parsed(name: str, path: Path, text: str) -> Module:
    found = Module(path, name, ast.parse(text))
    _collect(found, found.tree, None, "")
    for node in found.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.constants.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.constants.setdefault(name, []).append(value)
            case _:
                pass
    return found


def _collect(module: Module, node: ast.AST, inside: Function | None, owner: str) -> None:
    for child in ast.iter_child_nodes(node):
        within, by = inside, owner
        match child:
            case ast.Call():
                module.calls.append((child, inside, owner))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                module.functions.setdefault(child.name, []).append(child)
                within = child
            case ast.ClassDef():
                by = child.name
                made = [b for b in child.body if isinstance(b, ast.FunctionDef) and b.name == "__init__"]
                fields = made[0].args.args[1:] if made else [b for b in child.body if isinstance(b, ast.AnnAssign)]
                module.classes[child.name] = [ast.unparse(f) for f in fields]
                if made:
                    module.functions.setdefault(child.name, []).extend(made)
            case ast.ImportFrom(module=str(source)):
                for alias in child.names:
                    module.imports[alias.asname or alias.name] = (source, alias.name)
            case _:
                pass
        _collect(module, child, within, by)
