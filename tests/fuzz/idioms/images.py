"""Idioms of networks for images: values [N, C, H, W]."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.fuzz.idioms.norms import image_norm
from tests.fuzz.idioms.weaver import Weaver
from tests.fuzz.sizes import Refused, Size, least
from tests.fuzz.values import Value

WIDTHS: Final = (3, 4, 6, 8, 8, 12, 16)


def _known(*sizes: int) -> None:
    if any(isinstance(e, Size) for e in sizes):
        raise Refused("a size that a call tells")


def _room(x: Value, least_size: int) -> None:
    if min(map(least, x.shape[2:])) < least_size:
        raise Refused("too small an image")


def conv_norm(m: Weaver, x: Value) -> Value:
    """Convolution, norm, activation."""
    stride = 2 if m.chance(0.2) and min(map(least, x.shape[2:])) > 5 else 1
    y = m.conv(x, m.one(*WIDTHS), m.one(1, 3, 3, 5), stride, bias=m.chance(0.5))
    return m.activation(image_norm(m, y))


def residual(m: Weaver, x: Value) -> Value:
    """The block of ResNet, with a projection where the shape changes; before or after its norms."""
    c = x.shape[1]
    down = m.chance(0.3) and min(map(least, x.shape[2:])) > 4
    out = m.one(*WIDTHS) if down else c
    if m.chance(0.25):  # pre-activation
        y = m.node("Relu", m.batch_norm(x))
        y = m.conv(y, c, 3)
        y = m.conv(m.node("Relu", m.batch_norm(y)), c, 3)
        return m.node("Add", x, y)
    y = m.node("Relu", m.batch_norm(m.conv(x, out, 3, 2 if down else 1, bias=False)))
    y = m.batch_norm(m.conv(y, out, 3, bias=False))
    past = m.batch_norm(m.conv(x, out, 1, 2, bias=False)) if down else x
    pair = (y, past) if m.chance(0.6) else (past, y)
    return m.node("Relu", m.node("Add", *pair))


def bottleneck(m: Weaver, x: Value) -> Value:
    """ResNeXt: 1 x 1, grouped 3 x 3, 1 x 1."""
    c = x.shape[1]
    inner, groups = m.one((4, 2), (8, 4), (4, 1), (6, 3))
    y = m.activation(image_norm(m, m.conv(x, inner, 1)))
    y = m.activation(image_norm(m, m.conv(y, inner, 3, groups=groups, dilation=m.one(1, 1, 2))))
    return m.activation(m.node("Add", image_norm(m, m.conv(y, c, 1)), x))


def squeeze_excite(m: Weaver, x: Value) -> Value:
    """Channels weighted by what their means give."""
    c = x.shape[1]
    inner = max(1, c // m.one(2, 4))
    match m.random.randrange(3):
        case 0:
            s = m.mean(x, 2, 3)
            s = m.conv(m.activation(m.conv(s, inner, 1)), c, 1)
        case 1:
            s = m.node("GlobalAveragePool", x)
            s = m.conv(m.node("Relu", m.conv(s, inner, 1)), c, 1)
        case _:
            s = m.node("Flatten", m.node("GlobalAveragePool", x), axis=1)
            s = m.linear(m.node("Relu", m.linear(s, inner)), c)
            s = m.unsqueeze(s, 2, 3) if m.chance(0.5) else m.reshape(s, x.shape[0], c, 1, 1)
    gate = m.node(m.one("Sigmoid", "HardSigmoid"), s)
    return m.node("Mul", *((gate, x) if m.chance(0.5) else (x, gate)))


def inverted_residual(m: Weaver, x: Value) -> Value:
    """MobileNet and EfficientNet: up, by channel, excite, down."""
    c = x.shape[1]
    wide = c * m.one(2, 3)
    y = m.activation(m.batch_norm(m.conv(x, wide, 1, bias=False)))
    y = m.activation(m.batch_norm(m.conv(y, wide, m.one(3, 5), groups=wide, bias=False)))
    if m.chance(0.5):
        y = squeeze_excite(m, y)
    return m.node("Add", x, m.batch_norm(m.conv(y, c, 1, bias=False)))


def separable(m: Weaver, x: Value) -> Value:
    """A convolution by channel and one of 1 x 1; or the block of ConvNeXt, which has channels last in between."""
    c = x.shape[1]
    y = m.conv(x, c, m.one(3, 5, 7), groups=c)
    if m.chance(0.5):
        return m.activation(image_norm(m, m.conv(y, m.one(*WIDTHS), 1)))
    y = m.transpose(y, 0, 2, 3, 1)
    y = m.linear(m.activation(m.linear(y, 2 * c)), c)
    y = m.node("Mul", y, m.weight_of(c, near=1.0))
    return m.node("Add", x, m.transpose(y, 0, 3, 1, 2))


def shuffle(m: Weaver, x: Value) -> Value:
    """ShuffleNet: halves, one of them through a branch, joined, channels interleaved."""
    n, c, h, w = x.shape
    a, b = m.split(x, 2, 1)
    b = m.node("Relu", m.batch_norm(m.conv(b, c // 2, 1)))
    b = m.batch_norm(m.conv(b, c // 2, 3, groups=c // 2))
    y = m.node("Concat", a, b, axis=1)
    y = m.transpose(m.reshape(y, n, 2, c // 2, h, w), 0, 2, 1, 3, 4)
    return m.reshape(y, n, c, h, w)


def pixel_shuffle(m: Weaver, x: Value) -> Value:
    """Channels become pixels, by the operator or by its parts."""
    n, _, h, w = x.shape
    out = m.one(2, 3)
    y = m.conv(x, 4 * out, 3)
    if m.chance(0.5):
        return m.node("DepthToSpace", y, blocksize=2, mode=m.one("CRD", "DCR"))
    y = m.transpose(m.reshape(y, n, out, 2, 2, h, w), 0, 1, 4, 2, 5, 3)
    return m.reshape(y, n, out, 2 * h, 2 * w)


def space_to_depth(m: Weaver, x: Value) -> Value:
    """Pixels become channels: the operator, or four slices that are joined (the focus of YOLO)."""
    _known(*x.shape[2:])
    if any(e % 2 for e in x.shape[2:]):
        raise Refused("an odd image")
    if m.chance(0.4):
        return m.conv(m.node("SpaceToDepth", x, blocksize=2), x.shape[1], 1)
    parts = [m.cut(m.cut(x, 2, a, x.shape[2], 2), 3, b, x.shape[3], 2) for b in (0, 1) for a in (0, 1)]
    return m.conv(m.node("Concat", *parts, axis=1), x.shape[1], m.one(1, 3))


def resized(m: Weaver, x: Value, like: Value | None = None) -> Value:
    """Twice the size, or that of another value, computed as exporters do it."""
    mode, way = m.one(("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners"))
    figures: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        figures["nearest_mode"] = "floor"
    elif m.chance(0.1):
        figures["mode"] = "cubic"
    empty = m.constant(np.zeros(0, np.float32)) if m.opset < 13 or m.chance(0.5) else None
    if like is None and m.chance(0.6) and way != "align_corners":
        scales = m.constant(np.array([1, 1, 2, 2], np.float32))
        return m.node("Resize", x, empty, scales, **figures)
    high, wide = like.shape[2:] if like is not None else (2 * x.shape[2], 2 * x.shape[3])
    none = m.constant(np.zeros(0, np.float32)) if m.opset < 13 else None
    if like is not None and m.chance(0.4):
        tail = m.cut(m.node("Shape", like), 0, 2, 4)
        sizes = m.node("Concat", m.cut(m.node("Shape", x), 0, 0, 2), tail, axis=0)
    else:
        sizes = m.ints(*x.shape[:2], high, wide)
    return m.node("Resize", x, empty, none, sizes, **figures)


def transposed_conv(m: Weaver, x: Value, out: int) -> Value:
    """Twice the size."""
    c = x.shape[1]
    kernel, pads = m.one((2, 0), (4, 1))
    w = m.weight_of(c, out, kernel, kernel, fan=c * kernel)
    figures: dict[str, Any] = {"strides": [2, 2], "kernel_shape": [kernel] * 2, "pads": [pads] * 4}
    if m.chance(0.3):
        w = m.weight_of(c, out, 3, 3, fan=4 * c)
        figures = {"strides": [2, 2], "kernel_shape": [3, 3], "pads": [1] * 4, "output_padding": [1, 1]}
    return m.node("ConvTranspose", x, w, *([m.weight_of(out)] if m.chance(0.6) else []), **figures)


def u_net(m: Weaver, x: Value) -> Value:
    """Down, a few layers, up, beside what was there before."""
    _room(x, 4)
    c = x.shape[1]
    y = pooled(m, x) if m.chance(0.5) else m.conv(x, c, 3, 2)
    y = m.activation(image_norm(m, m.conv(y, c, 3)))
    even = not any(isinstance(e, Size) or e % 2 for e in x.shape[2:])
    up = transposed_conv(m, y, c) if even and m.chance(0.5) and y.shape[2] * 2 == x.shape[2] else resized(m, y, x)
    y = m.node("Concat", *((up, x) if m.chance(0.5) else (x, up)), axis=1)
    return m.activation(m.conv(y, c, 3))


def pyramid(m: Weaver, x: Value) -> Value:
    """Feature pyramid: levels of halved size, each added to the larger one; all levels may be outputs."""
    _room(x, 6)
    c = m.one(4, 6)
    one = m.node("Relu", m.conv(x, c, 3, 2))
    two = m.node("Relu", m.conv(one, c, 3, 2))
    lateral = [m.conv(v, c, 1) for v in (x, one, two)]
    middle = m.node("Add", lateral[1], resized(m, lateral[2], lateral[1]))
    top = m.node("Add", lateral[0], resized(m, middle, lateral[0]))
    if m.chance(0.3):
        m.also += [m.conv(middle, c, 3)]
    return m.conv(top, c, 3)


def pooled(m: Weaver, x: Value) -> Value:
    """Half the size."""
    kernel = m.one(2, 2, 3)
    figures: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [2, 2]}
    if kernel == 3:
        figures["pads"] = [1, 1, 1, 1]
    if m.chance(0.25):
        figures["ceil_mode"] = 1
    op = m.one("MaxPool", "MaxPool", "AveragePool")
    if op == "AveragePool" and kernel == 3:
        figures["count_include_pad"] = m.one(0, 1)
    if op == "AveragePool" and m.opset < 19 and "ceil_mode" in figures:
        del figures["ceil_mode"]  # onnxruntime divides by what lies outside
    return m.node(op, x, **figures)


def pools(m: Weaver, x: Value) -> Value:
    """Any pool: windows that keep the size, of halved size, of both kinds together."""
    _room(x, 3)
    match m.random.randrange(4):
        case 0:
            return pooled(m, x)
        case 1:
            a, b = (m.node(op, x, kernel_shape=[3, 3], pads=[1] * 4) for op in ("MaxPool", "AveragePool"))
            return m.node("Add", a, b)
        case 2:
            return m.node("LpPool", x, kernel_shape=[2, 2], strides=[2, 2], p=2)
        case _:
            return m.node("Sub", m.node("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4), x)  # PoolFormer


def spatial_pyramid_pool(m: Weaver, x: Value) -> Value:
    """YOLO's: the same pool three times, all of it joined."""
    c = x.shape[1]
    y = m.activation(m.conv(x, max(2, c // 2), 1))
    parts = [y]
    for _ in range(3):
        parts.append(m.node("MaxPool", parts[-1], kernel_shape=[5, 5], pads=[2] * 4))
    return m.activation(m.conv(m.node("Concat", *parts, axis=1), c, 1))


def inception(m: Weaver, x: Value) -> Value:
    """Branches side by side."""
    parts = [m.node("Relu", m.conv(x, m.one(2, 4), 1))]
    parts.append(m.node("Relu", m.conv(m.node("Relu", m.conv(x, 3, 1)), m.one(2, 4), m.one(3, 5))))
    parts.append(m.conv(m.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), 2, 1))
    if m.chance(0.4):
        parts.append(x)
    m.random.shuffle(parts)
    return m.node("Concat", *parts, axis=1)


def dense_block(m: Weaver, x: Value) -> Value:
    """DenseNet: every layer reads all before it."""
    parts = [x]
    for _ in range(m.one(2, 3)):
        y = m.node("Concat", *parts, axis=1) if len(parts) > 1 else x
        parts.append(m.conv(m.node("Relu", m.batch_norm(y)), m.one(2, 4), 3, bias=False))
    return m.conv(m.node("Concat", *parts, axis=1), x.shape[1], 1)


def spatial_gate(m: Weaver, x: Value) -> Value:
    """CBAM: pixels weighted by the largest and the mean channel."""
    y = m.node("Concat", m.axes("ReduceMax", x, 1, keepdims=1), m.mean(x, 1), axis=1)
    return m.node("Mul", x, m.node("Sigmoid", m.conv(y, 1, m.one(3, 7))))


def padded_conv(m: Weaver, x: Value) -> Value:
    """Reflected or repeated borders, then a convolution without any."""
    _room(x, 3)
    y = m.node("Pad", x, m.ints_of(0, 0, 1, 1, 0, 0, 1, 1), mode=m.one("reflect", "edge", "constant"))
    c = x.shape[1]
    return m.activation(m.node("Conv", y, m.weight_of(c, c, 3, 3, fan=9 * c), m.weight_of(c)))


def coordinates(m: Weaver, x: Value) -> Value:
    """CoordConv: rows and columns as channels."""
    n, c, h, w = x.shape
    _known(n, h, w)
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, h), np.linspace(-1, 1, w), indexing="ij")).astype(np.float32)
    y = m.node("Expand", m.constant(grid[None]), m.ints(n, 2, h, w))
    return m.conv(m.node("Concat", x, y, axis=1), c, 1)


def non_local(m: Weaver, x: Value) -> Value:
    """Self-attention of pixels."""
    n, c, h, w = x.shape
    _known(h, w)
    inner = max(2, c // 2)
    q, k, v = (m.reshape(m.conv(x, inner, 1), n, inner, h * w) for _ in range(3))
    a = m.softmax(m.node("MatMul", m.transpose(q, 0, 2, 1), k))
    y = m.node("MatMul", v, m.transpose(a, 0, 2, 1))
    y = m.conv(m.reshape(y, n, inner, h, w), c, 1)
    return m.node("Add", m.node("Mul", m.weight_of(1), y), x)


def spatial_transformer(m: Weaver, x: Value) -> Value:
    """Sampled at moved places."""
    n, _, h, w = x.shape
    _known(n, h, w)
    if m.opset < 16:
        raise Refused("no such operator")
    rows, columns = np.meshgrid(np.linspace(-0.9, 0.9, h), np.linspace(-0.9, 0.9, w), indexing="ij")
    grid = m.constant(np.broadcast_to(np.stack([columns, rows], -1), (n, h, w, 2)).astype(np.float32))
    move = m.transpose(m.node("Tanh", m.conv(x, 2, 3)), 0, 2, 3, 1)
    place = m.node("Add", grid, m.node("Mul", move, m.number(0.1)))
    mode = m.one("bilinear", "nearest") if m.opset < 20 else m.one("linear", "nearest")
    figures: dict[str, Any] = {"padding_mode": m.one("zeros", "border"), "align_corners": m.one(0, 1)}
    return m.node("GridSample", x, place, mode=mode, **figures)


IMAGES: Final = (
    *((4, conv_norm), (5, residual), (3, bottleneck), (2, squeeze_excite), (4, inverted_residual), (3, separable)),
    *((2, shuffle), (1, pixel_shuffle), (2, space_to_depth), (3, u_net), (2, pyramid), (2, pools), (1, inception)),
    *((1, spatial_pyramid_pool), (1, dense_block), (1, spatial_gate), (1, padded_conv), (1, coordinates)),
    *((1, non_local), (1, spatial_transformer), (1, resized), (2, image_norm)),
)
