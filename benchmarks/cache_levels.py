"""Builds against cache servers that fail at random: right files, no failed build, at most one warning for each server.

    python benchmarks/cache_levels.py --builds 200

Each build has an empty or a shared local cache and one or two servers, which it reads and writes. Some servers are
dead; of the others, a part of the answers that is drawn for each build (none, 5 %, 30 %, all) is wrong in one of the
ways of tests/cache/faulty.py: 500, 403, 507, redirected, cut short, too long, endless, altered, late, not HTTP. What
a build writes must be what one without a cache does, and the local caches must be sound. Exit status 0 means that all
of that was so.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins" / "backend_c"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins" / "frontend_onnx"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dlc.cache import open_cache
from dlc.cli.frame import run
from tests.cache.faulty import FAULTS, FaultyServer, serving
from tests.session.building import SMALL, Layer, contents, conv_net, save

TARGETS = ("c{lib=none}", "c{lib=none}", "c{flags=-O0}")
RATES = (0.0, 0.05, 0.3, 1.0)
SETTINGS = "[cache]\nlevel-timeout = 0.3\nupload-time = 2\n"
SHARED = 0.2
"""Part of the builds whose local cache an earlier one had."""
DEAD = 0.1
"""Part of the servers that do not listen."""


def well(method: str, path: str) -> str:
    """No fault."""
    del method, path
    return ""


@dataclass
class Tally:
    """What came of the builds."""

    right: int = 0
    failed: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    noisy: list[str] = field(default_factory=list[str])
    damaged: list[str] = field(default_factory=list[str])
    warnings: int = 0
    hits: int = 0
    uploaded: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])

    @property
    def ok(self) -> bool:
        return not (self.failed or self.wrong or self.noisy or self.damaged)

    def __str__(self) -> str:
        lines = [
            f"{self.right} right, {len(self.wrong)} wrong, {len(self.failed)} failed, {self.warnings} warnings",
            f"{self.hits} results and {self.uploaded:,} bytes came from and went to servers",
            "faults: " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
        ]
        groups = (("failed", self.failed), ("wrong", self.wrong), ("noisy", self.noisy), ("damaged", self.damaged))
        return "\n".join([*lines, *(f"{name}: {what}" for name, found in groups for what in found)])


@dataclass
class Task:
    """A build whose result is known."""

    model: Path
    target: str
    files: dict[str, bytes]

    def build(self, output: Path, *more: str) -> tuple[int, str]:
        """Exit code and what was told."""
        shutil.rmtree(output, ignore_errors=True)
        told = io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
            code = run(["build", str(self.model), "-t", self.target, "-o", str(output), "-q", *more])
        return code, told.getvalue()


def tasks(place: Path) -> list[Task]:
    """Small models for targets with and without a compiler, built without a cache."""
    found: list[Task] = []
    for number, layers in enumerate(([*SMALL], [*SMALL, Layer(3, 1, 1)])):
        model = place / f"model{number}.onnx"
        save(conv_net(layers), model)
        for target in TARGETS[number:]:
            task = Task(model, target, {})
            code, told = task.build(place / "reference", "--cache", "off")
            assert code == 0, told
            found.append(Task(model, target, contents(place / "reference")))
    return found


def attempt(number: int, place: Path, known: list[Task], servers: list[FaultyServer], draw: random.Random) -> Tally:
    """One build and what came of it."""
    tally, task, rate = Tally(), draw.choice(known), draw.choice(RATES)
    kinds = draw.sample(FAULTS, draw.randint(1, 3))

    def fault(method: str, path: str) -> str:
        del method, path
        kind = draw.choice(kinds) if draw.random() < rate else ""
        tally.faults[kind or "none"] += 1
        return kind

    urls: list[str] = []
    for server in draw.sample(servers, draw.randint(1, len(servers))):
        server.fault = fault
        urls.append("http://127.0.0.1:9/" if draw.random() < DEAD else server.url)
    home = place / ("shared" if draw.random() < SHARED else f"home{number}")
    levels = ",".join(f"{url}#rw" for url in dict.fromkeys(urls))
    code, told = task.build(place / "out", "--cache-dir", str(home), "--cache-levels", levels)
    for server in servers:
        server.fault = well  # for what a build left behind when its time was over
    name = f"build {number}, {levels}, {rate:.0%} of {', '.join(kinds)}"
    tally.warnings = told.count("warning[")
    if code:
        tally.failed.append(f"{name}: exit code {code}: {told}")
    elif contents(place / "out") != task.files:
        tally.wrong.append(name)
    else:
        tally.right += 1
    if any(told.count(f"cache level {url}:") > 1 for url in urls) or tally.warnings > len(set(urls)):
        tally.noisy.append(f"{name}: {told}")
    with open_cache(home, "rw") as cache:
        if bad := cache.verify().bad:
            tally.damaged.append(f"{name}: {bad}")
        if home.name != "shared":
            total = cache.statistics().total.levels
            tally.hits = sum(level.hits for level in total)
            tally.uploaded = sum(level.bytes_written for level in total)
    if home.name != "shared":
        shutil.rmtree(home)
    return tally


def campaign(builds: int, seed: int) -> Tally:
    """All builds, one after another."""
    draw, whole = random.Random(seed), Tally()
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, serving() as one, serving() as two:
        place = Path(folder)
        (place / "dlc.toml").write_text(SETTINGS)
        os.chdir(place)
        try:
            known = tasks(place)
            for number in range(builds):
                done = attempt(number, place, known, [one, two], draw)
                whole.right += done.right
                whole.warnings += done.warnings
                whole.hits += done.hits
                whole.uploaded += done.uploaded
                whole.faults += done.faults
                for name in ("failed", "wrong", "noisy", "damaged"):
                    getattr(whole, name).extend(getattr(done, name))
                if number % 10 == 9:
                    print(f"{number + 1} builds: {whole.right} right, {whole.warnings} warnings", flush=True)
        finally:
            os.chdir(before)
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    whole = campaign(asked.builds, asked.seed)
    print(whole)
    return 0 if whole.ok else 1


if __name__ == "__main__":
    sys.exit(main())
