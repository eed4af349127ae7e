"""Every code that a package can raise is explained by it or by the core, and nothing else is."""

import re
from functools import cache
from pathlib import Path

import pytest

from dlc.cli.error_pages import errors_page
from dlc.cli.frame import run
from dlc.plugins.explanations import Area, areas, read_area
from tests.diagnostics.codes_raised import Codes, codes_raised
from tests.diagnostics.messages import messages

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "dlc": ROOT / "dlc",
    **{f"dlc-{d.parent.name.replace('_', '-')}": d for d in sorted(ROOT.glob("plugins/*/dlc_*")) if d.is_dir()},
}
"""Distribution → its package's directory."""


@cache
def raised() -> dict[str, Codes]:
    found = codes_raised({d.name: d for d in PACKAGES.values()})
    return {
        package: Codes(
            {
                c: at
                for c, places in found.raised.items()
                if (at := [p for p in places if Path(p).is_relative_to(folder)])
            },
            found.lost,
        )
        for package, folder in PACKAGES.items()
    }


@cache
def explained() -> tuple[Area, ...]:
    return tuple(area for area in areas() if area.package in PACKAGES)


def codes_of(package: str) -> set[str]:
    return {e.code for area in explained() if area.package == package for e in area.explanations}


def test_codes_and_explanations_go_together() -> None:
    found = raised()
    assert not found["dlc"].lost, "codes that cannot be followed to where they are written"
    for package, codes in found.items():
        assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in codes.raised)
        lacking = {c: at[0] for c, at in codes.raised.items() if c not in codes_of(package) | codes_of("dlc")}
        assert not lacking, f"add a section to a file of the folder explanations of {package}"
        assert not codes_of(package) - set(codes.raised), f"{package} explains what it does not raise"
    # In the same test, because to find where codes are raised takes seconds.
    checked = [wrong for package in found for wrong in wrong_examples(package)]
    assert len(checked) > 120
    assert not [example for example in checked if example], "examples that no call which raises the code prints"


def places(package: str, code: str) -> list[str]:
    """Where a code is raised that a package explains: by itself, or by those that leave it to the core."""
    theirs = [p for p in PACKAGES if p == package or (package == "dlc" and code not in codes_of(p))]
    return [place for p in theirs for place in raised()[p].raised.get(code, ())]


def wrong_examples(package: str) -> list[str]:
    """Of each code whose messages are all written where it is raised: its example if it is none of them, else ""."""
    found: list[str] = []
    for area in (a for a in explained() if a.package == package):
        for e in area.explanations:
            texts = [messages(place, e.code) for place in places(package, e.code)]
            if texts and all(texts):
                head = e.example.partition("\n")[0].partition("]: ")[2]
                found.append("" if any(re.search(t, head) for some in texts for t in some) else e.example)
    return found


@pytest.mark.parametrize("area", explained(), ids=lambda a: f"{a.package}: {a.title}")
def test_explanations_have_their_parts(area: Area) -> None:
    assert area.explanations
    for e in area.explanations:
        assert e.meaning and e.fix, f"{e.code}: a paragraph, a message in a block ```text, and what to do"
        assert re.match(rf"(error|warning|note)\[{e.code}\]: \S", e.example), e.code
    assert len({e.code for e in area.explanations}) == len(area.explanations)


def test_the_scan_sees_a_code_behind_functions_and_constants(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text(
        "from dlc.base.diagnostics import error\n"
        "KIND = 'of-a-constant'\n"
        "def refuse(what, code='by-default'):\n    return error(code, what)\n"
        "def unknown(kind):\n    return error(f'unknown-{kind}', 'x')\n"
        "def use(x):\n    refuse('x', 'through-a-call')\n    unknown('colour')\n    error(KIND, 'x')\n"
        "    error('one' if x else 'another', 'x')\n    error(x(), 'lost')\n"
    )
    found = codes_raised({"made": tmp_path, "dlc": ROOT / "dlc" / "base"})
    expected = {"of-a-constant", "by-default", "unknown-colour", "through-a-call", "one", "another"}
    assert expected <= set(found.raised)
    assert any("x()" in place for place in found.lost)


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "errors.md").read_text() == errors_page(), "python -m dlc.cli.error_pages > docs/errors.md"


def test_explain_prints_what_the_file_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "error[unsupported-op]"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("unsupported-op (dlc)\n\nThe model has an op")
    assert "    error[unsupported-op]: " in shown
    assert run(["explain", "unsuported-op"]) == 2
    assert "did you mean unsupported-op?" in capsys.readouterr().err


def test_a_third_partys_file_of_another_form_is_shown_as_it_is() -> None:
    area = read_area("# Odd\n\n## my-code\n\nOnly a sentence: no example.\n", "dlc-odd")
    assert area.explanations[0].text == "my-code (dlc-odd)\n\nOnly a sentence: no example."
    assert read_area("", "dlc-odd").explanations == ()
