"""The list of cases that are left out by default names cases that exist, and no test as a whole."""

from pathlib import Path

from tests.lanes import LONG_TESTS

ROOT = Path(__file__).parents[1]


def test_other_cases_always_run() -> None:
    lines = LONG_TESTS.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines))
    for line in lines:
        name, case = line.split("[", 1)
        path, function = name.split("::")
        assert case and case != "*", f"{line}: a case of a test, which has others"
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), line
