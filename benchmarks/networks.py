"""Networks whose speed is compared with that of other runtimes: ONNX files with random weights."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from tests.models.llama import Llama
from tests.models.zoo import LIGHT, bert, gpt, light, mlp, mobilenet_v2


def _export(module: Any, *inputs: Any) -> bytes:
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # that this exporter is the old one
        exporter: Any = torch.onnx
        names = [f"x{i}" for i in range(len(inputs))]
        exporter.export(module.eval(), inputs, file, dynamo=False, opset_version=17, input_names=names)
    return file.getvalue()


def _light(name: str) -> bytes:
    return light(name, 1).SerializeToString()


def _resnet18(batch: int) -> bytes:
    from tests.training.torch_networks import NETWORKS

    network = NETWORKS["resnet18"]
    return network.onnx(network.module(), batch)


def _lstm() -> bytes:
    import torch

    class Network(torch.nn.Module):
        """Two layers of 128 over 32 steps of 64 features."""

        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = torch.nn.LSTM(64, 128, 2, batch_first=True), torch.nn.Linear(128, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.lstm(x)[0][:, -1])

    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    return _export(Network(), torch.randn(1, 32, 64))


def _dense(batch: int) -> bytes:
    return mlp(batch=batch, sizes=(784, 512, 256, 10)).SerializeToString()


SEEN: Mapping[str, Callable[[], bytes]] = {
    **{name: partial(_light, name) for name in LIGHT},
    "mobilenet_v2": lambda: mobilenet_v2(size=224, width=1.0, classes=1000).SerializeToString(),
    **{f"resnet18-{batch}": partial(_resnet18, batch) for batch in (1, 4, 16)},
    **{f"mlp-{batch}": partial(_dense, batch) for batch in (1, 64)},
    "bert": lambda: bert(
        length=128, hidden=256, layers=4, heads=4, vocabulary=1000, norm="decomposed"
    ).SerializeToString(),
    "gpt2-block": lambda: gpt(length=128, hidden=768, layers=1, heads=12, vocabulary=1000).SerializeToString(),
    "lstm": _lstm,
}
"""Those that were looked at while schedules were made; the number behind a name is the batch."""


def _timm(name: str, size: int) -> bytes:
    import timm  # pyright: ignore
    import torch

    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    make: Any = timm
    return _export(make.create_model(name, pretrained=False), torch.randn(1, 3, size, size))


def _unet() -> bytes:
    import torch
    from torch import nn

    def block(inner: int, outer: int) -> nn.Module:
        first = nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU()
        return nn.Sequential(*first, nn.Conv2d(outer, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU())

    class Network(nn.Module):
        """Ronneberger et al. 2015, four levels from 32 channels."""

        def __init__(self) -> None:
            super().__init__()
            widths = (3, 32, 64, 128, 256)
            self.down = nn.ModuleList(block(a, b) for a, b in pairwise(widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in (128, 64, 32))
            self.join, self.head = nn.ModuleList(block(2 * w, w) for w in (128, 64, 32)), nn.Conv2d(32, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            levels: list[torch.Tensor] = []
            for down in self.down:
                x = down(nn.functional.max_pool2d(x, 2) if levels else x)
                levels.append(x)
            for up, join, past in zip(self.up, self.join, levels[-2::-1], strict=True):
                x = join(torch.cat([past, up(x)], 1))
            return self.head(x)

    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    return _export(Network(), torch.randn(1, 3, 128, 128))


def _conformer() -> bytes:
    import torch
    from torch import nn

    from tests.training.torch_networks import Attention

    width, kernel = 144, 31

    def half() -> nn.Module:
        return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    class Block(nn.Module):
        """Gulati et al. 2020: two halves of a feed-forward layer around attention and a convolution."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = half(), half(), nn.LayerNorm(width)
            self.norm, self.attention = nn.LayerNorm(width), Attention(width, 4)
            self.before, self.gate = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
            self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
            self.behind, self.out = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + 0.5 * self.first(x)
            x = x + self.attention(self.norm(x))
            y = nn.functional.glu(self.gate(self.before(x).transpose(1, 2)), 1)
            y = self.out(nn.functional.silu(self.behind(self.depthwise(y))))
            x = x + y.transpose(1, 2)
            return self.last(x + 0.5 * self.second(x))

    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    return _export(nn.Sequential(*(Block() for _ in range(4))), torch.randn(1, 256, width))


UNSEEN: Mapping[str, Callable[[], bytes]] = {
    "convnext-atto": partial(_timm, "convnext_atto", 224),
    "efficientnet-b0": partial(_timm, "efficientnet_b0", 224),
    "unet": _unet,
    "vit-tiny": partial(_timm, "vit_tiny_patch16_224", 224),
    "llama-step": lambda: (
        Llama(hidden=512, inner=1408, layers=4, heads=8, groups=2, vocabulary=1000, length=1, past=256)
        .model()
        .SerializeToString()
    ),
    "conformer": _conformer,
}
"""Those that nothing was tuned for."""
