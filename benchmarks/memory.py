"""Peak memory of building a large model: VGG-19 with random weights (575 MB), as one file and with external data.

    python benchmarks/memory.py [--model vgg19] [--bound 300]

What is counted: resident memory of `dlc build` and all its children at one moment, as the kernel tells it (VmRSS, pages
of mapped files included, each process by itself, so shared pages count twice), sampled every 10 ms; and the highest
VmHWM of a single process, which no sampling can miss. Both must stay below the size of the model plus the bound.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from models import with_random_weights

MB = 1_000_000


@dataclass(frozen=True)
class Peak:
    """Bytes."""

    together: int
    """All processes at one moment."""
    single: int
    """The largest process."""
    name: str
    """Of that process."""
    anonymous: int
    """All processes at one moment, without pages of files."""
    seconds: float


def measure(command: list[str], place: Path) -> Peak:
    """Run a command that must succeed and watch it and its children."""
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, start_new_session=True)
    together = single = anonymous = 0
    name = ""
    while process.poll() is None:
        found = [facts for pid in members(process.pid) if (facts := status(pid))]
        together = max(together, sum(f.get("VmRSS", 0) for f in found))
        anonymous = max(anonymous, sum(f.get("RssAnon", 0) for f in found))
        for facts in found:
            if facts.get("VmHWM", 0) > single:
                single, name = facts["VmHWM"], facts["Name"]  # type: ignore[assignment]
        time.sleep(0.01)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed with status {process.returncode}")
    return Peak(together, single, name, anonymous, time.monotonic() - start)


def members(session: int) -> list[int]:
    """Processes of a session."""
    found: list[int] = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text()
            except OSError:
                continue  # it has ended
            if int(text.rpartition(")")[2].split()[3]) == session:
                found.append(int(entry.name))
    return found


def status(pid: int) -> dict[str, int]:
    """Lines of /proc/PID/status in bytes, and the name; nothing if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = [line.split(":\t", 1) for line in lines if ":\t" in line]
    found = {key: int(value.split()[0]) * 1024 for key, value in pairs if value.endswith(" kB")}
    return {**found, "Name": pairs[0][1]}  # type: ignore[dict-item]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="vgg19", help="one of the onnx package's light models")
    parser.add_argument("--file", type=Path, help="a model of your own instead")
    parser.add_argument("--bound", type=int, default=300, help="MB beyond the model's size")
    parser.add_argument("--target", default="c")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dlc-memory-") as folder:
        place = Path(folder)
        if options.file:
            return 0 if check(options.file.resolve(), "inside", place, options) else 1
        good = True
        for external in (False, True):
            kind = "external" if external else "inside"
            path = with_random_weights(options.model, place / kind / f"{options.model}.onnx", external=external)
            good = check(path, kind, place, options) and good
    return 0 if good else 1


def check(path: Path, kind: str, place: Path, options: argparse.Namespace) -> bool:
    """Build a model twice and print what it took."""
    size, good = sum(p.stat().st_size for p in path.parent.iterdir()), True
    for again in ("cold", "second"):
        build = [sys.executable, "-m", "dlc", "build", str(path), "-q", "-t", options.target, "-o", f"out-{kind}"]
        peak = measure([*build, "--cache-dir", f"cache-{kind}"], place)
        fine = max(peak.together, peak.single) <= size + options.bound * MB
        good = good and fine
        print(
            f"{'ok  ' if fine else 'FAIL'} {path.stem} weights {kind}, {again} build: model {size / MB:.0f} MB, "
            f"peak {peak.together / MB:.0f} MB (anonymous {peak.anonymous / MB:.0f}), "
            f"largest process {peak.name} {peak.single / MB:.0f} MB, {peak.seconds:.1f} s",
            flush=True,
        )
    return good


if __name__ == "__main__":
    sys.exit(main())
