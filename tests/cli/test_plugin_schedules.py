"""Families of schedules that plugins offer: chosen by estimate, given by name, in cache keys, blamed for failures."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dlc.base.code_digest import code_digest
from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc, Install

BUILD = ("build", "zeros.dlc", "-t", "c{cpu=generic lib=none}", "-o", "out", "-q")
EXPLAIN = (*BUILD, "--explain", "schedule-kernels")
MODEL = """kernel @k0(f32[20]) -> (f32[20]) {
  r0[i] = exp(p0[i])
}
graph(%0 "a": f32[20]) {
  %1 = @k0(%0)
  return %1 "c"
}
"""
PLUGIN = """
from dataclasses import dataclass
from dlc import hookimpl, option
from dlc.schedules import Applied, Axis, Buffer, Choice, Const, Load, Store, Unfit, apply, loop

I = Axis("i", 20)

@dataclass(frozen=True)
class Steps(Choice):
    '''Loops of steps.'''
    name = "NAME"
    step: int = option(1, "elements at a time", low=1)
    def apply(self, place):
        APPLY

@hookimpl
def dlc_schedules():
    return [Steps]
"""
LAZY = "from dlc import Lazy, hookimpl\n@hookimpl\ndef dlc_schedules():\n    return [Lazy('steps', 'TARGET')]\n"
RIGHT = "return Applied(self, (loop(I, Store('r0', I, apply('exp', Load('p0', (I,))))),), ())"


def plugin(apply: str, name: str = "steps") -> str:
    return PLUGIN.replace("NAME", name).replace("APPLY", apply)


@pytest.fixture(autouse=True)
def model() -> None:
    Path("zeros.dlc").write_text(MODEL)


def scheduled(dlc: Dlc, *arguments: str) -> tuple[str, str, str]:
    """(digits of the kernel, its schedule, why not another)."""
    ran = dlc(*EXPLAIN, *arguments)
    assert ran.code == 0, ran.err
    (found,) = re.findall(r"scheduled (\w+) as ([^,]+), [\d,]+ cycles: (.*)", ran.out)
    return found


def test_one_that_takes_as_long_as_the_cores_is_preferred(dlc: Dlc, install: Install) -> None:
    _, own, _ = scheduled(dlc)
    assert own == "loops"
    install("steps", plugin(RIGHT))
    digits, chosen, others = scheduled(dlc, "--verify-loops")
    assert chosen == "steps"
    assert re.search("not loops, because it takes [0-9]+ cycles", others)
    assert scheduled(dlc, "--schedule", f"{digits}=loops")[1:] == ("loops", "given")
    assert scheduled(dlc, "--schedule", f"{digits}=steps{{step=2}}")[1:] == ("steps{step=2}", "given")
    bad = dlc(*BUILD, "--schedule", f"{digits}=steps{{step=0}}")
    assert bad.code == ExitCode.USAGE
    assert "steps: option step: 0 is below the least value, 1" in bad.err


def test_one_that_takes_much_longer_is_not_chosen(dlc: Dlc, install: Install) -> None:
    install("steps", plugin(RIGHT.replace("(loop(", "2 * (loop(")))
    _, chosen, others = scheduled(dlc)
    assert chosen == "loops"
    assert re.search("not steps, because it takes [0-9]+ cycles", others)


def test_one_that_does_not_apply_says_why(dlc: Dlc, install: Install) -> None:
    install("steps", plugin("raise Unfit('the moon is full')"))
    digits, chosen, others = scheduled(dlc)
    assert chosen == "loops"
    assert others.startswith("not steps, because the moon is full; ")
    bad = dlc(*BUILD, "--schedule", f"{digits}=steps")
    assert bad.code == ExitCode.USAGE
    assert "does not apply: the moon is full" in bad.err


@pytest.mark.parametrize(
    ("apply", "reason"),
    [
        ("raise IndexError('no steps')", "IndexError: no steps"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("return None", "TypeError: schedule steps: apply must return Applied with a steps, not None"),
        ("return Applied(self, (loop(I, Store('r7', I, Const(0.0))),), ())", "KeyError: 'r7'"),
        ("return Applied(self, None, ())", "TypeError"),
    ],
)
def test_one_that_breaks_is_its_plugins_failure(dlc: Dlc, install: Install, apply: str, reason: str) -> None:
    install("steps", plugin(apply))
    ran = dlc(*BUILD)
    assert ran.code == ExitCode.PLUGIN
    assert "plugin steps (dlc-steps 1.2) failed in schedule-kernels c{" in ran.err
    assert reason in ran.err
    assert not Path("out").exists()
    # The graph reproduces it.
    (crash,) = Path().glob("dlc-crash-*.dlc")
    again = dlc("opt", crash, "-q", "--trust-config")
    assert again.code == ExitCode.PLUGIN, again.err


def test_wrong_loops_name_the_plugin(dlc: Dlc, install: Install) -> None:
    install("steps", plugin(RIGHT.replace("'exp'", "'neg'")))
    ran = dlc(*BUILD, "--verify-loops")
    assert ran.code == ExitCode.MISMATCH
    assert "error[wrong-loops]" in ran.err
    assert "steps is a schedule of plugin steps (dlc-steps 1.2)" in ran.err
    assert "to the authors of the plugin" in ran.err
    assert not Path("out").exists()


def test_its_code_is_in_the_keys_of_the_steps_that_use_it(dlc: Dlc, install: Install) -> None:
    def cached(target: str) -> dict[str, bool]:
        found = dlc("build", "zeros.dlc", "-t", target, "-o", "other", "--json").document["steps"]
        return {step["step"].partition(" ")[0].partition("{")[0]: step["cached"] for step in found}

    c = "c{cpu=generic lib=none}"
    cached(c)
    assert all(cached(c).values())
    install("steps", plugin(RIGHT))
    # The plan has another schedule now, so what follows depends on it too.
    changed = {step for step, found in cached(c).items() if not found}
    assert changed >= {"schedule-kernels", "emit"}
    assert not changed & {"dlc", "accept"}
    found = sys.modules["dlc_cli_test_steps"]
    assert found.__file__ is not None
    with open(found.__file__, "a") as file:
        file.write("# changed")
    code_digest.cache_clear()  # what another process does not remember
    assert {step for step, found in cached(c).items() if not found} == {"schedule-kernels", "emit"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (LAZY.replace("TARGET", "dlc:Report"), "plugin steps: steps is not derived from Choice"),
        (LAZY.replace("TARGET", "absent_sdk:Steps"), "No module named 'absent_sdk'"),
    ],
)
def test_what_is_no_family_of_schedules(dlc: Dlc, install: Install, code: str, reason: str) -> None:
    install("steps", code)
    ran = dlc(*BUILD)
    assert ran.code == ExitCode.PLUGIN
    assert reason in ran.err


def test_one_with_the_name_of_a_cores_is_qualified(dlc: Dlc, install: Install) -> None:
    digits, *_ = scheduled(dlc)
    install("steps", plugin("raise Unfit('the moon is full')", "loops"))
    assert scheduled(dlc, "--schedule", f"{digits}=loops")[1:] == ("loops", "given")
    ran = dlc(*BUILD)
    assert ran.code == 0, ran.err
    assert "steps:loops of the schedules is selected by this name: loops is of core (dlc " in ran.err
    items = {item["name"]: item["plugin"] for item in dlc("list", "schedules", "--json").document["items"]}
    assert (items["loops"], items["steps:loops"]) == ("core", "steps")


def test_a_qualified_one_is_given_by_its_name(dlc: Dlc, install: Install) -> None:
    digits, *_ = scheduled(dlc)
    install("steps", plugin(RIGHT, "loops"))
    assert scheduled(dlc, "--schedule", f"{digits}=steps:loops{{step=2}}")[1:] == ("steps:loops{step=2}", "given")


def test_it_is_listed(dlc: Dlc, install: Install) -> None:
    install("steps", plugin(RIGHT))
    text = dlc("list", "schedules").out
    assert re.search(
        r"^steps +Loops of steps\.\n +parallel=\(\).*\n +past=\(\).*\n +step=1 +elements at a time", text, re.MULTILINE
    )
    items = {item["name"]: item["plugin"] for item in dlc("list", "schedules", "--json").document["items"]}
    assert items["steps"] == "steps"
    assert items["tiles"] == "core"
