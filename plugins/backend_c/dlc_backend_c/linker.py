"""Which sections of the linker a program's memory lies in, as weights in slow flash and the arena in fast RAM.

    c{section=weights:.qspi_flash,arena:.dtcm}

Where a compiler has no attribute for it that is known here, a macro may stand for its own word: NAME_IN_WEIGHTS and
NAME_IN_ARENA, which are empty otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

WEIGHTS: Final = "weights"
"""What may have a section of its own, beside working memories."""
_NAME: Final = re.compile(r"[A-Za-z_.][A-Za-z0-9_.$-]{0,63}")
Sections = tuple[tuple[str, str], ...]
"""(region, section)."""


def sections_problem(sections: Sections, memories: Sequence[str]) -> str:
    """Why sections that the user wrote cannot be used, or "": working memories have these names."""
    known = (WEIGHTS, *memories)
    regions = [region for region, _ in sections]
    for region, name in sections:
        if region not in known:
            return f"{region} is none of {', '.join(known)}"
        if regions.count(region) > 1:
            return f"{region} has {regions.count(region)} sections"
        if not _NAME.fullmatch(name):
            return f"{name!r} is no name of a section: at most 64 letters, digits and ._$-, a digit, $ or - not first"
    return ""


def macro_of(prefix: str, region: str) -> str:
    """The macro that places a variable."""
    return f"{prefix.upper()}_IN_{region.upper()}"


def placed(prefix: str, region: str, sections: Sections) -> tuple[list[str], str]:
    """(lines that define the macro of a region, the macro and a space); nothing where it has no section."""
    name = dict(sections).get(region)
    if name is None:
        return [], ""
    macro = macro_of(prefix, region)
    lines = [
        f"#ifndef {macro}",
        "#if defined(__GNUC__) && defined(__ELF__)",
        f'#define {macro} __attribute__((section("{name}")))',
        "#else",
        f"#define {macro}",
        "#endif",
        "#endif",
    ]
    return lines, f"{macro} "
