"""`dlc plugins new`: a package for a plugin, from templates, with code that works and tests that pass.

Everything is rendered before anything is written, into a directory beside the one that is wanted, which then gets its
name: there is never half a package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, escape, quote
from dlc.plugins.entry import Kind
from dlc.version import __version__

_TEMPLATES: Final = Path(__file__).with_name("templates")
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""A normalised name (PEP 503) whose words are identifiers."""
_LONGEST: Final = 24
_TOOLS: Final = ("onnx>=1.21", "pytest>=8.2", "ruff>=0.9")


@dataclass(frozen=True)
class Template:
    """What is different about one kind."""

    prefix: str
    """Of the distribution: dlc-PREFIX-NAME."""
    offers: Kind | None
    """What its hook gives under the plugin's name; None where names are derived."""
    summary: str
    main_file: str
    """With {module}."""
    main_holds: str
    change: str
    """How to go on from the template."""
    try_it: str
    """Commands that show it at work, with {name}."""
    dependencies: tuple[str, ...]
    test_dependencies: tuple[str, ...]
    kit_options: str = ""
    """Of the mark of the kit's tests."""


def _own(*names: str) -> tuple[str, ...]:
    """Packages of dlc's versions that plugins made by this one work with."""
    return tuple(f"{name}{dlc_api()}" for name in names)


def dlc_api() -> str:
    """Versions of dlc that a plugin made by this one works with: ">=0.1,<0.2"."""
    major, minor = (int(part) for part in __version__.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}"


_C: Final = 'targets=["c{cpu=generic flags=-O0}"]'
KINDS: Final[Mapping[str, Template]] = {
    "frontend": Template(
        "frontend",
        "frontends",
        "A model format",
        "{module}.py",
        "the frontend: bytes to a graph",
        "Replace the format by yours. Ops are in `dlc.ops.elementwise`, `dlc.ops.linear` and so on; `make_graph`\n"
        "makes a graph of them. Report everything that is wrong with a file at once, each with its place; check sizes\n"
        "before anything is allocated. Give `samples.py` a model with every feature, and what it has to give.",
        "dlc list {name}            # the layers that it reads",
        _own("dlc"),
        (*_own("dlc-backend-c"), *_TOOLS),
    ),
    "backend": Template(
        "backend",
        "backends",
        "A target",
        "{module}.py",
        "the backend: a graph of ops to a program",
        "Go in this order, each step of use by itself; `dlc plugins test NAME --level N` tests up to step N.\n\n"
        "1. `regions` and options: the target's memories. `dlc plan` works.\n"
        "2. `accepts`: which ops the target has, and why not the others. Coverage of models is known.\n"
        "3. `CALLS`, `emit` and `load`: calls of the vendor's library, and a simulator that runs programs here.\n"
        '4. Code of your own, with `consumes = "plan"`: kernels as loops, in order, with memory offsets. Bytes and\n'
        "   cache keys depend on the model alone.\n"
        "5. `schedules`, `profiler` and `tuner`: estimates, measured steps, tuned schedules.",
        "dlc list backends",
        (*_own("dlc"), "numpy>=1.26"),
        (*_own("dlc-frontend-onnx"), *_TOOLS),
    ),
    "op-pack": Template(
        "ops",
        None,
        "Ops as data",
        "{module}.ops.yaml",
        "the ops: what they compute, their ONNX operators, examples",
        "An op is a record: operands with types, attributes, and a formula (`define`) or a composition of other ops\n"
        "(`compose`). Give each an example or two. `dlc ops check FILE` checks a file without installing anything.",
        "dlc list ops               # has the ops of the pack\ndlc ops check {package}/{module}.ops.yaml --target none",
        tuple(f"dlc[packs]{dlc_api()}" if d.startswith("dlc>") else d for d in _own("dlc")),
        (*_own("dlc-backend-c", "dlc-frontend-onnx"), *_TOOLS),
        f", {_C}",
    ),
    "pass": Template(
        "pass",
        "passes",
        "A rewrite of graphs",
        "{module}.py",
        "the pass: a graph to an equal graph",
        "Match ops with `match`, return the ops that replace them. Say what was done by `report.applies`, and what\n"
        "was not, and why, by `report.missed`: `--explain {name}` prints it. Give `samples.py` a graph for each\n"
        "pattern.",
        "dlc list passes            # has {name}, with its options\n"
        "dlc build model.onnx -p {name},infer --explain {name}",
        (*_own("dlc"), "numpy>=1.26"),
        _TOOLS,
    ),
    "schedule": Template(
        "schedule",
        "schedules",
        "A way in which kernels become loops",
        "{module}.py",
        "the schedule: nests of a kernel to loops",
        "`apply` gets nests with flat subscripts and the numbers of the machine, and returns statements or raises\n"
        "`Unfit` with the reason. The fewest estimated cycles win: `--schedule KERNEL={name}` chooses it whatever the\n"
        "estimate says. Give `samples.py` a kernel of each form that it is for.",
        "dlc list schedules         # has {name}, with its options",
        _own("dlc"),
        ("numpy>=1.26", *_TOOLS),
    ),
    "optimizer": Template(
        "optimizer",
        "optimizers",
        "An optimizer of training programs",
        "{module}.py",
        "the optimizer: a weight, its gradient and a state to the new weight and state",
        "`_kept` names what is kept of each weight, `_step` builds the update of ops. Fields are the options of the\n"
        "optimizer. Give `samples.py` a few steps by another implementation, such as the paper's.",
        "dlc list optimizers        # has {name}, with its options\n"
        "dlc build model.onnx --train 'optimizer={name}{{lr=0.01}}'",
        (*_own("dlc"), "numpy>=1.26"),
        (*_own("dlc-backend-c"), *_TOOLS),
        f", {_C}",
    ),
    "importer": Template(
        "importer",
        None,
        "Import rules for ONNX operators",
        "{module}.py",
        "the rules: a node of a model to an op",
        "A rule reads operands and attributes from its node and returns an op, or one for each output. `Unsupported`\n"
        "refuses a node with the reason. Rename the domain in `__init__.py`, `{module}.py` and `samples.py`; give\n"
        "`samples.py` a model with each operator and version.",
        "dlc list onnx              # has the operators of the domain",
        _own("dlc", "dlc-frontend-onnx"),
        (*_own("dlc-backend-c"), *_TOOLS),
    ),
}
"""Kinds of plugins that there are templates for."""


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
    from dlc.plugins.discovery import list_plugins, load_registry

    offers = KINDS[kind].offers
    registry = load_registry(kinds=() if offers is None else (offers,))
    if any(p.name == name for p in (*registry.plugins, *list_plugins())):
        raise _usage("name-clash", f"a plugin {name} is installed", "choose another name: two would clash")
    if offers is not None and name in registry.tables[offers]:
        owner = registry.tables[offers][name].plugin
        raise _usage("name-clash", f"{name} is among the {offers} already, of plugin {owner}", "choose another name")


def render(kind: str, name: str) -> dict[str, str]:
    """The files of a package: path → text. Needs nothing installed, and writes nothing."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    template = KINDS[kind]
    module = name.replace("-", "_")
    values = {
        "name": name,
        "module": module,
        "package": f"dlc_{template.prefix}_{module}",
        "cls": "".join(word.capitalize() for word in name.split("-")),
        "suffix": module.replace("_", ""),
        "distribution": f"dlc-{template.prefix}-{name}",
        "summary": template.summary,
        "dlc_api": dlc_api(),
        "dependencies": template.dependencies,
        "test_dependencies": template.test_dependencies,
        "kit_options": template.kit_options,
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
