"""Nests that share rows run by blocks: attention on any machine, with masks, shared keys and shorter last blocks."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import For, LoopProgram, walk_stmts
from dlc.kernel.schedules.blocks import Blocks
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import groups_of, scheduled, scheduled_by_blocks
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.machines import MACHINES, random_machine

VECTORS = [m for m in MACHINES.values() if m.vector_bytes]
WIDE = MACHINES["wide-vectors"]


@dataclass(frozen=True)
class Attention:
    """Sizes and form of r = softmax(q·kᵀ) v.

    Attributes:
        mask: What is added to scores: "", "row" of keys, or "full".
        causal: Whether a query sees the keys up to its own only.
        groups: Heads that share keys and values.
        packed: Whether queries, keys and values lie in one tensor, the heads of a position next to each other.
    """

    batch: int = 1
    heads: int = 2
    queries: int = 40
    keys: int = 48
    depth: int = 16
    values: int = 32
    mask: str = ""
    causal: bool = False
    groups: int = 1
    packed: bool = False

    @property
    def kernel(self) -> Kernel:
        b, h, t, s, d, e = self.batch, self.heads, self.queries, self.keys, self.depth, self.values
        n = "n" if b > 1 else "0"
        row = f"f32[{b},{h},{t},1]"
        scores, sums, out = f"f32[{b},{h},{t},{s}]", f"f32[{b},{h},{t},{e}]", f"f32[{b},{t},{h},{e}]"
        head = f"i//{self.groups}" if self.groups > 1 else "i"
        if self.packed:
            whole = f"f32[{b},{max(t, s)},{2 * h * d + h * e}]"
            params = [whole, whole, whole]
            q, k = f"p0[{n},j,i*{d}+m]", f"p0[{n},k,i*{d}+m+{h * d}]"
            v = f"p0[{n},m,i*{e}+k+{2 * h * d}]"
        else:
            params = [f"f32[{b},{h},{t},{d}]", *(f"f32[{b},{h // self.groups},{s},{x}]" for x in (d, e))]
            q, k, v = f"p0[{n},i,j,m]", f"p1[{n},{head},k,m]", f"p2[{n},{head},m,k]"
        score = f"t0[{n},i,j,k]*0.125"
        if self.mask:
            params.append(f"f32[{b},1,{t if self.mask == 'full' else 1},{s}]")
            score += f"+p3[{n},0,{'j' if self.mask == 'full' else '0'},k]"
        if self.causal:
            score = f"select(j >= k, {score}, -10000.0)"
        axes = f"n<{b} i<{h} j<{t} k<{e}" if b > 1 else f"i<{h} j<{t} k<{e}"
        return parse_kernel(
            f"""kernel({", ".join(params)}) -> ({out}) local ({scores}, {scores}, {row}, {scores}, {row}, {sums}) {{
              m<{d}: t0[{n},i,j,k] += {q}*{k}
              t1[{n},i,j,k] = {score}
              k<{s}: t2[{n},i,j,0] max= t1[{n},i,j,k]
              t3[{n},i,j,k] = exp(t1[{n},i,j,k]-t2[{n},i,j,0])
              k<{s}: t4[{n},i,j,0] += t3[{n},i,j,k]
              m<{s}: t5[{n},i,j,k] += t3[{n},i,j,m]/t4[{n},i,j,0]*{v}
              {axes}: r0[{n},j,i,k] = t5[{n},i,j,k]
            }}"""
        )


FORMS = (
    Attention(queries=20, keys=33),
    Attention(batch=2, heads=4, queries=13, keys=16, values=16, mask="full", groups=2),
    Attention(heads=1, queries=17, keys=17, mask="row", causal=True),
    Attention(heads=3, queries=9, keys=21, depth=8, values=8, packed=True),
)
TINY = (
    Attention(queries=5, keys=9, depth=4, values=8, causal=True),
    Attention(heads=4, queries=6, keys=8, depth=3, values=8, mask="full", groups=2),
    Attention(heads=2, queries=7, keys=5, depth=4, values=4, packed=True),
)
NARROW = MACHINES["odd-registers"]


def agree(kernel: Kernel, machine: Machine, given: str) -> LoopProgram:
    """The loops of a kernel by a schedule that is given, once their results are compared."""
    found = scheduled(kernel, machine, parse_choices(given))
    args = samples(kernel)
    for got, want in zip(run_loops(found.program, args), run_kernel(kernel, args), strict=True):
        assert close(got, want)
    return found.program


@pytest.mark.parametrize("machine", VECTORS, ids=lambda m: f"{m.vector_bytes}x{m.registers}")
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.queries}x{f.keys}")
def test_blocks_compute_what_the_nests_say(form: Attention, machine: Machine) -> None:
    agree(form.kernel, machine, "blocks{rows=8}")


@pytest.mark.parametrize("form", TINY, ids=lambda f: f"{f.queries}x{f.keys}")
def test_the_checker_of_loops_accepts_blocks(form: Attention) -> None:
    kernel = form.kernel
    check_loops(kernel, scheduled(kernel, NARROW, parse_choices("blocks{rows=3}")).program)


def test_what_is_chosen_can_be_given() -> None:
    kernel = Attention(queries=30, keys=64, depth=64).kernel
    found = scheduled_by_blocks(kernel, NARROW)
    assert found is not None
    assert print_choices(found.choices) == "blocks{rows=30}"
    assert scheduled(kernel, NARROW, parse_choices("blocks{rows=30}")).program == found.program
    (place,) = groups_of(kernel, NARROW, found.choices)
    assert {c.rows for c in found.choices[0].variants(place) if isinstance(c, Blocks)} >= {15, 60}


def test_random_attention_on_random_machines() -> None:
    applied = 0
    for seed in range(8):
        rng = random.Random(seed)
        machine, rows = random_machine(rng), rng.choice((1, 3, 8, 14, 100))
        form = Attention(
            *(rng.randint(1, 2), rng.choice((1, 2)), rng.randint(1, 20), rng.randint(1, 20)),
            *(rng.randint(1, 20), rng.randint(1, 20), rng.choice(("", "row", "full")), rng.random() < 0.5),
            packed=rng.random() < 0.5,
        )
        try:
            agree(form.kernel, machine, f"blocks{{rows={rows}}}")
            applied += 1
        except Unfit:
            pass
    assert applied >= 3


def test_no_matrix_of_scores_is_stored_where_caches_do_not_hold_it() -> None:
    kernel = Attention(heads=2, queries=600, keys=600, depth=64, values=64).kernel
    found = scheduled(kernel, WIDE)
    (choice,) = found.choices
    assert isinstance(choice, Blocks)
    scores = 600 * choice.rows * 4
    assert sum(b.type.nbytes for b in found.program.buffers) < scores + WIDE.l2 // 2 < 2 * 600 * 600 * 4
    assert max(b.type.nbytes for b in found.program.buffers) <= max(scores, 608 * 64 * 4)
    # Exponentials lie where scores did.
    assert sum(b.type.nbytes == scores for b in found.program.buffers) == 1


@pytest.mark.parametrize("heads", [1, 4])
def test_threads_share_heads_or_blocks(heads: int) -> None:
    kernel = Attention(heads=heads, queries=56, keys=160, depth=64, values=64).kernel
    machine = replace(WIDE, threads=2)
    found = scheduled(kernel, machine, parse_choices("blocks{rows=14}"))
    loops = [s for s in walk_stmts(found.program.body) if isinstance(s, For) and s.parallel]
    assert ("batch0" if heads > 1 else "rb") in {s.axis.name for s in loops}
    assert any("t1" in s.own for s in loops)
    args = samples(kernel)
    one = scheduled(kernel, WIDE, parse_choices("blocks{rows=14}"))
    for got, want in zip(run_loops(found.program, args), run_loops(one.program, args), strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("machine", "word"),
    [
        (MACHINES["no-vectors"], "vectors"),
        (replace(WIDE, ordered=True), "order"),
        (replace(WIDE, l2=1 << 10), "rows only"),
    ],
    ids=["no-vectors", "ordered", "small"],
)
def test_where_blocks_do_not_apply_nests_run_one_after_the_other(machine: Machine, word: str) -> None:
    kernel = FORMS[0].kernel
    assert scheduled_by_blocks(kernel, machine) is None
    with pytest.raises(Unfit, match=word):
        scheduled(kernel, machine, (Blocks(),))
    assert len(scheduled(kernel, machine).choices) > 1


def test_nests_that_share_no_rows_are_no_blocks() -> None:
    kernel = parse_kernel(
        """kernel(f32[8,8], f32[8,8]) -> (f32[8,8]) local (f32[8,8]) {
          k<8: t0[i,j] += p0[i,k]*p1[k,j]
          k<8: r0[i,j] += t0[i,k]*t0[k,j]
        }"""
    )
    assert scheduled_by_blocks(kernel, WIDE) is None
    assert all(p.stages is None for p in groups_of(kernel, WIDE))


def test_products_that_follow_each_other_may_run_by_blocks() -> None:
    kernel = parse_kernel(
        """kernel(f32[50,24], f32[24,40], f32[40,32]) -> (f32[50,32]) local (f32[50,40], f32[50,40]) {
          k<24: t0[i,j] += p0[i,k]*p1[k,j]
          t1[i,j] = max(t0[i,j], 0.0)
          k<40: r0[i,j] += t1[i,k]*p2[k,j]
        }"""
    )
    for machine in VECTORS[:2]:
        program = agree(kernel, machine, "blocks{rows=14}")
        assert all(b.size < 50 * 40 for b in program.buffers)
