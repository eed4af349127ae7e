"""`dlc.compile`: models of every kind, the cache in another process, sizes, buffers, what is said of a build."""

# Functions to trace are written as users write them, without types.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportPrivateUsage=false

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_backend_c.backend import C

import dlc
from dlc.base.types import Type, f32
from dlc.graph import Input, evaluate, make_graph
from dlc.ops.elementwise import Mul
from dlc.ops.reduce import ReduceSum

FAST = "c{flags=-O0 cpu=generic}"
ROOT = Path(__file__).parents[2]
A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 3, np.float32)


def proto(batch: int | str = 2) -> onnx.ModelProto:
    make, shape = onnx.helper, [batch, 3]
    a, b, y = (make.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in ("a", "b:0", "y"))
    graph = make.make_graph([make.make_node("Mul", ["a", "b:0"], ["y"])], "product", [a, b], [y])
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)


def product() -> dlc.Graph:
    a, b = Input("a", Type(f32, (2, 3))), Input("b:0", Type(f32, (2, 3)))
    return make_graph((a, b), {"y": Mul(a, b)})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_models_of_every_kind(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(proto().SerializeToString())
    named: dict[str, Any] = {"b:0": B}
    for model in (file, str(file), file.read_bytes(), proto(), dlc.Source(file), product()):
        compiled = dlc.compile(model, FAST, cache_dir=cache)
        assert isinstance(compiled, dlc.Compiled)
        for found in (compiled(A, B), compiled({"a": A, "b:0": B}), compiled(A, **named)):
            np.testing.assert_array_equal(found["y"], A * B)
        assert [p.name for p in compiled.signature.inputs] == ["a", "b:0"]
        assert evaluate(compiled.graph, {"a": A, "b:0": B})["y"].shape == (2, 3)
        buffer = np.empty((2, 3), np.float32)
        assert compiled(A, B, out={"y": buffer})["y"] is buffer
        assert compiled.copied.arrays == 0


AGAIN = """
import sys
import numpy as np
import dlc
model = dlc.compile(sys.argv[1], sys.argv[2], cache_dir=sys.argv[3], cache="require")
f = dlc.kernel(lambda x: np.tanh(x) * 2, target=sys.argv[2], cache_dir=sys.argv[3], cache="require")
assert model.report.cached, str(model.report)
print(model(np.ones((2, 3), "f4"), np.ones((2, 3), "f4"))["y"].sum(), round(float(f(np.ones(2, "f4"))[0]), 4))
assert f.report.cached
"""


def test_another_process_finds_everything_in_the_cache(cache: Path, tmp_path: Path) -> None:
    """`require` makes a miss an error, so no compiler can have run."""
    file = tmp_path / "again.onnx"
    file.write_bytes(proto().SerializeToString())
    first = dlc.compile(file, FAST, cache_dir=cache)
    dlc.kernel(lambda x: np.tanh(x) * 2, target=FAST, cache_dir=cache)(np.ones(2, np.float32))
    assert {s.name for s in first.report.steps} >= {"onnx", "lower", "emit", "build"}
    command = [sys.executable, "-c", AGAIN, str(file), FAST, str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "6.0 1.5232\n", done.stderr
    with pytest.raises(dlc.DlcError) as found:
        dlc.compile(product(), "c{flags=-O1}", cache_dir=cache, cache="require")
    assert found.value.exit_code == dlc.ExitCode.CACHE_MISS


def test_open_sizes_and_options_as_flags_have_them(cache: Path, tmp_path: Path) -> None:
    data = proto("batch").SerializeToString()
    compiled = dlc.compile(data, FAST, dims={"batch": "1..4"}, math="strict", cache_dir=cache, output=tmp_path / "out")
    for n in (1, 4):
        np.testing.assert_array_equal(compiled(A[:1].repeat(n, 0), B[:1].repeat(n, 0))["y"], (A[:1] * 3).repeat(n, 0))
    with pytest.raises(dlc.DlcError, match="batch is 1"):
        compiled(A[:1].repeat(5, 0), B[:1].repeat(5, 0))
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert any("math=strict" in step.spec for step in compiled.report.steps)


def test_the_files_go_with_the_object(cache: Path) -> None:
    compiled: Any = dlc.compile(product(), FAST, cache_dir=cache)
    directory = Path(compiled.program._library.directory)
    assert directory.is_dir()
    del compiled
    import gc

    gc.collect()
    assert not directory.exists()


def test_build_and_compile_go_one_way(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(proto().SerializeToString())
    dlc.compile(file, FAST, cache_dir=cache)
    program: Any = dlc.build(file, FAST, cache_dir=cache, cache="require")
    np.testing.assert_array_equal(program(a=A, **{"b:0": B})["y"], A * B)


WRONG: list[tuple[Any, str, str]] = [
    (lambda: dlc.compile("absent.onnx"), "no-such-file", "does not exist"),
    (lambda: dlc.compile(3), "no-model", "3 is no model"),
    (lambda: dlc.compile(lambda x: x), "no-model", "@dlc.kernel"),
    (lambda: dlc.compile(b"nothing"), "unknown-format", "known formats"),
    (lambda: dlc.compile(product(), "c{flag=1}"), "unknown-option", "flag"),
    (lambda: dlc.compile(product(), dims={"n": 1}), "no-effect", "dims: a graph says itself"),
    (lambda: dlc.compile(product(), settings=["fuse.most=1"]), "unknown-option", "most"),
    (lambda: dlc.compile(product(), cache_levels=["ftp://x"]), "bad-option", "ftp"),
    (lambda: dlc.compile(proto("batch"), shapes={"c": (1, 3)}), "unknown-name", "c"),
    (lambda: dlc.kernel(np.abs, targt="c"), "unknown-option", "did you mean target"),
    (lambda: dlc.grad("model.onnx"), "no-gradient", "'model.onnx' cannot be differentiated"),
    (lambda: dlc.build(wrong(product())), "no-model", "dlc.compile also takes a dlc.Graph"),
]


def wrong(value: object) -> Any:
    """What a type checker would not let through."""
    return value


# By the function that is called, the argument, and the values that it cannot be.
KINDS: list[tuple[Any, str, tuple[object, ...]]] = [
    (dlc.build, "target", (3, ["c"], C, product())),
    (dlc.build, "dims", ([("n", 1)], "n=1", {1: 2}, {"n": 1.5}, {"n": True})),
    (dlc.build, "shapes", ({"x": 3}, {"x": "3x4"}, [3])),
    (dlc.build, "specialise", ({"n": 3}, {"n": ("1",)})),
    (dlc.build, "settings", ("fuse.max-nests=8", {"fuse.max-nests": 8}, 3, None, [3])),
    (dlc.build, "ops", ("x.ops.yaml", 3, b"x")),
    (dlc.build, "cache", ("of", False, None, ["rw"])),
    (dlc.build, "output", (7, C())),
    (dlc.build, "cache_dir", (7,)),
    (dlc.build, "trusted_keys", ("ed25519:00",)),
    (dlc.build, "signing_key", (3,)),
    (dlc.build, "cache_key", (3, None)),
    (dlc.compile, "target", (3, C)),
    (dlc.compile, "pipeline", (["lower"],)),
    (dlc.compile, "without", ("fuse",)),
    (dlc.compile, "frontend", (C(), None)),
    (dlc.compile, "lenient", ("no", 1)),
    (dlc.compile, "machine", (3,)),
    (dlc.compile, "math", (3,)),
    (dlc.compile, "tune", (3,)),
    (dlc.compile, "jobs", ("2", -1, True)),
    (dlc.compile, "cache_levels", ("https://x", 3)),
]


def test_arguments_of_the_wrong_kind_are_named_with_an_example() -> None:
    for call, name, values in KINDS:
        for value in values:
            with pytest.raises(dlc.DlcError, match=f"^error.wrong-argument.: {name} is ") as found:
                call("absent.onnx", **{name: value})
            assert f"for example {name}=" in found.value.diagnostics[0].help
    with pytest.raises(dlc.DlcError, match=r"target is .* not the class C"):
        dlc.kernel(lambda x: x, target=C)
    for call, words in (
        (lambda: dlc.kernel(wrong(3)), "function is a Python function .* not 3"),
        (lambda: dlc.kernel(wrong(C())), "not an object of type C"),
        (lambda: dlc.grad(lambda x: x, wrong(1.5)), "wrt is an argument's place or name.* not 1.5"),
        (lambda: dlc.grad(lambda x: x, ()), "wrt is .* not ()"),
        (lambda: dlc.value_and_grad(lambda x: x, of=wrong(3)), "of is the name of an output, not 3"),
        (lambda: dlc.load(wrong(product())), "program is the path .* not an object of type Graph"),
        (lambda: make_graph(wrong(A), {}), "inputs is a list of Inputs, not an object of type ndarray"),
        (lambda: make_graph([], wrong([])), "outputs is a dict of names and ops"),
        (lambda: make_graph([], {"y": wrong(A)}), "outputs.'y'. is an op"),
        (lambda: make_graph([wrong("x")], {}), "inputs.0. is an Input, not 'x'"),
        (lambda: dlc.gradients(wrong(product()), [], []), "outputs is a list of ops"),
        (lambda: dlc.gradients([], [wrong(A)], []), "seeds.0. is an op"),
        (lambda: dlc.Source(wrong(3)), "path is the path of a file, not 3"),
        (lambda: dlc.Source(data=wrong("text")), "data is the content as bytes, not 'text'"),
    ):
        with pytest.raises(dlc.DlcError, match=words) as found:
            call()
        assert found.value.exit_code is dlc.ExitCode.USAGE


def test_a_backends_instance_is_its_spec(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(proto().SerializeToString())
    dlc.compile(file, FAST, cache_dir=cache)
    for target in (C(flags=("-O0",), cpu="generic"), dlc.Spec.parse(FAST)):
        program: Any = dlc.build(file, target, cache_dir=cache, cache="require")
        np.testing.assert_array_equal(program(a=A, **{"b:0": B})["y"], A * B)
        assert dlc.compile(product(), target, cache_dir=cache)(A, B)["y"][0, 1] == 3
    own: Any = type("Own", (C,), {"__module__": "own"})()
    with pytest.raises(dlc.DlcError, match=r"backend c .own.Own. is not installed; the one of this name is"):
        dlc.build(file, own, cache_dir=cache)


@pytest.mark.parametrize(("call", "code", "words"), WRONG)
def test_what_is_no_model_or_option_is_refused(call: Any, code: str, words: str) -> None:
    with pytest.raises(dlc.DlcError) as found:
        call()
    assert words in str(found.value)
    assert found.value.diagnostics[0].code == code


def test_models_without_a_gradient_say_so() -> None:
    x = Input("x", Type(f32, (3,)))
    graph = make_graph((x,), {"s": ReduceSum(x, axes=(0,)), "t": x})
    np.testing.assert_array_equal(evaluate(dlc.grad(graph, of="s").graph(A[0]), {"x": A[0]})["result"], np.ones(3))
    with pytest.raises(dlc.DlcError, match="returns 2 arrays"):
        dlc.grad(graph).graph(A[0])
