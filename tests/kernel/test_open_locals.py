"""Locals whose dimensions end at sizes: put together from parts, moved, copied from callers, on any machine.

Loops read nothing that nobody wrote, write all that there is at the sizes of a call, and compute what the kernel says;
and so does the kernel after locals that need no storage are gone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.fusion.ends import is_ended_copy
from dlc.kernel.fusion.merge import inline_locals
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.schedules.extents import limited
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel
from tests.kernel.open_calls import called, meant
from tests.machines import MACHINES

Array = Any
SIZES = {"n": range(1, 10), "m": range(7)}
N, M = "min(max(p3[], 1), 9)", "min(max(p4[], 0), 6)"
HEAD = "kernel(f32[n(1,9)], f32[m(0,6),3], f32[*,n(1,9),3], i64[=n(1,9)], i64[=m(0,6)])"
BOTH = "m(0,6)+n(1,9)"
DIMS = {"n(1,9)": 9, "m(0,6)": 6, BOTH: 15, "n(1,9)+2": 11, "2*n(1,9)": 18, "2*n(1,9)+1": 19, "7": 7}


SOURCES = {"p0[i]": (9, N), "p1[i,j]": (6, M), "p2[i*3+j]": (9, N)}


def part(rng: random.Random, room: int) -> str:
    """An assignment to some elements of a local of one open dimension and one of 3: anywhere, with one end or more."""
    source = rng.choice(list(SOURCES))
    extent, size = SOURCES[source]
    step = rng.choice((1, 1, 1, 2))
    first, reach = rng.choice((("0", 0), ("0", 0), (N, 9), (M, 6), ("1", 1), ("3", 3)))
    ends = [f"i < {s}{c}" for s in (N, M, f"{N}+{M}") for c in ("", "-3", "+1")]
    guards = [f"i < {size}", *rng.sample(ends, rng.choice((0, 0, 1, 2)))]
    rng.shuffle(guards)
    extent = max(1, min(extent, (room - reach - 1) // step + 1))
    return f"  i<{extent} j<3: t0[{step}*i+{first},j] = {source} if {' and '.join(guards)}"


def parts(rng: random.Random, dim: str) -> list[str]:
    """Assignments to a local with this dimension: often one that writes all of it, or two that do together."""
    own = [name for name, (_, size) in SOURCES.items() if size == {"n(1,9)": N, "m(0,6)": M}.get(dim)]
    if own and rng.random() < 0.5:
        source = rng.choice(own)
        extent, size = SOURCES[source]
        guard = "" if source == "p0[i]" and rng.random() < 0.5 else f" if i < {size}"
        return [f"  i<{extent} j<3: t0[i,j] = {source}{guard}"]
    if dim == BOTH and rng.random() < 0.7:
        first = rng.choice(("p0[i]", "p2[i*3+j]"))
        pair = [
            f"  i<9 j<3: t0[i,j] = {first} if i < {N}",
            f"  i<6 j<3: t0[i+{N},j] = p1[i,j] if i < {M}",
        ]
        return pair[::-1] if rng.random() < 0.5 else pair
    return [part(rng, DIMS[dim]) for _ in range(rng.randint(1, 3))]


def open_kernel(seed: int) -> Kernel:
    """A local in parts and a copy of it: as it is, transposed, as a caller has it, or a sum along it."""
    rng = random.Random(seed)
    dim, room = rng.choice(list(DIMS.items()))
    size = dim.replace("n(1,9)", N).replace("m(0,6)", M)
    nests = parts(rng, dim)
    result, nest = rng.choice(
        (
            (f"f32[{dim},3]", "  r0[i,j] = t0[i,j]"),
            (f"f32[3,{dim}]", f"  r0[j,i] = t0[i,j] if i < {size}"),
            (f"f32[3,{dim}]", f"  r0[j,i] = t0[i,j]*2.0 if i < {size}"),
            (f"f32[*,{dim},3]", f"  i<{room} j<3: r0[i*3+j] = t0[i,j] if i < {size}"),
            (f"f32[*,3,{dim}]", f"  i<{room} j<3: r0[j*({size})+i] = t0[i,j] if i < {size}"),
            ("f32[3]", f"  k<{room}: r0[j] += t0[k,j] if k < {size}"),
            ("f32[3]", f"  k<{room}: r0[j] += t0[k,j] if k < {size} and k < {N}-2"),
        )
    )
    if dim == "7":
        result = result.replace("*,", "")
        if "i*3" in nest or "j*(" in nest:
            result, nest = "f32[7,3]", "  r0[i,j] = t0[i,j]"
    text = f"{HEAD} -> ({result}) local (f32[{dim},3]) {{\n" + "\n".join([*nests, nest]) + "\n}"
    return parse_kernel(text)


def calls() -> Iterator[Mapping[str, int]]:
    yield from (dict(zip(SIZES, sizes, strict=True)) for sizes in product(*SIZES.values()))


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 1 << 30))
@pytest.mark.parametrize("machine", [Machine(0, 16), MACHINES["small-caches"]], ids=["scalars", "vectors"])
def test_loops_compute_what_the_kernel_says_at_every_size(machine: Machine, seed: int) -> None:
    kernel = open_kernel(seed)
    assume(kernel_problems(kernel) == ())
    program = schedule(kernel, machine)
    for sizes in calls():
        (got,), (wanted,) = called(program, kernel, sizes), meant(kernel, sizes)
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-5, err_msg=str(sizes))


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 1 << 30))
def test_kernels_without_locals_compute_the_same_at_every_size(seed: int) -> None:
    kernel = open_kernel(seed)
    assume(kernel_problems(kernel) == ())
    small = inline_locals(kernel)
    assert kernel_problems(small) == ()
    for sizes in calls():
        np.testing.assert_allclose(meant(small, sizes)[0], meant(kernel, sizes)[0], 1e-5, 1e-5, err_msg=str(sizes))


COPY, TAIL = f"i<9 j<3: t0[i,j] = p2[i*3+j] if i < {N}", f"i<6 j<3: t0[i+{N},j] = p1[i,j] if i < {M}"


@pytest.mark.parametrize(
    ("dim", "result", "nests", "left"),
    [
        ("n(1,9)", f"{BOTH},3", [COPY, f"i<9 j<3: r0[i+{M},j] = t0[i,j] if i < {N}"], 0),
        ("n(1,9)", f"{BOTH},3", [COPY, f"i<8 j<3: r0[i+{M},j] = t0[i+1,j] if i < {N}-1"], 0),
        ("n(1,9)", "n(1,9),6", [COPY, "i<9 j<3: r0[i,j+3] = t0[i,j]"], 0),
        ("n(1,9)", f"{BOTH},3", [COPY, "i<9 j<3: r0[i,j] = t0[i,j]"], 1),  # callers have no element behind n
        ("n(1,9)", f"{BOTH},3", [COPY, f"i<8 j<3: r0[i,j] = t0[i+1,j] if i < {N}"], 1),
        ("n(1,9)", "3", [COPY, f"k<9: r0[j] += t0[k,j] if k < {N}"], 1),  # reductions read what is laid out
        ("n(1,9)", "n(1,9),3", [COPY, "r0[i,j] = t0[i,j]"], 1),  # such maps are parts of what reads them
        (BOTH, f"3,{BOTH}", [COPY, TAIL, "r0[j,i] = t0[i,j]"], 0),
        (BOTH, f"3,{BOTH}", [COPY, f"{TAIL}-1", "r0[j,i] = t0[i,j]"], 1),  # one element holds the start
        (BOTH, f"3,{BOTH}", [COPY, TAIL, "r0[j,i] = t0[i,j]*2.0"], 1),
    ],
)
def test_locals_that_need_no_storage(dim: str, result: str, nests: list[str], left: int) -> None:
    text = f"{HEAD} -> (f32[{result}]) local (f32[{dim},3]) {{\n" + "\n".join(nests) + "\n}"
    kernel = parse_kernel(text)
    small = inline_locals(kernel)
    assert len(small.locals) == left
    assert all(n.where is not None for n in small.nests if "p2" in n.loads), "callers have no more than the sizes say"
    for sizes in calls():
        np.testing.assert_allclose(meant(small, sizes)[0], meant(kernel, sizes)[0], 1e-5, 1e-5, err_msg=str(sizes))


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_elements_behind_the_end_of_a_shorter_loop(machine: Machine) -> None:
    """Loops of one extent that end at different sizes are no loop together."""
    kernel = parse_kernel("""kernel(f32[m(0,6),4], f32[m(0,6),1], i64[=m(0,6)]) -> (f32[1,6,4])
local (f32[1,m(0,6),4]) {
  t0[0,i,j] = p0[i,j]+p1[i,0]
  r0[0,i,j] = select(i < min(max(p2[], 0), 6), t0[0,i,j], 0.0)
}""")
    assert not check_loops(kernel, schedule(kernel, machine))


def test_parts_that_are_moved_end_where_they_did() -> None:
    """Of two rows, one behind the other: no dimension of the result tells where they end."""
    kernel = parse_kernel(f"""{HEAD} -> (f32[2,3*n(1,9)]) local (f32[2,n(1,9),3]) {{
  i<9 j<3: t0[0,i,j] = p2[i*3+j] if i < {N}
  i<9: t0[1,i,j] = p0[i]
  c<2 i<9 j<3: r0[c,3*i+j] = t0[c,i,j]
}}""")
    small = inline_locals(kernel)
    assert not small.locals
    for nest in limited(small)[0].nests:
        assert nest.where is None
        assert [a.limit is not None for a in nest.axes if a.extent == 9] == [True]


@pytest.mark.parametrize(
    ("dim", "nest", "expected"),
    [
        ("n(1,9)", COPY, True),
        ("n(1,9)", f"{COPY}+{M}", True),  # never sooner than the dimension
        ("n(1,9)", f"{COPY}-1", False),
        ("n(1,9)", f"{COPY} and j < 2", False),
        ("n(1,9)", f"i<9 j<3: t0[i,j] = p2[i*3+j]*2.0 if i < {N}", False),
        ("n(1,9)", f"i<8 j<3: t0[i,j] = p2[i*3+j] if i < {N}", False),
        (BOTH, COPY, False),
        ("9", "i<9 j<3: t0[i,j] = p2[i*3+j] if i < 8", False),
    ],
)
def test_copies_that_end_where_their_result_does(dim: str, nest: str, expected: bool) -> None:
    kernel = parse_kernel(f"{HEAD} -> (f32[{dim},3]) {{\n{nest.replace('t0', 'r0')}\n}}")
    assert is_ended_copy(kernel.nests[0], kernel) == expected
