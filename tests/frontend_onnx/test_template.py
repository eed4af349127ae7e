"""Models written back: templates of real and of made models, filled with their own and with other values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import Array, model_of, parse, runtime
from dlc_frontend_onnx.frontend import Onnx
from onnx import TensorProto, helper, numpy_helper

from dlc import DlcError, Report, Source
from dlc.graph import Constant, Graph, evaluate
from dlc.runtime.export import filled
from dlc.training.step.weights import parameters

ROOT = Path(__file__).parents[2]
MODELS = [
    "examples/mnist.onnx",
    "examples/squeezenet.onnx",
    *(
        f"tests/data/models/{name}.onnx"
        for name in (
            *("mnist_cntk/model", "mnist_mlp/model", "super_resolution/model", "tinyvit/model", "micro_kws/fp32"),
            *("cct_vit/model", "cct_train_ft2/network_infer"),
        )
    ),
]
ONNX: Any = onnx
"""Where its signatures are partly unknown."""
RNG = np.random.default_rng(5)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def source_of(model: onnx.ModelProto) -> Source:
    return Source(data=model.SerializeToString(), label="test.onnx")


def values_of(graph: Graph) -> dict[str, Array]:
    """The parameters of a graph by name."""
    found = parameters(graph.outputs)
    return {name: op.tensor.array() for name, op in found.items() if isinstance(op, Constant)}


def refilled(source: Source, values: Mapping[str, Array], frontend: Onnx | None = None) -> onnx.ModelProto:
    """A model by way of its template, checked by ONNX."""
    frontend = frontend or Onnx()
    template = frontend.template(source, tuple(values))
    model = onnx.load_from_string(frontend.filled(template, values))
    ONNX.checker.check_model(model, full_check=True)
    return model


def other(values: Mapping[str, Array]) -> dict[str, Array]:
    """Values that differ from these, near them."""
    return {k: np.asarray(v * 1.25 + 0.01 * f(*v.shape), v.dtype) for k, v in values.items()}


def random_feeds(model: onnx.ModelProto) -> dict[str, Array]:
    stored = {t.name for t in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for i in model.graph.input:
        if i.name not in stored:
            feeds[i.name] = f(*(d.dim_value or 1 for d in i.type.tensor_type.shape.dim))
    return feeds


def edited(model: onnx.ModelProto, values: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with other initializers, and constants for Identities that get a value, by ONNX's own functions."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    for t in new.graph.initializer:
        if t.name in values:
            t.CopyFrom(numpy_helper.from_array(values[t.name], t.name))
    for node in new.graph.node:
        if node.op_type == "Identity" and node.output[0] in values:
            value = numpy_helper.from_array(values[node.output[0]])
            node.CopyFrom(helper.make_node("Constant", [], node.output, value=value))
    return new


def assert_same(left: onnx.ModelProto, right: onnx.ModelProto, feeds: Mapping[str, Array]) -> None:
    names = [o.name for o in left.graph.output]
    assert [o.SerializeToString() for o in right.graph.output] == [o.SerializeToString() for o in left.graph.output]
    for a, b in zip(runtime(left, names, feeds), runtime(right, names, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("path", MODELS)
def test_models_come_back_with_their_own_and_with_other_values(path: str) -> None:
    source = Source(ROOT / path)
    model: onnx.ModelProto = ONNX.load(ROOT / path)
    symbols = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    frontend = Onnx(dims=tuple(f"{s}:1" for s in sorted(symbols)))
    values = values_of(frontend.parse(source, Report()))
    assert values
    feeds = random_feeds(model)
    assert_same(model, refilled(source, values), feeds)
    new = other(values)
    assert_same(edited(model, new), refilled(source, new), feeds)
    left_out = sum(v.nbytes for v in values.values())
    assert len(Onnx().template(source, tuple(values))) < model.ByteSize() - left_out + 16 * len(values) + 1024


def test_data_in_other_files_comes_along(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    model = model_of(nodes, {"x": f(2, 40)}, ["y"], {"w": f(40, 30), "b": f(30)})
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 30)))
    whole = model.SerializeToString()
    ONNX.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    source = Source(tmp_path / "m.onnx")
    template = Onnx().template(source, ("w",))
    values = values_of(Onnx().parse(source, Report()))
    (tmp_path / "m.data").unlink()
    back = onnx.load_from_string(filled(".onnx", template, {"w": values["w"]}))
    assert_same(onnx.load_from_string(whole), back, {"x": f(2, 40)})
    with pytest.raises(DlcError, match=r"m\.data"):
        Onnx().template(source, ("w",))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("raw", [True, False])
def test_values_keep_their_type_however_they_were_stored(dtype: Any, raw: bool) -> None:
    w = f(3, 4).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    stored = numpy_helper.from_array(w, "w") if raw else helper.make_tensor("w", kind, w.shape, w.ravel())
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Mul", ["h", "w2"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, ["n", 3])],
        [helper.make_tensor_value_info("y", kind, ["n", 4])],
        [stored, numpy_helper.from_array(np.ones(4, dtype), "w2")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    new = {"w": f(3, 4).astype(dtype)}
    back = refilled(source_of(model), new)
    assert_same(edited(model, new), back, {"x": f(2, 3).astype(dtype)})
    assert back.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_an_initializer_of_several_nodes_is_one_and_constant_nodes_are_no_parameters() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], name="c", value=numpy_helper.from_array(f(4, 4), "c")),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("MatMul", ["b", "c"], ["y"]),
    ]
    model = model_of(nodes, {"x": f(2, 4)}, ["y"], {"w": f(4, 4)})
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 4)))
    assert list(values_of(parse(model))) == ["w"]
    new = {"w": f(4, 4)}
    assert_same(edited(model, new), refilled(source_of(model), new), {"x": f(2, 4)})
    with pytest.raises(DlcError, match='no parameter "c"'):
        Onnx().template(source_of(model), ("c",))


def test_parameters_may_be_used_by_functions_and_branches() -> None:
    then, other_ = (
        helper.make_graph(
            [helper.make_node(op, ["h", "w"], ["z"])],
            op,
            [],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, (2, 4))],
            [numpy_helper.from_array(f(3), "inner")],
        )
        for op in ("Add", "Mul")
    )
    function = helper.make_function(
        *("local", "Twice", ["a", "b"], ["c"]),
        [helper.make_node("Mul", ["a", "b"], ["m"]), helper.make_node("Add", ["m", "m"], ["c"])],
        [helper.make_opsetid("", 17)],
    )
    nodes = [
        helper.make_node("Twice", ["x", "w"], ["h"], domain="local"),
        helper.make_node("If", ["yes"], ["y"], then_branch=then, else_branch=other_),
    ]
    model = model_of(nodes, {"x": f(2, 4)}, ["y"], {"w": f(4), "yes": np.array(True)}, domains=("local",))
    model.functions.append(function)
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 4)))
    assert list(values_of(parse(model))) == ["w"]
    new = {"w": f(4)}
    assert_same(edited(model, new), refilled(source_of(model), new), {"x": f(2, 4)})


def twins() -> onnx.ModelProto:
    """Four layers whose scales are one initializer, by way of Identities in any order."""
    nodes = [
        helper.make_node("Mul", ["x", "s1"], ["a"]),
        helper.make_node("Identity", ["s2"], ["s3"]),
        helper.make_node("Mul", ["a", "s2"], ["b"]),
        helper.make_node("Identity", ["s1"], ["s2"]),
        helper.make_node("Mul", ["b", "s3"], ["c"]),
        helper.make_node("Identity", ["s1"], ["s4"]),
        helper.make_node("Add", ["c", "s4"], ["y"]),
    ]
    order = (0, 3, 1, 2, 4, 5, 6)
    model = model_of([nodes[k] for k in order], {"x": f(2, 4)}, ["y"], {"s1": np.ones(4, np.float32)})
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 4)))
    return model


def test_identities_of_an_initializer_are_parameters_of_their_own() -> None:
    model, x = twins(), f(2, 4)
    assert sorted(values_of(parse(model))) == ["s1", "s2", "s3", "s4"]
    new = {f"s{k}": f(4) for k in (1, 2, 3, 4)}
    back = refilled(source_of(model), new)
    assert [n.op_type for n in back.graph.node] == ["Mul", "Mul", "Mul", "Add"]
    want = x * new["s1"] * new["s2"] * new["s3"] + new["s4"]
    np.testing.assert_allclose(runtime(back, ["y"], {"x": x})[0], want, rtol=1e-6)
    np.testing.assert_allclose(evaluate(parse(back), {"x": x})["y"], want, rtol=1e-6)


@pytest.mark.parametrize("moved", ["s1", "s2", "s3", "s4"])
def test_what_is_not_trained_keeps_its_value_when_what_it_repeats_moves(moved: str) -> None:
    x, new = f(2, 4), f(4)
    back = refilled(source_of(twins()), {moved: new})
    want = x + new if moved == "s4" else x * new + 1
    np.testing.assert_allclose(runtime(back, ["y"], {"x": x})[0], want, rtol=1e-6)


def test_tied_parameters_stay_one() -> None:
    model, x, new = twins(), f(2, 4), f(4)
    tied = Onnx(tied=("s[24]", "s3"))
    assert list(values_of(tied.parse(source_of(model), Report()))) == ["s1"]
    back = refilled(source_of(model), {"s1": new}, tied)
    assert len(back.graph.node) == len(model.graph.node)
    np.testing.assert_allclose(runtime(back, ["y"], {"x": x})[0], x * new**3 + new, rtol=1e-5)
    with pytest.raises(DlcError, match='no parameter "s2"'):
        tied.template(source_of(model), ("s2",))


def test_old_models_name_new_initializers_among_their_inputs() -> None:
    model = twins()
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("s1", TensorProto.FLOAT, (4,)))
    back = refilled(source_of(model), {"s1": f(4), "s4": f(4)})
    assert [i.name for i in back.graph.input] == ["x", "s1", "s2", "s3", "s4"]


def test_statistics_that_are_no_initializers_become_some() -> None:
    nodes = [
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.zeros(3, np.float32))),
        helper.make_node("BatchNormalization", ["x", "s", "b", "zero", "one"], ["y"], name="bn"),
    ]
    stored = {"s": np.ones(3, np.float32), "b": np.zeros(3, np.float32), "one": np.ones(3, np.float32)}
    x, new = f(2, 3, 4), {"bn.mean": f(3), "one": np.abs(f(3)) + 1}
    model = model_of(nodes, {"x": x}, ["y"], stored)
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, x.shape))
    got = runtime(refilled(source_of(model), new), ["y"], {"x": x})[0]
    mean, var = new["bn.mean"][:, None], new["one"][:, None]
    np.testing.assert_allclose(got, (x - mean) / np.sqrt(var + 1e-5), rtol=1e-5, atol=1e-6)


def test_inputs_that_are_weights_get_a_value_and_stay_inputs() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    x, w = f(2, 4), f(4, 3)
    model = model_of(nodes, {"x": x, "w": w}, ["y"])
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "k"
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 3)))
    back = refilled(source_of(model), {"w": w}, Onnx(dims=("k:4",)))
    assert list(back.graph.input) == list(model.graph.input)
    np.testing.assert_allclose(runtime(back, ["y"], {"x": x})[0], x @ w, rtol=1e-5)


def text(*args: Any) -> str:
    with pytest.raises(DlcError) as caught:
        filled(*args)
    return str(caught.value)


def test_values_that_do_not_fit_are_refused() -> None:
    template = Onnx().template(source_of(twins()), ("s1", "s2"))
    good = {name: np.ones(4, np.float32) for name in ("s1", "s2")}
    assert filled("onnx", template, good) == filled(".onnx", template, good)
    assert 'parameters without a value: "s2"' in text(".onnx", template, {"s1": good["s1"]})
    assert 'no parameter "s3"' in text(".onnx", template, {**good, "s3": good["s1"]})
    assert "is f64[4], the parameter f32[4]" in text(".onnx", template, {**good, "s2": np.ones(4)})
    assert "is f32[5], the parameter f32[4]" in text(".onnx", template, {**good, "s2": np.ones(5, np.float32)})
    assert "is complex64[4], the parameter" in text(".onnx", template, {**good, "s2": np.ones(4, np.complex64)})
    assert "not one of an ONNX model" in text("onnx", template[:-9], good)


def test_other_formats_say_that_they_are_only_read() -> None:
    assert "the frontend dlc only reads its format" in text(".dlc", b"graph() { }", {})
    assert "no installed frontend reads this file" in text(".nothing", b"", {})


def test_more_than_one_file_holds_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.bin"
    with path.open("wb") as file:
        file.truncate(3 << 30)  # sparse: it takes no room
    w = onnx.TensorProto(name="w", dims=(3 << 20, 256), data_type=TensorProto.FLOAT, data_location="EXTERNAL")
    w.external_data.add(key="location", value="big.bin")
    model = model_of([helper.make_node("Gather", ["w", "x"], ["y"])], {"x": np.zeros(2, np.int64)}, ["y"])
    model.graph.initializer.append(w)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(DlcError, match=r"takes 3,221,\d+,\d+ bytes; one ONNX file holds at most 2,147,483,647"):
        Onnx().template(Source(tmp_path / "m.onnx"), ("w",))
