"""Backends that are executables, from the command line: what they may do wrong, and what dlc says of it."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.conftest import Dlc, Ran
from tests.cli.models import EVIL, model

ROOT = Path(__file__).parents[2]
DESCRIPTION = {"protocol": 1, "name": "toy", "version": "1", "consumes": "ops"}
SCRIPT = """#!/bin/sh
read -r line
case "$line" in
*'"method":"describe"'*) {describe} ;;
*'"method":"legalise"'*) {legalise} ;;
*) {emit} ;;
esac
"""
EMIT = """printf '%s' "$line" > output/request.json; cp weights.bin output/; {}"""
GRAPH = 'graph(%0 "x": f32[2,3]) {\n  %1 = relu(%0)\n  %2 = tanh(%1)\n  return %2 "y"\n}\n'
Make = Callable[..., str]


def say(result: Any, **more: Any) -> str:
    """A command that answers."""
    return f"echo '{json.dumps({'id': 1, 'result': result, **more})}'"


EMITTED = EMIT.format(say({"entry": "request.json", "facts": {"words": 7}}))


@pytest.fixture
def make() -> Make:
    """`make(emit="exit 3")`: a script that answers rightly where nothing else is said, as a target."""
    Path("net.dlc").write_text(GRAPH)

    def made(name: str = "toy", emit: str = EMITTED, legalise: str = "exit 9", describe: str = "", **more: Any) -> str:
        describe = describe or say({**DESCRIPTION, **more})
        Path(name).write_text(SCRIPT.format(describe=describe, legalise=legalise, emit=emit))
        Path(name).chmod(0o755)
        return f"exec:./{name}"

    return made


def build(dlc: Dlc, target: str, *more: str) -> Ran:
    """A build; where it fails, nothing is written."""
    ran = dlc("build", "net.dlc", "-t", target, "-o", "out", *more)
    assert Path("out").exists() == (ran.code == 0)
    return ran


def test_a_model_is_built(dlc: Dlc, make: Make) -> None:
    ran = build(dlc, make())
    assert ran.code == 0, ran.err
    request = json.loads(Path("out/request.json").read_text())
    assert (request["protocol"], request["method"]) == (1, "emit")
    program = request["params"]["program"]
    assert [step["op"] for step in program["steps"]] == ["relu", "tanh"]
    assert program["inputs"] == [{"name": "x", "value": 0}]
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["signature"]["outputs"] == [{"name": "y", "dtype": "f32", "shape": [2, 3]}]
    assert str(Path.cwd()) not in Path("out/manifest.json").read_text()
    assert dlc("run", "out").code == 2


FAULTS = {
    "crash": ("kill -SEGV $$", 6, "ended by signal 11 (SIGSEGV)"),
    "status": ("echo 'no \033[31mlicence' >&2; exit 3", 6, r"standard error: no \x1b[31mlicence"),
    "status-after-answer": (f"{say({'entry': 'x'})}; exit 1", 6, "exit code 1"),
    "silence": ("exit 0", 6, "answered nothing"),
    "garbage": ("echo hello", 6, "is not JSON"),
    "not-text": (r"printf '\377\376\n'", 6, "is not JSON"),
    "deep": ("head -c 300000 /dev/zero | tr '\\0' '['", 6, "is not JSON"),
    "number": ("head -c 9000 /dev/zero | tr '\\0' '7'", 6, "is not"),
    "list": ("echo '[]'", 6, "is not an object"),
    "lines": (f"echo starting; {say({'entry': 'x'})}", 6, "2 lines, not one"),
    "huge": ("head -c 40000000 /dev/zero", 6, "more than 16 MiB"),
    "id": ("""echo '{"id":2,"result":{"entry":"x"}}'""", 6, "id 2"),
    "no-id": ("""echo '{"result":{"entry":"x"}}'""", 6, "lacks the field id"),
    "neither": ("""echo '{"id":1}'""", 6, "neither a result nor an error"),
    "unknown-field": (say({"entry": "x", "facst": {}}), 6, "did you mean facts?"),
    "wrong-type": (say({"entry": ["x"]}), 6, "result.entry: must be a string, not a list"),
    "fact": (say({"entry": "x", "facts": {"a": 1.5}}), 6, "result.facts.a"),
    "no-file": (say({"entry": "program.bin"}), 6, "it wrote no file"),
    "outside": (EMIT.format(say({"entry": "../weights.bin"})), 6, "not among the files"),
    "link": (f"ln -s /etc/passwd output/p; {say({'entry': 'p'})}", 6, "not a regular file"),
    "pipe": (f"mkfifo output/p; {say({'entry': 'p'})}", 6, "not a regular file"),
    "hidden": (f"echo > output/.p; {say({'entry': '.p'})}", 6, "cannot be installed"),
    "manifest": (f"echo > output/manifest.json; {say({'entry': 'manifest.json'})}", 6, "cannot be installed"),
    "model": (say(None, error={"message": "too odd", "help": "make it even"}), 1, "make it even"),
    "limit": (say(None, error={"kind": "limit", "message": "9 KiB too many"}), 4, "9 KiB too many"),
    "kind": (say(None, error={"kind": "modle", "message": ""}), 6, "must be one of model"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_an_executable_does_wrong_is_said(name: str, dlc: Dlc, make: Make) -> None:
    emit, code, message = FAULTS[name]
    ran = build(dlc, make(emit=emit), "-q")
    assert ran.code == code, ran.err
    assert message in ran.err
    assert len(ran.err) < 4000
    assert "\033" not in ran.err


DESCRIPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "protocol": ({"protocol": 2, "shape": "new"}, "speaks protocol 2, this dlc speaks 1"),
    "name": ({"name": "a b"}, "is not a name"),
    "consumes": ({"consumes": "loops"}, "result.consumes: must be one of ops, plan"),
    "pipeline": ({"pipeline": "fold-constant"}, "did you mean fold-constants?"),
    "level": ({"pipeline": "lower"}, "the pipeline ends with a graph of kernels"),
    "align": ({"memory": [{"name": "arena", "align": 48}]}, "48 is not a power of two"),
    "arena": ({"memory": [{"name": "sram"}]}, "no memory called arena"),
    "option": ({"options": [{"name": "X Y", "type": "integer", "default": 1, "doc": ""}]}, "not a name of an option"),
    "depends": ({"depends": ["absent.bin"]}, "not a file beside it"),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_descriptions_are_checked(name: str, dlc: Dlc, make: Make) -> None:
    changes, message = DESCRIPTIONS[name]
    ran = build(dlc, make(describe=say({**DESCRIPTION, **changes})))
    assert ran.code in (2, 6)
    assert message in ran.err


def test_one_that_hangs_is_ended_with_what_it_started(dlc: Dlc, make: Make) -> None:
    make(emit="echo waiting >&2; (sleep 60; echo) & sleep 60", name="slow")
    start = time.monotonic()
    ran = build(dlc, "exec{command=./slow timeout=0.5}")
    assert ran.code == 6
    assert "within 0.5 seconds" in ran.err
    assert "standard error: waiting" in ran.err
    assert time.monotonic() - start < 20


def test_what_it_leaves_behind_does_not_keep_the_build(dlc: Dlc, make: Make) -> None:
    start = time.monotonic()
    assert build(dlc, make(emit=f"sleep 60 & {EMITTED}")).code == 0
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("exec:./absent", "does not exist"),
        ("exec:toy", "is not on PATH"),
        ("exec:.", "is not on PATH"),
        ("exec:./", "is a directory"),
        ("exec:./net.dlc", "cannot be started"),
        ("./toy", "an executable is"),
        ("exec:", "no executable is given"),
        ("exec", "no executable is given"),
        ("exec:./toy{speed=9}", "has no option"),
        ("exec:./toy{sped=9 ", "expected"),
        ("exec:./toy{tile=1,2}", "is a list"),
    ],
)
def test_what_is_no_target_is_refused(target: str, message: str, dlc: Dlc, make: Make) -> None:
    make()
    ran = build(dlc, target)
    assert ran.code == 2, ran.err
    assert message in ran.err


def test_options_reach_the_executable_with_their_types(dlc: Dlc, make: Make) -> None:
    options = [
        {"name": "tile", "type": "integer", "default": 4, "doc": "size", "low": 1, "high": 64},
        {"name": "fast", "type": "boolean", "default": False, "doc": "speed"},
        {"name": "mode", "type": "string", "default": "a", "doc": "mode", "choices": ["a", "b"]},
    ]
    target = make(options=options)
    assert build(dlc, target + "{tile=16 fast=yes}").code == 0
    request = json.loads(Path("out/request.json").read_text())
    assert request["params"]["options"] == {"tile": 16, "fast": True, "mode": "a"}
    for wrong, message in (
        ("tile=65", "above"),
        ("tile=x", "tile"),
        ("mode=c", "none of"),
        ("fats=yes", "did you mean fast"),
    ):
        ran = dlc("build", "net.dlc", "-t", f"{target}{{{wrong}}}", "-o", "wrong")
        assert ran.code == 2
        assert message in ran.err


def test_ops_are_refused_with_reasons(dlc: Dlc, make: Make) -> None:
    ran = build(dlc, make(ops=["relu"]))
    assert ran.code == 1
    assert "toy has no such operation" in ran.err
    refusal = say({"refused": [{"op": 1, "reason": "no tanh of 6 elements", "help": "use relu"}]})
    ran = build(dlc, make(legalises=True, legalise=refusal))
    assert ran.code == 1
    assert "cannot build tanh (once): no tanh of 6 elements" in ran.err
    assert "use relu" in ran.err
    assert build(dlc, make(elements=["f16"])).code == 1
    ran = build(dlc, make(legalises=True, legalise=say({"refused": [{"op": 2, "reason": ""}]})))
    assert (ran.code, "it refuses op 2 of 2" in ran.err) == (6, True)


def test_content_not_place_is_part_of_the_keys(dlc: Dlc, make: Make) -> None:
    def cached(target: str) -> list[bool]:
        steps = dlc("build", "net.dlc", "-t", target, "-o", "out", "--json").document["steps"]
        return [s["cached"] for s in steps if s["step"].startswith(("accept", "emit"))]

    Path("table.bin").write_text("1")
    target = make(depends=["table.bin"], ops=["relu", "tanh"])
    assert cached(target) == [False] * 3
    Path("elsewhere").mkdir()
    shutil.copy("toy", "elsewhere/other")
    shutil.copy("table.bin", "elsewhere")
    assert cached("exec:elsewhere/other") == [True] * 3
    Path("table.bin").write_text("2")
    assert cached(target) == [False] * 3
    make(depends=["table.bin"], ops=["relu", "tanh"], version="2")
    assert cached(target) == [False] * 3


def test_a_configuration_has_to_be_trusted_to_name_one(dlc: Dlc, make: Make) -> None:
    make()
    Path("dlc.toml").write_text('[target.chip]\nbackend = "exec{command=./toy}"\n')
    ran = dlc("build", "net.dlc", "-t", "chip", "-o", "out")
    assert ran.code == 2
    assert "untrusted" in ran.err
    assert dlc("build", "net.dlc", "-t", "chip", "-o", "out", "--trust-config").code == 0


def test_a_manifest_starts_no_executable(dlc: Dlc, make: Make) -> None:
    """Whoever wrote the program's directory does not choose what is run."""
    assert build(dlc, make()).code == 0
    make(name="trap", describe='touch "$0".ran', emit='touch "$0".ran')
    manifest = Path("out/manifest.json")
    document = json.loads(manifest.read_text())
    document["target"] = "exec{command=./trap}"
    manifest.write_text(json.dumps(document))
    for command in (("run", "out"), ("show", "out"), ("verify", "out")):
        dlc(*command)
    assert not list(Path().rglob("trap.ran"))


# ---- the example ----
@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example of the repository, compiled with checks."""
    found = tmp_path_factory.mktemp("dense") / "dense"
    flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O0", "-fsanitize=address,undefined")
    command = ("gcc", *flags, "-o", str(found), str(ROOT / "examples" / "exec_backend" / "dense.c"), "-lm")
    subprocess.run(command, check=True)
    return found


def network(seed: int) -> onnx.ModelProto:
    """Dense layers of random sizes, with hostile names."""
    generator = np.random.default_rng(seed)
    rows, *widths = map(int, generator.integers(1, 9, 4))

    def stored(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["a"], transB=1, name=EVIL),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["c"]),
        helper.make_node("Add", ["c", "b1"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"], name="e"),
        helper.make_node("Add", ["e", "c"], [EVIL]),
    ]
    constants = [
        stored("w0", widths[1], widths[0]),
        stored("b0", widths[1]),
        stored("w1", widths[1], widths[2]),
        stored("b1", 1, widths[2]),
    ]
    return model(nodes, [("x", [rows, widths[0]])], [(EVIL, [rows, widths[2]])], constants)


@pytest.mark.parametrize(("seed", "sums"), [(0, "float"), (1, "double"), (2, "float")])
def test_the_example_computes_what_onnxruntime_does(
    seed: int, sums: str, dlc: Dlc, dense: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime  # pyright: ignore[reportMissingTypeStubs]

    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # it answers one question and ends
    content = network(seed)
    Path("net.onnx").write_bytes(content.SerializeToString())
    ran = dlc("build", "net.onnx", "-t", f"exec:{dense}{{sums={sums}}}", "-o", "out", "-q")
    assert ran.code == 0, ran.err
    assert "injected" not in Path("out/dense.c").read_text()
    flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O0")
    subprocess.run(("gcc", *flags, "-o", "net", "out/dense.c"), check=True)
    session: Any = onnxruntime.InferenceSession(content.SerializeToString())
    shape: list[int] = session.get_inputs()[0].shape
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    (expected,) = session.run(None, {"x": x})
    done = subprocess.run([os.path.abspath("net")], input=x.tobytes(), capture_output=True, check=True)
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32).reshape(expected.shape), expected, 1e-5, 1e-5)


def test_the_example_refuses_what_it_has_no_code_for(dlc: Dlc, dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["y"], name="batched"),
        helper.make_node("Sigmoid", ["y"], ["z"], name="curve"),
    ]
    ports = [info(name, TensorProto.FLOAT, [2, 3, 3]) for name in "xz"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path("odd.onnx").write_bytes(content.SerializeToString())
    ran = dlc("build", "odd.onnx", "-t", f"exec:{dense}", "-o", "out")
    assert ran.code == 1
    assert "mat_mul (once): a matrix product of other operands than two matrices" in ran.err
    assert "sigmoid (once): dense has no such operation" in ran.err


def test_what_an_executable_says_of_itself_is_listed(dlc: Dlc, make: Make) -> None:
    options = [{"name": "fast", "type": "boolean", "default": True, "doc": "be quick"}]
    target = make(functions=["add", "max"], memory=[{"name": "arena", "align": 16, "limit": 4096}], options=options)
    ran = dlc("list", target)
    assert ran.code == 0, ran.err
    for words in ("toy 1, protocol 1", "functions   add, max", "arena: 4,096 bytes, offsets are multiples of 16"):
        assert words in ran.out
    assert "fast=yes  be quick  (boolean)" in ran.out
    (item,) = json.loads(dlc("list", target, "--json").out)["items"]
    assert (item["functions"], item["elements"], item["target"]) == (["add", "max"], None, target)
    assert dlc("list", "exec:./none").code == 2
    assert "dlc list exec:PATH" in dlc("list", "exec").err
    assert dlc("list", make("mute", describe="exit 3")).code == 6


def test_functions_that_it_lacks_are_refused_by_every_command_that_plans(dlc: Dlc, make: Make) -> None:
    target = make(consumes="plan", functions=["max"])
    for line in (("build", "-o", "out"), ("build", "--stop-after", "accept-values"), ("plan",)):
        ran = dlc(line[0], "net.dlc", "-t", target, *line[1:], "--json")
        (found,) = json.loads(ran.out)["diagnostics"]
        assert (ran.code, found["code"]) == (1, "unsupported-kernel"), line
        assert found["message"].endswith("toy has no function tanh")
        assert found["help"] == "it has max"
    assert dlc("plan", "net.dlc", "-t", make(consumes="plan", functions=["max", "tanh"])).code == 0
    assert dlc("build", "net.dlc", "-t", target, "--stop-after", "accept").code == 0


def test_programs_that_do_not_run_here_say_what_to_do(dlc: Dlc, make: Make) -> None:
    ran = dlc("run", "net.dlc", "-t", make())
    assert ran.code == 2
    assert "cannot-load" in ran.err and '"request.json"' in ran.err
    assert "dlc run MODEL" in ran.err
