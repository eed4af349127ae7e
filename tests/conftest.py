"""Fixtures that every area uses."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, so that a change fails for what it changed. To search for new ones:
#   pytest --hypothesis-profile=explore
settings.register_profile("gate", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile("gate")

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite golden files with what the code gives now")


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
