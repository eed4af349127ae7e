"""Messages to executables: they are valid, and say all that is needed to compute a model."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dlc.base.diagnostics import DlcError
from dlc.driver.exec_backend import protocol
from dlc.driver.exec_backend.form import FormError, from_json, to_json
from dlc.driver.exec_backend.options import option_values
from dlc.driver.exec_backend.schema import schema_text
from tests.cli.conftest import Dlc
from tests.cli.models import model

SCHEMA = Path(__file__).parents[2] / "docs" / "exec-backend.schema.json"
SCRIPT = """#!/bin/sh
read -r line
case "$line" in
*'"method":"describe"'*) echo "$line" > LOG/describe.json
 echo '{"id":1,"result":{"protocol":1,"name":"p","version":"1","consumes":"LEVEL","legalises":true}}' ;;
*'"method":"legalise"'*) echo "$line" > LOG/legalise.json; echo '{"id":1,"result":{"refused":[]}}' ;;
*) printf '%s' "$line" > output/emit.json; cp weights.bin output/; echo '{"id":1,"result":{"entry":"emit.json"}}' ;;
esac
"""
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "exp": np.exp,
    "neg": np.negative,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "f32": np.float32,
    "select": np.where,
}
START = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf, None: 0.0}


class Interpreter:
    """A program as the messages describe it, with one array of bytes for each region. It knows nothing of dlc."""

    def __init__(self, program: dict[str, Any], weights: bytes) -> None:
        self.program = program
        self.regions = {name: bytearray(size) for name, size in program["regions"].items()}
        self.own: dict[int, np.ndarray] = {
            k: np.zeros(self.shape(k), np.float32)
            for k, v in enumerate(program["values"])
            if v["region"] is None and v["view"] is None
        }
        for c in program["constants"]:
            part = weights[c["offset"] : c["offset"] + c["bytes"]]
            self.own[c["value"]] = np.frombuffer(part, np.float32).reshape(self.shape(c["value"]))

    def shape(self, number: int) -> tuple[int, ...]:
        return tuple(self.program["values"][number]["shape"])

    def at(self, number: int) -> np.ndarray:
        """The memory of a value."""
        value = self.program["values"][number]
        shape = self.shape(number)
        if value["region"] is not None:
            memory: Any = self.regions[value["region"]]
            return np.frombuffer(memory, np.float32, int(np.prod(shape)), value["offset"]).reshape(shape)
        return self.own[number] if value["view"] is None else self.at(value["view"]).reshape(shape)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        for port in self.program["inputs"]:
            self.at(port["value"])[...] = feeds[port["name"]]
        for step in self.program["steps"]:
            assert step["op"] == "call"
            self.call(self.program["kernels"][step["kernel"]], step["operands"]["args"], step["results"])
        return {port["name"]: self.at(port["value"]).copy() for port in self.program["outputs"]}

    def call(self, kernel: dict[str, Any], arguments: list[int], results: list[int]) -> None:
        tensors: dict[str, np.ndarray] = {}
        for tensor, number in zip(kernel["parameters"], arguments, strict=True):
            tensors[tensor["name"]] = self.at(number).copy()
        for tensor in (*kernel["results"], *kernel["locals"]):
            first = next(n for n in kernel["nests"] if n["out"] == tensor["name"])
            tensors[tensor["name"]] = np.full(tensor["shape"], START[first["reduce"]], np.float32)
        for nest in kernel["nests"]:
            self.nest(nest, tensors)
        for tensor, number in zip(kernel["results"], results, strict=True):
            self.at(number)[...] = tensors[tensor["name"]]

    def nest(self, nest: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        extents = [a["extent"] for a in nest["axes"]]
        points = np.indices(extents).reshape(len(extents), -1) if extents else np.zeros((0, 1), np.int64)
        axes = {a["name"]: points[k] for k, a in enumerate(nest["axes"])}
        if nest["where"] is not None:
            kept = np.broadcast_to(value(nest["where"], axes, tensors), points.shape[1:])
            axes = {name: numbers[kept] for name, numbers in axes.items()}
            points = points[:, kept]
        count = points.shape[1]
        index = tuple(np.broadcast_to(value(i, axes, tensors), count) for i in nest["index"])
        body = np.broadcast_to(value(nest["body"], axes, tensors), count)
        target = tensors[nest["out"]]
        match nest["reduce"]:
            case None:
                target[index] = body
            case "add" | "mul" | "max" | "min" as name:
                combine: Any = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[name]
                combine.at(target, index, body)
            case other:
                raise AssertionError(other)


def value(e: dict[str, Any], axes: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray]) -> Any:
    match e:
        case {"const": str(text)}:
            return np.float32(text)
        case {"const": const}:
            return const
        case {"axis": name}:
            return axes[name]
        case {"load": name, "index": index}:
            at = tuple(value(i, axes, tensors) for i in index)
            shape = tensors[name].shape  # np.where takes both branches; what it drops may lie outside
            return tensors[name][tuple(np.clip(i, 0, n - 1) for i, n in zip(at, shape, strict=True))]
        case {"apply": fn, "arguments": arguments}:
            return FUNCTIONS[fn](*(value(a, axes, tensors) for a in arguments))
        case _:
            raise AssertionError(e)


def convolutional() -> onnx.ModelProto:
    """A convolution with padding, a pool, a view, a dense layer, a softmax."""
    generator = np.random.default_rng(0)

    def stored(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    constants = [stored("w", 3, 2, 3, 3), stored("b", 3), stored("v", 27, 5)]
    return model(nodes, [("x", [1, 2, 6, 6])], [("y", [1, 5])], constants)


def requests(dlc: Dlc, level: str) -> dict[str, Any]:
    """Every message of a build, by method."""
    Path("net.onnx").write_bytes(convolutional().SerializeToString())
    Path("backend").write_text(SCRIPT.replace("LOG", str(Path.cwd())).replace("LEVEL", level))
    Path("backend").chmod(0o755)
    ran = dlc("build", "net.onnx", "-t", "exec:./backend", "-o", "out", "-q")
    assert ran.code == 0, ran.err
    files = {"describe": "describe.json", "legalise": "legalise.json", "emit": "out/emit.json"}
    return {name: json.loads(Path(path).read_text()) for name, path in files.items()}


def test_a_plan_says_all_that_is_needed_to_compute_it(dlc: Dlc) -> None:
    import onnxruntime  # pyright: ignore[reportMissingTypeStubs]

    program = requests(dlc, "plan")["emit"]["params"]["program"]
    assert any(v["view"] is not None for v in program["values"])
    assert any(v["region"] == "arena" for v in program["values"])
    session: Any = onnxruntime.InferenceSession(convolutional().SerializeToString())
    interpreter = Interpreter(program, Path("out/weights.bin").read_bytes())
    for seed in range(2):
        x = np.random.default_rng(seed).standard_normal((1, 2, 6, 6)).astype(np.float32)
        np.testing.assert_allclose(interpreter.run({"x": x})["y"], session.run(None, {"x": x})[0], 1e-5, 1e-6)


@pytest.mark.parametrize("level", ["ops", "plan"])
def test_messages_are_valid(level: str, dlc: Dlc) -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator: Any = jsonschema.Draft202012Validator({**schema, "anyOf": [{"$ref": "#/$defs/Request"}]})
    for method, message in requests(dlc, level).items():
        assert message["method"] == method
        validator.validate(message)
        assert to_json(from_json(protocol.Request, message, "request")) == message


def test_the_schema_is_that_of_the_declaration() -> None:
    wanted = "python -m dlc.driver.exec_backend.schema > docs/exec-backend.schema.json"
    assert SCHEMA.read_text() == schema_text(), wanted


ANSWERS: Iterable[tuple[dict[str, Any], bool]] = [
    ({"id": 1, "result": {"entry": "x"}}, True),
    ({"id": 1, "result": {"entry": "x", "facts": {"a": 1, "b": "c"}}}, True),
    ({"id": 1, "result": {"entry": "x", "facts": {"a": None}}}, False),
    ({"id": 1, "result": {"refused": [{"op": 0, "reason": "no"}]}}, True),
    ({"id": 1, "result": {"refused": [{"op": "0", "reason": "no"}]}}, False),
    ({"id": 1, "result": {"refused": [{"op": 0}]}}, False),
    ({"id": 1, "error": {"message": "no", "kind": "limit"}}, True),
    ({"id": 1, "error": {"message": "no", "kind": "bad"}}, False),
    ({"id": True, "result": {"entry": "x"}}, False),
    ({"id": 1, "result": {"protocol": 1, "name": "n", "version": "1", "memory": [{"name": "arena"}]}}, True),
    ({"id": 1, "result": {"protocol": 1, "name": "n", "version": "1", "extra": 1}}, False),
]


@pytest.mark.parametrize(("answer", "valid"), ANSWERS)
def test_the_reader_and_the_schema_agree(answer: dict[str, Any], valid: bool) -> None:
    schema = json.loads(SCHEMA.read_text())
    validator: Any = jsonschema.Draft202012Validator({**schema, "anyOf": [{"$ref": "#/$defs/Response"}]})
    assert validator.is_valid(answer) == valid
    try:
        from_json(protocol.Response, answer, "answer")
    except FormError:
        assert not valid
    else:
        assert valid


@pytest.mark.parametrize("text", ["1.5", "-inf", "nan", "inf"])
def test_numbers_that_json_lacks_are_texts(text: str) -> None:
    assert to_json(protocol.Const(float(text))) == {"const": 1.5 if text == "1.5" else text}


def test_options_have_bounds() -> None:
    info = protocol.OptionInfo("rate", "number", 1.0, "rate", low=0.5)
    described = protocol.Description(1, "toy", "1", options=(info,))
    assert option_values(described, [("rate", "0.5")]) == {"rate": 0.5}
    for pair in (("rate", "0.4"), ("rate", "fast"), ("rat", "1")):
        with pytest.raises(DlcError, match="rat"):
            option_values(described, [pair])
