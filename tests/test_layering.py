"""Who may import whom, and how long a file may be. Every file is parsed once; a failure lists all violations."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent

FLOORS = (
    "version",
    "base",
    "files",
    "spec",
    "config",
    "kernel",
    "kernel.loops",
    "kernel.schedules",
    "kernel.fusion",
    "kernel.solve",
    "kernel.gradient",
    "kernel.check",
    "graph",
    "placement",
    "ops",
    "define",
    "schedules",
    "api",
    "cache",
    "training",
    "training.step",
    "training.loop",
    "training.parts",
    "passes.rules",
    "passes",
    "op_packs",
    "plugins",
    "runtime",
    "driver",
    "verify",
    "bench",
    "record",
    "tune",
    "debug",
    "html",
    "cli",
    "cli.commands",
    "__main__",
)
"""Rooms of `dlc` from the ground up: each may import itself and those before it, also for type checkers only.

A module belongs to the longest name here that it begins with; `dlc/__init__.py` names what is public and stands beside.
"""

MOST_ROOMS = 27
"""Rooms at the top of `dlc`: more do not fit into one picture."""

LONGEST = 500
"""Lines of a file."""

PLUGINS = ("dlc_frontend_", "dlc_backend_")

READS_ENVIRONMENT = {"dlc.plugins.guard", "dlc.verify.kit.process", "dlc.plugins.discovery"}
"""Undoes what a plugin does to the environment; hands it on to programs. Neither takes anything from it. The last one
leaves out plugins that the user names there, in whatever finds plugins: also programs in Python that use dlc."""


@dataclass(frozen=True)
class Module:
    """One file."""

    name: str
    """As it is imported; a package has the name of its directory."""
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The file, parsed."""
        return ast.parse(self.text)

    @cached_property
    def imports(self) -> frozenset[str]:
        """Every module that the file imports, at any depth, and every name that it imports from one."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.Import():
                    found |= {alias.name for alias in node.names}
                case ast.ImportFrom(module=str(module), level=0):
                    found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
                case _:
                    pass
        return frozenset(found)


def read(directory: Path, package: str) -> Iterator[Module]:
    """The modules of a package."""
    for path in sorted(directory.rglob("*.py")):
        parts = path.relative_to(directory).with_suffix("").parts
        name = ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))
        yield Module(name, path, path.read_text(encoding="utf-8"))


CORE = tuple(read(ROOT / "dlc", "dlc"))
OTHERS = tuple(m for d in sorted((ROOT / "plugins").glob("*/dlc_*")) for m in read(d, d.name))
NAMES = frozenset(module.name for module in CORE)


def room(module: str) -> str | None:
    """The room of a module of `dlc`; None when it has none."""
    own = module.removeprefix("dlc.")
    return max((r for r in FLOORS if own == r or own.startswith(f"{r}.")), key=len, default=None)


def arrows() -> Iterator[tuple[Module, str]]:
    """(module, what it imports) inside of `dlc`."""
    for module in CORE:
        if module.name != "dlc":
            yield from ((module, name) for name in sorted(module.imports & NAMES - {"dlc"}))


def test_every_module_has_a_room() -> None:
    assert not [m.name for m in CORE if m.name != "dlc" and room(m.name) is None]
    assert not [r for r in FLOORS if not any(room(m.name) == r for m in CORE)]
    assert len({r.partition(".")[0] for r in FLOORS}) <= MOST_ROOMS


def test_imports_lead_downwards() -> None:
    floor = {r: number for number, r in enumerate(FLOORS)}
    wrong = [(m.name, name) for m, name in arrows() if floor[room(m.name) or ""] < floor[room(name) or ""]]
    assert not wrong


def test_rooms_at_the_top_form_no_circle() -> None:
    """What lies in a room's folders counts as the room here, so that the map can be drawn with the tops alone."""
    below: dict[str, set[str]] = {}
    for module, name in arrows():
        own, other = (str(room(n)).partition(".")[0] for n in (module.name, name))
        if own != other:
            below.setdefault(own, set()).add(other)
    TopologicalSorter(below).prepare()  # raises CycleError, which names the circle


def test_files_form_no_circle() -> None:
    """Imports inside of functions and for type checkers count: they hide a circle, and do not open it.

    A package's `__init__.py` that hands names on, and defines none, is no file of its own here.
    """
    files = {m.name: m for m in (*CORE, *OTHERS) if m.path.name != "__init__.py" or defines(m)}
    TopologicalSorter({name: (m.imports & files.keys()) - {name} for name, m in files.items()}).prepare()


def defines(module: Module) -> bool:
    """Whether a module has functions or classes of its own; `dlc` has one, which finds what it hands on."""
    tree = ast.parse(module.path.read_text())
    return module.name != "dlc" and any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in tree.body)


def test_nothing_lower_uses_the_public_names() -> None:
    """They are for plugins and users; `dlc/__init__.py` resolves them upwards from wherever it is imported."""
    wrong = [m.name for m in CORE if m.name != "dlc" and "dlc" in m.imports and from_top(m)]
    assert not wrong


def from_top(module: Module) -> set[str]:
    """Names that a module imports from `dlc` itself and that are no rooms."""
    names = (n.removeprefix("dlc.") for n in module.imports if n.count(".") == 1 and n.startswith("dlc."))
    return {n for n in names if f"dlc.{n}" not in NAMES}


def test_the_core_knows_no_plugin() -> None:
    assert not [(m.name, name) for m in CORE for name in m.imports if name.startswith(PLUGINS)]


def test_plugins_see_the_core_and_themselves() -> None:
    def foreign(name: str, own: str) -> bool:
        return (name.startswith(PLUGINS) and name.partition(".")[0] != own) or f"{name}.".startswith("dlc.cli.")

    assert not [(m.name, name) for m in OTHERS for name in m.imports if foreign(name, m.name.partition(".")[0])]


def test_files_stay_readable() -> None:
    lengths = {m.name: len(m.text.splitlines()) for m in (*CORE, *OTHERS)}
    assert not {name: lines for name, lines in lengths.items() if lines > LONGEST}, "divide these files by idea"


def test_no_environment_reads_below_the_command_line() -> None:
    names = ("environ", "getenv", "environb")
    wrong = [
        (m.name, node.lineno)
        for m in CORE
        if not m.name.startswith("dlc.cli") and m.name not in READS_ENVIRONMENT
        for node in ast.walk(m.tree)
        if isinstance(node, ast.Attribute) and node.attr in names
    ]
    assert not wrong
