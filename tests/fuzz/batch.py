"""Many programs compiled at once into one executable, which runs each on its buffers: a crash ends one case only."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
from dlc_backend_c.target import target_for
from dlc_backend_c.toolchain import find_toolchain

from tests.backend_c.harness import STRICT
from tests.fuzz.build import Program, text_of
from tests.fuzz.case import Tools
from tests.fuzz.model import Array

DRIVER: Final = Path(__file__).with_name("driver.c")
SECONDS: Final = 60
"""That one program may take."""
STATUS: Final = {100: "a second run gives something else", 101: "an input was written to"}
WARNINGS: Final = tuple(f for f in STRICT if f != "-pedantic")
"""Vector extensions are not the language, so `-pedantic` goes with generic C only."""


@dataclass(frozen=True)
class Ran:
    """What became of one program."""

    outputs: Mapping[str, Array] | None
    problem: str = ""
    """Of the compiler or the run; "" where there are outputs."""


def run_all(programs: Sequence[Program], tools: Tools, folder: Path) -> list[Ran]:
    """Every program, compiled and run with tools that all of them share."""
    failed = _compiled(programs, tools, folder)
    alive = [k for k in range(len(programs)) if k not in failed]
    found = {k: Ran(None, problem) for k, problem in failed.items()}
    while alive:
        ran = _run([programs[k] for k in alive], folder, [*alive])
        found.update(ran)
        alive = [k for k in alive if k not in ran]
    return [found[k] for k in range(len(programs))]


def _compiled(programs: Sequence[Program], tools: Tools, folder: Path) -> dict[int, str]:
    """Compiles the programs; those that the compiler refuses, with what it said."""
    for program in programs:
        for name, content in text_of(program).items():
            (folder / name).write_bytes(content)
    own = target_for(tools.cpu, tools.strict).flags
    pedantic = ("-pedantic",) if tools.cpu == "generic" else ()
    flags = (*find_toolchain(tools.cc).command, *own, *WARNINGS, *pedantic, *tools.flags)
    names = [f"{p.prefix}.c" for p in programs]
    done = subprocess.run([*flags, "-c", *names], cwd=folder, capture_output=True, text=True, check=False)
    failed: dict[int, str] = {}
    for k, program in enumerate(programs):
        if not (folder / f"{program.prefix}.o").is_file():
            lines = [x for x in done.stderr.splitlines() if program.prefix in x and "error" in x]
            failed[k] = f"the C compiler refuses: {' '.join((lines or done.stderr.splitlines())[:2])[:500]}"
    alive = [p for k, p in enumerate(programs) if k not in failed]
    table = "".join(f"program {p.prefix}_run;\n" for p in alive)
    table += f"static program *const programs[] = {{ {', '.join(f'{p.prefix}_run' for p in alive) or '0'} }};\n"
    (folder / "table.h").write_text(table)
    shutil.copy(DRIVER, folder / "driver.c")
    objects = [f"{p.prefix}.o" for p in alive]
    sanitize = [f for f in tools.flags if f.startswith("-fsanitize")]
    link = [*find_toolchain(tools.cc).command, "-std=c99", *sanitize, "driver.c", *objects, "-lm", "-o", "fuzz"]
    subprocess.run(link, cwd=folder, check=True)
    (folder / "index").write_text(" ".join(str(k) for k in range(len(programs)) if k not in failed))
    return failed


def _run(programs: Sequence[Program], folder: Path, numbers: Sequence[int]) -> dict[int, Ran]:
    """The programs in turn, up to the first that ends the process."""
    places = [int(k) for k in (folder / "index").read_text().split()]
    data = b"".join(_request(p, places.index(n)) for p, n in zip(programs, numbers, strict=True))
    try:
        done = subprocess.run([folder / "fuzz"], input=data, capture_output=True, check=False, timeout=SECONDS)
        out, said, code = done.stdout, done.stderr.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as slow:
        out, said, code = slow.stdout or b"", f"no end within {SECONDS} s", -1
    found: dict[int, Ran] = {}
    at = 0
    for program, number in zip(programs, numbers, strict=True):
        if at + 16 > len(out):
            lines = [x for x in said.splitlines() if "ERROR" in x or "runtime error" in x or "no end" in x]
            where = [x.strip() for x in said.splitlines() if program.prefix in x][:2]
            found[number] = Ran(
                None, f"ends with {code}: {' '.join((lines[:1] or said.splitlines()[:1]) + where)[:500]}"
            )
            break
        _, status = struct.unpack_from("<QQ", out, at)
        outputs, at = _outputs(program, out, at + 16)
        problem = "" if not status else STATUS.get(status, f"status {status}")
        found[number] = Ran(None if status else outputs, problem)
    return found


def _outputs(program: Program, out: bytes, at: int) -> tuple[dict[str, Array], int]:
    found: dict[str, Array] = {}
    for port in program.artifact.signature.outputs:
        raw = np.frombuffer(out, np.uint8, port.type.nbytes, at).copy()
        found[port.name] = raw.view(port.type.dtype.numpy).reshape(port.type.shape)
        at += port.type.nbytes
    return found, at


def _request(program: Program, index: int) -> bytes:
    """What the driver reads for one program."""
    signature, random = program.artifact.signature, Random(program.case.seed)
    parts = [struct.pack("<QQ", index, len(signature.inputs))]
    for port in signature.inputs:
        raw = np.ascontiguousarray(program.feeds[port.name], port.type.dtype.numpy).tobytes()
        parts += [struct.pack("<QQ", len(raw), _skew(random, port.type.dtype.itemsize)), raw]
    shared = {i: j + 1 for i, j in signature.aliases}
    parts.append(struct.pack("<Q", len(signature.outputs)))
    for k, port in enumerate(signature.outputs):
        parts.append(struct.pack("<QQQ", port.type.nbytes, _skew(random, port.type.dtype.itemsize), shared.get(k, 0)))
    return b"".join((*parts, struct.pack("<Q", int(program.artifact.facts["arena_bytes"]))))


def _skew(random: Random, itemsize: int) -> int:
    """Bytes behind a multiple of 64 that a buffer begins at."""
    return random.choice((0, 0, 0, 1, 3)) * itemsize
