"""The example plugin as a user has it: a wheel, installed into a directory of its own, and `dlc` run beside it."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import warm

SOURCE = Path(__file__).parents[1] / "plugin_example"
MODEL: dict[str, Any] = {
    "input": {"name": "x", "shape": [2, 2]},
    "layers": [
        {
            "name": "hidden",
            "weight": [[0.5, -1.0], [2.0, 0.25], [1.0, 1.0]],
            "bias": [0.0, 1.0, -0.5],
            "activation": "swish",
        },
        {"name": "out", "weight": [[0.5, -1.0, 1.0]], "bias": [0.25], "activation": "tanh"},
    ],
    "output": "y",
}


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    text: str
    """Standard output."""
    errors: str
    """Standard error."""

    @property
    def data(self) -> dict[str, Any]:
        """The document of --json."""
        return json.loads(self.text)


@dataclass(frozen=True)
class Machine:
    """A directory with an installed plugin, a cache and models."""

    home: Path

    @property
    def site(self) -> Path:
        """Where plugins are installed."""
        return self.home / "site"

    def run(self, *arguments: str | Path, module: str = "dlc") -> Done:
        """`python -m dlc ARGUMENTS` in the home directory."""
        path = os.pathsep.join(filter(None, [str(self.site), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(self.home / "cache")}
        for name in ("DLC_CACHE", "DLC_CACHE_DIR"):
            environment.pop(name, None)
        program = [warm.commands() / "dlc"] if module == "dlc" else [sys.executable, "-m", module]
        command = [*map(str, program), *map(str, arguments)]
        done = subprocess.run(command, cwd=self.home, env=environment, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def dlc(self, *arguments: str | Path) -> Done:
        """A command that succeeds."""
        done = self.run(*arguments)
        assert done.code == 0, f"{arguments}: {done.code}\n{done.text}\n{done.errors}"
        return done

    def steps(self, *arguments: str | Path) -> dict[str, bool]:
        """Step → whether the cache had it when it first came up, of `dlc build ARGUMENTS`."""
        found = self.dlc("build", *arguments, "--json").data
        return {step["step"]: step["cached"] for step in reversed(found["steps"])}

    def add(self, name: str, code: str) -> None:
        """A second plugin: a distribution with one module."""
        info = self.site / f"dlc_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dlc-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dlc]\n{name} = dlc_{name}\n")
        (self.site / f"dlc_{name}.py").write_text(code)


def build_wheel(into: Path) -> Path:
    """The plugin's wheel, made without a network."""
    source = into / "source"  # a copy: building leaves files behind
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    _pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", into, source)
    (wheel,) = into.glob("*.whl")
    return wheel


def install(wheel: Path, home: Path) -> Machine:
    """A fresh machine with the wheel installed and one model."""
    machine = Machine(home)
    _pip("install", "--no-deps", "--no-index", "--target", machine.site, wheel)
    (home / "net.mlp").write_text(json.dumps(MODEL))
    return machine


def _pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, text=True)
