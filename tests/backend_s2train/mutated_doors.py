"""Damaged programs through the doors that lead to a machine: what comes in is legal, or nothing is executed."""

from __future__ import annotations

import random
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from io import BytesIO
from pathlib import Path

from dlc_backend_s2train.backend import S2Train
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.device import C_SOURCES
from dlc_backend_s2train.device.board import Board
from dlc_backend_s2train.device.driver import driver_files
from dlc_backend_s2train.device.operation import BASE, SIZE, operation, understood
from dlc_backend_s2train.device.protocol import REPLY, REQUEST, Ask, Space
from dlc_backend_s2train.device.registers import norm_registers, setup_of, with_setups, writes
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.isa.words import crc16
from dlc_backend_s2train.program import Program

import dlc
from dlc import DlcError, Source
from dlc.plugins.discovery import BACKENDS, load_registry
from dlc.plugins.registry import Registry
from tests.backend_s2train.mutations import EXTREMES, MUTATIONS, mutated, repaired
from tests.backend_s2train.page_registers import Registers
from tests.backend_s2train.programs import PROGRAMS
from tests.tools import SANITIZE

LIMIT = 1 << 26
"""Bytes of memory that a program may take here."""
HARNESS = """
#include <stdio.h>
#include <stdlib.h>
#include "fuzzed_host.h"

/* A board that nobody may reach: a file that is not the driver's own writes nothing. */
int s2t_write(void *board, int space, uint64_t address, const void *data, size_t size)
{
    (void)board, (void)space, (void)address, (void)data, (void)size;
    abort();
}
int s2t_read(void *board, int space, uint64_t address, void *data, size_t size)
{
    return s2t_write(board, space, address, data, size);
}
int s2t_start(void *board) { return s2t_write(board, 0, 0, 0, 0); }
int s2t_wait(void *board) { return s2t_write(board, 0, 0, 0, 0); }
uint64_t s2t_time(void *board) { return (uint64_t)s2t_write(board, 0, 0, 0, 0); }

int main(void)
{
    uint32_t size;
    while (fread(&size, 4, 1, stdin) == 1) {
        fuzzed_host host;
        unsigned char *file = malloc(size ? size : 1); /* exactly as long, so that a read behind it is seen */
        if (!file || fread(file, 1, size, stdin) != size) return 9;
        printf("%d\\n", fuzzed_load(&host, 0, file, size));
        free(file);
    }
    return 0;
}
"""


def _loaded(load: Callable[[], object], data: bytes) -> str:
    """`refused` or `loaded`; what was loaded is legal."""
    try:
        load()
    except DlcError as refused:
        assert all(p.code and p.message for p in refused.diagnostics)
        return "refused"
    problems = verify(read(memoryview(data), "file"))
    assert not problems, f"a program that is not legal was loaded: {problems[0].message}"
    return "loaded"


def by_file(number: int, place: Path) -> str:
    """`Backend.load_file`."""
    (place / "net.s2t").write_bytes(data := mutated(number))
    return _loaded(lambda: S2Train().limited(LIMIT).load_file(Source(place / "net.s2t")), data)


def by_directory(number: int, place: Path) -> str:
    """`Backend.load`, of a directory that `dlc build` could have made."""
    signature = '"signature": {"inputs": [], "outputs": []}, "memory": {}, "files": {}'
    manifest = f'{{"schema": "dlc.artifact/1", "entry": "net.s2t", "target": "s2train", {signature}}}'
    (place / "manifest.json").write_text(manifest)
    (place / "net.s2t").write_bytes(data := mutated(number))
    return _loaded(lambda: S2Train().limited(LIMIT).load(place), data)


@cache
def _installed() -> Registry:
    """What `dlc.load` finds anew in each call, which takes longer than all that it does with a file."""
    return load_registry(kinds=BACKENDS)


def by_python(number: int, place: Path) -> str:
    """`dlc.load`."""
    (place / "net.s2t").write_bytes(data := mutated(number))
    return _loaded(lambda: dlc.load(place / "net.s2t", _installed(), max_memory=LIMIT), data)


def by_device(number: int, place: Path) -> str:
    """An operation with other bits in the registers of the simulated board: it is refused, or legal.

    It changes nothing but what its instruction writes, to what the pages say, and nothing at all if it is refused.
    """
    del place
    rng = random.Random(number)
    program = PROGRAMS[rng.choice(sorted(PROGRAMS))]()
    k = rng.randrange(len(program.instructions))
    if program.instructions[k].function is not None:
        return "host"
    block = bytearray(operation(program, k, program.hypers, 0))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.choice((rng.randrange(32), rng.randrange(0x20, 0x90), rng.randrange(0x90, 0x100), rng.randrange(SIZE)))
        width, letter = rng.choice(((1, "B"), (2, "H"), (4, "I"), (8, "Q")))
        at = min(at // width * width, SIZE - width)
        value = rng.choice((rng.choice(EXTREMES), rng.randrange(12), block[at] ^ 1 << rng.randrange(8)))
        struct.pack_into(f"<{letter}", block, at, value % (1 << 8 * width))
    if rng.random() < 0.8:
        struct.pack_into("<H", block, 30, crc16(bytes(block[:30])))
    return _executed(program, k, bytes(block), rng)


def _executed(program: Program, k: int, block: bytes, rng: random.Random) -> str:
    size = max(s.address + s.size for s in program.storages)
    memory = rng.randbytes(size)
    board = Board(limit=LIMIT)
    instruction = program.instructions[k]
    requests = [REQUEST.pack(Ask.WRITE, Space.MEMORY, size, 0) + memory]
    pairs = [*writes(program.target, setup_of(program, instruction))]
    pairs += norm_registers(program, instruction, lambda at, count: memory[at : at + count])
    requests += [REQUEST.pack(Ask.WRITE, Space.REGISTERS, 4, a) + struct.pack("<I", v) for a, v in pairs]
    requests += [REQUEST.pack(Ask.WRITE, Space.REGISTERS, SIZE, BASE) + block]
    requests += [REQUEST.pack(Ask.START, 0, 0, 0), REQUEST.pack(Ask.WAIT, 0, 0, 0)]
    requests += [REQUEST.pack(Ask.READ, Space.MEMORY, size, 0)]
    board.serve(BytesIO(b"".join(requests)), replies := BytesIO())
    status, length = REPLY.unpack_from(replies.getvalue())
    after = replies.getvalue()[2 * REPLY.size + length :]
    assert len(after) == size
    if status:
        assert after == memory, "a refused operation changed memory"
        return "refused"
    found = understood(block)
    (alone,) = found.program.instructions
    assert not verify(found.program)
    written = bytearray(size)
    for slot, way in access(alone).items():
        if way.writes:
            tensor = found.program.tensors[alone.operands[slot]]
            first = found.places[tensor.storage][0] + tensor.offset
            written[first : first + tensor.nbytes] = b"\1" * tensor.nbytes
    wrong = [at for at in range(size) if after[at] != memory[at] and not written[at]]
    assert not wrong, f"byte {wrong[0]} changed, which no operand holds"
    assert after == Registers(block, memory).start()[:size], "the simulator of the pages computes something else"
    return "executed"


def harness(place: Path, compiler: str) -> tuple[Path, bytes]:
    """A C program that loads files one after the other into a driver, and the file that the driver is for."""
    program = with_setups(PROGRAMS["conv_step"]())
    content = write(program)
    for name, text in driver_files(program, content, "fuzzed.s2t", "fuzzed").items():
        (place / name).write_bytes(text)
    (place / "main.c").write_text(HARNESS)
    line = [compiler, "-std=c99", "-g", *SANITIZE, f"-I{place}", f"-I{C_SOURCES}"]
    made = place / f"load_{compiler}"
    subprocess.run([*line, place / "main.c", place / "fuzzed_host.c", "-lm", "-o", made], check=True)
    return made, content


def by_driver(numbers: Iterable[int], place: Path, compiler: str) -> Counter[str]:
    """A C driver with sanitizers: it refuses every file but its own, and reaches no board."""
    made, content = harness(place, compiler)
    cases: list[bytes] = []
    for number in numbers:
        rng = random.Random(number)
        data = bytearray(content)
        for _ in range(rng.choice((1, 1, 2))):
            data = rng.choice(MUTATIONS)(rng, data)
        one = bytes(data if rng.random() < 0.2 else repaired(data)) if number % 2 else mutated(number)
        cases += [one] if one != content else []
    given = b"".join(struct.pack("<I", len(c)) + c for c in cases)
    done = subprocess.run([made], input=given, capture_output=True, check=False)
    assert done.returncode == 0, f"the driver ended with {done.returncode}: {done.stderr.decode()[-2000:]}"
    statuses = Counter(done.stdout.decode().split())
    assert sum(statuses.values()) == len(cases) and "0" not in statuses, statuses
    return Counter({f"refused with {status}": count for status, count in statuses.items()})


DOORS = {"file": by_file, "directory": by_directory, "python": by_python, "device": by_device}
