"""`--grad`: gradients instead of outputs, wherever a model is given; `--stats`; what `dlc show` prints of kernels."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlc import load
from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden

BLUR = "A<8,8>[i,j] = (B<10,8>[i,j] + B<10,8>[i+1,j] + B<10,8>[i+2,j]) / 3.0;\n"
PRODUCT = "C<2,4>[i,j] = A<2,3>[i,k] * B<3,4>[k,j];"
LOOKUP = "kernel pick(X: float[5], I: i64[4]) -> (Y: float[4]) { Y[i] = X[I[i]]; }\n"


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("blur.kernel").write_text(BLUR)
    Path("lookup.kernel").write_text(LOOKUP)
    case = {"name": "product", "ins": ["A", "B"], "outs": ["C"], "data_type": "float", "kernel": PRODUCT}
    Path("case.json").write_text(json.dumps({**case, "grad_to": ["A"]}))


def signature(directory: str) -> tuple[list[str], list[str]]:
    found = json.loads((Path(directory) / "manifest.json").read_text())["signature"]
    return [p["name"] for p in found["inputs"]], [p["name"] for p in found["outputs"]]


def test_the_gradients_of_a_model(dlc: Dlc) -> None:
    assert dlc("build", "small.onnx", "--grad", "x", "-o", "out", "-q").code == 0
    assert signature("out") == (["x", "dy"], ["dx"])
    x = np.array([[1, 2, 3], [-1, 0, 1]], np.float32)
    dy = np.arange(8, dtype=np.float32).reshape(2, 4)
    w = np.array([[1, -2, 3, 0], [0, 1, -1, 2], [2, 0, 1, -3]], np.float32)
    b = np.array([1, 0, -2, 5], np.float32)
    want = np.where(x @ w + b > 0, dy, 0) @ w.T
    np.testing.assert_array_equal(load(Path("out"))(x=x, dy=dy)["dx"], want)


def test_the_flag_repeats_and_takes_lists(dlc: Dlc) -> None:
    Path("product.kernel").write_text(PRODUCT)
    for number, flags in enumerate((["--grad", "B,A"], ["--grad", "B", "--grad", "A"])):
        assert dlc("build", "product.kernel", *flags, "-o", f"out{number}", "-q").code == 0
        assert signature(f"out{number}") == (["A", "B", "dC"], ["dB", "dA"])


def test_it_overrides_what_a_case_asks_for(dlc: Dlc) -> None:
    assert dlc("build", "case.json", "-o", "own", "-q").code == 0
    assert signature("own") == (["B", "dC"], ["dA"])
    assert dlc("build", "case.json", "--grad", "B", "-o", "other", "-q").code == 0
    assert signature("other") == (["A", "dC"], ["dB"])


def test_it_is_part_of_the_request(dlc: Dlc) -> None:
    """Builds with and without it, and with another, do not answer for one another; equal ones come from the cache."""
    flags = ["-o", "out", "-q", "--json"]
    for wrt, names in (("", ["C"]), ("A", ["dA"]), ("B", ["dB"]), ("A", ["dA"]), ("", ["C"])):
        Path("product.kernel").write_text(PRODUCT)
        grad = ["--grad", wrt] if wrt else []
        assert dlc("build", "product.kernel", *grad, *flags).code == 0
        assert signature("out")[1] == names
    again = dlc("build", "product.kernel", "--grad", "B", *flags).document
    assert all(step["cached"] for step in again["steps"])
    assert signature("out")[1] == ["dB"]


def test_it_stands_in_the_pipeline(dlc: Dlc) -> None:
    lines = dlc("build", "blur.kernel", "--grad", "B", "--print-pipeline").out.splitlines()
    assert lines[1].split() == ["1", "gradient{of=()", "wrt=B}", "wrt", "from", "--grad"]


def test_run_and_verify_take_it(dlc: Dlc) -> None:
    rows = dlc("run", "blur.kernel", "--grad", "B", "--json").document["outputs"]
    assert [(row["name"], row["type"]) for row in rows] == [("dB", "float32[10,8]")]
    for file, wrt in (("small.onnx", "x"), ("blur.kernel", "B"), ("case.json", "A")):
        ran = dlc("verify", file, "--grad", wrt, "-q")
        assert ran.code == 0, ran.out
        assert ran.out.startswith("reference: numpy")
    Path("two.kernel").write_text("A<3>[i] = X<3>[i] * X[i]; B<3>[i] = exp(X<3>[i]);")
    assert dlc("verify", "two.kernel", "--grad", "X", "--set", "gradient.of=B", "-q").code == 0
    refused = dlc("verify", "small.onnx", "--grad", "x", "--reference", "onnxruntime")
    assert refused.code == ExitCode.USAGE
    assert "onnxruntime computes no gradients" in refused.err


def test_why_takes_it(dlc: Dlc) -> None:
    assert dlc("build", "blur.kernel", "-o", "out", "-q").code == 0
    assert "gradient" in dlc("cache", "why", "blur.kernel", "--grad", "B").out


def test_errors(dlc: Dlc, golden: Golden) -> None:
    golden("grad/unknown.txt", dlc("build", "blur.kernel", "--grad", "b", "-o", "out", "-q").transcript())
    golden("grad/integer.txt", dlc("build", "lookup.kernel", "--grad", "I", "-o", "out", "-q").transcript())
    assert dlc("build", "blur.kernel", "-o", "out", "-q").code == 0
    golden("grad/built.txt", dlc("run", "out", "--grad", "B").transcript())


def test_a_scatter_is_reported(dlc: Dlc, golden: Golden) -> None:
    ran = dlc("build", "lookup.kernel", "--grad", "X", "-o", "out", "--explain", "gradient", "--stats")
    golden("grad/scatter.txt", f"{ran.out.partition('out: ')[0]}")
    assert "scattered derivatives: 1" in ran.err
    assert "1 scattered (--explain gradient)" in ran.err


def test_gradients_that_the_file_asks_for_are_explained(dlc: Dlc) -> None:
    case = {"name": "pick", "ins": ["X", "I"], "outs": ["Y"], "data_type": "float", "grad_to": ["A"]}
    Path("asked.json").write_text(json.dumps({**case, "ins": ["A", "B"], "outs": ["C"], "kernel": PRODUCT}))
    for flags in ([], ["-q"]):  # from the cache too
        ran = dlc("build", "asked.json", "-o", "out", "--explain", "gradient", *flags)
        assert ran.code == 0, ran.err
        assert "gradients 1" in ran.out


def test_stats(dlc: Dlc, golden: Golden) -> None:
    for name, flags in (("blur", ["blur.kernel", "--grad", "B"]), ("model", ["small.onnx"])):
        ran = dlc("build", *flags, "-o", "out", "-q", "--stats")
        golden(f"stats/{name}.txt", ran.transcript())
    data = dlc("build", "blur.kernel", "--grad", "B", "-o", "out", "--stats", "--json").document["stats"]
    assert data["iterations"] == sum(n["iterations"] for k in data["kernels"] for n in k["nests"])
    assert data["iterations"] <= 300
    lowered = dlc("build", "blur.kernel", "--stats", "--stop-after", "lower", "--json").document
    assert lowered["stats"]["iterations"] == 64
    assert "kernel" in lowered["text"]


def test_stats_of_a_kernel_that_is_called_often() -> None:
    from dlc.base.types import Type, f32
    from dlc.cli.stats import stats_of
    from dlc.graph import Call, Input, make_graph
    from dlc.kernel.text import parse_kernel

    x = Input("x", Type(f32, (4,)))
    twice = parse_kernel("kernel(f32[4]) -> (f32[4]) {\n  r0[i] = p0[i]*2.0\n}")
    graph = make_graph((x,), {"y": Call(twice, (Call(twice, (x,)),))})

    step: Any = SimpleNamespace(handle=SimpleNamespace(kind="graph", value=graph))
    found = stats_of([step])
    assert found.json()["iterations"] == 8
    assert [(k.calls, k.iterations) for k in found.kernels] == [(2, 4)]


def test_stats_need_kernels(dlc: Dlc) -> None:
    ran = dlc("build", "blur.kernel", "--stats", "--stop-after", "parse")
    assert ran.code == ExitCode.USAGE
    assert "--stats: the build has no kernels after parse" in ran.err


def test_show_prints_kernel_gradient_and_loops(dlc: Dlc, golden: Golden) -> None:
    golden("show/kernel.txt", dlc("show", "blur.kernel").transcript())
    golden("show/kernel_gradient.txt", dlc("show", "blur.kernel", "--grad", "B").transcript())
    golden("show/case.txt", dlc("show", "case.json", "--what", "gradient,kernel").transcript())
    golden("show/model_gradient.txt", dlc("show", "small.onnx", "--grad", "x", "--what", "gradient").transcript())


def test_shown_kernels_parse_back(dlc: Dlc) -> None:
    from dlc.kernel.text import parse_kernel, print_kernel

    data = dlc("show", "blur.kernel", "--grad", "B", "--json").document
    for part in ("kernel", "gradient"):
        text = "\n".join(line for line in data[part].splitlines() if not line.startswith("#"))
        assert print_kernel(parse_kernel(text)) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["blur.kernel", "--what", "loop"], "--what loop: there is no such part"),
        (["blur.kernel", "--what", "gradient"], "the inputs to differentiate with respect to are missing"),
        (["blur.kernel", "--what", "loops", "--text"], "--text prints the whole graph"),
        (["3f2a", "--grad", "B"], "3f2a is no model"),
    ],
)
def test_what_show_refuses(dlc: Dlc, arguments: list[str], message: str) -> None:
    ran = dlc("show", *arguments)
    assert ran.code == ExitCode.USAGE
    assert message in ran.err


def test_every_flag_of_a_choice_is_read_by_the_quick_form() -> None:
    from dlc.cli.app import load_command
    from dlc.cli.options import FLAGS
    from dlc.cli.quick import VALUES
    from dlc.cli.table import COMMANDS

    build = load_command(next(c for c in COMMANDS if c.name == "build"))
    spelled = {name for p in build.params for name in p.opts}
    for name, words in FLAGS.items():
        assert set(words) <= spelled
        assert all(VALUES[word] == name for word in words)
