"""`dlc build --verify-loops`: the loops of every kernel are checked, and the first that are wrong are reported."""

from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import Finding
from dlc.kernel.loops.program import LoopProgram
from dlc.verify import loops as checking
from tests.cli.conftest import Dlc
from tests.cli.models import small

ONNX = ("build", "small.onnx", "--target", "c{lib=none cpu=generic}", "-o", "out", "-q", "--verify-loops")


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def test_the_loops_of_a_program(dlc: Dlc) -> None:
    ran = dlc(*ONNX)
    assert ran.code == ExitCode.OK
    assert ran.out.startswith("verify-loops: the loops of ")
    # Also of kernels whose schedules come from the cache.
    found = dlc(*ONNX, "--json").document["verify_loops"]
    assert found
    assert all(kernel["ok"] and kernel["schedule"] for kernel in found)


def test_a_training_program_has_each_kernel_once(dlc: Dlc) -> None:
    found = dlc(*ONNX, "--json", "--train", "loss=cross-entropy,optimizer=adam{lr=1e-3}").document["verify_loops"]
    assert {kernel["function"] for kernel in found} >= {"gradients", "update"}
    assert len({kernel["kernel"] for kernel in found}) == len(found)


def test_wrong_loops_are_an_error(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Finding("r0[3] is not the kernel's", ("for i in 0..4:",), "r0[i] = 0.0", {"i": 3})

    def found(kernel: Kernel, program: LoopProgram) -> tuple[Finding, ...]:
        del kernel, program
        return (wrong,)

    monkeypatch.setattr(checking, "check_loops", found)
    ran = dlc(*ONNX)
    assert ran.code == ExitCode.MISMATCH
    assert "error[wrong-loops]: the loops of kernel " in ran.err
    assert "r0[3] is not the kernel's, in for i in 0..4: r0[i] = 0.0 with i=3" in ran.err
    assert not Path("out").exists()


def test_a_target_without_loops(dlc: Dlc) -> None:
    ran = dlc("build", "small.onnx", "--target", "s2train", "-o", "out", "-q", "--verify-loops")
    assert ran.code == ExitCode.USAGE
    assert "target s2train has no loops to check" in ran.err
