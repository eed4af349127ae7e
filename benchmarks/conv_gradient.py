"""Gradients of kernel text against the core's own ops for the same gradients, one thread, calls taking turns.

    python benchmarks/conv_gradient.py [WORD…] [--rounds 30] [--cpu native] [--json]

Every row is compiled through the default pipeline: kernel text with `--grad`, or a graph of ops (ConvTranspose for the
gradient of the data, Conv of transposed operands for that of the weights, MatMul of transposed operands). Prints
medians, percent of the processor's measured multiply-add peak, and the ratio to the row that it is compared with. The
command fails if a generated gradient of the large convolution takes more than 1.5 times as long as the core's own ops.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dlc_backend_c.runtime import Model
from dlc_backend_c.target import target_for

from benchmarks.kernels import peak, timed
from dlc.api.source import Source
from dlc.base.types import Type, f32
from dlc.cache import open_cache
from dlc.config.config import default_config
from dlc.driver.build import compile_source
from dlc.driver.codec import Context
from dlc.driver.pipeline import resolve
from dlc.driver.session import Session
from dlc.driver.state_text import op_classes
from dlc.graph import Graph, Input, Op
from dlc.graph.text import print_graph
from dlc.ops.linear import Conv, ConvTranspose, MatMul
from dlc.ops.shape import Transpose
from dlc.plugins.discovery import load_registry
from dlc.runtime.install import install
from dlc.runtime.manifest import with_manifest
from dlc.spec import Spec

Array = np.ndarray[Any, np.dtype[Any]]
LIMIT = 1.5
"""Times the core's own gradient ops that generated gradients of the large convolution may take."""


@dataclass(frozen=True)
class Row:
    """One program.

    Attributes:
        name: What it computes.
        text: Kernel text, or a graph in dlc's text.
        grad: What kernel text is differentiated by; () for what is no gradient.
        operations: Multiply-adds times two.
        peer: Names of the rows that compute the same, to be compared with their sum.
        limited: Whether more than LIMIT times as long as the peers is a failure.
    """

    name: str
    text: str
    grad: tuple[str, ...]
    operations: int
    peer: tuple[str, ...] = ()
    limited: bool = False


def convolution(k: int, c: int, h: int, r: int, stride: int, limited: bool) -> list[Row]:
    """All rows for one convolution of squares of `h` without padding."""
    p = (h - r) // stride + 1
    data, weights, result = (1, c, h, h), (k, c, r, r), (1, k, p, p)
    at = "p+r,q+s" if stride == 1 else f"{stride}*p+r,{stride}*q+s"
    text = f"""kernel f(B: {of(data)}, C: {of(weights)}) -> (A: {of(result)}) {{
  A[n,k,p,q] = B[n,c,{at}] * C[k,c,r,s];
}}"""
    title = f"{k}x{c}x{p}x{p} {r}x{r}/{stride}"
    names = (f"ConvTranspose {title}", f"Conv transposed {title}")
    count = 2 * k * c * p * p * r * r
    strides = (stride, stride)
    dy, x, w = tensor("dA", result), tensor("B", data), tensor("C", weights)
    extra = (h - r) % stride
    own = ConvTranspose(dy, w, stride=strides, output_pad=(extra, extra))
    turned = Conv(Transpose(x, (1, 0, 2, 3)), Transpose(dy, (1, 0, 2, 3)), dilation=strides)
    size = (c, k, r, r)
    rows = [
        Row(f"forward {title}", text, (), count),
        Row(names[0], graph((dy, w), "dB", own), (), count),
        Row(f"--grad B {title}", text, ("B",), count, names[:1], limited),
    ]
    if turned.shape == size:
        rows += [
            Row(names[1], graph((dy, x), "dC", Transpose(turned, (1, 0, 2, 3))), (), count),
            Row(f"--grad C {title}", text, ("C",), count, names[1:], limited),
            Row(f"--grad B,C {title}", text, ("B", "C"), 2 * count, names, limited),
        ]
    return rows


def product(m: int) -> list[Row]:
    """Rows for a product of square matrices."""
    text = f"kernel f(A: {of((m, m))}, B: {of((m, m))}) -> (C: {of((m, m))}) {{\n  C[i,j] = A[i,k] * B[k,j];\n}}"
    dy, a, b = (tensor(n, (m, m)) for n in ("dC", "A", "B"))
    left, right = f"dC.Bt {m}", f"At.dC {m}"
    return [
        Row(f"matmul {m}", text, (), 2 * m**3),
        Row(left, graph((dy, b), "dA", MatMul(dy, Transpose(b, (1, 0)))), (), 2 * m**3),
        Row(right, graph((dy, a), "dB", MatMul(Transpose(a, (1, 0)), dy)), (), 2 * m**3),
        Row(f"--grad A,B matmul {m}", text, ("A", "B"), 4 * m**3, (left, right)),
    ]


def khatri_rao(i: int, k: int, l: int, j: int) -> list[Row]:  # noqa: E741
    """Rows for a matricised tensor times a Khatri-Rao product; three multiplications or additions per point."""
    text = f"""kernel f(B: {of((i, k, l))}, C: {of((k, j))}, D: {of((l, j))}) -> (A: {of((i, j))}) {{
  A[i,j] = B[i,k,l] * C[k,j] * D[l,j];
}}"""
    count = 2 * i * j * k * l
    wrt = ("B", "C", "D")
    return [Row("MTTKRP", text, (), count), *(Row(f"--grad {x} MTTKRP", text, (x,), count) for x in wrt)]


def of(shape: tuple[int, ...]) -> str:
    return f"float[{','.join(map(str, shape))}]"


def tensor(name: str, shape: tuple[int, ...]) -> Input:
    return Input(name, Type(f32, shape))


def graph(inputs: tuple[Input, ...], name: str, op: Op) -> str:
    return print_graph(Graph(inputs, (op,), (name,)))


ROWS = [
    *convolution(256, 64, 58, 3, 1, True),
    *convolution(256, 64, 56, 3, 1, True),
    *convolution(64, 64, 58, 3, 1, False),
    *convolution(512, 256, 16, 3, 1, False),
    *convolution(128, 64, 58, 3, 2, False),
    *product(512),
    *khatri_rao(128, 96, 64, 128),
]


def build(row: Row, folder: Path, cpu: str) -> Model:
    """The row's program, compiled without a cache."""
    registry = load_registry()
    path = folder / ("model.kernel" if row.text.startswith("kernel f(") else "model.dlc")
    folder.mkdir()
    path.write_text(row.text)
    recipe = resolve(registry, default_config(), f"c{{cpu={cpu}}}", grad=row.grad)
    source = Source(path)
    entry = registry.frontend_for(source)
    session = Session(open_cache(None, "off"), Context(lambda: op_classes(registry), path))
    done = compile_source(source, registry.frontend(Spec(entry.name)), entry.package, recipe, session)
    install(with_manifest(done.last.value), folder / "out")
    return Model.load(folder / "out")


def caller(model: Model) -> tuple[Callable[[], object], dict[str, Array]]:
    """A call on random inputs, and what it gives."""
    random = np.random.default_rng(0)
    given = {p.name: random.standard_normal(p.shape).astype(np.float32) for p in model.inputs}
    return lambda: model(given), model(given)


def measure(rows: list[Row], folder: Path, rounds: int, cpu: str) -> list[dict[str, Any]]:
    """Medians of all rows, every round calling each once."""
    models = [build(row, folder / str(n), cpu) for n, row in enumerate(rows)]
    calls = [caller(m)[0] for m in models]
    times: list[list[float]] = [[] for _ in rows]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            found.append(timed(call))
    top = peak(target_for(cpu), folder)
    median = {row.name: statistics.median(t) for row, t in zip(rows, times, strict=True)}
    return [summary(row, median, top) for row in rows]


def summary(row: Row, median: Mapping[str, float], top: float) -> dict[str, Any]:
    """One row's figures."""
    seconds = median[row.name]
    peers = sum(median[n] for n in row.peer)
    return {
        "name": row.name,
        "milliseconds": seconds * 1e3,
        "percent_of_peak": 100 * row.operations / seconds / 1e9 / top,
        "peers": list(row.peer),
        "ratio": seconds / peers if peers else None,
        "limited": row.limited,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [r for r in ROWS if not options.words or any(w in r.name for w in options.words)]
    wanted = {n for r in chosen for n in r.peer} | {r.name for r in chosen}
    rows = [r for r in ROWS if r.name in wanted]
    with tempfile.TemporaryDirectory() as directory:
        found = measure(rows, Path(directory), options.rounds, options.cpu)
    for f in () if options.json else found:
        ratio = "" if f["ratio"] is None else f"ratio {f['ratio']:5.2f}"
        print(f"{f['name']:34} {f['milliseconds']:8.2f} ms {f['percent_of_peak']:6.1f} % of peak  {ratio}")
    if options.json:
        print(json.dumps({"limit": LIMIT, "rows": found}, indent=1))
    sys.exit(any(f["limited"] and f["ratio"] > LIMIT for f in found))


if __name__ == "__main__":
    main()
