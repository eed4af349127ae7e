"""Packages of `dlc plugins new`, put on the path as pip would leave them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dlc.plugins import scaffold
from dlc.verify.kit.check import Result
from dlc.verify.kit.subject import Subject
from dlc.verify.kit.table import cases, run

QUICK = "c{cpu=generic flags=-O0}"


def put(files: Mapping[str, str], name: str, distribution: str, site: Path) -> None:
    """The files, and what makes a distribution with the entry point NAME of them."""
    for place, text in files.items():
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        (site / place).write_text(text, encoding="utf-8")
    package = next(place for place in files if place.endswith("/__init__.py")).partition("/")[0]
    info = site / f"{distribution.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[dlc]\n{name} = {package}\n")
    importlib.invalidate_caches()


def make(kind: str, name: str, site: Path, *changes: tuple[str, str]) -> None:
    """A package from the templates, with texts replaced: each is in one file at least."""
    files = {place: text for place, text in scaffold.render(kind, name).items() if not place.startswith("tests/")}
    for old, new in changes:
        assert any(old in text for text in files.values()), f"{old!r} is in no file of {kind}"
        files = {place: text.replace(old, new) for place, text in files.items()}
    put(files, name, f"dlc-{scaffold.KINDS[kind].prefix}-{name}", site)


def results(name: str, only: str = "", but: tuple[str, ...] = (), targets: tuple[str, ...] = (QUICK,)) -> list[Result]:
    """What the kit finds of a plugin."""
    subject = Subject.of(name, targets)
    return [run(subject, case) for case in cases(subject, (only,) if only else ()) if case.check.name not in but]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory at the front of the path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path
