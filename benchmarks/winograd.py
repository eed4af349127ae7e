"""Convolutions with 3x3 windows directly and by Winograd's algorithm, layer by layer, in one run, calls taking turns.

    python benchmarks/winograd.py [BATCH,SIZE,CHANNELS,COLUMNS…] [--cpu native] [--rounds 60]

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
from dlc.kernel.schedules import print_choices, scheduled
from dlc.kernel.schedules.winograd_estimate import Sizes, algorithms, direct_cycles, winograd_cycles
from dlc.kernel.schedules.winograd_nests import TAPS, transformed, window_of
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Compiled

LAYERS = (
    *((1, 56, c, c) for c in (64, 128, 256)),
    *((1, 28, c, c) for c in (64, 128, 256, 512)),
    *((1, 14, c, c) for c in (64, 128, 256, 512)),
    *((1, 7, c, c) for c in (128, 256, 512)),
)
Array = np.ndarray[Any, np.dtype[Any]]


def conv(batch: int, size: int, channels: int, columns: int) -> Kernel:
    """A convolution with padding, bias and ReLU, as `layout` and `fuse` leave it."""
    image = "h" if batch > 1 else "0"
    out = f"f32[{batch},{size},{size},{columns}]"
    where = " and ".join(f"{e} >= 1 and {e} < {size + 1}" for e in ("i+n", "j+u"))
    return parse_kernel(f"""kernel(f32[{batch},{size},{size},{channels}], f32[{columns // 16},3,3,{channels},16],
 f32[{columns}]) -> ({out}) local ({out}) {{
 m<{channels} n<3 u<3: t0[{image},i,j,k] += p0[{image},i+n-1,j+u-1,m]*p1[k//16,n,u,m,k % 16] if {where}
 r0[{image},i,j,k] = max(t0[{image},i,j,k]+p2[k], 0.0)
}}""")


def measure(layer: tuple[int, int, int, int], cpu: str, rounds: int, folder: Path) -> str:
    """One layer as a line."""
    batch, size, channels, columns = layer
    target = target_for(cpu)
    plain = conv(*layer)
    random = np.random.default_rng(0)
    given: list[Array] = [random.standard_normal(p.shape, np.float32) for p in plain.params]
    kernels, arguments = [plain], [given]
    for f in algorithms(TAPS):
        kernels.append(transformed(plain, {0: (window_of(plain.nests[0], plain), f)}))
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
    sizes = Sizes(batch, size, size, channels, columns, TAPS)
    expected = direct_cycles(sizes, target.machine)
    text = f"{batch:3} x {size:3}x{size:<3} {channels:4} to {columns:<4} direct {direct:8.3f} ms"
    for f, kernel, time, got in zip(algorithms(TAPS), kernels[1:], others, results[1:], strict=True):
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
        batch, size, channels, columns = layer
        with tempfile.TemporaryDirectory() as folder:
            print(measure((batch, size, channels, columns), options.cpu, options.rounds, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
