"""Layers by rows: MobileNet v1 (a quarter of the channels, 96x96) within less and less memory.

    python benchmarks/streaming.py [BYTES…]

For each size of `stream.memory`, the arena of the program that is built for a processor without vectors; `dlc plan`
with the same option tells the extra work. Each is compiled for this machine and run: outputs have to be those of whole
layers to the bit.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from small_models import mobilenet_v1

import dlc


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or [115_000, 100_000, 80 << 10]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.onnx"
        model.write_bytes(mobilenet_v1().SerializeToString())
        image = np.random.default_rng(0).standard_normal((1, 3, 96, 96), np.float32)
        wanted: dict[str, np.ndarray] = {}
        for size in ["", *sizes]:
            command = ["dlc", "build", str(model), "-t", "c{cpu=generic}", "-o", f"{folder}/program{size}"]
            command += ["--set", f"stream.memory={size}B"] if size else []
            printed = subprocess.run(command, check=True, capture_output=True, text=True)
            found = {name: np.asarray(y) for name, y in dlc.load(f"{folder}/program{size}")(x=image).items()}
            wanted = wanted or found
            same = all(np.array_equal(found[name], wanted[name]) for name in wanted)
            told = [line for line in printed.stdout.splitlines() if line.startswith("arena")]
            print(size or "whole layers", "same bits" if same else "OTHER VALUES", *told, sep="\n  ", flush=True)
            if not same:
                sys.exit(1)


if __name__ == "__main__":
    main()
