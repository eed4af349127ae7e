"""Training of everyday networks against PyTorch; all with every optimizer: `benchmarks/training_agreement.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from dlc_frontend_onnx.frontend import Onnx

from dlc import Report, Source
from tests.models.building import Bench
from tests.training.agreement import Agreement, Interpreted, Learner, Trained, compare
from tests.training.nets import step_of
from tests.training.torch_networks import NARROW, Network

Make = Callable[[Path, Network, str], Learner]


def interpreted(source: Path, network: Network, optimizer: str) -> Learner:
    return Interpreted(step_of(Onnx().parse(Source(source), Report()), f"loss={network.loss} optimizer={optimizer}"))


def built(updates: str) -> Make:
    def make(source: Path, network: Network, optimizer: str) -> Learner:
        train = f"loss={network.loss},optimizer={optimizer},updates={updates}"
        return Trained(Bench(source.parent / "cache").build(source, source.parent / "out", "--train", train).program)

    return make


def trained(name: str, optimizer: str, make: Make, steps: int, place: Path, batch: int) -> Agreement:
    network = NARROW[name]
    module, source = network.module(), place / f"{name}.onnx"
    source.write_bytes(network.onnx(module, batch))
    found = compare(make(source, network, optimizer), module, optimizer, network.data(min(steps, 10), batch), steps)
    assert found.ok, (found.worst, found.apart)
    assert found.undetermined < 0.1
    return found


CASES = [
    ("mlp", "rmsprop{lr=0.0001 momentum=0.9 centered=yes}", "immediate"),
    ("lenet", "adam{lr=0.001}", "final"),
]


@pytest.mark.parametrize(("name", "optimizer", "updates"), CASES, ids=[name for name, *_ in CASES])
def test_fifty_steps_of_a_program_are_those_of_torch(name: str, optimizer: str, updates: str, tmp_path: Path) -> None:
    found = trained(name, optimizer, built(updates), 50, tmp_path, 4)
    assert found.losses[-1][0] < found.losses[0][0]


@pytest.mark.parametrize(
    ("name", "optimizer", "steps"),
    [
        ("resnet18", "sgd{lr=0.01 momentum=0.9 nesterov=yes weight-decay=0.01}", 1),
        ("transformer", "lamb{lr=0.01}", 5),
        ("gpt-tied", "adamw{lr=0.001 weight-decay=0.05}", 10),
        ("mlp", "adagrad{lr=0.01}", 50),
    ],
)
def test_steps_of_the_interpreter_are_those_of_torch(name: str, optimizer: str, steps: int, tmp_path: Path) -> None:
    trained(name, optimizer, interpreted, steps, tmp_path, 2 if name == "resnet18" else 4)


def test_a_step_that_is_not_the_same_is_found(tmp_path: Path) -> None:
    """What the comparison is worth: another rate, and another decay, are distinguished from the right ones."""
    network = NARROW["mlp"]
    module, source = network.module(), tmp_path / "mlp.onnx"
    source.write_bytes(network.onnx(module, 4))
    for optimizer in ("adam{lr=0.0011}", "adam{lr=0.001 weight-decay=0.01}"):
        learner = interpreted(source, network, optimizer)
        found = compare(learner, module, "adam{lr=0.001}", network.data(1, 4), 1)
        assert not found.ok and found.worst[0] > 1e-4


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
