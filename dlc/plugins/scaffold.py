"""`dlc plugins new`: a package for a plugin, from templates, with code that works and tests that pass.

Everything is rendered before anything is written, into a directory beside the one that is wanted, which then gets its
name: there is never half a package.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Final

from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, escape, quote
from dlc.plugins.package_kinds import KINDS, dlc_api

_TEMPLATES: Final = Path(__file__).with_name("templates")
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""A normalised name (PEP 503) whose words are identifiers."""
_LONGEST: Final = 24


@dataclass(frozen=True)
class Written:
    """A package that was written."""

    directory: Path
    distribution: str
    files: tuple[str, ...]
    """Relative to the directory."""
    next_steps: tuple[str, ...]
    """Command lines."""


def write_package(kind: str, name: str, directory: Path | None = None) -> Written:
    """Write the package of a new plugin.

    Args:
        kind: One of `KINDS`.
        name: Of the plugin, and of what it offers.
        directory: New, or empty; by default named like the distribution.

    Raises:
        DlcError: (USAGE) the kind or name is none, something is there already, or it cannot be written.
    """
    if kind not in KINDS:
        raise _usage("unknown-kind", f"there is no kind of plugin {quote(kind)}", did_you_mean(kind, KINDS, "kinds"))
    check_name(kind, name)
    template = KINDS[kind]
    distribution = f"dlc-{template.prefix}-{name}"
    where = Path(distribution) if directory is None else directory
    if where.exists() and not (where.is_dir() and not any(where.iterdir())):
        raise _usage("exists", f"{escape(str(where))} is there already", "name another directory, or remove it")
    files = render(kind, name)
    _write(files, where)
    steps = (f"cd {escape(str(where))}", "pip install -e '.[test]'", "pytest", f"dlc plugins test {name}")
    return Written(where, distribution, tuple(files), steps)


def check_name(kind: str, name: str) -> None:
    """Raises DlcError (USAGE): it is no name, or something that is installed has it."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        plain = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-0123456789")
        help = f"up to {_LONGEST} letters and digits in words with hyphens, beginning with a letter"
        nearest = plain[:_LONGEST].strip("-")
        help += f": {nearest}" if _NAME.fullmatch(nearest) and nearest != name else ""
        raise _usage("bad-name", f"{quote(name)} cannot be the name of a plugin", help)
    if used := _name_in_use(kind, name):
        raise _usage(
            "bad-name",
            f"a package of the kind {kind} cannot have the name {quote(name)}: {used}",
            "choose another name",
        )
    from dlc.plugins.discovery import list_plugins, load_registry

    offers = KINDS[kind].offers
    registry = load_registry(kinds=() if offers is None else (offers,))
    if any(p.name == name for p in (*registry.plugins, *list_plugins())):
        raise _usage("name-clash", f"a plugin {name} is installed", "choose another name: two would clash")
    if offers is not None and name in registry.tables[offers]:
        owner = registry.tables[offers][name].plugin
        raise _usage("name-clash", f"{name} is among the {offers} already, of plugin {owner}", "choose another name")


def _name_in_use(kind: str, name: str) -> str:
    """Why the code of a package would not be Python with the names that follow from its own; "" where it is."""
    module, cls = _module(name), _class(name)
    if iskeyword(module) or iskeyword(cls):
        return f"Python has the word {module if iskeyword(module) else cls}"
    files = {Path(file).stem: text for file, text in render(kind, "zz").items() if file.endswith(".py")}
    if module in files.keys() - {"zz"}:
        return f"it has another file {module}.py"
    nodes = [node for text in files.values() for node in ast.walk(ast.parse(text))]
    imported = {a.asname or a.name for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    return f"it uses {cls} of another module" if cls in imported else ""


def _module(name: str) -> str:
    return name.replace("-", "_")


def _class(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))


def render(kind: str, name: str) -> dict[str, str]:
    """The files of a package: path → text. Needs nothing installed, and writes nothing."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    template = KINDS[kind]
    module = _module(name)
    values = {
        "name": name,
        "module": module,
        "package": f"dlc_{template.prefix}_{module}",
        "cls": _class(name),
        "suffix": module.replace("_", ""),
        "distribution": f"dlc-{template.prefix}-{name}",
        "summary": template.summary,
        "dlc_api": dlc_api(),
        "dependencies": template.dependencies,
        "test_dependencies": template.test_dependencies,
        "kit_options": template.kit_options,
        "further": template.further,
    }
    names = {key: str(values[key]) for key in ("name", "module", "package")}
    values |= {
        "main_file": template.main_file.format(**names),
        "main_holds": template.main_holds,
        "change": template.change.replace("{name}", name).replace("{module}", module),
        "try_it": template.try_it.format(**names),
    }
    # Python is no markup: nothing is to be escaped, and names are checked before.
    loader = FileSystemLoader(_TEMPLATES)
    environment = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    package = str(values["package"])
    places = {
        "common/pyproject.toml": "pyproject.toml",
        "common/README.md": "README.md",
        "common/workflow.yml": ".github/workflows/test.yml",
        f"{kind}/hooks.py": f"{package}/__init__.py",
        f"{kind}/module.py": f"{package}/{module}.py",
        f"{kind}/pack.ops.yaml": f"{package}/{module}.ops.yaml",
        **{f"{kind}/{Path(file).name}": f"{package}/{file}" for file, _ in template.further},
        f"{kind}/samples.py": f"{package}/samples.py",
        "common/conftest.py": "tests/conftest.py",
        "common/test_kit.py": "tests/test_kit.py",
        f"{kind}/test.py": f"tests/test_{module}.py",
    }
    found = {
        place: environment.get_template(f"{source}.j2").render(values)
        for source, place in places.items()
        if (_TEMPLATES / f"{source}.j2").is_file()
    }
    return {**found, f"{package}/py.typed": ""}


def _write(files: Mapping[str, str], where: Path) -> None:
    from dlc.files.staging import stage_in

    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with stage_in(where.parent, f".{where.name}.") as stage:
            made = stage / "package"
            for name, text in files.items():
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                (made / name).write_text(text, encoding="utf-8")
            made.rename(where)  # replaces an empty directory
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise _usage(
            "cannot-write", f"{escape(str(where))} cannot be written: {reason}", "choose another place"
        ) from None


def _usage(code: str, message: str, help: str) -> DlcError:
    return error(code, message, help=help, exit_code=ExitCode.USAGE)
