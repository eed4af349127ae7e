"""Networks of everyday kinds as PyTorch modules, with batches that can be learnt, and as ONNX files for inference."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from dlc.base.types import Array

CLASSES = 10
Batch = tuple[Array, Array]
Batches = Callable[[int, np.random.Generator], Batch]


def in_precision_of(module: nn.Module, x: Array) -> Array:
    """Floats in the type of a module's parameters; integers as they are."""
    first = next(module.parameters()).detach().numpy()
    return x.astype(first.dtype) if x.dtype.kind == "f" else x


@dataclass(frozen=True)
class Network:
    """A network and what it learns."""

    make: Callable[[], nn.Module]
    batches: Batches
    """A batch of this size: inputs, labels (int64)."""
    batch: int
    """Samples in a step that is measured."""
    loss: str = "cross-entropy"
    """In dlc's words; `loss_of` says the same in PyTorch's."""

    def module(self, seed: int = 0) -> nn.Module:
        """The network with random weights, for inference; no two of its parameters are equal.

        Norms begin with ones and zeros, and the exporter makes one initializer of parameters that are equal.
        """
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        module = self.make().eval()
        for part in module.modules():
            if isinstance(part, (nn.BatchNorm2d, nn.LayerNorm)):
                for name, value in part.state_dict().items():
                    if value.is_floating_point():
                        low, high = (-0.1, 0.1) if name in ("bias", "running_mean") else (0.9, 1.1)
                        nn.init.uniform_(value, low, high)
        return module

    def data(self, count: int, batch: int = 0, seed: int = 5) -> list[Batch]:
        """So many batches, of `batch` samples each or as many as are measured."""
        rng = np.random.default_rng(seed)
        return [self.batches(batch or self.batch, rng) for _ in range(count)]

    def onnx(self, module: nn.Module, batch: int = 0) -> bytes:
        """The module as an ONNX file: input `x`, output `scores`, initializers named like the parameters.

        In the precision that the module has.
        """
        ((x, _),) = self.data(1, batch)
        x = in_precision_of(module, x)
        file = io.BytesIO()
        options: dict[str, Any] = {
            "dynamo": False,
            "do_constant_folding": False,
            "training": torch.onnx.TrainingMode.PRESERVE,
            "input_names": ["x"],
            "output_names": ["scores"],
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this exporter is the old one
            exporter: Any = torch.onnx
            exporter.export(module.eval(), (torch.tensor(x),), file, **options)
        return file.getvalue()


def loss_of(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of scores whose classes are the last dimension."""
    return F.cross_entropy(scores.flatten(0, -2), labels.flatten())


def torch_step(module: nn.Module, optimizer: torch.optim.Optimizer, x: Array, y: Array) -> float:
    """One step in training mode; the loss before it."""
    loss = loss_of(module.train()(torch.tensor(x)), torch.tensor(y))
    optimizer.zero_grad()
    loss.backward()  # pyright: ignore[reportUnknownMemberType]
    optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    return float(loss.detach())


def mlp() -> nn.Module:
    """784 → 256 → 256 → 10."""
    layers = nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    return nn.Sequential(*layers)


def lenet() -> nn.Module:
    """LeNet-5 with relu and maximum pooling, of 1 × 28 × 28 images."""
    first = nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    dense = nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES)
    return nn.Sequential(*first, *second, *dense)


class Residual(nn.Module):
    """Two convolutions with batch normalisation beside a way past them."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.conv2, self.norm2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        fits = stride == 1 and inner == outer
        projection = nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
        self.past = nn.Identity() if fits else nn.Sequential(*projection)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(inside + self.past(x))


class ResNet18(nn.Module):
    """ResNet-18 for 3 × 32 × 32 images: no pooling in front, four stages of two blocks (He et al. 2016)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inner = width
        for outer, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            blocks += [Residual(inner, outer, stride), Residual(outer, outer, 1)]
            inner = outer
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inner, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(torch.relu(self.norm(self.conv(x))))
        return self.head(F.avg_pool2d(x, 4).flatten(1))


class Attention(nn.Module):
    """Self-attention of several heads, of [batch, time, width]; with `causal`, of what came before only."""

    def __init__(self, width: int, heads: int, causal: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.later: torch.Tensor | None
        self.register_buffer("later", torch.ones(causal, causal).triu(1).bool() if causal else None, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        split = self.qkv(x).reshape(batch, time, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        if self.later is not None:
            scores = scores.masked_fill(self.later, -torch.inf)
        return self.out((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, time, width))


class Layer(nn.Module):
    """A transformer's layer; norms behind each half (Vaswani et al. 2017), or in front of it where `causal`."""

    def __init__(self, width: int, heads: int, causal: int = 0) -> None:
        super().__init__()
        self.attention, self.causal = Attention(width, heads, causal), causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.causal:
            x = x + self.attention(self.norm1(x))
            return x + self.dense(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.dense(x))


class Encoder(nn.Module):
    """A transformer that classifies sequences of tokens."""

    def __init__(self, layers: int = 4, width: int = 128, heads: int = 4, time: int = 64, tokens: int = 1000) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(tokens, width), nn.Parameter(torch.randn(time, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(x) + self.position).mean(1))


class Gpt(nn.Module):
    """A transformer that tells each token's successor; with `tied`, by the matrix that embeds them."""

    def __init__(
        self, layers: int = 2, width: int = 128, heads: int = 4, time: int = 64, tokens: int = 512, tied: bool = False
    ) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(tokens, width), nn.Parameter(torch.randn(time, width) * 0.02)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.layers = nn.Sequential(*(Layer(width, heads, time) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = None if tied else nn.Linear(width, tokens, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.layers(self.embedding(x) + self.position))
        return x @ self.embedding.weight.T if self.head is None else self.head(x)


def images(*shape: int) -> Batches:
    """Noise with a label that is learnt: which of ten stripes was made brighter."""

    def make(batch: int, rng: np.random.Generator) -> Batch:
        labels = rng.integers(0, CLASSES, batch)
        x = rng.standard_normal((batch, *shape)).astype(np.float32)
        flat = x.reshape(batch, -1)
        for k, label in enumerate(labels):
            flat[k, label::CLASSES] += 0.5
        return x, labels

    return make


def pictures(size: int, kinds: int = CLASSES) -> Batches:
    """Noise over ten pictures of 4 × 4 coloured squares, one per label: what networks with convolutions learn soon."""
    squares = np.random.default_rng(11).standard_normal((kinds, 3, 4, 4)).astype(np.float32)
    each = np.kron(squares, np.ones((1, 1, size // 4, size // 4), np.float32))

    def make(batch: int, rng: np.random.Generator) -> Batch:
        labels = rng.integers(0, kinds, batch)
        return each[labels] + rng.standard_normal((batch, 3, size, size)).astype(np.float32), labels

    return make


def sequences(time: int, tokens: int) -> Batches:
    """Random tokens; the label is the range of values that the most of them were drawn from."""

    def make(batch: int, rng: np.random.Generator) -> Batch:
        labels, each = rng.integers(0, CLASSES, batch), tokens // CLASSES
        own = labels[:, None] * each + rng.integers(0, each, (batch, time))
        return np.where(rng.random((batch, time)) < 0.5, own, rng.integers(0, tokens, (batch, time))), labels

    return make


def successors(time: int, tokens: int) -> Batches:
    """Sequences in which most tokens follow from the one before; labels are the sequences one place on."""

    def make(batch: int, rng: np.random.Generator) -> Batch:
        all = np.empty((batch, time + 1), np.int64)
        all[:, 0] = rng.integers(0, tokens, batch)
        for t in range(time):
            strays = rng.random(batch) < 0.1
            all[:, t + 1] = np.where(strays, rng.integers(0, tokens, batch), (5 * all[:, t] + 3) % tokens)
        return all[:, :-1].copy(), all[:, 1:].copy()

    return make


_TOKENS = "cross-entropy{axis=-1}"
NETWORKS: Mapping[str, Network] = {
    "mlp": Network(mlp, images(1, 28, 28), 64),
    "lenet": Network(lenet, images(1, 28, 28), 32),
    "resnet18": Network(ResNet18, pictures(32), 16),
    "transformer": Network(Encoder, sequences(64, 1000), 8),
    "gpt": Network(Gpt, successors(64, 512), 8, _TOKENS),
    "gpt-tied": Network(lambda: Gpt(tied=True), successors(64, 512), 8, _TOKENS),
}
"""As they are measured."""
NARROW: Mapping[str, Network] = {
    **NETWORKS,
    "resnet18": Network(lambda: ResNet18(8), pictures(32), 4),
    "transformer": Network(lambda: Encoder(4, 32, 4, 16, 100), sequences(16, 100), 4),
    "gpt": Network(lambda: Gpt(2, 32, 4, 16, 64), successors(16, 64), 4, _TOKENS),
    "gpt-tied": Network(lambda: Gpt(2, 32, 4, 16, 64, tied=True), successors(16, 64), 4, _TOKENS),
}
"""The same with fewer channels and a shorter text, for tests."""
