"""Whether a worker has the same dlc, plugins and libraries: what differs would give other results, or none."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping

from dlc.base.code_digest import code_digest
from dlc.base.libraries import installed
from dlc.version import __version__

_SHOWN = 12
"""Digits of a digest that a message has."""


def facts_text(text: str = "") -> str:
    """What this process runs, as JSON: name → version, with the digest of the code where it is dlc's or a plugin's."""
    from dlc.plugins.discovery import load_registry

    del text
    found = {"dlc": f"{__version__} ({code_digest('dlc')[:_SHOWN]})", "numpy": installed().get("numpy", "")}
    found["python"] = platform.python_version()
    for plugin in load_registry(kinds=()).plugins:
        state = "" if plugin.state == "ok" else f", {plugin.state}"
        found[f"plugin {plugin.name}"] = f"{plugin.version} ({code_digest(plugin.package)[:_SHOWN]}{state})"
    found["system"] = f"{platform.system()} {platform.machine()}"
    return json.dumps(found)


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """What a worker has otherwise, a line each; none where it may be used."""
    return [
        f"{name}: {here.get(name, 'not installed')} here, {there.get(name, 'not installed')} there"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]
