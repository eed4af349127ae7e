"""Small files that describe much work end in exit code 4, with the pass, the node and the limit."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from dlc.base.budget import Budget, Spent, charge_elements, limit, spending, tick
from dlc.base.diagnostics import DlcError, ExitCode
from tests.cli.conftest import Dlc
from tests.cli.models import small

DATA = Path(__file__).parents[1] / "data" / "cost"
BUILD = ("-t", "c{lib=none}", "-o", "out", "-q", "--cache", "off")


def save(nodes: list[onnx.NodeProto], outputs: list[str], shape: list[str | int]) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], y), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    Path("m.onnx").write_bytes(model.SerializeToString())


def test_a_splat_of_terabytes_is_not_written(dlc: Dlc) -> None:
    ran = dlc("build", DATA / "cos.onnx", *BUILD)
    assert ran.code == ExitCode.LIMIT
    assert "error[over-budget]: emit c: the value of splat has 4,398,046,511,104 bytes" in ran.err
    assert 'node "ConstantOfShape_0"' in ran.err
    assert "--build-budget memory=N" in ran.err
    assert not Path("out").exists()


def test_a_pipeline_of_many_passes_is_not_expanded(dlc: Dlc) -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("dlc.toml").write_text((DATA / "pipeline_bomb.dlc.toml").read_text())
    ran = dlc("build", "small.onnx", "-t", "t", "-o", "out")
    assert ran.code == ExitCode.LIMIT
    assert "pipeline p0 has more than 4,096 passes" in ran.err


@pytest.mark.parametrize("text", ["a = " + "[" * 1900 + "]" * 1900, "a = " + "{a=" * 900 + "1" + "}" * 900])
def test_deep_toml_is_a_message(dlc: Dlc, text: str) -> None:
    Path("deep.toml").write_text(text)
    Path("small.onnx").write_bytes(small().SerializeToString())
    for flag in ("--tune", "--machine"):
        ran = dlc("build", "small.onnx", flag, "deep.toml", *BUILD)
        assert ran.code in (ExitCode.MODEL, ExitCode.USAGE) and "nest too deeply" in ran.err, ran.err
    Path("dlc.toml").write_text(text)
    ran = dlc("list", "passes")
    assert ran.code == ExitCode.USAGE and "not valid TOML: lists or tables nest too deeply" in ran.err


def test_long_names_of_dimensions(dlc: Dlc) -> None:
    names = ["n" * 4096, "n" * 4095 + "m"]
    save([helper.make_node("Exp", ["x"], ["y"])], ["y"], [*names])
    ran = dlc("build", "m.onnx", "--dim", f"{names[0]}=1..4", "--dim", f"{names[1]}=1..5", *BUILD)
    assert ran.code == 0, ran.err
    assert all("n" * 65 not in file.read_text() for file in Path("out").glob("*.[ch]"))


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ("seconds=0.01", "the build has taken 0.01 seconds of processor time"),
        ("nodes=3", "the budget is 3 nodes"),
        ("kernels=1", "the budget is 1 kernels"),
    ],
)
def test_each_limit_ends_a_build(dlc: Dlc, budget: str, text: str) -> None:
    nodes = [helper.make_node("MatMul", [f"v{k}" if k else "x"] * 2, [f"v{k + 1}"]) for k in range(8)]
    save(nodes, ["v8"], [4, 4])
    assert dlc("build", "m.onnx", *BUILD).code == 0
    ran = dlc("build", "m.onnx", "--build-budget", budget, *BUILD)
    assert ran.code == ExitCode.LIMIT and "error[over-budget]" in ran.err and text in ran.err, ran.err
    kind = budget.partition("=")[0]
    assert dlc("build", "m.onnx", "--build-budget", f"{kind}=0", *BUILD).code == 0
    Path("dlc.toml").write_text(f'[build]\nbudget = "{budget}"\n')
    assert dlc("build", "m.onnx", *BUILD).code == ExitCode.LIMIT


def test_what_the_cache_has_costs_nothing(dlc: Dlc) -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    line = ("build", "small.onnx", "-t", "c{lib=none}", "-o", "out", "-q")
    assert dlc(*line).code == 0
    again = dlc(*line, "--build-budget", "seconds=0.001", "--json").document
    assert (again["exit_code"], again["cache"]["misses"]) == (0, 0)


@pytest.mark.parametrize("text", ["second=3", "seconds", "seconds=x", "nodes=-1", "nodes=1.5", "nodes=" + "9" * 50])
def test_a_wrong_budget_is_a_message(dlc: Dlc, text: str) -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    ran = dlc("build", "small.onnx", "--build-budget", text, *BUILD)
    assert ran.code == ExitCode.USAGE and "--build-budget" in ran.err


@pytest.mark.parametrize(("budget", "raised"), [("seconds=0", "seconds"), ("memory=9999999999", "memory")])
def test_a_file_that_nobody_trusts_raises_no_limit(dlc: Dlc, budget: str, raised: str) -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("dlc.toml").write_text(f'[build]\nbudget = "{budget}"\n')
    ran = dlc("build", "small.onnx", *BUILD)
    assert ran.code == ExitCode.USAGE
    assert f"error[untrusted]: build.budget raises the limit of {raised}, and dlc.toml:2 is not trusted" in ran.err
    assert dlc("build", "small.onnx", "--trust-config", *BUILD).code == 0
    assert dlc("build", "small.onnx", "--build-budget", budget, *BUILD).code == 0


def test_limits_grow_with_the_file_and_end_with_the_build() -> None:
    budget = Budget.parse("seconds=2 elements=100")
    assert (budget.for_input(0).seconds, budget.for_input(4097).seconds) == (2, 4)
    assert budget.for_input(1 << 40).memory == 1 << 40
    with spending(budget) as spent:
        charge_elements(60, "a")
        with pytest.raises(DlcError, match="b and what was computed before have 120 elements; the budget is 100"):
            charge_elements(60, "b")
        with spending(Budget.unlimited()) as inner:
            assert inner is spent
        limit("nodes", Budget.nodes, "the graph")
        with spent.at("fuse{max-nests=3}"), pytest.raises(DlcError, match="fuse: the graph has 262,145 nodes"):
            limit("nodes", Budget.nodes + 1, "the graph")
        spent.start -= 3
        with pytest.raises(DlcError, match="2 seconds"):
            for _ in range(1000):
                tick()
    charge_elements(1 << 60, "outside")
    limit("memory", 1 << 60, "outside")
    Spent(Budget.unlimited(), start=-1e9).check_clock()


def test_the_budget_holds_for_each_of_several_models(dlc: Dlc) -> None:
    for name in ("one", "two"):
        Path(f"{name}.onnx").write_bytes(small().SerializeToString())
    ran = dlc(
        "build", "one.onnx", "two.onnx", "-t", "c{lib=none}", "-o", "out", "--cache", "off", "--build-budget", "nodes=1"
    )
    assert ran.code == ExitCode.LIMIT, ran.err
