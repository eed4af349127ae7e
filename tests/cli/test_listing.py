"""Listings read declarations from source text; they must say what the classes themselves say."""

import sys
from pathlib import Path

import pytest

from dlc.base.lazy import Lazy
from dlc.plugins.declared import declaration
from dlc.plugins.discovery import load_registry

HEAD = """
from dataclasses import dataclass
from typing import ClassVar
from dlc import Report, option
from dlc.api.passes import Pass
from dlc.spec import Configurable

"""
FIELDS = '''@dataclass(frozen=True)
class Odd(Pass):
    """Do something odd: a  →  b.

    More about it.
    """

    name: ClassVar[str] = "odd"
    first: int = option(1, "the first")
'''
SOURCES = {
    "usual": f"{HEAD}{FIELDS}\n    def run(self, state, report):\n        return state\n",
    "decorated": f"{HEAD}{FIELDS}\n    @property\n    def more(self):\n        return 1\n",
    "field behind a method": f"{HEAD}{FIELDS}\n    def run(self, state, report):\n        return state\n\n"
    '    second: bool = option(True, "the second")\n',
    "no method": f"{HEAD}{FIELDS}",
    "constant of the module": f"{HEAD}FIRST = 1 << 3\n{FIELDS}".replace("option(1,", "option(FIRST,"),
    "constant of another one": f"from dlc.kernel.schedules.machine import PANEL, Machine\n{HEAD}{FIELDS}".replace(
        "option(1,", "option(PANEL,"
    ),
    "another class behind": f"{HEAD}{FIELDS}\n\nclass Other:\n    def run(self):\n        return 1\n",
    "another class before": f"{HEAD}class Odds:\n    x: int = 1\n\n    def run(self):\n        return 1\n\n\n{FIELDS}",
}


@pytest.mark.parametrize("name", SOURCES)
def test_source_and_class_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = f"dlc_listing_{name.replace(' ', '_')}"
    (tmp_path / f"{module}.py").write_text(SOURCES[name])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    lazy = Lazy("odd", f"{module}:Odd")
    read = declaration(lazy)
    assert module not in sys.modules
    assert read.options == declaration(lazy.load()).options
    assert read.summary == "Do something odd: a  →  b."
    assert "first" in [option.key for option in read.options]
    sys.modules.pop(module, None)


@pytest.mark.parametrize("kind", ["passes", "frontends", "backends"])
def test_everything_installed(kind: str) -> None:
    registry = load_registry(kinds=("passes", "frontends", "backends"))
    for entry in {"passes": registry.passes, "frontends": registry.frontends, "backends": registry.backends}[
        kind
    ].values():
        assert entry.declaration().options == declaration(entry.load()).options
