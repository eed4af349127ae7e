"""The site builds without a warning, its links lead somewhere, and what it is generated from is complete."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import dlc
from docs.site import api, hooks
from tests.docs.blocks import ROOT

FUNCTIONS = [n for n in dlc.__all__ if n in api.exports() and api.definition(n).is_function]


class Page(HTMLParser):
    """Links and anchors of one file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" and value:
                self.anchors.add(value)


def dead_links(site: Path) -> list[str]:
    """Links to files or anchors that are not there, and requests to other hosts for a page to work."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    dead: list[str] = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                dead.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                dead.append(f"{path.relative_to(site)}: {link} (no such anchor)")
    return dead


def test_the_site_builds_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    site = tmp_path / "site"
    ran = subprocess.run(
        [sys.executable, "-m", "docs.site", "-o", str(site)],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not dead_links(site)
    made = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {f"hooks/{name}.html" for name in hooks.names()} <= made
    assert {f"api/{name}.html" for name in (*api.exports(), *api.MODULES)} <= made
    assert {p.with_suffix(".html").name for p in (ROOT / "docs").glob("*.md")} - {"README.html"} <= made
    assert "dlc_frontends" in (site / "search" / "search_index.js").read_text(encoding="utf-8")
    (site / "odd.html").write_text('<a href="absent.html">x</a><a href="index.html#absent">y</a>', encoding="utf-8")
    assert len(dead_links(site)) == 2, "a dead link is found"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_and_results_of_public_functions_are_described(name: str) -> None:
    found = api.definition(name)
    sections = {s.kind.value: s for s in api.sections(found)}
    described = {p.name: p.description for p in sections["parameters"].value} if "parameters" in sections else {}
    assert not [p.name for p in found.parameters if not described.get(p.name.lstrip("*"), "").strip()]
    assert found.returns is None or [r for r in sections["returns"].value if r.description.strip()]


def test_fields_of_what_plugins_make_and_get_are_named() -> None:
    pages = api.pages()
    named = {
        "Artifact": ("signature", "facts"),
        "ExitCode": ("TOOL",),
        "Plan": ("graph", "slots"),
        "dlc.api.plan": ("offset",),
        "dlc.schedules": ("params", "nests", "start_of"),
        "dlc.runtime.manifest": ("data",),
    }
    for page, names in named.items():
        missing = [
            n for n in names if f"| `{n}` |" not in pages[f"{page}.md"] and f"### {n}\n" not in pages[f"{page}.md"]
        ]
        assert not missing, page


def test_marks_are_of_names_that_exist() -> None:
    assert set(dlc.__all__) >= dlc.STABLE
    assert api.mark("build") == "stable"
    assert api.mark("a-new-name") == "experimental", "until somebody says otherwise"
    assert hooks.mark("dlc_frontends") == "stable"
    assert hooks.mark("dlc_schedules") == "experimental"


@pytest.mark.parametrize("name", hooks.names())
def test_every_hook_has_an_example_that_fits_its_declaration(name: str) -> None:
    """Those of the example plugin run in tests/plugins; those of pages run here, and are registered as a plugin is."""
    from types import ModuleType

    from pluggy import PluginManager

    from dlc.plugins import hookspecs

    source, files = hooks.example(name, ROOT)
    assert source == hooks.EXAMPLE or (ROOT / "docs" / source).exists()
    if source != hooks.EXAMPLE:
        module = ModuleType("example")
        module.__file__ = "example.py"
        exec(compile(files[0][1], source, "exec"), vars(module))
        manager = PluginManager("dlc")
        manager.add_hookspecs(hookspecs)
        manager.register(module)
        manager.check_pending()
        assert getattr(manager.hook, name).get_hookimpls()


def test_a_hook_without_an_example_is_an_error() -> None:
    with pytest.raises(LookupError, match="no example of dlc_nothing"):
        hooks.example("dlc_nothing", ROOT)
