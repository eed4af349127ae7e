"""Gradients through onnxruntime's own operators, against differences in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.verify.differences import Differences
from dlc.verify.gradient_check import of_outputs
from tests.frontend_onnx import test_contrib_attention as attention
from tests.frontend_onnx import test_contrib_blocks as blocks
from tests.frontend_onnx import test_contrib_fused as fused
from tests.frontend_onnx.building import parse
from tests.frontend_onnx.contrib import Case

WITHOUT = {"IsAllFinite", "QAttention", "DynamicQuantizeLSTM", "Range"}
"""Results are truth values, or steps of what was rounded."""
CORNERS = {("CropAndResize", "x1")}
"""Operands that stand at a corner: regions that end where the image does."""
CASES = [*fused.CASES, *attention.CASES, *blocks.CASES]
CHOSEN = [*{case.op: case for case in reversed(CASES) if case.op not in WITHOUT}.values(), attention.GROUP_QUERY[7]]


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.op)
def test_gradients_are_those_of_differences(case: Case) -> None:
    feeds = case.values(False)
    floats = [name for name, array in feeds.items() if array.dtype.kind == "f" and (case.op, name) not in CORNERS]
    if not floats:
        case.fixed, feeds = tuple(k for k in case.fixed if k != 2), case.values(False)  # scales of what is quantised
        floats, feeds = ["x2"], {**feeds, "x2": np.asarray(case.operands[2])}
    problem = of_outputs(parse(case.model()), floats, 0)
    checked = Differences.at(problem.at(feeds)).check(1, 0)
    assert [c.name for c in checked] == floats
    for found in checked:
        assert found.ok, (found.name, found.worst)
