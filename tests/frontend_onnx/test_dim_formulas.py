"""Dimensions of inputs that are formulas of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import QUICK, runtime
from dlc_frontend_onnx.dim_formulas import formula, is_formula
from hypothesis import given
from hypothesis import strategies as st
from sized_models import model, n

import dlc
from dlc import DlcError
from dlc.base.diagnostics import ExitCode

NAMES = {"past", "seq", "batch"}
DIMS = {"batch": "1..4", "seq": "1..8", "past": "0..8"}


def cached(mask: str = "past + seq") -> bytes:
    """Rows of a cache and new ones, and a mask for all of them, as exporters of decoders name their dimensions."""
    nodes = [
        n("Concat", ["kept", "x"], ["rows"], axis=1),
        n("Unsqueeze", ["mask", "axis"], ["m"]),
        n("Add", ["rows", "m"], ["y"]),
    ]
    inputs = {"x": ("batch", "seq", 4), "kept": ("batch", "past", 4), "mask": ("batch", mask)}
    return model(nodes, inputs, ["y"], {"axis": np.array([2])})


def arrays(batch: int, seq: int, past: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    shapes = {"x": (batch, seq, 4), "kept": (batch, past, 4), "mask": (batch, past + seq)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("mask", ["past + seq", "past+seq", "(2*past + seq*2)//2", "seq + past - 0"])
def test_a_formula_needs_no_size_of_its_own(mask: str, builds: Path) -> None:
    content = cached(mask)
    program: Any = dlc.build(content, QUICK, dims=DIMS, cache_dir=builds)
    assert [p.name for p in program.signature.inputs] == ["x", "kept", "mask", "batch", "past", "seq"]
    for sizes in ((1, 1, 0), (4, 8, 8), (2, 3, 5)):
        given = arrays(*sizes)
        (wanted,) = runtime(onnx.load_model_from_string(content), ["y"], given)
        np.testing.assert_allclose(program(**given)["y"], wanted, rtol=1e-6)


def test_numbers_and_ranges_may_be_mixed(builds: Path) -> None:
    program: Any = dlc.build(cached(), QUICK, dims={"batch": 2, "seq": 3, "past": "0..8"}, cache_dir=builds)
    assert program(**arrays(2, 3, 5))["y"].shape == (2, 8, 4)
    fixed: Any = dlc.build(cached(), QUICK, dims={"batch": 2, "seq": 3, "past": 5}, cache_dir=builds)
    assert [p.type.shape for p in fixed.signature.inputs] == [(2, 3, 4), (2, 5, 4), (2, 8)]


def test_arrays_that_disagree_with_a_formula_are_reported(builds: Path) -> None:
    program: Any = dlc.build(cached(), QUICK, dims=DIMS, cache_dir=builds)
    with pytest.raises(DlcError, match="mask"):
        program(**{**arrays(2, 3, 5), "mask": np.zeros((2, 7), np.float32)})


def refused(content: bytes, **dims: Any) -> DlcError:
    with pytest.raises(DlcError) as caught:
        dlc.build(content, dims=dims, cache="off")
    return caught.value


def test_sizes_are_asked_for_by_the_names_in_a_formula() -> None:
    (found,) = refused(cached(), batch=1).diagnostics
    assert found.code == "unbound-dimension" and "--dim seq=1 --dim past=1" in (found.help or "")
    assert "past + seq" not in " ".join(found.notes)


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("past - seq", "dimension 1 of input mask, past - seq, may be -8"),
        ("past // 0", "dimension 1 of input mask: past // 0 has no value"),
        ("past // seq", "dimension 1 of input mask: past // seq has no value"),
    ],
)
def test_formulas_without_a_size_are_reported(mask: str, said: str) -> None:
    found = refused(cached(mask), **DIMS)
    assert found.exit_code in (ExitCode.USAGE, ExitCode.MODEL)
    assert said in found.diagnostics[0].message


@pytest.mark.parametrize(
    "name", ["batch-size", "seq.len", "past seq", "f(past)", "past**2", "__import__", "-seq", "seq+1.5", ""]
)
def test_other_names_are_names(name: str, builds: Path) -> None:
    assert not is_formula(name, NAMES)
    if name:
        program: Any = dlc.build(cached(name), QUICK, dims={"batch": 2, "seq": 3, "past": 5, name: 8}, cache_dir=builds)
        assert program(**arrays(2, 3, 5))["y"].shape == (2, 8, 4)


PIECES = ["past", "seq", "+", "-", "*", "//", "(", ")", " ", "7", "0", "é", "\0", "."]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_any_text_is_a_formula_or_a_name(text: str) -> None:
    if is_formula(text, NAMES):
        try:
            found = formula(text, {"past": 3, "seq": 5}.__getitem__)
        except ValueError:
            return
        assert found == eval(text.strip(), {"past": 3, "seq": 5})


def test_users_say_which_sizes_are_one(builds: Path) -> None:
    content = model([n("Add", ["a", "b"], ["y"])], {"a": ("n", 3), "b": ("m", 3)}, ["y"], {})
    apart = refused(content, n="1..8", m="1..8").diagnostics[0]
    assert apart.code == "shape" and "--dim NAME=OTHER says that two sizes are equal" in " ".join(apart.notes)
    program: Any = dlc.build(content, QUICK, dims={"n": "1..8", "m": "n"}, cache_dir=builds)
    assert [p.name for p in program.signature.inputs] == ["a", "b", "n"]
    ones = {k: np.ones((5, 3), np.float32) for k in "ab"}
    assert program(**ones)["y"].shape == (5, 3)
    with pytest.raises(DlcError, match="b"):
        program(**{**ones, "b": np.ones((4, 3), np.float32)})
    free: Any = dlc.build(content, QUICK, dims={"m": "n"}, cache_dir=builds)
    assert free(**ones)["y"].shape == (5, 3)


def test_a_name_may_stand_twice_in_a_formula(builds: Path) -> None:
    content = model([n("Neg", ["a"], ["y"]), n("Neg", ["b"], ["z"])], {"a": ("n", "m"), "b": ("k", 3)}, ["y", "z"], {})
    program: Any = dlc.build(content, QUICK, dims={"n": "1..4", "m": "n", "k": "m + m"}, cache_dir=builds)
    given = {"a": np.ones((2, 2), np.float32), "b": np.ones((4, 3), np.float32)}
    assert program(**given)["z"].shape == (4, 3)


def test_users_say_what_a_size_is(builds: Path) -> None:
    program: Any = dlc.build(cached("total"), QUICK, dims={**DIMS, "total": "past + seq"}, cache_dir=builds)
    assert program(**arrays(2, 3, 5))["y"].shape == (2, 8, 4)


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"total": "past+sequence"}, "the model has no dimension sequence"),
        ({"toal": "past+seq"}, "the model has no dimension toal"),
        ({"total": "past+total"}, "total depends on itself"),
        ({"total": "seq", "seq": "total"}, "depends on itself"),
        ({"total": "past*"}, "total:past* is not a dimension and its size"),
    ],
    ids=str,
)
def test_wrong_formulas_are_reported(dims: dict[str, Any], said: str) -> None:
    assert said in refused(cached("total"), **{**DIMS, **dims}).diagnostics[0].message
