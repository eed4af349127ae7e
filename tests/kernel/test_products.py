"""Sums of products in the order of the fewest steps: equal values, fewer points, whatever the spelling."""

from __future__ import annotations

import random

import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.products import ordered_products
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples

MACHINE = Machine(32, 16)
SCALED = "m<6: r0[i,j] += 0.125*p0[i,m]*p1[j,m]/p2[i]"
CHAIN = "m<6 n<7: r0[i,j] += p0[i,m]*p1[m,n]*p2[n,j]"


def kernel_of(params: str, result: str, body: str) -> Kernel:
    return parse_kernel(f"kernel({params}) -> (f32[{result}]) {{ {body} }}")


def ordered(kernel: Kernel, machine: Machine = MACHINE) -> Kernel:
    """The kernel in its new order, with the same values."""
    found = ordered_products(kernel, machine)
    found = Kernel.canonical(found.params, found.results, found.nests, found.locals)
    args = samples(kernel)
    for got, want in zip(run_kernel(found, args), run_kernel(kernel, args), strict=True):
        assert close(got, want)
    return found


def lines(kernel: Kernel) -> list[str]:
    return [line.strip() for line in ordered(kernel).text().splitlines()[1:-1]]


@pytest.mark.parametrize(
    ("params", "result", "body", "expected"),
    [
        (
            "f32[4,6], f32[5,6], f32[4]",
            "4,5",
            SCALED,
            ["k<6: t0[i,j] += p0[i,k]*p1[j,k]", "r0[i,j] = t0[i,j]*0.125/p2[i]"],
        ),
        (
            "f32[5,6], f32[6,7], f32[7,8]",
            "5,8",
            CHAIN,
            ["k<6: t0[i,j] += p0[j,k]*p1[k,i]", "k<7: r0[i,j] += t0[k,i]*p2[k,j]"],
        ),
        (
            "f32[4,40], f32[40]",
            "4",
            "m<40: r0[i] += p0[i,m]/sqrt(p1[m])",
            ["j<40: r0[i] += p0[i,j]/sqrt(p1[j])"],
        ),
        (
            "f32[16,40], f32[40]",
            "16",
            "m<40: r0[i] += p0[i,m]/sqrt(p1[m])",
            ["t0[i] = 1.0/sqrt(p1[i])", "j<40: r0[i] += p0[i,j]*t0[j]"],
        ),
        (
            "f32[4,6], f32[4,7]",
            "4",
            "m<6 n<7: r0[i] += p0[i,m]-p1[i,n]",
            ["j<6: t0[i] += p0[i,j]", "j<7: t2[i] += p1[i,j]", "t1[i] = t2[i]*(-1.0)", "r0[i] = t0[i]*7.0+t1[i]*6.0"],
        ),
        (
            "f32[4,6], f32[4,7]",
            "4",
            "m<6 n<7: r0[i] += p0[i,m]*p1[i,n]",
            ["j<6: t0[i] += p0[i,j]", "j<7: t1[i] += p1[i,j]", "r0[i] = t0[i]*t1[i]"],
        ),
    ],
)
def test_sums_take_the_fewest_steps(params: str, result: str, body: str, expected: list[str]) -> None:
    assert lines(kernel_of(params, result, body)) == expected


@pytest.mark.parametrize(
    ("params", "result", "body"),
    [
        ("f32[4,6], f32[5,6]", "4,5", "m<6: r0[i,j] += p0[i,m]*p1[j,m]"),
        ("f32[4,6]", "4", "m<6 n<2: r0[i] += p0[i,m]/2.5*p0[i,m]"),  # every term twice
        # A quotient in a subscript is no part of a value.
        ("f32[16,6], f32[2,6,4]", "16,8", "m<6: r0[i,j] += p0[i,m]*p1[j//4,m,j % 4]"),
        # Where the guard fails, there is no element of p1.
        ("f32[4,6], f32[3]", "4", "m<6: r0[i] += p0[i,m]*p1[i] if i < 3"),
        # What is added up is the same difference for all points: its terms would lose digits.
        ("f32[4,6], f32[4]", "4", "m<6: r0[i] += p0[i,m]-p1[i]"),
        # Products of matrices of constants are transforms of tiles.
        ("f32[4,4]", "4", "m<4 n<4: r0[i] += select(i <= m, 1.0, 2.0)*select(i <= n, 1.0, 2.0)*p0[m,n]"),
    ],
)
def test_what_gains_nothing_stays(params: str, result: str, body: str) -> None:
    kernel = kernel_of(params, result, body)
    assert ordered_products(kernel, MACHINE) is kernel


def test_a_strict_machine_keeps_what_is_written() -> None:
    kernel = kernel_of("f32[4,6], f32[5,6], f32[4]", "4,5", SCALED)
    assert ordered_products(kernel, Machine(32, 16, ordered=True)) is kernel


@pytest.mark.parametrize("spelling", ["p2[n,j]*(p0[i,m]*p1[m,n])", "p1[m,n]*(p2[n,j]*p0[i,m])"])
def test_the_order_of_factors_does_not_matter(spelling: str) -> None:
    params = "f32[5,6], f32[6,7], f32[7,8]"
    texts = (CHAIN, f"m<6 n<7: r0[i,j] += {spelling}")
    one, other = (ordered(kernel_of(params, "5,8", text)) for text in texts)
    assert sum(n.points for n in one.nests) == sum(n.points for n in other.nests)


def test_a_part_that_is_known_is_read() -> None:
    kernel = parse_kernel("""kernel(p0: f32[8,6], p1: f32[9,6], p2: f32[8,9]) -> (r0: f32[8,9], r1: f32[8]) {
      i<8 j<9 k<6: r0[i,j] += p0[i,k]*p1[j,k]
      i<8 k<6 j<9: r1[i] += p0[i,k]*p2[i,j]*p1[j,k]
    }""")
    assert lines(kernel) == ["k<6: r0[i,j] += p0[i,k]*p1[j,k]", "j<9: r1[i] += r0[i,j]*p2[i,j]"]


@pytest.mark.parametrize(
    "first",
    [
        "i<8 j<9 k<6: t0[i,j] += t1[i,k]*p1[j,k]",  # t1 changes later
        "i<8 j<9 k<6: t0[i,j] += p0[i,k]*p1[j,k]*p1[j,k]",
        "i<8 j<9 k<6: t0[i,j] += p0[i,k]*p1[j,5-k]",
        "i<8 j<9 k<6: t0[i,j] max= p0[i,k]*p1[j,k]",
    ],
)
def test_what_is_another_part_is_not_read(first: str) -> None:
    kernel = parse_kernel(f"""kernel(p0: f32[8,6], p1: f32[9,6], p2: f32[8,9]) -> (r0: f32[8,9], r1: f32[8])
    local (t0: f32[8,9], t1: f32[8,6]) {{
      i<8 k<6: t1[i,k] = p0[i,k]*2.0
      {first}
      i<8 k<6: t1[i,k] += p0[i,k]
      i<8 j<9: r0[i,j] = t0[i,j]
      i<8 k<6 j<9: r1[i] += t1[i,k]*p2[i,j]*p1[j,k]
    }}""")
    (last,) = [line for line in lines(kernel) if "r1" in line]
    assert "t0" not in last


@pytest.mark.parametrize("seed", range(60))
def test_random_products_keep_their_values(seed: int) -> None:
    rng = random.Random(seed)
    extents = {name: rng.choice((1, 2, 3, 9)) for name in "ijmnuv"}
    params: list[str] = []
    factors: list[str] = []
    for k in range(rng.randint(1, 5)):
        axes = rng.sample(sorted(extents), rng.randint(1, 3))
        params.append(f"f32[{','.join(str(extents[a]) for a in axes)}]")
        load = f"p{k}[{','.join(axes)}]"
        factors.append(rng.choice((load, load, f"exp({load})", f"({load}+1.5)", f"neg({load})")))
    body = factors[0]
    for f in factors[1:]:
        body = rng.choice((f"{body}*{f}", f"{f}*({body})", f"{body}/({f}*{f}+1.0)", f"({body}+{f})"))
    used = [a for a in "mnuv" if any(a in p[p.index("[") :] for p in factors)]
    loops = " ".join(f"{a}<{extents[a]}" for a in used)
    text = f"kernel({', '.join(params)}) -> (f32[{extents['i']},{extents['j']}]) {{ "
    text += f"{loops + ': ' if used else ''}r0[i,j] {'+=' if used else '='} {body} }}"
    kernel = parse_kernel(text)
    found = ordered(kernel)
    assert sum(n.points for n in found.nests if n.reduce) <= max(1, len(factors)) * sum(n.points for n in kernel.nests)
