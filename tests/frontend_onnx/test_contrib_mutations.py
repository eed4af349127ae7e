"""Nodes of onnxruntime's operators with operands, shapes, types and attributes that do not fit: read, or refused."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlc import DlcError
from tests.frontend_onnx import test_contrib_attention as attention
from tests.frontend_onnx import test_contrib_blocks as blocks
from tests.frontend_onnx import test_contrib_fused as fused
from tests.frontend_onnx import test_contrib_quantized as quantized
from tests.frontend_onnx.building import parse
from tests.frontend_onnx.contrib import Case

CASES = [*attention.CASES, *blocks.CASES, *fused.CASES, *quantized.CASES]
NUMBERS = (0, -1, 1, 2, 3, 1 << 31, -(1 << 40), 1 << 62)
TYPES: tuple[Any, ...] = (np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.int8, np.bool_)


def mutated(case: Case, chance: random.Random) -> Case:
    """The case with one to three faults."""
    operands, attributes = list(case.operands), dict(case.attributes)
    outputs, fixed = list(case.outputs), set(case.fixed)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(operands))
        array = None if operands[at] is None else np.asarray(operands[at])
        match chance.randrange(8):
            case 0:
                operands[at] = None
            case 1 if array is not None and array.ndim and array.dtype.kind in "fiub":
                shape = list(array.shape)
                d = chance.randrange(len(shape))
                shape[d] = chance.choice((0, 1, shape[d] + 1, max(shape[d] - 1, 0), 64))
                operands[at] = np.zeros(chance.choice((shape, shape[:-1], [*shape, 1])), array.dtype)
            case 2 if array is not None and array.dtype.kind in "iub":
                operands[at] = array.astype(chance.choice(TYPES))
            case 3 | 4 if attributes:
                key = chance.choice(sorted(attributes))
                attributes[key] = _other(attributes[key], chance)
            case 5:
                fixed ^= {at}
            case 6:
                outputs.append(True)
            case _:
                operands = operands[:-1] if chance.random() < 0.5 and len(operands) > 1 else [*operands, operands[at]]
    return replace(case, operands=operands, attributes=attributes, outputs=outputs, fixed=tuple(fixed))


def _other(value: Any, chance: random.Random) -> Any:
    match value:
        case int():
            return chance.choice(NUMBERS)
        case float():
            return chance.choice((0.0, -1.0, float("nan"), float("inf")))
        case str():
            return chance.choice(("", "Relu", "nearest", "reverse", "x"))
        case [int(), *_]:
            return [chance.choice(NUMBERS) for _ in range(chance.randint(1, len(value) + 1))]
        case _:
            return value


@pytest.mark.parametrize("op", sorted({case.op for case in CASES}))
def test_a_node_that_does_not_fit_is_read_or_refused(op: str) -> None:
    chance = random.Random(op)
    cases = [case for case in CASES if case.op == op]
    refused = 0
    for _ in range(30):
        model = mutated(chance.choice(cases), chance).model()
        try:
            parse(model)
        except DlcError as problem:
            refused += 1
            assert all(d.help for d in problem.diagnostics), str(problem)
    assert refused
