"""`dlc build --train`: what it makes, what it tells, what it refuses, and what a second build finds in the cache."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlc import Report
from dlc.api.artifact import Artifact
from dlc.api.backend import Backend
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.driver.pipeline import ResolvedPipeline, Step, check_training
from dlc.passes.autodiff import Autodiff
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden

TARGET = ("--target", "c{lib=none cpu=generic}")
FUNCTIONS = ("gradients", "predict", "evaluate", "update")
TRAIN = ("--train", "loss=cross-entropy,optimizer=adam{lr=1e-3}")


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def build(dlc: Dlc, *flags: str, train: str = TRAIN[1], code: int = 0) -> dict[str, Any]:
    ran = dlc("build", "small.onnx", *TARGET, "--train", train, "--json", "-q", *flags)
    assert ran.code == code, ran.err
    return ran.document


def functions(document: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(step["function"] for step in document["steps"] if step["function"]))


def test_it_makes_one_program_of_its_functions(dlc: Dlc) -> None:
    document = build(dlc, "-o", "out")
    assert functions(document) == list(FUNCTIONS)
    memory = document["memory"]
    parts = [memory[f"{name}_bytes"] for name in ("parameters", "state", "gradients", "arena")]
    # w is 48 bytes and b 16; Adam keeps two of each, and the number of steps; every tensor starts at a multiple of 64.
    assert parts[:3] == [128, 5 * 64, 128]
    assert memory["peak_bytes"] == sum(parts)
    assert json.loads(Path("out/manifest.json").read_text())["memory"]["parameters_bytes"] == 128


def test_immediate_updates_keep_no_gradients(dlc: Dlc) -> None:
    document = build(dlc, "-o", "out", train="updates=immediate")
    assert functions(document) == ["step", "predict", "evaluate"]
    assert document["memory"]["gradients_bytes"] == 0


def test_what_it_prints(dlc: Dlc, golden: Golden) -> None:
    ran = dlc("build", "small.onnx", *TARGET, *TRAIN, "-o", "out", "-q")
    golden("build-train/build.txt", ran.transcript())
    table = dlc("build", "small.onnx", *TARGET, *TRAIN, "-o", "out").err.splitlines()
    assert table[0].split() == ["function", "pass", "ms", "cache", "nodes", "note"]
    assert [line.partition(" ")[0] for line in table if "autodiff{" in line] == list(FUNCTIONS)


def test_what_is_trained_and_frozen(dlc: Dlc) -> None:
    lines = dlc("build", "small.onnx", *TARGET, "--train", "wrt=w", "-o", "out", "-q").out.splitlines()
    assert lines[2] == "trained: 1 tensor, 12 elements; frozen: 1 tensor"


def test_a_second_build_does_nothing(dlc: Dlc) -> None:
    build(dlc, "-o", "out")
    again = build(dlc, "-o", "out")
    assert all(step["cached"] for step in again["steps"])
    assert again["cache"]["misses"] == 0
    assert functions(again) == list(FUNCTIONS)


def test_another_rate_leaves_all_but_the_update_valid(dlc: Dlc) -> None:
    build(dlc, "-o", "out")
    again = build(dlc, "-o", "out", train="loss=cross-entropy,optimizer=adam{lr=2e-3}")
    missed = {step.get("function", "") for step in again["steps"] if not step["cached"]}
    assert missed == {"update", ""}
    assert again["steps"][0]["cached"]


def test_programs_of_other_options_do_not_answer_for_one_another(dlc: Dlc) -> None:
    sizes = [build(dlc, "-o", "out", train=f"optimizer={o}")["memory"]["state_bytes"] for o in ("sgd", "adam", "sgd")]
    assert sizes[0] == sizes[2] < sizes[1]
    assert "state_bytes" not in dlc("build", "small.onnx", *TARGET, "-o", "out", "--json").document["memory"]


@pytest.mark.parametrize(
    ("name", "flags"),
    {
        "no-such-option": ("--train", "los=mse"),
        "no-such-loss": ("--train", "loss=mae"),
        "no-such-optimizer": ("--train", "loss=mse, optimizer=adma{lr=1e-3}"),
        "option-of-optimizer": ("--train", "loss=mse optimizer=adam{lr=1 beta=2}"),
        "syntax": ("--train", "loss=mse,"),
        "twice": ("--train", "loss=mse,loss=l1"),
        "no-such-weight": ("--train", "wrt=bias*"),
        "no-such-output": ("--train", "loss=mse,of=z"),
        "label": ("--train", "label=x"),
        "give": ("--train", "give=predict"),
        "outputs": ("--train", "outputs=yes"),
        "grad": ("--train", "", "--grad", "x"),
        "pipeline": ("--train", "", "--pipeline", "autodiff,infer"),
        "without": ("--train", "", "--without", "autodiff"),
        "explain": ("--train", "", "--explain", "fold"),
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(dlc: Dlc, golden: Golden, name: str, flags: tuple[str, ...]) -> None:
    ran = dlc("build", "small.onnx", *TARGET, *flags, "-o", "out", "-q")
    assert ran.code in (ExitCode.USAGE, ExitCode.MODEL)
    assert not Path("out").exists()
    golden(f"build-train/{name}.txt", ran.transcript())


def test_the_pipeline_is_printed(dlc: Dlc) -> None:
    lines = dlc("build", "small.onnx", *TARGET, *TRAIN, "--set", "autodiff.clip=1", "--print-pipeline").out.splitlines()
    assert lines[1] == "functions gradients, predict, evaluate, update: the pipeline of each has give=FUNCTION"
    assert lines[2].endswith("loss from --train, optimizer from --train, clip from --set")


def test_every_function_can_be_looked_at(dlc: Dlc) -> None:
    ran = dlc("build", "small.onnx", *TARGET, *TRAIN, "--stop-after", "autodiff", "--dump-ir", "autodiff", "-o", "out")
    heads = [line for line in ran.out.splitlines() if line.startswith("# ")]
    assert heads == [f"# function {name}" for name in FUNCTIONS]
    dumps = sorted(path.name.partition("-")[2] for path in Path("out/ir").iterdir())
    assert dumps == sorted(f"{name}-autodiff.dlc" for name in FUNCTIONS)


def test_explanations_and_counts_are_those_of_functions(dlc: Dlc) -> None:
    flags = ("--explain", "lower", "--stats", "--html", "-o", "out", "-q")
    out = dlc("build", "small.onnx", *TARGET, *TRAIN, *flags).out
    for name in FUNCTIONS:
        assert f"{name}: lower\n" in out
        assert f"function {name}\nkernel " in out
    assert "gradients: autodiff" in Path("out/report.html").read_text()
    assert set(build(dlc, "--stats", "-o", "out")["stats"]) == set(FUNCTIONS)


def test_why_a_build_would_miss(dlc: Dlc) -> None:
    def states(train: str) -> list[tuple[str, str]]:
        found = dlc("cache", "why", "small.onnx", *TARGET, "--train", train, "--json").document["findings"]
        return [(f["step"].partition("{")[0], f["state"]) for f in found]

    build(dlc, "-o", "out")
    assert {state for _, state in states(TRAIN[1])} == {"hit"}
    text = states("loss=cross-entropy,optimizer=adam{lr=2e-3}")
    assert [step for step, state in text if state == "miss"] == ["update: autodiff"]
    assert [step for step, state in text if state == "unknown"][-3:] == ["update: plan-memory", "emit c", "build c"]
    assert ("predict: plan-memory", "hit") in text


class Plain(Backend):
    """A backend that says nothing of training."""

    name = "plain"

    def emit(self, state: Any, /, report: Report) -> Artifact:
        raise NotImplementedError


def test_a_backend_without_training_programs_refuses_at_once() -> None:
    with pytest.raises(DlcError, match="the backend plain builds no training programs"):
        check_training(ResolvedPipeline(Plain(), "core", "", "", (), program=Step(Autodiff(), "core", "dlc")))
