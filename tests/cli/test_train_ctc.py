"""A model of sequences that learns labels in order through the C target, in the steps that PyTorch takes."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper

import dlc as library
from dlc import DlcError
from dlc.api.training_program import TrainingProgram
from tests.cli.conftest import Dlc

ROWS, TIMES, FEATURES, CLASSES = 4, 8, 6, 5
LABELS = np.array([[1, 2, 3], [4, 4, 0], [0, 0, 0], [2, 0, 0]])
LENGTHS = torch.tensor([3, 2, 0, 1])
RNG = np.random.default_rng(0)
W, B = ((RNG.standard_normal(s) * 0.3).astype(np.float32) for s in ((FEATURES, CLASSES), (CLASSES,)))
X = RNG.standard_normal((ROWS, TIMES, FEATURES)).astype(np.float32)


def sequences() -> Any:
    """out[N,T,C] = x[N,T,F] w + b."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["out"])],
        "sequences",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, (ROWS, TIMES, CLASSES))],
        [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_steps_are_those_of_torch(dlc: Dlc) -> None:
    Path("sequences.onnx").write_bytes(sequences().SerializeToString())
    train = "loss=ctc{length=3},optimizer=adam{lr=5e-2}"
    ran = dlc("build", "sequences.onnx", "-q", "--target", "c{cpu=generic}", "--train", train, "-o", "out")
    assert ran.code == 0, ran.err
    program = cast("TrainingProgram", library.load("out"))
    w, b = (torch.tensor(v, requires_grad=True) for v in (W, B))
    optimizer: Any = torch.optim.Adam([w, b], lr=5e-2)
    losses: list[float] = []
    for _ in range(20):
        optimizer.zero_grad()
        logs = F.log_softmax(torch.tensor(X) @ w + b, 2).transpose(0, 1)
        loss: Any = F.ctc_loss(logs, torch.tensor(LABELS), torch.full((ROWS,), TIMES), LENGTHS)
        loss.backward()
        losses.append(program.train_step(X, LABELS))
        assert losses[-1] == pytest.approx(loss.item(), rel=1e-5)
        for name, own in (("w", w), ("b", b)):
            assert own.grad is not None
            np.testing.assert_allclose(program.gradients()[name], own.grad, rtol=1e-4, atol=1e-5)
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    np.testing.assert_allclose(program.parameters()["w"], w.detach(), atol=1e-4)
    assert program.evaluate(X, LABELS)["loss"] < losses[-1]
    with pytest.raises(DlcError, match=r"5 at \[0,0\] is not a valid label: labels are 0 to 4"):
        program.train_step(X, np.full((ROWS, 3), 5))
