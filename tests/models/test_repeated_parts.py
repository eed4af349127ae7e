"""A value that is several parts of one concatenation: its copies read and write one memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.backend_c.models import shell
from tests.models.building import Bench, assert_close, random_inputs, reference
from tests.models.writing import Writer
from tests.tools import COMPILERS


@pytest.mark.parametrize("cc", COMPILERS)
def test_compilers_have_nothing_to_say(cc: str, tmp_path: Path) -> None:
    w = Writer(0)
    x = w.op("Conv", "x", w.weight(8, 1, 1, 1, fan_in=1), w.normal(8))
    whole = w.op("Concat", x, x, x, x, axis=1)
    w.op("Conv", whole, w.weight(1, 32, 1, 1, fan_in=32), w.normal(1), name="y")
    model = w.model("parts", {"x": (np.float32, (3, 1, 3, 4))}, {"y": (np.float32, (3, 1, 3, 4))})
    built = Bench(tmp_path / "cache").compile(model, tmp_path, target=f"c{{cpu=generic cc={cc} prefix=net}}")
    shell(cc, "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-c", "net.c", "-o", "net.o", cwd=built.directory)
    feeds = random_inputs(built.program)
    assert_close(built(feeds), reference(built.source, feeds))
