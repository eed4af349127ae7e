"""Pages in a real browser: nothing wider than the screen, text to be read, keyboards, no scripts from models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dlc_backend_s2train.cost.report import timeline_html

from dlc.base.diagnostics import escape
from dlc.cache.step_record import StepRecord
from dlc.html.build import report_html
from dlc.html.diff import difference_html
from dlc.html.plan import plan_html, view_of
from dlc.record.build import plans_of
from dlc.record.diff import difference
from dlc.record.record import Record
from dlc.training.loop.curve import curve_html
from dlc.training.loop.loop import Epoch, Score, State
from tests.backend_s2train.programs import PROGRAMS
from tests.cli.models import EVIL, evil
from tests.cli.records import planned, record_of, steps_of
from tests.models.zoo import light
from tests.tools import program

pytestmark = pytest.mark.needs("chromium", "chromedriver")

CHECKS = (Path(__file__).parent / "page.js").read_text()
OUTLINE = "const s = getComputedStyle(document.activeElement); return [s.outlineStyle, parseFloat(s.outlineWidth)]"
PIPELINE = "expand,lower,order,plan-memory"
HOSTILE = (
    EVIL,
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    '\'"><svg onload="window.hacked = 1">',
    "{{ 7 * 7 }}{% raw %}",
    "word" * 100,
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One session for all pages."""
    from selenium import webdriver

    options: Any = webdriver.ChromeOptions()
    options.binary_location = program("chromium")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver: Any = webdriver.Chrome(options, webdriver.ChromeService(program("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def resnet_steps(tmp_path_factory: pytest.TempPathFactory) -> Sequence[StepRecord[Any]]:
    return steps_of(light("resnet50"), tmp_path_factory.mktemp("resnet"), PIPELINE)


@pytest.fixture(scope="module")
def resnet(resnet_steps: Sequence[StepRecord[Any]]) -> Record:
    record = record_of(resnet_steps, PIPELINE)
    times = {s.step: s.ms for s in record.runs[0].steps}
    (main,) = record.functions
    return replace(
        record, functions=(replace(main, layers=tuple(replace(x, ms=times[x.number]) for x in main.layers)),)
    )


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Names of everything that comes from a model."""
    made = evil()
    for k, node in enumerate(made.graph.node):
        node.name = HOSTILE[1 + k]
    record = planned(made, tmp_path_factory.mktemp("hostile"))
    (main,) = record.functions
    rest = [replace(main.layers[0], number=len(main.layers) + k, nodes=(name,)) for k, name in enumerate(HOSTILE)]
    last = record.graph[-1]
    nodes = [replace(last, names=(name,), layers=(x.number,)) for name, x in zip(HOSTILE, rest, strict=True)]
    return replace(
        record,
        model=HOSTILE[2],
        facts={name: name for name in HOSTILE},
        graph=(*record.graph, *nodes),
        functions=(replace(main, layers=(*main.layers, *rest)),),
        kernels=tuple(replace(k, symbol=HOSTILE[1], schedule=HOSTILE[6]) for k in record.kernels),
    )


def trained() -> State:
    """A run of three epochs with validation, the second of which is the best."""
    epochs = [Epoch(k + 1, 7, 2.0 / (k + 1), Score(abs(k - 1) + 0.5, {"accuracy": 0.4 + k / 5}), 0.5) for k in range(3)]
    state = State(epoch=3, history=epochs, best=2)
    for k in range(21):
        state.trace.add(2.0 / (k + 1))
    return state


@pytest.fixture(scope="module")
def pages(
    tmp_path_factory: pytest.TempPathFactory, resnet_steps: Sequence[StepRecord[Any]], resnet: Record, hostile: Record
) -> dict[str, str]:
    """Name → URL."""
    place = tmp_path_factory.mktemp("pages")
    plans = plans_of(resnet_steps)
    views = [view_of(plan, name, strategy, 0.1) for name, plan in plans.items() for strategy in ("none", HOSTILE[1])]
    found = {
        "plan": plan_html(HOSTILE[2], "c{cpu=generic}", views),
        "training": curve_html(HOSTILE[2], [("optimizer", HOSTILE[1])], trained(), None, 7),
        "timeline": timeline_html(PROGRAMS["linear_step"](), HOSTILE[2]),
        "resnet": report_html(resnet),
        "hostile": report_html(hostile, tuple(HOSTILE[1:3])),
        "difference": difference_html(difference(resnet, hostile)),
    }
    for name, text in found.items():
        (place / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: (place / f"{name}.html").as_uri() for name in found}


def look(browser: Any, width: int, theme: str) -> None:
    """A screen so wide, for people who want this theme."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wish = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wish})


@pytest.mark.parametrize("page", ["resnet", "hostile", "difference", "plan", "training", "timeline"])
def test_it_can_be_read(browser: Any, pages: dict[str, str], page: str) -> None:
    look(browser, 1400, "light")
    browser.get(pages[page])
    grounds: set[str] = set()
    for theme in ("light", "dark"):
        for width in (360, 1400):
            look(browser, width, theme)
            assert browser.execute_script(CHECKS) == [], (theme, width)
        grounds.add(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2, "the theme makes no difference"
    assert browser.get_log("browser") == []


def test_the_checks_find_what_is_wrong(browser: Any, tmp_path: Path) -> None:
    """A page with one mistake of each kind."""
    path = tmp_path / "wrong.html"
    path.write_text(
        "<h1>a</h1><h3 id=x>b</h3><p id=x style='width: 2000px; color: #999; background: #fff'>pale</p>"
        "<a href='#none'>c</a><table><tr><th>d</table><div class=scroll></div><div role=region></div>"
        "<svg><rect width=300 height=90 fill='#333'/><text x=9 y=40>dark</text></svg><script>hacked = 1</script>"
    )
    look(browser, 360, "light")
    browser.get(path.as_uri())
    found = "; ".join(browser.execute_script(CHECKS))
    for sign in (
        "2008 > 360",
        'contrast 2.85: P#x. "pale"',
        'contrast 1.66: text. "dark"',
        "only 6 texts",
        "ids that occur twice",
        "#none leads nowhere",
        "no caption",
        "without scope",
        "no label: DIV",
        "keyboards cannot scroll",
        "not one header",
        "h3 after h1",
        "a name of the model ran",
    ):
        assert sign in found, sign


def test_names_are_shown_as_they_are(browser: Any, pages: dict[str, str]) -> None:
    browser.get(pages["hostile"])
    text = browser.execute_script("return document.body.textContent")
    for name in HOSTILE:
        assert escape(name) in text
    assert browser.title == f"dlc: {HOSTILE[2]}"
    assert browser.execute_script("return document.querySelectorAll('script, img, iframe').length") == 2


def test_keyboards_go_through_it(browser: Any, pages: dict[str, str]) -> None:
    """Forwards in the order of the page, with a visible mark; layers unfold by a key; links lead to layers."""
    from selenium.webdriver.common.keys import Keys

    look(browser, 1400, "light")
    browser.get(pages["resnet"])
    browser.execute_script("document.body.focus()")
    visited: list[Any] = []
    for _ in range(20):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        visited.append(browser.switch_to.active_element)
        shown, width = browser.execute_script(OUTLINE)
        assert (shown, width >= 2) == ("solid", True)
    assert visited[0].get_attribute("class") == "skip"
    follows = "return arguments.length < 2 || !!(arguments[0].compareDocumentPosition(arguments[1]) & 4)"
    assert all(browser.execute_script(follows, a, b) for a, b in pairwise(visited))
    assert len(set(visited)) == len(visited)
    button = browser.find_element("css selector", "#folded [role=button]")
    count = "return document.querySelectorAll('#folded svg .box').length"
    folded, layer = browser.execute_script(count), button.get_attribute("data-layer")
    browser.execute_script("arguments[0].focus()", button)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    again = browser.switch_to.active_element
    assert (again.get_attribute("data-layer"), again.get_attribute("aria-expanded")) == (layer, "true")
    assert browser.execute_script(count) > folded
    again.send_keys(Keys.SPACE)
    assert browser.execute_script(count) == folded
    assert browser.switch_to.active_element.get_attribute("aria-expanded") == "false"
    link = browser.find_element("css selector", "#folded a")
    browser.execute_script("arguments[0].focus()", link)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    target = browser.execute_script("return document.querySelector(':target').id")
    assert f"#{target}" == link.get_dom_attribute("href")
    node = browser.find_element("css selector", f"#{target} a[href^='#node-']")
    browser.execute_script("arguments[0].click()", node)
    inside = "const t = document.querySelector(':target'); return t.closest('details').open && t.id"
    assert browser.execute_script(inside) == node.get_dom_attribute("href")[1:]


def test_screen_readers_find_landmarks(browser: Any, pages: dict[str, str]) -> None:
    browser.get(pages["hostile"])
    browser.execute_cdp_cmd("Accessibility.enable", {})
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    browser.execute_cdp_cmd("Accessibility.disable", {})
    roles = [n["role"]["value"] for n in tree if not n["ignored"]]
    assert {"banner", "navigation", "main", "contentinfo", "region", "table", "heading"} <= set(roles)
    for n in tree:
        if not n["ignored"] and n["role"]["value"] in ("button", "link", "region", "table", "heading", "navigation"):
            assert n.get("name", {}).get("value", "").strip(), n


def test_without_scripts(browser: Any, pages: dict[str, str]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(pages["resnet"])
        assert not browser.find_element("id", "folded").is_displayed()
        assert browser.find_element("css selector", "details.drawn svg").is_displayed()
        assert browser.find_element("css selector", "#layer-3").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
