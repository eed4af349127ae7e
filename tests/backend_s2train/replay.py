"""Instructions of a dump (`dlc run --dump`), executed one by one by the simulator that was written from the pages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.backend_s2train.page_simulator import HOST, Simulator


def lines(path: Path) -> bytes:
    """The bytes of memory that a `.hex` file holds: words of as many digits as its first line has."""
    text = path.read_text().split()
    width = len(text[0]) // 2
    words = np.frombuffer(bytes.fromhex("".join(text)), f">u{width}")
    return words.astype(f"<u{width}").tobytes()


def differences(dump: Path, program: bytes) -> Iterator[str]:
    """Operands that the page's simulator writes otherwise than the dump has them, each instruction from its dump."""
    index = json.loads((dump / "index.json").read_text())
    assert index["format"] == "s2t-dump"
    simulator = Simulator(program)
    for instruction in index["instructions"]:
        word = bytes.fromhex(instruction.get("word", ""))
        if not word or word[0] == HOST:
            continue
        # Nothing is left of other instructions.
        simulator.memory[:] = 0xA5
        for operand in instruction["operands"]:
            if "before" in operand:
                data = lines(dump / operand["before"]["hex"])
                simulator.memory[operand["address"] : operand["address"] + len(data)] = np.frombuffer(data, np.uint8)
        simulator.execute(word, index["run"])
        for operand in instruction["operands"]:
            if "after" in operand:
                yield from _compared(instruction["number"], operand, dump, simulator)


def _compared(number: int, operand: dict[str, Any], dump: Path, simulator: Simulator) -> Iterator[str]:
    wanted = lines(dump / operand["after"]["hex"])
    found = simulator.memory[operand["address"] : operand["address"] + operand["bytes"]].tobytes()
    if found != wanted:
        wrong = int(np.flatnonzero(np.frombuffer(found, np.uint8) != np.frombuffer(wanted, np.uint8))[0])
        yield f"instruction {number}: {operand['slot']} at byte {wrong} is {found[wrong]}, the dump has {wanted[wrong]}"
