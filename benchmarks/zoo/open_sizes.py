"""Networks of one's own with open dimensions, as users of torch write them: batch, length, height and width."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.zoo.entry import Entry, Feeds, export

Made = tuple[Any, Sequence[Any], Sequence[str], Mapping[str, Mapping[int, str]]]
"""A module, its arguments, their names, and the dimensions that are open."""


def padded_encoder(torch: Any) -> Made:
    """Layers of torch with a mask of padding, and a mean over what is not padding."""
    nn = torch.nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(60, 24)
            layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, norm_first=True, activation="gelu")
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(24, 3)

        def forward(self, ids: Any) -> Any:
            padding = ids == 0
            x = self.layers(self.embed(ids), src_key_padding_mask=padding)
            kept = (~padding).unsqueeze(-1).float()
            return self.head((x * kept).sum(1) / kept.sum(1).clamp(min=1))

    ids = torch.randint(1, 60, (2, 9))
    ids[1, 6:] = 0
    return Encoder(), (ids,), ("ids",), {"ids": {0: "batch", 1: "seq"}}


def translator(torch: Any) -> Made:
    """torch's encoder and decoder with a causal mask."""
    nn = torch.nn

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target = nn.Embedding(50, 24), nn.Embedding(50, 24)
            self.body = nn.Transformer(24, 4, 1, 1, 48, batch_first=True)
            self.head = nn.Linear(24, 50)

        def forward(self, source: Any, target: Any) -> Any:
            length = target.shape[1]
            mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
            return self.head(self.body(self.source(source), self.target(target), tgt_mask=mask))

    arguments = torch.randint(0, 50, (2, 8)), torch.randint(0, 50, (2, 5))
    open_dims = {"source": {0: "batch"}, "target": {0: "batch"}}  # the exporter takes the lengths for numbers
    return Translator(), arguments, ("source", "target"), open_dims


def attentive(torch: Any) -> Made:
    """A recurrent encoder in both directions and attention over its states."""
    nn = torch.nn

    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.encoder = nn.Embedding(40, 12), nn.GRU(12, 16, batch_first=True, bidirectional=True)
            self.score, self.head = nn.Linear(32, 1), nn.Linear(32, 4)

        def forward(self, ids: Any) -> Any:
            states, last = self.encoder(self.embed(ids))
            weights = self.score(torch.tanh(states)).softmax(1)
            return self.head((weights * states).sum(1)), last

    return Attentive(), (torch.randint(0, 40, (2, 7)),), ("ids",), {"ids": {0: "batch", 1: "seq"}}


def ctc(torch: Any) -> Made:
    """Convolutions over frames, a deep LSTM in both directions, and the best labels."""
    nn = torch.nn

    class Ctc(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.front = nn.Sequential(nn.Conv1d(20, 16, 5, 2, 2), nn.BatchNorm1d(16), nn.Hardtanh(0, 20))
            self.rnn, self.head = nn.LSTM(16, 12, 2, bidirectional=True, batch_first=True), nn.Linear(24, 9)

        def forward(self, x: Any) -> Any:
            y, _ = self.rnn(self.front(x).transpose(1, 2))
            scores = self.head(y).log_softmax(-1)
            return scores, scores.argmax(-1)

    return Ctc(), (torch.randn(2, 20, 30),), ("x",), {"x": {0: "batch", 2: "time"}}


def skips(torch: Any) -> Made:
    """A UNet that resizes to the size of what it skips to: any height and width."""
    nn, F = torch.nn, torch.nn.functional

    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, 2, 1)
            self.third, self.last = nn.Conv2d(12, 12, 3, 2, 1), nn.Conv2d(32, 2, 3, padding=1)
            self.norm = nn.GroupNorm(4, 12)

        def forward(self, x: Any) -> Any:
            a = F.silu(self.first(x))
            b = F.silu(self.norm(self.second(a)))
            c = F.silu(self.third(b))
            up = F.interpolate(c, size=b.shape[2:], mode="bilinear", align_corners=False)
            up = F.interpolate(torch.cat((up, b), 1), size=a.shape[2:], mode="nearest")
            return self.last(torch.cat((up, a), 1)).sigmoid()

    return Skips(), (torch.randn(1, 3, 22, 30),), ("x",), {"x": {0: "batch", 2: "h", 3: "w"}}


def pyramid(torch: Any) -> Made:
    """A feature pyramid, spatial pooling of several sizes, and context of the whole image."""
    nn, F = torch.nn, torch.nn.functional

    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c3, self.c4, self.c5 = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)
            self.shrink, self.out = nn.Conv2d(32, 8, 1), nn.Conv2d(8, 5, 1)

        def forward(self, x: Any) -> Any:
            c3 = F.relu(self.c3(x))
            c4 = F.relu(self.c4(c3))
            c5 = F.relu(self.c5(c4))
            pools = [F.max_pool2d(c5, k, 1, k // 2) for k in (3, 5)]
            whole = F.adaptive_avg_pool2d(c5, 1).expand_as(c5)
            p5 = self.shrink(torch.cat((c5, *pools, whole), 1))
            p4 = c4 + F.interpolate(p5, scale_factor=2, mode="nearest")[..., : c4.shape[2], : c4.shape[3]]
            p3 = c3 + F.interpolate(p4, size=c3.shape[2:], mode="bilinear", align_corners=False)
            return [self.out(p).flatten(2).transpose(1, 2) for p in (p3, p4, p5)]

    return Pyramid(), (torch.randn(2, 3, 32, 48),), ("x",), {"x": {0: "batch", 2: "h", 3: "w"}}


def points(torch: Any) -> Made:
    """A network of points, of an open number, with nearest neighbours by distance."""
    nn = torch.nn

    class Points(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edge, self.lift = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 24)
            self.head = nn.Linear(24, 4)

        def forward(self, x: Any) -> Any:
            near = torch.cdist(x, x).topk(3, dim=-1, largest=False).indices
            b, n, k = near.shape
            others = x.gather(1, near.reshape(b, n * k, 1).expand(-1, -1, 3)).reshape(b, n, k, 3)
            own = x.unsqueeze(2).expand(-1, -1, k, -1)
            y = self.edge(torch.cat((own, others - own), -1)).amax(2)
            return self.head(self.lift(y).amax(1))

    return Points(), (torch.randn(2, 12, 3),), ("x",), {"x": {0: "batch", 1: "points"}}


def masks(torch: Any) -> Made:
    """What a boolean mask selects, where it is, and how many there are."""
    nn = torch.nn

    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            y = self.body(x)
            mask = y > 0.2
            rows = mask[..., 0]
            return y[mask], y[rows], mask.nonzero(), rows.sum() / rows.numel(), torch.where(rows)[0]

    return Masks(), (torch.randn(3, 5, 6),), ("x",), {"x": {0: "batch", 1: "seq"}}


def beams(torch: Any) -> Made:
    """One step of a beam search: the best continuations, whose they are, and the rows that go on."""
    nn = torch.nn

    class Beams(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.embed, self.head = nn.GRUCell(8, 12), nn.Embedding(30, 8), nn.Linear(12, 30)

        def forward(self, ids: Any, state: Any, score: Any) -> Any:
            b, k = ids.shape
            new = self.cell(self.embed(ids).reshape(b * k, 8), state.reshape(b * k, 12))
            total = (self.head(new).log_softmax(-1).reshape(b, k, 30) + score.unsqueeze(-1)).reshape(b, k * 30)
            best, place = total.topk(3, dim=-1)
            parent, token = place // 30, place % 30
            kept = new.reshape(b, k, 12).gather(1, parent.unsqueeze(-1).expand(-1, -1, 12))
            return token, best, kept

    arguments = torch.randint(0, 30, (2, 3)), torch.randn(2, 3, 12), torch.randn(2, 3)
    names = ("ids", "state", "score")
    return Beams(), arguments, names, {n: {0: "batch"} for n in names}


def series(torch: Any) -> Made:
    """Differences, running means, windows, reversed and rolled values of a time series."""
    nn, F = torch.nn, torch.nn.functional

    class Series(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Conv1d(5, 4, 3, padding=1, padding_mode="circular")

        def forward(self, x: Any) -> Any:
            change = F.pad(x[:, 1:] - x[:, :-1], (1, 0))
            mean = F.avg_pool1d(F.pad(x.unsqueeze(1), (2, 2), mode="replicate"), 5, 1).squeeze(1)
            total = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)
            y = torch.stack((x, change, mean, total, x.flip(1)), 1)
            return self.mix(y), x.unfold(1, 4, 2).mean(-1), x.roll(1, 1)

    return Series(), (torch.randn(2, 16),), ("x",), {"x": {0: "batch", 1: "time"}}


def decoder(torch: Any) -> Made:
    """Attention in a sliding window with rotary positions, written by hand, and gated layers."""
    nn, F = torch.nn, torch.nn.functional

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm = nn.Embedding(50, 32), nn.RMSNorm(32)
            self.qkv, self.out = nn.Linear(32, 96, bias=False), nn.Linear(32, 32, bias=False)
            self.up, self.down = nn.Linear(32, 96), nn.Linear(48, 32)
            self.register_buffer("rates", 1.0 / 100 ** (torch.arange(4) / 4))

        def turned(self, x: Any, angle: Any) -> Any:
            a, b = x.chunk(2, -1)
            return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)

        def forward(self, ids: Any) -> Any:
            x = self.embed(ids)
            b, t, _ = x.shape
            at = torch.arange(t)
            q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 4, 8).permute(2, 0, 3, 1, 4)
            angle = at[:, None] * self.rates
            far = at[:, None] - at[None]
            mask = (far >= 0) & (far < 6)
            y = F.scaled_dot_product_attention(self.turned(q, angle), self.turned(k, angle), v, attn_mask=mask)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, 32))
            gate, value = self.up(x).chunk(2, -1)
            return (x + self.down(F.silu(gate) * value)) @ self.embed.weight.T

    return Decoder(), (torch.randint(0, 50, (2, 10)),), ("ids",), {"ids": {0: "batch", 1: "seq"}}


def patches(torch: Any) -> Made:
    """Patches of an image of any size with positions that are resized to it."""
    nn, F = torch.nn, torch.nn.functional

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.places = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(1, 16, 6, 6))
            self.attend, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 5)

        def forward(self, x: Any) -> Any:
            y = self.embed(x)
            y = y + F.interpolate(self.places, size=y.shape[2:], mode="bicubic", align_corners=False)
            y = y.flatten(2).transpose(1, 2)
            y = y + self.attend(y, y, y, need_weights=False)[0]
            return self.head(y.mean(1))

    return Patches(), (torch.randn(2, 3, 24, 32),), ("x",), {"x": {0: "batch", 2: "h", 3: "w"}}


def sharper(torch: Any) -> Made:
    """Super-resolution: reflected borders, residual layers, shuffled pixels, a bicubic base."""
    nn, F = torch.nn, torch.nn.functional

    class Sharper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(1, 8, 3, padding=1, padding_mode="reflect"), nn.Conv2d(8, 4, 3, padding=1)
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())

        def forward(self, x: Any) -> Any:
            y = F.leaky_relu(self.first(x), 0.1)
            y = F.instance_norm(y * self.gate(y))
            return F.pixel_shuffle(self.last(y), 2) + F.interpolate(x, scale_factor=2, mode="bicubic")

    return Sharper(), (torch.rand(1, 1, 14, 18),), ("x",), {"x": {0: "batch", 2: "h", 3: "w"}}


MODELS: Sequence[tuple[Callable[[Any], Made], Sequence[tuple[int, bool]]]] = (
    # the network, (operator set, new exporter): what torch exports with open dimensions
    (padded_encoder, ((18, True), (21, True))),
    (translator, ((17, False),)),
    (attentive, ((14, False), (18, True))),
    (ctc, ((13, False),)),
    (skips, ((16, False), (18, True))),
    (pyramid, ((13, False), (20, True))),
    (points, ((17, False),)),
    (masks, ((15, False), (18, True))),
    (beams, ((17, False), (21, True))),
    (series, ((18, True),)),
    (decoder, ((23, True),)),
    (patches, ((18, True),)),
    (sharper, ((18, False), (19, True))),
)


def exported(path: Path, *, make: Callable[[Any], Made], opset: int, new: bool) -> Feeds:
    """Write one of them."""
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    module, arguments, names, dynamic = make(torch)
    return export(module, arguments, path, names=names, dynamic=dynamic, opset=opset, new=new)


def entries() -> Iterator[Entry]:
    """All of them."""
    for make, variants in MODELS:
        for opset, new in variants:
            name = f"own-{make.__name__.replace('_', '-')}-{'new' if new else 'old'}-{opset}"
            yield Entry(name, "open sizes", partial(exported, make=make, opset=opset, new=new))
