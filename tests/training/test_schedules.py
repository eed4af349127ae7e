"""Learning-rate schedules against torch.optim.lr_scheduler, and clipping against torch.nn.utils."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as theirs

from dlc.base.types import DTYPES, Array, DType, Type, f32, f64, i64
from dlc.graph import Input, Op, evaluate_ops
from dlc.training.step.clip import clip_by_global_norm, global_norm
from dlc.training.step.optimizers import parse_optimizer
from dlc.training.step.schedules import Constant, Cosine, Schedule, Step, Warmup

BASE = 0.3
Make = Callable[[torch.optim.Optimizer], theirs.LRScheduler]


def after_warmup(steps: int, start: float, then: Make) -> Make:
    def make(o: torch.optim.Optimizer) -> theirs.LRScheduler:
        rising = theirs.LinearLR(o, start_factor=start, total_iters=steps)
        return theirs.SequentialLR(o, [rising, then(o)], milestones=[steps])

    return make


PAIRS: list[tuple[Schedule, Make, int]] = [
    (Constant(), lambda o: theirs.ConstantLR(o, factor=1.0), 50),
    (Step(), lambda o: theirs.StepLR(o, 30), 130),
    (Step(every=1, factor=0.9), lambda o: theirs.StepLR(o, 1, gamma=0.9), 60),
    (Step(every=7, factor=0.5), lambda o: theirs.StepLR(o, 7, gamma=0.5), 100),
    (Step(every=3, factor=0.0), lambda o: theirs.StepLR(o, 3, gamma=0.0), 9),
    (Cosine(steps=40), lambda o: theirs.CosineAnnealingLR(o, 40), 41),
    (Cosine(steps=1), lambda o: theirs.CosineAnnealingLR(o, 1), 2),
    (Cosine(steps=33, minimum=0.02), lambda o: theirs.CosineAnnealingLR(o, 33, eta_min=0.02), 34),
    (Warmup(), after_warmup(5, 1 / 3, lambda o: theirs.ConstantLR(o, factor=1.0)), 20),
    (Warmup(steps=1, start=0.5), after_warmup(1, 0.5, lambda o: theirs.ConstantLR(o, factor=1.0)), 5),
    (
        Warmup(steps=12, start=0.1, then=Cosine(steps=30, minimum=0.01)),
        after_warmup(12, 0.1, lambda o: theirs.CosineAnnealingLR(o, 30, eta_min=0.01)),
        43,
    ),
    (
        Warmup(steps=9, start=1.0, then=Step(every=4, factor=0.25)),
        after_warmup(9, 1.0, lambda o: theirs.StepLR(o, 4, gamma=0.25)),
        40,
    ),
]


def rates(schedule: Schedule, steps: list[int], dtype: DType, base: float = BASE) -> list[float]:
    step = Input("step", Type(i64, ()), "state")
    rate = schedule.rate(step, base, dtype)
    assert rate.type == Type(dtype, ())
    return [float(evaluate_ops((rate,), {step: np.asarray(t)})[0]) for t in steps]


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize(("dtype", "most"), [(f64, 1e-13), (f32, 1e-6)], ids=["f64", "f32"])
@pytest.mark.parametrize(("schedule", "make", "steps"), PAIRS, ids=[str(s) for s, _, _ in PAIRS])
def test_rates_are_those_of_torch(schedule: Schedule, make: Make, steps: int, dtype: DType, most: float) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    scheduler = make(optimizer)
    want: list[float] = []
    for _ in range(steps):
        want.append(float(optimizer.param_groups[0]["lr"]))
        cast("Any", optimizer).step()
        scheduler.step()
    np.testing.assert_allclose(rates(schedule, list(range(1, steps + 1)), dtype), want, rtol=most, atol=1e-16)


def test_a_cosine_ends_at_its_minimum_and_stays() -> None:
    found = rates(Cosine(steps=10, minimum=0.05), [10, 11, 12, 1000, 2**40], f32)
    assert found[0] > found[1]
    assert found[1:] == [float(np.float32(0.05))] * 4
    assert rates(Cosine(steps=10), [11, 99], f64) == [0.0, 0.0]


def test_the_end_of_a_long_cosine_is_exact_in_single_precision() -> None:
    """Where 1 + cos would lose all digits."""
    steps = 1_000_000
    for t in (1, 500_000, 999_900, 999_999, 1_000_000):
        want = BASE * math.sin(math.pi / 2 * (steps - (t - 1)) / steps) ** 2
        assert rates(Cosine(steps=steps), [t], f32)[0] == pytest.approx(want, rel=1e-6)


def test_a_schedule_is_an_option_of_the_optimizer() -> None:
    found = parse_optimizer("sgd{lr=0.5 schedule=warmup{steps=2 start=0.5 then=step{every=1 factor=0.1}}}")
    step = Input("step", Type(i64, ()), "state")
    got = [float(evaluate_ops((found.rate(step),), {step: np.asarray(t)})[0]) for t in (1, 2, 3, 4)]
    assert got == pytest.approx([0.25, 0.375, 0.5, 0.05], rel=1e-6)
    assert parse_optimizer(str(found)) == found
    assert parse_optimizer("sgd{schedule=constant}") == parse_optimizer("sgd")


SHAPES = ((3, 4), (5,), (), (2, 1, 3))
CASES: dict[str, Callable[[Array], Array]] = {
    "large": lambda x: x * 100,
    "small": lambda x: x * 1e-3,
    "zero": lambda x: x * 0,
    "tiny": lambda x: x * 1e-30,
    "inf": lambda x: np.where(x == x.max(), np.inf, x),
    "minus inf": lambda x: np.where(x == x.min(), -np.inf, x),
    "nan": lambda x: np.where(x == x.max(), np.nan, x),
    "overflow": lambda x: x * 1e25,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("limit", [0.5, 1e4])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_clipping_is_that_of_torch(case: str, limit: float, dtype: str) -> None:
    of = DTYPES[dtype]
    random = np.random.default_rng(8)
    values = [random.standard_normal(s) for s in SHAPES]
    scale = CASES[case]
    whole = case not in ("inf", "minus inf", "nan")
    arrays = [np.asarray(scale(v) if whole or k == 0 else v, of.numpy) for k, v in enumerate(values)]
    inputs = [Input(f"g{k}", Type(of, a.shape)) for k, a in enumerate(arrays)]
    clipped, norm = clip_by_global_norm(inputs, limit)
    known: dict[Op, Array] = dict(zip(inputs, arrays, strict=True))
    *got, total = evaluate_ops((*clipped, norm), known)
    parameters = [torch.nn.Parameter(torch.zeros(a.shape, dtype=getattr(torch, of.numpy.name))) for a in arrays]
    for p, a in zip(parameters, arrays, strict=True):
        p.grad = torch.tensor(a)
    want = torch.nn.utils.clip_grad_norm_(parameters, limit).numpy()
    most = 1e-6 if of == f32 else 1e-13
    np.testing.assert_allclose(total, want, rtol=most)
    for g, p in zip(got, parameters, strict=True):
        assert p.grad is not None
        np.testing.assert_allclose(g, p.grad.numpy(), rtol=most)


def test_narrow_gradients_are_measured_in_single_precision() -> None:
    g = Input("g", Type(DTYPES["f16"], (2,)))
    clipped, norm = clip_by_global_norm((g,), 5.0)
    got, total = evaluate_ops((*clipped, norm), {g: np.asarray([3000, 4000], np.float16)})
    assert got.tolist() == [3, 4]
    assert total == np.float32(5000)
    assert global_norm((g, Input("h", Type(f64, ())))).dtype == f64


@pytest.mark.parametrize(("count", "limit"), [(0, 1.0), (1, 0.0), (1, -1.0), (1, math.nan)])
def test_what_cannot_be_clipped_is_an_error(count: int, limit: float) -> None:
    with pytest.raises(ValueError, match="cannot be clipped"):
        clip_by_global_norm([Input("g", Type(f32, (2,)))] * count, limit)
