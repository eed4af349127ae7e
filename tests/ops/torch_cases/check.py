"""The comparison of one case."""

from __future__ import annotations

import numpy as np

from tests.ops.torch_cases.case import Case, asked, by_dlc, by_torch, imported


def check(case: Case) -> None:
    assert asked(case), "nothing to differentiate"
    rng = np.random.default_rng(3)
    floats = [y.type for y in imported(case).outputs if y.dtype.is_float]
    seeds = [np.asarray(rng.uniform(0.5, 2, t.shape) * rng.choice([-1, 1], t.shape), t.dtype.numpy) for t in floats]
    if case.chosen:
        seeds = [np.ones_like(s) for s in seeds]
    values, found = by_dlc(case, seeds)
    expected_values, expected = by_torch(case, seeds)
    expected |= {f"x{k}": a for k, a in case.chosen.items()}
    for a, b in zip(values, expected_values, strict=True):
        np.testing.assert_allclose(a, b, rtol=case.rtol, atol=case.atol, err_msg="value")
    assert set(found) == set(asked(case))
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=case.rtol, atol=case.atol, err_msg=f"d{name}")
