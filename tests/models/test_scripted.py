"""Python control flow as torch's exporter of scripted modules writes it: compiled C gives what PyTorch gives."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from dlc import Source
from dlc.driver.program import Compiler

torch_: Any = torch
"""torch.jit has no types to check against."""


class For(torch.nn.Module):
    """A loop whose count is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        for k in range(int(n)):
            x = torch.tanh(self.layer(x)) + k
        return x


class While(torch.nn.Module):
    """A loop that ends by its data."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while bool(x.abs().max() < 10.0):
            x = x * self.factor + 0.1
        return x


class If(torch.nn.Module):
    """A branch on data, one side of which is a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):  # noqa: SIM108  what is exported is a statement
            y = torch.relu(self.layer(x))
        else:
            y = -x
        return y


class Lists(torch.nn.Module):
    """A list that a loop appends to: a sequence in ONNX."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.LSTMCell(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, c = torch.zeros(2, 16), torch.zeros(2, 16)
        out = [h]
        for k in range(x.size(0)):
            h, c = self.cell(x[k], (h, c))
            out.append(h)
        return torch.stack(out)


class Greedy(torch.nn.Module):
    """Tokens that a window of tokens continues with."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(20, 8)
        self.out = torch.nn.Linear(8, 20)

    def forward(self, tokens: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        for _ in range(int(n)):
            best = self.out(self.table(tokens[:, -1])).argmax(-1, keepdim=True)
            tokens = torch.cat([tokens[:, 1:], best], 1)
        return tokens


X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
TOKENS = torch.arange(12).reshape(2, 6)
MODELS: Mapping[str, tuple[Callable[[], torch.nn.Module], tuple[tuple[torch.Tensor, ...], ...]]] = {
    "for": (For, tuple((X, torch.tensor(n)) for n in (3, 0, 1, 10))),
    "while": (While, ((X,), (X * 0.01,), (X * 100,))),
    "if": (If, ((X.abs(),), (-X.abs(),))),
    "lists": (Lists, ((torch.stack([X[:2], X[2:]] * 10),),)),
    "greedy": (Greedy, tuple((TOKENS, torch.tensor(n)) for n in (4, 0, 9))),
}


@cache
def compiler() -> Compiler:
    return Compiler.open()


@pytest.mark.parametrize("name", MODELS)
def test_what_pytorch_gives(name: str) -> None:
    make, runs = MODELS[name]
    torch_.manual_seed(0)
    module = torch_.jit.script(make().eval())
    names = [f"in{k}" for k in range(len(runs[0]))]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_.onnx.export(module, runs[0], file, dynamo=False, opset_version=17, input_names=names, output_names=["y"])
    program = compiler().program(Source(data=file.getvalue(), label=f"{name}.onnx"))
    for args in runs:
        feeds = {n: np.asarray(a.numpy()) for n, a in zip(names, args, strict=True)}
        with torch.no_grad():
            want = module(*args).numpy()
        np.testing.assert_allclose(program(out=None, **feeds)["y"], want, rtol=1e-5, atol=1e-5)
