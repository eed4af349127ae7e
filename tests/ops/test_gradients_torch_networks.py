"""Gradients of normalisations, recurrent layers and attention against PyTorch's autograd in double precision."""

from __future__ import annotations

import pytest

from tests.ops.torch_cases import networks, recurrent
from tests.ops.torch_cases.case import Case
from tests.ops.torch_cases.check import check


@pytest.mark.parametrize("case", recurrent.CASES, ids=str)
def test_recurrent_layers(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", networks.CASES, ids=str)
def test_normalisations_attention_and_losses(case: Case) -> None:
    check(case)
