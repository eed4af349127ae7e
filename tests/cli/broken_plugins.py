"""Distributions with something wrong in them, as directories that pip would leave: files by path."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_HOOK = "from dlc import Lazy, hookimpl\n@hookimpl\n"
_LAZY = _HOOK + "def dlc_{}():\n    return [Lazy('{}', '{}')]\n"
_CLASHING = """
from dataclasses import dataclass
from dlc import Backend, Frontend, Pass, hookimpl

@dataclass(frozen=True)
class C(Backend):
    \"\"\"Another one.\"\"\"
    name = "c"

@dataclass(frozen=True)
class Fuse(Pass):
    \"\"\"Another one.\"\"\"
    name = "fuse"
    level_in = "ops"
    level_out = "ops"
    def run(self, state, report):
        report.count("theirs")
        return state

@dataclass(frozen=True)
class Models(Frontend):
    \"\"\"Another one, of ours' files.\"\"\"
    name = "theirs"
    suffixes = (".onnx", ".dlc")

@hookimpl
def dlc_backends():
    return [C]

@hookimpl
def dlc_passes():
    return [Fuse]

@hookimpl
def dlc_frontends():
    return [Models]

@hookimpl
def dlc_pipelines():
    return {"infer": "fuse", "simplify": "fuse"}
"""
_NOISY = """
import os, subprocess, sys
print("noise at import")
sys.stdout.buffer.write(b"noise of bytes\\n")
from dlc import hookimpl

@hookimpl
def dlc_passes():
    print("noise in a hook")
    return []

@hookimpl
def dlc_step_done(event):
    print("noise of an observer")

@hookimpl
def dlc_commands(app):
    print("noise of commands")
"""


def distribution(name: str, points: str, code: str = "", **more: str | bytes) -> dict[str, str | bytes]:
    """A distribution dlc-NAME 1.2 with these lines below `[dlc]`, and the module m_NAME."""
    info = f"dlc_{name}-1.2.dist-info"
    files: dict[str, str | bytes] = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: dlc-{name}\nVersion: 1.2\n",
        f"{info}/entry_points.txt": f"[dlc]\n{points}\n",
        f"m_{name}.py": code,
    }
    return files | {place.replace("INFO", info): content for place, content in more.items()}


BROKEN: Final[Mapping[str, Mapping[str, str | bytes]]] = {
    "gone": distribution("gone", "gone = gone_module"),
    "no module": distribution("empty", "x ="),
    "no name": distribution("nameless", "= m_nameless"),
    "submodule": distribution("sub", "sub = gonepkg.sub"),
    "no such object": distribution("absent", "absent = m_absent:plugin"),
    "function": distribution("function", "function = m_function:main", "def main():\n    pass\n"),
    "class": distribution("kind", "kind = m_kind:Plugin", "class Plugin:\n    pass\n"),
    "prints": distribution("noisy", "noisy = m_noisy", _NOISY),
    "raises in a hook": distribution("raises", "raises = m_raises", _HOOK + "def dlc_backends():\n    return 1 / 0\n"),
    "wrong type": distribution("wrong", "wrong = m_wrong", _HOOK + "def dlc_backends():\n    return 3\n"),
    "no result": distribution("none", "none = m_none", _HOOK + "def dlc_ops():\n    pass\n"),
    "exits": distribution("exits", "exits = m_exits", "import sys\nsys.exit(0)\n"),
    "interrupts": distribution("interrupts", "interrupts = m_interrupts", "raise KeyboardInterrupt\n"),
    "raises anything": distribution("odd", "odd = m_odd", "raise type('Odd', (BaseException,), {})('so')\n"),
    "exits in a hook": distribution(
        "leaves", "leaves = m_leaves", _HOOK + "def dlc_backends():\n    raise SystemExit\n"
    ),
    "taken names": distribution("taker", "taker = m_taker", _CLASHING),
    "taken entry point": distribution("second", "c = m_second", _CLASHING),
    "op of ours": distribution("relu", "relu = m_relu", _LAZY.format("ops", "relu", "a:B")),
    "op that is gone": distribution("lost", "lost = m_lost", _LAZY.format("ops", "los", "a_b:C")),
    "backend that is gone": distribution(
        "away", "away = m_away", _HOOK + "def dlc_backends():\n    return [Lazy('awa', 'a_b:C')]\n"
    ),
    "frontend of another kind": distribution(
        "odder", "odder = m_odder", _HOOK + "def dlc_frontends():\n    return [Lazy('odder', 'builtins:int')]\n"
    ),
    "syntax": distribution("syntax", "syntax = m_syntax", "def (:\n"),
    "dependency": distribution("needs", "needs = m_needs", "import a_missing_dependency\n"),
    "newer": distribution("newer", "newer = m_newer", "dlc_api = '>=99'\nimport dlc\n"),
    "unknown hook": distribution("next", "next = m_next", _HOOK + "def dlc_fusions(graph, machine):\n    return []\n"),
    "twice": distribution(
        "twice", "twice = m_twice", **{"dlc_twice-1.1.dist-info/entry_points.txt": "[dlc]\ntwice = gone_too\n"}
    ),
    "two of one name": distribution("double", "double = m_double\ndouble = gone_three"),
    "metadata": distribution(
        "bytes",
        "bytes = m_bytes",
        "",
        **{
            "INFO/METADATA": b"Name: dlc-\xff\xfe\nVersion: \x00\n",
            "INFO/entry_points.txt": b"[dlc]\n\xff\xfe = m_bytes\n",
        },
    ),
    "part of Python": distribution("stdlib", "stdlib = sys"),
    "not a package": distribution("text", "text = ../etc/passwd"),
}


def put(site: Path, names: tuple[str, ...]) -> None:
    """Write distributions into a directory."""
    for name in names:
        for place, content in BROKEN[name].items():
            path = site / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
