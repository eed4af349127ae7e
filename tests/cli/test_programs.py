"""`dlc run` and `dlc verify`: where inputs come from, what is compared with what, and what is said about it."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from dlc.api.program import Program
from dlc.base.diagnostics import ExitCode
from dlc.base.types import Array
from tests.cli.conftest import MODELS, Dlc
from tests.cli.models import small
from tests.conftest import Golden

X = np.array([[1, 2, 3], [-1, 0, 2]], np.float32)
Y = np.array([[8, 0, 2, 0], [4, 2, 0, 0]], np.float32)
"""What the small model makes of X."""


@pytest.fixture(autouse=True)
def built(program: Path) -> None:
    Path("out").symlink_to(program / "out")
    Path("small.onnx").write_bytes(small().SerializeToString())


def tensor_file(name: str, array: np.ndarray) -> None:
    from onnx import numpy_helper

    Path(name).write_bytes(numpy_helper.from_array(array, "x").SerializeToString())


WRITERS: dict[str, Callable[[], object]] = {
    "x.npy": lambda: np.save("x.npy", X),
    "x=x.npy": lambda: np.save("x.npy", X),
    "named.npz": lambda: np.savez("named.npz", x=X),
    "packed.npz": lambda: np.savez_compressed("packed.npz", x=X),
    "numbered.npz": lambda: np.savez("numbered.npz", X),
    "x.pb": lambda: tensor_file("x.pb", X),
}


@pytest.mark.parametrize("given", WRITERS)
def test_inputs_from_files(dlc: Dlc, given: str) -> None:
    WRITERS[given]()
    ran = dlc("run", "out", given, "-o", "result.npz")
    assert (ran.code, ran.err) == (0, "")
    with np.load("result.npz") as found:
        np.testing.assert_array_equal(found["y"], Y)


def test_what_run_prints(dlc: Dlc, golden: Golden) -> None:
    np.save("x.npy", X)
    golden("run/file.txt", dlc("run", "out", "x.npy").transcript())


def test_random_inputs_are_named_and_repeatable(dlc: Dlc) -> None:
    first, second, third = dlc("run", "out"), dlc("run", "out", "--seed", "0"), dlc("run", "out", "--seed", "1")
    assert first.err == 'random, seed 0: "x"\n'
    assert first.out == second.out != third.out
    assert dlc("run", "out", "-q").err == ""


def test_a_model_is_built_on_the_way(dlc: Dlc) -> None:
    before = {p.name for p in Path().iterdir()}
    assert dlc("run", "small.onnx").out == dlc("run", "out").out
    assert {p.name for p in Path().iterdir()} == before


def test_timing(dlc: Dlc) -> None:
    ran = dlc("run", "out", "--time", "--calls", "5")
    assert re.search(
        r"^median \d+\.\d+ ms, 10th percentile \d+\.\d+ ms, 90th percentile \d+\.\d+ ms \(5 calls\)$", ran.out, re.M
    )
    times = dlc("run", "out", "--time", "--calls", "5", "--json").document["time"]
    assert times["calls"] == 5
    assert 0 < times["p10_ms"] <= times["median_ms"] <= times["p90_ms"]


@pytest.mark.parametrize("reference", ["onnxruntime", "numpy", "auto"])
def test_verify_against_a_reference(dlc: Dlc, reference: str) -> None:
    for subject in (["small.onnx"], ["out", "--model", "small.onnx"]):
        ran = dlc("verify", *subject, "--reference", reference, "-q")
        head, columns, row = ran.out.splitlines()
        assert head == f"reference: {'onnxruntime' if reference == 'auto' else reference}"
        assert columns.split("  ")[0] == "output"
        assert row.startswith("y ")
        assert row.endswith("  ok")
        assert ran.code == ExitCode.OK


def test_verify_against_another_target(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("x.npy", X)
    other = "c{cpu=generic math=ordered flags=-O0}"
    ran = dlc("verify", "out", "x.npy", "--model", "small.onnx", "--reference", other, "--json")
    assert (ran.code, ran.document["reference"], ran.document["outputs"][0]["max_abs"]) == (ExitCode.OK, other, 0)
    # The less exact of two targets says how far they may be from each other.
    ran = dlc("verify", "out", "x.npy", "--model", "small.onnx", "--reference", "s2train", "--json")
    assert (ran.code, ran.document["outputs"][0]["rtol"]) == (ExitCode.OK, 5e-3)

    def wrong(program: Program, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": program(x=feeds["x"])["y"] + np.float32(0.5)}

    monkeypatch.setattr("dlc.cli.other_target.call", wrong)
    ran = dlc("verify", "out", "x.npy", "--model", "small.onnx", "--reference", other)
    assert ran.code == ExitCode.MISMATCH
    assert "MISMATCH: 8 of 8 elements" in ran.out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--reference", "nump"), "--reference nump: there is no such reference or target"),
        (("--reference", "c{mat=strict}"), "from  --reference: column 3"),
        (("--reference", "c"), "does not hold the model to compare it with"),
        (("--reference", "c", "-e", "y.npy"), "--reference has no effect here"),
    ],
)
def test_references_that_are_no_targets(dlc: Dlc, flags: tuple[str, ...], message: str) -> None:
    model = () if flags[1:] == ("c",) or "-e" in flags else ("--model", "small.onnx")
    ran = dlc("verify", "out", *model, *flags)
    assert ran.code == ExitCode.USAGE
    assert message in ran.err


def test_verify_against_expected_outputs(dlc: Dlc, golden: Golden) -> None:
    np.save("x.npy", X)
    np.save("y.npy", Y)
    golden("verify/equal.txt", dlc("verify", "out", "x.npy", "-e", "y.npy").transcript())
    np.save("y.npy", Y + np.array([[0, 0, 0.5, 0], [0, 0, 0, 0]], np.float32))
    ran = dlc("verify", "out", "x.npy", "-e", "y.npy")
    golden("verify/different.txt", ran.transcript())
    assert ran.code == ExitCode.MISMATCH
    found = dlc("verify", "out", "x.npy", "-e", "y.npy", "--json").document
    assert (found["ok"], found["exit_code"]) == (False, ExitCode.MISMATCH)
    assert (found["outputs"][0]["worst"], found["outputs"][0]["wrong"]) == ([0, 2], 1)
    assert dlc("verify", "out", "x.npy", "-e", "y.npy", "--atol", "0.6").code == ExitCode.OK


def test_expected_outputs_of_another_shape(dlc: Dlc, golden: Golden) -> None:
    np.save("y.npy", Y.T)
    golden("verify/shape.txt", dlc("verify", "out", "-e", "y.npy", "-q").transcript())


def test_data_that_ships_beside_a_model(dlc: Dlc) -> None:
    folder = MODELS / "mnist_cntk"
    ran = dlc(
        "verify",
        folder / "model.onnx",
        folder / "test_data_set_0_input_0.pb",
        "-e",
        folder / "test_data_set_0_output_0.pb",
        "--json",
    )
    assert ran.document["outputs"][0]["ok"] is True
    assert ran.document["reference"] == "expected"


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4',}", b"PK\x03\x04 not really", b"\x0a\xff\xff"],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pb"])
def test_damaged_arrays_are_refused(dlc: Dlc, content: bytes, suffix: str) -> None:
    Path(f"x{suffix}").write_bytes(content)
    ran = dlc("run", "out", f"x{suffix}", "-o", "result.npz")
    assert ran.code == ExitCode.USAGE
    assert f"x{suffix}" in ran.err
    assert not Path("result.npz").exists()


def test_pickles_are_not_loaded(dlc: Dlc) -> None:
    """An object array holds a pickle, and unpickling runs code."""
    np.save("x.npy", np.array([print], object), allow_pickle=True)
    np.savez("x.npz", x=np.array([print], object))
    for name in ("x.npy", "x.npz"):
        ran = dlc("run", "out", name)
        assert ran.code == ExitCode.USAGE
        assert "cannot be read" in ran.err


def test_a_program_is_no_model_to_build(dlc: Dlc) -> None:
    ran = dlc("build", "out")
    assert (ran.code, ran.err.partition(":")[0]) == (2, "error[built-already]")
    assert "dlc run, train, verify or show" in ran.err
