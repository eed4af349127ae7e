"""The firmware of the page about microcontrollers, which test_commands.py runs, computes what the authors did."""

import re

import numpy as np

from dlc.runtime.tensor_proto import read_tensor
from tests.docs.blocks import ROOT, shell_blocks


def test_its_scores_are_those_that_the_authors_published() -> None:
    page = ROOT / "docs" / "microcontroller.md"
    run = next(b for b in shell_blocks(page) if "run_classify_cxx" in b.text)
    assert run.mark == "needs: arm-none-eabi-gcc qemu-system-arm cmake make"
    found = [float(score) for score in re.findall(r"^\d: (-?\d+\.\d{3})$", run.text, re.MULTILINE)]
    _, want = read_tensor((ROOT / "examples" / "digit_scores.pb").read_bytes())
    np.testing.assert_allclose(found, np.ravel(want), rtol=1e-5, atol=1e-2)
