"""Ops of packs are ops like others: shapes, values, text, gradients and kernels follow from what the record says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc import DlcError, Op
from dlc.base.extents import Dim
from dlc.base.types import DType, Type, f16, f32, f64, i64
from dlc.define import ShapeError
from dlc.graph import Input, evaluate, make_graph, parse_graph, print_graph, verify
from dlc.op_packs.load import Pack
from dlc.ops.elementwise import Mul, Sigmoid
from dlc.plugins.discovery import load_registry
from tests.op_packs.packs import SOUND, changed, pack


@pytest.fixture(scope="module")
def demo() -> Pack:
    return pack()


def inp(*dims: int, name: str = "x", dtype: DType = f32) -> Input:
    return Input(name, Type(dtype, dims))


def op_of(pack: Pack, name: str) -> Any:
    return next(kind for kind in pack.classes if kind.text_name == name)


def test_fields_and_documentation_are_those_of_the_record(demo: Pack) -> None:
    scale = op_of(demo, "demo_scale")
    assert (scale.operand_names, scale.attr_names) == (("x", "shift"), ("factor",))
    assert scale.__doc__ == "y = x · factor + shift, per channel, the last dimension."
    assert scale(inp(2, 3)).attrs == {"factor": 2.0}
    assert scale(inp(2, 3), factor=1) == scale(inp(2, 3), factor=1.0)


@pytest.mark.parametrize("dtype", [f16, f32, f64])
@pytest.mark.parametrize("dims", [(3,), (2, 3), (4, 1, 3)])
def test_a_record_is_for_every_rank_and_element_type_that_it_allows(
    demo: Pack, dims: tuple[int, ...], dtype: DType
) -> None:
    op: Op = op_of(demo, "demo_scale")(inp(*dims, dtype=dtype), inp(3, name="s", dtype=dtype), factor=3.0)
    assert op.type == Type(dtype, dims)
    x: Any = np.arange(op.type.size).reshape(dims).astype(dtype.numpy)
    graph = make_graph([i for i in op.operands if isinstance(i, Input)], {"y": op})
    np.testing.assert_allclose(evaluate(graph, {"x": x, "s": np.ones(3, dtype.numpy)})["y"], x * 3 + 1)
    assert not verify(graph)
    assert parse_graph(print_graph(graph), {k.text_name: k for k in (*demo.classes, Input)}) == graph


def test_dimensions_may_be_known_at_run_time_only(demo: Pack) -> None:
    of = Type.parse("f32[batch(1,8),3]")
    op = op_of(demo, "demo_scale")(Input("x", of), inp(3, name="s"))
    assert op.type == of
    assert isinstance(op_of(demo, "demo_pool")(Input("x", Type.parse("f32[batch(1,8),4]")), size=2).shape[0], Dim)


def test_operands_in_the_place_of_the_rest_broadcast(demo: Pack) -> None:
    assert op_of(demo, "demo_gate")(inp(2, 1, 3), inp(4, 1, name="b")).shape == (2, 4, 3)


REFUSED: list[tuple[Callable[[Any], Op], str]] = [
    (lambda k: k["demo_scale"](inp(2, 3), inp(4, name="s")), "sizes of C in shift and before it differ: 3 and 4"),
    (lambda k: k["demo_scale"](inp(2, 3, dtype=i64)), r"x is i64\[2,3\]; its elements must be float"),
    (lambda k: k["demo_scale"](inp(2, 3), factor=-1.0), "attribute factor: -1.0 is less than 0"),
    (lambda k: k["demo_pool"](inp(2, 3), size=2), "W % size == 0 does not hold: W is 3, size is 2"),
    (lambda k: k["demo_pool"](inp(2, 3, 4), size=2), r"x is f32\[2,3,4\]; it must have the dimensions \[N, W\]"),
    (lambda k: k["demo_gate"](inp(2), inp(3, name="b")), "shapes do not broadcast"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_operands_that_do_not_fit_are_refused_with_the_numbers(
    demo: Pack, make: Callable[[Any], Op], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        make({kind.text_name: kind for kind in demo.classes})


def test_a_composition_is_the_ops_that_it_names(demo: Pack) -> None:
    x, b = inp(2), inp(2, name="b")
    assert op_of(demo, "demo_gate")(x, b).expansion == Mul(x, Sigmoid(b))


def test_a_gradient_of_the_record_is_the_one_that_is_taken(demo: Pack) -> None:
    x, b, dy = inp(2), inp(2, name="b"), inp(2, name="dy")
    found = op_of(demo, "demo_gate")(x, b).vjp(dy)
    assert found is not None
    assert found[0] == Mul(dy, Sigmoid(b))


def test_several_statements_are_ops_of_one_each() -> None:
    text = changed(
        "y[n, i<W//size] = sum[k<size](x[n, i*size + k])",
        "s[n, i<W//size] = sum[k<size](x[n, i*size + k])\n      y[n, i] = s[n, i] / size + N",
    )
    summed = pack(text.replace("y: [[3.0, 7.0]]", "y: [[2.5, 4.5]]"))
    op: Op = op_of(summed, "demo_pool")(inp(1, 4), size=2)
    assert op.expansion is not None
    assert [type(o).text_name for o in (op.expansion, op.expansion.operands[0])] == ["demo_pool_y", "demo_pool_s"]
    assert evaluate(make_graph([inp(1, 4)], {"y": op}), {"x": np.array([[1, 2, 3, 4]], np.float32)})["y"].tolist() == [
        [2.5, 4.5]
    ]


# ---- where packs come from
HOOK = """
from pathlib import Path
from dlc import hookimpl

@hookimpl
def dlc_op_packs():
    return [Path(__file__).parent / {name!r}]
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """A plugin with one pack: a package, as its content is part of cache keys."""

    def make(text: str, named: str = "demo.ops.yaml") -> Path:
        info, root = tmp_path / "dlc_ops_demo-1.0.dist-info", tmp_path / "dlc_ops_demo"
        info.mkdir()
        root.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dlc-ops-demo\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[dlc]\ndemo = dlc_ops_demo\n")
        (root / "__init__.py").write_text(HOOK.format(name=named))
        (root / "demo.ops.yaml").write_text(text)
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, "dlc_ops_demo", raising=False)
        return root

    return make


def test_a_plugin_brings_a_pack_by_one_hook(package: Callable[..., Path]) -> None:
    package(SOUND)
    registry = load_registry()
    assert registry.ops["demo_scale"].plugin == "demo"
    assert [r.domain for r in registry.onnx_rules if r.plugin == "demo"] == ["org.demo"]
    assert "dlc_ops_demo" in registry.acting


def test_a_pack_that_is_not_sound_breaks_its_plugin_alone(package: Callable[..., Path]) -> None:
    package(SOUND.replace("* factor", "* facter"))
    registry = load_registry(kinds=("ops",))
    (problem,) = [p for p in registry.problems if "demo" in p.message]
    assert "'facter' is neither an axis" in problem.message
    assert "demo_scale" not in registry.ops


def test_packs_outside_of_the_package_are_refused(package: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "other.ops.yaml").write_text(SOUND)
    package(SOUND, "../other.ops.yaml")
    (problem,) = [p for p in load_registry(kinds=("ops",)).problems if "demo" in p.message]
    assert "does not lie in the package dlc_ops_demo" in problem.message


def test_packs_of_one_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.ops.yaml").write_text(SOUND)
    with pytest.raises(DlcError) as caught:
        load_registry(packs=[tmp_path])
    assert all(f"{name}.ops.yaml" in str(caught.value) for name in ("a", "b"))
    assert "rename the op or its pack" in str(caught.value)


@pytest.mark.parametrize("path", ["absent.ops.yaml", "."])
def test_a_path_without_packs_is_an_error(tmp_path: Path, path: str) -> None:
    with pytest.raises(DlcError, match="no op pack"):
        load_registry(packs=[tmp_path / path])


def test_the_content_of_named_packs_is_part_of_keys(tmp_path: Path) -> None:
    (tmp_path / "demo.ops.yaml").write_text(SOUND)
    before = load_registry(packs=[tmp_path]).op_packs
    (tmp_path / "demo.ops.yaml").write_text(SOUND + "# a comment\n")
    assert before
    assert load_registry(packs=[tmp_path]).op_packs != before
    assert load_registry().op_packs == ""
