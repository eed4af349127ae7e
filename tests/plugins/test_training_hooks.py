"""Losses, optimizers, initializers and machines of plugins: how they are found, keyed and refused."""

from pathlib import Path

import numpy as np
import pytest

from dlc import DlcError, ExitCode, Report, Type, make_graph
from dlc.base.types import f32
from dlc.driver.pipeline import Step
from dlc.driver.steps import apply
from dlc.graph import Constant, Graph, Input, Tensor
from dlc.ops.linear import MatMul
from dlc.plugins.discovery import KINDS, load_registry
from dlc.plugins.entry import Kind
from dlc.plugins.registry import Registry
from dlc.spec import Spec
from dlc.training.step.initializers import INITIALIZERS
from dlc.training.step.losses import LOSSES
from dlc.training.step.optimizers import OPTIMIZERS
from tests.plugins.conftest import Install

TABLES: dict[Kind, object] = {"losses": LOSSES, "optimizers": OPTIMIZERS, "initializers": INITIALIZERS}
CODE = """
from dataclasses import dataclass
import numpy as np
from dlc import hookimpl, option
from dlc.ops.elementwise import Mul, Sign, Sub
from dlc.ops.reduce import ReduceMax
from dlc.training.parts import Drawn, Loss, Optimizer

@dataclass(frozen=True)
class Signs(Optimizer):
    name = "signs"
    def _step(self, w, g, state, step, rate):
        return Sub(w, Mul(Sign(g), rate)), {}

@dataclass(frozen=True)
class Worst(Loss):
    name = "worst"
    def _labels(self, prediction):
        return prediction
    def _value(self, prediction, labels):
        return ReduceMax(Sub(prediction, labels), axes=(0, 1))

@dataclass(frozen=True)
class Ramp(Drawn):
    name = "ramp"
    factor: float = option(1.0, "factor")
    def values(self, shape, fans, draw):
        return self.factor * np.arange(np.prod(shape)).reshape(shape)

@hookimpl
def dlc_optimizers():
    return [Signs]
@hookimpl
def dlc_losses():
    return [Worst]
@hookimpl
def dlc_initializers():
    return [Ramp]
"""
WRONG = """
from dlc import Lazy, hookimpl
class Nothing:
    name = "nothing"
@hookimpl
def dlc_optimizers():
    return [Nothing, Lazy("gone", "dlc_absent:X")]
"""
USED = "autodiff{loss=worst optimizer=signs{lr=0.5} init=ramp{factor=2}}"


def model() -> Graph:
    x, w = Input("x", Type(f32, (2, 2))), Constant(Tensor.of(np.ones((2, 2), np.float32)), "w")
    return make_graph([x], {"out": MatMul(x, w)})


def code(registry: Registry, text: str) -> list[str]:
    """The packages whose code is in the key of a step, beside dlc's and those that are in every key."""
    stage = registry.stage(Spec.parse(text))
    made = apply(Step(stage, "core", "dlc")).stage(None)  # pyright: ignore[reportArgumentType]
    return [value.partition(" ")[0] for label, value in made.extra if label == "code"]


@pytest.mark.parametrize("kind", TABLES)
def test_the_cores_are_found_in_their_files(kind: Kind) -> None:
    entries = load_registry(kinds=(kind,)).tables[kind].values()
    assert {e.name: e.load() for e in entries if e.package == "dlc"} == TABLES[kind]


def test_a_step_is_made_of_what_plugins_offer(install: Install) -> None:
    install("learn", CODE)
    registry = load_registry()
    step = registry.stage(Spec.parse(USED)).run(model(), Report())
    (w,) = (i for i in step.inputs if i.name == "w")
    assert isinstance(w.initial, Tensor)
    np.testing.assert_array_equal(w.initial.array(), [[0, 2], [4, 6]])
    assert registry.stage(Spec.parse("autodiff{loss=mse}")).packages == ()


def test_their_code_is_in_the_keys_of_what_they_act_in(install: Install) -> None:
    install("learn", CODE)
    registry = load_registry()
    assert code(registry, USED) == ["dlc_test_learn"]
    assert code(registry, "autodiff{loss=mse optimizer=signs}") == ["dlc_test_learn"]
    assert code(registry, "autodiff{loss=mse}") == []
    # Inference depends on what weights begin with, and on no optimizer.
    assert code(registry, "autodiff{loss=worst optimizer=signs give=predict}") == []
    assert code(registry, "autodiff{loss=worst init=ramp give=predict}") == ["dlc_test_learn"]


@pytest.mark.parametrize(
    ("text", "exit_code", "message"),
    [
        ("autodiff{loss=wurst}", ExitCode.USAGE, 'no loss "wurst"'),
        ("autodiff{optimizer=sings}", ExitCode.USAGE, 'no optimizer "sings"'),
        ("autodiff{init=ramp{factr=2}}", ExitCode.USAGE, "ramp has no option factr"),
        ("autodiff{loss=signs}", ExitCode.USAGE, 'no loss "signs"'),
        ("autodiff{optimizer=nothing}", ExitCode.PLUGIN, "nothing is not derived from Optimizer"),
        ("autodiff{optimizer=gone}", ExitCode.PLUGIN, "No module named 'dlc_absent'"),
    ],
)
def test_what_cannot_be_used_is_refused(text: str, exit_code: ExitCode, message: str, install: Install) -> None:
    install("learn", CODE)
    install("wrong", WRONG)
    with pytest.raises(DlcError) as caught:
        load_registry().stage(Spec.parse(text))
    assert caught.value.exit_code is exit_code
    assert message in caught.value.diagnostics[0].message


@pytest.mark.parametrize(("kind", "name"), [("optimizers", "adam"), ("losses", "mse"), ("initializers", "zeros")])
def test_names_of_the_core_stay_the_cores(kind: Kind, name: str, install: Install) -> None:
    hook = f"@hookimpl\ndef dlc_{kind}():\n    return [Lazy('{name}', 'x:Y')]\n"
    install("same", f"from dlc import Lazy, hookimpl\n{hook}")
    registry = load_registry(kinds=KINDS)
    assert registry.find(kind, Spec(name)).plugin == "core"
    assert registry.tables[kind][f"same:{name}"].plugin == "same"
    (problem,) = registry.problems
    assert (problem.code, problem.severity) == ("name-clash", "warning")
    (clash,) = problem.notes
    assert f"same:{name} of the {kind} is selected by this name: {name} is of core" in clash


MACHINES = (
    "from dlc import hookimpl\nfrom pathlib import Path\n@hookimpl\ndef dlc_machines():\n    return [Path({!r})]\n"
)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("Board 7.toml", "does not name a machine"),
        ("native.toml", "does not name a machine"),
        ("board.json", "is not a TOML file"),
        ("absent.toml", "is not a TOML file"),
        ("/etc/hosts", "does not lie in the package"),
    ],
)
def test_files_that_describe_no_machine_break_their_plugin(
    file: str, reason: str, install: Install, tmp_path: Path
) -> None:
    package = tmp_path / "dlc_test_boards"
    package.mkdir()
    install("boards", "")
    (tmp_path / "dlc_test_boards.py").unlink()
    (package / "__init__.py").write_text(MACHINES.format(str(package / file)))
    if "absent" not in file and not file.startswith("/"):
        (package / file).write_text("")
    (problem,) = load_registry(kinds=("machines",)).problems
    assert reason in problem.message


def test_machines_of_plugins_are_choices_of_the_option_cpu(install: Install, tmp_path: Path) -> None:
    package = tmp_path / "dlc_test_boards"
    package.mkdir()
    install("boards", "")
    (tmp_path / "dlc_test_boards.py").unlink()
    (package / "__init__.py").write_text(MACHINES.format(str(package)))
    board = package / "board.toml"
    board.write_text("description = 'a board'\nalign = 16\n")
    (package / "broken.toml").write_text("align = 7\n")
    registry = load_registry(kinds=("backends", "machines"))
    backend = registry.backend(Spec.parse("c{cpu=board}"))
    assert backend.regions()["arena"].align == 16
    assert backend.machines()["board"] == "a board"
    assert "align" in backend.machines()["broken"]
    before = backend.toolchain()
    board.write_text("description = 'a board'\nalign = 16\nfeatures = ['fpu']\n")
    assert backend.toolchain() != before, "what is in the file is part of the keys"
    assert str(backend.for_model("net")).startswith("c{")
    with pytest.raises(DlcError, match="machine board"):
        load_registry(kinds=("backends",)).backend(Spec.parse("c{cpu=board}"))
    with pytest.raises(DlcError, match="option align"):
        registry.backend(Spec.parse("c{cpu=broken}")).regions()
