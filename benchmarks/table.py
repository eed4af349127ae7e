"""The table of networks against other runtimes: `dlc bench` of each, one run, calls taking turns.

    python benchmarks/table.py [WORD…] [--threads 1] [--target SPEC] [--set PASS.KEY=VALUE] [--seconds 3]
                               [--pause MS] [--models DIR] [--unseen] [--json FILE]

Networks of the onnx package, MobileNetV2, ResNet-18 for CIFAR, dense layers, transformers and an LSTM, all with random
weights; `--unseen` takes networks that nothing here was tuned for instead. With `--pause` the times are those of calls
so long after the last one, as services make them, instead of calls back to back. onnxruntime and OpenVINO are measured
where they are installed. Prints a table in Markdown: medians, and how many times the better peer's time dlc's is, as
the geometric mean too. Exit code 1 if an output differs from a peer's by more than 1e-4 of its largest magnitude.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.networks import SEEN, UNSEEN

PEERS = ("onnxruntime", "openvino")


def bench(
    model: Path, threads: int, seconds: float, pause: float, arguments: Sequence[str], target: str
) -> dict[str, Any]:
    """What `dlc bench --json` prints."""
    spec = f"c{{threads={threads} {target}}}" if target else f"c{{threads={threads}}}"
    command = [sys.executable, "-m", "dlc", "bench", str(model), "-t", spec, "--against", ",".join(PEERS)]
    command += ["--no-kernels", "--json", "-q", "--seconds", str(seconds), "--pause", str(pause), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{model}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Medians by program, the ratio, the largest error relative to an output's largest magnitude."""
    programs: dict[str, Any] = {p["name"]: p for p in found["programs"]}
    if "dlc" not in programs or not programs["dlc"]["measured"]:
        raise SystemExit(f"{name}: {found['diagnostics']}")
    times = {n: (p["after_pause"] or p)["median_ms"] for n, p in programs.items() if p["measured"]}
    better = min((t for n, t in times.items() if n != "dlc"), default=math.nan)
    errors = [o["max_rel"] for p in programs.values() for o in p["outputs"]]
    ok = all(o["ok"] for p in programs.values() for o in p["outputs"])
    return {"name": name, "ms": times, "ratio": better / times["dlc"], "error": max(errors, default=0.0), "ok": ok}


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="", help="more options of the target, as cpu=native")
    parser.add_argument("--set", action="append", default=[], help="as dlc bench has it")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--pause", type=float, default=0, help="milliseconds between calls")
    parser.add_argument("--models", type=Path, default=Path("build/networks"))
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    networks = UNSEEN if arguments.unseen else SEEN
    arguments.models.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    print(line(["network", "dlc, ms", *(f"{p}, ms" for p in PEERS), "better peer / dlc"]))
    print(line(["---"] * (len(PEERS) + 3)), flush=True)
    more = [a for s in arguments.set for a in ("--set", s)]
    for name, make in networks.items():
        if arguments.words and not any(w in name for w in arguments.words):
            continue
        path = arguments.models / f"{name}.onnx"
        if not path.exists():
            path.write_bytes(make())
        found = row(name, bench(path, arguments.threads, arguments.seconds, arguments.pause, more, arguments.target))
        rows.append(found)
        times = [f"{found['ms'][p]:.3g}" if p in found["ms"] else "" for p in ("dlc", *PEERS)]
        print(line([name, *times, f"{found['ratio']:.2f}" + ("" if found["ok"] else " (outputs differ)")]), flush=True)
    mean = math.exp(sum(math.log(r["ratio"]) for r in rows) / len(rows)) if rows else math.nan
    print(line(["geometric mean", *[""] * (len(PEERS) + 1), f"{mean:.2f}"]))
    if arguments.json:
        arguments.json.write_text(
            json.dumps(
                {"threads": arguments.threads, "pause_ms": arguments.pause, "mean": mean, "rows": rows}, indent=1
            )
        )
    return 0 if all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
