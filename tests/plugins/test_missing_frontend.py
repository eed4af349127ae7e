"""dlc without its frontends names the package that is missing."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError
from dlc.plugins.discovery import list_plugins, load_registry
from dlc.plugins.plugin import EXTRAS
from dlc.plugins.registry import Registry
from dlc.spec import Spec

ROOT = Path(__file__).parents[2]


def bare() -> Registry:
    """What `pip install dlc` alone has."""
    alone = load_registry([p.name for p in list_plugins()], ("frontends", "backends"))
    return replace(alone, plugins=tuple(p for p in alone.plugins if p.state != "blocked"))


@pytest.mark.parametrize(
    ("file", "help"),
    [
        ("model.onnx", '.onnx needs another package: pip install "dlc[onnx,c]"'),
        ("blur.kernel", '.kernel needs another package: pip install "dlc[kernel,c]"'),
        ("model.pt2", '.pt2 needs another package: pip install "dlc[torch,c]"'),
        ("notes.txt", "known formats: .dlc"),
    ],
)
def test_the_package_of_a_format_is_named(file: str, help: str) -> None:
    with pytest.raises(DlcError) as found:
        bare().frontend_for(Source(data=b"", label=file))
    assert found.value.diagnostics[0].code == "unknown-format"
    assert found.value.diagnostics[0].help.startswith(help)


def test_a_plugin_that_is_disabled_is_not_to_be_installed_again() -> None:
    without = load_registry([p.name for p in list_plugins()], ("frontends", "backends"))
    with pytest.raises(DlcError) as found:
        without.frontend_for(Source(data=b"", label="model.onnx"))
    assert "installed but not used" in found.value.diagnostics[0].help


@pytest.mark.parametrize("name", ["c", "s2train"])
def test_the_command_that_installs_a_backend_is_said(name: str) -> None:
    with pytest.raises(DlcError) as found:
        bare().backend_class(Spec(name))
    assert found.value.diagnostics[0].code == "unknown-backend"
    assert found.value.diagnostics[0].help == f'pip install "dlc[{name}]"'


def test_extras_are_those_of_the_package_in_lock_step() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {name: extras[name] for name in EXTRAS} == {n: [f"{d}=={project['version']}"] for n, d in EXTRAS.items()}
    assert extras["all"] == [f"dlc[{','.join(EXTRAS)}]"]
    plugins = [tomllib.loads(p.read_text())["project"] for p in ROOT.glob("plugins/*/pyproject.toml")]
    assert {p["name"]: p["version"] for p in plugins} == dict.fromkeys(EXTRAS.values(), project["version"])
    assert all(f"dlc=={project['version']}" in p["dependencies"] for p in plugins)
    assert all(p.get("urls") == project.get("urls") for p in plugins)
