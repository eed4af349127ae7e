"""Pages of the names that `dlc` exports, from their signatures and docstrings, read without running the code."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import griffe

import dlc

ROOT: Final = Path(__file__).parents[2]
MARKS: Final = {
    True: "**Stable.** A change is announced in the [changelog](../changelog.md).",
    False: "**Experimental.** It may change or be removed in any version.",
}
_HEAD: Final = """\
# Python interface

What `import dlc` offers, and what a plugin may import. *Stable* names change only as the [changelog](../changelog.md)
announces; *experimental* ones may change in any version. The pages are generated from the source code.

| name | | |
|---|---|---|
"""


def pages() -> dict[str, str]:
    """File name → text of the index and of a page for each name but `__version__`."""
    found = {name: definition(name) for name in dlc.__all__ if name != "__version__"}
    rows = [f"| [`{n}`]({n}.md) | {mark(n)} | {_cell(_summary(o))} |\n" for n, o in sorted(found.items(), key=_key)]
    version = "| `__version__` | stable | The version of dlc, as text. |\n"
    return {"index.md": _HEAD + "".join(rows) + version, **{f"{n}.md": _page(n, o) for n, o in found.items()}}


def mark(name: str) -> str:
    """`stable` or `experimental`."""
    return "stable" if name in dlc.STABLE else "experimental"


def definition(name: str) -> Any:
    """The class, function or module behind a public name."""
    module, _, attribute = exports()[name].partition(":")
    if not attribute:
        return _loaded(module)
    found = _loaded(module)[attribute]
    while found.is_alias:
        module, _, attribute = found.target_path.rpartition(".")
        found = _loaded(module)[attribute]
    return found


def exports() -> dict[str, str]:
    """Public name → "module:attribute", or "module:" of a module."""
    table: dict[str, str] = vars(dlc)["_EXPORTS"]
    return table


def sections(found: Any) -> list[Any]:
    """The parts of its docstring."""
    return griffe.Docstring(found.docstring.value, parser="google", parent=found).parse() if found.docstring else []


@cache
def _loaded(module: str) -> Any:
    """One file, by itself: loading the whole package would take most of the time of the build."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return griffe.visit(module, path, path.read_text(encoding="utf-8"), docstring_parser=griffe.Parser.google)


def _key(item: tuple[str, Any]) -> str:
    return item[0].lower()


def _summary(found: Any) -> str:
    return found.docstring.value.strip().partition("\n")[0] if found.docstring else ""


def _page(name: str, found: Any) -> str:
    lines = [f"# {name}", "", MARKS[name in dlc.STABLE], ""]
    if found.is_class:
        lines += [f"```python\nclass {name}{_bases(found)}\n```", "", *_docstring(found)]
        lines += _fields(found)
        for method in _methods(found):
            lines += [f"## {method.name}", "", *_function(method)]
    elif found.is_function:
        lines += _function(found)
    elif found.is_module:
        lines += _docstring(found)
        for function in _methods(found):
            lines += [f"## {function.name}", "", *_function(function)]
    else:
        lines += [f"```python\n{name} = {found.value}\n```", "", *_docstring(found)]
    lines += [f"Defined in `{found.filepath.relative_to(ROOT)}`.", ""]
    return "\n".join(lines)


def _bases(found: Any) -> str:
    return f"({', '.join(map(str, found.bases))})" if found.bases else ""


def _fields(found: Any) -> Iterator[str]:
    """Public attributes that have a sentence."""
    attributes = [a for a in found.members.values() if a.is_attribute and not a.name.startswith("_") and a.docstring]
    if not attributes:
        return
    yield from ("## Attributes", "", "| name | type | |", "|---|---|---|")
    for a in attributes:
        kind = f"`{_cell(str(a.annotation))}`" if a.annotation else ""
        yield f"| `{a.name}` | {kind} | {_cell(a.docstring.value)} |"
    yield ""


def _methods(found: Any) -> list[Any]:
    own = (m for m in found.members.values() if not m.is_alias and m.is_function and not m.name.startswith("_"))
    return [m for m in own if m.docstring]


def _function(found: Any) -> Iterator[str]:
    yield f"```python\n{_signature(found)}\n```"
    yield ""
    yield from _docstring(found)


def _signature(found: Any) -> str:
    text = f"def {found.name}{found.signature()}" if hasattr(found, "signature") else found.name
    text = text.removeprefix(f"def {found.name}{found.name}")
    text = text if text.startswith("def ") else f"def {found.name}{text}"
    if len(text) <= 88:
        return text
    # One parameter a line, as a formatter breaks it.
    parts = [_parameter(p) for p in found.parameters]
    star = next((k for k, p in enumerate(found.parameters) if p.kind is griffe.ParameterKind.keyword_only), None)
    if star is not None and not any(p.kind is griffe.ParameterKind.var_positional for p in found.parameters):
        parts.insert(star, "*")
    returns = f" -> {found.returns}" if found.returns else ""
    return f"def {found.name}(\n" + "".join(f"    {p},\n" for p in parts) + f"){returns}"


def _parameter(p: Any) -> str:
    stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(p.kind, "")
    text = f"{stars}{p.name}" + (f": {p.annotation}" if p.annotation else "")
    return f"{text} = {p.default}" if p.default is not None and not stars else text


def _docstring(found: Any) -> Iterator[str]:
    for section in sections(found):
        match section.kind:
            case griffe.DocstringSectionKind.text:
                yield from (section.value, "")
            case griffe.DocstringSectionKind.examples:
                yield from (
                    "**Example**",
                    "",
                    *(v if k.value == "text" else f"```python\n{v}\n```" for k, v in section.value),
                    "",
                )
            case griffe.DocstringSectionKind.admonition:
                yield from (f"**{section.title}** {section.value.description}", "")
            case _:
                yield from _table(section)


def _table(section: Any) -> Iterator[str]:
    """Parameters, what is returned, and errors."""
    titles = {"parameters": "Parameters", "returns": "Returns", "raises": "Raises", "yields": "Yields"}
    yield from (f"**{titles.get(section.kind.value, section.kind.value.capitalize())}**", "")
    for item in section.value:
        name = getattr(item, "name", "") or str(item.annotation or "")
        head = f"`{name}`: " if name else ""
        yield f"* {head}{' '.join(item.description.split())}"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
