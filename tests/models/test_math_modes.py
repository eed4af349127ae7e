"""Convolutional networks by parts in bf16, in C: their errors, and what becomes of models in bf16."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dlc_backend_c.target import missing, target_for

from tests.models.building import Bench, Built
from tests.models.test_winograd import error, network
from tests.models.writing import Array, Writer

LIMITS = {"bf16": 3e-2, "bf16x2": 2e-4, "bf16x3": 1e-5}
"""Of errors of a network, relative to the largest output."""
LAYERS = 3
ALWAYS = ("--set", "bf16.when=always")
PAIRS = ("--set", "layout.pairs=yes")
BF16 = "x86-64-v4-bf16"


def counts(built: Built) -> int:
    """How many products the pass rewrote."""
    (step,) = [s for s in built.document["steps"] if s["step"].startswith("bf16")]
    return step["counts"].get("products", 0)


def schedules(built: Built) -> str:
    """The text of the program, in which dot products have their own function."""
    return "".join(p.read_text() for p in built.directory.glob("*.c"))


@pytest.mark.parametrize("mode", LIMITS)
@pytest.mark.parametrize("cpu", ["generic", "native"])
def test_the_error_of_a_deep_network(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory, mode: str, cpu: str
) -> None:
    model = network(layers=LAYERS)
    place = tmp_path_factory.mktemp("modes")
    built = bench.compile(model, place, *ALWAYS, *PAIRS, target=f"c{{cpu={cpu} math={mode} flags=-O1}}")
    assert counts(built) == LAYERS + 1  # not the first, whose data has three channels
    found = error(built, model)
    assert found < LIMITS[mode]
    if mode != "bf16x3":
        assert found > LIMITS[mode] / 100  # it is not computed in f32


def test_the_instruction_is_used_where_it_is_faster(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> None:
    place, model = tmp_path_factory.mktemp("faster"), network(layers=1)
    for cpu, mode, products in (
        (BF16, "bf16", 2),
        (BF16, "bf16x2", 0),
        (BF16, "fast", 0),
        ("x86-64-v4", "bf16", 0),
        ("generic", "bf16", 0),
    ):
        built = bench.compile(model, place / f"{cpu}{mode}", target=f"c{{cpu={cpu} math={mode} lib=none}}")
        assert counts(built) == products, (cpu, mode)
        assert ("vdpbf16ps" in schedules(built)) == bool(products)


def bf16_network() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A convolution and a product of a model whose tensors are all bf16, between casts; and a float64 one's values."""
    w = Writer(3)
    bf16 = onnx.TensorProto.BFLOAT16
    rounded = [w.op("Cast", name, to=bf16) for name in ("x", w.weight(32, 16, 3, 3, fan_in=144))]
    y = w.op("Relu", w.op("Conv", *rounded, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    y = w.op("Conv", y, w.op("Cast", w.weight(32, 32, 1, 1, fan_in=32), to=bf16), kernel_shape=[1, 1])
    y = w.op("Cast", w.op("GlobalAveragePool", y), to=onnx.TensorProto.FLOAT)
    model = w.model("bf16", {"x": (np.float32, (1, 16, 12, 12))}, {y: (np.float32, (1, 32, 1, 1))})
    return model, {"x": np.random.default_rng(1).standard_normal((1, 16, 12, 12)).astype(np.float32)}


def test_models_in_bf16_are_multiplied_as_they_are(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> None:
    """To the bit but for the order of sums, whose results are rounded to 8 bits."""
    place = tmp_path_factory.mktemp("bf16")
    model, feeds = bf16_network()
    portable, *own = (
        bench.compile(model, place / f"{cpu}{mode}", target=f"c{{cpu={cpu} math={mode} flags=-O1}}")
        for cpu, mode in (("generic", "ordered"), (BF16, "bf16"), (BF16, "bf16x3"))
        if cpu == "generic" or not missing(target_for(cpu).features)
    )
    (want,) = portable(feeds).values()
    for built in own:
        assert "vdpbf16ps" in schedules(built)
        (got,) = built(feeds).values()
        np.testing.assert_allclose(got, want, atol=float(np.abs(want).max()) * 2.0**-6)
