"""Small networks twice: as graphs of ops with named constants, and as PyTorch modules with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from dlc import Report
from dlc.base.types import Array, Type, f32
from dlc.graph import Constant, Graph, Input, Op, Tensor, evaluate, make_graph
from dlc.ops.elementwise import Relu, Tanh
from dlc.ops.linear import Conv, Gemm
from dlc.ops.pool import MaxPool
from dlc.ops.shape import Reshape
from dlc.passes.autodiff import Autodiff
from dlc.spec import Spec
from dlc.training.step.step import initial_values

CLASSES = 5
BATCH = 8
Build = Callable[[Op, Callable[[str], Op]], Op]


@dataclass(frozen=True)
class Net:
    """One network."""

    module: Callable[[], torch.nn.Sequential]
    build: Build
    """The same as ops: of x, and of a function that gives a parameter by its name in the module."""
    shape: tuple[int, ...]
    """Of one sample."""

    def graph(self, module: torch.nn.Sequential, batch: int = BATCH) -> Graph:
        """The graph with a module's weights."""
        values = {name: p.detach().numpy() for name, p in module.named_parameters()}
        x = Input("x", Type(f32, (batch, *self.shape)))
        return make_graph((x,), {"scores": self.build(x, lambda name: Constant(Tensor.of(values[name]), name))})

    def batches(self, count: int, batch: int = BATCH) -> list[tuple[Array, Array]]:
        """Samples and labels that can be learnt: the label is the largest of a few sums."""
        rng = np.random.default_rng(5)
        xs = rng.standard_normal((count, batch, *self.shape)).astype(np.float32)
        flat = xs.reshape(count, batch, -1)
        sums = np.stack([flat[..., k::CLASSES].sum(-1) for k in range(CLASSES)], -1)
        return list(zip(xs, sums.argmax(-1).astype(np.int64), strict=True))


def mlp() -> torch.nn.Sequential:
    """12 → 16 → 16 → 5, tanh and relu."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def conv() -> torch.nn.Sequential:
    """Two convolutions of a 1 × 6 × 6 image, pooling between, and a layer on top."""
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16, CLASSES)),
    )


def _linear(x: Op, p: Callable[[str], Op], name: str) -> Op:
    return Gemm(x, p(f"{name}.weight"), p(f"{name}.bias"), trans_b=True)


def _mlp(x: Op, p: Callable[[str], Op]) -> Op:
    return _linear(Relu(_linear(Tanh(_linear(x, p, "0")), p, "2")), p, "4")


def _conv(x: Op, p: Callable[[str], Op]) -> Op:
    x = Relu(Conv(x, p("0.weight"), p("0.bias"), pads=(1, 1, 1, 1)))
    x = Relu(Conv(MaxPool(x, window=(2, 2), stride=(2, 2)), p("3.weight"), p("3.bias")))
    return _linear(Reshape(x, to=(x.shape[0], 16)), p, "6")


NETS: Mapping[str, Net] = {"mlp": Net(mlp, _mlp, (12,)), "conv": Net(conv, _conv, (1, 6, 6))}


def module_of(net: Net, seed: int = 3) -> torch.nn.Sequential:
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
    return net.module()


def step_of(graph: Graph, options: str) -> Graph:
    return Autodiff.from_spec(Spec.parse(f"autodiff{{{options}}}")).run(graph, Report())


@dataclass
class Training:
    """A step that is run again and again on what it returned."""

    graph: Graph

    def __post_init__(self) -> None:
        self.held = initial_values(self.graph)

    def __call__(self, x: Array, y: Array) -> float:
        """One step: the loss before it."""
        found = evaluate(self.graph, {**self.held, "x": x, "y": y})
        self.held = {name: found[name] for name in self.held}
        return float(found["loss"])


def torch_step(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, x: Array, y: Array, clip: float = 0.0
) -> float:
    """One step of cross-entropy in PyTorch: the loss before it."""
    tensor = cast("Callable[[Array], torch.Tensor]", torch.from_numpy)  # pyright: ignore[reportUnknownMemberType]
    loss: Any = torch.nn.functional.cross_entropy(module(tensor(x)), tensor(y))
    optimizer.zero_grad()
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
    optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    return float(loss.detach())


def relative_error(got: Array, want: Array) -> float:
    """‖got - want‖ / ‖want‖."""
    return float(np.linalg.norm(got - want) / max(float(np.linalg.norm(want)), 1e-12))
