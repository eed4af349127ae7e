"""Modules in memory and torch.compile, through real builds: values, gradients, memory, fallbacks."""

# pyright: basic
# PyTorch's own types are partly unknown.

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dlc_frontend_torch import backend, calls, graphs
from dlc_frontend_torch import compile as compiled_module
from torch import Tensor, nn

import dlc
from dlc import DlcError

TARGET = "c{flags=-O0}"
Make = Callable[[], nn.Module]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """A convolution with batch normalisation, attention and a head."""

    def __init__(self, ratio: float = 0.0) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.attention, self.layer = nn.MultiheadAttention(4, 2, batch_first=True), nn.LayerNorm(4)
        self.drop, self.head = nn.Dropout(ratio), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(2).transpose(1, 2)
        y = y + self.attention(y, y, y, need_weights=False)[0]
        return self.head(self.drop(self.layer(y)).mean(1))


def options(cache: str) -> dict[str, Any]:
    return {"target": TARGET, "cache_dir": cache}


def trained(model: nn.Module, call: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.zeros(())
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(call(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def test_training_equals_eager(cache: str) -> None:
    plain, model = Net(), Net()
    model.load_state_dict(plain.state_dict())
    x, y = torch.randn(3, 2, 4, 4), torch.tensor([0, 2, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # none of it runs in eager PyTorch
        call: Any = torch.compile(model, backend="dlc", options=options(cache))
        found = trained(model, call, x, y)
    assert found == pytest.approx(trained(plain, plain, x, y), rel=1e-5)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_dropout_runs_in_eager_pytorch_with_one_warning(cache: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8), nn.Tanh())
    call: Any = torch.compile(model, backend="dlc", options=options(cache))
    x = torch.randn(5, 4)
    with pytest.warns(UserWarning, match="native_dropout") as caught:
        call(x)
    messages = [str(w.message) for w in caught if "backend='dlc'" in str(w.message)]
    assert len(messages) == len(set(messages))
    torch.manual_seed(1)
    first, other = call(x), call(x)
    torch.manual_seed(1)
    assert torch.equal(call(x), first)
    assert not torch.equal(other, first)


def test_sizes_that_change_are_compiled_again(cache: str) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())
    call: Any = torch.compile(model, backend="dlc", dynamic=True, options=options(cache))
    with torch.no_grad():
        for rows in (2, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-6)


def test_graph_breaks_are_eager(cache: str) -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.sin(x) * 2
        print(end="")  # a graph break
        return torch.cos(y) + 1

    call: Any = torch.compile(function, backend="dlc", options=options(cache))
    x = torch.randn(3)
    torch.testing.assert_close(call(x), function(x), rtol=1e-5, atol=1e-6)


def test_programs_read_and_write_the_tensors_own_memory(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[int] = set()
    written: set[int] = set()
    run = calls.Call.__call__

    class Seen:
        def __init__(self, program: Any) -> None:
            self.program, self.signature = program, program.signature

        def __call__(self, given: Any, out: Any) -> Any:
            read.update(a.__array_interface__["data"][0] for a in given.values())
            written.update(a.__array_interface__["data"][0] for a in out.values())
            return self.program(given, out=out)

    def seen(self: calls.Call, given: Any) -> Any:
        monkeypatch.setattr(self, "program", Seen(self.program))
        return run(self, given)

    monkeypatch.setattr(graphs, "Call", calls.Call)
    monkeypatch.setattr(calls.Call, "__call__", seen)
    model = nn.Linear(4, 3)
    call: Any = torch.compile(model, backend="dlc", options=options(cache))
    x = torch.randn(2, 4)
    with torch.no_grad():
        y = call(x)
    assert {x.data_ptr(), model.weight.data_ptr(), model.bias.data_ptr()} <= read
    assert y.data_ptr() in written


def test_modules_are_compiled_with_constant_or_shared_weights(cache: str) -> None:
    model = Net().eval()
    x = torch.randn(1, 2, 4, 4)
    fixed = compiled_module(model, (x,), target=TARGET, cache_dir=cache)
    shared = compiled_module(model, (x,), target=TARGET, cache_dir=cache, share_weights=True)
    before = model(x).detach()
    torch.testing.assert_close(fixed(x), before, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        model.head.weight.mul_(2)
    torch.testing.assert_close(fixed(x=x), before, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(shared(x), model(x).detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(DlcError, match="x"):
        fixed(torch.randn(2, 2, 4, 4))
    with pytest.raises(DlcError, match="2 arguments"):
        fixed(x, x)


def test_an_exported_model_is_trained_by_dlc_itself(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 2, 1, 0])
    program = torch.export.export(model.eval(), (x,))
    torch.export.save(program, tmp_path / "net.pt2")
    train = "loss=cross-entropy,optimizer=sgd{lr=0.1}"
    command = [sys.executable, "-m", "dlc", "build", "net.pt2", "-q", "--target", TARGET, "--train", train, "-o", "out"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    net: Any = dlc.load(tmp_path / "out")
    loss = net.train_step(x.numpy(), y.numpy())
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)
    expected = F.cross_entropy(model(x), y)
    expected.backward()
    optimizer.step()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for name, value in model.named_parameters():
        torch.testing.assert_close(
            torch.from_numpy(net.parameters()[name].copy()), value.detach(), rtol=1e-4, atol=1e-6
        )


def test_unknown_options_are_refused() -> None:
    with pytest.raises(DlcError, match="flags"):
        backend.Options.of({"flags": "-O3"})
