"""`--math` and what it says of a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc
from tests.cli.models import small


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def built(dlc: Dlc, *arguments: str, target: str = "c{lib=none cpu=x86-64-v3}") -> str:
    """The options that the manifest states."""
    ran = dlc("build", "small.onnx", "-q", "-t", target, "-o", "out", *arguments)
    assert ran.code == 0, ran.err
    return json.loads(Path("out/manifest.json").read_text())["target"]


def test_the_flag_decides(dlc: Dlc) -> None:
    assert "math=fast" in built(dlc)
    assert "math=strict" in built(dlc, "--math", "strict")
    assert "math=ordered" in built(dlc, "--math", "ordered", target="c{lib=none math=strict}")


def test_the_program_tells(dlc: Dlc) -> None:
    built(dlc, "--math", "strict")
    assert "math=strict" in dlc("show", "out").out
    assert "math=strict" in Path("out/small.h").read_text()


def test_a_mode_is_another_program_for_the_cache(dlc: Dlc) -> None:
    built(dlc, "--math", "ordered")
    ordered = Path("out/small.c").read_bytes()
    built(dlc, "--math", "fast")
    assert Path("out/small.c").read_bytes() != ordered
    built(dlc, "--math", "ordered")
    assert Path("out/small.c").read_bytes() == ordered


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--math", "precise"), 'c: option math: unknown value "precise"'),
        (("--math", "fast", "-t", "s2train"), "--math: s2train computes in one way only"),
        (("-t", "c{strict-float=yes}"), "math=ordered"),
    ],
)
def test_what_cannot_be(dlc: Dlc, arguments: tuple[str, ...], message: str) -> None:
    ran = dlc("build", "small.onnx", "-q", "-o", "other", *arguments)
    assert ran.code == ExitCode.USAGE
    assert message in ran.err
    assert not Path("other").exists()
