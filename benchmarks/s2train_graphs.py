"""Random ONNX models with shared operands on S2Train (simulated), against onnxruntime without optimisations.

    python benchmarks/s2train_graphs.py [--count 2000] [--seed 0] [--jobs 2] [--target s2train] [--json FILE]

Most ops read one value several times: residuals, gates, squares, products of a value with itself, tied weights in both
layouts, views of one value. A difference is a fault where it is larger than rounding to fp16 explains, which is
measured for each model. Model N of a run is drawn from the seed `seed + N`, so a fault is repeated by
`--seed S --count 1`. The exit code is 1 when there is one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / "plugins" / p) for p in ("backend_c", "backend_s2train", "frontend_onnx"))]

from tests.backend_s2train.random_models import Verdict, judged  # noqa: E402


def main() -> int:
    """Run it all, with a line of progress and a summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for option, default in (("count", 2000), ("seed", 0), ("jobs", 2)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--target", default="s2train", help="with options, as s2train{fuse=no}")
    parser.add_argument("--json", default="", help="file for the summary")
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    faults: list[Verdict] = []
    start = time.monotonic()
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    with multiprocessing.get_context("fork").Pool(chosen.jobs) as pool:
        for done, verdict in enumerate(pool.imap_unordered(partial(judged, target=chosen.target), seeds), 1):
            counts[verdict.what] += 1
            if verdict.what == "fault":
                faults.append(verdict)
            if verdict.what in ("fault", "refused"):
                print(f"\n{verdict.what} --seed {verdict.seed} --count 1: {verdict.detail}", flush=True)
            if done % 100 == 0:
                print(f"{done} of {chosen.count}, {len(faults)} faults", flush=True)
    seconds = time.monotonic() - start
    print(f"{chosen.count} models in {seconds:.0f} s: {', '.join(f'{n} {what}' for what, n in counts.most_common())}")
    if chosen.json:
        found = [{"seed": f.seed, "detail": f.detail} for f in faults]
        document = {"models": chosen.count, "verdicts": counts, "faults": found, "seconds": round(seconds, 1)}
        Path(chosen.json).write_text(json.dumps(document, indent=2) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
