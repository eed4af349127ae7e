"""Runs on a program of a few lines of NumPy: their data, and their weights as bytes."""

from collections.abc import Callable
from pathlib import Path

from dlc.base.types import Array
from dlc.training.loop.data import DataSet
from dlc.training.loop.data import read_data as read_files
from dlc.training.loop.run import Run
from tests.training.linear import Linear, blobs, save

ROWS = 30
Start = Callable[..., Run]
"""What the fixture `start` is."""


def data_of(program: Linear, path: Path, arrays: dict[str, Array] | None = None) -> DataSet:
    save(path, **(arrays or blobs(ROWS)))
    return read_files([str(path)], program.arguments)


def weights(run: Run) -> bytes:
    return b"".join(v.tobytes() for v in [*run.program.parameters().values(), *run.program.state().values()])
