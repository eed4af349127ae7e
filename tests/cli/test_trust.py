"""A directory's configuration runs nothing that the user has not agreed to; what runs nothing needs no agreement."""

import io
import os
import re
import sys
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from dlc.plugins.discovery import load_registry
from tests.cli.conftest import Dlc, Install
from tests.cli.models import small
from tests.conftest import Golden

COMPILER = """#!/bin/sh
touch "$(dirname "$0")/ran"
exec gcc "$@"
"""
USES = (
    ("build", "small.onnx", "-t", "board", "-o", "out", "-q"),
    ("run", "small.onnx", "-t", "board", "-q"),
    ("verify", "small.onnx", "-t", "board", "-q"),
    ("plan", "small.onnx", "-t", "board", "-q"),
    ("cache", "why", "small.onnx", "-t", "board"),
)
BUILD = USES[0]
COMPILING = ("build", "run", "verify")


@pytest.fixture(autouse=True)
def directory() -> None:
    """A directory from somebody else, whose dlc.toml names a compiler of its own."""
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("cc.sh").write_text(COMPILER)
    Path("cc.sh").chmod(0o755)
    configure("./cc.sh")


def configure(compiler: str, file: str = "dlc.toml", table: str = "") -> None:
    Path(file).write_text(f'[{table}target.board]\nbackend = "c{{cc={compiler}}}"\n')


def ran() -> bool:
    found = Path("ran").exists()
    Path("ran").unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("arguments", USES, ids=lambda a: " ".join(a[:2]))
def test_nothing_of_the_file_runs_before_it_is_trusted(dlc: Dlc, arguments: tuple[str, ...]) -> None:
    refused = dlc(*arguments)
    assert refused.code == ExitCode.USAGE
    assert "error[untrusted]: c: option cc sets what dlc runs" in refused.err
    assert not ran()
    assert dlc(*arguments, "--trust-config").code == ExitCode.OK
    assert ran() == (arguments[0] in COMPILING)
    assert dlc(*arguments).code == ExitCode.USAGE, "the flag counts once"
    assert not ran()


def test_the_message_says_what_to_do(dlc: Dlc, golden: Golden) -> None:
    lines = (BUILD, ("trust",), BUILD, ("trust", "--revoke"))
    text = "\n\n".join(dlc(*line).transcript() for line in lines)
    text = re.sub(r"^arena .*\n", "", text, flags=re.MULTILINE)
    golden("trust.txt", text.replace(os.path.realpath("."), "DIR"))


@pytest.mark.parametrize("arguments", USES, ids=lambda a: " ".join(a[:2]))
def test_trust_lasts_until_the_file_changes(dlc: Dlc, arguments: tuple[str, ...]) -> None:
    assert "cc=./cc.sh" in dlc("trust").out
    assert dlc(*arguments).code == ExitCode.OK
    assert dlc(*arguments).code == ExitCode.OK
    assert ran() == (arguments[0] in COMPILING)
    text = Path("dlc.toml").read_text()
    Path("dlc.toml").write_text(text + "# a comment\n")
    assert dlc(*arguments).code == ExitCode.USAGE
    assert not ran()
    Path("dlc.toml").write_text(text)
    assert dlc(*arguments).code == ExitCode.OK
    dlc("trust", "--revoke")
    ran()
    assert dlc(*arguments).code == ExitCode.USAGE
    assert not ran()


def test_trust_belongs_to_one_path(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    dlc("trust")
    other = Path("other")
    other.mkdir()
    for name in ("dlc.toml", "small.onnx", "cc.sh"):
        (other / name).write_bytes(Path(name).read_bytes())
    (other / "cc.sh").chmod(0o755)
    monkeypatch.chdir(other)
    assert dlc(*BUILD).code == ExitCode.USAGE
    assert not ran()


@pytest.mark.parametrize("backend", ["c{cc=gcc}", "c{flags=-O1}", "c{flags=-fplugin=./evil.so}", 'c{cc="gcc -O1"}'])
def test_any_command_and_any_flag_of_one_needs_trust(dlc: Dlc, backend: str) -> None:
    Path("dlc.toml").write_text(f"[target.board]\nbackend = '{backend}'\n")
    assert dlc(*BUILD).code == ExitCode.USAGE


def test_the_table_of_a_project_needs_trust_too(dlc: Dlc) -> None:
    Path("dlc.toml").unlink()
    configure("./cc.sh", "pyproject.toml", "tool.dlc.")
    assert dlc(*BUILD).code == ExitCode.USAGE
    assert not ran()
    assert dlc("trust").code == ExitCode.OK
    assert dlc(*BUILD).code == ExitCode.OK


def test_what_runs_nothing_stays_free(dlc: Dlc) -> None:
    free = '[pipeline]\nlittle = ["infer"]\n[target.board]\nbackend = "c{cpu=generic lib=none}"\npipeline = "little"\n'
    Path("dlc.toml").write_text(f'{free}[target.own]\nbackend = "c{{cc=./cc.sh}}"\n')
    assert dlc(*BUILD).code == ExitCode.OK, "another target of the file runs something"
    assert dlc("list", "pipelines").code == ExitCode.OK
    assert dlc("doctor").code == ExitCode.OK
    assert not ran()


def test_flags_need_no_trust(dlc: Dlc) -> None:
    assert dlc("build", "small.onnx", "-t", "c{cc=./cc.sh}", "-o", "out", "-q").code == ExitCode.OK
    assert ran()


def test_the_run_line_of_a_file_needs_trust(dlc: Dlc) -> None:
    text = dlc("build", "small.onnx", "--stop-after", "plan-memory", "-q").out
    Path("report.dlc").write_text(f"# RUN: emit c{{cc=./cc.sh}}\n{text}")
    refused = dlc("opt", "report.dlc", "-q")
    assert refused.code == ExitCode.USAGE
    assert "--trust-config lets its options run" in refused.err
    assert not ran()
    assert dlc("opt", "report.dlc", "-q", "--trust-config").code == ExitCode.OK


PASS = '''
from dataclasses import dataclass
from dlc import Pass, hookimpl, option

@dataclass(frozen=True)
class Call(Pass):
    """Call a tool."""

    name = "call"
    tool: str = option("", "program", runs=True)

    def run(self, state, report):
        return state

@hookimpl
def dlc_passes():
    return [Call]
'''


def test_an_option_of_a_plugin_declares_it_itself(dlc: Dlc, install: Install) -> None:
    install("call", PASS)
    Path("dlc.toml").write_text('[pipeline]\nmine = "call{tool=./cc.sh},infer"\n')
    line = ("build", "small.onnx", "-p", "mine", "-o", "out", "-q")
    refused = dlc(*line)
    assert (refused.code, "dlc.toml:2" in refused.err) == (ExitCode.USAGE, True)
    assert "call{tool=./cc.sh}" in dlc("trust").out
    assert dlc(*line).code == ExitCode.OK


def test_a_terminal_is_asked_once(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although `verify` prepares the build twice."""

    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Typed("y\n"))
    monkeypatch.setattr("dlc.cli.trusting.is_interactive", lambda: True)
    asked = dlc("verify", "small.onnx", "-t", "board", "-q")
    assert (asked.code, asked.err.count("Trust ")) == (0, 1)


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_a_terminal_is_asked(dlc: Dlc, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Typed(answer))
    monkeypatch.setattr("dlc.cli.trusting.is_interactive", lambda: True)
    asked = dlc(*BUILD)
    assert "Trust " in asked.err
    assert asked.code == (ExitCode.OK if answer == "y\n" else ExitCode.USAGE)
    assert asked.err.count("error[untrusted]") == 1
    monkeypatch.setattr("dlc.cli.trusting.is_interactive", lambda: False)
    assert dlc(*BUILD).code == asked.code


def test_no_record_means_no_trust(dlc: Dlc, tmp_path: Path) -> None:
    """A state directory that cannot be written: trusting fails aloud, and nothing runs."""
    (tmp_path / "state").write_text("no directory")
    assert dlc("trust").code != ExitCode.OK
    assert dlc(*BUILD).code == ExitCode.USAGE


def test_trust_is_private_and_whole(dlc: Dlc, tmp_path: Path) -> None:
    dlc("trust")
    (record,) = (tmp_path / "state" / "dlc" / "trusted").iterdir()
    assert record.read_text() == os.path.realpath("dlc.toml") + "\n"


def test_listings_and_classes_agree_on_what_runs() -> None:
    """`dlc trust` reads declarations, the refusal reads classes."""
    registry = load_registry()
    for table in (registry.backends, registry.passes, registry.frontends):
        for entry in table.values():
            assert entry.declaration().options == entry.load().options_doc()
    assert {o.key for o in registry.backends["c"].declaration().options if o.runs} == {"cc", "flags", "machine"}
