"""Helpers declare what they need of floating point, and programs begin with what enforces it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from dlc_backend_c import math_flags
from dlc_backend_c.function import c_function
from dlc_backend_c.helpers import names, paragraphs
from dlc_backend_c.needs import Need, declared, without_needs
from dlc_backend_c.prelude import declared_prelude, prelude, whole_prelude
from dlc_backend_c.target import GENERIC, X86_64_V3, X86_64_V4

from dlc.kernel.text import parse_kernel
from tests.tools import COMPILERS

TARGETS = {t.cpu: t for t in (GENERIC, X86_64_V3, X86_64_V4)}
SIGNS = {
    Need.NAN: r"\b([a-z]\w*) (?:!=|==) \1\b",
    Need.ASSOCIATION: r"\+ (\d+\.0f)\) - \1|n \* 0\.693359375f",
    Need.SIGNED_ZEROS: r"\bcopysignf?\(",
    Need.DIVISION: r"floorf?\(a / b\)",
}
"""What text shows that a helper has a need."""


def undeclared(text: str) -> list[tuple[str, Need]]:
    """(Helper, need) of a prelude whose text shows a need that it does not declare."""
    found = declared(text)
    plain = paragraphs(without_needs(text))
    parts = {name: part for part in re.split(r"\n{2,}", plain) for name in names(part)}
    return [
        (name, need)
        for name, part in parts.items()
        for need, sign in SIGNS.items()
        if re.search(sign, part) and need not in found.get(name, ())
    ]


@pytest.mark.parametrize("cpu", TARGETS)
def test_every_need_is_declared(cpu: str) -> None:
    text = declared_prelude(TARGETS[cpu])
    assert undeclared(text) == []
    assert set(declared(text)) <= set(names(whole_prelude(TARGETS[cpu])))
    assert "/* needs" not in whole_prelude(TARGETS[cpu])


def test_a_need_that_nobody_declared_is_found() -> None:
    text = declared_prelude(X86_64_V3)
    forgotten = text.replace(
        "/* needs association, rounding, nan */\nDLC_INLINE float dlc_exp_f32", "DLC_INLINE float dlc_exp_f32"
    )
    assert forgotten != text
    assert {need for name, need in undeclared(forgotten) if name == "dlc_exp_f32"} == {Need.NAN, Need.ASSOCIATION}


def test_programs_begin_with_what_the_declarations_ask_for() -> None:
    for target in TARGETS.values():
        needs = {need for found in declared(declared_prelude(target)).values() for need in found}
        text = whole_prelude(target)
        assert math_flags.definition(needs) in text
        for need in needs:
            assert all(flag in text for flag in need.value.flags) and all(c in text for c in need.value.taken), need
    few, all_ = math_flags.definition(()), math_flags.definition(tuple(Need))
    assert "no-associative-math" in few, "kernels need it"
    assert "__FLT_EVAL_METHOD__" in all_ and "__FLT_EVAL_METHOD__" not in few


@pytest.mark.parametrize("cc", COMPILERS)
def test_floats_in_wider_registers_are_refused(cc: str, tmp_path: Path) -> None:
    kernel = parse_kernel("kernel (f32[8]) -> (f32[8]) { r0[i] = exp(p0[i]) }")
    text = c_function(kernel, "f", X86_64_V3).text
    (tmp_path / "f.c").write_text(prelude(X86_64_V3, text) + text)
    command = [cc, *X86_64_V3.flags, "-w", "-fsyntax-only", "-DDLC_LOCAL=", "f.c"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    wide = [*command[:-1], "-U__FLT_EVAL_METHOD__", "-D__FLT_EVAL_METHOD__=2", "f.c"]
    done = subprocess.run(wide, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "-mfpmath=sse" in done.stderr
