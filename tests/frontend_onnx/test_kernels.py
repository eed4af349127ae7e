"""Nodes of the domain `dlc.kernel`: text in a model, inlined, differentiated, built, and refused with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from building import Array, model_of
from onnx import helper

from dlc import DlcError, Frontend, Graph, Report, Source, Spec, gradients, load
from dlc.base.diagnostics import ExitCode
from dlc.graph import Input, evaluate, make_graph
from dlc.plugins.discovery import load_registry

BLUR = "A<8,8>[i,j] = (B<10,8>[i,j] + B<10,8>[i+1,j] + B<10,8>[i+2,j]) / 3.0;"
PRODUCT = "C<2,4>[i,j] = A<2,3>[i,k] * B<3,4>[k,j];"
RNG = np.random.default_rng(7)
B = RNG.normal(size=(10, 8)).astype(np.float32)


def onnx_frontend(disable: tuple[str, ...] = ()) -> Frontend:
    return load_registry(disable=disable, kinds=("frontends",)).frontend(Spec("onnx"))


def parse(model: onnx.ModelProto, frontend: Frontend | None = None) -> Graph:
    source = Source(data=model.SerializeToString(), label="test.onnx")
    return (frontend or onnx_frontend()).parse(source, Report())


def kernel(text: str, inputs: list[str], outputs: list[str], node: str = "k", **attributes: object) -> onnx.NodeProto:
    made = helper.make_node("Anything", inputs, outputs, name=node, domain="dlc.kernel", kernel=text)
    made.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
    return made


def run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    return evaluate(parse(model), feeds)


def blurred(b: Array) -> Array:
    return (b[0:8] + b[1:9] + b[2:10]) / np.float32(3)


@pytest.mark.parametrize("domains", [(), ("dlc.kernel",)])
def test_a_kernel_is_an_operator(domains: tuple[str, ...]) -> None:
    nodes = [helper.make_node("Relu", ["b"], ["t"]), kernel(BLUR, ["t"], ["u"]), helper.make_node("Exp", ["u"], ["y"])]
    graph = parse(model_of(nodes, {"b": B}, ["y"], domains=domains))
    got = evaluate(graph, {"b": B})["y"]
    np.testing.assert_allclose(got, np.exp(blurred(np.maximum(B, 0))), rtol=1e-6)
    assert any("k" in names for names in graph.origins.values())


def test_inputs_and_outputs_go_by_position() -> None:
    text = "S<2,4>[i,j] = X<2,4>[i,j] + Y<4>[j]; D<2,4>[i,j] = X<2,4>[i,j] - Y<4>[j];"
    x, y = RNG.normal(size=(2, 4)).astype(np.float32), RNG.normal(size=4).astype(np.float32)
    got = run(model_of([kernel(text, ["x", "y"], ["s", "d"])], {"x": x, "y": y}, ["d", "s"]), {"x": x, "y": y})
    np.testing.assert_allclose(got["s"], x + y)
    np.testing.assert_allclose(got["d"], x - y)


def test_tensors_have_the_element_type_of_the_operands() -> None:
    a, b = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 4))
    got = run(model_of([kernel(PRODUCT, ["a", "b"], ["c"])], {"a": a, "b": b}, ["c"]), {"a": a, "b": b})
    assert got["c"].dtype == np.float64
    np.testing.assert_allclose(got["c"], a @ b)


def test_a_name_chooses_one_of_several_kernels() -> None:
    text = "kernel one(B: float[3]) -> (A: float[3]) { A[i] = B[i] + 1.0; }\n"
    text += text.replace("one", "two").replace("+ 1.0", "* 2.0")
    b = np.arange(3, dtype=np.float32)
    got = run(model_of([kernel(text, ["b"], ["a"], name="two")], {"b": b}, ["a"]), {"b": b})
    np.testing.assert_allclose(got["a"], b * 2)
    with pytest.raises(DlcError, match="one, two") as refused:
        parse(model_of([kernel(text, ["b"], ["a"])], {"b": b}, ["a"]))
    assert refused.value.diagnostics[0].help == "name it in the attribute name"
    assert refused.value.exit_code == ExitCode.MODEL


def test_the_same_text_in_many_nodes_is_one_kernel() -> None:
    nodes = [kernel("A<3>[i] = B<3>[i] * 2.0;", [f"x{k}"], [f"x{k + 1}"], f"n{k}") for k in range(20)]
    x = np.ones(3, np.float32)
    graph = parse(model_of(nodes, {"x0": x}, ["x20"]))
    assert len({op.attrs["body"].digest for op in graph.ops if "body" in op.attrs}) == 1
    np.testing.assert_allclose(evaluate(graph, {"x0": x})["x20"], x * 2.0**20)


def test_a_kernel_in_a_branch_and_in_a_function() -> None:
    body = helper.make_graph([kernel("A<3>[i] = B<3>[i] + 1.0;", ["b"], ["t"])], "then", [], [_info("t")])
    other = helper.make_graph([helper.make_node("Neg", ["b"], ["e"])], "else", [], [_info("e")])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=other)]
    b = np.arange(3, dtype=np.float32)
    made = model_of(nodes, {"b": b}, ["y"], {"c": np.array(True)})
    np.testing.assert_allclose(run(made, {"b": b})["y"], b + 1)
    function = helper.make_function(
        "own", "F", ["p"], ["q"], [kernel("A<3>[i] = B<3>[i] + 1.0;", ["p"], ["q"])], [helper.make_opsetid("", 17)]
    )
    made = model_of([helper.make_node("F", ["b"], ["y"], domain="own")], {"b": b}, ["y"], domains=("own",))
    made.functions.append(function)
    np.testing.assert_allclose(run(made, {"b": b})["y"], b + 1)


def _info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3])


def test_gradients_go_through() -> None:
    b = RNG.normal(size=(10, 8))
    nodes = [helper.make_node("Mul", ["b", "b"], ["t"]), kernel(BLUR, ["t"], ["y"])]
    graph = parse(model_of(nodes, {"b": b}, ["y"]))
    seed = Input("dy", graph.outputs[0].type)
    (db,) = gradients(graph.outputs, (seed,), graph.inputs)
    dy = RNG.normal(size=(8, 8))
    got = evaluate(make_graph((*graph.inputs, seed), {"db": db}), {"b": b, "dy": dy})["db"]
    spread = sum(np.pad(dy, ((k, 2 - k), (0, 0))) for k in range(3)) / 3
    np.testing.assert_allclose(got, spread * 2 * b, rtol=1e-12)


def test_a_whole_build_through_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dlc.cli.frame import run as command

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    nodes = [kernel(BLUR, ["b"], ["t"]), helper.make_node("Tanh", ["t"], ["y"])]
    Path("m.onnx").write_bytes(model_of(nodes, {"b": B}, ["y"]).SerializeToString())
    assert command(["build", "m.onnx", "-o", "out", "-q"]) == 0
    np.testing.assert_allclose(load(Path("out"))(b=B)["y"], np.tanh(blurred(B)), rtol=1e-5, atol=1e-6)
    assert command(["build", "m.onnx", "-o", "grad", "--grad", "b", "-q"]) == 0
    dy = RNG.normal(size=(8, 8)).astype(np.float32)
    want = sum(np.pad(dy * (1 - np.tanh(blurred(B)) ** 2), ((k, 2 - k), (0, 0))) for k in range(3)) / 3
    np.testing.assert_allclose(load(Path("grad"))(b=B, dy=dy)["db"], want, rtol=1e-4, atol=1e-5)


def test_the_code_that_reads_kernels_is_part_of_the_key() -> None:
    frontend = onnx_frontend()
    with_kernel = model_of([kernel(BLUR, ["b"], ["y"])], {"b": B}, ["y"])
    without = model_of([helper.make_node("Relu", ["b"], ["y"])], {"b": B}, ["y"])
    found = [frontend.packages(Source(data=m.SerializeToString())) for m in (with_kernel, without)]
    assert found == [("dlc_frontend_kernel",), ()]
    assert onnx_frontend(disable=("kernel",)).packages(Source(data=with_kernel.SerializeToString())) == ()


WRONG = {
    "too few": (kernel(PRODUCT, ["b"], ["y"]), "the node has 1 input, the kernel takes A: f32[2,3], B: f32[3,4]"),
    "left out": (kernel(PRODUCT, ["", "b"], ["y"]), "input 0, A of the kernel, is left out"),
    "shape": (kernel("A<3>[i] = B<3>[i];", ["b"], ["y"]), "input 0 is f32[10,8], B of the kernel is f32[3]"),
    "syntax": (kernel("A<3>[i] =\n  B<3>[i] + ;", ["b"], ["y"]), "expected"),
    "no text": (kernel("", ["b"], ["y"]), "the attribute kernel, the kernel's text, is missing or empty"),
    "no attribute": (helper.make_node("K", ["b"], ["y"], name="k", domain="dlc.kernel"), "is missing or empty"),
    "not a text": (
        helper.make_node("K", ["b"], ["y"], name="k", domain="dlc.kernel", kernel=7),
        "attribute kernel is of type INT, not STRING",
    ),
    "attribute": (kernel(BLUR, ["b"], ["y"], axis=1), "attribute axis is not understood"),
    "more outputs": (kernel(BLUR, ["b"], ["y", "z"]), "output 1 is used"),
    "no such kernel": (kernel(BLUR, ["b"], ["y"], name="other"), "has no kernel other"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_reported_with_the_node(name: str) -> None:
    node, message = WRONG[name]
    outputs = ["y", "z"] if name == "more outputs" else ["y"]
    with pytest.raises(DlcError) as refused:
        parse(model_of([node], {"b": B}, outputs))
    (output,) = refused.value.diagnostics
    assert message in output.message
    assert output.location is not None
    assert output.location.node == "k"


def test_a_place_in_the_text_is_kept() -> None:
    with pytest.raises(DlcError) as refused:
        parse(model_of([kernel("A<3>[i] =\n  B<3>[i] + ;", ["b"], ["y"], "blur/2")], {"b": B}, ["y"]))
    (output,) = refused.value.diagnostics
    assert output.location is not None
    assert (output.location.line, output.location.node) == (2, "blur/2")
    assert output.location.column > 0
    assert output.source_line.strip() == "B<3>[i] + ;"
    assert "test.onnx: kernel:2:" in str(output.location)


def test_every_faulty_node_is_reported() -> None:
    nodes = [kernel("A<3>[i] = ;", ["b"], ["y"], "first"), kernel("= B<3>[i];", ["b"], ["z"], "second")]
    with pytest.raises(DlcError) as refused:
        parse(model_of(nodes, {"b": B}, ["y", "z"]))
    assert [d.location.node for d in refused.value.diagnostics if d.location] == ["first", "second"]


@pytest.mark.parametrize("direct", [True, False])
def test_without_the_plugin_it_says_what_to_install(direct: bool) -> None:
    from dlc_frontend_onnx.frontend import Onnx

    frontend = Onnx() if direct else onnx_frontend(disable=("kernel",))
    with pytest.raises(DlcError) as refused:
        parse(model_of([kernel(BLUR, ["b"], ["y"])], {"b": B}, ["y"]), frontend)
    (output,) = refused.value.diagnostics
    assert output.location is not None
    assert output.location.node == "k"
    assert direct is (output.help == 'pip install "dlc[kernel]"')


HOSTILE = (
    "(" * 20_000,
    "A<3>[i] = " + "(" * 10_000 + "B<3>[i]" + ")" * 10_000 + ";",
    "A<99999999999,99999999999>[i,j] = 1.0;",
    "A<-1>[i] = B<-1>[i];",
    "A<3>[i] = B<3>[i] // 0;",
    "\0\ufffd\u202e*/ int injected;",
    "A<3>[i] = B<3>[" + "i+" * 10_000 + "i];",
    "x" * 2_000_000,
    "{" * 100_000,
    '{"name": "x", "kernel": ',
    "A<3>[i] = A<3>[i] + " * 3_000,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(DlcError) as refused:
        parse(model_of([kernel(text, ["b"], ["y"])], {"b": B}, ["y"]))
    assert refused.value.exit_code in (ExitCode.MODEL, ExitCode.LIMIT)
    assert len(str(refused.value)) < 5000


def test_bytes_that_are_no_text_are_refused() -> None:
    node = kernel("A", ["b"], ["y"])
    node.attribute[0].s = b"A<3>[i] = \xff\xfe;"
    with pytest.raises(DlcError):
        parse(model_of([node], {"b": B}, ["y"]))
