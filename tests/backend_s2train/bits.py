"""What a program leaves behind, as a digest. Imports little: tests run it in processes of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from dlc_backend_s2train.container import read
from dlc_backend_s2train.program import Program

from dlc.base.types import Array
from tests.backend_s2train.machines import unverified


def bits(program: Program, batches: Sequence[tuple[Array, Array]]) -> str:
    """SHA-256 of the losses of steps in bit-true mode, and of weights and states behind them."""
    machine = unverified(program, "bit-true")
    (entry,) = program.entries
    (data, _), (label, _) = *entry.inputs, *entry.labels
    digest = hashlib.sha256()
    for x, y in batches:
        digest.update(machine.run(entry.name, {data: x, label: y})["loss"].tobytes())
    digest.update(machine.snapshot().weights)
    return digest.hexdigest()


def bits_of_files(program: str, arrays: str) -> str:
    """The same of a program's file and one of arrays `x` and `y` with a batch in each row."""
    held = np.load(arrays)
    content = Path(program).read_bytes()
    return bits(read(memoryview(content), program), list(zip(held["x"], held["y"], strict=True)))
