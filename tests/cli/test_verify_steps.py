"""`dlc build --verify-steps`: every step keeps what is computed, and the first that does not is named."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dlc.base.diagnostics import ExitCode
from dlc.verify import plan_elements
from dlc.verify import steps as checking
from tests.cli.conftest import Dlc, Install
from tests.cli.models import small
from tests.conftest import Golden

PLUGIN = (Path(__file__).parents[1] / "data" / "plugins" / "miscompiling.txt").read_text()
ONNX = ("build", "small.onnx", "--target", "c{lib=none cpu=generic}", "-o", "out", "-q", "--verify-steps")
OPS = "fold-constants,simplify"
KERNELS = "lower,layout,fuse"
PLAN = "order,plan-memory"


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def test_the_steps_of_a_build_keep_what_is_computed(dlc: Dlc, golden: Golden) -> None:
    golden("verify-steps/same.txt", dlc(*ONNX).out.splitlines()[0] + "\n")
    # Also of steps that come from the cache.
    found = dlc(*ONNX, "--json").document["verify_steps"]
    assert {step["verdict"] for step in found} == {"same"}
    assert all(output["ok"] for step in found for output in step["outputs"])
    assert sum(bool(step["outputs"]) for step in found) >= 5


def test_the_steps_of_a_training_program(dlc: Dlc) -> None:
    ran = dlc(*ONNX, "--json", "--train", "loss=cross-entropy,optimizer=adam{lr=1e-3}")
    found: list[dict[str, Any]] = ran.document["verify_steps"]
    assert {step["function"] for step in found} == {"gradients", "predict", "evaluate", "update"}
    skipped = {step["step"].partition("{")[0] for step in found if step["verdict"] == "skipped"}
    assert skipped == {"autodiff"}
    compared = [output for step in found for output in step["outputs"]]
    assert {"loss", "w.gradient", "w", "y"} <= {output["name"] for output in compared}
    assert all(output["ok"] for output in compared)


def test_plans_too_large_to_look_at_each_element_are_counted(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["%1 = exp(%0)", "%2 = neg(%1)", "%3 = concat([%1, %2]) axis=0", "%4 = softmax(%3) axis=0", 'return %4 "y"']
    Path("parts.dlc").write_text("\n".join(['graph(%0 "x": f32[64,64]) {', *lines, "}"]))
    command = ("build", "parts.dlc", *ONNX[2:])
    assert "too large" not in dlc(*command).out
    monkeypatch.setattr(plan_elements, "MOST_UNITS", 16)
    assert "  1 of the plans is too large to look at each element of concatenations" in dlc(*command).out.splitlines()


BROKEN = {
    "swap": f"{OPS},swap,{KERNELS},{PLAN}",
    "scale": f"{OPS},lower,scale,layout,fuse,{PLAN}",
    "scale{factor=1.01}": f"{OPS},{KERNELS},scale{{factor=1.01}},{PLAN}",
    "reorder": f"lower,{PLAN},reorder",
    "overlap": f"lower,{PLAN},overlap",
}


@pytest.mark.parametrize("step", BROKEN)
def test_the_first_step_that_changes_a_value_is_named(dlc: Dlc, install: Install, step: str) -> None:
    install("wrong", PLUGIN)
    Path("small.onnx").write_bytes(chain().SerializeToString())
    right = BROKEN[step].replace(f",{step}", "")
    assert dlc(*ONNX, "-p", right).code == ExitCode.OK
    ran = dlc(*ONNX, "-p", BROKEN[step], "-o", "wrong")
    name = step.partition("{")[0]
    assert ran.code == ExitCode.MISMATCH
    code = "wrong-plan" if name in ("reorder", "overlap") else "step-changed-values"
    assert f"error[{code}]: {name} " in ran.err
    assert f"{name} is a pass of plugin wrong" in ran.err
    assert not Path("wrong").exists()


def chain() -> onnx.ModelProto:
    """A Relu between others, and values that live at the same time."""
    found = small()
    nodes = [
        onnx.helper.make_node("MatMul", ["y", "v"], ["z"], name="back"),
        onnx.helper.make_node("MatMul", ["z", "w"], ["again"], name="again"),
        onnx.helper.make_node("Add", ["again", "y"], ["sum of both"], name="both"),
    ]
    found.graph.node.extend(nodes)
    v = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    found.graph.initializer.append(onnx.numpy_helper.from_array(v, "v"))
    found.graph.output[0].name = "sum of both"
    return found


def test_the_message_tells_output_and_numbers(dlc: Dlc, install: Install, golden: Golden) -> None:
    install("wrong", PLUGIN)
    golden("verify-steps/changed.txt", dlc(*ONNX, "-p", f"{OPS},{KERNELS},scale,{PLAN}").transcript())


def test_a_step_of_a_training_programs_function(dlc: Dlc, install: Install) -> None:
    install("wrong", PLUGIN)
    ran = dlc(*ONNX, "--train", "loss=cross-entropy", "-p", f"{OPS},{KERNELS},scale,{PLAN}")
    assert ran.code == ExitCode.MISMATCH
    assert "error[step-changed-values]: scale of gradients changes output " in ran.err


def test_what_cannot_be_compared_is_said(dlc: Dlc, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("wrong", PLUGIN)
    ran = dlc(*ONNX, "-p", f"rename,{OPS},{KERNELS},{PLAN}")
    assert ran.code == ExitCode.OK
    assert "  rename: it changes the inputs of the program: x, x_" in ran.out
    gradient = dlc(*ONNX, "--grad", "x", "-o", "gradient")
    assert gradient.code == ExitCode.OK
    assert "  gradient: computes something else than what it is given, by design" in gradient.out
    monkeypatch.setattr(checking, "MOST_POINTS", 3)
    many = dlc(*ONNX, "-o", "many")
    assert many.code == ExitCode.OK
    assert "  lower: its kernels have " in many.out
    assert "more than the 3 that are evaluated" in many.out
