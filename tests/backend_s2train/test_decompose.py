"""Products that the array does not have, as sums of those that it has: against whole ones by PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_s2train.decompose.blocks import Block, Taps, assembled, blocks, illegal, misfit
from dlc_backend_s2train.decompose.kernels import product
from dlc_backend_s2train.decompose.s2_decompose import S2Decompose
from dlc_backend_s2train.program import Geometry
from dlc_backend_s2train.simulator.operands import Mode
from dlc_backend_s2train.simulator.products import bound
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc import Report
from dlc.graph import Graph
from tests.backend_s2train.products_by_hand import (
    Doubles,
    evaluated,
    exact,
    operands,
    rectangular,
    simulated,
    square,
    three,
)

SHAPES = {
    "5x5": square(5),
    "7x7 stride 2": square(7, 2),
    "11x11 stride 4": square(11, 4, size=23, pad=2),
    "dilated 3x3": square(3, dilation=2),
    "1x7": rectangular((1, 7)),
    "7x1": rectangular((7, 1)),
    "grouped 5x5": rectangular((5, 5), groups=2),
    "4x4 stride 2": square(4, 2),
    "3x3 stride 3": square(3, 3),
    "5x5 stride 2 x 1": rectangular((5, 5), (2, 1)),
    "3x3 stride 3 dilation 2": square(3, 3, 2),
    "5x5 stride 4 dilation 2": square(5, 4, 2),
    "7x7 over one pixel": square(7, size=1),
    "7x7 over two pixels, stride 2": square(7, 2, size=2),
    "7x1 over two rows": rectangular((7, 1), size=2),
}
every_shape = pytest.mark.parametrize("g", SHAPES.values(), ids=list(SHAPES))


def decomposed(g: Geometry, given: Doubles, report: Report | None = None) -> Graph:
    return S2Decompose().run(three(g, given["w"]), report or Report())


def check_exact(g: Geometry) -> None:
    """All stages of a product and of its parts; integers, of which every sum is exact, so that no bit may differ."""
    given = operands(g, integers=True)
    graph = decomposed(g, given)
    parts = [found for op in graph.ops if (found := product(op)) is not None]
    assert 0 < len(parts) <= 3 * len(blocks(g))  # parts that only meet padding may be one op
    assert all(illegal(part) is None and misfit(part) is None for part in parts)
    found = assembled(evaluated(graph, given))
    for name, wanted in exact(g, given).items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)


@every_shape
def test_all_stages_are_exact_in_double_precision(g: Geometry) -> None:
    check_exact(g)
    assert illegal(g) is not None


axes = st.tuples(st.integers(1, 7), st.integers(1, 5), st.integers(1, 4))


@settings(max_examples=60)
@given(rows=axes, columns=axes, more=st.tuples(*[st.integers(0, 9)] * 2), pads=st.tuples(*[st.integers(-3, 3)] * 4))
def test_any_product_is_exact_in_double_precision(
    rows: tuple[int, int, int], columns: tuple[int, int, int], more: tuple[int, int], pads: tuple[int, int, int, int]
) -> None:
    """Kernels of 1 to 7, strides to 5, dilations to 4, pads and cut-offs, inputs a little larger than a window."""
    sizes: list[int] = []
    counts: list[int] = []
    for (k, s, d), extra, before, behind in zip((rows, columns), more, pads[:2], pads[2:], strict=True):
        sizes.append(max((k - 1) * d + 1 - before - behind, 1) + extra)
        counts.append((sizes[-1] + before + behind - (k - 1) * d - 1) // s + 1)
    (kh, sh, dh), (kw, sw, dw) = rows, columns
    (hi, wi), (ho, wo) = sizes, counts
    check_exact(Geometry(1, 2, 2, hi, wi, ho, wo, kh, kw, (sh, sw), pads, (dh, dw)))


@every_shape
@pytest.mark.parametrize("mode", ["fast", "bit-true"])
def test_programs_stay_within_the_bound_of_fp16(g: Geometry, mode: Mode) -> None:
    given = operands(g)
    graph = decomposed(g, given)
    found = assembled(simulated(graph, {name: given[name] for name in ("x", "dy")}, mode))
    sizes = exact(g, {name: np.abs(value) for name, value in given.items()})
    channels = g.kh * g.kw // g.groups
    products = {"y": g.ci * channels, "dx": g.co * channels, "dw": g.n * g.ho * g.wo}
    for name, wanted in exact(g, given).items():
        assert (np.abs(found[name] - wanted) <= bound(wanted, sizes[name], products[name])).all(), name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("5x5", "5 x 5: 4 products, 1.44 times the MACs"),
        (
            "7x7 stride 2",
            "7 x 7 stride 2 x 2: 9 products, 1.49 times the MACs (1.65 with single taps in kernels of 3 x 3)",
        ),
        ("11x11 stride 4", "11 x 11 stride 4 x 4: 16 products, 1.19 times the MACs"),
        (
            "dilated 3x3",
            "3 x 3 dilation 2 x 2: 9 products, 1.00 times the MACs (9.00 with single taps in kernels of 3 x 3)",
        ),
        ("1x7", "1 x 7: 3 products, 2.71 times the MACs (3.86 with single taps in kernels of 3 x 3)"),
    ],
)
def test_the_overhead_is_reported(name: str, text: str) -> None:
    """Published for kernels filled up with zeros: 1.44, 1.65, 1.19."""
    g, report = SHAPES[name], Report()
    decomposed(g, operands(g), report)
    stages = ("forward", "backward", "weight_gradient")
    assert sorted(report.notes) == sorted(f"conv {stage} {text}" for stage in stages)
    assert report.counts["products decomposed"] == 3
    assert report.counts["products made"] == 3 * len(blocks(g))
    assert report.counts["MACs before"] == 3 * g.n * g.co * g.ho * g.wo * g.ci * g.kh * g.kw


def test_groups_are_reported() -> None:
    g, report = rectangular((3, 3), groups=2), Report()
    graph = three(g, operands(g)["w"])
    assert S2Decompose().run(graph, report) is graph
    assert sorted(report.notes) == [
        "conv backward: 2 groups run one by one, on 3 of 64 columns",
        "conv forward: 2 groups run one by one, on 4 of 64 columns",
        "conv weight_gradient: 2 groups run one by one, on 4 of 64 columns",
    ]


@pytest.mark.parametrize(
    "g",
    [
        square(3),
        square(3, 2),
        square(1, 5),
        square(2),
        rectangular((1, 3)),
        square(3, 2, 2),
        square(3, 4, 2),
        rectangular((3, 1), (2, 2)),
        rectangular((1, 3), (3, 1)),
    ],
)
def test_what_the_array_has_stays(g: Geometry) -> None:
    graph = three(g, operands(g)["w"])
    assert illegal(g) is None
    assert blocks(g) == (Block(Taps(0, g.kh), Taps(0, g.kw)),)
    assert S2Decompose().run(graph, Report()) is graph


@every_shape
def test_a_second_run_changes_nothing(g: Geometry) -> None:
    once = decomposed(g, operands(g))
    assert S2Decompose().run(once, Report()) is once
