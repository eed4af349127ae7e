"""The convolutions of ResNet-18 for pictures of 32 x 32, with the published figures of each."""

from __future__ import annotations

from dataclasses import dataclass

from dlc_backend_s2train.program import Geometry


@dataclass(frozen=True)
class Row:
    """A row of the published table, per image."""

    layer: str
    times: int
    shape: tuple[int, int, int, int, int]
    """Input and output channels, input height, kernel, stride."""
    columns: int
    """Tile columns."""
    rows: int
    """LAD rows of a tile column."""
    splits: int
    features: int
    """Bytes of the frames of features."""
    weights: int
    passes: int
    steps: int
    use: str
    """Utilisation as it is printed."""

    def geometry(self, n: int = 1) -> Geometry:
        """For `n` images."""
        ci, co, height, kernel, stride = self.shape
        pad, out = kernel // 2, height // stride
        return Geometry(n, ci, co, height, height, out, out, kernel, kernel, (stride, stride), (pad, pad, pad, pad))


TABLE = (
    Row("stem", 1, (3, 64, 32, 3, 1), 2, 9, 1, 8_232, 3_864, 16, 2_592, ".167"),
    Row("l1", 4, (64, 64, 32, 3, 1), 2, 9, 1, 166_344, 74_136, 16, 55_296, ".167"),
    Row("l2.0.c1", 1, (64, 128, 32, 3, 2), 2, 5, 1, 179_464, 148_272, 8, 50_688, ".091"),
    Row("l2 3x3", 3, (128, 128, 16, 3, 1), 1, 5, 1, 92_304, 295_728, 8, 55_296, ".167"),
    Row("l2.0.ds", 1, (64, 128, 32, 1, 2), 1, 4, 1, 32_888, 17_200, 8, 8_192, ".062"),
    Row("l3.0.c1", 1, (128, 256, 16, 3, 2), 1, 3, 1, 110_688, 591_456, 8, 52_224, ".088"),
    Row("l3 3x3", 3, (256, 256, 8, 3, 1), 1, 3, 1, 61_536, 1_181_280, 8, 61_440, ".150"),
    Row("l3.0.ds", 1, (128, 256, 16, 1, 2), 1, 2, 1, 16_456, 67_168, 8, 8_192, ".062"),
    Row("l4.0.c1", 1, (256, 512, 8, 3, 2), 1, 2, 1, 81_992, 2_362_560, 8, 55_296, ".083"),
    Row("l4 3x3", 3, (512, 512, 4, 3, 1), 1, 2, 2, 49_296, 4_725_120, 8, 73_728, ".125"),
    Row("l4.0.ds", 1, (256, 512, 8, 1, 2), 1, 1, 1, 8_240, 265_408, 8, 8_192, ".062"),
)
CLASSIFIER = Geometry(1, 512, 10)
