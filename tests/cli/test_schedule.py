"""`--schedule` and `--explain schedule-kernels`: how kernels become loops, seen and set."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc

TARGET = "c{cpu=x86-64-v3 lib=none}"


@pytest.fixture(autouse=True)
def model() -> None:
    kernel = "kernel @k0(f32[20,24], f32[24,40]) -> (f32[20,40]) {\n  k<24: r0[i,j] += p0[i,k]*p1[k,j]\n}\n"
    graph = 'graph(%0 "a": f32[20,24], %1 "b": f32[24,40]) {\n  %2 = @k0(%0, %1)\n  return %2 "c"\n}\n'
    Path("product.dlc").write_text(kernel + graph)


def explained(dlc: Dlc, *arguments: str) -> tuple[str, str]:
    """(digits of the kernel, what is said of it)."""
    ran = dlc("build", "product.dlc", "-t", TARGET, "-q", "--explain", "schedule-kernels", *arguments)
    assert ran.code == 0, ran.err
    (found,) = re.findall(r"^  scheduled ([0-9a-f]{16}) (.*)$", ran.out, re.MULTILINE)
    return found


def test_what_is_chosen_is_explained(dlc: Dlc) -> None:
    _, said = explained(dlc)
    chosen, _, others = said.partition(": ")
    assert chosen == "as tiles{columns=1 vectors=2 rows=6 block=20}, 3,470 cycles"
    assert others.split("; ") == [
        "not copies, because copies pay from 32 steps of a sum on, and there are 24",
        "not columns, because it is no sum by itself into neighbouring elements",
        "not windows, because no windows overlap along its rows",
        "not shuffled, because its sums have more than 16 terms",
        "not tiles{columns=1 packed=yes vectors=2 rows=6 block=20}, because it takes 4,130 cycles",
        "not tiles{columns=1 panels=yes vectors=2 rows=6 block=20}, because it takes 5,650 cycles",
        "not rows, because its sums are not along contiguous elements",
        "not turned, because it adds up, or is one element",
        "not pipelined, because it has other nests than sums and elements of rows",
        "not loops{innermost=2}, because it takes 24,400 cycles",
    ]


def test_another_schedule_is_another_function(dlc: Dlc) -> None:
    digits, _ = explained(dlc)
    plain = Path("build/product/product.c").read_text()
    _, said = explained(dlc, "--schedule", f"{digits}=tiles{{columns=1 vectors=1 rows=3}}")
    assert said == "as tiles{columns=1 vectors=1 rows=3 block=20}, 6,020 cycles: given"
    text = Path("build/product/product.c").read_text()
    assert f"dlc_k_{digits}" in plain and not re.search(rf"dlc_k_{digits}_s[0-9a-f]{{8}}\(", plain)
    assert re.search(rf"dlc_k_{digits}_s[0-9a-f]{{8}}\(", text)
    assert text != plain
    explained(dlc)
    assert Path("build/product/product.c").read_text() == plain


def test_a_plan_has_its_schedules(dlc: Dlc) -> None:
    digits, _ = explained(dlc)
    given = f"dlc_k_{digits}=loops"
    ran = dlc("build", "product.dlc", "-t", TARGET, "-q", "--stop-after", "plan-memory", "--schedule", given)
    assert '  schedule @k0 "loops{innermost=2}"' in ran.out


def test_results_are_the_same(dlc: Dlc) -> None:
    a, b = (np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate(((20, 24), (24, 40))))
    np.savez("in.npz", a=a, b=b)
    digits, _ = explained(dlc)
    for schedule in ("loops", "tiles{columns=1 vectors=1 rows=2 block=7}", "tiles{columns=1 panels=yes rows=5}"):
        given = f"{digits}={schedule}"
        ran = dlc("run", "product.dlc", "in.npz", "-t", "c", "-o", "out.npz", "-q", "--schedule", given)
        assert ran.code == 0, ran.err
        np.testing.assert_allclose(np.load("out.npz")["c"], a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{}", "--schedule: '{}' is not of the form KERNEL=SCHEDULE"),
        ("{}=tiles", "schedule tiles of kernel {} does not apply: output axis 0 has no unit stride"),
        ("{}=tile", "there is no schedule tile"),
        (
            "{}=loops,loops",
            "schedule loops,loops of kernel {} does not apply: the kernel has 1 groups",
        ),
        ("deadbeef00=loops", "a schedule is given for kernel 'deadbeef00', which the program does not have"),
        ("dead=loops", "a schedule is given for kernel 'dead': 8 digits of its digest are needed"),
    ],
)
def test_what_cannot_be(dlc: Dlc, given: str, message: str) -> None:
    digits, _ = explained(dlc)
    ran = dlc("build", "product.dlc", "-t", TARGET, "-q", "-o", "other", "--schedule", given.replace("{}", digits))
    assert ran.code == ExitCode.USAGE
    assert message.replace("{}", digits) in ran.err
    assert not Path("other").exists()


def test_a_target_without_schedules(dlc: Dlc) -> None:
    ran = dlc("build", "product.dlc", "-t", "s2train", "--schedule", "deadbeef00=loops")
    assert ran.code == ExitCode.USAGE
    assert "--schedule: s2train has no schedules to choose from" in ran.err
