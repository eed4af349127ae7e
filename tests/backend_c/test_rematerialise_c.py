"""Compiled training steps that execute kernels again: the same bits as without, in a smaller arena full of garbage."""

from pathlib import Path

import numpy as np
import pytest

from dlc.passes.rematerialise import Rematerialise
from tests.backend_c.bundles import bundle_of, trainer
from tests.backend_c.models import Bench
from tests.passes.test_rematerialise import NETWORKS

SPEC = "c{prefix=net cpu=generic flags=-O0}"
STEPS = 3


@pytest.mark.parametrize(("net", "updates"), [("residual", "immediate"), ("dense", "final")])
def test_weights_and_outputs_are_those_of_the_program_without(
    net: str, updates: str, bench: Bench, tmp_path: Path
) -> None:
    model, options = NETWORKS[net](), f"optimizer=sgd{{lr=0.1 momentum=0.9}} updates={updates}"
    again = Rematerialise(budget=1000.0, states=300)
    plain = trainer(bundle_of(model, options), tmp_path / "plain", bench, SPEC)
    small = trainer(bundle_of(model, options, again=again), tmp_path / "small", bench, SPEC)
    assert int(small.facts["arena_bytes"]) < int(plain.facts["arena_bytes"])
    rng = np.random.default_rng(0)
    shape = model.inputs[0].shape
    for _ in range(STEPS):
        x, y = rng.standard_normal(shape).astype(np.float32), rng.integers(0, 5, shape[0])
        fill(small)
        assert plain.train_step(x, y) == small.train_step(x, y)
        assert plain.checkpoint() == small.checkpoint()
        fill(small)
        np.testing.assert_array_equal(plain(x)["scores"], small(x)["scores"])


def fill(program: object) -> None:
    """Nothing may depend on what the arena held."""
    own = getattr(program, "_own")  # noqa: B009
    getattr(program, "_memory")()  # noqa: B009
    own.arena.fill(0xA5)
