"""Speed of kernels of well-known networks: GFLOP/s and percent of the machine's measured multiply-add peak.

    python benchmarks/kernels.py [words that select layers]

Every kernel is the shape that `layout` and `fuse` leave (channels last, weights in blocks of 16, element-wise
followers) and is checked against numpy before it is timed.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dlc_backend_c.target import CTarget, target_for

from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Array, Compiled

PEAK = """
typedef float v __attribute__((vector_size(@B)));
float peak(long n) {
  v a[12], x, y; for (int i = 0; i < @B / 4; ++i) { x[i] = 1.0f + 1e-9f * n; y[i] = 1e-9f * n; }
  v a0 = y, a1 = y * 2, a2 = y * 3, a3 = y * 4, a4 = y * 5, a5 = y * 6, a6 = y * 7, a7 = y * 8, a8 = y * 9;
  v a9 = y * 10, a10 = y * 11, a11 = y * 12;
  for (long k = 0; k < n; ++k) {
    a0 = a0 * x + y; a1 = a1 * x + y; a2 = a2 * x + y; a3 = a3 * x + y; a4 = a4 * x + y; a5 = a5 * x + y;
    a6 = a6 * x + y; a7 = a7 * x + y; a8 = a8 * x + y; a9 = a9 * x + y; a10 = a10 * x + y; a11 = a11 * x + y;
  }
  a[0] = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11; return a[0][0];
}
"""


@dataclass(frozen=True)
class Layer:
    """A kernel with its name, its operations (0: only time is meaningful) and its reference."""

    name: str
    text: str
    flops: int
    reference: Any


def peak(target: CTarget, folder: Path) -> float:
    """GFLOP/s of independent multiply-adds on one core."""
    lanes = max(target.vector_bytes, 16)
    (folder / "peak.c").write_text(PEAK.replace("@B", str(lanes)))
    library = folder / "peak.so"
    flags = [f for f in target.flags if not f.startswith("-std")]
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", str(folder / "peak.c"), "-o", str(library)], check=True)
    run = ctypes.CDLL(str(library)).peak
    run.restype = ctypes.c_float
    count = 2_000_000
    best = min(timed(lambda: run(ctypes.c_long(count))) for _ in range(20))
    return count * 12 * lanes // 4 * 2 / best / 1e9


def timed(f: Any) -> float:
    """Seconds of this thread's processor time, so that other programs disturb less."""
    start = time.thread_time()
    f()
    return time.thread_time() - start


def conv(h: int, c: int, f: int, k: int, s: int = 1, *, follow: bool = True, nchw: bool = False) -> Layer:
    """Convolution, bias, residual sum and ReLU; channels last, weights [f/16, k, k, c, 16]."""
    p, o, blocks = k // 2, (h + 2 * (k // 2) - k) // s + 1, -(-f // 16)
    y, x = (f"i0*{s}+i3-{p}", f"i1*{s}+i4-{p}")
    where = f" if {y} >= 0 and {y} < {h} and {x} >= 0 and {x} < {h}" if p else ""
    read = f"p0[0,i5,{y},{x}]" if nchw else f"p0[0,{y},{x},i5]"
    shape = f"1,{c},{h},{h}" if nchw else f"1,{h},{h},{c}"
    text = f"""kernel(p0: f32[{shape}], p1: f32[{blocks},{k},{k},{c},16], p2: f32[{f}], p3: f32[1,{o},{o},{f}])
 -> (r0: f32[1,{o},{o},{f}]) local (t0: f32[1,{o},{o},{f}]) {{
 i0<{o} i1<{o} i2<{f} i3<{k} i4<{k} i5<{c}: t0[0,i0,i1,i2] += {read}*p1[i2//16,i3,i4,i5,i2 % 16]{where}
 i0<{o} i1<{o} i2<{f}: r0[0,i0,i1,i2] = max(t0[0,i0,i1,i2]+p2[i2]{"+p3[0,i0,i1,i2]" if follow else ""}, 0.0)
}}"""

    def reference(a: Array, w: Array, b: Array, r: Array) -> Array:
        a = a.transpose(0, 2, 3, 1) if nchw else a
        padded = np.pad(a[0], ((p, p), (p, p), (0, 0)))
        weights = w.transpose(1, 2, 3, 0, 4).reshape(k, k, c, blocks * 16)[..., :f]
        total = np.zeros((o, o, f), np.float32)
        for i in range(k):
            for j in range(k):
                total += padded[i : i + s * o - s + 1 : s, j : j + s * o - s + 1 : s] @ weights[i, j]
        return np.maximum(total + b + (r[0] if follow else 0), 0)[None]

    name = f"conv{k}x{k}/{s} {h}x{h} {c}->{f}{' nchw' if nchw else ''}"
    return Layer(name, text, 2 * o * o * f * k * k * c, reference)


def matmul(m: int, n: int, k: int, form: str) -> Layer:
    """Matrix product with bias; `form`: kn, nk or packed."""
    shape, read = {
        "kn": (f"{k},{n}", "p1[i2,i1]"),
        "nk": (f"{n},{k}", "p1[i1,i2]"),
        "packed": (f"{-(-n // 16)},{k},16", "p1[i1//16,i2,i1 % 16]"),
    }[form]
    params, out = f"p0: f32[{m},{k}], p1: f32[{shape}], p2: f32[{n}]", f"f32[{m},{n}]"
    text = f"""kernel({params}) -> (r0: {out}) local (t0: {out}) {{
 i0<{m} i1<{n} i2<{k}: t0[i0,i1] += p0[i0,i2]*{read}
 i0<{m} i1<{n}: r0[i0,i1] = t0[i0,i1]+p2[i1]
}}"""

    def reference(a: Array, b: Array, c: Array) -> Array:
        if form == "nk":
            b = b.T
        elif form == "packed":
            b = b.transpose(1, 0, 2).reshape(k, -1)[:, :n]
        return a @ b + c

    return Layer(f"matmul {m}x{n}x{k} {form}", text, 2 * m * n * k, reference)


def attention(heads: int, t: int, d: int, transposed: bool) -> Layer:
    """Scores q·kᵀ or values s·v, batched over heads."""
    k, n = (d, t) if transposed else (t, d)
    shape, read = (f"{heads},{n},{k}", "p1[i0,i2,i3]") if transposed else (f"{heads},{k},{n}", "p1[i0,i3,i2]")
    text = f"""kernel(p0: f32[{heads},{t},{k}], p1: f32[{shape}]) -> (r0: f32[{heads},{t},{n}]) {{
 i0<{heads} i1<{t} i2<{n} i3<{k}: r0[i0,i1,i2] += p0[i0,i1,i3]*{read}
}}"""
    name = f"attention {'q.kT' if transposed else 's.v'} {heads}x{t}x{d}"
    return Layer(name, text, 2 * heads * t * n * k, lambda a, b: a @ (b.swapaxes(1, 2) if transposed else b))


def depthwise(h: int, c: int) -> Layer:
    """3x3 depthwise convolution, clipped to 0…6."""
    image = f"f32[1,{h},{h},{c}]"
    text = f"""kernel(p0: {image}, p1: f32[3,3,{c}]) -> (r0: {image}) local (t0: {image}) {{
 i0<{h} i1<{h} i2<{c} i3<3 i4<3: t0[0,i0,i1,i2] += p0[0,i0+i3-1,i1+i4-1,i2]*p1[i3,i4,i2]
   if i0+i3 >= 1 and i0+i3 < {h + 1} and i1+i4 >= 1 and i1+i4 < {h + 1}
 i0<{h} i1<{h} i2<{c}: r0[0,i0,i1,i2] = min(max(t0[0,i0,i1,i2], 0.0), 6.0)
}}"""

    def reference(a: Array, w: Array) -> Array:
        padded = np.pad(a[0], ((1, 1), (1, 1), (0, 0)))
        total = sum(padded[i : i + h, j : j + h] * w[i, j] for i in range(3) for j in range(3))
        return np.clip(total, 0, 6)[None]

    return Layer(f"depthwise 3x3 {h}x{h} {c}", text, 18 * h * h * c, reference)


def pool(h: int, c: int) -> Layer:
    """3x3 maximum, stride 2."""
    o = (h + 2 - 3) // 2 + 1
    text = f"""kernel(p0: f32[1,{h},{h},{c}]) -> (r0: f32[1,{o},{o},{c}]) {{
 i0<{o} i1<{o} i2<{c} i3<3 i4<3: r0[0,i0,i1,i2] max= p0[0,i0*2+i3-1,i1*2+i4-1,i2]
   if i0*2+i3 >= 1 and i0*2+i3 < {h + 1} and i1*2+i4 >= 1 and i1*2+i4 < {h + 1}
}}"""

    def reference(a: Array) -> Array:
        padded = np.pad(a[0], ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
        views = [padded[i : i + 2 * o : 2, j : j + 2 * o : 2][:o, :o] for i in range(3) for j in range(3)]
        return np.maximum.reduce(views)[None]

    return Layer(f"max-pool 3x3/2 {h}x{h} {c}", text, 9 * o * o * c, reference)


def softmax(rows: int, columns: int) -> Layer:
    """Softmax of rows."""
    s = f"f32[{rows},{columns}]"
    text = f"""kernel(p0: {s}) -> (r0: {s}) local (t0: f32[{rows}], t1: {s}, t2: f32[{rows}]) {{
 i0<{rows} i1<{columns}: t0[i0] max= p0[i0,i1]
 i0<{rows} i1<{columns}: t1[i0,i1] = exp(p0[i0,i1]-t0[i0])
 i0<{rows} i1<{columns}: t2[i0] += t1[i0,i1]
 i0<{rows} i1<{columns}: r0[i0,i1] = t1[i0,i1]/t2[i0]
}}"""

    def reference(a: Array) -> Array:
        e = np.exp(a - a.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return Layer(f"softmax {rows}x{columns}", text, 0, reference)


def gelu(n: int) -> Layer:
    """x/2 · (1 + erf(x/√2))."""
    text = f"""kernel(p0: f32[{n}]) -> (r0: f32[{n}]) {{
 i0<{n}: r0[i0] = p0[i0]*0.5*(1.0+erf(p0[i0]*0.7071067811865476))
}}"""
    from math import erf

    return Layer(f"gelu {n}", text, 0, lambda a: a * 0.5 * (1 + np.vectorize(erf)(a * 2**-0.5)))


LAYERS = (
    conv(224, 3, 64, 7, 2, follow=False, nchw=True),
    conv(56, 64, 64, 1),
    conv(56, 64, 64, 3),
    conv(56, 64, 256, 1),
    conv(56, 256, 64, 1),
    conv(56, 256, 512, 1, 2, follow=False),
    conv(28, 128, 128, 3),
    conv(28, 512, 128, 1),
    conv(28, 128, 512, 1),
    conv(14, 256, 256, 3),
    conv(14, 1024, 256, 1),
    conv(14, 256, 1024, 1),
    conv(7, 512, 512, 3),
    conv(7, 2048, 512, 1),
    conv(7, 512, 2048, 1),
    conv(55, 16, 64, 3, follow=False),
    conv(27, 48, 192, 3, follow=False),
    conv(13, 512, 1000, 1, follow=False),
    matmul(512, 512, 512, "kn"),
    matmul(512, 512, 512, "nk"),
    matmul(512, 512, 512, "packed"),
    matmul(128, 768, 768, "packed"),
    matmul(128, 3072, 768, "packed"),
    matmul(128, 768, 3072, "packed"),
    matmul(1, 1000, 2048, "nk"),
    matmul(1, 1000, 2048, "packed"),
    attention(12, 128, 64, True),
    attention(12, 128, 64, False),
    depthwise(56, 128),
    depthwise(14, 512),
    pool(112, 64),
    softmax(1536, 128),
    gelu(128 * 3072),
)


def main() -> None:
    words = sys.argv[1:]
    layers = [x for x in LAYERS if not words or any(w in x.name for w in words)]
    target = target_for("native")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        top = peak(target, folder)
        print(f"{target.cpu} vectors of {target.vector_bytes} bytes, measured peak {top:.1f} GFLOP/s")
        start = time.perf_counter()
        compiled = Compiled([parse_kernel(x.text) for x in layers], target, folder)
        print(f"{len(layers)} kernels compiled in {time.perf_counter() - start:.1f} s")
        for n, layer in enumerate(layers):
            report(compiled, n, layer, top)


def report(compiled: Compiled, n: int, layer: Layer, top: float) -> None:
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.shape).astype(np.float32) for p in compiled.kernels[n].params]
    (got,) = compiled(n, args)
    want = layer.reference(*args)
    error = float(np.max(np.abs(got - want)) / np.max(np.abs(want)))
    call = compiled.caller(n, args)
    call()
    best = min(timed(call) for _ in range(12))
    rate = layer.flops / best / 1e9
    share = f"{rate:7.1f} GFLOP/s {100 * rate / top:5.1f} %" if layer.flops else ""
    print(f"{layer.name:34} {best * 1e6:9.1f} us {share:28} error {error:.1e}{'' if error < 1e-4 else '  WRONG'}")


if __name__ == "__main__":
    main()
