"""Functions of numpy as one writes them, of x, y: f32[3,4], v: f32[4], k: i64[3,4] in 0..3, u: u8[3,4], b: bool[3,4].

Each runs undecorated on numpy arrays, which is what the traced ones are compared with.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import dlc

FUNCTIONS: dict[str, Callable[[Any, Any, Any, Any, Any, Any], Any]] = {
    "arithmetic": lambda x, y, v, k, u, b: (x + y * 2 - v) / (np.abs(y) + 1) - 3 * x**2,
    "numbers keep the type": lambda x, y, v, k, u, b: (x * 2.5 + 1 - np.float32(0.5)) * np.pi,
    "integers divide as floats": lambda x, y, v, k, u, b: (k / 2, k // 2, k % 3, -k // 2, (-k) % 3, u // 3, u + 1),
    "floats divide down": lambda x, y, v, k, u, b: (x // 0.3, x % 0.3, np.fmod(x, 0.3)),
    "powers": lambda x, y, v, k, u, b: (x**2, np.abs(x) ** 0.5, np.abs(x) ** 1.5, k**2, 2.0**x, np.abs(x) ** v),
    "types mix": lambda x, y, v, k, u, b: (x + k, u + k, b + k, b * x, u * x, x + np.float64(1), k + 1.5),
    "logarithms": lambda x, y, v, k, u, b: [
        f(np.abs(x) + np.float32(0.1)) for f in (np.log, np.log2, np.log10, np.log1p)
    ],
    "exponentials": lambda x, y, v, k, u, b: [np.exp(x), np.exp2(x), np.expm1(x * np.float32(1e-3)), np.expm1(3 * x)],
    "trigonometry": lambda x, y, v, k, u, b: [
        *(f(x) for f in (np.sin, np.cos, np.tan, np.arctan, np.sinh, np.cosh, np.tanh, np.arcsinh)),
        *(f(np.tanh(x)) for f in (np.arcsin, np.arccos, np.arctanh)),
    ],
    "rounding": lambda x, y, v, k, u, b: [f(x * 3) for f in (np.floor, np.ceil, np.rint, np.trunc, np.sign)],
    "rounding of integers": lambda x, y, v, k, u, b: [f(k) for f in (np.floor, np.ceil, np.trunc, np.square, np.abs)],
    "extremes": lambda x, y, v, k, u, b: (np.maximum(x, v), np.minimum(x, 0), np.clip(x, -0.5, 0.5), x.clip(min=0)),
    "comparisons": lambda x, y, v, k, u, b: (x < y, x >= 0, k == 1, k != 2, (x > 0) & (y > 0), ~b, b | (x > 0), b ^ b),
    "comparisons of booleans": lambda x, y, v, k, u, b: (b == (x > 0), b != (x > 0), b < (x > 0), b >= (x > 0)),
    "bits": lambda x, y, v, k, u, b: (k & 1, k | 4, k ^ 3, ~k, u & 6),
    "not finite": lambda x, y, v, k, u, b: [f(np.where(x > 0, x, np.inf)) for f in (np.isinf, np.isnan, np.isfinite)],
    "sums": lambda x, y, v, k, u, b: (x.sum(), x.sum(0), x.sum(axis=-1, keepdims=True), k.sum(), u.sum(0), b.sum()),
    "means": lambda x, y, v, k, u, b: (x.mean(), x.mean(1), k.mean(0), np.var(x, 1), x.std(0, ddof=1), np.prod(x, 1)),
    "largest": lambda x, y, v, k, u, b: (
        x.max(),
        x.min(0),
        k.max(1),
        x.argmax(),
        x.argmin(1),
        b.any(0),
        b.all(),
        b.max(),
    ),
    "running": lambda x, y, v, k, u, b: (np.cumsum(x, 1), np.cumsum(k), np.cumprod(x, axis=0)),
    "products": lambda x, y, v, k, u, b: (x @ y.T, x @ v, v @ v, np.dot(x, v), np.outer(v, v), np.inner(x, y)),
    "einsum": lambda x, y, v, k, u, b: (
        np.einsum("ij,kj->ik", x, y),
        np.einsum("ij,j", x, v),
        np.tensordot(x, y, ([0], [0])),
        np.tensordot(x, y, 2),
    ),
    "slices": lambda x, y, v, k, u, b: (
        x[1],
        x[:, 2],
        x[1:, ::2],
        x[..., -1],
        x[::-1],
        x[:, None, 1:3],
        x[2, 3],
        x[-1, -2:],
    ),
    "gathers": lambda x, y, v, k, u, b: (
        v[k],
        x[:, k[0]],
        x[np.array([0, -1])],
        x[k[:, 0] % 3, k[:, 1]],
        x[k[0] % 3, 1],
        np.take(x, k[1], axis=1),
        np.take_along_axis(x, k, axis=1),
        x[[True, False, True]],
    ),
    "shapes": lambda x, y, v, k, u, b: (
        x.reshape(4, 3),
        x.reshape(-1, 2),
        x.T,
        x.ravel(),
        np.swapaxes(x[None], 0, 2),
        np.moveaxis(x[None], 0, -1),
        np.expand_dims(x, (0, 2)),
        np.squeeze(x[:, None]),
        np.broadcast_to(v, (2, 4)),
        x.flatten().astype(np.float64),
        x.transpose(1, 0),
    ),
    "joined": lambda x, y, v, k, u, b: (
        np.concatenate([x, y], 1),
        np.concatenate([x, k], 0),
        np.stack([v, v + 1]),
        np.stack([v, v], axis=-1),
        np.vstack([x, v]),
        np.hstack([v, v]),
        *np.split(x, 2, axis=1),
        np.tile(v, (2, 2)),
        np.repeat(x, 2, axis=1),
        np.flip(x, 1),
        np.pad(x, ((1, 0), (0, 2))),
    ),
    "chosen": lambda x, y, v, k, u, b: (
        np.where(x > 0, x, y),
        np.where(b, 1.5, x),
        np.where(k, k, 7),
        np.triu(x),
        np.tril(x, -1),
        np.zeros_like(x) + v,
        np.ones_like(k),
        np.full_like(x, 3),
        np.round(x, 1),
    ),
    "rows": lambda x, y, v, k, u, b: sum(row * (n + 1) for n, row in enumerate(x)),
    "softmax": lambda x, y, v, k, u, b: (dlc.nn.softmax(x), dlc.nn.log_softmax(x, 0), dlc.nn.logsumexp(x, 1)),
    "activations": lambda x, y, v, k, u, b: [
        f(x) for f in (dlc.nn.relu, dlc.nn.sigmoid, dlc.nn.silu, dlc.nn.gelu, dlc.nn.elu, dlc.nn.softplus, dlc.nn.erf)
    ],
    "layers": lambda x, y, v, k, u, b: (
        dlc.nn.layer_norm(x, v, v),
        dlc.nn.cross_entropy(x, k[:, 0]),
        dlc.nn.one_hot(k, 4),
        dlc.nn.max_pool(x[None, None], 2),
        dlc.nn.average_pool(x[None, None], (2, 2), stride=1),
        dlc.nn.conv(x[None, None], y[None, None, :2, :2], v[:1], pads=1),
    ),
}
