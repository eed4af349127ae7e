"""Many programs compiled at once into one executable, which runs each on its buffers: a crash ends one case only."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, cast

import numpy as np
from dlc_backend_c.target import target_for
from dlc_backend_c.toolchain import find_toolchain

from dlc.api.program import Signature
from dlc.base.diagnostics import DlcError
from dlc.runtime.sizes import at_sizes, results, with_sizes
from tests.backend_c.harness import STRICT
from tests.fuzz.build import Call, Program, text_of
from tests.fuzz.case import Tools
from tests.fuzz.model import Array

DRIVER: Final = Path(__file__).with_name("driver.c")
SECONDS: Final = 60
"""That one process may take."""
STATUS: Final = {100: "a second run gives something else", 101: "an input was written to"}
WARNINGS: Final = tuple(f for f in STRICT if f != "-pedantic")
"""Vector extensions are not the language, so `-pedantic` goes with generic C only."""


@dataclass(frozen=True)
class Ran:
    """What became of one call of a program."""

    outputs: Mapping[str, Array] | None
    problem: str = ""
    """Of the compiler or the run; "" where there are outputs."""


def run_all(programs: Sequence[Program], tools: Tools, folder: Path) -> list[list[Ran]]:
    """What became of every call of each program, compiled and run with tools that all of them share."""
    failed = _compiled(programs, tools, folder)
    every = [(k, call) for k, p in enumerate(programs) for call in range(len(p.calls))]
    found: dict[tuple[int, int], Ran] = {(k, call): Ran(None, failed[k]) for k, call in every if k in failed}
    for k, call in every:
        try:
            _called(programs[k], programs[k].calls[call])
        except DlcError as refusal:
            found[k, call] = Ran(None, f"the call is refused: {refusal.diagnostics[0].message}")
    alive: list[tuple[int, int]] = [one for one in every if one not in found]
    places = {k: place for place, k in enumerate(k for k in range(len(programs)) if k not in failed)}
    while alive:
        found.update(_run(programs, alive, places, folder))
        alive = [one for one in alive if one not in found]
    return [[found[k, call] for call in range(len(p.calls))] for k, p in enumerate(programs)]


def _compiled(programs: Sequence[Program], tools: Tools, folder: Path) -> dict[int, str]:
    """Compiles the programs; those that the compiler refuses, with what it said."""
    for program in programs:
        for name, content in text_of(program).items():
            (folder / name).write_bytes(content)
    own = target_for(tools.cpu, "ordered" if tools.strict else "fast").flags
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
    (folder / "table.h").write_text(_table(alive))
    shutil.copy(DRIVER, folder / "driver.c")
    objects = [f"{p.prefix}.o" for p in alive]
    sanitize = [f for f in tools.flags if f.startswith("-fsanitize")]
    libraries = ["-lm", *(["-pthread"] if tools.threads > 1 else [])]
    link = [*find_toolchain(tools.cc).command, "-std=c99", *sanitize, "driver.c", *objects, *libraries, "-o", "fuzz"]
    subprocess.run(link, cwd=folder, check=True)
    return failed


def _table(programs: Sequence[Program]) -> str:
    """What the driver calls: programs, and the functions that tell the bytes of their arenas, if these have sizes."""
    lines: list[str] = []
    arenas: list[str] = []
    for p in programs:
        lines.append(f"program {p.prefix}_run;")
        if sizes := _arena_sizes(p):
            lines.append(f"size_t {p.prefix}_arena_bytes({', '.join(['int64_t'] * len(sizes))});")
            given = ", ".join(f"s[{k}]" for k in range(len(sizes)))
            lines.append(
                f"static size_t {p.prefix}_arena(const int64_t *s) {{ return {p.prefix}_arena_bytes({given}); }}"
            )
        arenas.append(f"{p.prefix}_arena" if sizes else "0")
    runs = ", ".join(f"{p.prefix}_run" for p in programs) or "0"
    lines.append(f"static program *const programs[] = {{ {runs} }};")
    lines.append(f"static size_t (*const arenas[])(const int64_t *) = {{ {', '.join(arenas) or '0'} }};")
    return "\n".join(lines) + "\n"


def _arena_sizes(program: Program) -> list[str]:
    """Inputs that the bytes of the arena depend on."""
    return [name for name in str(program.artifact.facts.get("arena_sizes", "")).replace(",", " ").split() if name]


def _run(
    programs: Sequence[Program], calls: Sequence[tuple[int, int]], places: Mapping[int, int], folder: Path
) -> dict[tuple[int, int], Ran]:
    """The calls in turn, up to the first that ends the process.

    Args:
        programs: All of them.
        calls: Numbers of programs and of their calls.
        places: Number of a program → its place in the table of those that were compiled.
        folder: Where the executable is.
    """
    data = b"".join(_request(programs[k], programs[k].calls[call], places[k]) for k, call in calls)
    try:
        done = subprocess.run([folder / "fuzz"], input=data, capture_output=True, check=False, timeout=SECONDS)
        out, said, code = done.stdout, done.stderr.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as slow:
        out, said, code = slow.stdout or b"", f"no end within {SECONDS} s", -1
    found: dict[tuple[int, int], Ran] = {}
    at = 0
    for k, call in calls:
        program = programs[k]
        if at + 16 > len(out):
            lines = [x for x in said.splitlines() if "ERROR" in x or "runtime error" in x or "no end" in x]
            where = [x.strip() for x in said.splitlines() if program.prefix in x][:2]
            found[k, call] = Ran(
                None, f"ends with {code}: {' '.join((lines[:1] or said.splitlines()[:1]) + where)[:500]}"
            )
            break
        _, status = struct.unpack_from("<QQ", out, at)
        outputs, at = _outputs(program, program.calls[call], out, at + 16)
        problem = "" if not status else STATUS.get(status, f"status {status}")
        found[k, call] = Ran(None if status else outputs, problem)
    return found


def _called(program: Program, call: Call) -> tuple[Signature, Mapping[str, Array]]:
    """The program's signature in numbers, and all that it is given: sizes are told by the arrays."""
    signature = program.artifact.signature
    feeds = cast("Mapping[str, Array]", with_sizes(signature.inputs, call.feeds))
    return at_sizes(signature, feeds), feeds


def _outputs(program: Program, call: Call, out: bytes, at: int) -> tuple[dict[str, Array], int]:
    signature, feeds = _called(program, call)
    written: list[Array] = []
    for port in signature.outputs:
        raw = np.frombuffer(out, np.uint8, port.type.nbytes, at).copy()
        written.append(raw.view(port.type.dtype.numpy).reshape(port.type.shape))
        at += port.type.nbytes
    return results(program.artifact.signature, feeds, written), at


def _request(program: Program, call: Call, index: int) -> bytes:
    """What the driver reads for one call of a program."""
    (signature, feeds), random = _called(program, call), Random(program.case.seed)
    parts = [struct.pack("<QQ", index, len(signature.inputs))]
    for port in signature.inputs:
        raw = np.ascontiguousarray(feeds[port.name], port.type.dtype.numpy).tobytes()
        parts += [struct.pack("<QQ", len(raw), _skew(random, port.type.dtype.itemsize)), raw]
    shared = {i: j + 1 for i, j in signature.aliases}
    parts.append(struct.pack("<Q", len(signature.outputs)))
    for k, port in enumerate(signature.outputs):
        parts.append(struct.pack("<QQQ", port.type.nbytes, _skew(random, port.type.dtype.itemsize), shared.get(k, 0)))
    sizes = [int(feeds[name]) for name in _arena_sizes(program)]
    fixed = 0 if sizes else int(program.artifact.facts["arena_bytes"])
    return b"".join((*parts, struct.pack(f"<QQ{len(sizes)}q", fixed, len(sizes), *sizes)))


def _skew(random: Random, itemsize: int) -> int:
    """Bytes behind a multiple of 64 that a buffer begins at."""
    return random.choice((0, 0, 0, 1, 3)) * itemsize
