"""Fixtures that every area uses, the choice of the quick tests, where time goes, and what a machine lacks."""

import gc
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from tests.lanes import mark_long, mark_quick, seconds_of_folders, write_slow
from tests.programs import SHARED, choose_programs, declared, write_programs
from tests.tools import FOR_LONG, OTHERS, PACKAGES, missing

# The same examples in every run, so that a change fails for what it changed. To search for new ones:
#   pytest --hypothesis-profile=explore
settings.register_profile("gate", derandomize=True, deadline=None, database=None, max_examples=25)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile("gate")

# Tests start Python hundreds of times. Where an image forbids to keep bytecode, each start would compile dlc again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Workers share the processor already: threads of theirs would wait for each other in busy loops, which costs more than
# all that they compute. Numpy and torch read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite golden files with what the code gives now")
    parser.addoption("--update-slow", action="store_true", help="judge in slow.txt what runs by the time that it takes")


def pytest_configure(config: pytest.Config) -> None:
    # A shell without job control starts what runs in the background with Ctrl-C ignored, and processes inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not is_worker(config):
        place = TemporaryDirectory(prefix="dlc-tests-")
        config.add_cleanup(place.cleanup)
        os.environ[SHARED] = place.name
        write_programs(Path(place.name, "programs"))
        # What the user trusts, and the key of the user's cache, are none of the tests' business; workers share a key.
        os.environ["XDG_STATE_HOME"] = str(Path(place.name, "state"))


def pytest_collection() -> None:
    gc.disable()  # what is collected stays


def pytest_collection_finish() -> None:
    # A million objects that stay until the end. Tests allocate much, and without this a third of their time goes into
    # looking for garbage among them.
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(1_000_000, 50, 100)  # as the command line does: graphs and kernels have no cycles


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_quick(items)
    mark_long(items)


def pytest_sessionstart(session: pytest.Session) -> None:
    # A gate that leaves tests out has not tested, so there what is missing is an error.
    absent = "" if is_worker(session.config) else missing()
    if absent and os.environ.get("CI") == "true":
        raise pytest.UsageError(f"CI=true, and tests need what is not here: {absent}")


@pytest.hookimpl(tryfirst=True)  # fixtures of the test build with it too
def pytest_runtest_setup(item: pytest.Item) -> None:
    needed = [tool for mark in item.iter_markers("needs") for tool in mark.args]
    tools = declared(item)
    if unknown := tools - {*PACKAGES, *FOR_LONG, *OTHERS}:
        raise pytest.UsageError(f"tests/tools.py does not have {', '.join(sorted(unknown))}")
    if absent := missing(needed):
        pytest.skip(f"not installed: {absent}")
    choose_programs(Path(os.environ[SHARED], "programs"), Path(item.nodeid.partition("::")[0]), tools)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        seen = ", ".join(["gcc", *sorted(declared(item))])
        report.sections.append(("programs", f"this test sees {seen}: what else it uses it declares (tests/tools.py)"))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = [report for reports in terminalreporter.stats.values() for report in reports]
    reports = [report for report in found if isinstance(report, pytest.TestReport)]
    if terminalreporter.config.getoption("--update-slow"):
        write_slow(reports)
    if len(folders := seconds_of_folders(reports)) > 1:
        terminalreporter.section("seconds of all workers by folder")
        terminalreporter.write_line(", ".join(f"{name} {seconds:,.0f}" for name, seconds in folders.items()))
    if absent := missing():
        terminalreporter.write_line(f"left out, because this machine lacks it: tests with {absent}")


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for another one that reports."""
    return hasattr(config, "workerinput")


@pytest.fixture(scope="session")
def shared() -> Path:
    """A directory of all workers, for caches: what one has built is there for the others. It goes with the run."""
    return Path(os.environ[SHARED])


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, text)`: `text` equals the file `golden/NAME` beside the test; `--update` rewrites the file."""

    def check(name: str, text: str) -> None:
        path = Path(request.path).parent / "golden" / name
        text = text if text.endswith("\n") else text + "\n"
        if request.config.getoption("--update"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} does not exist; run pytest --update and read it before committing"
        assert text == path.read_text(encoding="utf-8")

    return check
