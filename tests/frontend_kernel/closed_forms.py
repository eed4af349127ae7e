"""Gradients of the hard cases in closed form, worked out by hand: `(T, d, *element) → value`.

`T` holds the inputs by name and `d` is the gradient of the output. The first twenty are those that come with the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Tensors: TypeAlias = Mapping[str, Any]
Element: TypeAlias = (
    Callable[[Tensors, Any], Any]
    | Callable[[Tensors, Any, int], Any]
    | Callable[[Tensors, Any, int, int], Any]
    | Callable[[Tensors, Any, int, int, int], Any]
)
"""By the rank of the input."""


def closed_form(case: str, wrt: str, tensors: Tensors, seed: Array) -> Array:
    """The gradient with respect to one input, in double precision."""
    shape = np.shape(tensors[wrt])
    element: Callable[..., Any] = CLOSED_FORMS[case][wrt]
    found = np.zeros(shape)
    for z in np.ndindex(*shape):
        found[z] = element(tensors, seed, *z)
    return found


def _within(d: Array, *z: int) -> Any:
    """An element, or 0 outside."""
    return d[z] if all(0 <= k < n for k, n in zip(z, d.shape, strict=True)) else 0.0


def _even(d: Array, a: int, b: int, n: int) -> Any:
    return 0.0 if a % n or b % n else _within(d, a // n, b // n)


CLOSED_FORMS: Final[Mapping[str, Mapping[str, Element]]] = {
    "h01_stride": {"B": lambda T, d, z: _within(d, (z - 1) // 2) if z % 2 else 0.0},
    "h02_strided_conv": {
        "B": lambda T, d, z: sum(d[p] * T["C"][z - 2 * p] for p in range(4) if 0 <= z - 2 * p < 3),
        "C": lambda T, d, r: sum(d[p] * T["B"][2 * p + r] for p in range(4)),
    },
    "h03_dilated_conv": {
        "B": lambda T, d, z: sum(d[z - 2 * r] * T["C"][r] for r in range(3) if 0 <= z - 2 * r < 5),
        "C": lambda T, d, r: sum(d[p] * T["B"][p + 2 * r] for p in range(5)),
    },
    "h04_stride3_dilation2": {
        "B": lambda T, d, z: sum(d[p] * T["C"][r] for p in range(3) for r in range(3) if 3 * p + 2 * r == z),
        "C": lambda T, d, r: sum(d[p] * T["B"][3 * p + 2 * r] for p in range(3)),
    },
    "h05_upsample": {"B": lambda T, d, z: sum(d[3 * z + t] for t in range(3))},
    "h06_modulo": {"B": lambda T, d, z: sum(d[4 * q + z] for q in range(3))},
    "h07_ragged_upsample": {"B": lambda T, d, z: sum(_within(d, 3 * z + t) for t in range(3))},
    "h08_unequal_divisors": {"B": lambda T, d, a, b: sum(d[i] for i in (2 * a, 2 * a + 1) if i % 4 == b)},
    "h09_unflatten": {"B": lambda T, d, z: d[z // 4, z % 4]},
    "h10_unflatten_holes": {"B": lambda T, d, z: _within(d, z // 4, z % 4)},
    "h11_overlapping_frames": {"B": lambda T, d, z: sum(_within(d, i, z - 2 * i) for i in range(3))},
    "h12_diagonal": {"B": lambda T, d, a, b: d[a] if a == b else 0.0},
    "h13_diagonal_sum": {"B": lambda T, d, a, b, c: d[a] if b == c else 0.0},
    "h14_hankel": {"B": lambda T, d, z: sum(_within(d, i, z - i) for i in range(4))},
    "h15_toeplitz": {"B": lambda T, d, z: sum(_within(d, i, i + 4 - z) for i in range(4))},
    "h16_rank_one": {"B": lambda T, d, a, b: sum(_within(d, i, a - i) for i in range(3)) if a == b else 0.0},
    "h17_rotate45": {"B": lambda T, d, a, b: _even(d, a + b - 4, a - b + 4, 2)},
    "h18_det3": {"B": lambda T, d, a, b: _even(d, 2 * a - b, 2 * b - a, 3)},
    "h19_alias_product": {
        "B": lambda T, d, z: (d[z] * T["B"][z + 2] if z < 8 else 0.0) + (d[z - 2] * T["B"][z - 2] if z >= 2 else 0.0)
    },
    "h20_square": {
        "A": lambda T, d, a, b: (
            sum(d[a, j] * T["A"][b, j] for j in range(4)) + sum(d[i, b] * T["A"][i, a] for i in range(4))
        )
    },
    "h21_transpose_product": {
        "A": lambda T, d, a, b: 2 * d[a, b] * T["A"][a, b] * T["A"][b, a] + d[b, a] * T["A"][b, a] ** 2
    },
    "h22_quotient": {
        "B": lambda T, d, i, k: d[i] / T["C"][k],
        "C": lambda T, d, k: -sum(d[i] * T["B"][i, k] for i in range(4)) / T["C"][k] ** 2,
    },
    "h23_signs": {
        "B": lambda T, d, i: d[i] * (1 - T["C"][i]),
        "C": lambda T, d, i: d[i] * (1 - T["B"][i]),
        "D": lambda T, d, i: -d[i],
    },
    "h24_atomic_parentheses": {
        "B": lambda T, d, i: d[i] * sum(T["D"][k] for k in range(5)),
        "C": lambda T, d, i, k: d[i] * T["D"][k],
        "D": lambda T, d, k: sum(d[i] * (T["B"][i] + T["C"][i, k]) for i in range(4)),
    },
    "h25_per_term_sum": {"B": lambda T, d, i, k: d[i], "C": lambda T, d, i: d[i]},
    "h26_disjoint_reductions": {"B": lambda T, d, i, j: d[i], "C": lambda T, d, i, k: d[i]},
    "h27_scalar": {
        "alpha": lambda T, d: np.sum(d * T["B"]),
        "B": lambda T, d, i, j: T["alpha"] * d[i, j],
    },
    "h28_clipped_domain": {"B": lambda T, d, z: d[z - 1] if z >= 1 else 0.0},
    "h29_blur_square": {
        "B": lambda T, d, a, j: (_within(d, a, j) + 2 * _within(d, a - 1, j) * T["B"][a, j] + _within(d, a - 2, j)) / 3
    },
    "h30_pixel_shuffle": {"B": lambda T, d, a, b, e: d[a // 4, 2 * b + (a // 2) % 2, 2 * e + a % 2]},
    "h31_im2col": {
        "B": lambda T, d, a, b: sum(
            d[3 * (a - y) + b - x, 2 * y + x] for y in range(2) for x in range(2) if 0 <= a - y < 3 and 0 <= b - x < 3
        )
    },
    "h32_roll": {"B": lambda T, d, z: d[(z - 3) % 8]},
    "h33_circular_conv": {
        "B": lambda T, d, z: sum(d[(z - k) % 8] * T["C"][k] for k in range(3)),
        "C": lambda T, d, k: sum(d[i] * T["B"][(i + k) % 8] for i in range(8)),
    },
    "h34_radix3": {"B": lambda T, d, a, b, c: d[12 * a + 4 * b + c]},
    "h35_ragged_flatten": {"B": lambda T, d, a, b: _within(d, 4 * a + b)},
    "h36_avgpool_overlap": {
        "B": lambda T, d, z: sum(d[p] * T["U"][z - 2 * p] / 3 for p in range(4) if 0 <= z - 2 * p < 3),
        "U": lambda T, d, r: sum(d[p] * T["B"][2 * p + r] / 3 for p in range(4)),
    },
    "h37_redundant_slices": {
        "X": lambda T, d, n, s, z: 2 * d[n, s] * T["X"][n, s, z] * ((z == 2 * s) + (z == 0)),
        "Y": lambda T, d, t, z: -np.sum(d) if z == 0 else 0.0,
    },
    "h38_mttkrp": {
        "B": lambda T, d, i, k, m: sum(d[i, j] * T["C"][k, j] * T["D"][m, j] for j in range(5)),
        "C": lambda T, d, k, j: sum(d[i, j] * T["B"][i, k, m] * T["D"][m, j] for i in range(4) for m in range(2)),
        "D": lambda T, d, m, j: sum(d[i, j] * T["B"][i, k, m] * T["C"][k, j] for i in range(4) for k in range(3)),
    },
    "h39_broadcast_reduce_mix": {"B": lambda T, d, i, k: sum(2 * d[i, j, k] * T["B"][i, k] for j in range(2))},
    "h40_affine_modulo": {"B": lambda T, d, z: sum(d[i] for i in range(6) if (2 * i + 1) % 3 == z)},
}
