"""Training on the simulated device gives the same bits again: in another run, process, order of instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.container import write
from dlc_backend_s2train.program import Program

from tests.backend_s2train.bits import bits
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.networks import S2_NETWORKS
from tests.backend_s2train.torch_steps import SGD, Device, step_of

PRUNED = "prune=0.05 seed=3"
"""Random numbers in every step: gradients of weights below are pruned."""
ALONE = "import sys; from tests.backend_s2train.bits import bits_of_files; print(bits_of_files(*sys.argv[1:]))"
BATCHES = S2_NETWORKS["blocks"].data(2)


def test_runs_and_processes_agree(tmp_path: Path) -> None:
    program = step_of(S2_NETWORKS["blocks"], SGD, PRUNED)
    here = bits(program, BATCHES)
    assert bits(program, BATCHES) == here
    (tmp_path / "step.s2t").write_bytes(write(program))
    np.savez(tmp_path / "data.npz", x=[x for x, _ in BATCHES], y=[y for _, y in BATCHES])
    for seed in ("1", "2"):
        # Orders of sets differ, and so do the threads of numpy's products.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed}
        environment["OPENBLAS_NUM_THREADS"] = seed
        line = [sys.executable, "-c", ALONE, str(tmp_path / "step.s2t"), str(tmp_path / "data.npz")]
        ran = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=120, check=True)
        assert ran.stdout.strip() == here


def test_the_seed_is_what_differs() -> None:
    network = S2_NETWORKS["blocks"]
    one, other, plain = (bits(step_of(network, SGD, text), BATCHES) for text in (PRUNED, "prune=0.05 seed=4", ""))
    assert len({one, other, plain}) == 3


def test_builds_are_the_same_bytes() -> None:
    network = S2_NETWORKS["blocks"]
    assert write(step_of.__wrapped__(network)) == write(step_of(network))


@pytest.mark.parametrize("policy", ["depth-first", "update-first", "final-update"])
def test_orders_agree(policy: str) -> None:
    """Where instructions come and where values lie is nobody's business but the planner's."""
    network = S2_NETWORKS["blocks"]
    program = step_of(network, SGD, "", f"policy={policy}")
    assert list(verify(program)) == []
    assert program.instructions != step_of(network).instructions or policy == "update-first"
    assert results(program) == results(step_of(network))


def results(program: Program) -> tuple[float, dict[str, bytes]]:
    """Loss, and every weight behind one step, in bit-true mode."""
    device = Device(program, machine_of(program, "bit-true", checked=True))
    ((x, y),) = S2_NETWORKS["blocks"].data(1)
    loss = device.step(x, y)
    return loss, {name: value.tobytes() for name, value in device.weights().items()}
