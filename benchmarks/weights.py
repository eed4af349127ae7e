"""What weights cost: a GPT with random weights, built cold, a second time, and once more with other weights.

    python benchmarks/scale.py --parameters 1.2e9 [--json]

Each build is `dlc build` with default flags in a process of its own. Its memory is the largest sum of anonymous memory
(RssAnon) of the process and those that it starts, sampled 100 times a second; its processor time counts these as well.
Before each figure the machine rests: on virtual machines a page that was used lately costs a fraction of one that was
given back meanwhile, so a copy right behind a build would be compared with a build that found no such pages.
The program is run on a few tokens, and its result is compared with that of a few lines of numpy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY: Final = 50257
TOKENS: Final = 16
HEAD: Final = 64
"""Width of an attention head."""
LAYERS_PER_WIDTH: Final = 0.0107
"""As in models of this kind, whose width grows with their depth."""
SAMPLES_PER_SECOND: Final = 100
REST: Final = 15.0
"""Seconds before a figure is taken."""

MEMORY: Final = 1.5e9
"""Bytes that a build may take, apart from mapped files."""
SECOND_BUILD: Final = 1.0
"""Seconds."""
OTHER_WEIGHTS: Final = 0.10
"""Part of the processor time of the cold build, beside the time to write the weights."""
STORED: Final = 1.1
"""Bytes of result and cache, as a multiple of the weights."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Gpt:
    """A decoder with a tied embedding: the nodes as an exporter writes them, the weights in one file beside."""

    width: int
    layers: int
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])

    @classmethod
    def of(cls, parameters: float) -> Gpt:
        """About so many parameters."""
        width = HEAD * max(1, round((parameters / (12 * LAYERS_PER_WIDTH)) ** (1 / 3) / HEAD))
        return cls(width, max(1, round((parameters - VOCABULARY * width) / (12 * width**2))))

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        return sum(int(np.prod(shape)) for shape in self.weights.values())

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The result of a new node."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], f"n{len(self.nodes)}", **attributes))
        return name

    def weight(self, name: str, *shape: int) -> str:
        """A weight."""
        self.weights[name] = shape
        return name

    def constant(self, value: Any) -> str:
        """A small constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def linear(self, x: str, name: str, n: int, m: int) -> str:
        """x·W + b."""
        product = self.add("MatMul", x, self.weight(f"{name}.weight", n, m))
        return self.add("Add", product, self.weight(f"{name}.bias", m))

    def norm(self, x: str, name: str) -> str:
        """Layer normalization."""
        parts = (self.weight(f"{name}.{part}", self.width) for part in ("weight", "bias"))
        return self.add("LayerNormalization", x, *parts, axis=-1, epsilon=1e-5)

    def block(self, x: str, name: str, future: str) -> str:
        """Attention and two linear layers, each added to what it reads."""
        d, heads = self.width, self.width // HEAD
        split = self.constant(np.asarray([TOKENS, 3, heads, HEAD], np.int64))
        parts = self.add("Reshape", self.linear(self.norm(x, f"{name}.ln_1"), f"{name}.attn", d, 3 * d), split)
        q, k, v = (
            self.add("Transpose", self.add("Gather", parts, self.constant(np.int64(i)), axis=1), perm=perm)
            for i, perm in enumerate(((1, 0, 2), (1, 2, 0), (1, 0, 2)))
        )
        scores = self.add("Mul", self.add("MatMul", q, k), self.constant(np.float32(HEAD**-0.5)))
        weights = self.add("Softmax", self.add("Add", scores, future), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", weights, v), perm=(1, 0, 2))
        joined = self.add("Reshape", mixed, self.constant(np.asarray([TOKENS, d], np.int64)))
        x = self.add("Add", x, self.linear(joined, f"{name}.proj", d, d))
        h = self.linear(self.norm(x, f"{name}.ln_2"), f"{name}.fc", d, 4 * d)
        gate = self.add("Sigmoid", self.add("Mul", h, self.constant(np.float32(1.702))))
        return self.add("Add", x, self.linear(self.add("Mul", h, gate), f"{name}.out", 4 * d, d))

    def save(self, path: Path, seed: int) -> None:
        """Write the model and its weights, the latter into `path`.data."""
        self.nodes, self.weights, self.constants = [], {}, []
        table = self.weight("wte", VOCABULARY, self.width)
        x = self.add("Add", self.add("Gather", table, "tokens"), self.weight("wpe", TOKENS, self.width))
        future = self.constant(_future())
        for k in range(self.layers):
            x = self.block(x, f"h{k}", future)
        self.add("MatMul", self.norm(x, "ln_f"), self.add("Transpose", table, perm=(1, 0)))
        self.nodes[-1].output[0] = "logits"
        tensors: list[onnx.TensorProto] = []
        with path.with_name(f"{path.name}.data").open("wb") as file:
            for number, (name, shape) in enumerate(self.weights.items()):
                file.write(bytes(-file.tell() % 64))
                tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
                tensor.data_location = TensorProto.EXTERNAL
                values = (
                    ("location", f"{path.name}.data"),
                    ("offset", file.tell()),
                    ("length", 4 * int(np.prod(shape))),
                )
                for key, value in values:
                    tensor.external_data.add(key=key, value=str(value))
                tensors.append(tensor)
                for part in _values(name, shape, (seed, number)):
                    file.write(part.data)
        graph = helper.make_graph(
            self.nodes,
            "gpt",
            [helper.make_tensor_value_info("tokens", TensorProto.INT64, [TOKENS])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [TOKENS, VOCABULARY])],
            [*self.constants, *tensors],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())

    def expected(self, path: Path, tokens: Array) -> Array:
        """The logits, by numpy."""
        data, offset = path.with_name(f"{path.name}.data"), 0
        w: dict[str, Array] = {}
        for name, shape in self.weights.items():
            offset += -offset % 64
            w[name] = np.memmap(data, np.float32, "r", offset, shape)
            offset += 4 * int(np.prod(shape))

        def linear(x: Array, name: str) -> Array:
            return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

        def norm(x: Array, name: str) -> Array:
            centred = x - x.mean(-1, keepdims=True)
            scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
            return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

        x = w["wte"][tokens] + w["wpe"]
        for k in range(self.layers):
            parts = linear(norm(x, f"h{k}.ln_1"), f"h{k}.attn").reshape(TOKENS, 3, -1, HEAD)
            q, key, v = (parts[:, i].transpose(1, 0, 2) for i in range(3))
            scores = np.exp(q @ key.transpose(0, 2, 1) * HEAD**-0.5 + _future())
            mixed = (scores / scores.sum(-1, keepdims=True)) @ v
            x = x + linear(mixed.transpose(1, 0, 2).reshape(TOKENS, -1), f"h{k}.proj")
            h = linear(norm(x, f"h{k}.ln_2"), f"h{k}.fc")
            x = x + linear(h / (1 + np.exp(-1.702 * h)), f"h{k}.out")
        return norm(x, "ln_f") @ w["wte"].T


def _future() -> Array:
    """What is added to scores, so that no token sees those behind it."""
    return np.triu(np.full((TOKENS, TOKENS), -1e9, np.float32), 1)


def _values(name: str, shape: tuple[int, ...], seed: tuple[int, int]) -> Iterator[Array]:
    """Random values in pieces, near 1 for the scales of normalizations."""
    random = np.random.default_rng(seed)
    size, scale = int(np.prod(shape)), np.float32(0.02 if len(shape) > 1 else 0.1)
    shift = np.float32(name.rpartition(".")[0].rpartition(".")[2].startswith("ln_") and name.endswith("weight"))
    for start in range(0, size, 1 << 20):
        yield random.standard_normal(min(1 << 20, size - start), np.float32) * scale + shift


@dataclass(frozen=True)
class Cost:
    """What a process took, with those that it started."""

    seconds: float
    processor_seconds: float
    memory: int
    """Bytes, the largest sum of anonymous memory."""


def run(command: list[str], folder: Path) -> Cost:
    """Run a command to its end."""
    time.sleep(REST)
    before, start = os.times(), time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        most = 0
        while process.poll() is None:
            most = max(most, sum(map(_anonymous, _family(process.pid))))
            time.sleep(1 / SAMPLES_PER_SECOND)
        seconds = time.perf_counter() - start
        output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{output}")
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return Cost(seconds, spent, most)


def _family(process: int) -> Iterator[int]:
    """A process and all below it."""
    yield process
    try:
        threads = os.listdir(f"/proc/{process}/task")
        children = " ".join(Path(f"/proc/{process}/task/{t}/children").read_text() for t in threads)
    except OSError:  # it has ended
        return
    for child in children.split():
        yield from _family(int(child))


def _anonymous(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def stored(*folders: Path) -> int:
    """Bytes that files in folders take on the medium; one with several names counts once."""
    found = {(s.st_dev, s.st_ino): s.st_blocks * 512 for f in folders for p in f.rglob("*") if (s := p.lstat())}
    return sum(found.values())


RUN: Final = """
import sys, numpy as np, dlc
tokens = np.load("tokens.npy")
np.save("logits.npy", dlc.load("out")(tokens=tokens)["logits"])
"""


def measure(parameters: float, folder: Path) -> dict[str, Any]:
    """All figures of a GPT of so many parameters."""
    gpt, path = Gpt.of(parameters), folder / "model.onnx"
    build = [sys.executable, "-m", "dlc", "build", path.name, "-o", "out", "--cache-dir", str(folder / "cache")]
    gpt.save(path, 0)
    cold = run(build, folder)
    weights = 4 * gpt.parameters
    taken = stored(folder / "out", folder / "cache") / weights
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, TOKENS)
    np.save(folder / "tokens.npy", tokens)
    called = run([sys.executable, "-c", RUN], folder)
    second = run(build, folder)
    error = [_error(gpt, folder, path, tokens)]
    gpt.save(path, 1)
    other = run(build, folder)
    writing = _writing(path.with_name(f"{path.name}.data"))
    run([sys.executable, "-c", RUN], folder)
    error.append(_error(gpt, folder, path, tokens))
    costs = {"cold": cold, "second": second, "other weights": other, "call": called}
    return {
        "parameters": gpt.parameters,
        "width": gpt.width,
        "layers": gpt.layers,
        "costs": {name: vars(cost) for name, cost in costs.items()},
        "writing": writing,
        "stored": taken,
        "error": max(error),
        "missed": [
            *(["memory"] if max(cold.memory, other.memory) > MEMORY else []),
            *(["second build"] if second.seconds >= SECOND_BUILD else []),
            *(["other weights"] if other.processor_seconds > OTHER_WEIGHTS * cold.processor_seconds + writing else []),
            *(["stored"] if taken > STORED else []),
            *(["result"] if max(error) > 1e-4 else []),
        ],
    }


def _error(gpt: Gpt, folder: Path, path: Path, tokens: Array) -> float:
    """The largest difference to numpy, relative to the largest logit."""
    expected = gpt.expected(path, tokens)
    return float(np.abs(np.load(folder / "logits.npy") - expected).max() / np.abs(expected).max())


def _writing(data: Path) -> float:
    """Processor seconds that a copy of the weights takes."""
    time.sleep(REST)
    copy, start = data.with_suffix(".copy"), time.process_time()
    with data.open("rb") as source, copy.open("wb") as target:
        while piece := source.read(1 << 22):
            target.write(piece)
    spent = time.process_time() - start
    copy.unlink()
    return spent


def table(found: dict[str, Any]) -> str:
    """The figures in lines."""
    lines = [f"{found['parameters']:,} parameters: {found['layers']} layers of width {found['width']}"]
    lines.append(f"{'':16}{'seconds':>10}{'processor':>12}{'memory':>12}")
    for name, cost in found["costs"].items():
        lines.append(
            f"{name:16}{cost['seconds']:9.2f}s{cost['processor_seconds']:11.2f}s{cost['memory'] / 1e6:9,.0f} MB"
        )
    lines.append(f"result and cache: {found['stored']:.3f} of the weights; a copy of them: {found['writing']:.2f}s")
    lines.append(f"largest error: {found['error']:.1e}; missed: {', '.join(found['missed']) or 'nothing'}")
    return "\n".join(lines)


def report(parameters: float, *, as_json: bool) -> int:
    """Print the figures of a GPT of about so many parameters; 1 if a limit is missed."""
    with tempfile.TemporaryDirectory(prefix="dlc-weights-") as folder:
        found = measure(parameters, Path(folder))
    print(json.dumps(found) if as_json else table(found))
    return 1 if found["missed"] else 0
