"""Narrow types in compiled C: every conversion gives the value that the reference gives, for every element."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c import spelling
from dlc_backend_c.function import prelude
from dlc_backend_c.target import GENERIC

from dlc.base.types import DTYPES, NARROW, DType, Type, f16
from dlc.kernel.expr import Axis, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS
from tests.backend_c.harness import STRICT, Compiled
from tests.kernel.narrow_values import same, values_of
from tests.tools import COMPILERS, SANITIZE, SANITIZING

PAIRS = [(a, b) for a in DTYPES.values() for b in DTYPES.values() if a is not b and {a, b} & {f16, *NARROW}]


def conversion(source: DType, to: DType) -> Kernel:
    size = values_of(source).size
    i = Axis("i", size)
    x, y = Param("x", Type(source, (size,))), Param("r", Type(to, (size,)))
    return Kernel.canonical((x,), (y,), (Nest("r", (i,), (i,), apply(to.name, x[i])),))


@pytest.mark.parametrize("cc", COMPILERS)
def test_conversions(cc: str, tmp_path: Path) -> None:
    compiled = Compiled([conversion(*pair) for pair in PAIRS], GENERIC, tmp_path, cc, (*STRICT, "-O1"))
    wrong: list[str] = []
    for n, (source, to) in enumerate(PAIRS):
        x = values_of(source)
        (found,), expected = compiled(n, [x]), SCALARS[to.name].value(x)
        if not same(found, expected):
            bad = [k for k in range(x.size) if not same(found[k : k + 1], expected[k : k + 1])][:4]
            wrong.append(f"{source} to {to}: {x[bad]} give {found[bad]}, not {expected[bad]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", [f16, *NARROW], ids=str)
def test_bits_beside_those_of_the_type_do_not_count(dtype: DType, tmp_path: Path) -> None:
    """What lies in the upper bits of an element of less than 8 is ignored, and written as zero."""
    i = Axis("i", 256)
    x, y = Param("x", Type(dtype, (256,))), Param("r", Type(dtype, (256,)))
    kernel = Kernel.canonical((x,), (y,), (Nest("r", (i,), (i,), apply("max", x[i], x[i])),))
    bits = np.arange(256, dtype=f"u{dtype.itemsize}")
    (found,) = Compiled([kernel], GENERIC, tmp_path)(0, [bits.view(dtype.numpy)])
    if dtype.bits < 8:
        assert np.array_equal(found.view(np.uint8), bits & (1 << dtype.bits) - 1)
    else:
        assert same(found, bits.view(dtype.numpy))


@pytest.mark.parametrize("cc", SANITIZING)
def test_nothing_is_undefined(cc: str, tmp_path: Path) -> None:
    """Every helper on every kind of number, under the sanitizers of addresses and of undefined behaviour."""
    lines: list[str] = []
    for t in (f16, *NARROW):
        value, size = spelling.VALUE[t], 1 << t.itemsize * 8
        stored = spelling.STORAGE[t]
        lines.append(f"for (i = 0; i < {size}u; i++) sum += dlc_{t}_bits(dlc_{t}_value(({stored})i));")
        given = "f" if value == "float" else "(int32_t)(i * 2654435761u)"
        lines.append(
            f"for (i = 0; i < 5000u; i++) {{ memcpy(&u, &i, 4); u *= 2654435761u; memcpy(&f, &u, 4); "
            f"(void)f; sum += dlc_{t}_bits(dlc_round_{t}({given})); }}"
        )
    body = "\n    ".join(lines)
    head = "int main(void)\n{\n    uint32_t i, u = 0;\n    float f;\n    double sum = 0;\n    "
    text = f"{head}{body}\n    return sum < 0;\n}}\n"
    source = tmp_path / "main.c"
    source.write_text(f"{prelude(GENERIC, text)}\n#include <string.h>\n{text}")
    command = [cc, "-std=c99", *STRICT, *SANITIZE, source, "-o", tmp_path / "main", "-lm"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([tmp_path / "main"], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
