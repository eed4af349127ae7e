"""Recurrent networks, graphs, masks, control flow and front ends of speech, written in torch and in ONNX itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo.entry import Entry, Feeds, export


def seq2seq(path: Path, *, kind: str, opset: int, new: bool) -> Feeds:
    """A recurrent encoder in both directions, a decoder with attention over it."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Seq2Seq(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(50, 16)
            self.encode = getattr(nn, kind)(16, 24, 2, bidirectional=True, batch_first=True)
            self.decode = getattr(nn, kind)(16, 48, batch_first=True)
            self.out = nn.Linear(96, 50)

        def forward(self, ids: Any, target: Any) -> Any:
            memory, _ = self.encode(self.embed(ids))
            states, _ = self.decode(self.embed(target))
            weights = (states @ memory.transpose(1, 2) / 7.0).softmax(-1)
            return self.out(torch.cat([states, weights @ memory], -1)).log_softmax(-1)

    feeds = torch.randint(0, 50, (2, 9)), torch.randint(0, 50, (2, 5))
    open_dims = None if new else {"ids": {0: "batch", 1: "seq"}, "target": {0: "batch", 1: "length"}}
    return export(Seq2Seq(), feeds, path, names=("ids", "target"), dynamic=open_dims, opset=opset, new=new)


def tcn(path: Path, *, opset: int, new: bool) -> Feeds:
    """Dilated causal convolutions with weight norm."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)
    norm = torch.nn.utils.parametrizations.weight_norm

    class Tcn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(norm(nn.Conv1d(8, 8, 3, dilation=2**k, padding=2 ** (k + 1))) for k in range(4))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                y = layer(x)
                x = torch.relu(x + torch.tanh(y[..., : x.shape[-1]]))
            return x.mean(-1), x[..., -1], torch.nn.functional.glu(x, 1)

    open_dims = None if new else {"x": {0: "batch", 2: "time"}}
    return export(Tcn(), (torch.randn(2, 8, 40),), path, names=("x",), dynamic=open_dims, opset=opset, new=new)


def gnn(path: Path, *, opset: int, new: bool) -> Feeds:
    """Graph convolution by sums and maxima over edges, and attention over neighbours."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Gnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.score = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(32, 1)

        def forward(self, x: Any, edges: Any) -> Any:
            source, target = edges[0], edges[1]
            h = torch.relu(self.a(x))
            rows = target[:, None].expand(-1, 16)
            degree = torch.zeros(x.shape[0]).scatter_add(0, target, torch.ones(target.shape[0]))
            summed = torch.zeros_like(h).scatter_add(0, rows, h[source]) / degree.clamp(min=1)[:, None]
            largest = h
            if new:  # what the old exporter writes of it has an If with results of the wrong rank
                largest = torch.zeros_like(h).scatter_reduce(0, rows, h[source], "amax", include_self=True)
            e = torch.nn.functional.leaky_relu(self.score(torch.cat([h[source], h[target]], -1)).squeeze(-1), 0.2).exp()
            total = torch.zeros(x.shape[0]).scatter_add(0, target, e)
            alpha = e / total[target].clamp(min=1e-6)
            mixed = torch.zeros_like(h).scatter_add(0, rows, alpha[:, None] * h[source])
            return self.b(summed + largest + mixed), degree

    feeds = torch.randn(12, 8), torch.randint(0, 12, (2, 30))
    return export(Gnn(), feeds, path, names=("x", "edges"), opset=opset, new=new)


def masks(path: Path, *, opset: int, new: bool) -> Feeds:
    """Truth values everywhere: causal and padding masks, any and all, comparisons, selection, order, counts."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

        def forward(self, x: Any, keep: Any, lengths: Any) -> Any:
            n = x.shape[1]
            causal = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
            within = torch.arange(n)[None] < lengths[:, None]
            y, weights = self.attention(x, x, x, attn_mask=causal, key_padding_mask=~within)
            y = y.masked_fill(~(keep & within)[..., None], -1.0)
            pooled = torch.where(keep[..., None], y, torch.full_like(y, -1e4)).amax(1)
            both = keep.any(1) ^ keep.all(1)
            order = torch.cumsum(keep.long(), 1) * keep
            values, index = torch.sort(y.sum(-1), dim=1, descending=True)
            hot = torch.nn.functional.one_hot(index[:, :3], n).float()
            far = (x[:, :, None] - x[:, None]).abs().sum(-1) > 12
            return y, weights, pooled, both, order, values, hot @ x, far.sum(-1), x.isnan().logical_or(x > 1)

    feeds = torch.randn(3, 7, 16), torch.rand(3, 7) > 0.3, torch.tensor([7, 4, 2])
    open_dims = None if new else {"x": {0: "batch", 1: "seq"}, "keep": {0: "batch", 1: "seq"}, "lengths": {0: "batch"}}
    return export(Masks(), feeds, path, names=("x", "keep", "lengths"), dynamic=open_dims, opset=opset, new=new)


def indexing(path: Path, *, opset: int, new: bool) -> Feeds:
    """Slices with steps, indices by arrays, assignment to parts, rolls, flips, repeats, einsum, norms, tiles."""
    torch: Any = import_module("torch")
    F = torch.nn.functional

    class Indexing(torch.nn.Module):
        def forward(self, x: Any, rows: Any) -> Any:
            y = x.clone()
            y[:, 1:-1:2] = x[:, :-2:2] * 2
            y[:, -1, 0] = 0.5
            picked = x[torch.arange(2)[:, None], rows]
            e = torch.einsum("bij,bkj->bik", x, picked)
            u = x.unfold(1, 4, 2)
            return (
                y,
                picked,
                e,
                torch.roll(x, (1, -2), (1, 2)),
                x.flip(1).repeat(1, 2, 1),
                torch.linalg.norm(x, dim=-1),
                F.normalize(u, dim=-1),
                F.pad(x, (1, 2), mode="circular"),
                F.pad(x, (2, 1), mode="reflect"),
                torch.repeat_interleave(x, 3, dim=1),
                x.var(dim=(1, 2), unbiased=True),
                torch.logsumexp(x, 1),
                x.tril(1).diagonal(0, 1, 2),
                x.floor_divide(0.7),
                torch.remainder(x, 0.3),
                x.cumsum(1).clamp(-1, 2),
                torch.atan2(x, x.abs() + 0.1),
                x.topk(3, 2, largest=False).values,
            )

    feeds = torch.randn(2, 10, 6), torch.randint(0, 10, (2, 4))
    return export(Indexing(), feeds, path, names=("x", "rows"), opset=opset, new=new)


def activations(path: Path, *, opset: int, new: bool) -> Feeds:
    """Every activation and norm that torch has a layer for."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)
    names = (
        *("GELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "ELU", "SELU", "CELU", "Softplus", "Softsign", "PReLU"),
        *("LeakyReLU", "LogSigmoid", "Tanhshrink", "Softshrink", "Hardtanh", "ReLU6", "GELU:tanh"),
    )

    def layer(text: str) -> Any:
        name, _, approximation = text.partition(":")
        return getattr(nn, name)(approximate=approximation) if approximation else getattr(nn, name)()

    class All(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layer(n) for n in names)
            self.norms = nn.ModuleList(
                [nn.InstanceNorm2d(6, affine=True), nn.GroupNorm(3, 6), nn.LayerNorm((4, 5)), nn.LocalResponseNorm(3)]
            )
            self.pools = nn.ModuleList(
                [
                    nn.AdaptiveAvgPool2d((2, 5)),
                    nn.LPPool2d(2, 2),
                    nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
                    nn.MaxPool2d(3, 2, 1, ceil_mode=True),
                ]
            )

        def forward(self, x: Any) -> Any:
            return *(f(x) for f in self.layers), *(f(x) for f in self.norms), *(f(x.abs()) for f in self.pools)

    return export(All(), (torch.randn(2, 6, 4, 5),), path, names=("x",), opset=opset, new=new)


def speech(path: Path, *, opset: int, new: bool) -> Feeds:
    """A log mel spectrogram by torch's STFT, then convolutions and a recurrent layer."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Front(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hann_window(64))
            self.register_buffer("mel", torch.rand(33, 12))
            self.conv, self.gru = nn.Conv1d(12, 16, 3, 2, 1), nn.GRU(16, 8, batch_first=True)

        def forward(self, samples: Any) -> Any:
            spectrum = torch.stft(samples, 64, 32, window=self.window, center=False, return_complex=False)
            power = spectrum.pow(2).sum(-1).transpose(1, 2)
            mel = torch.log10(torch.clamp(power @ self.mel, min=1e-6))
            mel = (torch.maximum(mel, mel.amax((1, 2), keepdim=True) - 8.0) + 4.0) / 4.0
            y, _ = self.gru(torch.relu(self.conv(mel.transpose(1, 2))).transpose(1, 2))
            return mel, y

    return export(Front(), (torch.randn(2, 640),), path, names=("samples",), opset=opset, new=new)


def onnx_speech(path: Path) -> Feeds:
    """STFT, MelWeightMatrix, HannWindow of ONNX itself, with constant parameters."""
    nodes = [
        helper.make_node("HannWindow", ["size"], ["window"]),
        helper.make_node("STFT", ["x", "step", "window", "length"], ["spectrum"], onesided=1),
        helper.make_node("ReduceSumSquare", ["spectrum", "last"], ["power"], keepdims=0),
        helper.make_node("MelWeightMatrix", ["bins", "length", "rate", "low", "high"], ["mel"]),
        helper.make_node("MatMul", ["power", "mel"], ["m"]),
        helper.make_node("Add", ["m", "small"], ["n"]),
        helper.make_node("Log", ["n"], ["y"]),
    ]
    stored: dict[str, Any] = {
        "size": np.int64(64),
        "step": np.int64(16),
        "length": np.int64(64),
        "last": np.array([-1]),
        "bins": np.int64(10),
        "rate": np.int64(8000),
        "low": np.float32(20),
        "high": np.float32(4000),
        "small": np.float32(1e-5),
    }
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "samples", 1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()]
    graph = helper.make_graph(nodes, "speech", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return {"x": np.random.default_rng(0).standard_normal((2, 400, 1), np.float32)}


def scripted(path: Path, *, opset: int) -> Feeds:
    """A script: a loop of known length and a branch on a number that is known."""
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    inner = torch.jit.trace(torch.nn.Linear(6, 6), (torch.randn(3, 6),))
    module = torch.jit.script(import_module("benchmarks.zoo.script").Steps(inner))
    return export(module, (torch.randn(3, 6),), path, names=("x",), opset=opset)


def branch(path: Path) -> Feeds:
    """`torch.cond` on a value that is computed."""
    torch: Any = import_module("torch")
    torch.manual_seed(0)

    class Branch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)

        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda t: self.a(t).relu(), lambda t: self.b(t).tanh(), (x,))

    return export(Branch(), (torch.randn(3, 6),), path, names=("x",), opset=18, new=True)


def entries() -> Iterator[Entry]:
    """All of them."""
    pairs = ((14, False), (18, True))
    for opset, new in pairs:
        which = f"{'new' if new else 'old'}-{opset}"
        yield Entry(f"lstm-{which}", "recurrent", partial(seq2seq, kind="LSTM", opset=opset, new=new))
        yield Entry(f"gru-{which}", "recurrent", partial(seq2seq, kind="GRU", opset=opset, new=new))
        yield Entry(f"tcn-{which}", "recurrent", partial(tcn, opset=opset, new=new))
        yield Entry(f"masks-{which}", "masks", partial(masks, opset=opset, new=new))
        yield Entry(f"indexing-{which}", "masks", partial(indexing, opset=opset, new=new))
    for opset, new in ((16, False), (18, True)):
        yield Entry(f"gnn-{'new' if new else 'old'}-{opset}", "graphs", partial(gnn, opset=opset, new=new))
    for opset, new in ((13, False), (17, False), (18, True), (22, True)):
        which = f"{'new' if new else 'old'}-{opset}"
        yield Entry(f"activations-{which}", "layers", partial(activations, opset=opset, new=new))
    for opset, new in ((17, False), (18, True)):
        yield Entry(f"speech-{'new' if new else 'old'}-{opset}", "speech", partial(speech, opset=opset, new=new), 1e-3)
    yield Entry("speech-onnx-18", "speech", onnx_speech, 1e-3)
    yield Entry("script-loop-old-16", "control flow", partial(scripted, opset=16))
    yield Entry("cond-new-18", "control flow", branch)
