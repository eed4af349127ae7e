"""Pages of the names that `dlc` exports, from their signatures and docstrings, read without running the code."""

from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
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
MODULES: Final[dict[str, tuple[str, ...]]] = {
    "dlc.graph": (),
    "dlc.define": (),
    "dlc.schedules": (),
    "dlc.training.parts": (),
    "dlc.api.plan": ("Slot", "results_of"),
    "dlc.runtime.manifest": ("Manifest", "read_manifest"),
}
"""What plugins import beside `dlc` → the names; (): all that the module exports."""
_MODULES_HEAD: Final = """
Plugins also import from these modules, and the ops from `dlc.ops`, of which `dlc ops show NAME` tells the class:

| module | |
|---|---|
"""


def pages() -> dict[str, str]:
    """File name → text of the index and of a page for each name but `__version__`."""
    found = {name: definition(name) for name in dlc.__all__ if name != "__version__"}
    rows = [f"| [`{n}`]({n}.md) | {mark(n)} | {_cell(_summary(o))} |\n" for n, o in sorted(found.items(), key=_key)]
    version = "| `__version__` | stable | The version of dlc, as text. |\n"
    modules = "".join(f"| [`{m}`]({m}.md) | {_cell(_summary(_loaded(m)))} |\n" for m in MODULES)
    return {
        "index.md": "".join((_HEAD, *rows, version, _MODULES_HEAD, modules)),
        **{f"{n}.md": _page(n, o) for n, o in found.items()},
        **{f"{m}.md": _module_page(m, found) for m in MODULES},
    }


def mark(name: str) -> str:
    """`stable` or `experimental`."""
    return "stable" if name in dlc.STABLE else "experimental"


def definition(name: str) -> Any:
    """The class, function or module behind a public name."""
    module, _, attribute = exports()[name].partition(":")
    return _found(module, attribute) if attribute else _loaded(module)


def _found(module: str, attribute: str) -> Any:
    """What a name of a module is, wherever it is defined."""
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
    return "\n".join([f"# {name}", "", MARKS[name in dlc.STABLE], "", *_described(name, found, "##")])


def _module_page(module: str, exported: Mapping[str, Any]) -> str:
    """A section for each of the names of a module, but a link for those that have a page of their own."""
    loaded = _loaded(module)
    lines = [f"# {module}", "", *_docstring(loaded)]
    pages = {found.path: name for name, found in exported.items()}
    for name in MODULES[module] or sorted(loaded.exports, key=str.lower):
        found = _found(module, str(name))
        lines += [f"## {name}", ""]
        if found.path in pages:
            lines += [f"See [`{name}`]({pages[found.path]}.md).", ""]
        else:
            lines += _described(str(name), found, "###")
    return "\n".join(lines)


def _described(name: str, found: Any, heading: str) -> Iterator[str]:
    """What is said of a definition; `heading` is the mark of headings in it."""
    if found.is_class:
        yield from (f"```python\nclass {name}{_bases(found)}\n```", "", *_docstring(found), *_fields(found, heading))
        for method in _methods(found):
            yield from (f"{heading} {method.name}", "", *_function(method))
    elif found.is_function:
        yield from _function(found)
    elif found.is_module:
        yield from _docstring(found)
        for function in _methods(found):
            yield from (f"{heading} {function.name}", "", *_function(function))
    else:
        value = str(found.value)
        yield from (f"```python\n{name} = {value if len(value) < 200 else '…'}\n```", "", *_docstring(found))
    yield from (f"Defined in `{found.filepath.relative_to(ROOT)}`.", "")


def _bases(found: Any) -> str:
    return f"({', '.join(map(str, found.bases))})" if found.bases else ""


def _fields(found: Any, heading: str) -> Iterator[str]:
    """Public attributes that the docstring does not describe; those without a sentence by their type."""
    described = {i.name for s in sections(found) if s.kind is griffe.DocstringSectionKind.attributes for i in s.value}
    attributes = [
        a
        for a in found.members.values()
        if a.is_attribute and not a.name.startswith("_") and a.name not in described and (a.docstring or a.annotation)
    ]
    if not attributes:
        return
    yield from (f"{heading} Attributes", "", "| name | type | |", "|---|---|---|")
    for a in attributes:
        yield f"| `{a.name}` | {_code(a.annotation or a.value)} | {_cell(a.docstring.value) if a.docstring else ''} |"
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


def _code(of: object) -> str:
    """Code in a cell; in backquotes the site would print the backslash before a bar, too."""
    return f"<code>{escape(' '.join(str(of).split())).replace('|', '&#124;')}</code>" if of is not None else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
