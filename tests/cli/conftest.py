"""The command line, run inside the test's process in a directory and with a cache of its own."""

import importlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dlc_backend_c import profiler

from dlc.cli.frame import run
from tests.cli.models import small

MODELS = Path(__file__).parent.parent / "data" / "models"


@dataclass(frozen=True)
class Ran:
    """One command line and what it gave."""

    line: str
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What --json printed: one document, and nothing else anywhere."""
        assert self.err == "", self.err
        return json.loads(self.out)

    def transcript(self) -> str:
        """For golden files: what differs from run to run is replaced."""
        parts = [f"$ dlc {self.line}"]
        for name, text in (("stdout", self.out), ("stderr", self.err)):
            if text:
                parts += [f"[{name}]", steady(text.rstrip("\n"))]
        return "\n".join([*parts, f"exit code {self.code}"])


Dlc = Callable[..., Ran]
Install = Callable[[str, str], None]


def steady(text: str) -> str:
    """Times, digests and sizes of compiled files as signs."""
    text = re.sub(r"\b[0-9a-f]{16,64}\b", "<digest>", text)
    text = re.sub(r"\b\d+\.\d+ ms\b", "<ms>", text)
    text = re.sub(r"(\d+ files), [\d.,]+ \w+", r"\1, <size>", text)
    return text.rstrip("\n")


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without a dlc.toml above it that counts, a cache of its own, and no settings of the developer's."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "dlc.toml").write_text("")
    monkeypatch.chdir(work)
    keys = ("DLC_CACHE_TRUSTED_KEYS", "DLC_CACHE_SIGNING_KEY")
    for name in ("DLC_CACHE", "DLC_CACHE_LEVELS", "DLC_CACHE_TOKEN", *keys, "FORCE_COLOR", "_DLC_COMPLETE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def dlc(capsys: pytest.CaptureFixture[str]) -> Dlc:
    """`dlc("build", "x.onnx")`: the command in the current directory."""

    def call(*arguments: object) -> Ran:
        words = [str(a) for a in arguments]
        capsys.readouterr()
        code = run(words)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Ran(" ".join(words), code, out, err)

    return call


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`install(name, code)`: what pip would leave of a distribution dlc-NAME with one module."""
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])

    def make(name: str, code: str) -> None:
        info = place / f"dlc_{name}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dlc-{name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[dlc]\n{name} = dlc_cli_test_{name}\n")
        (place / f"dlc_cli_test_{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, f"dlc_cli_test_{name}", raising=False)
        importlib.invalidate_caches()

    return make


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `small.onnx` and the program `out` that was built of it."""

    directory = tmp_path_factory.mktemp("program")
    model = directory / "small.onnx"
    model.write_bytes(small().SerializeToString())
    assert run(["build", str(model), "-o", str(directory / "out"), "--cache", "off", "-q"]) == 0
    return directory


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dlc bench` measures the memory beyond the caches: here beyond those of a small machine, which takes no time."""
    monkeypatch.setattr(profiler, "caches", lambda: {1: 32 << 10, 2: 1 << 20, 3: 8 << 20})
