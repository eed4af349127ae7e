"""Results of the functions of a program: their numbers, their names, and what they mean in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Error:
    """One result other than success."""

    macro: str
    """Behind `NAME_ERROR_` in the C header; "" for what only functions in C++ return."""
    code: int
    name: str
    """In C++."""
    words: str


SIZE: Final = 8
"""What a program returns that found a size out of range."""
ERRORS: Final = (
    Error("NULL", 1, "null_pointer", "a buffer is absent"),
    Error("ALIGNMENT", 2, "misaligned", "a buffer is misaligned"),
    Error("WEIGHTS", 3, "no_weights", "the weights are missing"),
    Error("LABEL", 4, "bad_label", "a label is no class"),
    Error("NOT_FINITE", 5, "not_finite", "the loss or a gradient is not finite"),
    Error("CHECKPOINT", 6, "bad_checkpoint", "not a checkpoint of this program"),
    Error("INDEX", 7, "bad_index", "an index is out of range"),
    Error("SIZE", SIZE, "bad_size", "a size that the call found is out of range"),
    Error("STEP", 9, "bad_step", "there is no step of this number"),
    Error("SHAPE", 10, "bad_shape", "a size or a shape is not one that the program is built for"),
    Error("", -1, "short_span", "a span has fewer elements than its tensor"),
    Error("", -2, "small_arena", "the arena has fewer bytes than the call needs"),
)
WORDS: Final[Mapping[int, str]] = {e.code: e.words for e in ERRORS}


def of_header(macros: Iterable[str], macro: str, own: Iterable[str] = ()) -> list[dict[str, str]]:
    """The errors of a C++ header: those with these macros, and `own` of C++; `macro` begins the program's macros."""
    wanted, more = set(macros), set(own)
    return [
        {"name": e.name, "value": f"{macro}_ERROR_{e.macro}" if e.macro else str(e.code), "words": e.words}
        for e in ERRORS
        if e.macro in wanted or e.name in more
    ]
