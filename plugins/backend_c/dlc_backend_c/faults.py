"""Programs that some compilers compile wrong, which `dlc doctor` runs with the compiler in use.

Each file of `known_faults` is C whose main function returns 0 where it is compiled right; its first line says what goes
wrong, and which module keeps generated C away from it. The result is about the compiler: dlc's own programs avoid all
of these, whatever it says.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

LEVELS: Final = (("-O2",), ("-O3",), ("-O3", "-march=native"))
SECONDS: Final = 20


def programs() -> dict[str, str]:
    """Name → C."""
    folder = files("dlc_backend_c").joinpath("known_faults")
    found = {f.name: f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name.endswith(".c")}
    return {name.removesuffix(".c"): found[name] for name in sorted(found)}


def meaning(text: str) -> str:
    """The sentence in the first line of a program."""
    return text.partition("\n")[0].removeprefix("/*").removesuffix("*/").strip()


def known_faults(command: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(name, meaning) of the programs that a compiler compiles wrong at one of `LEVELS`."""
    for name, text in programs().items():
        if any(_is_wrong(text, (*command, *level)) for level in LEVELS):
            yield name, meaning(text)


def _is_wrong(text: str, command: tuple[str, ...]) -> bool:
    """Whether a program runs and fails; what cannot be compiled or run here says nothing."""
    with tempfile.TemporaryDirectory(prefix="dlc-") as place:
        Path(place, "fault.c").write_text(text, encoding="utf-8")
        try:
            made = subprocess.run(
                [*command, "-w", "-std=gnu99", "fault.c", "-o", "fault"],
                cwd=place,
                capture_output=True,
                check=False,
                timeout=SECONDS,
            )
            if made.returncode:
                return False
            done = subprocess.run([Path(place, "fault")], capture_output=True, check=False, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode != 0
