"""What schedules must not get wrong: kernels of the shapes that they tell apart, against the reference."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.target import GENERIC, X86_64_V3, X86_64_V4, CTarget, target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Compiled, close, samples
from tests.tools import COMPILERS

TARGETS = [GENERIC, *([X86_64_V3] if target_for("native").vector_bytes >= 32 else [])]


def conv(h: int, c: int, f: int, k: int, stride: int = 1, pad: int = 0, dilation: int = 1) -> str:
    """Channels last, weights in blocks of 16, bias and ReLU behind."""
    o = (h + 2 * pad - dilation * (k - 1) - 1) // stride + 1
    blocks = -(-f // 16)
    y, x = (f"i{n}*{stride}+i{n + 3}*{dilation}-{pad}" for n in (0, 1))
    where = f" if {y} >= 0 and {y} < {h} and {x} >= 0 and {x} < {h}" if pad else ""
    return f"""kernel(p0: f32[{h},{h},{c}], p1: f32[{blocks},{k},{k},{c},16], p2: f32[{f}]) -> (r0: f32[{o},{o},{f}])
 local (t0: f32[{o},{o},{f}]) {{
 i0<{o} i1<{o} i2<{f} i3<{k} i4<{k} i5<{c}: t0[i0,i1,i2] += p0[{y},{x},i5]*p1[i2//16,i3,i4,i5,i2 % 16]{where}
 i0<{o} i1<{o} i2<{f}: r0[i0,i1,i2] = max(t0[i0,i1,i2]+p2[i2], 0.0)
}}"""


def grouped(h: int, groups: int, c: int, f: int) -> str:
    """3x3 convolution in groups, channels last, padded."""
    where = f"i0+i4 >= 1 and i0+i4 < {h + 1} and i1+i5 >= 1 and i1+i5 < {h + 1}"
    return f"""kernel(p0: f32[{h},{h},{groups},{c}], p1: f32[{groups},3,3,{c},{f}])
 -> (r0: f32[{h},{h},{groups},{f}]) {{
 i0<{h} i1<{h} i2<{groups} i3<{f} i4<3 i5<3 i6<{c}:
   r0[i0,i1,i2,i3] += p0[i0+i4-1,i1+i5-1,i2,i6]*p1[i2,i4,i5,i6,i3] if {where}
}}"""


def blocked_groups(h: int, groups: int, c: int, f: int) -> str:
    """The same with groups as blocks of one dimension, and bias and ReLU over all of it."""
    where = f"i0+i4 >= 1 and i0+i4 < {h + 1} and i1+i5 >= 1 and i1+i5 < {h + 1}"
    n = groups * f
    return f"""kernel(p0: f32[{h},{h},{groups * c}], p1: f32[3,3,{c},{n}], p2: f32[{n}]) -> (r0: f32[{h},{h},{n}])
 local (t0: f32[{h},{h},{n}]) {{
 i0<{h} i1<{h} i2<{groups} i3<{f} i4<3 i5<3 i6<{c}:
   t0[i0,i1,i2*{f}+i3] += p0[i0+i4-1,i1+i5-1,i2*{c}+i6]*p1[i4,i5,i6,i2*{f}+i3] if {where}
 i0<{h} i1<{h} i2<{n}: r0[i0,i1,i2] = max(t0[i0,i1,i2]+p2[i2], 0.0)
}}"""


def depthwise(h: int, c: int, stride: int) -> str:
    o = (h - 1) // stride + 1
    y, x = f"i0*{stride}+i3-1", f"i1*{stride}+i4-1"
    return f"""kernel(p0: f32[{h},{h},{c}], p1: f32[3,3,{c}]) -> (r0: f32[{o},{o},{c}]) {{
 i0<{o} i1<{o} i2<{c} i3<3 i4<3: r0[i0,i1,i2] += p0[{y},{x},i2]*p1[i3,i4,i2]
   if {y} >= 0 and {y} < {h} and {x} >= 0 and {x} < {h}
}}"""


def plane_gradients(h: int, c: int, k: int) -> str:
    """Of a depthwise convolution without padding, channels first: windows overlap along the rows and the lanes."""
    o = h - k + 1
    return f"""kernel(p0: f32[{c},{h},{h}], p1: f32[{c},{k},{k}], p2: f32[{c},{o},{o}])
  -> (r0: f32[{c},{h},{h}], r1: f32[{c},{k},{k}]) {{
 i0<{c} i1<{h} i2<{h} i3<{k} i4<{k}: r0[i0,i1,i2] += p1[i0,i3,i4]*p2[i0,i1-i3,i2-i4]
   if i1-i3 >= 0 and i1-i3 < {o} and i2-i4 >= 0 and i2-i4 < {o}
 i0<{c} i1<{k} i2<{k} i3<{o} i4<{o}: r1[i0,i1,i2] += p0[i0,i1+i3,i2+i4]*p2[i0,i3,i4]
}}"""


def planes(h: int, c: int, k: int) -> str:
    """Maximum over windows, channels first: the window slides along the lanes."""
    return f"""kernel(p0: f32[{c},{h},{h}]) -> (r0: f32[{c},{h},{h}]) {{
 i0<{c} i1<{h} i2<{h} i3<{k} i4<{k}: r0[i0,i1,i2] max= p0[i0,i1+i3-1,i2+i4-1]
   if i1+i3 >= 1 and i1+i3 < {h + 1} and i2+i4 >= 1 and i2+i4 < {h + 1}
}}"""


def halved(h: int, c: int, mean: bool) -> str:
    """Maxima or means of 3x3 windows of stride 2, channels first: means count the elements inside of the image."""
    o = (h - 1) // 2 + 1
    inside = f"if i1*2+i3 >= 1 and i1*2+i3 < {h + 1} and i2*2+i4 >= 1 and i2*2+i4 < {h + 1}"
    space, shape = f"i0<{c} i1<{o} i2<{o}", f"f32[{c},{o},{o}]"
    read = f"{space} i3<3 i4<3: {{}}[i0,i1,i2] {{}}= p0[i0,i1*2+i3-1,i2*2+i4-1] {inside}"
    if not mean:
        return f"kernel(p0: f32[{c},{h},{h}]) -> (r0: {shape}) {{ {read.format('r0', 'max')} }}"
    along = [f"(min({h + 1}-i{d}*2, 3)-max(1-i{d}*2, 0))" for d in (1, 2)]
    return f"""kernel(p0: f32[{c},{h},{h}]) -> (r0: {shape}) local (t0: {shape}, t1: f32[{o},{o}]) {{
 {read.format("t0", "+")}
 i1<{o} i2<{o}: t1[i1,i2] = f32({"*".join(along)})
 {space}: r0[i0,i1,i2] = t0[i0,i1,i2]/t1[i1,i2]
}}"""


def across(rows: int, columns: int) -> str:
    """A sum of a matrix and another one that lies across it."""
    shape = f"f32[{rows},{columns}]"
    return f"""kernel(p0: f32[{columns},{rows}], p1: {shape}) -> (r0: {shape}) {{
 i0<{rows} i1<{columns}: r0[i0,i1] = p0[i1,i0]+p1[i0,i1]
}}"""


def row_gradient(rows: int, columns: int) -> str:
    """Gradient of a norm of rows: two sums over each of them, which do not depend on one another."""
    s, v = f"f32[{rows},{columns}]", f"f32[{rows}]"
    return f"""kernel(p0: {s}, p1: {s}) -> (r0: {s}) local (t0: {v}, t1: {v}) {{
 i0<{rows} i1<{columns}: t0[i0] += p0[i0,i1]
 i0<{rows} i1<{columns}: t1[i0] += p0[i0,i1]*p1[i0,i1]
 i0<{rows} i1<{columns}: r0[i0,i1] = p0[i0,i1]-t0[i0]/{columns}.0-p1[i0,i1]*t1[i0]
}}"""


def shuffled(channels: int, parts: int, columns: int) -> str:
    """A product that reads its operand through a shuffle, and the shuffle by itself."""
    size = -(-channels // parts) * parts
    read = f"{{0}} % {parts}*{size // parts}+{{0}}//{parts}"
    results = f"r0: f32[5,{columns}], r1: f32[5,{channels}]"
    return f"""kernel(p0: f32[5,{size}], p1: f32[{channels},{columns}]) -> ({results}) {{
 i0<5 i1<{columns} i2<{channels}: r0[i0,i1] += p0[i0,{read.format("i2")}]*p1[i2,i1]
 i0<5 i1<{channels}: r1[i0,i1] = p0[i0,{read.format("i1")}]
}}"""


def pooling(h: int, c: int, k: int, stride: int) -> str:
    """Maximum over windows, channels last."""
    o, p = (h - 1) // stride + 1, (k - 1) // 2
    y, x = (f"i{n}*{stride}+i{n + 3}-{p}" for n in (0, 1))
    return f"""kernel(p0: f32[{h},{h},{c}]) -> (r0: f32[{o},{o},{c}]) {{
 i0<{o} i1<{o} i2<{c} i3<{k} i4<{k}: r0[i0,i1,i2] max= p0[{y},{x},i2]
   if {y} >= 0 and {y} < {h} and {x} >= 0 and {x} < {h}
}}"""


def filtered(h: int, c: int, k: int, stride: int) -> str:
    """A filter of any size for each channel, and a ReLU."""
    o, p = (h - 1) // stride + 1, (k - 1) // 2
    y, x = (f"i{n}*{stride}+i{n + 3}-{p}" for n in (0, 1))
    result = f"f32[{o},{o},{c}]"
    return f"""kernel(p0: f32[{h},{h},{c}], p1: f32[{k},{k},{c}]) -> (r0: {result}) local (t0: {result}) {{
 i0<{o} i1<{o} i2<{c} i3<{k} i4<{k}: t0[i0,i1,i2] += p0[{y},{x},i2]*p1[i3,i4,i2]
   if {y} >= 0 and {y} < {h} and {x} >= 0 and {x} < {h}
 i0<{o} i1<{o} i2<{c}: r0[i0,i1,i2] = max(t0[i0,i1,i2], 0.0)
}}"""


def matmul(m: int, n: int, k: int, turned: bool) -> str:
    shape, read = (f"{n},{k}", "p1[i1,i2]") if turned else (f"{k},{n}", "p1[i2,i1]")
    return f"""kernel(p0: f32[{m},{k}], p1: f32[{shape}], p2: f32[{m},{n}]) -> (r0: f32[{m},{n}])
 local (t0: f32[{m},{n}]) {{
 i0<{m} i1<{n} i2<{k}: t0[i0,i1] += p0[i0,i2]*{read}
 i0<{m} i1<{n}: r0[i0,i1] = t0[i0,i1]+p2[i0,i1]
}}"""


def curve(n: int, body: str) -> str:
    """A function of sums x + 0, behind a matrix product."""
    return f"""kernel(p0: f32[1,2], p1: f32[2,{n}]) -> (r0: f32[1,{n}]) local (t0: f32[1,{n}]) {{
 i0<1 i1<{n} i2<2: t0[i0,i1] += p0[i0,i2]*p1[i2,i1]
 i0<1 i1<{n}: r0[i0,i1] = {body}
}}"""


def softmax(rows: int, columns: int) -> str:
    s = f"f32[{rows},{columns}]"
    return f"""kernel(p0: {s}) -> (r0: {s}) local (t0: f32[{rows}], t1: {s}, t2: f32[{rows}]) {{
 i0<{rows} i1<{columns}: t0[i0] max= p0[i0,i1]
 i0<{rows} i1<{columns}: t1[i0,i1] = exp(p0[i0,i1]-t0[i0])
 i0<{rows} i1<{columns}: t2[i0] += t1[i0,i1]
 i0<{rows} i1<{columns}: r0[i0,i1] = t1[i0,i1]/t2[i0]
}}"""


def equal_weights(h: int, c: int, f: int, to_result: bool) -> str:
    """Convolution with weights that are all one value: every output channel is the same sum."""
    name, shape = ("r0", f"f32[{h},{h},{f}]") if to_result else ("t0", f"f32[{h},{h},{f}]")
    local, follow = (
        ("", "")
        if to_result
        else (f" local (t0: {shape})", f" i0<{h} i1<{h} i2<{f}: r0[i0,i1,i2] = t0[i0,i1,i2]+p1[i2]")
    )
    return f"""kernel(p0: f32[{c},{h},{h}], p1: f32[{f}]) -> (r0: {shape}){local} {{
 i0<{h} i1<{h} i2<{f} i3<{c} i4<3 i5<3: {name}[i0,i1,i2] += p0[i3,i0+i4-1,i1+i5-1]*0.5
   if i0+i4 >= 1 and i0+i4 < {h + 1} and i1+i5 >= 1 and i1+i5 < {h + 1}
{follow}
}}"""


def ranks(n: int, dtype: str, first: int) -> str:
    """Places in the order of the elements; of `first` only those come out."""
    t, j, i = ("t0" if first else "r0"), "p0[i0,i2]", "p0[i0,i1]"
    more, less = (
        (f"({a} > {b} or isnan({a}) and not(isnan({b})))" if dtype == "f32" else f"{a} > {b}")
        for a, b in ((j, i), (i, j))
    )
    local = f" local (t0: i64[2,{n}])" if first else ""
    follow = f" i0<2 i1<{n}: r0[i0,t0[i0,i1]] = i64(i1) if t0[i0,i1] < {first}" if first else ""
    return f"""kernel(p0: {dtype}[2,{n}]) -> (r0: i64[2,{first or n}]){local} {{
 i0<2 i1<{n} i2<{n}: {t}[i0,i1] += i64({more} or not({less}) and i2-i1 < 0)
{follow}
}}"""


def neighbours(pixels: int, channels: int, size: int, power: float) -> str:
    """Each element by a power of what lies around it in its row, as local response normalisation does."""
    shape, before = f"f32[{pixels},{channels}]", (size - 1) // 2
    return f"""kernel(p0: {shape}) -> (r0: {shape}) local (t0: {shape}, t1: {shape}) {{
      i0<{pixels} i1<{channels}: t0[i0,i1] = p0[i0,i1]*p0[i0,i1]
      i0<{pixels} i1<{channels} i2<{size}: t1[i0,i1] += t0[i0,i1+i2-{before}]
        if i1+i2 >= {before} and i1+i2 < {channels + before}
      i0<{pixels} i1<{channels}: r0[i0,i1] = p0[i0,i1]/pow(t1[i0,i1]*0.1+1.0, {power})
    }}"""


def small_products(batch: int, n: int, form: str) -> str:
    """Products of matrices that are smaller than a vector, as they lie or the second one transposed."""
    read = {"kn": "p1[i0,i3,i2]", "nk": "p1[i0,i2,i3]"}[form]
    shape = f"f32[{batch},{n},{n}]"
    return f"""kernel(p0: {shape}, p1: {shape}) -> (r0: {shape}) {{
 i0<{batch} i1<{n} i2<{n} i3<{n}: r0[i0,i1,i2] += p0[i0,i1,i3]*{read}
}}"""


def places(rows: int, terms: int, width: int, dtype: str) -> str:
    """Sums of rows, or of elements, of a tensor that data says, as far as they exist."""
    at = "i64(p1[i0,i2])"
    where = f"{at} >= 0 and {at} < 3"
    of, out = (f"f32[3,{width}]", f"f32[{rows},{width}]") if width else ("f32[3]", f"f32[{rows}]")
    axes, index, column = (f"i0<{rows} i1<{width}", "i0,i1", ",i1") if width else (f"i0<{rows}", "i0", "")
    return f"""kernel(p0: {of}, p1: {dtype}[{rows},{terms}], p2: f32[{rows},{terms}]) -> (r0: {out}) {{
 {axes} i2<{terms}: r0[{index}] += p0[{at}{column}]*p2[i0,i2] if {where}
}}"""


def several_factors(i: int, j: int, k: int) -> str:
    """Products of three matrices and of what they are divided by, which sums do not depend on."""
    return f"""kernel(p0: f32[{i},{j}], p1: f32[{j},{k}], p2: f32[{k},{i}], p3: f32[{i}]) -> (r0: f32[{i},{i}]) {{
 i0<{i} i1<{i} i2<{j} i3<{k}: r0[i0,i1] += 0.5*p0[i0,i2]*p1[i2,i3]*p2[i3,i1]/(p3[i1]*p3[i1]+1.0)
}}"""


def apart(c: int, n: int) -> str:
    """Windows of an image as rows of a matrix, by quotients and remainders."""
    return f"""kernel(p0: f32[{c},{n + 2},{n + 2}]) -> (r0: f32[{n * n},{c * 9}]) {{
 i0<{n * n} i1<{c * 9}: r0[i0,i1] = p0[i1//9,i0//{n}+i1 % 9//3,i0 % {n}+i1 % 3]
}}"""


KERNELS = (
    *(small_products(b, n, form) for b, n in ((3, 4), (5, 2), (2, 8), (2, 6)) for form in ("kn", "nk")),
    *(places(r, t, w, d) for r, t, w in ((3, 5, 16), (2, 40, 0), (3, 70, 0), (2, 3, 5)) for d in ("i32", "i64")),
    several_factors(6, 9, 20),
    apart(2, 4),
    *(neighbours(p, c, s, e) for p, c, s, e in ((3, 40, 5, 0.75), (2, 70, 2, -0.25), (4, 6, 5, 1.5), (1, 36, 3, 0.6))),
    *(equal_weights(h, c, f, to_result) for h, c, f in ((1, 1, 1), (9, 5, 16)) for to_result in (True, False)),
    *(conv(h, c, f, 1) for h, c, f in ((1, 1, 1), (5, 3, 7), (7, 16, 16), (4, 5, 33), (9, 8, 24), (14, 40, 48))),
    *(conv(h, c, f, 3, pad=1) for h, c, f in ((3, 1, 1), (5, 3, 7), (8, 16, 16), (13, 5, 33), (14, 40, 48))),
    *(conv(11, 6, 20, 3, stride, pad) for stride in (1, 2, 3) for pad in (0, 1, 2)),
    *(conv(13, 6, 20, 3, 1, pad, 2) for pad in (0, 2, 3)),
    conv(15, 3, 40, 7, 2, 3),
    conv(9, 4, 12, 5, 2, 2),
    *(blocked_groups(h, g, c, f) for h, g, c, f in ((3, 2, 1, 1), (5, 2, 3, 8), (5, 4, 2, 12), (4, 3, 5, 7))),
    grouped(6, 2, 3, 5),
    grouped(7, 4, 8, 16),
    grouped(5, 3, 4, 8),
    *(depthwise(h, c, stride) for h, c in ((5, 3), (8, 16), (9, 37)) for stride in (1, 2)),
    *(shuffled(c, g, f) for c, g, f in ((24, 4, 16), (24, 3, 5), (26, 4, 7))),
    *(pooling(h, c, k, s) for h, c, k, s in ((8, 32, 3, 1), (9, 19, 5, 2), (7, 16, 3, 2))),
    *(filtered(h, c, k, s) for h, c, k, s in ((8, 32, 3, 1), (9, 19, 5, 1), (7, 16, 3, 2))),
    *(planes(h, c, k) for h, c, k in ((33, 17, 3), (40, 2, 2), (9, 3, 3))),
    *(plane_gradients(h, c, k) for h, c, k in ((34, 3, 3), (41, 2, 2))),
    *(halved(h, c, mean) for h, c in ((50, 3), (9, 2)) for mean in (False, True)),
    *(across(r, c) for r, c in ((70, 37), (16, 16))),
    *(row_gradient(r, c) for r, c in ((5, 70), (3, 7))),
    *(
        matmul(m, n, k, t)
        for m, n, k in ((1, 1, 1), (1, 40, 33), (6, 16, 64), (7, 17, 9), (33, 50, 65))
        for t in (False, True)
    ),
    curve(40, "t0[i0,i1]*0.5*(1.0+erf(t0[i0,i1]*0.7071067811865476))"),
    curve(13, "1.0/(1.0+exp(0.0-t0[i0,i1]))"),
    *(softmax(r, c) for r, c in ((1, 1), (3, 7), (2, 130), (5, 64), (17, 33))),
    *(ranks(n, dtype, first) for n, first in ((20, 3), (40, 0), (41, 5)) for dtype in ("f32", "u8")),
)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_shapes_that_schedules_tell_apart(target: CTarget, cc: str, tmp_path: Path) -> None:
    kernels = [parse_kernel(text) for text in KERNELS]
    # What is tested is the text; optimising it well takes most of the time.
    compiled = Compiled(kernels, target, tmp_path, cc, (*STRICT, "-O0"))
    for n, kernel in enumerate(kernels):
        args = samples(kernel)
        for got, want in zip(compiled(n, args), run_kernel(kernel, args), strict=True):
            assert close(got, want), f"{KERNELS[n]}\n{compiled.functions[n].text}"


@pytest.mark.parametrize("cc", COMPILERS)
def test_stores_past_the_caches(cc: str, tmp_path: Path) -> None:
    target = replace(target_for("native"), past=1)
    texts = [softmax(3, n) for n in (128, 130, 133)] + [across(40, 48), halved(70, 2, mean=True), depthwise(9, 37, 1)]
    texts += ["kernel(f32[3,520], f32[3,520]) -> (f32[3,520]) { r0[i,j] = p0[i,j]+p0[i,j]*p1[i,j] }"]
    kernels = [parse_kernel(text) for text in texts]
    compiled = Compiled(kernels, target, tmp_path, cc, (*STRICT, "-O1"))
    for n, kernel in enumerate(kernels):
        args = samples(kernel)
        assert close(compiled(n, args)[0], run_kernel(kernel, args)[0]), compiled.functions[n].text
    assert ("dlc_store_past" in compiled.functions[0].text) == (target.vector_bytes >= 16)
    assert ("__builtin_prefetch" in compiled.functions[len(compiled.functions) - 1].text) == (target.vector_bytes >= 32)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_extremes_are_nan_where_an_operand_is(target: CTarget, cc: str, tmp_path: Path) -> None:
    edges = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-40], np.float32)
    a, b = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(edges, edges))
    results = "r0: f32[64], r1: f32[64], r2: f32[64], r3: f32[64]"
    text = f"""kernel(p0: f32[64], p1: f32[64]) -> ({results}) {{
 i<64: r0[i] = max(p0[i], p1[i])
 i<64: r1[i] = min(p0[i], p1[i])
 i<64: r2[i] = max(p0[i], 0.5)
 i<64: r3[i] = min(p0[i], 0.5)
}}"""
    got = Compiled([parse_kernel(text)], target, tmp_path, cc)(0, [a, b])
    half = np.float32(0.5)
    want = np.maximum(a, b), np.minimum(a, b), np.maximum(a, half), np.minimum(a, half)
    for x, y in zip(got, want, strict=True):
        assert np.array_equal(x, y, equal_nan=True)


def power(x: float, exponent: float) -> float:
    """As C's `pow`: numpy takes the root of a number for its power to a half."""
    if x == 0:
        return 0.0 if exponent > 0 else np.inf
    return np.nan if -np.inf < x < 0 else math.pow(x, exponent)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_powers_by_roots_are_those_of_every_number(target: CTarget, tmp_path: Path) -> None:
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, -2.0, 1.0, 3e38, 1e-38]
    values = np.array([*edges, *np.geomspace(1e-12, 1e12, 100)], np.float32)
    exponents = (0.25, 0.5, 0.75, 1.25, 1.5, -0.25, -0.5, -0.75)
    shape = f"f32[{len(values)}]"
    kernels = [parse_kernel(f"kernel(p0: {shape}) -> (r0: {shape}) {{ r0[i] = pow(p0[i], {e}) }}") for e in exponents]
    compiled = Compiled(kernels, target, tmp_path)
    for n, exponent in enumerate(exponents):
        (got,) = compiled(n, [values])
        want = np.array([power(float(v), exponent) for v in values]).astype(np.float32)
        assert np.allclose(got, want, rtol=4e-7, atol=0, equal_nan=True), exponent
        assert np.array_equal(np.signbit(got[:4]), np.signbit(want[:4])), exponent
        assert "pow" not in compiled.functions[n].text


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_curves_in_registers_are_as_good_as_elsewhere(target: CTarget, cc: str, tmp_path: Path) -> None:
    edges = [
        0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-40,
        -1e-30,
        88.7,
        88.8,
        90.0,
        -87.5,
        -103.0,
        -105.0,
        0.625,
        1.0,
        -1.0,
        4.5,
    ]
    values = np.concatenate([np.array(edges), np.linspace(-104, 89, 4000), np.linspace(-6, 6, 4080)]).astype(np.float32)
    kernels = [parse_kernel(curve(len(values), f"{name}(t0[i0,i1])")) for name in ("exp", "tanh", "erf", "abs")]
    compiled = Compiled(kernels, target, tmp_path, cc)
    args = [np.ones((1, 2), np.float32), np.stack([values, np.zeros_like(values)])]
    for n, kernel in enumerate(kernels):
        (got,), (want,) = compiled(n, args), run_kernel(kernel, args)
        assert np.allclose(got, want, rtol=3e-7, atol=1e-37, equal_nan=True), kernel


def remainders(n: int, columns: int) -> str:
    """The gradient of a convolution in steps of two: even and odd rows are products of their own."""
    half, of = (n + 1) // 2, f"f32[{n},{columns}]"
    inside = f"i0 % 2-i2*2 >= (-1) and i2+i0//2 <= {half - 1}"
    return f"""kernel(p0: f32[3,{columns}], p1: f32[{half}], p2: {of}) -> (r0: {of}) local (t0: {of}) {{
 i0<{n} i1<{columns} i2<2: t0[i0,i1] += p1[i0//2+i2]*p0[i0 % 2-i2*2+1,i1] if {inside}
 i0<{n} i1<{columns}: r0[i0,i1] = select(p2[i0,i1] > 0.0, t0[i0,i1], 0.0)
}}"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_a_result_may_overwrite_what_its_last_nest_reads(target: CTarget, tmp_path: Path) -> None:
    groups = """kernel(p0: f32[5,136], p1: f32[34,136], p2: f32[5,136]) -> (r0: f32[5,136]) local (t0: f32[5,136]) {
 i0<5 i1<4 i2<34 i3<34: t0[i0,i1*34+i2] += p0[i0,i1*34+i3]*p1[i3,i1*34+i2]
 i0<5 i1<136: r0[i0,i1] = max(t0[i0,i1]+p2[i0,i1], 0.0)
}"""
    products = [matmul(m, n, 9, False) for m in (1, 7) for n in (3, 8, 17, 39)]
    phases = [remainders(n, columns) for n in (1, 2, 7, 8, 21) for columns in (1, 19)]
    kernels = [parse_kernel(text) for text in (groups, *products, *phases)]
    # As the backend compiles such calls: without the promise that buffers are disjoint.
    compiled = Compiled(kernels, target, tmp_path, flags=(*STRICT, "-O1", "-Drestrict="))
    for n, kernel in enumerate(kernels):
        args = samples(kernel)
        assert close(compiled.over(n, args, 2), run_kernel(kernel, args)[0]), compiled.functions[n].text


@pytest.mark.parametrize("cc", COMPILERS)
def test_text_for_wider_vectors_compiles_without_a_warning(cc: str, tmp_path: Path) -> None:
    Compiled([parse_kernel(text) for text in KERNELS[::3]], X86_64_V4, tmp_path, cc, (*STRICT, "-O0"))


def test_portable_text_has_no_extension() -> None:
    texts = [c_function(parse_kernel(text), "f", GENERIC).text for text in KERNELS]
    assert not [t for t in texts if "__" in t or "f32x" in t]


@pytest.mark.parametrize("cc", COMPILERS)
def test_vectors_wider_than_the_processor_s(cc: str, tmp_path: Path) -> None:
    """Descriptions of other machines run anywhere: compilers break wide vectors into those that there are."""
    target = replace(X86_64_V4, flags=(*GENERIC.flags, "-Wno-psabi"))
    kernels = [parse_kernel(text) for text in KERNELS[::7]]
    compiled = Compiled(kernels, target, tmp_path, cc, (*STRICT, "-O0"))
    for n, kernel in enumerate(kernels):
        args = samples(kernel)
        for got, want in zip(compiled(n, args), run_kernel(kernel, args), strict=True):
            assert close(got, want), compiled.functions[n].text


def test_a_vector_across_lines_is_loaded_once_for_several_sums() -> None:
    """gcc loads what it multiplies from memory wherever an instruction can, although it is in a variable."""
    text = c_function(parse_kernel(plane_gradients(34, 3, 3)), "f", X86_64_V3).text
    assert text.count("dlc_kept_f32x8(") > 20
    assert "dlc_kept_f32x8(" not in c_function(parse_kernel(matmul(64, 64, 64, False)), "f", X86_64_V3).text
