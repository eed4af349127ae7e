"""`benchmarks/compilers.py` finds what a compiler gets wrong, says where, and runs nothing twice."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import compilers


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    fixed = ("--cpu", "generic", "--level=-O1", "--results", f"{folder}/results.jsonl", "--json", f"{folder}/out.json")
    monkeypatch.setattr(sys, "argv", ["compilers.py", "function exp f32", "function neg i8", *arguments, *fixed])
    return compilers.main()


def test_a_wrong_compiler_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "gcc 99.1.0" && exit 0\n'
        f'exec {shutil.which("gcc")} "$@" -Dexpf=sinf -fno-builtin\n'
    )
    bad.chmod(0o755)
    assert run(monkeypatch, tmp_path, "--compiler", "gcc", "--compiler", str(bad)) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    wrong = {row["compiler"]: row["wrong"] for row in found["rows"] if row["level"] == "-O1"}
    assert wrong.pop("gcc 99.1.0") == 4 and set(wrong.values()) == {0} and found["complete"]
    assert all(w["what"].startswith("exp f32") for w in found["wrong"])
    lines = (tmp_path / "results.jsonl").read_text()
    assert run(monkeypatch, tmp_path, "--compiler", "gcc") == 0
    assert (tmp_path / "results.jsonl").read_text() == lines
