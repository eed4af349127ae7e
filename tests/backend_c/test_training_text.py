"""The text of training programs: names of a hostile model, many tensors, what weights hold and what they need not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.parameters import LIMIT
from dlc_backend_c.sections import interface, units

from dlc import Artifact, Report, Spec
from dlc.base.types import Array, Type, f32
from dlc.graph import Constant, Graph, Input, Op, Tensor, make_graph
from dlc.ops.elementwise import Add, Mul
from dlc.ops.linear import Gemm
from tests.backend_c.bundles import bundle_of, trainer
from tests.backend_c.models import Bench, content, numbers, shell
from tests.backend_c.test_names import HOSTILE, tokens
from tests.conftest import Golden
from tests.tools import COMPILERS, CXX_COMPILERS
from tests.training.nets import NETS, module_of

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wtrigraphs")
FILES = ("net.h", "net.hpp", "net.c", "net_weights.c")


def named(x: str = "x", w: str = "w", b: str = "b", out: str = "out", values: Array | None = None) -> Graph:
    """out = x w + b: f32[4,3] of f32[4,2]."""
    weight = Constant(Tensor.of(numbers(2, 3, seed=1) if values is None else values), w)
    bias = Constant(Tensor.of(np.zeros(3, np.float32)), b)
    return make_graph((Input(x, Type(f32, (4, 2))),), {out: Gemm(Input(x, Type(f32, (4, 2))), weight, bias)})


def emitted(graph: Graph, options: str = "", spec: str = "weights=text cpu=generic", title: str = "") -> Artifact:
    backend = C.from_spec(Spec.parse(f"c{{prefix=net {spec}}}"))
    return backend.emit_training(bundle_of(graph, options, (title, b"template") if title else ("", b"")), Report())


def text(artifact: Artifact, name: str) -> str:
    return content(artifact, name).decode("ascii")


@pytest.mark.parametrize("updates", ["final", "immediate"])
@pytest.mark.parametrize("name", HOSTILE)
def test_sources_have_the_same_tokens_whatever_the_names(name: str, updates: str) -> None:
    plain = emitted(named(), f"updates={updates}")
    hostile = emitted(named("x" + name, "w" + name, "b" + name, "out" + name), f"updates={updates}")
    for file in FILES:
        assert tokens(text(hostile, file)) == tokens(text(plain, file)), file


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.uses(*CXX_COMPILERS)
def test_hostile_sources_compile(cc: str, tmp_path: Path) -> None:
    everything = " ".join(HOSTILE)
    artifact = emitted(
        named(everything, everything + "w", everything + "b", everything + "o"), "optimizer=adam accumulate=2"
    )
    for name in FILES:
        (tmp_path / name).write_bytes(content(artifact, name))
    shell(cc, *STRICT, "-O0", "-c", "net.c", cwd=tmp_path)
    assert ".init_array" not in shell("objdump", "-h", "net.o", cwd=tmp_path)
    for cxx in CXX_COMPILERS:
        shell(
            cxx,
            "-x",
            "c++",
            "-std=c++17",
            "-Wall",
            "-Werror",
            "-Wno-unused-function",
            "-fsyntax-only",
            "net.hpp",
            cwd=tmp_path,
        )


def steady(made: str) -> str:
    """Generated text without what depends on how well kernels are fused."""
    made = re.sub(r"^( *dlc_k_[0-9a-f]{16}\w*\(.*\);\n)+", "    ...\n", made, flags=re.MULTILINE)
    made = re.sub(r"(ARENA_BYTES|WEIGHTS_BYTES|WEIGHTS_SHA256) (\d+|\"\w+\")", r"\1 ...", made)
    return re.sub(r"w \+ \d+", "w + ...", made)


def test_a_header_looks_like_this(golden: Golden) -> None:
    for updates, more in (("final", "accumulate=4"), ("immediate", "")):
        options = f"loss=cross-entropy{{ignore=-100}} optimizer=sgd{{momentum=0.9}} updates={updates} {more}"
        golden(f"train_{updates}.h.txt", steady(text(emitted(named("x", HOSTILE[1]), options), "net.h")))


def test_main_looks_like_this(golden: Golden) -> None:
    source = text(emitted(named(), "optimizer=sgd{momentum=0.9} accumulate=4"), "net.c")
    golden("train_main.c.txt", steady(source[source.index("/*=== main ===*/") : source.index("/*=== end ===*/")]))


def test_names_of_arguments_are_no_reason_to_compile() -> None:
    one, other = (emitted(named(x=x, out=out)) for x, out in (("x", "out"), ("image", "scores")))
    assert text(one, "net.h") != text(other, "net.h")
    assert interface(text(one, "net.h")) == interface(text(other, "net.h"))
    assert units(text(one, "net.c")) == units(text(other, "net.c"))


def test_kernels_of_all_functions_are_in_the_text_once() -> None:
    net = NETS["conv"]
    artifact = emitted(net.graph(module_of(net)), "optimizer=adam")
    source = text(artifact, "net.c")
    defined = re.findall(r"^/\*=== kernel (\w+) ===\*/$", source, re.MULTILINE)
    called = re.findall(r"^    (dlc_[ka]_\w+)\(", source, re.MULTILINE)
    assert len(defined) == len(set(defined)) <= int(artifact.facts["kernels"]) and set(called) == set(defined)
    assert len(defined) < len(called) == artifact.facts["calls"]


def test_equal_bundles_give_equal_bytes() -> None:
    one, other = (emitted(named(), "optimizer=adam") for _ in range(2))
    assert {n: content(one, n) for n in one.files} == {n: content(other, n) for n in other.files}


@pytest.mark.parametrize(
    ("values", "more"),
    [
        (numbers(2, 3, seed=1), 64),
        (np.ones((2, 3), np.float32), 0),
        (np.full((2, 3), 0.1, np.float32), 0),
        (np.full((2, 3), -0.0, np.float32), 0),
        (np.full((2, 3), np.inf, np.float32), 0),
        (np.array([[1, 1, 1], [1, 2, 1]], np.float32), 64),
    ],
)
def test_one_value_for_all_elements_takes_no_weights(values: Array, more: int, bench: Bench, tmp_path: Path) -> None:
    options, nothing = "optimizer=adagrad{initial=0.25}", np.zeros((2, 3), np.float32)
    program = trainer(bundle_of(named(values=values), options), tmp_path, bench)
    constants = int(emitted(named(values=nothing), options).facts["weights_bytes"])
    assert program.facts["weights_bytes"] == constants + more
    assert program.parameters()["w"].tobytes() == values.tobytes()
    np.testing.assert_array_equal(program.parameters()["b"], np.zeros(3))
    state = {n: float(a.ravel()[0]) for n, a in program.state().items()}
    assert state["step"] == 0 and 0.25 in state.values()


def test_equal_weights_are_stored_once_and_constants_too(bench: Bench, tmp_path: Path) -> None:
    """A weight that starts with what a frozen one holds."""
    x, values = Input("x", Type(f32, (4, 3))), numbers(3, 3, seed=4)
    fixed, options = Constant(Tensor.of(values), "fixed"), "loss=mse wrt=moved optimizer=sgd"

    def graph(start: Array) -> Graph:
        return make_graph((x,), {"out": Gemm(Gemm(x, fixed, None), Constant(Tensor.of(start), "moved"), None)})

    program = trainer(bundle_of(graph(values), options), tmp_path, bench)
    apart = int(emitted(graph(-values), options).facts["weights_bytes"])
    assert program.facts["weights_bytes"] == apart - 64  # 36 bytes, padded
    assert list(program.parameters()) == ["moved"]
    np.testing.assert_array_equal(program.parameters()["moved"], values)
    given = numbers(4, 3, seed=5)
    np.testing.assert_allclose(program(given)["out"], given @ values @ values, rtol=1e-5)


def test_a_program_with_very_many_tensors_has_arrays_of_pointers_only(bench: Bench, tmp_path: Path) -> None:
    inputs = tuple(Input(f"x{k}", Type(f32, (2,))) for k in range(LIMIT))
    total: Op = inputs[0]
    for i in inputs[1:]:
        total = Add(total, i)
    graph = make_graph(inputs, {"out": Mul(total, Constant(Tensor.of(numbers(2)), "w"))})
    program = trainer(bundle_of(graph, "loss=mse optimizer=sgd{lr=0.1}"), tmp_path, bench)
    header = (tmp_path / "net.h").read_text()
    assert "net_predict does not exist" in header and "int net_train_step(" not in header
    assert "int net_train_step_run(" in header and "int net_update(" in header
    (tmp_path / "use.c").write_text('#include "net.h"\nint main(void) { return 0; }\n')
    shell("gcc", *STRICT, "-fsyntax-only", "use.c", "net.c", cwd=tmp_path)
    feeds = {f"x{k}": np.full(2, 1 / LIMIT, np.float32) for k in range(LIMIT)}
    y = np.zeros(2, np.float32)
    first = program.train_step(feeds, y=y)
    assert program.train_step(feeds, y=y) < first


def test_a_prefix_that_sounds_like_a_function_hides_nothing(bench: Bench, tmp_path: Path) -> None:
    for prefix in ("train_step", "x_evaluate", "x_call", "t"):
        program = trainer(bundle_of(named(), ""), tmp_path / prefix, bench, f"c{{prefix={prefix}}}")
        assert np.isfinite(program.train_step(numbers(4, 2), np.zeros(4, np.int64)))


def test_the_manifest_holds_what_a_runtime_needs() -> None:
    artifact = emitted(named(w="w */"), "optimizer=sgd{momentum=0.9} accumulate=3", title=".onnx")
    assert content(artifact, "net_template.onnx") == b"template"
    message: dict[str, Any] = json.loads(content(artifact, "manifest.json"))
    assert [p["name"] for p in message["signature"]["inputs"]] == ["x"]
    assert [p["name"] for p in message["signature"]["outputs"]] == ["out"]
    training = message["training"]
    assert training["classes"] == {"count": 3, "ignore": None} and training["label"] == "y"
    assert training["accumulate"] == 3 and training["template"] == "net_template.onnx"
    tensors = training["regions"]["parameters"]["tensors"]
    assert [(t["name"], t["shape"], t["trained"]) for t in tensors] == [("w */", [2, 3], True), ("b", [3], True)]
    assert message["memory"]["parameters_bytes"] == training["regions"]["parameters"]["bytes"] == 128
    assert message["memory"]["checkpoint_bytes"] == 64 + sum(r["bytes"] for r in training["regions"].values())
