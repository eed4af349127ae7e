"""Random kernels for random machines, as benchmarks/schedule_fuzz.py tries more of them; and the faults it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import For, Stmt
from dlc.kernel.schedules.choice import Choice
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import Scheduled, schedule, scheduled
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.kernel import triples as tried
from tests.kernel.triples import Triple, in_double, minimised, triples
from tests.machines import MACHINES

SAMPLE = 32
"""Seeds of models; about a hundred triples."""
LONG = 19
"""A seed of which loops take a third of the time of all; schedule_fuzz.py has more of its kind."""


@pytest.mark.parametrize("first", range(0, SAMPLE, 8))
def test_random_triples(first: int) -> None:
    for seed in range(first, first + 8):
        for form, triple in triples(seed) if seed != LONG else ():
            problem = triple.problem()
            assert not problem, f"seed {seed}, {form}: {problem}\n{triple}"


def product(rows: int, inner: int, columns: int, panels: bool) -> str:
    shape, read = (f"{columns // 16},{inner},16", "p1[j//16,k,j % 16]") if panels else (f"{inner},{columns}", "p1[k,j]")
    return f"""kernel(p0: f32[{rows},{inner}], p1: f32[{shape}]) -> (r0: f32[{rows},{columns}]) {{
 k<{inner}: r0[i,j] += p0[i,k]*{read}
}}"""


CLOSED = (
    # Tiles of another height than most were all computed in the last row block, whose copy has none of their rows.
    (
        """kernel(f64[7,16,5,1], f64[1,7,2,7]) -> (f64[1,16,5,7]) {
          m<7 n<5: r0[0,i,j,k] += p1[0,m,j-n,k//2]*p0[m,i,n,0] if k % 2 == 0 and j-n >= 0 and n-j >= (-1)
        }""",
        Machine(16, 16, l2=8 << 10),
    ),
    (
        """kernel(f64[8,129], f64[34,8]) -> (f64[34,129]) {
          k<8: r0[i,j] += p1[i,k]*p0[k,j]
        }""",
        Machine(64, 16, l2=4 << 10),
    ),
    # A copy that holds zeros where the guard does not took the place of the guard, which the other operand needed.
    (
        """kernel(f32[3,3,2,3], f32[2,3,3,2]) -> (f32[2,2,3,1]) {
          n<3: r0[i,j,k,m] += p1[i,j//3,(k+1)//3,m-n+1]*p0[j//3,j % 3,(k+1) % 3,n]
            if m-n >= (-1) and (k+1) % 3 <= 1
        }""",
        Machine(32, 16),
    ),
    (
        """kernel(f32[20,16], f32[16,40]) -> (f32[24,40]) {
          k<16 m<3: r0[i,j] += p0[i+m-2,k]*p1[k+m-2,j] if i+m >= 2 and i+m <= 21 and k+m >= 2 and k+m <= 17
        }""",
        Machine(32, 16, 2 << 10, 2 << 10),
    ),
)


OPENED = (
    # The copy of an operand ended at the size of a call, and vectors read it behind that.
    (
        """kernel(f32[1,1,m(1,4)+3], f32[1,1,3], i64[=m(1,4)]) -> (f32[1,1,m(1,4)+3]) {
          j<3: r0[0,0,i] += p0[0,0,i+j-2]*p1[0,0,j] if i+j >= 2 and i+j-2 < min(max(p2[], 1), 4)+3
        }""",
        Machine(16, 5),
    ),
)


@pytest.mark.parametrize(("text", "machine"), (*CLOSED, *OPENED))
def test_what_was_wrong_once(text: str, machine: Machine) -> None:
    assert not Triple(parse_kernel(text), machine).problem()


def test_rounding_that_a_function_amplifies_is_no_fault() -> None:
    """The loops sum one by one, the reference by halves; exp makes 2e-5 and more of the difference."""
    text = """kernel(f32[4,30000]) -> (f32[4]) local (f32[4]) {
      j<30000: t0[i] += 3.0*p0[i,j]
      r0[i] = exp(t0[i]/16.0)
    }"""
    triple = Triple(parse_kernel(text), Machine())
    args = samples(triple.kernel)
    (got,), (want,) = run_loops(schedule(triple.kernel, triple.machine), args), run_kernel(triple.kernel, args)
    assert not close(got, want)
    assert not triple.problem()
    wrong = replace(triple, kernel=parse_kernel(text.replace("3.0*", "3.000001*")))
    found = in_double(schedule(wrong.kernel, triple.machine))
    assert not np.allclose(run_loops(found, args), run_kernel(in_double(triple.kernel), args), rtol=1e-9)


@pytest.mark.parametrize("l2", [512 << 10, 1 << 20])
def test_a_product_in_row_blocks_with_a_rest(l2: int) -> None:
    """128 rows in tiles of 14, of which the last 16 make two of 8: rows 112 to 125 were zero."""
    _agrees(product(128, 3072, 768, True), Machine(64, 32, 32 << 10, l2))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("panels", [False, True])
def test_row_blocks_with_a_rest(panels: bool, name: str) -> None:
    """Caches that hold a third of the rows, and of a panel only a part: sums of blocks wait until the end."""
    for rows, inner in ((43, 40), (57, 80)):
        machine = replace(MACHINES[name], l1=32 << 10, l2=(8 << 10) * inner // 40)
        _agrees(product(rows, inner, 160, panels), machine)


def _agrees(text: str, machine: Machine) -> None:
    kernel = parse_kernel(text)
    a, b = samples(kernel)
    matrix = b if b.ndim == 2 else b.transpose(1, 0, 2).reshape(a.shape[1], -1)
    (got,) = run_loops(schedule(kernel, machine), [a, b])
    assert close(got, a @ matrix)


def test_a_failure_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_the_last_row(kernel: Kernel, machine: Machine, choices: Sequence[Choice] = ()) -> Scheduled:
        found = scheduled(kernel, machine, choices)
        short = replace(found.program, body=_shortened(found.program.body))
        return replace(found, program=short) if machine.vector_bytes else found

    monkeypatch.setattr(tried, "scheduled", without_the_last_row)
    triple = Triple(parse_kernel(product(20, 40, 32, False)), Machine(32, 16, 5000, 3000))
    assert "never written" in triple.problem()
    small = minimised(triple)
    assert "never written" in small.problem()
    assert small.kernel.macs < triple.kernel.macs
    assert small.machine.l1 == Machine().l1
    assert "agree(parse_kernel(" in str(small)


def _shortened(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements with the last step of the first loop left out."""
    first, *rest = body
    assert isinstance(first, For)
    return (replace(first, stop=first.stop - first.step), *rest)


def test_triples_of_a_seed_are_the_same_every_time() -> None:
    for seed in range(8):
        once, again = list(triples(seed)), list(triples(seed))
        assert [str(t) for _, t in once] == [str(t) for _, t in again]


def test_samples_differ_from_element_to_element() -> None:
    (a, *_) = samples(parse_kernel(product(20, 40, 32, False)))
    assert len(np.unique(a)) == a.size
