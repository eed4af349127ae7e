"""`--machine` and `dlc list machines`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dlc_backend_c.backend import C

from dlc.api.profile import MeasuredMachine
from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc
from tests.cli.models import small

ODD = "vector-bytes = 16\nregisters = 11\nl1 = '24KiB'\nl2 = '200KiB'\n"


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("odd.toml").write_text(ODD)


def source(dlc: Dlc, *arguments: str) -> str:
    ran = dlc("build", "small.onnx", "-q", "-t", "c{lib=none}", "-o", "out", *arguments)
    assert ran.code == 0, ran.err
    return Path("out/small.c").read_text()


def test_code_is_for_the_machine_of_a_file(dlc: Dlc) -> None:
    text = source(dlc, "--machine", "odd.toml")
    assert "vector_size(16)" in text and "vector_size(32)" not in text
    assert "machine=odd.toml" in Path("out/small.h").read_text()


def test_a_file_that_changes_is_another_machine(dlc: Dlc) -> None:
    before = source(dlc, "--machine", "odd.toml")
    Path("odd.toml").write_text(ODD.replace("vector-bytes = 16", "vector-bytes = 0"))
    assert "vector_size" not in source(dlc, "--machine", "odd.toml")
    Path("odd.toml").write_text(ODD)
    assert source(dlc, "--machine", "odd.toml") == before


def test_where_the_file_lies_is_nowhere_in_the_program(dlc: Dlc) -> None:
    there = Path("some/where").absolute()
    there.mkdir(parents=True)
    (there / "odd.toml").write_text(ODD)
    source(dlc, "--machine", str(there / "odd.toml"))
    assert not [p for p in Path("out").iterdir() if "some/where" in p.read_text(errors="replace")]


def test_results_are_those_of_the_model(dlc: Dlc) -> None:
    ran = dlc("verify", "small.onnx", "--machine", "odd.toml", "-q")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--machine", "no.toml"), "no.toml: No such file or directory"),
        (("--machine", "bad.toml"), "bad.toml: machine has no option register"),
        (("--machine", "odd.toml", "-t", "s2train"), "--machine: s2train takes no description of a machine"),
    ],
)
def test_what_cannot_be(dlc: Dlc, arguments: tuple[str, ...], message: str) -> None:
    Path("bad.toml").write_text("register = 11")
    ran = dlc("build", "small.onnx", "-q", "-o", "other", *arguments)
    assert ran.code == ExitCode.USAGE
    assert message in ran.err
    assert not Path("other").exists()


def test_the_compiler_has_to_be_one_for_the_machine(dlc: Dlc) -> None:
    Path("odd.toml").write_text(f"{ODD}architectures = ['pdp11']\n")
    ran = dlc("build", "small.onnx", "-q", "--machine", "odd.toml")
    assert ran.code == ExitCode.TOOL
    assert re.search(r"the compiler \w+ builds for \S+, not for odd \(pdp11\)", ran.err)


def test_a_library_is_not_loaded_without_what_it_needs(dlc: Dlc) -> None:
    Path("odd.toml").write_text(f"{ODD}features = ['warp-drive']\n")
    assert dlc("build", "small.onnx", "-q", "-o", "out", "--machine", "odd.toml").code == 0
    ran = dlc("run", "out")
    assert ran.code == ExitCode.USAGE
    assert "the library is built for odd: this processor lacks warp-drive" in ran.err


def test_they_are_listed(dlc: Dlc) -> None:
    found = {(item["backend"], item["name"]) for item in dlc("list", "machines", "--json").document["items"]}
    assert found >= {("c", name) for name in ("native", "generic", "x86-64-v3", "x86-64-v4")}
    assert re.search(r"^c +generic +portable C99", dlc("list", "machines").out, re.MULTILINE)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring takes no time."""
    found = MeasuredMachine("vector-bytes = 16\nregisters = 11\nmemory-rate = 2.5\n", {"cores": 3, "GHz": 2.0})

    def measured_machine(backend: C) -> MeasuredMachine:
        del backend
        return found

    monkeypatch.setattr(C, "measured_machine", measured_machine)


@pytest.mark.usefixtures("measured")
def test_a_measured_machine_is_a_file(dlc: Dlc) -> None:
    ran = dlc("doctor", "--measure-machine", "-o", "here.toml")
    assert ran.code == ExitCode.OK
    assert ran.out == "cores  3\nGHz    2.0\nwritten to here.toml, for --machine\n"
    assert "vector_size(16)" in source(dlc, "--machine", "here.toml")
    assert dlc("doctor", "--measure-machine").out == Path("here.toml").read_text()
    found = dlc("doctor", "--measure-machine", "--json").document["machine"]
    assert found == {"file": None, "text": Path("here.toml").read_text(), "facts": {"cores": 3, "GHz": 2.0}}


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--measure-machine", "-o", "no/here.toml"), "no/here.toml cannot be written"),
        (("--measure-machine", "-t", "s2train"), "--measure-machine: s2train does not measure machines"),
        (("-o", "here.toml"), "--output: nothing is measured"),
        (("-t", "c"), "--target: nothing is measured"),
    ],
)
def test_what_cannot_be_measured(dlc: Dlc, arguments: tuple[str, ...], message: str) -> None:
    ran = dlc("doctor", *arguments)
    assert ran.code != ExitCode.OK
    assert f"error[{'cannot-write' if 'written' in message else 'no-effect'}]: {message}" in ran.err
    assert not Path("here.toml").exists()
