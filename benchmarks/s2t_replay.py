"""Every instruction of a ResNet-18's training step from `dlc run --dump`, by the simulator of the pages: the same bits.

    python benchmarks/s2t_replay.py [--width 64] [--batch 4] [--program FILE.s2t --entry step]

Each instruction starts from its dump alone. Prints how many agree; the exit status is 1 if one does not. Needs PyTorch
to make the model, unless a program is given.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.backend_s2train.replay import differences  # noqa: E402  # behind the path that finds it


def dlc(*arguments: str | Path) -> None:
    """A `dlc` process that must succeed."""
    subprocess.run([sys.executable, "-m", "dlc", *map(str, arguments), "-q"], check=True, stdout=subprocess.DEVNULL)


def built(place: Path, width: int, batch: int) -> Path:
    """The training program of a ResNet-18 for 32 x 32 pixels."""
    from tests.backend_s2train.networks import ResNet18
    from tests.training.torch_networks import Network, pictures

    network = Network(partial(ResNet18, width), pictures(32), batch)
    (place / "resnet18.onnx").write_bytes(network.onnx(network.module()))
    dlc("build", place / "resnet18.onnx", "-t", "s2train", "--train", "loss=cross-entropy", "-o", place / "out")
    return place / "out" / "resnet18.s2t"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--batch", type=int, default=4, help="images of a step")
    parser.add_argument("--program", type=Path, help="a program that is built already")
    parser.add_argument("--entry", default="step", help="its function")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = given.program or built(Path(folder), given.width, given.batch)
        start = time.perf_counter()
        dlc("run", program, "--entry", given.entry, "--dump", Path(folder) / "dump")
        dumped = time.perf_counter()
        dump = Path(folder) / "dump"
        count = len(json.loads((dump / "index.json").read_text())["instructions"])
        size = sum(f.stat().st_size for f in dump.rglob("*") if f.is_file())
        wrong = [*differences(dump, program.read_bytes())]
        print(f"{count} instructions, {size >> 20:,} MiB of dump in {dumped - start:.0f} s")
        print(f"replayed in {time.perf_counter() - dumped:.0f} s: {len(wrong)} operands differ")
        print("\n".join(wrong[:20]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
