"""A plugin that hangs, interrupts or changes the interpreter when it is imported is named, and the others go on."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode
from dlc.plugins import guard
from dlc.plugins.discovery import KINDS, load_registry
from dlc.plugins.registry import Registry
from tests.plugins.conftest import Install

GOOD = """
from dataclasses import dataclass
from dlc import Pass, hookimpl

@dataclass(frozen=True)
class Count(Pass):
    name = "count-it"

    def run(self, state, report):
        return state

@hookimpl
def dlc_passes():
    return [Count]
"""
ENDLESS = {
    "sleep": "import time\ntime.sleep(60)\n",
    "loop": "while True:\n    pass\n",
    "lock": "import threading\nthreading.Event().wait()\n",
    "swallow": "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except Exception:\n        pass\n",
    "hook": "import time\nfrom dlc import hookimpl\n@hookimpl\ndef dlc_ops():\n    time.sleep(60)\n",
}
CHANGES = {
    "sys.setrecursionlimit(77_777)": "the recursion limit (1000 → 77777)",
    "sys.set_int_max_str_digits(0)": "the limit of digits of integers (4300 → 0)",
    "sys.setswitchinterval(1.0)": "the switch interval of threads (0.005 → 1.0)",
    "signal.signal(signal.SIGINT, print)": "handlers of signals (SIGINT)",
    "signal.signal(signal.SIGTERM, print)": "handlers of signals (SIGTERM)",
    "signal.signal(signal.SIGALRM, signal.SIG_IGN)": "handlers of signals (SIGALRM)",
    'os.chdir("/")': "the current directory",
    'os.environ["CC"] = "evil"': "the environment (CC)",
    'del os.environ["PATH"]': "the environment (PATH)",
    'warnings.simplefilter("error")': "filters that turn warnings into errors",
}


def load() -> tuple[Registry, Diagnostic]:
    """The registry, which has the good plugin, and what is said of the other."""
    registry = load_registry(kinds=KINDS)
    assert "count-it" in registry.passes
    (problem,) = [p for p in registry.problems if "plugin bad (dlc-bad 1.2)" in p.message]
    assert problem.severity == "warning"
    return registry, problem


@pytest.mark.parametrize("how", ENDLESS)
def test_one_that_hangs_is_interrupted(install: Install, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(guard, "LIMIT", 0.2)
    install("bad", ENDLESS[how])
    install("good", GOOD)
    start = time.monotonic()
    _, problem = load()
    assert time.monotonic() - start < 20
    assert "it was still running after 0.2 s, at " in problem.message
    assert ("dlc_test_bad.py:" in problem.message) == (how != "lock"), "a lock is Python of the library"


UNSTOPPABLE = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
time.sleep(60)
"""


def test_one_that_cannot_be_interrupted_ends_with_its_name(install: Install, tmp_path: Path) -> None:
    install("bad", UNSTOPPABLE)
    script = "from dlc.plugins import guard, discovery\nguard.LIMIT, guard._GRACE = 0.2, 1\ndiscovery.load_registry()"
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.PLUGIN
    assert "error[broken-plugin]: plugin bad (dlc-bad 1.2) hangs when it is imported" in done.stderr
    assert 'disable = ["bad"]' in done.stderr


@pytest.mark.parametrize(
    "code", ["raise KeyboardInterrupt", "raise SystemExit(3)", "raise type('Odd', (BaseException,), {})('so')"]
)
def test_one_that_interrupts_is_skipped(install: Install, code: str) -> None:
    install("bad", code + "\n")
    install("good", GOOD)
    registry, problem = load()
    assert "is skipped: " in problem.message
    assert {p.name: p.state for p in registry.plugins}["bad"] == "broken"


def test_the_users_interruption_is_no_plugins_failure(install: Install) -> None:
    install("bad", "import time\ntime.sleep(60)\n")
    me = threading.main_thread().ident
    assert me is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (me, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        load_registry(kinds=KINDS)


def test_an_interruption_that_is_lost_is_repeated(install: Install) -> None:
    lost = "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    time.sleep(60)\n"
    install("bad", lost)
    me = threading.main_thread().ident
    assert me is not None
    threading.Timer(0.3, signal.pthread_kill, (me, signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        load_registry(kinds=KINDS)
    assert time.monotonic() - start < 15


@pytest.mark.parametrize("code", CHANGES)
def test_what_it_changes_is_reported_and_set_back(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CC", raising=False)
    before = [setting.read() for setting in guard.SETTINGS]
    recursion = sys.getrecursionlimit()
    with warnings.catch_warnings():
        install("bad", f"import os, signal, sys, warnings\n{code}\n{GOOD.replace('count-it', 'other')}")
        install("good", GOOD)
        registry, problem = load()
        assert [setting.read() for setting in guard.SETTINGS] == before
    assert problem.code == "plugin-side-effect"
    assert CHANGES[code].replace("1000 →", f"{recursion} →") in problem.message
    assert "other" in registry.passes, "it works all the same"


def test_what_is_imported_later_is_guarded_too(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LIMIT", 0.2)
    hook = "@hookimpl\ndef dlc_passes():\n    return [Lazy('slow', 'dlc_test_deep:Slow')]\n"
    install("bad", f"from dlc import Lazy, hookimpl\n{hook}")
    install("deep", "import sys, time\nsys.setrecursionlimit(77_777)\ntime.sleep(60)\n", point="deep")
    before = sys.getrecursionlimit()
    monkeypatch.delitem(sys.modules, "dlc_test_deep", raising=False)
    registry = load_registry(["deep"], kinds=KINDS)
    with pytest.raises(DlcError, match="plugin bad: slow cannot be loaded: TooLong: it was still running") as caught:
        registry.passes["slow"].load()
    assert caught.value.exit_code == ExitCode.PLUGIN
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(("mine", "point"), [("zzz", "c"), ("aaa", "a-chip")])
def test_a_clash_with_a_built_in_one_leaves_that_as_it_is(install: Install, mine: str, point: str) -> None:
    """Wherever its name stands in the alphabet, and whether the entry point or what it offers has the name."""
    offered = GOOD.replace("count-it", "fuse") if point != "c" else ""
    install(mine, offered, point=point)
    registry = load_registry(kinds=KINDS)
    assert registry.passes["fuse"].package == "dlc"
    assert registry.backends["c"].plugin == "c" and registry.backends["c"].is_own
    (problem,) = registry.problems
    assert (problem.code, problem.severity) == ("name-clash", "warning")
    assert (f"dlc-{mine}:c" if point == "c" else "a-chip:fuse") in problem.notes[0]


def test_a_backend_named_before_the_built_in_one(install: Install) -> None:
    hook = "@hookimpl\ndef dlc_backends():\n    return [Lazy('c', 'mine:Mine')]\n"
    install("aaa", f"from dlc import Lazy, hookimpl\n{hook}")
    registry = load_registry(kinds=KINDS)
    assert registry.backends["c"].is_own and registry.backends["aaa:c"].plugin == "aaa"


def test_what_it_prints_is_kept_and_a_stream_that_it_keeps_is_stderr(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("bad", f"import sys\nprint('hello')\nkept = sys.stdout\n{GOOD.replace('count-it', 'other')}")
    install("good", GOOD)
    (problem,) = load_registry(kinds=KINDS).problems
    assert (problem.code, problem.notes) == ("plugin-output", ("hello",))
    sys.modules["dlc_test_bad"].kept.write("later\n")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "later\n")
