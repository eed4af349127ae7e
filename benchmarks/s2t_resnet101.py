"""ResNet-101 for S2Train, in words of both versions: more than 512 tensors. Needs PyTorch to make the model.

    python benchmarks/s2t_resnet101.py [--width 64] [--batch 4]

Prints, of a training program for 3 x 32 x 32 images: its instructions and tensors, words of version 1 and the numbers
of tensors that they need; seconds and most memory of `dlc build`, a process of its own without a cache; the arena of a
step. The exit status is 0 if both passed the verifier and version 1 found its numbers.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.backend_s2train.networks import ResNet101  # noqa: E402  # behind the path that finds it
from tests.training.torch_networks import Network, pictures  # noqa: E402


def dlc(place: Path, *arguments: str) -> tuple[str, float, int]:
    """Standard output, seconds, and MiB at most of a `dlc` process that must succeed."""
    start = time.perf_counter()
    output = place / "stdout"
    with output.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "dlc", *arguments], cwd=place, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"dlc {' '.join(arguments)} failed")
    return output.read_text("utf-8"), time.perf_counter() - start, usage.ru_maxrss >> 10


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--batch", type=int, default=4, help="images of a step")
    given = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        network = Network(partial(ResNet101, given.width), pictures(32), given.batch)
        (place / "resnet101.onnx").write_bytes(network.onnx(network.module()))
        for isa in ("v2", "v1"):
            line = ("build", "resnet101.onnx", "--target", f"s2train{{isa={isa}}}", "-o", isa, "-q", "--cache", "off")
            _, seconds, peak = dlc(place, *line)
            shown: dict[str, Any] = json.loads(dlc(place, "show", f"{isa}/resnet101.s2t", "--json")[0])
            checked = json.loads(dlc(place, "verify", f"{isa}/resnet101.s2t", "--json")[0])["checked"]
            words = shown.get("version_1", {"words": [], "numbering": []})
            numbers = len({entry["number"] for entry in words["numbering"]})
            named = len({entry["tensor"] for entry in words["numbering"]})
            rest = f"; {len(words['words'])} words of version 1, {numbers} numbers for {named} tensors" if named else ""
            print(f"isa={isa}: {len(shown['instructions'])} instructions, {len(shown['tensors'])} tensors{rest}")
            arena = int(shown["meta"]["arena"])
            print(f"  built in {seconds:.1f} s with at most {peak:,} MiB; arena of a step {arena:,} B")
            print(f"  {checked}", flush=True)
            good &= isa == "v2" or 0 < numbers <= 512 < named
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
