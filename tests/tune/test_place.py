"""Kernels by themselves, and candidates of one: built, compared, timed, with what may go wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlc.api.program import Port, Signature
from dlc.api.tuning import Trial
from dlc.base.types import Array, Type, f32
from dlc.cache import Cache, MemoryStore
from dlc.driver.program import session_of
from dlc.graph.graph import Graph
from dlc.graph.structure import Call, Constant, Input
from dlc.graph.tensor import Tensor
from dlc.kernel.kernel import Kernel
from dlc.kernel.text import parse_kernel
from dlc.plugins.discovery import load_registry
from dlc.tune.calls import Calls
from dlc.tune.kernels import ProgramKernel, kernels_of
from dlc.tune.place import Failed, Place, Request

GATHER = parse_kernel("kernel(f32[9,4], i64[3], f32[4]) -> (f32[3,4]) {\n  r0[i,j] = p0[p1[i],j]*p2[j]\n}")
PRODUCT = parse_kernel("kernel(f32[12,16], f32[16,32]) -> (f32[12,32]) {\n  k<16: r0[i,j] += p0[i,k]*p1[k,j]\n}")
PIPELINE = "order,plan-memory"


def of_call(kernel: Kernel, constants: Mapping[int, Array] | None = None) -> Graph:
    """A graph with one call."""
    inputs = {k: Input(f"x{k}", p.type) for k, p in enumerate(kernel.params) if k not in (constants or {})}
    held = {k: Constant(Tensor.of(a)) for k, a in (constants or {}).items()}
    args = tuple({**inputs, **held}[k] for k in range(len(kernel.params)))
    return Graph(tuple(inputs.values()), (Call(kernel, args),), ("y",))


def only(graph: Graph) -> ProgramKernel:
    (found,), left = kernels_of([graph])
    assert not left
    return found


def test_a_kernel_has_the_operands_that_say_what_is_read() -> None:
    rows = np.array([8, 0, 3])
    found = only(of_call(GATHER, {1: rows, 2: np.ones(4, np.float32)}))
    assert set(found.fixed) == {"p1"}
    np.testing.assert_array_equal(found.fixed["p1"], rows)
    assert found.warm == ("p0",)
    assert found.cold == (3 * 8 + 4 * 4) + (3 * 4 * 4 + 3 * 4 * 4)  # constants; what is read and written beside them


def test_indices_that_are_not_known_are_in_range() -> None:
    found = only(of_call(GATHER))
    assert "index 0..8" in found.graph


@dataclass(frozen=True)
class Fake:
    """A program that doubles its input, or does something else."""

    factor: float

    @property
    def signature(self) -> Signature:
        port = Port("p0", Type(f32, (4,)))
        return Signature((port,), (Port("r0", port.type),))

    def __call__(self, *, out: Mapping[str, object] | None = None, **inputs: object) -> dict[str, Array]:
        del out
        return {"r0": np.asarray(inputs["p0"]) * np.float32(self.factor)}


class FakeProfiler:
    """Tells the factor as the time."""

    def limits(self) -> Any:
        raise NotImplementedError

    def seconds(self, program: Any, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> Sequence[float]:
        assert all(a.ctypes.data % 64 == 0 for a in (*inputs.values(), *out.values()))
        return [program.factor, 1.0]


def test_candidates_with_other_results_are_left_out() -> None:
    double = parse_kernel("kernel(f32[4]) -> (f32[4]) {\n  r0[i] = p0[i]*2.0\n}")
    calls = Calls(only(of_call(double)), 0, FakeProfiler())
    built = [(Trial(name, 1), Fake(factor)) for name, factor in (("a", 2.0), ("b", 2.1), ("c", 2.0000001))]
    right, wrong = calls.compared(built, None)
    assert [trial.schedule for trial, _ in right] == ["a", "c"]
    assert wrong == ["b"]
    assert calls.timed(Fake(3.0))() == 4.0


def here() -> Place:
    registry = load_registry()
    return Place(registry, session_of(registry, Cache(MemoryStore(), "rw"), Path(), jobs=2))


def test_a_kernel_is_tuned() -> None:
    place, said = here(), list[str]()
    found = place.tune(Request(only(of_call(PRODUCT)), "c", PIPELINE, 3, 0, 60.0), said.append)
    assert found.measured == 3
    assert not found.wrong and not found.failed
    assert 0 < found.record.tuned_ns <= found.record.default_ns
    assert found.record.kernel == PRODUCT.digest
    assert said[0] == "building 1 of 3"
    assert said[-1] == "measuring 3 schedules"


def test_candidates_are_built_until_half_of_the_time_is_over() -> None:
    place = here()
    times = iter(range(1000))
    place.clock = lambda: float(next(times))
    found = place.tune(Request(only(of_call(PRODUCT)), "c", PIPELINE, 8, 0, 3.0))
    assert found.measured == 4  # two at once, while no more than half of three seconds had passed


def test_what_goes_wrong_is_a_value() -> None:
    kernel = only(of_call(PRODUCT))
    place = here()
    assert place.attempt(Request(kernel, "s2train", PIPELINE, 3, 0, 1.0)) == Failed(
        "s2train does not measure schedules of kernels"
    )
    other = place.attempt(Request(kernel, "c", PIPELINE, 3, 0, 1.0, version="0.0"))
    assert isinstance(other, Failed) and "0.0 asks it" in other.message
    broken = place.attempt(Request(kernel, 'c{flags="--no-such-flag"}', PIPELINE, 3, 0, 1.0))
    assert isinstance(broken, Failed) and "failed with status" in broken.message
