"""`dlc plugins new`: each kind of package is clean, its tests pass at once, and nothing is ever half-written."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dlc import DlcError
from dlc.base.diagnostics import ExitCode
from dlc.plugins import scaffold
from dlc.verify.kit import backends, node_tests, passes
from tests.plugins.packages import make, results, site

__all__ = ["site"]

SLOW = ("frontend-hostile", "import-hostile", "backend-bytes", "backend-keys", "op-pack")
"""Checks that take long, or that a package's own tests repeat: benchmarks/plugin_kinds.py runs them all."""


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_the_kit_finds_nothing_wrong(kind: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tests, "BUILT", 3)
    monkeypatch.setattr(backends, "GRAPHS", 2)
    monkeypatch.setattr(backends, "OPS", 16)
    monkeypatch.setattr(backends, "_ASKED", 10)
    monkeypatch.setattr(passes, "GRAPHS", 8)
    make(kind, f"sound-{kind}", site, *([('"-O1"', '"-O0"')] if kind == "kernel-backend" else ()))
    found = results(f"sound-{kind}", but=SLOW)
    assert [f"{r.check}: {r.text}" for r in found if r.state != "ok"] == []
    assert len(found) >= 5


def test_templates_are_kinds_and_the_page_has_them_all() -> None:
    templates = Path(scaffold.__file__).with_name("templates")
    assert {place.name for place in templates.iterdir()} - {"common"} == set(scaffold.KINDS)
    page = (Path(__file__).parents[2] / "docs" / "plugin-kit.md").read_text(encoding="utf-8")
    assert [kind for kind in scaffold.KINDS if f"\n| `{kind}` | " not in page] == []


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of each kind, with a short and a long name."""
    top = tmp_path_factory.mktemp("packages")
    for kind in scaffold.KINDS:
        for name, place in ((f"{kind[0]}{len(kind)}", kind), (f"{kind}-{'x' * 30}"[:24], f"long/{kind}")):
            for file, text in scaffold.render(kind, name).items():
                (top / place / file).parent.mkdir(parents=True, exist_ok=True)
                (top / place / file).write_text(text)
    return top


def test_packages_are_clean(packages: Path) -> None:
    for command in (["check"], ["format", "--check"]):
        line = [sys.executable, "-m", "ruff", *command, "--no-cache", "."]
        done = subprocess.run(line, cwd=packages, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_their_own_tests_pass_at_once(packages: Path) -> None:
    """All in one process, with the kit's checks that take no time: the plugin of pytest runs them."""
    site = packages / "site"
    site.mkdir()
    for kind in scaffold.KINDS:
        project = tomllib.loads((packages / kind / "pyproject.toml").read_text())
        name, package = next(iter(project["project"]["entry-points"]["dlc"].items()))
        (site / package).symlink_to(packages / kind / package)
        info = site / f"{project['project']['name'].replace('-', '_')}-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['project']['name']}\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text(f"[dlc]\n{name} = {package}\n")
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    chosen = "not test_kit or versions or documented"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-k", chosen]
    tests = [str(packages / kind / "tests") for kind in scaffold.KINDS]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [*command, *tests], cwd=packages, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("kind", "name", "message", "help"),
    [
        ("pases", "x", "no kind of plugin", "did you mean pass"),
        ("pass", "My_Pass", "cannot be the name", "my-pass"),
        ("pass", "2d", "cannot be the name", "d"),
        ("pass", "a--b", "cannot be the name", "a-b"),
        ("pass", "../up", "cannot be the name", "up"),
        ("pass", "x" * 25, "cannot be the name", "24 letters"),
        ("pass", "", "cannot be the name", "letter"),
        ("pass", "class", "Python has the word class", "another name"),
        ("backend", "none", "Python has the word None", "another name"),
        ("backend", "samples", "another file samples.py", "another name"),
        ("kernel-backend", "c-code", "another file c_code.py", "another name"),
        ("kernel-backend", "reason", "uses Reason of another module", "another name"),
        ("pass", "fuse", "among the passes already, of plugin core", "another name"),
        ("backend", "c", "a plugin c is installed", "another name"),
        ("importer", "onnx", "a plugin onnx is installed", "another name"),
    ],
)
def test_names_are_checked_before_anything_is_written(
    kind: str, name: str, message: str, help: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DlcError, match=message) as caught:
        scaffold.write_package(kind, name)
    assert caught.value.exit_code is ExitCode.USAGE
    assert help in caught.value.diagnostics[0].help
    assert not list(tmp_path.iterdir())


def test_a_package_is_written_where_it_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for directory, where in ((None, "dlc-pass-some-pass"), (Path("empty"), "empty"), (Path("new/below"), "new/below")):
        written = scaffold.write_package("pass", "some-pass", directory)
        found = {str(p.relative_to(tmp_path / where)) for p in (tmp_path / where).rglob("*") if p.is_file()}
        assert found == set(written.files) == set(scaffold.render("pass", "some-pass"))
        assert written.directory == Path(where)


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(DlcError, match="is there already"):
        scaffold.write_package("pass", "some-pass", tmp_path / "mine")
    with pytest.raises(DlcError, match="cannot be written"):
        scaffold.write_package("pass", "some-pass", tmp_path / "mine" / "file" / "below")
    assert [p.name for p in tmp_path.rglob("*")] == ["mine", "file"]


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing = Path.write_text

    def full(self: Path, *args: object, **given: object) -> int:
        if self.name == "samples.py":
            raise OSError(28, "No space left on device")
        return writing(self, *args, **given)  # type: ignore[arg-type]  # pyright: ignore

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DlcError, match="No space left on device"):
        scaffold.write_package("pass", "some-pass", tmp_path / "new")
    assert not list(tmp_path.iterdir())
