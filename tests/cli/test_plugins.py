"""Plugins of third parties through the command line: broken ones are named, good ones work, crashes can be sent in."""

import json
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc, Install
from tests.cli.models import small
from tests.conftest import Golden

BROKEN = """
from pathlib import Path
Path("imported").touch()
raise RuntimeError("no licence server\\nfound")
"""

PASSES = '''
from dataclasses import dataclass
from typing import ClassVar
from dlc import hookimpl
from dlc.api.passes import Pass

@dataclass(frozen=True)
class Break(Pass):
    """Fail."""

    name: ClassVar[str] = "break"

    def run(self, state, report):
        raise IndexError("one too many")

@hookimpl
def dlc_passes():
    return [Break]

@hookimpl
def dlc_commands(app):
    @app.command()
    def hello(name: str):
        """Greet."""
        print(f"hello {name}")
'''


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def test_a_broken_plugin_is_named_and_everything_else_works(
    dlc: Dlc, golden: Golden, install: Install, tmp_path: Path
) -> None:
    install("broken", BROKEN)
    ran = dlc("build", "small.onnx", "-o", "out", "-q")
    golden("plugins/build.txt", ran.err.replace(str(tmp_path), "DIR"))
    assert ran.code == ExitCode.OK
    assert dlc("run", "out", "-q").code == ExitCode.OK
    for arguments in (["list", "passes"], ["list", "ops"], ["show", "small.onnx"], ["cache", "why", "small.onnx"]):
        found = dlc(*arguments)
        assert found.code == ExitCode.OK
        assert "plugin broken (dlc-broken 1.2) is skipped" in found.err
        assert "broken" not in found.out
    rows = [line.split() for line in dlc("plugins").out.splitlines()]
    assert [row[:4] for row in rows if row[0] == "broken"] == [["broken", "dlc-broken", "1.2", "broken"]]


def test_commands_of_plugins_are_named(dlc: Dlc) -> None:
    assert "Plugins add commands of their own; dlc plugins names them." in dlc("--help").out
    (onnx,) = (p for p in dlc("plugins", "--json").document["plugins"] if p["name"] == "onnx")
    assert onnx["offers"]["commands"] == ["export"]
    assert "commands export" in dlc("plugins").out


def test_with_json_the_warning_is_in_the_document(dlc: Dlc, install: Install) -> None:
    install("broken", BROKEN)
    found = dlc("list", "passes", "--json").document
    assert found["ok"] is True
    assert [(d["code"], d["severity"]) for d in found["diagnostics"]] == [("broken-plugin", "warning")]


def test_doctor_finds_it(dlc: Dlc, install: Install) -> None:
    install("broken", BROKEN)
    ran = dlc("doctor")
    assert ran.code == ExitCode.TOOL
    lines = ran.out.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("FAIL  plugin broken: "))
    assert lines[at + 1].strip() == "pip uninstall dlc-broken"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["build", "--help"], ["cache", "stats"]])
def test_what_needs_no_plugin_imports_none(dlc: Dlc, install: Install, arguments: list[str]) -> None:
    install("broken", BROKEN)
    ran = dlc(*arguments)
    assert (ran.code, ran.err) == (0, "")
    assert not Path("imported").exists()


def test_a_disabled_plugin_is_not_imported(dlc: Dlc, install: Install) -> None:
    install("broken", BROKEN)
    Path("dlc.toml").write_text('[plugins]\ndisable = ["broken"]\n')
    ran = dlc("build", "small.onnx", "-o", "out", "-q")
    assert (ran.code, ran.err) == (0, "")
    assert not Path("imported").exists()
    assert "blocked" in dlc("plugins").out


def test_a_pass_that_crashes_leaves_what_reproduces_it(dlc: Dlc, install: Install) -> None:
    install("passes", PASSES)
    ran = dlc("build", "small.onnx", "-p", "simplify,break,lower,order,plan-memory", "-o", "out", "-q")
    assert ran.code == ExitCode.PLUGIN
    (crash,) = Path().glob("dlc-crash-*.dlc")
    assert f"help  dlc opt {crash} runs the step again" in ran.err
    again = dlc("opt", crash, "-q")
    assert again.code == ExitCode.PLUGIN
    assert "one too many" in again.err
    assert not Path("out").exists()
    assert dlc("opt", crash, "-p", "simplify", "-q").code == ExitCode.OK


def test_a_plugin_adds_a_command(dlc: Dlc, install: Install) -> None:
    install("passes", PASSES)
    ran = dlc("hello", "you")
    assert (ran.code, ran.out) == (0, "hello you\n")
    assert "Greet." in dlc("hello", "--help").out
    assert dlc("hello").code == ExitCode.USAGE


def test_only_some_checks_say_nothing_of_a_level(dlc: Dlc) -> None:
    ran = dlc("plugins", "test", "c", "--only", "documented", "--only", "versions")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "2 checks, 0 failed, 1 skipped"), ran.out
    rows = [line.split()[:3] for line in ran.out.splitlines()[1:3]]
    assert rows == [["versions", "c", "skipped"], ["documented", "c", "ok"]]
    assert dlc("plugins", "test", "c", "--level", "1", "--only", "backend").out.splitlines()[-1] == (
        "1 checks, 0 failed, 0 skipped"
    )
    none = dlc("plugins", "test", "c", "--only", "nonsense")
    assert none.code == 2
    assert "no-effect" in none.err and '"nonsense"' in none.err


OUTSIDE = '''
"""Models whose floats lie in a file that an option names."""
from dataclasses import dataclass
from pathlib import Path

from dlc import Frontend, Source, hookimpl, make_graph, option
from dlc.base.types import Type, f32
from dlc.graph import Constant, Input, Tensor
from dlc.ops.elementwise import Add

@dataclass(frozen=True)
class Outside(Frontend):
    """Models whose floats lie elsewhere."""

    name = "outside"
    suffixes = (".outside",)
    weights: str = option("", "file with the floats")

    def companions(self, source):
        return (Source(Path(self.weights)),)

    def parse(self, source, report):
        values = [float(v) for v in bytes(self.companions(source)[0].view()).split()]
        x = Input("x", Type(f32, (len(values),)))
        return make_graph([x], {"y": Add(x, Constant(Tensor.of(values, f32)))})

@hookimpl
def dlc_frontends():
    return [Outside]
'''


def test_a_build_again_sees_what_changed_in_a_file_outside_of_the_models_directory(dlc: Dlc, install: Install) -> None:
    install("outside", OUTSIDE)
    Path("in").mkdir()
    Path("in/model.outside").write_text("")
    weights = Path("weights.txt").absolute()
    line = (
        "build",
        "in/model.outside",
        "--frontend",
        f"outside{{weights={weights}}}",
        "-t",
        "c{lib=none weights=text}",
    )
    built: list[bytes] = []
    for text in ("1 2", "1 2", "1 3"):
        weights.write_text(text)
        ran = dlc(*line, "-o", "out", "--json")
        assert ran.code == 0, ran.err
        built.append(b"".join(f.read_bytes() for f in sorted(Path("out").glob("*.c"))))
        hits = json.loads(ran.out)["cache"]["misses"] == 0
        assert hits == (len(built) == 2)
    assert built[0] == built[1] != built[2]
