"""How much processor time the commands take that people run without thinking, and what they may import."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 0.150
"""Seconds of user and system time."""
RUNS = 12
"""At most; the first that stays below the limit ends the measurement, for other work slows every processor down."""
USUAL = "import asyncio, dataclasses, importlib.metadata, inspect, json, logging, pathlib, subprocess, tomllib"
RATIO = 1.35
"""Where the machine is slow or busy, a command may take so many times what the interpreter takes for `USUAL`; it takes
about as long."""

HEAVY = {"numpy", "onnx", "rich", "typer", "pydantic", "diskcache", "cffi", "jinja2"}


def environment(tmp_path: Path) -> dict[str, str]:
    """With bytecode, as installed programs have it."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"), "PYTHONPATH": os.pathsep.join(sys.path)}


def processor_time(code: str, surroundings: dict[str, str]) -> float:
    """Seconds that a fresh interpreter takes for `code`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=surroundings, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["list", "passes"]], ids=" ".join)
def test_processor_time(tmp_path: Path, arguments: list[str]) -> None:
    surroundings = environment(tmp_path)
    code = f"from dlc.cli.frame import run; run({arguments!r})"
    processor_time(code, surroundings)  # writes the bytecode
    found, usual = [processor_time(code, surroundings)], [processor_time(USUAL, surroundings)]
    while len(found) < RUNS and min(found) >= max(LIMIT, RATIO * min(usual)):
        usual.append(processor_time(USUAL, surroundings))
        found.append(processor_time(code, surroundings))
    times = [f"{x * 1000:.0f} ms, {y * 1000:.0f} ms for modules of Python" for x, y in zip(found, usual, strict=True)]
    assert min(found) < max(LIMIT, RATIO * min(usual)), times


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["list", "passes"]], ids=" ".join)
def test_imports(arguments: list[str]) -> None:
    code = f"""
import sys
from dlc.cli.frame import run
run({arguments!r})
print(' '.join(sorted({{m.partition('.')[0] for m in sys.modules}})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())
