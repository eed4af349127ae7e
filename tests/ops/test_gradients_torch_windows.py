"""Gradients of contractions, windows and resizing against PyTorch's autograd in double precision."""

from __future__ import annotations

import pytest

from tests.ops.torch_cases import windows
from tests.ops.torch_cases.case import Case
from tests.ops.torch_cases.check import check


@pytest.mark.parametrize("case", windows.CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case) -> None:
    check(case)
