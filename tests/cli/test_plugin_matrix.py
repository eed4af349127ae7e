"""Every command works whatever is wrong with other installed plugins, the first time and again; stdout stays clean."""

import importlib
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from dlc.cli.frame import run
from dlc.cli.table import COMMANDS
from tests.cli.broken_plugins import BROKEN, put
from tests.cli.conftest import Dlc
from tests.cli.models import small

BUILD = "build small.onnx -o out -t c{lib=none}"
LINES = {
    "bench": "bench out --seconds 0.01",
    "build": BUILD,
    "cache": "cache why small.onnx -t c{lib=none}",
    "debug": "debug repro none.txt",
    "doctor": "doctor",
    "explain": "explain unsupported-op",
    "list": "list ops",
    "ops": "ops show relu",
    "opt": "opt small.dlc -p simplify,lower,fuse",
    "plan": "plan small.onnx",
    "plugins": "plugins",
    "report": "report out",
    "run": "run small.onnx --cache off",
    "show": "show small.onnx",
    "train": "train out --data none.npz",
    "trust": "trust",
    "tune": "tune --merge none.toml -o both.toml",
    "verify": "verify small.onnx --reference numpy -t c{flags=-O0}",
}
"""A line of each command; some end in an error of their own, which stays the same."""
QUICKEST = "plugins"
"""The command with which each distribution is always tried."""
HARMLESS = ("prints", "taken names", "taken entry point", "unknown hook", "part of Python", "metadata")
"""Doctor finds nothing that has to be mended."""
NOISE = "noise"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[..., Path]]:
    """`site(*names)`: the broken distributions of these names, on the path."""
    place = tmp_path / "site"
    place.mkdir()
    before = set(sys.modules)

    def make(*names: str) -> Path:
        put(place, names)
        monkeypatch.setattr(sys, "path", [str(place), *sys.path])
        importlib.invalidate_caches()
        return place

    yield make
    for name in set(sys.modules) - before:
        if name.startswith("m_"):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("small.dlc").write_text('graph(%0 "x": f32[4]) {\n  %1 = relu(%0)\n  return %1 "y"\n}\n')


def codes(dlc: Dlc, command: str) -> list[int]:
    """Exit codes of a command, cold and warm; its JSON is one document each time."""
    found: list[int] = []
    for _ in range(2):
        ran = dlc(*LINES[command].split(), "--json")
        document = json.loads(ran.out)
        assert document["exit_code"] == ran.code
        assert ran.code != ExitCode.BUG, ran.out
        # What is told of the plugin is in diagnostics; what it printed is nowhere else.
        assert NOISE not in json.dumps({k: v for k, v in document.items() if k not in ("diagnostics", "plugins")})
        found.append(ran.code)
    return found


def test_the_lines_are_all_commands() -> None:
    assert sorted(LINES) == sorted(c.name for c in COMMANDS)


@pytest.mark.parametrize("command", LINES)
def test_with_everything_broken_at_once(dlc: Dlc, site: Callable[..., Path], command: str) -> None:
    healthy = codes(dlc, command)
    site(*BROKEN)
    assert codes(dlc, command) == ([ExitCode.TOOL] * 2 if command == "doctor" else healthy)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("command", [pytest.param(c, marks=() if c == QUICKEST else pytest.mark.long) for c in LINES])
def test_each_command_with_each_distribution(dlc: Dlc, site: Callable[..., Path], name: str, command: str) -> None:
    healthy = codes(dlc, command)
    site(name)
    broken = codes(dlc, command)
    assert broken == ([ExitCode.TOOL] * 2 if command == "doctor" and name not in HARMLESS else healthy)


def test_a_build_cold_and_warm_with_everything_broken(dlc: Dlc, site: Callable[..., Path]) -> None:
    site(*BROKEN)
    cold, warm = (dlc(*BUILD.split(), "--json") for _ in range(2))
    first, again = json.loads(cold.out), json.loads(warm.out)
    assert (cold.code, warm.code) == (0, 0)
    assert again["cache"]["misses"] == 0 < first["cache"]["misses"]
    assert first["pipeline"].startswith("expand") or "fuse{" in first["pipeline"]
    assert Path("out/small.c").exists()
    shown = dlc(*BUILD.split())
    assert NOISE not in shown.out


def test_what_is_wrong_is_said_with_plugin_hook_and_line(dlc: Dlc, site: Callable[..., Path]) -> None:
    place = site(
        "wrong type", "raises in a hook", "function", "gone", "no module", "unknown hook", "prints", "op of ours"
    )
    err = dlc("plugins").err
    for text in (
        f"plugin wrong (dlc-wrong 1.2) is skipped: dlc_backends must return a list, not 3 ({place}/m_wrong.py:2)",
        f"dlc_backends failed: ZeroDivisionError: division by zero ({place}/m_raises.py:4)",
        "m_function:main is a function without hooks",
        "plugin gone (dlc-gone 1.2) is skipped: ModuleNotFoundError: No module named 'gone_module'",
        "its entry point names no module",
        "never calls: dlc_fusions",
        "note[plugin-output]: plugin noisy (dlc-noisy 1.2) prints on stdout",
        "note  noise at import\n  note  noise of bytes\n  note  noise in a hook",
        "its op relu has the name of one of core",
    ):
        assert text in err, text


def test_times_of_loading_are_listed(dlc: Dlc) -> None:
    plugins = dlc("plugins", "--json").document["plugins"]
    assert all(p["load_ms"] >= 0 for p in plugins) and any(p["load_ms"] > 0 for p in plugins)
    assert dlc("plugins").out.splitlines()[0].split() == ["plugin", "package", "version", "state", "load", "offers"]


def test_plain_names_mean_ours_and_qualified_ones_theirs(dlc: Dlc, site: Callable[..., Path]) -> None:
    site("taken names")
    assert json.loads(dlc(*BUILD.split(), "--json").out)["target"].startswith("c{")
    theirs = dlc("opt", "small.dlc", "-p", "taker:fuse", "-q")
    assert theirs.code == 0 and "kernel" not in theirs.out
    by_distribution = dlc("opt", "small.dlc", "-p", "dlc-taker:fuse,core:simplify", "-q")
    assert by_distribution.code == 0, by_distribution.err
    refused = dlc("build", "small.onnx", "-t", "taker:c", "-q")
    assert refused.code not in (0, ExitCode.BUG) and "taker:c" in refused.err
    assert dlc("build", "small.onnx", "-t", "c:c{lib=none}", "-q").code == 0


def test_a_name_of_two_third_parties_is_asked_for(dlc: Dlc, site: Callable[..., Path]) -> None:
    site("taken names", "taken entry point")
    ran = dlc("build", "small.onnx", "--frontend", "theirs", "-q")
    assert ran.code == ExitCode.PLUGIN
    assert "choose dlc-second:theirs or taker:theirs" in ran.err


@pytest.mark.parametrize("named", ["gone", "dlc-gone", "other, gone"])
def test_the_environment_disables_plugins(
    dlc: Dlc, site: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    site("gone")
    monkeypatch.setenv("DLC_PLUGINS_DISABLE", named)
    ran = dlc("plugins")
    assert ran.err == "" and "blocked" in ran.out


@pytest.mark.parametrize("line", [BUILD, "plugins", "list passes", "opt small.dlc -p simplify", "show small.onnx"])
def test_strict_makes_a_broken_plugin_an_error(dlc: Dlc, site: Callable[..., Path], line: str) -> None:
    assert dlc(*line.split(), "--strict-plugins").code == 0
    site("gone")
    ran = dlc(*line.split(), "--strict-plugins")
    assert ran.code == ExitCode.PLUGIN
    assert "error[broken-plugin]: plugin gone" in ran.err
    assert dlc(*line.split()).code == 0, "the flag holds for one command"


OBJECT = """
from dlc import hookimpl

class P:
    @hookimpl
    def dlc_pipelines(self):
        return {"mine": "fuse"}

plugin = P()
"""


def test_an_object_of_a_module_has_hooks(dlc: Dlc, site: Callable[..., Path]) -> None:
    place = site("no such object")
    (place / "m_absent.py").write_text(OBJECT)
    found = dlc("plugins", "--json").document["plugins"]
    assert [p["offers"] for p in found if p["name"] == "absent"] == [{"pipelines": ["mine"]}]


def test_what_libraries_print_is_not_in_stdout(
    capfd: pytest.CaptureFixture[str], site: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors too: of C libraries and of other processes."""
    place = site("prints")
    (place / "m_noisy.py").write_text("import os\nos.write(1, b'noise of C')\nos.system('echo noise of a shell')\n")
    with open(1, "w", closefd=False) as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert run(["show", "small.onnx", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["ok"]
    assert "noise of C" in err and "noise of a shell" in err
