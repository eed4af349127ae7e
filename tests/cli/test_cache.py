"""`dlc cache`: what it holds, why something misses, whether it is sound, and making room."""

import errno
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from dlc.cache.safedisk import Writer
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def test_nothing_was_ever_built(dlc: Dlc, golden: Golden, tmp_path: Path) -> None:
    for part in ("stats", "verify"):
        ran = dlc("cache", part)
        golden(f"cache/empty_{part}.txt", ran.transcript())
        assert (ran.code, ran.err) == (0, "")
    assert not (tmp_path / "cache").exists() or dlc("cache", "stats", "--json").document["records"] == 0


def test_stats_count_builds(dlc: Dlc) -> None:
    dlc("build", "small.onnx", "-q")
    first = dlc("cache", "stats", "--json").document
    dlc("build", "small.onnx", "-q")
    second = dlc("cache", "stats", "--json").document
    assert first["records"] > 0
    assert second["total"]["hits"] > first["total"]["hits"]
    assert second["total"]["misses"] == first["total"]["misses"]
    assert second["total"]["ms_saved"] > 0


def message(dlc: Dlc, *arguments: str) -> dict[str, list[str]]:
    """State → names of the steps in it, as `cache why` has them."""
    found: dict[str, list[str]] = {}
    for finding in dlc("cache", "why", "small.onnx", "--json", *arguments).document["findings"]:
        found.setdefault(finding["state"], []).append(finding["step"].partition("{")[0])
    return found


def test_why_before_and_after_a_build(dlc: Dlc) -> None:
    before = message(dlc)
    assert before["miss"] == ["onnx"]
    assert "lower" in before["unknown"]
    dlc("build", "small.onnx", "-q")
    assert set(message(dlc)) == {"hit"}


def test_why_names_the_option_that_changed(dlc: Dlc) -> None:
    dlc("build", "small.onnx", "-q")
    changed = ["--set", "fuse.max-nests=5"]
    found = message(dlc, *changed)
    assert found["miss"] == ["fuse"]
    assert "lower" in found["hit"]
    text = dlc("cache", "why", "small.onnx", *changed).out
    assert "max-nests=5" in text


def test_why_names_the_model_that_changed(dlc: Dlc) -> None:
    dlc("build", "small.onnx", "-q")
    other = small()
    other.graph.node[0].name = "renamed"
    Path("small.onnx").write_bytes(other.SerializeToString())
    findings = dlc("cache", "why", "small.onnx", "--json").document["findings"]
    assert findings[0]["state"] == "miss"
    assert findings[0]["differences"][0].startswith("input: source ")
    first, changed, unknown = dlc("cache", "why", "small.onnx").out.splitlines()
    assert first.startswith("miss  onnx{")
    assert re.fullmatch(r"        input: source [0-9a-f]{12}… → source [0-9a-f]{12}…", changed)
    assert unknown.startswith("not known yet: integers, ")


def test_why_compares_with_builds_of_the_same_model(dlc: Dlc) -> None:
    """0.1 held every hit against whatever else was there: sixteen lines about an unrelated model."""
    Path("other.onnx").write_bytes(small(3).SerializeToString())
    for model in ("small.onnx", "other.onnx"):
        dlc("build", model, "-q", "-t", "c{lib=none}", "-o", "out")
    for model in ("small.onnx", "other.onnx"):
        text = dlc("cache", "why", model, "-t", "c{lib=none}").out
        assert [line for line in text.splitlines() if not line.startswith("hit   ")] == []
    options = ["--set", "fuse.max-nests=5", "-t", "c{lib=none}"]
    dlc("build", "small.onnx", "-q", *options, "-o", "out")
    lines = dlc("cache", "why", "small.onnx", *options).out.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("hit   fuse{"))
    assert lines[at].endswith("(differs from an earlier build of this model)")
    assert re.fullmatch(r"        step: fuse\{.*=32.*\} → fuse\{.*=5.*\}", lines[at + 1])
    assert all(line.startswith("hit   ") for k, line in enumerate(lines) if k != at + 1)


def test_why_of_a_model_that_was_never_built(dlc: Dlc) -> None:
    Path("other.onnx").write_bytes(small(3).SerializeToString())
    dlc("build", "other.onnx", "-q", "-t", "c{lib=none}", "-o", "out")
    first, *rest = dlc("cache", "why", "small.onnx", "-t", "c{lib=none}").out.splitlines()
    assert first.startswith("miss  onnx{")
    assert len(rest) <= 2


def test_damage_is_found(dlc: Dlc, tmp_path: Path) -> None:
    dlc("build", "small.onnx", "-q")
    assert dlc("cache", "verify").code == ExitCode.OK
    largest = max((p for p in (tmp_path / "cache").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(largest.read_bytes())
    for at in range(0, len(content), 997):
        content[at] ^= 4
    largest.write_bytes(content)
    dlc("cache", "verify")
    assert dlc("build", "small.onnx", "-q", "-o", "again").code == ExitCode.OK
    assert dlc("cache", "verify").code == ExitCode.OK


@pytest.mark.parametrize("line", [("trim", "0B"), ("clear", "--yes")], ids=lambda line: line[0])
def test_what_could_not_be_removed_is_an_error(
    dlc: Dlc, golden: Golden, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: tuple[str, ...]
) -> None:
    """0.1 said how many entries it had planned to remove, and went with 0."""
    dlc("build", "small.onnx", "-q")
    before = dlc("cache", "stats", "--json").document

    def refused(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    def no_rows(self: Writer, names: Sequence[str] = ()) -> None:
        refused(tmp_path / "cache.db")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        patch.setattr(Writer, "delete_rows", no_rows)
        patch.setattr(Writer, "clear_rows", no_rows)
        ran = dlc("cache", *line)
        text = re.sub(r"'DIR/[^']*'", "<path>", ran.transcript().replace(str(tmp_path), "DIR"))
        text = re.sub(r"[\d.]+ \w+ left", "<size> left", re.sub(r"\d+ of \d+ entries", "N of N entries", text))
        golden(f"cache/kept_{line[0]}.txt", text)
        found = dlc("cache", *line, "--json").document
    assert ran.code == found["exit_code"] == ExitCode.MODEL
    assert (found["removed"], found["kept"]) == (0, before["records"] + before["objects"])
    assert dlc("cache", "stats", "--json").document["records"] == before["records"]


def test_a_cache_that_cannot_be_used_is_not_trimmed(dlc: Dlc, tmp_path: Path) -> None:
    dlc("build", "small.onnx", "-q")
    (tmp_path / "cache").chmod(0o777)
    ran = dlc("cache", "trim", "0B")
    assert ran.code == ExitCode.MODEL
    assert "others can write to it" in ran.err


def test_trim_and_clear(dlc: Dlc, golden: Golden) -> None:
    dlc("build", "small.onnx", "-q")
    assert dlc("cache", "trim", "--json").document["removed"] == 0
    assert dlc("cache", "trim", "0B", "--json").document["removed"] > 0
    assert dlc("cache", "stats", "--json").document["records"] == 0
    dlc("build", "small.onnx", "-q")
    ran = dlc("cache", "clear", "--yes")
    assert ran.out.endswith(" freed\n")
    assert dlc("cache", "stats", "--json").document["total"]["hits"] == 0
    golden("cache/cleared_again.txt", dlc("cache", "clear", "--yes").transcript())
