"""Who may import whom, and how long a file may be."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("kernel", "graph", "ops", "training", "passes", "checking", "driver", "cli")
"""Each may import those before it, none after it."""

PLUGINS = ("dlc_frontend_", "dlc_backend_")
LONGEST = 500

SOURCES = sorted([*(ROOT / "dlc").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")])
CORE = [path for path in SOURCES if path.is_relative_to(ROOT / "dlc")]


def imports(path: Path) -> set[str]:
    """Every module a file imports when it runs, at any depth; what only type checkers see does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pending += node.orelse
                continue
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module), level=0):
                found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
            case _:
                pass
        pending += ast.iter_child_nodes(node)
    return found


def layer(module: str) -> int:
    """Index in LAYERS, or -1 for what lies beside them."""
    parts = module.split(".")
    return LAYERS.index(parts[1]) if parts[0] == "dlc" and len(parts) > 1 and parts[1] in LAYERS else -1


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_imports_only_lower_layers_and_no_plugin(path: Path) -> None:
    own = layer(name_of(path))
    wrong = [m for m in imports(path) if m.startswith(PLUGINS) or (own >= 0 and layer(m) > own)]
    assert not wrong


@pytest.mark.parametrize("path", [p for p in CORE if "cli" not in p.parts and p.name != "__main__.py"], ids=name_of)
def test_nothing_sees_the_command_line(path: Path) -> None:
    assert not [m for m in imports(path) if m == "dlc.cli" or m.startswith("dlc.cli.")]


@pytest.mark.parametrize("path", [p for p in SOURCES if p not in CORE], ids=name_of)
def test_plugins_see_the_core_and_themselves(path: Path) -> None:
    own = path.relative_to(ROOT / "plugins").parts[1]
    others = [m for m in imports(path) if m.startswith(PLUGINS) and m.partition(".")[0] != own]
    assert not others
    assert not [m for m in imports(path) if m == "dlc.cli" or m.startswith("dlc.cli.")]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_stays_readable(path: Path) -> None:
    length = len(path.read_text(encoding="utf-8").splitlines())
    assert length <= LONGEST, f"{length} lines; divide the file by idea"


SETS_BACK = ROOT / "dlc" / "guard.py"
"""Undoes what a plugin does to the environment, and takes nothing from it."""


@pytest.mark.parametrize("path", [p for p in CORE if "cli" not in p.parts and p != SETS_BACK], ids=name_of)
def test_no_environment_reads_below_the_command_line(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    reads = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in ("environ", "getenv", "environb")]
    assert not reads
