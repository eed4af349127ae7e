"""Text of kernels that a workshop keeps: the same program, generated once per kernel, machine and use of buffers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dlc_backend_c.backend import C

from dlc import Artifact, Report, Spec
from dlc.api.plan import Plan
from tests.backend_c.bundles import bundle_of
from tests.backend_c.models import Bench, content, plan_of, small_net, sums
from tests.backend_c.test_training_text import named

Emit = Callable[[C], Artifact]
SGD = "optimizer=sgd{lr=0.01 momentum=0.9}"
PROGRAMS: dict[str, Emit] = {
    "net": lambda backend: backend.emit(plan_of(small_net()), Report()),
    "sums": lambda backend: backend.emit(plan_of(sums()), Report()),
    "training": lambda backend: backend.emit_training(bundle_of(named(), SGD), Report()),
}


def backend_of(options: str = "cpu=generic") -> C:
    return C.from_spec(Spec.parse(f"c{{prefix=net {options}}}"))


def files(artifact: Artifact) -> dict[str, bytes]:
    return {name: content(artifact, name) for name in artifact.files}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", ["cpu=generic", "cpu=x86-64-v3", "cpu=generic math=ordered"])
def test_a_workshop_changes_no_byte(name: str, options: str) -> None:
    backend, bench = backend_of(options), Bench()
    plain, lent = PROGRAMS[name](backend), backend.with_workshop(bench)
    first, made = PROGRAMS[name](lent), list(bench.made)
    again = PROGRAMS[name](lent)
    assert files(first) == files(plain) == files(again)
    assert first.facts == plain.facts == again.facts
    assert len(made) == plain.facts["kernels"] and bench.made == made


def test_other_weights_generate_nothing() -> None:
    bench = Bench()
    for seed in (0, 5):
        artifact = backend_of().with_workshop(bench).emit(plan_of(small_net(seed=seed)), Report())
        assert len(bench.made) == artifact.facts["kernels"]


def test_another_learning_rate_generates_only_what_holds_it() -> None:
    bench = Bench()
    backend = backend_of().with_workshop(bench)
    backend.emit_training(bundle_of(named(), SGD), Report())
    before = len(bench.made)
    again = backend.emit_training(bundle_of(named(), SGD.replace("0.01", "0.02")), Report())
    assert 0 < len(bench.made) - before < int(again.facts["kernels"])


@pytest.mark.parametrize("options", ["cpu=x86-64-v3", "cpu=x86-64-v4", "cpu=generic math=ordered"])
def test_another_machine_is_another_text(options: str) -> None:
    bench = Bench()
    plan: Plan = plan_of(small_net())
    counts: list[int] = []
    for each in ("cpu=generic", options):
        backend_of(each).with_workshop(bench).emit(plan, Report())
        counts.append(len(bench.made))
    assert counts[1] == 2 * counts[0]


def test_a_result_over_an_argument_is_another_function() -> None:
    """Plans of which some write in place share a workshop: none gets another's text."""
    bench = Bench()
    backend = backend_of().with_workshop(bench)
    for program in PROGRAMS.values():
        program(backend)
    over = [subject for subject in bench.made if subject.endswith("_over")]
    assert over and len(set(bench.made)) == len(bench.made)
    for program in PROGRAMS.values():
        assert files(program(backend)) == files(program(backend_of()))
