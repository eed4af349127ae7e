"""The networks of `s2train_coverage.py`: PyTorch modules with random weights, with the batches that they are run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
import torch_zoo
from torch import Tensor, nn

from dlc.base.types import Array
from tests.backend_s2train.networks import S2_NETWORKS
from tests.training.torch_networks import NETWORKS as EVERYDAY
from tests.training.torch_networks import Encoder, Network, images, pictures, sequences, successors

_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Of MobileNetV2 (Sandler et al. 2018, table 2): expansion, channels, repeats, stride of the first."""


def _normed(inner: int, outer: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outer)]


class Inverted(nn.Module):
    """An inverted residual: 1 x 1 up, 3 x 3 by channel, 1 x 1 down."""

    def __init__(self, inner: int, outer: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inner * expansion
        up = [*_normed(inner, wide, 1), nn.ReLU6()] if expansion > 1 else []
        self.body = nn.Sequential(*up, *_normed(wide, wide, 3, stride, wide), nn.ReLU6(), *_normed(wide, outer, 1))
        self.past = inner == outer and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.past else self.body(x)


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 of width 1.0."""
    layers: list[nn.Module] = [*_normed(3, 32, 3, 2), nn.ReLU6()]
    now = 32
    for expansion, outer, repeats, first in _BLOCKS:
        for k in range(repeats):
            layers.append(Inverted(now, outer, 1 if k else first, expansion))
            now = outer
    layers += [*_normed(now, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 10)]
    return nn.Sequential(*layers)


class Fire(nn.Module):
    """A block of SqueezeNet (Iandola et al. 2016)."""

    def __init__(self, inner: int, squeezed: int, each: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inner, squeezed, 1)
        self.one, self.three = nn.Conv2d(squeezed, each, 1), nn.Conv2d(squeezed, each, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


def squeezenet() -> nn.Module:
    """SqueezeNet 1.1."""
    pool = partial(nn.MaxPool2d, 3, 2, ceil_mode=True)
    fires = [Fire(64, 16, 64), Fire(128, 16, 64), pool(), Fire(128, 32, 128), Fire(256, 32, 128), pool()]
    fires += [Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256)]
    tail = nn.Conv2d(512, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool(), *fires, *tail)


class Inception(nn.Module):
    """A block of GoogLeNet (Szegedy et al. 2015)."""

    def __init__(self, inner: int, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int) -> None:
        super().__init__()
        self.ways = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(inner, one, 1), nn.ReLU()),
                nn.Sequential(nn.Conv2d(inner, three[0], 1), nn.ReLU(), nn.Conv2d(*three, 3, padding=1), nn.ReLU()),
                nn.Sequential(nn.Conv2d(inner, five[0], 1), nn.ReLU(), nn.Conv2d(*five, 5, padding=2), nn.ReLU()),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(inner, pooled, 1), nn.ReLU()),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([way(x) for way in self.ways], 1)


def googlenet() -> nn.Module:
    """The stem of GoogLeNet and the first four of its blocks."""
    stem = nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(64, 64, 1), nn.ReLU()
    more = nn.Conv2d(64, 192, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    blocks = Inception(192, 64, (96, 128), (16, 32), 32), Inception(256, 128, (128, 192), (32, 96), 64)
    last = Inception(480, 192, (96, 208), (16, 48), 64), Inception(512, 160, (112, 224), (24, 64), 64)
    tail = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)
    return nn.Sequential(*stem, *more, *blocks, nn.MaxPool2d(3, 2, 1), *last, *tail)


class Shuffled(nn.Module):
    """A unit of ShuffleNet (Zhang et al. 2018) that keeps its shape."""

    def __init__(self, width: int, groups: int = 3) -> None:
        super().__init__()
        self.groups, inner = groups, width // 4
        self.first = nn.Sequential(*_normed(width, inner, 1, groups=groups), nn.ReLU())
        self.rest = nn.Sequential(*_normed(inner, inner, 3, groups=inner), *_normed(inner, width, 1, groups=groups))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        n, c, h, w = y.shape
        y = y.reshape(n, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(n, c, h, w)
        return torch.relu(x + self.rest(y))


def shufflenet() -> nn.Module:
    """A stem, four units of ShuffleNet and a classifier."""
    stem = *_normed(3, 24, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *_normed(24, 240, 1), nn.ReLU()
    return nn.Sequential(
        *stem, *(Shuffled(240) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(240, 10)
    )


class Squeezed(nn.Module):
    """Channels weighted by what their means give (Hu et al. 2018)."""

    def __init__(self, width: int, inner: int, gate: nn.Module) -> None:
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1), gate

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True)))))


class Gated(nn.Module):
    """An inverted residual of EfficientNet (Tan and Le 2019) or MobileNetV3 (Howard et al. 2019)."""

    def __init__(self, inner: int, wide: int, outer: int, kernel: int, stride: int, act: nn.Module, gate: nn.Module):
        super().__init__()
        up = [*_normed(inner, wide, 1), act] if wide != inner else []
        by_channel = [*_normed(wide, wide, kernel, stride, wide), act, Squeezed(wide, max(inner // 4, 4), gate)]
        self.body, self.past = nn.Sequential(*up, *by_channel, *_normed(wide, outer, 1)), inner == outer and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.past else self.body(x)


def gated(blocks: Sequence[tuple[int, int, int, int, int]], last: int, act: nn.Module, gate: nn.Module) -> nn.Module:
    """A stem, blocks (expansion, channels, repeats, stride, kernel) and a classifier."""
    now = blocks[0][1] * 2
    layers: list[nn.Module] = [*_normed(3, now, 3, 2), act]
    for expansion, outer, repeats, first, kernel in blocks:
        for k in range(repeats):
            layers.append(Gated(now, now * expansion, outer, kernel, 1 if k else first, act, gate))
            now = outer
    return nn.Sequential(
        *layers, *_normed(now, last, 1), act, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 10)
    )


_B0 = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
    *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
)
"""Of EfficientNet-B0 (Tan and Le 2019, table 1)."""
_V3 = ((1, 16, 1, 2, 3), (4, 24, 2, 2, 3), (4, 40, 3, 2, 5), (3, 48, 2, 1, 5), (6, 96, 3, 2, 5))
"""Near those of MobileNetV3-Small (Howard et al. 2019, table 2)."""


def unet() -> nn.Module:
    """That of the zoo with a class for each pixel."""
    module = _of("unet")()
    module.out = nn.Conv2d(8, 2, 1)
    return module


def _of(zoo: str) -> Callable[[], nn.Module]:
    return next(case.make for case in torch_zoo.CASES if case.name == zoo)


def steps(time: int, tokens: int, classes: int) -> Callable[[int, np.random.Generator], tuple[Array, Array]]:
    """Random tokens and labels."""

    def make(batch: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return rng.integers(0, tokens, (batch, time)), rng.integers(0, classes, batch)

    return make


def maps(channels: int, size: int, classes: int) -> Callable[[int, np.random.Generator], tuple[Array, Array]]:
    """Noise with a label for each pixel."""

    def make(batch: int, rng: np.random.Generator) -> tuple[Array, Array]:
        x = rng.standard_normal((batch, channels, size, size)).astype(np.float32)
        return x, rng.integers(0, classes, (batch, size, size))

    return make


NETWORKS: Mapping[str, Network] = {
    "mobilenet_v2": Network(mobilenet_v2, pictures(64), 2),
    "encoder": Network(lambda: Encoder(4, 128, 4, 32), sequences(32, 1000), 4),
    "mlp": Network(EVERYDAY["mlp"].make, images(1, 28, 28), 8),
    "lenet": S2_NETWORKS["lenet"],
    "alexnet": S2_NETWORKS["alexnet"],
    "vgg11": S2_NETWORKS["vgg11"],
    "resnet18": Network(EVERYDAY["resnet18"].make, pictures(32), 2),
    "resnet50": S2_NETWORKS["resnet50"],
    "squeezenet": Network(squeezenet, pictures(64), 2),
    "googlenet": Network(googlenet, pictures(64), 2),
    "shufflenet": Network(shufflenet, pictures(32), 2),
    "densenet": Network(_of("densenet"), pictures(16), 2),
    "efficientnet_b0": Network(lambda: gated(_B0, 1280, nn.SiLU(), nn.Sigmoid()), pictures(64), 2),
    "mobilenet_v3": Network(lambda: gated(_V3, 576, nn.Hardswish(), nn.Hardsigmoid()), pictures(64), 2),
    "efficientnet": Network(_of("efficientnet"), pictures(32), 2),
    "convnext": Network(_of("convnext"), pictures(32), 2),
    "unet": Network(unet, maps(1, 32, 2), 1),
    "segmenter": Network(_of("segmenter"), maps(3, 32, 5), 2),
    "vit": Network(_of("vit"), pictures(32), 2),
    "gpt": Network(EVERYDAY["gpt"].make, successors(64, 512), 2, "cross-entropy{axis=-1}"),
    "lstm": Network(partial(torch_zoo.Recurrent, nn.LSTM), steps(8, 50, 10), 4),
    "mixer": Network(_of("mixer"), pictures(32), 2),
}
