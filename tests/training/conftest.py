"""Runs of training."""

from pathlib import Path
from typing import Any

import pytest

from dlc.training.loop.loop import Course
from dlc.training.loop.run import Outputs, Run
from tests.training.linear import Linear, blobs
from tests.training.runs import Start, data_of


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """`start(program, epochs=3)`: a run with validation data that writes into a directory of its own."""

    def call(program: Linear | None = None, judged: bool = True, **more: Any) -> Run:
        program = program or Linear()
        data = data_of(program, tmp_path / "train.npz")
        validation = data_of(program, tmp_path / "test.npz", blobs(11, seed=1)) if judged else None
        outputs = {k: more.pop(k) for k in list(more) if k in Outputs.__dataclass_fields__}
        course = Course(data, validation, 4, **more)
        return Run(program, course, Outputs(tmp_path / "c.dlc", **outputs))

    return call
