"""A page for each hook: its signature, what it is for, and a whole example that the tests run."""

import ast
import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Final

from dlc.plugins import hookspecs
from docs.site.api import MARKS

EXAMPLE: Final = "tests/plugin_example"
_BLOCK: Final = re.compile(r"^```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEAD: Final = """\
# Hooks

How a plugin extends dlc: functions that a module marks with [`hookimpl`](../api/hookimpl.md).
[Writing a plugin](../writing-a-plugin.md) introduces them one after the other.

| hook | | |
|---|---|---|
"""


def names() -> list[str]:
    """All hooks, in the order of their declaration."""
    return [name for name in vars(hookspecs) if name.startswith("dlc_")]


def mark(name: str) -> str:
    """`stable` or `experimental`."""
    return "stable" if hookspecs.is_stable(getattr(hookspecs, name)) else "experimental"


def pages(root: Path) -> dict[str, str]:
    """File name → text of the index and of a page for each hook. Raises LookupError for a hook without an example."""
    declared = {n.name: n for n in ast.parse(_specs(root)).body if isinstance(n, ast.FunctionDef)}
    rows = [f"| [`{n}`]({n}.md) | {mark(n)} | {_summary(declared[n])} |\n" for n in names()]
    return {"index.md": _HEAD + "".join(rows), **{f"{n}.md": _page(n, declared[n], root) for n in names()}}


def example(name: str, root: Path) -> tuple[str, list[tuple[str, str]]]:
    """Where the example of a hook is from, and its files: (name, text)."""
    package = root / EXAMPLE / "dlc_example"
    module = (package / "__init__.py").read_text(encoding="utf-8")
    for node in ast.parse(module).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            head = "from collections.abc import Iterable, Mapping\n\nfrom dlc import Lazy, hookimpl\n\n\n@hookimpl\n"
            text = head + (ast.get_source_segment(module, node) or "") + "\n"
            used = dict.fromkeys(re.findall(r"\"dlc_example\.(\w+)", text))
            files = [(f"dlc_example/{m}.py", (package / f"{m}.py").read_text(encoding="utf-8")) for m in used]
            return EXAMPLE, [("dlc_example/__init__.py", text), *files]
    for page in sorted((root / "docs").glob("*.md")):
        for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
            if f"def {name}(" in block["text"] and "@hookimpl" in block["text"]:
                return page.name, [("", block["text"])]
    raise LookupError(f"no example of {name}: add one to {EXAMPLE}, or to a page of docs/")


def _specs(root: Path) -> str:
    return (root / "dlc" / "plugins" / "hookspecs.py").read_text(encoding="utf-8")


def _summary(node: ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


def _page(name: str, node: ast.FunctionDef, root: Path) -> str:
    returns = f" -> {ast.unparse(node.returns).strip(chr(39))}" if node.returns else ""
    arguments = ", ".join(f"{a.arg}: {_plain(a.annotation)}" if a.annotation else a.arg for a in node.args.args)
    lines = [f"# {name}", "", MARKS[mark(name) == "stable"], ""]
    lines += [
        f"```python\n@hookimpl\ndef {name}({arguments}){returns}\n```",
        "",
        cleandoc(ast.get_docstring(node) or ""),
        "",
    ]
    return "\n".join([*lines, *_example(*example(name, root))])


def _plain(annotation: ast.expr) -> str:
    return str(annotation.value) if isinstance(annotation, ast.Constant) else ast.unparse(annotation)


def _example(source: str, files: list[tuple[str, str]]) -> Iterator[str]:
    yield "## Example"
    yield ""
    if source.endswith(".md"):
        yield f"From [{source}](../{source}), which explains it."
    else:
        yield f"From the example plugin, `{source}`; [Writing a plugin](../writing-a-plugin.md) explains it."
    for name, text in files:
        title = f' title="{name}"' if name else ""
        yield f"\n```python{title}\n{text}```"
    yield ""
