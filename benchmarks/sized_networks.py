"""Networks with open dimensions, exported by torch: an encoder, a decoder whose cache grows, an image pyramid."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Self-attention with heads, of rows that may see rows of a cache."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        batch, length, width = x.shape
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, 2))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads) + mask
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        return self.out(y), torch.stack([k, v])


class Bert(nn.Module):
    """Tokens and a mask of those that count → hidden states and a pooled row."""

    def __init__(self, width: int, layers: int, heads: int = 4, longest: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, width), nn.Embedding(longest, width)
        self.register_buffer("numbers", torch.arange(longest)[None])
        self.attention = nn.ModuleList([Attention(width, heads) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])
        self.up = nn.ModuleList([nn.Linear(width, 4 * width) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(4 * width, width) for _ in range(layers)])
        self.pool = nn.Linear(width, width)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        numbers: Any = self.numbers
        x = self.norms[-1](self.words(ids) + self.places(numbers[:, : ids.shape[1]]))
        seen = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for k, attention in enumerate(self.attention):
            x = self.norms[2 * k](x + attention(x, seen)[0])
            x = self.norms[2 * k + 1](x + self.down[k](nn.functional.gelu(self.up[k](x))))
        return x, torch.tanh(self.pool(x[:, 0]))


class Gpt(nn.Module):
    """New tokens and the keys and values of those before → scores of the next ones, keys and values of all."""

    def __init__(self, width: int, layers: int, heads: int = 4, longest: int = 512) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, width), nn.Embedding(longest, width)
        self.attention = nn.ModuleList([Attention(width, heads) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])
        self.up = nn.ModuleList([nn.Linear(width, 4 * width) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(4 * width, width) for _ in range(layers)])
        self.head = nn.Linear(width, 1000, bias=False)

    def forward(self, ids: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        length, before = ids.shape[1], past.shape[4]
        x = self.words(ids) + self.places(torch.arange(before, before + length)[None])
        hidden = torch.ones(length, before + length, dtype=torch.bool).tril(before).logical_not()
        mask = hidden.float() * -10000.0
        present: list[Tensor] = []
        for k, attention in enumerate(self.attention):
            y, kv = attention(self.norms[2 * k](x), mask, past[k])
            x, present = x + y, [*present, kv]
            x = x + self.down[k](nn.functional.gelu(self.up[k](self.norms[2 * k + 1](x)), approximate="tanh"))
        return self.head(self.norms[-1](x)), torch.stack(present)


class Unet(nn.Module):
    """Images → a mask of the same size; two levels below."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        c = channels
        self.down1, self.down2, self.down3 = block(3, c), block(c, 2 * c), block(2 * c, 4 * c)
        self.pool = nn.MaxPool2d(2)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), nn.ConvTranspose2d(2 * c, c, 2, 2)
        self.join2, self.join1, self.last = block(4 * c, 2 * c), block(2 * c, c), nn.Conv2d(c, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(self.pool(a))
        y = self.join2(torch.cat([self.up2(self.down3(self.pool(b))), b], 1))
        return self.last(self.join1(torch.cat([self.up1(y), a], 1)))


def block(before: int, after: int) -> nn.Module:
    """Two convolutions with normalisation."""
    layers: list[nn.Module] = []
    for k in (before, after):
        layers += [nn.Conv2d(k, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


def exported(path: Path, module: nn.Module, arguments: tuple[Tensor, ...], names: Mapping[str, dict[int, str]]) -> Path:
    """The ONNX file of a module with open dimensions, by torch's exporter."""
    library: Any = torch  # parts of it have no types
    library.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.onnx.export(
            module.eval(),
            arguments,
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=list(names),
            dynamic_axes=names,
        )
    return path


def bert(path: Path) -> Path:
    arguments = torch.zeros(2, 16, dtype=torch.long), torch.ones(2, 16, dtype=torch.long)
    return exported(path, Bert(256, 4), arguments, {n: {0: "batch", 1: "seq"} for n in ("ids", "mask")})


def gpt(path: Path) -> Path:
    arguments = torch.zeros(1, 3, dtype=torch.long), torch.zeros(4, 2, 1, 4, 5, 64)
    return exported(path, Gpt(256, 4), arguments, {"ids": {0: "batch", 1: "seq"}, "past": {2: "batch", 4: "past"}})


def unet(path: Path) -> Path:
    return exported(path, Unet(16), (torch.zeros(1, 3, 32, 32),), {"x": {2: "height", 3: "width"}})


NETWORKS: Mapping[str, tuple[Callable[[Path], Path], Mapping[str, str]]] = {
    "bert": (bert, {"batch": "1..8", "seq": "1..128"}),
    "gpt": (gpt, {"batch": "1..2", "seq": "1..16", "past": "0..256"}),
    "unet": (unet, {"height": "32..128/8", "width": "32..128/8"}),
}
"""Name → what exports it, and the sizes that its dimensions may have."""
