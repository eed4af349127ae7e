"""Linear and cubic Resize of long and short dimensions: neighbours that are gathered, and products with a matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from building import QUICK, parse, runtime
from dlc_frontend_onnx.interpolation import GATHERED, ROWS
from sized_models import model, n

import dlc
from dlc.graph import Input, evaluate, make_graph
from dlc.graph.gradient import gradients
from dlc.ops.linear import MatMul

Array = Any
SHAPES = {"long": (1, 2, 70, 130), "short": (1, 2, 5, 20), "rows": (2, 2, 40, 9)}
MODES = {"linear": 2, "cubic": 4}


def resized(shape: tuple[int, ...], scales: tuple[float, ...], **how: Any) -> bytes:
    constants = {"s": np.array([1, 1, *scales], np.float32)}
    return model([n("Resize", ["x", "", "s"], ["y"], **how)], {"x": shape}, ["y"], constants)


@pytest.mark.parametrize("cpu", ["generic", "native"])
@pytest.mark.parametrize("scales", [(2.0, 2.0), (1.5, 0.4)], ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", SHAPES)
def test_values_are_those_of_onnxruntime(
    kind: str, mode: str, scales: tuple[float, float], cpu: str, builds: Path
) -> None:
    content = resized(SHAPES[kind], scales, mode=mode)
    x = np.random.default_rng(0).standard_normal(SHAPES[kind]).astype(np.float32)
    (wanted,) = runtime(onnx.load_model_from_string(content), ["y"], {"x": x})
    program: Any = dlc.build(content, f"c{{cpu={cpu} flags=-O0}}", cache_dir=builds)
    np.testing.assert_allclose(program(x=x)["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_which_dimensions_are_products(mode: str) -> None:
    """Each of the two dimensions on either side of where it changes."""
    for height, width in ((ROWS, GATHERED), (ROWS - 1, GATHERED), (ROWS, GATHERED - 1), (ROWS - 1, GATHERED - 1)):
        taps = MODES[mode]
        graph = parse(resized((1, 1, taps * height, taps * width), (2, 2), mode=mode))
        products = sum(isinstance(op, MatMul) for op in graph.ops)
        assert products == (height < ROWS) + (width < GATHERED)


def test_only_neighbours_of_what_is_no_number_are_none(builds: Path) -> None:
    content = resized(SHAPES["long"], (2, 2), mode="linear")
    x = np.zeros(SHAPES["long"], np.float32)
    x[0, 0, 30, 100] = np.nan
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    y = program(x=x)["y"]
    assert np.argwhere(np.isnan(y)).min(0).tolist() == [0, 0, 59, 199]
    assert np.argwhere(np.isnan(y)).max(0).tolist() == [0, 0, 62, 202]


@pytest.mark.parametrize("kind", SHAPES)
def test_gradients_are_those_of_pytorch(kind: str) -> None:
    graph = parse(resized(SHAPES[kind], (2, 2), mode="linear"))
    (x,), (y,) = graph.inputs, graph.outputs
    seed = Input("seed", y.type)
    random = np.random.default_rng(0)
    given, seeds = (random.standard_normal(v.shape).astype(np.float32) for v in (x, y))
    have = evaluate(make_graph((x, seed), {"dx": gradients([y], [seed], [x])[0]}), {"x": given, "seed": seeds})["dx"]
    leaf = torch.tensor(given, requires_grad=True)
    found: Any = torch.nn.functional.interpolate(leaf, scale_factor=2, mode="bilinear", align_corners=False)
    found.backward(torch.tensor(seeds))
    assert leaf.grad is not None
    np.testing.assert_allclose(have, leaf.grad.numpy(), rtol=1e-4, atol=1e-5)
