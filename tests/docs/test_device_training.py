"""The firmware of examples/device_training, which test_commands.py runs, learns as the equations of its network say."""

import re
import runpy

import numpy as np
from onnx import numpy_helper

from tests.docs.blocks import ROOT, shell_blocks

EXAMPLE = ROOT / "examples" / "device_training"
BATCH, EPOCHS, RATE, MOMENTUM = 16, 6, 0.2, 0.5


def test_its_losses_are_those_of_the_equations() -> None:
    """Gradients by hand, in double precision: the convolution is a product of patches and filters."""
    run = next(b for b in shell_blocks(EXAMPLE / "README.md") if "make.py" in b.text)
    assert run.mark == "needs: arm-none-eabi-gcc qemu-system-arm make"
    assert f"optimizer=sgd{{lr={RATE} momentum={MOMENTUM}}}" in run.text
    losses = [float(loss) for loss in re.findall(r"^epoch \d: loss (\d\.\d{3})$", run.text, re.MULTILINE)]
    assert (len(losses), losses[-1] < losses[0] / 20) == (EPOCHS, True)

    made = runpy.run_path(str(EXAMPLE / "make.py"))
    weights = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in made["network"]().graph.initializer}
    filters, shifts, classes, biases = (weights[k] for k in ("filters", "shifts", "classes", "biases"))
    trained = [filters.reshape(8, 9), shifts, classes, biases]
    speed = [np.zeros_like(w) for w in trained]
    rows = made["pictures"]()
    grey = np.pad(rows[:, :64].reshape(-1, 8, 8) / 16, ((0, 0), (1, 1), (1, 1)))
    patches = np.lib.stride_tricks.sliding_window_view(grey, (3, 3), (1, 2))[:, ::2, ::2].reshape(-1, 16, 9)

    for wanted in losses:
        found: list[float] = []
        for first in range(0, made["TRAINING"], BATCH):
            read, labels = patches[first : first + BATCH], rows[first : first + BATCH, 64]
            f, s, c, b = trained
            sums = np.einsum("npk,ok->nop", read, f) + s[:, None]
            flat = np.maximum(sums, 0).reshape(BATCH, -1)
            scores = flat @ c.T + b
            odds = np.exp(scores - scores.max(axis=1, keepdims=True))
            odds /= odds.sum(axis=1, keepdims=True)
            found.append(float(-np.log(odds[np.arange(BATCH), labels]).mean()))
            slope = (odds - np.eye(10)[labels]) / BATCH
            inner = (slope @ c).reshape(sums.shape) * (sums > 0)
            gradients = [
                np.einsum("nop,npk->ok", inner, read),
                inner.sum(axis=(0, 2)),
                slope.T @ flat,
                slope.sum(axis=0),
            ]
            speed = [MOMENTUM * v + g for v, g in zip(speed, gradients, strict=True)]
            trained = [w - RATE * v for w, v in zip(trained, speed, strict=True)]
        assert abs(np.mean(found) - wanted) < 1e-3
