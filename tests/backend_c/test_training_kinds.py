"""Training programs of every kind: where weights and the arena are, element types, more results, several callers."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from dlc import DlcError, load
from dlc.base.types import Array, DType, Type, f16, f32, f64
from dlc.graph import Constant, Graph, Input, Tensor, make_graph
from dlc.ops.elementwise import Tanh
from dlc.ops.linear import Gemm
from tests.backend_c.bundles import bundle_of, trainer
from tests.backend_c.models import Bench, numbers
from tests.training.nets import NETS, module_of

MLP = NETS["mlp"]
BATCHES = MLP.batches(8)


@pytest.fixture(scope="module")
def built(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("built")
    trainer(bundle_of(MLP.graph(module_of(MLP)), "optimizer=sgd"), place, bench)
    return place


@pytest.mark.parametrize("spec", ["weights=map", "weights=text arena=static", "weights=map arena=static"])
def test_memory_of_every_kind_gives_the_same_bits(spec: str, bench: Bench, tmp_path: Path) -> None:
    bundle = bundle_of(MLP.graph(module_of(MLP)), "optimizer=adam{lr=0.01}")
    plain = trainer(bundle, tmp_path / "plain", bench)
    other = trainer(bundle, tmp_path / "other", bench, f"c{{prefix=net {spec}}}")
    for x, y in BATCHES:
        assert plain.train_step(x, y) == other.train_step(x, y)
    assert plain.checkpoint() == other.checkpoint()


def test_threads_predict_with_one_program(bench: Bench, tmp_path: Path) -> None:
    program = trainer(bundle_of(MLP.graph(module_of(MLP)), "optimizer=sgd"), tmp_path, bench)
    want = [program(x)["scores"] for x, _ in BATCHES]
    wrong: list[int] = []

    def predict(k: int) -> None:
        x, scores = BATCHES[k][0], want[k]
        wrong.extend(k for _ in range(200) if not np.array_equal(program(x)["scores"], scores))

    threads = [threading.Thread(target=predict, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_hook_is_called_once_an_update(bench: Bench, tmp_path: Path) -> None:
    program = trainer(bundle_of(MLP.graph(module_of(MLP)), "optimizer=sgd accumulate=4"), tmp_path, bench)
    seen: list[int] = []
    program.all_reduce(lambda flat: seen.append(int(program.state()["step"])))
    for x, y in BATCHES:
        program.train_step(x, y)
    assert seen == [4, 8]
    # Whoever moves another program's gradients here is obeyed.
    before = {n: a.copy() for n, a in program.parameters().items()}
    program.all_reduce(lambda flat: flat.fill(0))
    for x, y in BATCHES[:4]:
        program.train_step(x, y)
    assert all(np.array_equal(a, before[n]) for n, a in program.parameters().items())


def test_a_step_may_give_the_models_outputs_too(bench: Bench, tmp_path: Path) -> None:
    program = trainer(bundle_of(MLP.graph(module_of(MLP)), "optimizer=sgd outputs=yes"), tmp_path, bench)
    header = (tmp_path / "net.h").read_text()
    assert "const float *x,\n    const int64_t *y,\n    float *loss,\n    float *scores);" in header
    (x, y), *_ = BATCHES
    judged = float(program.evaluate(x, y)["loss"])
    assert program.train_step(x, y) == pytest.approx(judged, rel=1e-6)


def squares(dtype: DType) -> tuple[Graph, Array]:
    """tanh(x w): [4,2] of [4,3], and w."""
    w = (numbers(3, 2, seed=2) * 0.5).astype(dtype.numpy)
    x = Input("x", Type(dtype, (4, 3)))
    return make_graph((x,), {"out": Tanh(Gemm(x, Constant(Tensor.of(w), "w"), None))}), w


@pytest.mark.parametrize(("dtype", "tolerance"), [(f16, 5e-3), (f32, 1e-6), (f64, 1e-14)])
def test_weights_of_every_float_type_are_trained(dtype: DType, tolerance: float, bench: Bench, tmp_path: Path) -> None:
    graph, w = squares(dtype)
    program = trainer(bundle_of(graph, "loss=mse optimizer=sgd{lr=0.5}"), tmp_path, bench)
    x, y = numbers(4, 3, seed=3).astype(dtype.numpy), (numbers(4, 2, seed=4) * 0.3).astype(dtype.numpy)
    tensor = [torch.tensor(a.astype(np.float64)) for a in (x, y, w)]
    weight = tensor[2].requires_grad_()
    for _ in range(5):
        loss = torch.nn.functional.mse_loss(torch.tanh(tensor[0] @ weight), tensor[1])
        (gradient,) = torch.autograd.grad(loss, weight)
        assert program.train_step(x, y) == pytest.approx(float(loss.detach()), rel=max(tolerance, 1e-12) * 4)
        np.testing.assert_allclose(program.gradients()["w"], gradient, atol=tolerance * 2)
        weight = (weight - 0.5 * gradient).detach().requires_grad_()
    np.testing.assert_allclose(program.parameters()["w"], weight.detach(), atol=tolerance * 4)
    assert program.parameters()["w"].dtype == dtype.numpy
    x[0, 0] = np.nan
    before = program.parameters()["w"].copy()
    with pytest.raises(Exception, match="the loss is nan; no weight has changed"):
        program.train_step(x, y)
    np.testing.assert_array_equal(program.parameters()["w"], before)


def test_a_manifest_that_makes_no_sense_is_refused(built: Path, tmp_path: Path) -> None:
    place = tmp_path / "net"
    shutil.copytree(built, place)
    text = (place / "manifest.json").read_text()
    nonsense: list[object] = [None, "x", [3], {"parameters": {"bytes": 1, "tensors": [{}]}}]
    for key in ("regions", "functions", "accumulate", "facts"):
        for value in nonsense[: 3 if key == "facts" else 4]:
            message = json.loads(text)
            message["training"][key] = value
            (place / "manifest.json").write_text(json.dumps(message))
            with pytest.raises(DlcError, match=r"cannot-load.*manifest.json makes no sense"):
                load(place)
    message = json.loads(text)
    message["training"]["regions"]["parameters"]["tensors"][0]["offset"] = 1 << 40
    (place / "manifest.json").write_text(json.dumps(message))
    with pytest.raises(DlcError, match="cannot-load"):
        load(place)
