"""Speech and sound: front ends, conformers, networks of transformers, recognisers of text in pictures, time series."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.zoo.entry import Entry, Feeds, export

SPEECH: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "conv_dim": (16, 16, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 3,
}  # fmt: skip
NETWORKS: tuple[tuple[str, dict[str, Any], int, bool], ...] = (
    ("HubertModel", SPEECH, 16, False),
    ("WavLMModel", {**SPEECH, "num_buckets": 16, "max_bucket_distance": 20}, 18, True),
    ("Wav2Vec2ConformerModel", {**SPEECH, "conv_depthwise_kernel_size": 5}, 17, False),
    ("Data2VecAudioModel", {**SPEECH, "num_conv_pos_embeddings": 3, "conv_pos_kernel_size": 5}, 18, True),
)


def from_samples(path: Path, *, name: str, arguments: dict[str, Any], opset: int, new: bool) -> Feeds:
    """States of a network that reads samples, of an open number."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, name.replace("Model", "Config"))(**arguments)
    network = getattr(transformers, name)(config)

    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, samples: Any) -> Any:
            return self.network(samples).last_hidden_state

    open_dims = {"samples": {0: "batch"} if new else {0: "batch", 1: "time"}}
    feeds = (torch.randn(2, 800),)
    return export(Last(), feeds, path, names=("samples",), dynamic=open_dims, opset=opset, new=new)


def spectrogram(path: Path) -> Feeds:
    """The audio spectrogram transformer."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = transformers.ASTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_length=64,
        num_mel_bins=32, num_labels=5,
    )  # fmt: skip
    network = transformers.ASTForAudioClassification(config)

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            return self.network(x).logits

    return export(Logits(), (torch.randn(2, 64, 32),), path, names=("x",), dynamic={"x": {0: "batch"}}, opset=17)


def codec(path: Path) -> Feeds:
    """Encodec's encoder and decoder: convolutions, transposed ones, recurrent layers."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = transformers.EncodecConfig(num_filters=4, hidden_size=16, upsampling_ratios=[4, 2], num_lstm_layers=1)
    network = transformers.EncodecModel(config)

    class Through(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = network.encoder, network.decoder

        def forward(self, x: Any) -> Any:
            return self.decoder(self.encoder(x))

    feeds = (torch.randn(1, 1, 320),)
    return export(Through(), feeds, path, names=("x",), opset=17)


def front(path: Path, *, opset: int, new: bool, center: bool) -> Feeds:
    """Emphasis, STFT with reflected ends, mel energies in decibels, normalised over time, for open batch and time."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Front(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hamming_window(48))
            self.register_buffer("mel", torch.rand(33, 10))
            self.layers = nn.Sequential(nn.Conv1d(10, 12, 3, 1, 1), nn.ReLU(), nn.Conv1d(12, 12, 3, 2, 1, groups=4))

        def forward(self, samples: Any) -> Any:
            x = torch.cat((samples[:, :1], samples[:, 1:] - 0.97 * samples[:, :-1]), 1)
            spectrum = torch.stft(  # the old exporter knows no complex numbers
                x, 64, 16, win_length=48, window=self.window, center=center, normalized=True, return_complex=new
            )
            power = (torch.view_as_real(spectrum) if new else spectrum).pow(2).sum(-1)
            mel = 10 * torch.log10((power.transpose(1, 2) @ self.mel).clamp(min=1e-10))
            mel = (mel - mel.mean(1, keepdim=True)) / (mel.std(1, keepdim=True) + 1e-5)
            return mel, self.layers(mel.transpose(1, 2))

    open_dims = None if new else {"samples": {0: "batch", 1: "time"}}
    feeds = (torch.randn(2, 640),)
    return export(Front(), feeds, path, names=("samples",), dynamic=open_dims, opset=opset, new=new)


def conformer(path: Path, *, opset: int, new: bool) -> Feeds:
    """Subsampling convolutions, then blocks of half-steps, attention with relative places, and gated convolutions;
    lengths of the sequences as an operand."""
    torch: Any = import_module("torch")
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.first, self.last = (
                nn.Sequential(nn.LayerNorm(n), nn.Linear(n, 2 * n), nn.SiLU(), nn.Linear(2 * n, n)) for _ in range(2)
            )
            self.norm, self.qkv, self.out = nn.LayerNorm(n), nn.Linear(n, 3 * n), nn.Linear(n, n)
            self.places = nn.Parameter(torch.randn(63, n // 4) / 4)
            self.inner, self.point = nn.LayerNorm(n), nn.Conv1d(n, 2 * n, 1)
            self.deep, self.batch, self.back = (
                nn.Conv1d(n, n, 7, padding=3, groups=n),
                nn.BatchNorm1d(n),
                nn.Conv1d(n, n, 1),
            )

        def forward(self, x: Any, pad: Any) -> Any:
            x = x + 0.5 * self.first(x)
            b, t, n = x.shape
            q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 4, n // 4).permute(2, 0, 3, 1, 4)
            index = torch.arange(t)
            relative = self.places[(index[None] - index[:, None]).clamp(-31, 31) + 31]
            score = (q @ k.transpose(-1, -2) + torch.einsum("bhtd,tsd->bhts", q, relative)) / (n // 4) ** 0.5
            score = score.masked_fill(pad[:, None, None], float("-inf"))
            x = x + self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, n))
            y = F.glu(self.point(self.inner(x).transpose(1, 2)), 1).masked_fill(pad[:, None], 0.0)
            x = x + self.back(F.silu(self.batch(self.deep(y)))).transpose(1, 2)
            return x + 0.5 * self.last(x)

    class Conformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
            self.lift, self.blocks, self.head = (
                nn.Linear(40, 32),
                nn.ModuleList(Block(32) for _ in range(2)),
                nn.Linear(32, 12),
            )

        def forward(self, x: Any, lengths: Any) -> Any:
            y = self.down(x[:, None])
            y = self.lift(y.transpose(1, 2).flatten(2))
            fewer = (lengths + 3) // 4
            pad = torch.arange(y.shape[1])[None] >= fewer[:, None]
            for block in self.blocks:
                y = block(y, pad)
            return self.head(y).log_softmax(-1), fewer

    feeds = torch.randn(2, 48, 20), torch.tensor([48, 31])
    open_dims = {"x": {0: "batch", 1: "time"}, "lengths": {0: "batch"}}
    if new:
        open_dims = {"x": {0: "batch"}, "lengths": {0: "batch"}}
    return export(Conformer(), feeds, path, names=("x", "lengths"), dynamic=open_dims, opset=opset, new=new)


def crnn(path: Path, *, opset: int) -> Feeds:
    """Convolutions over a line of text, two LSTMs in both directions, labels per column."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Crnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *(nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU()),
                *(nn.MaxPool2d((2, 1)), nn.Conv2d(16, 16, (4, 3), 1, (0, 1)), nn.BatchNorm2d(16), nn.ReLU()),
            )
            self.rnn, self.head = nn.LSTM(16, 12, 2, bidirectional=True), nn.Linear(24, 11)

        def forward(self, x: Any) -> Any:
            y = self.body(x).squeeze(2).permute(2, 0, 1)
            y, _ = self.rnn(y)
            return self.head(y).log_softmax(2)

    open_dims = {"x": {0: "batch", 3: "width"}}
    return export(Crnn(), (torch.randn(2, 1, 16, 40),), path, names=("x",), dynamic=open_dims, opset=opset)


def packed(path: Path, *, kind: str, opset: int) -> Feeds:
    """A recurrent layer over sequences of given lengths: torch packs them, ONNX has the lengths as an operand."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)
    pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(40, 12)
            self.rnn, self.head = getattr(nn, kind)(12, 16, batch_first=True, bidirectional=True), nn.Linear(32, 5)

        def forward(self, ids: Any, lengths: Any) -> Any:
            y, last = self.rnn(pack(self.embed(ids), lengths, batch_first=True))
            y, _ = pad(y, batch_first=True)
            return self.head(y), last[0] if kind == "LSTM" else last

    feeds = torch.randint(0, 40, (3, 9)), torch.tensor([9, 6, 2])
    open_dims = {"ids": {0: "batch", 1: "seq"}, "lengths": {0: "batch"}}
    return export(Packed(), feeds, path, names=("ids", "lengths"), dynamic=open_dims, opset=opset)


def streaming(path: Path, *, opset: int) -> Feeds:
    """A detector of speech with carried states: a frame of samples in, a probability and the new states out."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Streaming(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.basis = nn.Conv1d(1, 34, 32, 16, bias=False)
            self.body = nn.Sequential(nn.Conv1d(17, 16, 3, 1, 1), nn.ReLU(), nn.Conv1d(16, 16, 3, 2, 1), nn.ReLU())
            self.cell, self.head = nn.LSTM(16, 16), nn.Conv1d(16, 1, 1)

        def forward(self, x: Any, state: Any, context: Any) -> Any:
            x = torch.cat((context, x), 1)
            y = self.basis(nn.functional.pad(x, (0, 16), mode="reflect")[:, None])
            y = torch.sqrt(y[:, :17] ** 2 + y[:, 17:] ** 2)
            y, (h, c) = self.cell(self.body(y).permute(2, 0, 1), (state[0], state[1]))
            y = self.head(torch.relu(y.permute(1, 2, 0))).sigmoid().mean(-1)
            return y, torch.stack((h, c)), x[:, -16:]

    feeds = torch.randn(2, 128), torch.randn(2, 1, 2, 16), torch.randn(2, 16)
    open_dims = {"x": {0: "batch"}, "state": {2: "batch"}, "context": {0: "batch"}}
    names = ("x", "state", "context")
    return export(Streaming(), feeds, path, names=names, dynamic=open_dims, opset=opset)


def series(path: Path) -> Feeds:
    """PatchTST: windows of a time series as tokens."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = transformers.PatchTSTConfig(
        num_input_channels=3, context_length=48, patch_length=8, patch_stride=4, d_model=32, num_attention_heads=4,
        num_hidden_layers=2, ffn_dim=64, prediction_length=12,
    )  # fmt: skip
    network = transformers.PatchTSTForPrediction(config)

    class Next(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            return self.network(past_values=x).prediction_outputs

    feeds = (torch.randn(2, 48, 3),)
    return export(Next(), feeds, path, names=("x",), dynamic={"x": {0: "batch"}}, opset=18, new=True)


def entries() -> Iterator[Entry]:
    """All of them."""
    for name, arguments, opset, new in NETWORKS:
        which = f"{name.removesuffix('Model').lower()}-{'new' if new else 'old'}-{opset}"
        yield Entry(which, "speech", partial(from_samples, name=name, arguments=arguments, opset=opset, new=new))
    yield Entry("ast-old-17", "speech", spectrogram)
    yield Entry("encodec-old-17", "speech", codec)  # the new exporter takes no LSTM that flattens its weights
    for opset, new, center in ((17, False, False), (18, True, True), (17, False, True)):
        which = f"mel{'-center' if center else ''}-{'new' if new else 'old'}-{opset}"
        yield Entry(which, "speech", partial(front, opset=opset, new=new, center=center), 1e-3)
    for opset, new in ((16, False), (20, True)):
        which = f"conformer-{'new' if new else 'old'}-{opset}"
        yield Entry(which, "speech", partial(conformer, opset=opset, new=new))
    yield Entry("crnn-old-13", "recurrent", partial(crnn, opset=13))
    yield Entry("packed-lstm-old-14", "recurrent", partial(packed, kind="LSTM", opset=14))
    yield Entry("packed-gru-old-16", "recurrent", partial(packed, kind="GRU", opset=16))
    yield Entry("streaming-old-16", "recurrent", partial(streaming, opset=16))
    yield Entry("patchtst-new-18", "series", series)
