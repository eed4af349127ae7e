"""Models that are wrong in one way each, as files that no exporter writes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import onnx
from building import model_of
from onnx import AttributeProto, TensorProto, helper

Change = Callable[[onnx.ModelProto], None]
NAMES = (
    'a"b',
    "a\nb",
    "*/ int x; /*",
    "\u202eevil\u2066",
    "%s%n",
    "\x1b[31m",
    "x" * 5000,
    "",
    "../../etc/passwd",
    "\\",
)
X = np.zeros((2, 3), np.float32)


def small() -> onnx.ModelProto:
    """Gemm, Relu, and a Reshape by a stored shape."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"], name="gemm", alpha=0.5),
        helper.make_node("Relu", ["g"], ["r"], name="relu"),
        helper.make_node("Reshape", ["r", "to"], ["y"], name="reshape"),
    ]
    weights = {"w": np.ones((3, 400), np.float32), "to": np.array([1, -1], np.int64)}
    return model_of(nodes, {"x": X}, ["y"], weights)


def changed(change: Change) -> onnx.ModelProto:
    """The small model with one change."""
    model = small()
    change(model)
    return model


def cycle(m: onnx.ModelProto) -> None:
    m.graph.node[1].input[0] = "r2"
    m.graph.node.append(helper.make_node("Neg", ["r"], ["r2"], name="back"))


def duplicate_result(m: onnx.ModelProto) -> None:
    m.graph.node[1].output[0] = "g"


def duplicate_input(m: onnx.ModelProto) -> None:
    m.graph.input.append(m.graph.input[0])


def duplicate_initializer(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(m.graph.initializer[0])


def duplicate_output(m: onnx.ModelProto) -> None:
    m.graph.output.append(m.graph.output[0])


def result_named_as_an_input(m: onnx.ModelProto) -> None:
    m.graph.node[1].output[0] = "x"


def undefined_operand(m: onnx.ModelProto) -> None:
    m.graph.node[1].input[0] = "nowhere"


def undefined_output(m: onnx.ModelProto) -> None:
    m.graph.output[0].name = "nowhere"


def no_outputs(m: onnx.ModelProto) -> None:
    del m.graph.output[:]


def negative_input(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -2


def huge_input(m: onnx.ModelProto) -> None:
    for d in m.graph.input[0].type.tensor_type.shape.dim:
        d.dim_value = 1 << 62


def many_dimensions(m: onnx.ModelProto) -> None:
    dims = m.graph.input[0].type.tensor_type.shape.dim
    dims.extend(dims[0] for _ in range(1000))


def negative_initializer(m: onnx.ModelProto) -> None:
    m.graph.initializer[0].dims[0] = -1


def huge_initializer(m: onnx.ModelProto) -> None:
    m.graph.initializer[0].dims[:] = [1 << 62, 1 << 62]


def short_initializer(m: onnx.ModelProto) -> None:
    m.graph.initializer[0].dims[0] = 4


def initializer_of_another_field(m: onnx.ModelProto) -> None:
    m.graph.initializer[0].ClearField("raw_data")
    m.graph.initializer[0].int64_data.append(1)


def unknown_element_type(m: onnx.ModelProto) -> None:
    m.graph.initializer[0].data_type = 99


def input_without_a_type(m: onnx.ModelProto) -> None:
    m.graph.input[0].ClearField("type")


def wrong_attribute_type(m: onnx.ModelProto) -> None:
    m.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("alpha", "much"))


def attribute_without_a_meaning(m: onnx.ModelProto) -> None:
    m.graph.node[1].attribute.append(helper.make_attribute("gamma", 1))


def too_many_operands(m: onnx.ModelProto) -> None:
    m.graph.node[1].input.append("x")


def too_few_operands(m: onnx.ModelProto) -> None:
    del m.graph.node[0].input[1]


def too_many_results(m: onnx.ModelProto) -> None:
    m.graph.node[1].output.append("more")


def operands_that_do_not_fit(m: onnx.ModelProto) -> None:
    m.graph.node[1].op_type = "Add"
    m.graph.node[1].input.append("x")


def unknown_operator(m: onnx.ModelProto) -> None:
    m.graph.node[1].op_type = "Rleu"


def unknown_domain(m: onnx.ModelProto) -> None:
    m.graph.node[1].domain = "org.example"


def unknown_opset(m: onnx.ModelProto) -> None:
    m.opset_import[0].version = 1 << 40


def old_opset(m: onnx.ModelProto) -> None:
    m.opset_import[0].version = -3


def new_format(m: onnx.ModelProto) -> None:
    m.ir_version = 1 << 40


def negative_shape(m: onnx.ModelProto) -> None:
    m.graph.initializer[1].raw_data = np.array([-5, -7], np.int64).tobytes()


def shape_of_other_size(m: onnx.ModelProto) -> None:
    m.graph.initializer[1].raw_data = np.array([1 << 62, 1 << 62], np.int64).tobytes()


def forty_gigabytes(m: onnx.ModelProto) -> None:
    m.graph.initializer[1].raw_data = np.array([10 << 10, 1 << 20], np.int64).tobytes()
    m.graph.node[2].CopyFrom(helper.make_node("ConstantOfShape", ["to"], ["y"], name="fill"))


def forty_gigabytes_computed(m: onnx.ModelProto) -> None:
    m.graph.initializer[1].raw_data = np.array([10 << 30, 1], np.int64).tobytes()
    m.graph.node[2].CopyFrom(helper.make_node("ConstantOfShape", ["to"], ["c"], name="fill"))
    m.graph.node.append(helper.make_node("Add", ["c", "g1"], ["y"], name="add"))
    m.graph.node.append(helper.make_node("ReduceSum", ["r"], ["g1"], name="sum"))


def expanded(m: onnx.ModelProto) -> None:
    m.graph.initializer[1].raw_data = np.array([1 << 40, 1, 1], np.int64).tobytes()[:16]
    m.graph.node[2].CopyFrom(helper.make_node("Expand", ["one", "to"], ["y"], name="expand"))
    m.graph.node[1].CopyFrom(helper.make_node("Slice", ["g", "zero", "zero1"], ["one"], name="cut"))
    for name, value in (("zero", [0, 0]), ("zero1", [1, 1])):
        m.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))


def huge_range(m: onnx.ModelProto) -> None:
    for name, value in (("start", 0), ("limit", 1 << 62), ("step", 1)):
        m.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
    m.graph.node[2].CopyFrom(helper.make_node("Range", ["start", "limit", "step"], ["y"], name="range"))


def huge_resize(m: onnx.ModelProto) -> None:
    sizes = np.array([2, 1 << 40], np.int64)
    m.graph.initializer.append(onnx.numpy_helper.from_array(sizes, "sizes"))
    m.graph.node[2].CopyFrom(helper.make_node("Resize", ["r", "", "", "sizes"], ["y"], name="resize"))


def huge_padding(m: onnx.ModelProto) -> None:
    pads = np.array([0, 1 << 40, 0, 1 << 40], np.int64)
    m.graph.initializer.append(onnx.numpy_helper.from_array(pads, "pads"))
    m.graph.node[2].CopyFrom(helper.make_node("Pad", ["r", "pads"], ["y"], name="pad"))


def sparse_initializer(m: onnx.ModelProto) -> None:
    m.graph.sparse_initializer.add().values.name = "s"


def constant_without_a_value(m: onnx.ModelProto) -> None:
    m.graph.node[1].CopyFrom(helper.make_node("Constant", [], ["r"], name="c"))


def constant_with_external_data(m: onnx.ModelProto) -> None:
    value = TensorProto(dims=[2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL, name="v")
    m.graph.node[1].CopyFrom(helper.make_node("Constant", [], ["r"], name="c", value=value))


def attribute_of_no_type(m: onnx.ModelProto) -> None:
    m.graph.node[0].attribute.append(AttributeProto(name="beta", type=AttributeProto.TENSOR))


def _instead(m: onnx.ModelProto, *nodes: onnx.NodeProto) -> None:
    """Other nodes for those of the small model, from the input x to the output y."""
    del m.graph.node[:], m.graph.initializer[:]
    m.graph.node.extend(nodes)


def sum_of_very_many(m: onnx.ModelProto) -> None:
    _instead(m, helper.make_node("Sum", ["x"] * 100_000, ["y"], name="sum"))


def concatenation_of_very_many(m: onnx.ModelProto) -> None:
    _instead(m, helper.make_node("Concat", ["x"] * 100_000, ["y"], axis=0, name="concat"))


def product_of_very_many(m: onnx.ModelProto) -> None:
    equation = ",".join(["ij"] * 100_000) + "->ij"
    _instead(m, helper.make_node("Einsum", ["x"] * 100_000, ["y"], equation=equation, name="einsum"))


def product_of_many(m: onnx.ModelProto) -> None:
    equation = ",".join(["ij"] * 1000) + "->ij"
    _instead(m, helper.make_node("Einsum", ["x"] * 1000, ["y"], equation=equation, name="einsum"))


def product_over_many_points(m: onnx.ModelProto) -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    equation = ",".join(f"{letters[2 * k]}{letters[2 * k + 1]}" for k in range(26)) + "->ab"
    _instead(m, helper.make_node("Einsum", ["x"] * 26, ["y"], equation=equation, name="einsum"))


def very_many_parts(m: onnx.ModelProto) -> None:
    parts = [f"p{k}" for k in range(100_000)]
    _instead(m, helper.make_node("Split", ["x"], parts, axis=0, name="split"), helper.make_node("Neg", ["p9"], ["y"]))


def very_many_nodes(m: onnx.ModelProto) -> None:
    names = ["x", *(f"t{k}" for k in range(99_999)), "y"]
    _instead(m, *(helper.make_node("Tanh", [a], [b]) for a, b in pairwise(names)))


def endless_loop(m: onnx.ModelProto) -> None:
    info = helper.make_tensor_value_info
    of, flag = info("v", TensorProto.FLOAT, [2, 3]), info("c", TensorProto.BOOL, [])
    nodes = [helper.make_node("Tanh", ["v"], ["w"]), helper.make_node("Identity", ["c"], ["d"])]
    results = [info("d", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, [2, 3])]
    body = helper.make_graph(nodes, "body", [info("k", TensorProto.INT64, []), flag, of], results)
    _instead(m, helper.make_node("Loop", ["", "", "x"], ["y"], body=body, name="loop"))


CHANGES: list[tuple[Change, str]] = [
    (cycle, "cycle"),
    (duplicate_result, "duplicate"),
    (duplicate_input, "duplicate"),
    (duplicate_initializer, "duplicate"),
    (duplicate_output, "duplicate"),
    (result_named_as_an_input, "duplicate"),
    (undefined_operand, "undefined"),
    (undefined_output, "undefined"),
    (no_outputs, "no-outputs"),
    (negative_input, "bad-shape"),
    (huge_input, "too-large"),
    (many_dimensions, "bad-shape"),
    (negative_initializer, "bad-tensor"),
    (huge_initializer, "too-large"),
    (short_initializer, "bad-tensor"),
    (initializer_of_another_field, "bad-tensor"),
    (unknown_element_type, "unsupported-op"),
    (input_without_a_type, "unsupported-op"),
    (wrong_attribute_type, "unsupported-op"),
    (attribute_without_a_meaning, "unsupported-op"),
    (attribute_of_no_type, "unsupported-op"),
    (too_many_operands, "unsupported-op"),
    (too_few_operands, "unsupported-op"),
    (too_many_results, "unsupported-op"),
    (operands_that_do_not_fit, "shape"),
    (unknown_operator, "unsupported-op"),
    (unknown_domain, "unsupported-op"),
    (unknown_opset, "too-new"),
    (old_opset, "too-old"),
    (new_format, "too-new"),
    (negative_shape, "shape"),
    (shape_of_other_size, "shape"),
    (forty_gigabytes, "too-large"),
    (forty_gigabytes_computed, "too-large"),
    (expanded, "too-large"),
    (huge_range, "too-large"),
    (huge_resize, "too-large"),
    (huge_padding, "too-large"),
    (sum_of_very_many, "too-large"),
    (concatenation_of_very_many, "too-large"),
    (product_of_very_many, "too-large"),
    (product_of_many, "unsupported-op"),
    (product_over_many_points, "shape"),
    (very_many_parts, "too-large"),
    (very_many_nodes, "too-large"),
    (endless_loop, "unsupported-op"),
    (sparse_initializer, "unsupported-op"),
    (constant_without_a_value, "unsupported-op"),
    (constant_with_external_data, "unsupported-op"),
]
