"""Convolutions with small windows directly and by Winograd's algorithm, layer by layer, in one run, calls taking turns.

    python benchmarks/winograd.py [BATCH,SIZE,CHANNELS,COLUMNS[,TAPS]…] [--cpu native] [--rounds 60]

Prints per layer the median of each in milliseconds, how many times faster than directly it is, and should be by the
estimate, the largest difference relative to the largest output, and the schedule. Weights are transformed beforehand.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from dlc_backend_c.target import target_for

from benchmarks.kernels import timed
from dlc.kernel.kernel import Kernel
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.schedules.text import print_choices
from dlc.kernel.schedules.winograd_estimate import Sizes, algorithms, direct_cycles, winograd_cycles
from dlc.kernel.schedules.winograd_nests import transformed, window_of
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Compiled

LAYERS = (
    *((1, 56, c, c) for c in (64, 128, 256)),
    *((1, 28, c, c) for c in (64, 128, 256, 512)),
    *((1, 14, c, c) for c in (64, 128, 256, 512)),
    *((1, 7, c, c) for c in (128, 256, 512)),
    *((1, s, c, f, 5) for s, c, f in ((56, 64, 64), (28, 96, 256), (28, 32, 64), (14, 128, 128))),
    *((1, s, c, f, 7) for s, c, f in ((56, 64, 64), (28, 96, 256))),
)
Array = np.ndarray[Any, np.dtype[Any]]


def conv(batch: int, size: int, channels: int, columns: int, taps: int = 3) -> Kernel:
    """A convolution with padding, bias and ReLU, as `layout` and `fuse` leave it."""
    image = "h" if batch > 1 else "0"
    out = f"f32[{batch},{size},{size},{columns}]"
    pad = taps // 2
    where = " and ".join(f"{e} >= {pad} and {e} < {size + pad}" for e in ("i+n", "j+u"))
    product = f"p0[{image},i+n-{pad},j+u-{pad},m]*p1[k//16,n,u,m,k % 16]"
    return parse_kernel(f"""kernel(f32[{batch},{size},{size},{channels}],
 f32[{columns // 16},{taps},{taps},{channels},16], f32[{columns}]) -> ({out}) local ({out}) {{
 m<{channels} n<{taps} u<{taps}: t0[{image},i,j,k] += {product} if {where}
 r0[{image},i,j,k] = max(t0[{image},i,j,k]+p2[k], 0.0)
}}""")


def measure(layer: tuple[int, ...], cpu: str, rounds: int, folder: Path) -> str:
    """One layer as a line."""
    target = target_for(cpu)
    plain = conv(*layer)
    window = window_of(plain.nests[0], plain)
    taps, (batch, size, channels, columns) = window.taps, layer[:4]
    random = np.random.default_rng(0)
    given: list[Array] = [random.standard_normal(p.shape, np.float32) for p in plain.params]
    kernels, arguments = [plain], [given]
    for f in algorithms(taps):
        kernels.append(transformed(plain, {0: (window, f)}))
        matrix = np.array([[float(x) for x in row] for row in f.filter])
        weights = np.einsum("au,bv,ouvck->abock", matrix, matrix, given[1].astype(np.float64), optimize=True)
        arguments.append([given[0], weights.astype(np.float32), given[2]])
    compiled = Compiled(kernels, target, folder, flags=())
    results = [compiled(n, args)[0] for n, args in enumerate(arguments)]
    calls = [compiled.caller(n, args) for n, args in enumerate(arguments)]
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            found.append(timed(call) * 1e3)
    direct, *others = map(statistics.median, times)
    sizes = Sizes(batch, size, size, channels, columns, taps)
    expected = direct_cycles(sizes, target.machine)
    text = f"{batch:3} x {size:3}x{size:<3} {channels:4} to {columns:<4} {taps}x{taps} direct {direct:8.3f} ms"
    for f, kernel, time, got in zip(algorithms(taps), kernels[1:], others, results[1:], strict=True):
        difference = np.abs(got - results[0]).max() / np.abs(results[0]).max()
        ratio = expected / winograd_cycles(sizes, f, target.machine)
        schedule = print_choices(scheduled(kernel, target.machine).choices)
        text += f"   F({f.outputs}x{f.outputs}) {time:8.3f} ms {direct / time:5.2f}x (estimate {ratio:4.2f}x)"
        text += f" difference {difference:.0e} {schedule}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("layers", nargs="*")
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    layers = [tuple(map(int, text.split(","))) for text in options.layers] or LAYERS
    for layer in layers:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(layer, options.cpu, options.rounds, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
