"""Machines that schedules must serve: four by name, and random ones.

Nobody has all of them: loops for them are evaluated, and C for them is compiled by whatever compiler there is, which
breaks vectors that the processor lacks into narrower ones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from dlc_backend_c.target import CTarget, target_for

from dlc.kernel.schedules.machine import Machine

MACHINES: Mapping[str, Machine] = {
    "small-caches": Machine(32, 16, 4 << 10, 24 << 10, past=1 << 10, reciprocals=True),
    # As `native` on a processor of this kind: where the tail of row blocks was wrong.
    "wide-vectors": Machine(64, 32, 32 << 10, 512 << 10),
    "no-vectors": Machine(0, 16, 16 << 10, 128 << 10, stack=1 << 10, reciprocals=True),
    "odd-registers": Machine(16, 11, 24_000, 200_003),
}
SMALL = Machine(0, 32, 256 << 10, 256 << 10, general=10, words=True, stack=1 << 10)
"""As a Cortex-M4, with dot products of bytes in general registers; what has no bytes is the same as without vectors."""


def target_of(machine: Machine) -> CTarget:
    """C for a machine that may be another than this: the instructions are those of the processor at hand."""
    flags = (*target_for("native").flags, "-Wno-psabi")  # vectors that the processor lacks never leave a function
    sizes = (machine.vector_bytes, machine.registers, machine.l1, machine.l2)
    words = ("arm-dsp",) if machine.words else ()
    math = "ordered" if machine.ordered else "fast" if machine.reciprocals else "strict"
    return CTarget(
        "native",
        *sizes,
        flags,
        math,
        stack=machine.stack,
        instructions=words,
        general=machine.general,
        past=machine.past,
    )


SMALLEST, LARGEST = 1 << 10, 4 << 20


def random_machine(rng: random.Random) -> Machine:
    """Any vectors from none to 64 bytes, 4 to 32 registers, caches of 1 KiB to 4 MiB; small ones more often."""
    l1, l2 = sorted(_cache(rng) for _ in range(2))
    return Machine(
        rng.choice((0, 8, 16, 16, 32, 32, 64, 64)),
        rng.choice((rng.randint(4, 32), 16, 32)),
        l1,
        l2,
        rng.random() < 0.1,
        threads=rng.choice((1, 1, 2, 3, 8)),
        stack=rng.choice((0, 1 << 10, 64 << 10)),
        general=rng.choice((0, 4, 10)),
        words=rng.random() < 0.5,
        past=rng.choice((0, 0, 1, 1 << 10)),
        reciprocals=rng.random() < 0.5,
    )


def _cache(rng: random.Random) -> int:
    """A power of two or any other number of bytes; tensors of tests are small, so most caches are."""
    top = rng.choice((8 << 10, 32 << 10, LARGEST))
    size = int(SMALLEST * (top / SMALLEST) ** rng.random())
    return 1 << (size.bit_length() - 1) if rng.random() < 0.5 else size
