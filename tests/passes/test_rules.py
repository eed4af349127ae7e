"""Every equation of `simplify`: it applies where it should, and both sides have equal values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.api.rules import Rule
from dlc.base.report import Report
from dlc.base.types import bool_
from dlc.graph import Graph, Input, Op, evaluate, make_graph, verify
from dlc.passes.simplify import RULES, Simplify, apply_rules
from tests.passes.drawing import Draw
from tests.passes.rule_cases import CASES


def feeds(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        i.name: rng.normal(0, 2, i.shape).astype(i.dtype.numpy)
        if i.dtype.is_float
        else rng.integers(0, 2 if i.dtype is bool_ else 9, i.shape).astype(i.dtype.numpy)
        for i in graph.inputs
    }


def graph_of(op: Op) -> Graph:
    found = Graph((), (op,), ("y",))
    return make_graph([x for x in found.ops if isinstance(x, Input)], {"y": op})


def same_values(before: Graph, after: Graph, seed: int) -> None:
    assert verify(after) == ()
    given_ = feeds(before, seed)
    with np.errstate(all="ignore"):
        want, got = evaluate(before, given_)["y"], evaluate(after, given_)["y"]
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_every_rule_has_a_case_and_an_equation() -> None:
    assert sorted(CASES) == sorted(r.name for r in RULES)
    assert all("→" in r.equation for r in RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_both_sides_are_equal(rule: Rule) -> None:
    @settings(max_examples=10, deadline=None, database=None, derandomize=True)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        before = graph_of(CASES[rule.name](Draw(data)))
        report, seed = Report(), data.draw(st.integers(0, 99))
        after = apply_rules(before, [rule], report, fast=rule.fast)
        same_values(before, after, seed)
        same_values(before, Simplify(fast=rule.fast).run(before, Report()), seed)
        applied.append(report.counts.get(rule.name, 0))

    applied: list[int] = []
    check()
    assert sum(map(bool, applied)) * 2 >= len(applied), f"{rule.name} applied in {sum(map(bool, applied))} cases"


@pytest.mark.parametrize("rule", [r for r in RULES if not r.fast], ids=lambda r: r.name)
def test_special_values_survive_without_fast(rule: Rule) -> None:
    """NaN, infinities and zeros with their sign come out as they would have."""

    @settings(max_examples=15, deadline=None, database=None, derandomize=True)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        before = graph_of(CASES[rule.name](Draw(data)))
        after = apply_rules(before, [rule], Report())
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        special = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, *((-3e38,) if rule.name in ELEMENTWISE else ())]
        values = {
            k: rng.choice(np.array(special, v.dtype), v.shape) if v.dtype.kind == "f" else v
            for k, v in feeds(before, 0).items()
        }
        with np.errstate(all="ignore"):
            want, got = evaluate(before, values)["y"], evaluate(after, values)["y"]
        # As far as rounding goes: what is folded into weights is rounded elsewhere.
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=0 if rule.name in ELEMENTWISE else 1e-5)
        if rule.name not in ZERO_SIGN_IS_FREE:
            np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))

    check()


# What is summed or folded into weights may overflow elsewhere than it did, which is rounding of huge numbers.
ELEMENTWISE = {r.name for r in RULES[: [r.name for r in RULES].index("clip_of_clip") + 1]} - {"collect_constants"}
# min and max of zeros with different signs may be either; sums start at 0.0, so that the sum of -0.0 alone is 0.0,
# which numpy's own products and sums, used as the reference here, do not all know.
ZERO_SIGN_IS_FREE = {"bound", "clip_alone", "clip_of_clip", "idempotent", "constant_right", "with_itself"} | {
    "reduce_nothing",
    "pool_of_one",
    "zero_bias",
    "sum_plus_zero",
}
