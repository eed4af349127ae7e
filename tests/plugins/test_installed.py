"""The scan of metadata agrees with importlib.metadata and survives damaged files."""

import importlib.metadata
import sys
import zipfile
from pathlib import Path

import pytest

from dlc.plugins.entry_points import entry_points


@pytest.mark.parametrize("group", ["console_scripts", "pytest11", "dlc", "absent"])
def test_the_scan_finds_what_the_standard_module_finds(group: str) -> None:
    expected = {(p.name, p.module, p.dist.version) for p in importlib.metadata.entry_points(group=group) if p.dist}
    assert {(p.name, p.module, p.version) for p in entry_points(group)} == expected


def path_of(monkeypatch: pytest.MonkeyPatch, *entries: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(entry) for entry in entries])


def distribution(place: Path, points: str, metadata: str = "Name: One\nVersion: 1\n\nName: body\n") -> None:
    information = place / "one-1.dist-info"
    information.mkdir(parents=True)
    (information / "entry_points.txt").write_bytes(points.encode("latin-1"))
    (information / "METADATA").write_text(metadata)


def test_the_first_copy_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path / "a", "[dlc]\nx = first\n")
    distribution(tmp_path / "b", "[dlc]\nx = second\n", "Name: ONE\nVersion: 2\n")
    path_of(monkeypatch, tmp_path / "absent", tmp_path / "a", tmp_path / "b")
    assert [(p.module, p.distribution, p.version) for p in entry_points("dlc")] == [("first", "One", "1")]


def test_archives_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("one-1.dist-info/entry_points.txt", "[dlc]\nx = zipped:attribute\n")
        archive.writestr("one-1.dist-info/METADATA", "Name: one\nVersion: 1\n")
    path_of(monkeypatch, tmp_path / "one.zip")
    assert [p.module for p in entry_points("dlc")] == ["zipped"]


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ("[dlc]\n# comment\nx = m [extra]\n\n[other]\ny = n\n", ["m"]),
        ("\xff\xfe[dlc\n=\n[dlc]\nx = m\nnonsense\n", ["m"]),
        ("[dlc2]\nx = m\n", []),
        ("", []),
    ],
)
def test_odd_files_are_read_as_far_as_they_go(
    points: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, points)
    path_of(monkeypatch, tmp_path)
    assert [p.module for p in entry_points("dlc")] == found
