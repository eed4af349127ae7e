"""Several ranks that train one program, as threads of this process: what they make is what one makes on all rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeVar

import numpy as np
import pytest

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.types import Array
from dlc.cli.ranks import agree
from dlc.training.loop.mpi import MpiRanks
from dlc.training.loop.ranks import Ranks
from dlc.training.loop.together import Statistics, Together
from tests.training.linear import Linear, blobs

T = TypeVar("T")


class Threads(Ranks):
    """A rank that is a thread."""

    def __init__(self, rank: int, count: int, table: list[object], barrier: threading.Barrier) -> None:
        super().__init__(rank, count)
        self._table, self._barrier = table, barrier

    def _all(self, value: T) -> list[T]:
        self._table[self.rank] = value
        self._barrier.wait(20)
        found: list[T] = list(self._table)  # pyright: ignore[reportAssignmentType]
        self._barrier.wait(20)
        return found

    def add(self, array: Array) -> None:
        array[...] = sum(self._all(array.copy()))

    def share(self, content: bytes) -> bytes:
        return self._all(content)[0]

    def gather(self, content: bytes) -> list[bytes]:
        return self._all(content)


def run(count: int, work: Callable[[Ranks], T]) -> list[T]:
    """What each rank gives; the first exception of any."""
    table, barrier = [object()] * count, threading.Barrier(count)
    found: dict[int, T | BaseException] = {}

    def one(rank: int) -> None:
        try:
            found[rank] = work(Threads(rank, count, table, barrier))
        except BaseException as problem:  # noqa: BLE001  # handed on by `run`
            barrier.abort()
            found[rank] = problem

    threads = [threading.Thread(target=one, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    raised = [p for p in found.values() if isinstance(p, BaseException)]
    for problem in sorted(raised, key=lambda p: isinstance(p, threading.BrokenBarrierError)):
        raise problem
    return [found[k] for k in range(count)]  # pyright: ignore[reportReturnType]


ROWS = blobs(96)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("loss", "accumulate"),
    [("cross-entropy", 1), ("cross-entropy", 3), ("cross-entropy{ignore=1}", 1)],
)
def test_ranks_make_the_steps_of_one_on_the_joint_batch(count: int, loss: str, accumulate: int) -> None:
    def batch(step: int, first: int, rows: int) -> dict[str, Array]:
        at = step * 16 + first
        return {k: v[at : at + rows] for k, v in ROWS.items()}

    whole = Linear(16, loss=loss, accumulate=accumulate)
    alone = Together(whole, Ranks())
    losses = [alone.step(batch(k, 0, 16)) for k in range(6)]

    def work(ranks: Ranks) -> tuple[list[float], Linear]:
        program = Linear(16 // count, loss=loss, accumulate=accumulate)
        together = Together(program, ranks)
        own = 16 // count
        return [together.step(batch(k, ranks.rank * own, own)) for k in range(6)], program

    for found, program in run(count, work):
        np.testing.assert_allclose(found, losses, rtol=1e-6)
        assert int(program.state()["step"]) == 6
        for name, w in whole.parameters().items():
            np.testing.assert_allclose(program.parameters()[name], w, rtol=2e-6, atol=1e-7)


def test_random_numbers_of_ranks_differ_and_their_steps_do_not() -> None:
    def work(ranks: Ranks) -> list[int]:
        program = Linear(accumulate=2)
        together = Together(program, ranks)
        for k in range(4):
            together.step({n: v[4 * k : 4 * k + 4] for n, v in ROWS.items()})
        assert int(program.state()["step"]) == 4
        return program.steps_seen

    first, *others = run(3, work)
    assert first == [0, 1, 2, 3]
    low = [{s % (1 << 32) for s in seen} for seen in (first, *others)]
    assert not any(low[i] & low[j] for i in range(3) for j in range(i))
    assert all(s % 2 == k % 2 for seen in others for k, s in enumerate(seen))  # sums begin anew together


@pytest.mark.parametrize("statistics", ["joint", "local"])
def test_running_statistics_are_the_mean_of_all_or_those_of_rank_0(statistics: Statistics) -> None:
    def work(ranks: Ranks) -> float:
        program = Linear()
        program.parameters()["norm.mean"] = np.full(3, float(ranks.rank), np.float32)
        Together(program, ranks, statistics).settle()
        return float(program.parameters()["norm.mean"][0])

    found = run(4, work)
    assert found[0] == (1.5 if statistics == "joint" else 0.0)
    assert statistics == "local" or set(found) == {1.5}


def test_a_loss_that_is_not_finite_on_one_rank_is_so_on_all_and_moves_nothing() -> None:
    def work(ranks: Ranks) -> tuple[float, bool]:
        program = Linear()
        together = Together(program, ranks)
        together.step({n: v[:4] for n, v in ROWS.items()})
        before = program.parameters()["w"].copy()
        x = ROWS["x"][:4] * (np.float32(np.nan) if ranks.rank == 1 else np.float32(1))
        return together.step({"x": x, "y": ROWS["y"][:4]}), bool((program.parameters()["w"] == before).all())

    assert all(np.isnan(loss) and same for loss, same in run(2, work))


def test_ranks_whose_weights_differ_end() -> None:
    def work(ranks: Ranks) -> None:
        program = Linear()
        program.parameters()["w"] += np.float32(ranks.rank == 1)
        Together(program, ranks).settle()

    with pytest.raises(DlcError, match="rank 1 of 2 has other weights than rank 0"):
        run(2, work)


def test_one_that_is_told_to_stop_stops_all_after_the_same_step() -> None:
    def work(ranks: Ranks) -> int:
        asked = [False]
        together = Together(Linear(), ranks, asked=lambda: asked[0])
        for k in range(6):
            asked[0] = ranks.rank == 1 and k >= 2
            together.step({n: v[:4] for n, v in ROWS.items()})
            if together.stopped:
                return k
        return -1

    assert run(2, work) == [2, 2]


def test_what_one_rank_finds_wrong_all_hear() -> None:
    def work(ranks: Ranks) -> str:
        def read() -> int:
            if ranks.rank == 2:
                raise error("no-such-file", "d.npz does not exist", exit_code=ExitCode.USAGE)
            return ranks.rank

        with pytest.raises(DlcError) as raised:
            agree(ranks, read)
        assert agree(ranks, lambda: ranks.rank) == ranks.rank
        (told,) = raised.value.diagnostics
        return f"{raised.value.exit_code} {told.message}; {told.notes[0]}"

    assert set(run(3, work)) == {"2 d.npz does not exist; on rank 2 of 3"}


class Silent:
    """A communicator of mpi4py whose other ranks hang: an operation begins, and never ends."""

    def Get_rank(self) -> int:
        return 1

    def Get_size(self) -> int:
        return 2

    def Iallreduce(self, *_: object) -> Silent:
        return self

    def Test(self) -> bool:
        return False


def test_a_sum_waits_for_others_as_long_as_it_may() -> None:
    ranks = MpiRanks(Silent(), SimpleNamespace(IN_PLACE=None, SUM=None, Exception=OSError))
    assert ranks.timeout == 600
    ranks.timeout = 0.02
    with pytest.raises(DlcError, match=r"rank 1 of 2 ends: others do not answer within 0\.02 seconds") as found:
        ranks.add(np.zeros(3, np.float32))
    assert (found.value.diagnostics[0].code, found.value.exit_code) == ("lost-rank", ExitCode.TOOL)
