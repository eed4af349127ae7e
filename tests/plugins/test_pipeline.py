"""Targets and pipelines, resolved with their origins."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlc.base.diagnostics import DlcError
from dlc.config.config import Config, default_config
from dlc.config.file import load_config
from dlc.driver.pipeline import resolve
from dlc.plugins.discovery import load_registry
from dlc.plugins.registry import Registry

PLUGIN = """
from dataclasses import dataclass
from dlc import Backend, Pass, hookimpl, option

@dataclass(frozen=True)
class First(Pass):
    name = "first"
    size: int = option(1, "size")
    def run(self, state, report):
        return state

@dataclass(frozen=True)
class Second(Pass):
    name = "second"
    fast: bool = option(False, "hurry")
    def run(self, state, report):
        return state

@dataclass(frozen=True)
class Paper(Backend):
    name = "paper"
    pipeline = "both"
    width: int = option(80, "columns")
    def settings(self):
        return {"first": {"size": str(self.width // 10)}, "absent": {"x": "1"}} if self.width > 80 else {}
    def emit(self, plan, report):
        raise AssertionError

@hookimpl
def dlc_passes():
    return [First, Second]

@hookimpl
def dlc_backends():
    return [Paper]

@hookimpl
def dlc_pipelines():
    return {"both": "first,second"}
"""

TOML = """\
[pipeline]
mine = ["first{size=2}", "both"]
loop = "first,again"
again = "second,loop"
[target.sheet]
backend = "paper{width=40}"
pipeline = "mine"
"""


@pytest.fixture
def registry(install: Callable[..., None]) -> Registry:
    install("paper", PLUGIN)
    return load_registry(kinds=("backends", "passes", "pipelines"))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "dlc.toml").write_text(TOML)
    return load_config(tmp_path)


def test_a_backend_brings_its_own_pipeline(registry: Registry) -> None:
    pipeline = resolve(registry, default_config(), "paper{width=20}")
    assert pipeline.text == "first{size=1},second{fast=no}"
    assert str(pipeline.backend) == "paper{width=20}"
    assert pipeline.backend_package == "dlc_test_paper"


def test_a_target_of_the_configuration(registry: Registry, config: Config) -> None:
    assert str(resolve(registry, config, "sheet")).splitlines() == [
        "pipeline mine  (dlc.toml:7)",
        "  1 first{size=2}",
        "  2 first{size=1}",
        "  3 second{fast=no}",
        "target paper{width=40}",
    ]


def test_settings_and_removals_apply_in_every_place(registry: Registry, config: Config) -> None:
    pipeline = resolve(registry, config, "sheet", settings=["first.size=7"], without=["second"])
    assert pipeline.text == "first{size=7},first{size=7}"
    assert str(pipeline).splitlines()[1] == "  1 first{size=7}  size from --set"


def test_the_flag_replaces_the_pipeline(registry: Registry, config: Config) -> None:
    pipeline = resolve(registry, config, "sheet", pipeline="second{fast=yes}, both")
    assert pipeline.text == "second{fast=yes},first{size=1},second{fast=no}"
    assert pipeline.origin == "--pipeline"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pipeline": "thrid"}, "there is no pass thrid"),
        ({"pipeline": "frist"}, "did you mean first?"),
        ({"pipeline": "loop"}, "pipeline loop contains itself: loop → again → loop"),
        ({"pipeline": "both{x=1}"}, "pipeline both takes no options"),
        ({"pipeline": "first{sise=1}"}, "first has no option sise"),
        ({"settings": ["third.size=1"]}, "--set: the pipeline has no pass third"),
        ({"settings": ["first.sise=1"]}, "first has no option sise"),
        ({"settings": ["first.size=x"]}, '"x" is not an integer'),
        ({"without": ["secnd"]}, "did you mean second?"),
        ({"target": "sheat"}, "did you mean sheet?"),
        ({"target": "paper{widht=1}"}, "did you mean width?"),
    ],
)
def test_what_is_wrong_or_has_no_effect_is_said(
    registry: Registry, config: Config, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(DlcError) as caught:
        resolve(registry, config, **{"target": "sheet", **arguments})  # pyright: ignore[reportArgumentType]
    assert message in str(caught.value)


def test_a_pipeline_cannot_hide_a_pass(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "dlc.toml").write_text('[pipeline]\nfirst = "second"\n')
    with pytest.raises(DlcError, match="pipeline first has the name of a pass"):
        resolve(registry, load_config(tmp_path), "paper")


def test_a_target_sets_what_nobody_chose(registry: Registry) -> None:
    """Its wish is seen in the pipeline with its origin; an option in a pipeline's text or a flag is the user's."""

    def first(pipeline: str, *settings: str) -> tuple[str, str]:
        step = resolve(registry, default_config(), "paper{width=200}", pipeline=pipeline, settings=settings).steps[0]
        return str(step.stage), step.origins.get("size", "")

    assert first("both") == ("first{size=20}", "backend paper")
    assert first("first{size=1}") == ("first{size=1}", "")
    assert first("both", "first.size=3") == ("first{size=3}", "--set")
    assert "size" not in resolve(registry, default_config(), "paper").steps[0].origins
