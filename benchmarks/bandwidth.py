"""Rows, chains, pools and copies in percent of the measured bandwidth, and square products in percent of peak.

    python benchmarks/bandwidth.py [WORD…] [--rounds 15] [--cpu native] [--json]

Bytes are those that must move: every input is read once, every output written once. The bandwidth is the best of copies
and sums of two arrays, with stores through the caches and past them, measured in turn with the models in one run: of
arrays of 64 MiB for what lies beyond the caches, and of half of a second-level cache for what lies there. WORD selects
models by name. Results are compared with onnxruntime's, gradients with torch's (forward and backward there); the time
that these take on one thread is told, too.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from dlc_backend_c.library import aligned
from dlc_backend_c.options import Options
from dlc_backend_c.profiler import CProfiler
from dlc_backend_c.runtime import Model
from dlc_backend_c.target import CTarget, target_for
from onnx import TensorProto, helper

from benchmarks.kernels import peak, timed
from benchmarks.peers import build, peer

# It has no types.
torch: Any = import_module("torch")
Array = np.ndarray[Any, np.dtype[Any]]

BEYOND = 64 << 20
"""Bytes of the largest tensor of a model beyond the caches."""
OWN, OTHER = "dlc", "onnxruntime or torch"

PROBES = """
#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define STREAM(p, v) do { v4 *q = (v4 *)(p); v4 w[@B / 16]; __builtin_memcpy(w, &(v), @B); \\
    for (int i = 0; i < @B / 16; ++i) _mm_stream_ps((float *)(q + i), w[i]); } while (0)
#define END _mm_sfence()
#else
#define STREAM(p, v) (*(p) = (v))
#define END ((void)0)
#endif
typedef float v4 __attribute__((vector_size(16)));
typedef float v __attribute__((vector_size(@B)));
#define EACH(S) for (; rounds > 0; --rounds) { for (size_t k = 0; k < n; k += 4) { S(k) S(k + 1) S(k + 2) S(k + 3) } \\
    __asm__ volatile("" ::: "memory"); }
#define COPY(k) r[k] = a[k];
#define COPY_STREAM(k) { v x = a[k]; STREAM(r + (k), x); }
#define TRIAD(k) r[k] = a[k] + b[k] * 3.0f;
#define TRIAD_STREAM(k) { v x = a[k] + b[k] * 3.0f; STREAM(r + (k), x); }
void copy(const v *restrict a, const v *restrict b, v *restrict r, size_t n, long rounds) { (void)b; EACH(COPY) }
void copy_stream(const v *restrict a, const v *restrict b, v *restrict r, size_t n, long rounds)
{ (void)b; EACH(COPY_STREAM) END; }
void triad(const v *restrict a, const v *restrict b, v *restrict r, size_t n, long rounds) { EACH(TRIAD) }
void triad_stream(const v *restrict a, const v *restrict b, v *restrict r, size_t n, long rounds)
{ EACH(TRIAD_STREAM) END; }
"""
STREAMS: Mapping[str, int] = {"copy": 2, "copy_stream": 2, "triad": 3, "triad_stream": 3}
"""Arrays that a probe reads and writes."""


@dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
        operations: Of a product; 0: what counts is bytes.
        function: Of torch, where the model is the gradient of this function of its inputs.
    """

    name: str
    model: onnx.ModelProto
    operations: int = 0
    function: Callable[..., Any] | None = None


def model(nodes: Sequence[Any], inputs: Mapping[str, Sequence[int]], output: Sequence[int], opset: int = 20) -> Any:
    """A model of f32 tensors whose output is y."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    graph = helper.make_graph(list(nodes), "g", ports, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> Any:
    """An operator on tensors by name."""
    return helper.make_node(op, inputs.split(), [output], **attributes)


def rows(op: str, count: int, size: int, given: str = "x", opset: int = 20) -> Case:
    """An operator along the rows of a matrix; others than x are vectors of a row."""
    shapes = {n: [count, size] if n == "x" else [size] for n in given.split()}
    return Case(f"{op} {count}x{size}", model([node(op, given, axis=-1)], shapes, [count, size], opset))


def softmax(x: Any) -> Any:
    """As torch has it."""
    return torch.softmax(x, -1)


def log_softmax(x: Any) -> Any:
    """The same of the logarithm."""
    return torch.log_softmax(x, -1)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    """With its scale and bias."""
    return torch.nn.functional.layer_norm(x, w.shape, w, b)


def rms_norm(x: Any, w: Any) -> Any:
    """With its scale."""
    return torch.nn.functional.rms_norm(x, w.shape, w, 1e-5)


GRADIENTS: Sequence[tuple[str, int, str, Callable[..., Any]]] = (
    ("Softmax", 20, "x", softmax),
    ("LogSoftmax", 20, "x", log_softmax),
    ("LayerNormalization", 20, "x w b", layer_norm),
    ("RMSNormalization", 23, "x w", rms_norm),
)
"""Operator, opset, inputs, and the function of torch."""


def gradient(op: str, count: int, size: int, opset: int, given: str, function: Callable[..., Any]) -> Case:
    """The gradients of an operator along rows, from its inputs and the gradient of its output."""
    case = rows(op, count, size, given, opset)
    return replace(case, name=f"{case.name} gradient", function=function)


def chain(count: int, size: int) -> Case:
    """gelu(x + bias) + residual."""
    nodes = (node("Add", "x b", "a"), node("Gelu", "a", "g"), node("Add", "g r"))
    shapes = {"x": [count, size], "b": [size], "r": [count, size]}
    return Case(f"chain {count}x{size}", model(nodes, shapes, [count, size]))


def pool(op: str, channels: int, size: int, window: int, last: bool) -> Case:
    """Windows of stride 2; channels first, or last between transpositions, as layouts leave it."""
    figures: dict[str, Any] = {
        "kernel_shape": [window] * 2,
        "strides": [2, 2],
        "pads": [window // 2 if window % 2 else 0] * 4,
    }
    name = f"{op} {window}x{window}/2 {size}x{size} {channels}{' last' if last else ''}"
    if not last:
        return Case(
            name, model([node(op, "x", **figures)], {"x": [1, channels, size, size]}, [1, channels, *[size // 2] * 2])
        )
    nodes = (
        node("Transpose", "x", "a", perm=[0, 3, 1, 2]),
        node(op, "a", "b", **figures),
        node("Transpose", "b", perm=[0, 2, 3, 1]),
    )
    return Case(name, model(nodes, {"x": [1, size, size, channels]}, [1, *[size // 2] * 2, channels]))


def transpose(count: int, size: int) -> Case:
    """A matrix."""
    return Case(
        f"Transpose {count}x{size}", model([node("Transpose", "x", perm=[1, 0])], {"x": [count, size]}, [size, count])
    )


def concat(count: int, size: int) -> Case:
    """Two matrices, row by row."""
    shapes = {"x": [count, size], "z": [count, size]}
    return Case(f"Concat {count}x{size}", model([node("Concat", "x z", axis=1)], shapes, [count, 2 * size]))


def square(n: int) -> Case:
    """A product of two matrices that are no constants."""
    found = model([node("MatMul", "x z")], {"x": [n, n], "z": [n, n]}, [n, n])
    return Case(f"MatMul {n}x{n}x{n}", found, 2 * n**3)


def cases(near: int) -> tuple[Case, ...]:
    """What is measured; `near`: bytes of a tensor that lies in the second-level cache with another one."""
    found: list[Case] = []
    for size in (BEYOND, near):
        elements = size // 4
        pixels = 1 << ((elements // 64).bit_length() - 1) // 2
        found += (
            rows("Softmax", elements // 1024, 1024),
            rows("Softmax", elements // 128, 128),
            rows("LogSoftmax", elements // 1024, 1024),
            rows("LayerNormalization", elements // 1024, 1024, "x w b"),
            rows("RMSNormalization", elements // 1024, 1024, "x w", 23),
            *(gradient(op, elements // 1024, 1024, since, given, f) for op, since, given, f in GRADIENTS),
            chain(elements // 1024, 1024),
            *(
                pool(op, 64, pixels, window, last)
                for op in ("MaxPool", "AveragePool")
                for window in (2, 3)
                for last in (False, True)
            ),
            transpose(elements // 1024, 1024),
            concat(elements // 2048, 1024),
        )
    return (*found, *(square(n) for n in (256, 512, 1024)))


@dataclass(frozen=True)
class Probes:
    """Copies and sums over arrays of one size.

    Attributes:
        run: Calls each of them once.
        bytes: That each of them moves in a call.
    """

    run: Mapping[str, Callable[[], object]]
    bytes: Mapping[str, int]


@dataclass(frozen=True)
class Limits:
    """What there is to compare with.

    Attributes:
        cpu: What models are built for.
        profiler: Tells the seconds of their steps.
        peak: Operations per second of multiply-adds.
        beyond: Probes beyond the caches.
        near: Probes in the second-level cache.
    """

    cpu: str
    profiler: CProfiler
    peak: float
    beyond: Probes
    near: Probes


def probes_of(target: CTarget, folder: Path, size: int) -> Probes:
    """Probes over arrays of so many bytes each."""
    lanes = max(target.vector_bytes, 16)
    (folder / "probes.c").write_text(PROBES.replace("@B", str(lanes)))
    library = folder / f"probes{size}.so"
    flags = [f for f in target.flags if not f.startswith("-std")]
    command = ["gcc", *flags, "-mprefer-vector-width=512", "-shared", "-fPIC", str(folder / "probes.c")]
    subprocess.run([*command, "-o", str(library)], check=True)
    native = ctypes.CDLL(str(library))
    count = size // (4 * lanes) * 4
    arrays = [aligned(size) for _ in range(3)]
    for a in arrays:
        a[:] = 0
    rounds = max(1, BEYOND // 4 // size)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]

    def call(name: str) -> object:
        assert arrays
        return getattr(native, name)(*pointers, ctypes.c_size_t(count), ctypes.c_long(rounds))

    run = {name: partial(call, name) for name in STREAMS}
    return Probes(run, {name: n * count * lanes * rounds for name, n in STREAMS.items()})


def measure(case: Case, folder: Path, limits: Limits, rounds: int) -> dict[str, Any]:
    """One model: built, compared with onnxruntime, and timed in turn with the probes of its size."""
    path = folder / f"{case.name.replace(' ', '-').replace('/', '-')}.onnx"
    path.write_bytes(case.model.SerializeToString())
    pipeline = "gradient,infer" if case.function else None
    build(path, folder / path.stem, limits.cpu, profile=True, pipeline=pipeline)
    program = Model.load(folder / path.stem)
    random = np.random.default_rng(0)
    given = {p.name: placed(random.standard_normal(p.shape, np.float32)) for p in program.inputs}
    zeros = {p.name[1:]: np.zeros(p.shape, np.float32) for p in program.outputs} if case.function else {}
    other = torch_call(case.function, zeros | given) if case.function else partial(peer(path).run, None, given)
    want: list[Array] = other()
    out = {p.name: placed(np.zeros_like(w)) for p, w in zip(program.outputs, want, strict=True)}
    program(given, out=out)
    pairs = zip(out.values(), want, strict=True)
    difference = max(float(np.max(np.abs(a - w)) / np.max(np.abs(w))) for a, w in pairs)
    moved = sum(a.nbytes for a in (*given.values(), *want))
    far = moved >= BEYOND
    probes = limits.beyond if far else limits.near
    times: dict[str, list[float]] = {name: [] for name in (*probes.run, OWN, OTHER)}
    repeated = range(1 if far else 7)
    for _ in range(rounds):
        for name, run in probes.run.items():
            times[name].append(timed(run))
        times[OWN].append(min(sum(limits.profiler.seconds(program, given, out)) for _ in repeated))
        times[OTHER].append(min(timed(other) for _ in repeated))
    median = {name: statistics.median(t) for name, t in times.items()}
    rates = {name: probes.bytes[name] / median[name] for name in probes.run}
    work, limit = (case.operations, limits.peak) if case.operations else (moved, max(rates.values()))
    rate = work / median[OWN]
    return {
        "model": case.name,
        "beyond_caches": far,
        "milliseconds": median[OWN] * 1e3,
        "other_milliseconds": median[OTHER] * 1e3,
        "bytes": moved,
        "operations": case.operations,
        "rate": rate,
        "percent": 100 * rate / limit,
        "probes": rates,
        "relative_difference": difference,
    }


def torch_call(function: Callable[..., Any], given: Mapping[str, Array]) -> Callable[[], list[Array]]:
    """The gradients of a function by torch: forward and backward; the last array is the gradient of its result."""
    # What no gradient depends on, as the bias of a norm, is 0.
    names = [n for n in given if n != "dy"]
    inputs, seed = [torch.from_numpy(given[n]) for n in names], torch.from_numpy(given["dy"])

    def call() -> list[Array]:
        leaves = [x.detach().requires_grad_() for x in inputs]
        return [g.numpy() for g in torch.autograd.grad(function(*leaves), leaves, seed)]

    return call


def placed(a: Array) -> Array:
    """A copy where vectors are aligned."""
    place = aligned(a.nbytes).view(a.dtype).reshape(a.shape)
    place[...] = a
    return place


def line(row: Mapping[str, Any]) -> str:
    """One model as text."""
    unit = "GFLOP/s" if row["operations"] else "GB/s   "
    probes = "" if row["operations"] else "  probes " + " ".join(f"{r / 1e9:.1f}" for r in row["probes"].values())
    return (
        f"{row['model']:34} {'memory' if row['beyond_caches'] else 'L2':6} {row['milliseconds']:9.4f} ms "
        f"{row['rate'] / 1e9:7.2f} {unit} {row['percent']:6.1f} %  other {row['other_milliseconds']:9.4f} ms{probes}"
        f"  difference {row['relative_difference']:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    target = target_for(options.cpu)
    near = target.l2 // 4
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        profiler = CProfiler.made(Options(cpu=options.cpu))
        both = (probes_of(target, folder, size) for size in (BEYOND, near))
        limits = Limits(options.cpu, profiler, peak(target, folder) * 1e9, *both)
        for case in cases(near):
            if not options.words or any(w in case.name for w in options.words):
                rows.append(measure(case, folder, limits, options.rounds))
                if not options.json:
                    print(line(rows[-1]), flush=True)
    if options.json:
        print(json.dumps({"models": rows}, indent=1))


if __name__ == "__main__":
    main()
