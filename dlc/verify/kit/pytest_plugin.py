"""The checks of the kit in an author's own tests, one test for each.

    # tests/conftest.py
    pytest_plugins = ["dlc.verify.kit.pytest_plugin"]

    # tests/test_kit.py
    @pytest.mark.dlc_plugin("swish")
    def test_kit(dlc_check: Callable[[], str]) -> None:
        dlc_check()

The mark takes `targets`, `level`, `rounds` and `only` as `dlc plugins test` does. The plugin has to be installed
(`pip install -e .`): what is tested is what users get.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from dlc.verify.kit.check import Case
from dlc.verify.kit.subject import MOST, Subject
from dlc.verify.kit.table import cases, run

MARK = "dlc_plugin(name, targets=(), level=4, rounds=1, only=()): run the checks of dlc plugins test on a plugin"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", MARK)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each check of the plugin that the mark names."""
    if "dlc_check" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("dlc_plugin")
    if mark is None or len(mark.args) != 1:
        raise pytest.UsageError('dlc_check needs the name of a plugin: @pytest.mark.dlc_plugin("NAME")')
    options: dict[str, Any] = {"targets": (), "level": MOST, "rounds": 1, **mark.kwargs}
    only = options.pop("only", ())
    subject = _subject(mark.args[0], tuple(options.pop("targets")), **options)
    found = [(subject, case) for case in cases(subject, only)]
    metafunc.parametrize("dlc_check", found, ids=[str(case) for _, case in found], indirect=True)


@pytest.fixture
def dlc_check(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Runs one check; gives what it found right, fails with what is wrong and what to do, or skips with the reason."""
    subject, case = request.param

    def check() -> str:
        return _outcome(subject, case)

    return check


def _outcome(subject: Subject, case: Case) -> str:
    __tracebackhide__ = True
    result = run(subject, case)
    said = result.text + (f"\nwhat to do: {result.help}" if result.help else "")
    if result.state == "failed":
        pytest.fail(f"{result.check} of {result.subject}: {said}", pytrace=False)
    if result.state == "skipped":
        pytest.skip(said)
    return result.text


@cache
def _subject(name: str, targets: tuple[str, ...], level: int, rounds: int) -> Subject:
    """Checks of one plugin share what takes long."""
    return Subject.of(name, targets, level, rounds=rounds)
