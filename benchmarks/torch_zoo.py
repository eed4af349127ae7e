"""Models of today's families in plain torch.nn, small and with random weights: what `torch_models.py` measures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.f1, self.f2 = nn.Linear(16 * 25, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.f2(F.relu(self.f1(x.flatten(1))))


class Block(nn.Module):
    """A residual block with batch normalisation."""

    def __init__(self, i: int, o: int, stride: int = 1) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.skip = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.nb(self.b(F.relu(self.na(self.a(x)))))
        return F.relu(y + (x if self.skip is None else self.skip(x)))


class ResNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            Block(16, 16),
            Block(16, 32, 2),
            Block(32, 64, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, 10),
        )


class Vgg(nn.Sequential):
    def __init__(self) -> None:
        parts: list[nn.Module] = []
        for i, o in ((3, 16), (16, 32), (32, 64)):
            parts += [nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(*parts, nn.Flatten(), nn.Linear(64 * 16, 64), nn.ReLU(), nn.Linear(64, 10))


class Inverted(nn.Module):
    """An inverted residual of MobileNetV2."""

    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        h = i * 4
        self.body = nn.Sequential(
            nn.Conv2d(i, h, 1, bias=False),
            nn.BatchNorm2d(h),
            nn.ReLU6(),
            nn.Conv2d(h, h, 3, stride, 1, groups=h, bias=False),
            nn.BatchNorm2d(h),
            nn.ReLU6(),
            nn.Conv2d(h, o, 1, bias=False),
            nn.BatchNorm2d(o),
        )
        self.skip = i == o and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.skip else self.body(x)


class MobileNet(nn.Sequential):
    def __init__(self) -> None:
        stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
        tail = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
        super().__init__(*stem, Inverted(8, 16, 2), Inverted(16, 16, 1), *tail)


class Squeeze(nn.Module):
    """Squeeze and excitation, with the activations of MobileNetV3."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c // 4, 1), nn.Conv2d(c // 4, c, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.b(F.relu(self.a(F.adaptive_avg_pool2d(x, 1)))))


class EfficientNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.Hardswish(),
            nn.Conv2d(16, 16, 5, 1, 2, groups=16),
            Squeeze(16),
            nn.SiLU(),
            nn.Conv2d(16, 32, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )


class Dense(nn.Module):
    """A block of DenseNet."""

    def __init__(self, i: int, growth: int, count: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(i + k * growth) for k in range(count))
        self.convs = nn.ModuleList(nn.Conv2d(i + k * growth, growth, 3, padding=1) for k in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, conv(F.relu(norm(x)))], 1)
        return x


class DenseNet(nn.Sequential):
    def __init__(self) -> None:
        stem = nn.Conv2d(3, 12, 3, padding=1), Dense(12, 8, 3), nn.AvgPool2d(2), Dense(36, 8, 2)
        super().__init__(*stem, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(52, 10))


class ChannelsLastNorm(nn.LayerNorm):
    """Layer normalisation over the channels of an image."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.depth, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c, eps=1e-6)
        self.up, self.down = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.scale = nn.Parameter(torch.full((c,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Sequential):
    def __init__(self) -> None:
        stem = nn.Conv2d(3, 24, 4, 4), ChannelsLastNorm(24, eps=1e-6), ConvNeXtBlock(24), ConvNeXtBlock(24)
        super().__init__(*stem, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(24), nn.Linear(24, 10))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def twice(i: int, o: int) -> nn.Module:
            one = nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()
            return nn.Sequential(*one, nn.Conv2d(o, o, 3, padding=1), nn.ReLU())

        self.a, self.b, self.c = twice(1, 8), twice(8, 16), twice(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.d2, self.d1, self.out = twice(32, 16), twice(16, 8), nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        y = self.d2(torch.cat([self.up2(c), b], 1))
        return self.out(self.d1(torch.cat([self.up1(y), a], 1)))


class Segmenter(nn.Module):
    """An encoder, a feature pyramid by bilinear resizing, group normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 32, 3, 2, 1)
        self.na, self.nb = nn.GroupNorm(4, 16), nn.GroupNorm(4, 32)
        self.la, self.lb, self.out = nn.Conv2d(16, 16, 1), nn.Conv2d(32, 16, 1), nn.Conv2d(16, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.leaky_relu(self.na(self.a(x)))
        b = F.leaky_relu(self.nb(self.b(a)))
        y = self.la(a) + F.interpolate(self.lb(b), scale_factor=2.0, mode="bilinear", align_corners=False)
        return F.interpolate(self.out(y), scale_factor=2.0, mode="nearest")


class Autoencoder(nn.Sequential):
    def __init__(self) -> None:
        down = nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()
        up = nn.ConvTranspose2d(16, 8, 3, 2, 1, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 3, 2, 1, 1), nn.Sigmoid()
        super().__init__(*down, *up)


class Vae(nn.Module):
    """A variational autoencoder; its noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.mean, self.log = nn.Linear(64, 48), nn.Linear(48, 8), nn.Linear(48, 8)
        self.dec, self.out = nn.Linear(8, 48), nn.Linear(48, 64)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        h = torch.tanh(self.enc(x))
        mean, log = self.mean(h), self.log(h).clamp(-4, 4)
        z = mean + noise * torch.exp(0.5 * log)
        kl = -0.5 * (1 + log - mean.pow(2) - log.exp()).mean(-1, keepdim=True)
        return torch.sigmoid(self.out(torch.tanh(self.dec(z)))) + 0.01 * kl


class Recurrent(nn.Module):
    """A recurrent layer over embedded words."""

    def __init__(self, make: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(50, 16), make(16, 24, batch_first=True, **options)
        self.out = nn.Linear(48 if options.get("bidirectional") else 24, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(self.words(x))[0].mean(1))


class Attention(nn.Module):
    """Self-attention as its parts."""

    def __init__(self, c: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Transformer(nn.Module):
    """A block with normalisation first."""

    def __init__(self, c: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(c), nn.LayerNorm(c), Attention(c, heads, causal=causal)
        self.mlp = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(approximate="tanh"), nn.Linear(4 * c, c))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.zeros(1, 1, 32))
        self.places = nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        self.blocks = nn.Sequential(Transformer(32, 4), Transformer(32, 4))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Bert(nn.Module):
    """An encoder of nn.TransformerEncoderLayer, with a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(60, 32), nn.Embedding(16, 32)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=True) for _ in range(2)
        )
        self.pool, self.head = nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.words(x) + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            y = layer(y, src_key_padding_mask=mask)
        return self.head(torch.tanh(self.pool(y[:, 0])))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(60, 32), nn.Parameter(torch.randn(16, 32) * 0.02)
        self.blocks = nn.Sequential(Transformer(32, 4, causal=True), Transformer(32, 4, causal=True))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 60, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.words(x) + self.places)))


class Llama(nn.Module):
    """Root mean square normalisation, rotary places, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.n1, self.n2 = nn.Embedding(60, 32), nn.RMSNorm(32, eps=1e-5), nn.RMSNorm(32, eps=1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(32, 64, bias=False), nn.Linear(32, 64, bias=False)
        self.down, self.head = nn.Linear(64, 32, bias=False), nn.Linear(32, 60, bias=False)
        angles = torch.outer(torch.arange(16.0), 10000.0 ** (-torch.arange(0, 8, 2) / 8.0))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def turned(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        y = self.n1(x)
        q, k, v = (f(y).view(*y.shape[:2], 4, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.n2(x)
        return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))


class Decoder(nn.Module):
    """nn.TransformerDecoderLayer on a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, 10)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        mask = torch.triu(torch.full((x.shape[1], x.shape[1]), -math.inf), 1)
        return self.out(self.layer(x, memory, tgt_mask=mask))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 8, 8)
        self.n1, self.n2, self.n3 = nn.LayerNorm(32), nn.LayerNorm(32), nn.LayerNorm(32)
        self.tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return self.head(self.n3(x + self.channels(self.n2(x))).mean(1))


class TemporalConv(nn.Module):
    """Causal dilated convolutions over time, gated as in WaveNet."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, 16, 1)
        self.layers = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**k) for k in range(3))
        self.out = nn.Conv1d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        for k, layer in enumerate(self.layers):
            a, b = layer(F.pad(x, (2**k, 0))).chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return self.out(x)


class GraphNet(nn.Module):
    """Two graph convolutions by a dense adjacency matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 7)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        adjacency = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1.0)
        return self.b(adjacency @ F.elu(self.a(adjacency @ x)))


class SuperResolution(nn.Module):
    """Sub-pixel convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            nn.Conv2d(1, 16, 5, padding=2),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.Conv2d(16, 4, 3, padding=1),
        )
        self.slope = nn.PReLU(16)

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(self.c(self.slope(self.b(torch.tanh(self.a(x))))), 2)


class Recommender(nn.Module):
    """Embeddings of categories and dense features, as in DLRM."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(40, 8) for _ in range(3))
        self.bottom, self.top = nn.Linear(13, 8), nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        rows = [F.relu(self.bottom(dense)), *(t(ids[:, k]) for k, t in enumerate(self.tables))]
        x = torch.stack(rows, 1)
        products = torch.bmm(x, x.transpose(1, 2))
        upper = torch.stack([products[:, i, j] for i in range(4) for j in range(i)], 1)
        return self.top(torch.cat([rows[0], upper], 1))


@dataclass(frozen=True)
class Case:
    """A model with its inputs."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]


def image(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(*shape),)


def words(*shape: int, count: int = 50) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randint(0, count, shape),)


def _bert() -> tuple[Tensor, ...]:
    return torch.randint(0, 60, (4, 16)), torch.arange(16)[None, :] >= torch.tensor([[16], [12], [9], [16]])


CASES = (
    Case("mlp", Mlp, image(16, 64)),
    Case("lenet", LeNet, image(8, 1, 28, 28)),
    Case("resnet", ResNet, image(4, 3, 32, 32)),
    Case("vgg", Vgg, image(4, 3, 32, 32)),
    Case("mobilenet", MobileNet, image(4, 3, 32, 32)),
    Case("efficientnet", EfficientNet, image(4, 3, 32, 32)),
    Case("densenet", DenseNet, image(2, 3, 16, 16)),
    Case("convnext", ConvNeXt, image(2, 3, 32, 32)),
    Case("unet", UNet, image(1, 1, 32, 32)),
    Case("segmenter", Segmenter, image(2, 3, 32, 32)),
    Case("autoencoder", Autoencoder, image(4, 1, 28, 28)),
    Case("vae", Vae, lambda: (torch.rand(16, 64), torch.randn(16, 8))),
    Case("rnn", lambda: Recurrent(nn.RNN), words(4, 8)),
    Case("lstm", lambda: Recurrent(nn.LSTM, bidirectional=True), words(4, 8)),
    Case("gru", lambda: Recurrent(nn.GRU, num_layers=2), words(4, 8)),
    Case("vit", ViT, image(2, 3, 32, 32)),
    Case("bert", Bert, _bert),
    Case("gpt", Gpt, words(2, 16, count=60)),
    Case("llama", Llama, words(2, 16, count=60)),
    Case("decoder", Decoder, lambda: (torch.randn(2, 8, 32), torch.randn(2, 12, 32))),
    Case("mixer", Mixer, image(2, 3, 32, 32)),
    Case("wavenet", TemporalConv, image(2, 1, 64)),
    Case("gcn", GraphNet, lambda: (torch.randn(24, 16), (torch.rand(24, 24) > 0.7).float())),
    Case("superres", SuperResolution, image(1, 1, 16, 16)),
    Case("dlrm", Recommender, lambda: (torch.randn(16, 13), torch.randint(0, 40, (16, 3)))),
)
