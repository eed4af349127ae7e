"""The example plugin, built and installed as anyone's would be."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.plugins.example import MODEL, Machine, build_wheel, install

X = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def machine(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """For tests that leave the plugin as it is."""
    found = install(wheel, tmp_path_factory.mktemp("machine"))
    np.save(found.home / "x.npy", X)
    return found


@pytest.fixture
def own_machine(wheel: Path, tmp_path: Path) -> Machine:
    """For tests that change what is installed."""
    return install(wheel, tmp_path)


def expected() -> np.ndarray:
    """The model, in NumPy by hand."""
    hidden, out = ((np.float32(layer["weight"]), np.float32(layer["bias"])) for layer in MODEL["layers"])
    a = X @ hidden[0].T + hidden[1]
    a = a / (1 + np.exp(-a))
    return np.tanh(a @ out[0].T + out[1])


def test_everything_it_offers_is_listed(machine: Machine) -> None:
    plugins = {p["name"]: p for p in machine.dlc("plugins", "--json").data["plugins"]}
    assert plugins["example"]["state"] == "ok"
    assert plugins["example"]["offers"] == {
        "frontends": ["mlp"],
        "backends": ["numpy"],
        "ops": ["swish"],
        "passes": ["find-swish"],
        "pipelines": ["swish"],
        "rules": ["unit_beta"],
        "onnx_rules": ["org.example"],
        "schedules": ["running"],
        "optimizers": ["lion"],
        "losses": ["log-cosh"],
        "initializers": ["orthogonal"],
        "machines": ["example-m33"],
    }
    assert "find-swish      Recognise x · sigmoid(x)" in machine.dlc("list", "passes").text
    assert "beta=yes  also where the sigmoid's argument is scaled" in machine.dlc("list", "passes").text
    assert "running       Sums of the elements up to each one" in machine.dlc("list", "schedules").text
    for kind, name in (("optimizers", "lion"), ("losses", "log-cosh"), ("initializers", "orthogonal")):
        items = machine.dlc("list", kind, "--json").data["items"]
        assert [item["plugin"] for item in items if item["name"] == name] == ["example"]
    machines = machine.dlc("list", "machines", "--json").data["items"]
    board = {"backend": "c", "name": "example-m33", "description": "Arm Cortex-M33 of the example board"}
    assert board in machines
    assert "swish(x, beta)" in machine.dlc("list", "ops").text
    assert "swish    activation" in machine.dlc("list", "mlp").text
    operators = machine.dlc("list", "onnx", "--json").data["items"]
    assert {"name": "org.example.Swish", "versions": "version 1 and later"} in operators


@pytest.mark.parametrize("target", ["numpy", "c{cpu=generic}"])
def test_its_models_build_and_run_on_every_backend(target: str, machine: Machine) -> None:
    directory = Path(f"out-{target[0]}")
    machine.dlc("build", "net.mlp", "-t", target, "-o", directory)
    machine.dlc("run", directory, "x.npy", "-o", "y.npz")
    np.testing.assert_allclose(np.load(machine.home / "y.npz")["y"], expected(), rtol=1e-6)


def test_the_python_program_runs_alone(machine: Machine) -> None:
    machine.dlc("build", "net.mlp", "-t", "numpy", "-o", "alone")
    np.savez(machine.home / "in.npz", x=X)
    script = [sys.executable, "-I", "alone/program.py", "in.npz", "out.npz"]
    subprocess.run(script, cwd=machine.home, check=True)
    np.testing.assert_allclose(np.load(machine.home / "out.npz")["y"], expected(), rtol=1e-6)


def test_its_pass_and_rule_act_on_models_of_other_formats(machine: Machine) -> None:
    """x·σ(x) and x·σ(b·x) in ONNX become swish, and b = 1 goes away by the rule."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"], name="gate"),
        helper.make_node("Mul", ["s", "x"], ["a"], name="first"),
        helper.make_node("Mul", ["a", "b"], ["ab"], name="scale"),
        helper.make_node("Sigmoid", ["ab"], ["t"], name="gate2"),
        helper.make_node("Mul", ["a", "t"], ["y"], name="second"),
        helper.make_node("Mul", ["x", "t"], ["z"], name="other"),
    ]
    b = helper.make_tensor("b", TensorProto.FLOAT, [2], [1.0, 2.0])
    outputs = [value("y", TensorProto.FLOAT, [2, 2]), value("z", TensorProto.FLOAT, [2, 2])]
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, [2, 2])], outputs, [b])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (machine.home / "net.onnx").write_bytes(model.SerializeToString())
    found = machine.dlc("build", "net.onnx", "-t", "c", "-p", "swish", "-o", "found", "--explain", "find-swish")
    assert "swish 2" in found.errors
    assert "the sigmoid is not of the factor beside it" in found.text
    verdict = machine.dlc("verify", "net.onnx", "-p", "swish")
    assert "y" in verdict.text


@pytest.mark.parametrize("version", [1, 2])
def test_its_import_rules_read_operators_of_its_domain(version: int, machine: Machine) -> None:
    beta = np.array([0.5, -2.0], np.float32) if version == 2 else np.float32(0.5)
    attributes: dict[str, Any] = {"beta": 0.5} if version == 1 else {}
    nodes = [
        helper.make_node("Swish", ["x", *["b"] * (version == 2)], ["s"], domain="org.example", **attributes),
        helper.make_node("Gate", ["s", "x"], ["y"], domain="org.example"),
    ]
    value = helper.make_tensor_value_info
    inputs, outputs = [value("x", TensorProto.FLOAT, [2, 2])], [value("y", TensorProto.FLOAT, [2, 2])]
    stored = [helper.make_tensor("b", TensorProto.FLOAT, [2], beta.reshape(-1).tolist())] if version == 2 else []
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.example", version)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, stored), opset_imports=opsets)
    model.ir_version = 8
    name = f"own{version}.onnx"
    (machine.home / name).write_bytes(model.SerializeToString())
    machine.dlc("build", name, "-t", "c{cpu=generic}", "-o", f"own{version}")
    machine.dlc("run", f"own{version}", "x.npy", "-o", "own.npz")
    want = X / (1 + np.exp(-beta * X)) / (1 + np.exp(-X))
    np.testing.assert_allclose(np.load(machine.home / "own.npz")["y"], want, rtol=1e-6)


def test_its_schedule_is_chosen_explained_and_checked(machine: Machine) -> None:
    """For the kernels that it is for; another one can be given instead."""
    value = helper.make_tensor_value_info
    given, found = value("x", TensorProto.FLOAT, [3, 50]), value("y", TensorProto.FLOAT, [3, 50])
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [1])
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], name="sums")
    graph = helper.make_graph([node], "g", [given], [found], [axis])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (machine.home / "sums.onnx").write_bytes(model.SerializeToString())
    explain = ("build", "sums.onnx", "-t", "c{cpu=generic}", "-o", "sums", "--explain", "schedule-kernels")
    built = machine.dlc(*explain, "--verify-loops").text
    kernel, how = re.findall(r"scheduled (\w+) \(sums\) as (.*), [\d,]+ cycles: ", built)[0]
    assert how == "running"
    assert "not loops{innermost=2}, because it takes" in built
    x = np.linspace(-1, 2, 150, dtype=np.float32).reshape(3, 50)
    np.save(machine.home / "rows.npy", x)
    results: list[np.ndarray] = []
    for schedule in ("running", "loops"):
        other = machine.dlc(*explain, "--schedule", f"{kernel}={schedule}", "--verify-loops").text
        assert f"as {schedule}" in other
        machine.dlc("run", "sums", "rows.npy", "-o", "y.npz")
        results.append(np.load(machine.home / "y.npz")["y"])
    np.testing.assert_array_equal(results[0], results[1])  # the same terms in the same order
    np.testing.assert_allclose(results[0], np.cumsum(x, 1), rtol=1e-5, atol=1e-5)
    unknown = machine.run(*explain, "--schedule", f"{kernel}=runing")
    assert unknown.code == 2
    assert "did you mean running?" in unknown.errors


def log_cosh(weights: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
    """The loss of the model, in f64."""
    a = x @ weights[0].T + weights[1]
    prediction = np.tanh(a / (1 + np.exp(-a)) @ weights[2].T + weights[3])
    return float(np.log(np.cosh(prediction - y)).mean())


def lion_curve(x: np.ndarray, y: np.ndarray, rate: float) -> list[float]:
    """Losses of steps of two rows each, with Lion from its paper and gradients by differences."""
    weights = [np.asarray(layer[key], np.float64) for layer in MODEL["layers"] for key in ("weight", "bias")]
    means, losses = [np.zeros_like(w) for w in weights], list[float]()
    for row in range(0, len(x), 2):
        batch = x[row : row + 2], y[row : row + 2]
        losses.append(log_cosh(weights, *batch))
        gradients = [np.zeros_like(w) for w in weights]
        for w, g in zip(weights, gradients, strict=True):
            for at in np.ndindex(w.shape):
                start = w[at]
                w[at] = start + 1e-6
                above = log_cosh(weights, *batch)
                w[at] = start - 1e-6
                g[at] = (above - log_cosh(weights, *batch)) / 2e-6
                w[at] = start
        for w, m, g in zip(weights, means, gradients, strict=True):
            w -= rate * np.sign(0.9 * m + 0.1 * g)
            m += 0.01 * (g - m)
    return losses


def test_its_optimizer_and_loss_train_a_model(machine: Machine) -> None:
    """The curve is that of the paper's formulas."""
    generator = np.random.default_rng(5)
    x, y = generator.standard_normal((12, 2)), generator.uniform(-0.9, 0.9, (12, 1))
    np.savez(machine.home / "data.npz", x=x.astype(np.float32), y=y.astype(np.float32))
    train = "loss=log-cosh,optimizer=lion{lr=0.05},updates=immediate"
    machine.dlc("build", "net.mlp", "-t", "c{cpu=generic flags=-O0}", "--train", train, "-o", "learns")
    machine.dlc(
        *("train", "learns", "--data", "data.npz", "--validation-data", "data.npz"),
        *("--epochs", "1", "--no-shuffle", "--log", "curve.csv"),
    )
    rows = [line.split(",") for line in (machine.home / "curve.csv").read_text().splitlines()]
    at = rows[0].index("loss")
    found = [float(row[at]) for row in rows[1:] if row[at]][:6]
    np.testing.assert_allclose(found, lion_curve(x, y, 0.05), rtol=2e-5)
    assert "mae" in (machine.home / "curve.csv").read_text()
    wrong = machine.run("build", "net.mlp", "--train", "loss=log-cosh,optimizer=lyon", "-o", "wrong")
    assert wrong.code == 2
    assert "did you mean lion?" in wrong.errors


def test_its_machine_is_built_for(machine: Machine) -> None:
    machine.dlc("build", "net.mlp", "-t", "c{cpu=example-m33 lib=none}", "-o", "board")
    manifest = json.loads((machine.home / "board" / "manifest.json").read_text())
    assert manifest["machine"] == "example-m33"
    assert "-mcpu=cortex-m33" in manifest["cpu"]
    unknown = machine.run("build", "net.mlp", "-t", "c{cpu=example-m34}", "-o", "board")
    assert unknown.code == 2
    assert "did you mean example-m33?" in unknown.errors


def test_files_are_recognised_by_content(machine: Machine) -> None:
    (machine.home / "model").write_text(json.dumps(MODEL))
    assert "float32[2,1]" in machine.dlc("run", "model", "-t", "numpy").text


def test_all_that_is_wrong_with_a_model_is_said_at_once(machine: Machine) -> None:
    layers = [
        {"name": "a", "weight": [[1, 2, 3]], "bias": [1], "activation": "swish"},
        {"name": "b", "weight": [[1, 2]], "bias": [1], "activation": "relux"},
        {"name": "c", "weight": "many", "bias": [1]},
        3,
    ]
    (machine.home / "bad.mlp").write_text(json.dumps({**MODEL, "layers": layers}))
    done = machine.run("build", "bad.mlp")
    assert done.code == 1
    for part in ("layers[0]", "there is no activation relux", "layers[2].weight", "a layer must be an object"):
        assert part in done.errors


def test_editing_the_plugin_makes_its_steps_run_again(own_machine: Machine) -> None:
    """Not only the plugin's own steps: an op acts in every step that meets it."""
    arguments = ("net.mlp", "-t", "numpy", "-o", "out")
    assert not any(own_machine.steps(*arguments).values())
    assert all(own_machine.steps(*arguments).values())
    source = own_machine.site / "dlc_example" / "swish.py"
    source.write_text(source.read_text() + "# changed\n")
    why = own_machine.dlc("cache", "why", "net.mlp", "-t", "numpy").text
    assert "code" in why
    assert "dlc_example" in why
    assert not any(own_machine.steps(*arguments).values())


BROKEN = {
    "gone": ("import absent_sdk\n", "No module named 'absent_sdk'"),
    "future": ("dlc_api = '>=99'\n", "it needs dlc >=99"),
    "raising": ("from dlc import hookimpl\n@hookimpl\ndef dlc_ops():\n    raise OSError('no SDK')\n", "no SDK"),
}
LAZY = """
from dlc import Lazy, hookimpl
@hookimpl
def dlc_frontends():
    return [Lazy("lazy", "dlc_absent.reader:Reader")]
@hookimpl
def dlc_step_done(event):
    raise ValueError("cannot draw")
@hookimpl
def dlc_commands(app):
    raise ValueError("no arms")
"""
TOOL = """
from pathlib import Path
from typing import Any
from dlc import hookimpl
@hookimpl
def dlc_step_done(event):
    with Path("steps.txt").open("a") as file:
        file.write(event.spec + "\\n")
@hookimpl
def dlc_commands(app):
    @app.command()
    def greet():
        print("hello")
"""


def test_broken_plugins_are_named_and_everything_else_works(own_machine: Machine) -> None:
    for name, (code, _) in BROKEN.items():
        own_machine.add(name, code)
    own_machine.add("lazy", LAZY)
    own_machine.add("tool", TOOL)
    built = own_machine.dlc("build", "net.mlp", "-t", "numpy", "-o", "out")
    for name, (_, reason) in BROKEN.items():
        assert f"plugin {name} (dlc-{name} 1.0) is skipped" in built.errors
        assert reason in built.errors
    assert built.errors.count("dlc_step_done failed and is not called again: ValueError: cannot draw") == 1
    assert "emit numpy{comments=yes}" in (own_machine.home / "steps.txt").read_text().splitlines()
    greeting = own_machine.dlc("greet")
    assert greeting.text == "hello\n"
    assert "dlc_commands failed and is not called again: ValueError: no arms" in greeting.errors
    states = {p["name"]: p["state"] for p in own_machine.dlc("plugins", "--json").data["plugins"]}
    assert states["gone"] == states["raising"] == "broken"
    assert states["future"] == "incompatible"
    assert states["example"] == "ok"
    assert "plugin lazy: cannot be loaded: ModuleNotFoundError" in own_machine.dlc("list", "frontends").text
    doctor = own_machine.run("doctor")
    assert doctor.code != 0
    assert "plugin lazy: lazy cannot be loaded: ModuleNotFoundError: No module named 'dlc_absent'" in doctor.text
    wanted = own_machine.run("build", "net.mlp", "--frontend", "lazy")
    assert wanted.code == 6
    assert "plugin lazy: lazy cannot be loaded" in wanted.errors
