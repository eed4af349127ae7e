"""What every step leaves is verified by its level: a step that breaks a kernel is reported, whoever wrote it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlc.base.diagnostics import ExitCode
from dlc.graph import Call, Graph
from dlc.kernel.expr import Load
from dlc.passes.fuse import Fuse
from dlc.passes.layout import Layout
from dlc.passes.lower import Lower
from tests.cli.conftest import Dlc, Install
from tests.cli.models import small
from tests.cli.test_plugin_failures import errors_text
from tests.conftest import Golden

PLUGIN = (Path(__file__).parents[1] / "data" / "plugins" / "miscompiling.txt").read_text()
MODEL = """graph(%0 "x": f32[1,4,8]) {
  %1 = relu(%0)
  %2 = exp(%1)
  %3 = reduce_sum(%2) axes=(1)
  %4 = sub(%3, %3)
  return %2 "y", %4 "z"
}
"""
BUILD = ("build", "model.dlc", "-o", "out", "-q", "-p")


@pytest.fixture(autouse=True)
def model() -> None:
    Path("model.dlc").write_text(MODEL)


@pytest.mark.parametrize(
    "pipeline",
    [
        "lower,outside,order,plan-memory",
        "lower,layout,outside,fuse,order,plan-memory",
        "lower,fuse,outside{by=-1},order,plan-memory",
        "promise,order,plan-memory",
        "promise{nothing=yes},order,plan-memory",
    ],
)
def test_a_third_partys_pass_that_breaks_kernels_is_named(dlc: Dlc, install: Install, pipeline: str) -> None:
    install("wrong", PLUGIN)
    ran = dlc(*BUILD, pipeline)
    assert ran.code == ExitCode.PLUGIN
    assert "plugin wrong (dlc-wrong 1.2) failed in " in ran.err
    assert not Path("out").exists()


def test_the_message_tells_node_nest_subscript_and_range(
    dlc: Dlc, install: Install, golden: Golden, tmp_path: Path
) -> None:
    install("wrong", PLUGIN)
    Path("model.onnx").write_bytes(small().SerializeToString())
    golden(
        "verifier/third_party.txt",
        errors_text(dlc("build", "model.onnx", *BUILD[2:], "lower,outside,order,plan-memory").err, tmp_path),
    )


@pytest.mark.parametrize("stage", [Lower, Layout, Fuse], ids=lambda s: s.name)
def test_a_pass_of_ours_that_breaks_kernels_is_a_bug(
    dlc: Dlc, stage: Any, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = stage.run

    def moved(load: Load) -> Load:
        return Load(load.param, (*load.index[:-1], load.index[-1] + 1)) if load.index else load

    def wrong(self: Any, state: Graph, report: Any) -> Graph:
        def rule(op: Any) -> Any:
            if not isinstance(op, Call):
                return None
            return Call(replace(op.body, nests=tuple(n.map_loads(moved) for n in op.body.nests)), op.args)

        return right(self, state, report).rewrite(rule)

    monkeypatch.setattr(stage, "run", wrong)
    ran = dlc(*BUILD, "lower,layout,fuse,order,plan-memory")
    assert ran.code == ExitCode.BUG
    golden(f"verifier/{stage.name}.txt", ran.err)
