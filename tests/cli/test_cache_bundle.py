"""`dlc cache export | import`: a build on another machine hits everything."""

import os
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another home and another directory, with the same model."""
    place = tmp_path / "elsewhere/deep"
    place.mkdir(parents=True)
    (place / "dlc.toml").write_text("")
    (place / "small.onnx").write_bytes(Path("small.onnx").read_bytes())
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere/home"))
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "elsewhere/cache"))
    monkeypatch.chdir(place)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_an_empty_machine_hits_everything(
    dlc: Dlc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    for _ in range(1 + warm):
        dlc("build", "small.onnx", "-q", "-o", "out")
    out = dlc("cache", "export", "-o", tmp_path / "b.dlccache", "--json").document
    assert out["records"] > 10
    assert out["file_size"] == (tmp_path / "b.dlccache").stat().st_size
    made = {path.name: path.read_bytes() for path in Path("out").iterdir() if path.is_file()}
    if warm:
        dlc("cache", "export", "--all", "-o", tmp_path / "all.dlccache")
        assert (tmp_path / "all.dlccache").read_bytes() == (tmp_path / "b.dlccache").read_bytes()
    elsewhere(tmp_path, monkeypatch)
    first = dlc("cache", "import", tmp_path / "b.dlccache", "--json").document
    again = dlc("cache", "import", tmp_path / "b.dlccache", "--json").document
    assert (first["new"], again["new"]) == (first["entries"], 0)
    built = dlc("build", "small.onnx", "--cache", "require", "-o", "out", "--json").document
    assert (built["ok"], built["cache"]["misses"]) == (True, 0)
    assert {path.name: path.read_bytes() for path in Path("out").iterdir() if path.is_file()} == made
    assert dlc("build", "small.onnx", "-q", "--cache", "require", "--explain", "fuse").code == ExitCode.OK


def test_only_the_last_build_or_all_of_them(dlc: Dlc, tmp_path: Path) -> None:
    Path("other.onnx").write_bytes(small(3).SerializeToString())
    dlc("build", "small.onnx", "-q", "-t", "c{lib=none}")
    Path("marker").touch()
    os.utime("marker", (1, 1))
    dlc("build", "other.onnx", "-q", "-t", "c{lib=none}")

    def records(*flags: str) -> int:
        return dlc("cache", "export", "-o", tmp_path / "b", *flags, "--json").document["records"]

    last = records("--since-build")
    assert records() == last
    assert records("--since", "marker") == records("--all") > last
    Path("marker").touch()
    os.utime("marker", (1e10, 1e10))
    assert dlc("cache", "export", "-o", tmp_path / "b", "--since", "marker").code == ExitCode.USAGE


def test_errors(dlc: Dlc, golden: Golden, tmp_path: Path) -> None:
    Path("text.dlccache").write_text("not a bundle at all")
    lines = [
        ("export", "-o", "b"),
        ("export", "-o", "b", "--all", "--since-build"),
        ("export", "-o", "b", "--since", "absent"),
        ("export", "-o", "absent/b", "--all"),
        ("import", "absent.dlccache"),
        ("import", "text.dlccache"),
    ]
    texts = [dlc("cache", *line).transcript().replace(str(tmp_path), "DIR") for line in lines]
    golden("cache/bundle_errors.txt", "\n\n".join(texts))
    dlc("build", "small.onnx", "-q", "-t", "c{lib=none}")
    dlc("cache", "export", "-o", "b.dlccache")
    Path("short.dlccache").write_bytes(Path("b.dlccache").read_bytes()[:-3000])
    ran = dlc("cache", "import", "short.dlccache", "--cache-dir", tmp_path / "new")
    assert ran.code == ExitCode.MODEL
    assert "is truncated: it ends after" in ran.err
    assert "members before that were read" in ran.err
