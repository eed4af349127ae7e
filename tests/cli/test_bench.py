"""`dlc bench`: what it prints, what it compares, and what it refuses."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc.base.diagnostics import ExitCode
from dlc.bench import peers
from dlc.bench.peers import Peer, Unavailable
from tests.cli.conftest import Dlc
from tests.cli.models import evil, small
from tests.conftest import Golden

pytestmark = pytest.mark.usefixtures("small_caches")
ROWS = 500
"""So that the only step takes longer than a clock needs to tell."""


@pytest.fixture
def model() -> Path:
    path = Path("small.onnx")
    path.write_bytes(small(ROWS).SerializeToString())
    return path


@dataclass(frozen=True)
class Runtime:
    """A peer that computes the small model, some time after it was called."""

    seconds: float = 0.0
    wrong: float = 0.0

    def __call__(self, name: str, model: Path, inputs: Mapping[str, Any], threads: int) -> Peer:
        assert (model.name, threads) == ("small.onnx", 1) or name == "onnxruntime"
        if name == "openvino":
            raise Unavailable("not installed: pip install openvino")
        w = np.array([[1, -2, 3, 0], [0, 1, -1, 2], [2, 0, 1, -3]], np.float32)
        y = np.maximum(inputs["x"] @ w + np.array([1, 0, -2, 5], np.float32), 0) + np.float32(self.wrong)

        def run() -> dict[str, Any]:
            time.sleep(self.seconds)
            return {"y": y}

        return Peer(name, "9.9", run)


Fake = Callable[[Runtime], None]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return lambda runtime: monkeypatch.setattr(peers, "open_peer", runtime)


def steady(text: str) -> str:
    """What is measured, as signs of one width."""
    text = re.sub(r"dlc \d+\.\d+\.\d+\S*", "dlc <version>", text)
    text = re.sub(r" *\b[\d,]+\.\d+(e[-+]\d+)?( [mu]s\b| %|x|\b)", r" <n>\2", text)
    text = re.sub(r"<(n> [mu]s|ms>)(?= |$)", "<time>", text)
    text = re.sub(r"L3 <n>, ", "", text)
    text = re.sub(r"(<time> +<time> +<time>) +[\d,]+", r"\1 <n>", text)
    text = re.sub(r"(compute|L\d|memory)( <n> %)", r"<limit>\2", text)
    return re.sub(r" {2,}", " ", re.sub(r",\n +", ", ", text))


def test_the_text(dlc: Dlc, golden: Golden, model: Path, fake: Fake) -> None:
    fake(Runtime())
    np.save("x.npy", np.ones((ROWS, 3), np.float32))
    options = "--rounds", "3", "--against", "onnxruntime,openvino", "--html", "bench.html"
    ran = dlc("bench", model, "x.npy", *options)
    golden("bench/text.txt", steady(ran.transcript()))
    assert "<svg" in Path("bench.html").read_text()


def test_times_and_steps_fit_together(dlc: Dlc, model: Path, fake: Fake) -> None:
    fake(Runtime(seconds=0.004))
    found = dlc("bench", model, "--rounds", "5", "--against", "onnxruntime", "--json").document
    own, peer = found["programs"]
    assert own["calls"] == peer["calls"] == 5
    assert own["p10_ms"] <= own["median_ms"] <= own["p90_ms"]
    assert own["relative_time"] == 1.0
    assert peer["relative_time"] == pytest.approx(peer["median_ms"] / own["median_ms"])
    assert peer["median_ms"] >= 4.0
    assert peer["outputs"][0]["ok"]
    steps = found["steps"]
    assert sum(s["share"] for s in steps) == pytest.approx(1.0)
    # They are parts of calls of their own: a busy machine may make these longer.
    assert sum(s["ms"] for s in steps) <= 2 * own["p90_ms"]
    assert sum(s["operations"] for s in steps) == found["operations"] == ROWS * 4 * (2 * 3 + 2)
    assert {n for s in steps for n in s["nodes"]} == {"product", "bias", "positive"}
    for s in steps:
        assert s["part_of_limit"] == pytest.approx(s["least_ms"] / s["ms"])
        assert s["gflops"] == pytest.approx(s["operations"] / s["ms"] / 1e6, abs=1e-3)
    assert found["gflops"] == pytest.approx(found["operations"] / own["median_ms"] / 1e6, abs=1e-3)


def test_several_numbers_of_threads(dlc: Dlc, model: Path, fake: Fake) -> None:
    fake(Runtime())
    options = "--rounds", "3", "--threads", "1,2", "--against", "onnxruntime"
    ran = dlc("bench", model, *options, "--json", "--html", "bench.html")
    found = ran.document
    (other,) = found["others"]
    assert (found["threads"], other["threads"]) == (1, 2)
    for one, two in zip(found["programs"], other["programs"], strict=True):
        assert one["gain"] == 1.0
        assert two["gain"] == pytest.approx(one["median_ms"] / two["median_ms"])
    (one,), (two,) = found["steps"], other["steps"]
    assert two["gain"] == pytest.approx(one["ms"] / two["ms"])
    near, far = found["limits"]["memories"][0], other["limits"]["memories"][0]
    assert far["bytes"] == 2 * near["bytes"]
    page = Path("bench.html").read_text()
    assert page.count('aria-label="Roofline"') == page.count("Threads: ") == 2
    text = dlc("bench", model, "--rounds", "1", "--threads", "1,2").out
    assert re.search(r"dlc \S+ +2 .*x .*x", text)
    assert "limits of this machine, threads 2" in text
    assert re.search(r"^ +0 .*bias, product, positive$", text, re.MULTILINE)


def test_calls_after_a_pause(dlc: Dlc, model: Path, fake: Fake) -> None:
    fake(Runtime(seconds=0.002))
    options = "--rounds", "4", "--no-kernels", "--against", "onnxruntime"
    several = *options, "--threads", "1,2", "--pause", "5", "--record", "bench.json", "--html", "bench.html"
    found = dlc("bench", model, *several, "--json").document
    (other,) = found["others"]
    assert found["pause_ms"] == other["pause_ms"] == 5.0
    for one, two in zip(found["programs"], other["programs"], strict=True):
        own, more = one["after_pause"], two["after_pause"]
        assert own["calls"] == more["calls"] == 4
        assert own["p10_ms"] <= own["median_ms"] <= own["p90_ms"]
        assert own["gain"] == 1.0
        assert more["gain"] == pytest.approx(own["median_ms"] / more["median_ms"])
    mine, theirs = found["programs"]
    assert mine["after_pause"]["relative_time"] == 1.0
    ratio = theirs["after_pause"]["median_ms"] / mine["after_pause"]["median_ms"]
    assert theirs["after_pause"]["relative_time"] == pytest.approx(ratio)
    assert "5 ms after the last call" in Path("bench.html").read_text()
    assert dlc("report", "bench.json").code == ExitCode.OK
    text = dlc("bench", model, *options).out
    assert "small.onnx: 4 calls of each, in turn, back to back" in text
    assert "4 calls of each, 80 ms after the last one" in text
    none = dlc("bench", model, *options[:-1], "openvino", "--pause", "0", "--json").document
    assert none["pause_ms"] is None
    assert [p["after_pause"] for p in none["programs"]] == [None, None]


@pytest.mark.parametrize("threads", ["0", "1,", "two"])
def test_what_is_no_number_of_threads(dlc: Dlc, model: Path, threads: str) -> None:
    ran = dlc("bench", model, "--threads", threads)
    assert ran.code == ExitCode.USAGE
    assert "number of threads" in ran.err


def test_outputs_that_differ(dlc: Dlc, model: Path, fake: Fake) -> None:
    fake(Runtime(wrong=0.5))
    ran = dlc("bench", model, "--rounds", "1", "--against", "onnxruntime", "--no-kernels")
    assert ran.code == ExitCode.MISMATCH
    assert "0.5 MISMATCH: y" in ran.out


def test_onnxruntime_is_measured_where_it_is_installed(dlc: Dlc, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = dlc("bench", model, "--rounds", "2", "--against", "onnxruntime", "--no-kernels", "--json").document
    peer = found["programs"][1]
    assert (peer["name"], peer["measured"], peer["outputs"][0]["ok"]) == ("onnxruntime", True, True)
    assert (found["steps"], found["limits"]) == ([], None)


def test_what_is_not_installed_is_left_out(dlc: Dlc, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        del name

    monkeypatch.setattr(peers, "find_spec", absent)
    ran = dlc("bench", model, "--rounds", "1", "--against", "onnxruntime,openvino,torch", "--no-kernels")
    assert ran.code == ExitCode.OK
    assert "pip install onnxruntime" in ran.out
    assert "pip install openvino" in ran.out
    assert "torch: not measured" in ran.out


def test_a_program_that_is_built_already(dlc: Dlc, program: Path) -> None:
    found = dlc("bench", program / "out", "--rounds", "2", "--against", "onnxruntime", "--json").document
    own, peer = found["programs"]
    assert own["measured"]
    assert ".onnx files only" in peer["reason"]
    assert found["operations"] is None
    assert found["steps"] == []
    assert "built already" in found["no_steps"]


def test_threads_of_a_program_that_is_built_already(dlc: Dlc, program: Path) -> None:
    assert dlc("bench", program / "out", "--threads", "1,2").code == ExitCode.USAGE


def test_inputs_from_a_file(dlc: Dlc, model: Path) -> None:
    np.save("x.npy", np.ones((ROWS, 3), np.float32))
    assert dlc("bench", model, "x.npy", "--rounds", "1", "--no-kernels", "--json").document["random_inputs"] == []


def test_sizes_that_are_open(dlc: Dlc) -> None:
    Path("open.onnx").write_bytes(small("batch").SerializeToString())
    found = dlc("bench", "open.onnx", "--rounds", "1", "--json").document
    assert found["operations"] is None
    assert all(s["operations"] is s["part_of_limit"] is None and s["ms"] >= 0 for s in found["steps"])


def test_names_of_a_hostile_model(dlc: Dlc) -> None:
    Path("evil.onnx").write_bytes(evil().SerializeToString())
    ran = dlc("bench", "evil.onnx", "--rounds", "1", "--html", "bench.html")
    assert ran.code == 0
    assert "\u202e" not in ran.out + Path("bench.html").read_text()
