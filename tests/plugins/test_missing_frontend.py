"""dlc without its frontends names the package that is missing."""

from dataclasses import replace

import pytest

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError
from dlc.plugins.discovery import list_plugins, load_registry


@pytest.mark.parametrize(
    ("file", "help"),
    [
        ("model.onnx", ".onnx needs another package: pip install dlc-frontend-onnx"),
        ("blur.kernel", ".kernel needs another package: pip install dlc-frontend-kernel"),
        ("notes.txt", "known formats: .dlc"),
    ],
)
def test_the_package_of_a_format_is_named(file: str, help: str) -> None:
    alone = load_registry([p.name for p in list_plugins()], ("frontends", "backends"))
    alone = replace(alone, plugins=tuple(p for p in alone.plugins if p.state != "blocked"))
    with pytest.raises(DlcError) as found:
        alone.frontend_for(Source(data=b"", label=file))
    assert found.value.diagnostics[0].code == "unknown-format"
    assert found.value.diagnostics[0].help.startswith(help)


def test_a_plugin_that_is_disabled_is_not_to_be_installed_again() -> None:
    without = load_registry([p.name for p in list_plugins()], ("frontends", "backends"))
    with pytest.raises(DlcError) as found:
        without.frontend_for(Source(data=b"", label="model.onnx"))
    assert "installed but not used" in found.value.diagnostics[0].help
