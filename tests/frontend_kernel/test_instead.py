"""What messages tell to write instead compiles, and means what was meant."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from dlc_frontend_kernel import recurrence
from dlc_frontend_kernel.instead import FUNCTIONS, REDUCTIONS

from dlc import DlcError
from dlc.base.types import Array
from dlc.graph import evaluate
from tests.frontend_kernel.texts import parse

X = np.array([0.5, -1.25, 2.0, 2.0, -3.0, 0.25, 1.5, -0.5], np.float32)
_erf = np.vectorize(math.erf)
with np.errstate(invalid="ignore"):
    ROOTS, LOGARITHMS = 1 / np.sqrt(X), np.log2(X)
WANTED = {
    "sigmoid": 1 / (1 + np.exp(-X)),
    "relu": np.maximum(X, 0),
    "silu": X / (1 + np.exp(-X)),
    "softplus": np.log1p(np.exp(X)),
    "gelu": X * 0.5 * (1 + _erf(X / math.sqrt(2))),
    "rsqrt": ROOTS,
    "square": X * X,
    "log2": LOGARITHMS,
    "exp2": np.exp2(X),
    "fabs": np.abs(X),
    "clip": np.clip(X, -1, 1),
    "clamp": np.clip(X, -1, 1),
    "where": np.where(X > 0, X, 7),
    "argmax": np.argmax(X),
    "argmin": np.argmin(X),
    "mean": np.mean(X),
    "any": np.any(X > 0),
    "all": np.all(X > 0),
}
NAMES = {"low": "-1", "high": "1", "condition": "@ > 0", "a": "@", "b": "7", "n": "8"}


def value(text: str, **feeds: Array) -> Array:
    with np.errstate(all="ignore"):
        (found,) = evaluate(parse(text), feeds).values()
    return found


@pytest.mark.parametrize("name", FUNCTIONS | REDUCTIONS)
def test_what_is_reported_means_what_was_meant(name: str) -> None:
    index = "k" if name in REDUCTIONS else "i"
    message = (FUNCTIONS | REDUCTIONS)[name].partition(", where")[0]
    message = re.sub(r"\b(low|high|condition|a|b|n)\b", lambda m: NAMES[m[0]], message)
    message = re.sub(r"\bx\b(?!\[)", "@", message).replace("@", f"x[{index}]")
    left = "A<8>[i]" if index == "i" else "A<1>[0]"
    found = value(f"Z<8>[i] = x<8>[i]; {left} = Z[0] * 0 + {message};", x=X)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, np.broadcast_to(np.float32(WANTED[name]), found.shape), 1e-5, 1e-6)


def test_the_running_sum_is_one() -> None:
    message = "sum[k](select(k <= j, X[k], 0))"
    assert message in recurrence.HELP
    np.testing.assert_allclose(value(f"Y<8>[j] = {message.replace('X[', 'X<8>[')};", X=X), np.cumsum(X), 1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "A<8>[i] = A[i-1] + B<8>[i];",
        "A<8>[i] = B<8>[i] * A[i+3];",
        "A<8>[i] = select(i > 0, A[i-1], 0);",
        "A<4,8>[i,j] = A[i-1,j+2];",
        "A<8>[2*i] = A[2*i+2];",
        "A<8>[i] = max(A[i], A[i-1]);",
    ],
)
def test_a_recurrence_is_refused(text: str) -> None:
    with pytest.raises(DlcError, match="written by the same statement") as caught:
        parse(text)
    assert caught.value.diagnostics[0].code == "recurrence"


@pytest.mark.parametrize(
    "text",
    [
        "A<8>[i] = A[i] + B<8>[i];",
        "A<8>[i] = A[7-i];",
        "A<4,4>[i,j] = A[j,i];",
        "A<8>[2*i] = A[2*i+1];",
        "A<8>[i+4] = A[i] * B<4>[i];",
        "A<8>[i] = A[k] * B<8,8>[i,k];",
        "A<8>[0] = A[7];",
    ],
)
def test_what_cannot_be_a_recurrence_reads_what_was_before(text: str) -> None:
    parse(text)


def test_a_constant_subscript_outside_is_0_in_a_branch() -> None:
    np.testing.assert_array_equal(value("A<8>[i] = select(i > 3, x<8>[-1], x[8]) + x[i];", x=X), X)
    with pytest.raises(DlcError, match="subscript 8 of x is not in"):
        parse("A<8>[i] = select(x<8>[8] > 0, 1, 0);")
