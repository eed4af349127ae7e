"""Code of a third party that breaks is reported as its failure: plugin, version, step, node, exception, exit code 6."""

import re
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from dlc.plugins.plugin import RELEASED_WITH_CORE
from tests.cli.conftest import Dlc, Install
from tests.conftest import Golden

ROOT = Path(__file__).parents[2]
PLUGIN = (ROOT / "tests" / "data" / "plugins" / "failing.txt").read_text()
OP = """graph(%0 "x": f32[2]) {
  %1 = constant() tensor=f32[2]{1.0,2.0}
  %2 = doubled(%1)
  %3 = add(%0, %2)
  return %3 "y"
}
"""
BUILD = ("build", "model.words", "-t", "chip", "-o", "out", "-q")
RUN = ("run", "model.words", "-t", "chip", "-q")
STEPS = {
    "parse": (BUILD, "words"),
    "run": (BUILD, "look{deep=1}"),
    "rewrite": (BUILD, "look{deep=1}"),
    "accepts": (BUILD, "accept chip"),
    "emit": (BUILD, "emit chip"),
    "build": (BUILD, "build chip"),
    "rule": ((*BUILD, "-p", "simplify"), "simplify"),
    "evaluate": (("build", "op.dlc", "-p", "fold-constants,lower,order,plan-memory", "-q"), "fold-constants"),
}
"""Where a step breaks: the command line, and how the step is called."""

OUTSIDE = {
    "companions": BUILD,
    "options": BUILD,
    "toolchain": BUILD,
    "summary": BUILD,
    "load": RUN,
    "call": RUN,
    "command": ("chip-info",),
}
"""Where something else breaks."""


@pytest.fixture(autouse=True)
def models() -> None:
    Path("model.words").write_text("words")
    Path("op.dlc").write_text(OP)


def failing(place: str, how: str) -> str:
    return PLUGIN.replace('PLACE, HOW = "", ""', f'PLACE, HOW = "{place}", "{how}"')


def test_it_works_when_nothing_breaks(dlc: Dlc, install: Install) -> None:
    install("chip", failing("", ""))
    for arguments in {line for line, _ in STEPS.values()} | set(OUTSIDE.values()):
        ran = dlc(*arguments)
        assert (ran.code, ran.err) == (0, ""), arguments


@pytest.mark.parametrize("how", ["raise", "exit"])
@pytest.mark.parametrize("place", STEPS)
def test_a_step_that_breaks_is_its_plugins_failure(dlc: Dlc, install: Install, place: str, how: str) -> None:
    install("chip", failing(place, how))
    arguments, step = STEPS[place]
    ran = dlc(*arguments)
    assert ran.code == ExitCode.PLUGIN
    assert f"plugin chip (dlc-chip 1.2) failed in {step}" in ran.err
    assert {"raise": f"IndexError: no {place}", "exit": "SystemExit: 3"}[how] in ran.err
    (crash,) = Path().glob("dlc-crash-*")
    assert crash.name in ran.err
    # The graph reproduces it, where one went in.
    assert crash.suffix == (".txt" if place in ("parse", "build") else ".dlc")
    assert "Traceback (most recent call last):" in crash.read_text()
    assert not Path("out").exists()
    assert ('  from  node "layer"' in ran.err) == (place in ("rewrite", "rule", "accepts"))


@pytest.mark.parametrize("place", sorted(STEPS.keys() - {"parse", "build"}))
def test_the_file_of_a_crash_reproduces_it(dlc: Dlc, install: Install, place: str) -> None:
    install("chip", failing(place, "raise"))
    dlc(*STEPS[place][0])
    (crash,) = Path().glob("dlc-crash-*.dlc")
    assert dlc("opt", crash, "-q").code == ExitCode.PLUGIN


@pytest.mark.parametrize("place", ["parse", "run", "emit", "build"])
def test_a_step_that_gives_no_state_is_its_plugins_failure(dlc: Dlc, install: Install, place: str) -> None:
    install("chip", failing(place, "none"))
    ran = dlc(*STEPS[place][0])
    assert ran.code == ExitCode.PLUGIN
    assert "plugin chip (dlc-chip 1.2) failed" in ran.err


OUTSIDE_CASES = [(p, how) for p in OUTSIDE for how in ("raise", "exit") if (p, how) != ("command", "exit")]


@pytest.mark.parametrize(("place", "how"), OUTSIDE_CASES)
def test_what_breaks_outside_of_steps_is_its_plugins_failure(dlc: Dlc, install: Install, place: str, how: str) -> None:
    install("chip", failing(place, how))
    ran = dlc(*OUTSIDE[place])
    assert ran.code == ExitCode.PLUGIN
    assert "plugin chip (dlc-chip 1.2) failed\n" in ran.err
    (crash,) = Path().glob("dlc-crash-*.txt")
    assert "Traceback (most recent call last):" in crash.read_text()
    assert f"dlc {' '.join(OUTSIDE[place])}" in crash.read_text()


def test_a_command_of_a_plugin_may_exit_as_it_likes(dlc: Dlc, install: Install) -> None:
    install("chip", failing("command", "exit"))
    with pytest.raises(SystemExit) as left:
        dlc("chip-info")
    assert left.value.code == 3


def test_the_message_of_a_step(dlc: Dlc, golden: Golden, install: Install, tmp_path: Path) -> None:
    install("chip", failing("rewrite", "raise"))
    golden("plugins/failed_step.txt", errors_text(dlc(*BUILD).err, tmp_path))


def test_the_message_of_a_loader(dlc: Dlc, golden: Golden, install: Install, tmp_path: Path) -> None:
    install("chip", failing("load", "raise"))
    golden("plugins/failed_load.txt", errors_text(dlc(*RUN).err, tmp_path))


def errors_text(text: str, directory: Path) -> str:
    text = re.sub(r"dlc-crash-[0-9a-f]{12}", "dlc-crash-<digest>", text.replace(str(directory), "DIR"))
    return re.sub(r"at \S*?(\w+\.py):\d+", r"at \1:N", text)


def test_an_observer_that_ends_the_process_is_reported_and_left_out(dlc: Dlc, install: Install) -> None:
    install("chip", failing("observer", "exit"))
    ran = dlc(*BUILD)
    assert ran.code == ExitCode.OK
    assert ran.err.count("plugin chip (dlc-chip 1.2): dlc_step_done failed and is not called again: SystemExit: 3") == 1


def test_with_json_it_stands_in_the_document(dlc: Dlc, install: Install) -> None:
    install("chip", failing("emit", "raise"))
    found = dlc(*BUILD, "--json").document
    assert (found["ok"], found["exit_code"]) == (False, 6)
    assert found["diagnostics"][0]["code"] == "plugin-failed"


def test_the_plugins_of_this_project_are_named_once() -> None:
    """What breaks in them is a bug of dlc, so the list follows the distributions that there are."""
    texts = [p.read_text() for p in (ROOT / "pyproject.toml", *(ROOT / "plugins").glob("*/pyproject.toml"))]
    names = {found[1] for text in texts if (found := re.search(r'^name = "(.*)"', text, re.MULTILINE))}
    assert names == RELEASED_WITH_CORE
