"""Vectors of narrow floats in C give, for every element, the bits that the scalar functions give."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from dlc_backend_c.prelude import prelude
from dlc_backend_c.target import X86_64_V3, X86_64_V4, CTarget, missing

from dlc.base.types import NARROW, f16
from tests.backend_c.harness import STRICT
from tests.tools import COMPILERS

FLOATS = [t for t in (f16, *NARROW) if t.is_float]
TARGETS = [t for t in (X86_64_V3, X86_64_V4) if not missing(t.features)]
VARIANTS = [(t, flags) for t in TARGETS for flags in ((), ("-mno-f16c",)) if not (flags and t is X86_64_V4)]
# Loads of all bits, then stores of floats: every pattern whose lower bits are few, and many others. NaN must be NaN.
MAIN = """
static uint32_t in[4096], want_u, got_u;
int main(void)
{
    static @storage h[65536 + 16], back[16];
    static float x[16], got[16];
    long i;
    int k;
    for (i = 0; i < @count; ++i)
        h[i] = (@storage)i;
    for (i = 0; i + @lanes <= @count; i += @lanes) {
        *(f32x@lanes_any *)got = dlc_load_@type_f32x@lanes(&h[i]);
        for (k = 0; k < @lanes; ++k) {
            float want = dlc_@type_value(h[i + k]);
            memcpy(&want_u, &want, 4);
            memcpy(&got_u, &got[k], 4);
            if (want_u != got_u && !(want != want && got[k] != got[k]))
                return 1;
        }
    }
    for (i = 0; i < 1 << 21; i += @lanes) {
        for (k = 0; k < @lanes; ++k) {
            in[k] = i < 1 << 20 ? (uint32_t)(i + k) << 12 : (uint32_t)(i + k) * 2654435761u;
            memcpy(&x[k], &in[k], 4);
        }
        dlc_store_@type_f32x@lanes(back, *(f32x@lanes_any *)x);
        *(f32x@lanes_any *)got = dlc_round_@type_f32x@lanes(*(f32x@lanes_any *)x);
        for (k = 0; k < @lanes; ++k) {
            float want = dlc_round_@type(x[k]);
            memcpy(&want_u, &want, 4);
            memcpy(&got_u, &got[k], 4);
            if (x[k] != x[k] ? (want == want) != (got[k] == got[k]) : want_u != got_u)
                return 2;
            if (x[k] == x[k] && back[k] != dlc_@type_bits(x[k]))
                return 2;
        }
    }
    return 0;
}
"""


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize(
    ("target", "flags"), VARIANTS, ids=lambda v: v.cpu if isinstance(v, CTarget) else "".join(v) or "plain"
)
def test_vectors_give_the_bits_of_scalars(target: CTarget, flags: tuple[str, ...], cc: str, tmp_path: Path) -> None:
    wrong: list[str] = []
    for t in FLOATS:
        for lanes in (4, 8, 16):
            if lanes * 4 > target.vector_bytes:
                continue
            text = MAIN.replace("@storage", f"uint{t.itemsize * 8}_t").replace("@type", t.name)
            text = text.replace("@lanes", str(lanes)).replace("@count", str(1 << t.itemsize * 8))
            source = tmp_path / f"{t}x{lanes}.c"
            source.write_text(f"{prelude(target, text)}\n#include <string.h>\n{text}")
            program = tmp_path / f"{t}x{lanes}"
            command = [cc, *target.flags, *STRICT, *flags, str(source), "-o", str(program), "-lm"]
            subprocess.run(command, check=True)
            if code := subprocess.run([program], check=False).returncode:
                wrong.append(f"{t} x {lanes}: {'store' if code == 2 else 'load' if code == 1 else code}")
    assert not wrong, wrong
