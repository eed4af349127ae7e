"""What models share that differ in names or weights alone, and versions of numpy; and that it is what a build without
a cache gives, with the names of the model in every text."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dlc.api.source import Source
from dlc.base import libraries
from dlc.base.diagnostics import DlcError
from dlc.base.diagnostics import quote as shown_name
from dlc.base.table import Table, token
from dlc.cache import open_cache
from dlc.cache.step_record import StepRecord
from dlc.cache.upkeep import records
from dlc.driver.build import compile_source
from dlc.driver.prepare import Choice
from dlc.driver.program import Compiler, session_of
from dlc.driver.session import Session
from dlc.driver.state_text import print_state
from dlc.graph.attributes import unquote
from dlc.graph.op import quote
from tests.models.transformers import bert
from tests.models.writing import Writer
from tests.models.zoo import light
from tests.session.building import SMALL, build, conv_net, dlc, save
from tests.session.variants import ALPHABET, other_weights, renamed

TARGET = "c{flags=-O0}"


def lstm() -> onnx.ModelProto:
    w = Writer(0)
    x = w.op("Transpose", "x", perm=(1, 0, 2))
    weights = w.weight(1, 32, 4, fan_in=4), w.weight(1, 32, 8, fan_in=8), w.normal(1, 64, scale=0.1)
    _, last, _ = w.ops("LSTM", x, *weights, count=3, hidden_size=8)
    w.op("Gemm", w.op("Squeeze", last, w.constant([0])), w.weight(8, 5, fan_in=8), w.normal(5), name="scores")
    return w.model("lstm", {"x": (np.float32, (2, 3, 4))}, {"scores": (np.float32, (2, 5))})


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "squeezenet": lambda: light("squeezenet", 1),
    "lstm": lstm,
    "transformer": lambda: bert(layers=1, hidden=16, heads=2, length=4, vocabulary=20, context=8),
    "convolutions": lambda: conv_net(SMALL),
}


@dataclass(frozen=True)
class Place:
    """A cache and a directory for models."""

    path: Path

    def steps(
        self, model: onnx.ModelProto, *, train: str | None = None, cached: bool = True, end: str = "plan-memory"
    ) -> tuple[StepRecord[Any], ...]:
        """A build up to a step, by the cache or without."""
        file = save(model, self.path / "net.onnx")
        compiler = Compiler.open(self.path / "cache", "rw" if cached else "off")
        try:
            made = compiler.prepare(Source(file), replace(Choice(TARGET), train=train))
            session = session_of(compiler.registry, compiler.cache, file)
            return compile_source(
                made.source, made.frontend, made.package, made.pipeline, session, stop_after=end
            ).steps
        finally:
            compiler.cache.close()


def missed(steps: Iterable[StepRecord[Any]]) -> list[str]:
    return [f"{step.function}:{step.name}" for step in steps if not step.cached]


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def other_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """What installs another numpy, as far as its metadata goes."""

    def install() -> None:
        (tmp_path / "site" / "numpy-0.0.1.dist-info").mkdir(parents=True)
        monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
        libraries.installed.cache_clear()

    yield install
    libraries.installed.cache_clear()


# Of three misses, four and two that a build may have, emit and build are two where names or weights are other ones.
# Training has the gradients of the layers that a SqueezeNet has, in a tenth of its time.
@pytest.mark.parametrize(
    ("model", "train"),
    [
        ("squeezenet", None),
        ("lstm", None),
        ("transformer", None),
        ("lstm", "loss=mse"),
        ("transformer", "loss=mse"),
        ("convolutions", "loss=mse"),
    ],
)
def test_passes_are_shared(model: str, train: str | None, place: Place, other_numpy: Callable[[], None]) -> None:
    given = MODELS[model]()
    assert len(missed(place.steps(given, train=train))) > 15
    assert missed(place.steps(renamed(given), train=train)) == [":onnx"]
    weights = missed(place.steps(other_weights(given), train=train))
    assert len(weights) <= 2 and set(weights) <= {":onnx", ":fold-constants"}
    other_numpy()
    numpy = missed(place.steps(given, train=train))
    assert ":onnx" in numpy and len(numpy) <= 2
    assert not missed(place.steps(given, train=train))


def test_whole_builds_have_few_misses(tmp_path: Path) -> None:
    given = conv_net(SMALL)
    for name, model in (("a", given), ("names", renamed(given)), ("weights", other_weights(given))):
        save(model, tmp_path / name / "net.onnx")
    arguments = "--target", TARGET, "--cache-dir", "cache", "-o"
    found: dict[str, int] = {}
    for name in ("a", "names", "weights"):
        steps = build(f"{name}/net.onnx", *arguments, f"out-{name}", cwd=tmp_path)["steps"]
        found[name] = sum(not step["cached"] for step in steps)
    assert found["a"] > 18 and found["names"] <= 3 and found["weights"] <= 4
    Place(tmp_path).steps(given)  # which folds constants
    with open_cache(tmp_path / "cache", "ro") as cache:
        kept = [record for _, record in records(cache.store)]
    for record in (
        next(r for r in kept if r.key.step_name == "simplify"),
        next(r for r in kept if r.key.step_name == "plan-memory"),
        next(r for r in kept if r.leads_on),
    ):
        done = dlc("show", record.key.digest, "--cache-dir", "cache", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert ("leads to" if record.leads_on else "#0") in done.stdout


def told(steps: Iterable[StepRecord[Any]]) -> list[Any]:
    """Everything that a build shows of its steps: but times, and how many kernels it found."""
    found: list[Any] = []
    for s in steps:
        counts = {what: n for what, n in s.report.counts.items() if not what.endswith((" hits", " runs"))}
        found.append((s.spec, s.function, s.report.misses, s.report.notes, counts, s.report.warnings))
    return found


def shown(steps: Iterable[StepRecord[Any]]) -> list[str]:
    states = [s.handle.value for s in steps]
    files = [{name: bytes(memoryview(c)) for name, c in s.files.items()} for s in states if hasattr(s, "files")]
    return [*(print_state(s, origins=True) for s in states), *map(str, files)]


@pytest.mark.parametrize(
    ("model", "train"), [("lstm", None), ("convolutions", None), ("convolutions", "loss=mse"), ("lstm", "loss=mse")]
)
def test_hits_are_what_a_build_without_a_cache_gives(model: str, train: str | None, place: Place) -> None:
    given = MODELS[model]()
    place.steps(given, train=train)
    for seed in range(2):
        other = renamed(other_weights(given, seed), seed, ALPHABET)
        warm = place.steps(other, train=train, end="emit")
        fresh = place.steps(other, train=train, end="emit", cached=False)
        assert len(missed(warm)) <= 3
        assert told(warm) == told(fresh)
        assert shown(warm) == shown(fresh)
        again = place.steps(other, train=train, end="emit")
        assert not missed(again) and (told(again), shown(again)) == (told(fresh), shown(fresh))


@pytest.mark.parametrize(
    ("model", "train"),
    [
        ("lstm", None),
        ("transformer", None),
        ("convolutions", "loss=mse"),
        ("lstm", "loss=mse"),
        ("transformer", "loss=mse"),
    ],
)
def test_steps_without_names_give_what_those_with_them_give(
    model: str, train: str | None, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = renamed(MODELS[model](), 5, ALPHABET)
    without = place.steps(given, train=train, cached=False, end="emit")

    def with_names(session: Any, stage: Any, of: Any) -> StepRecord[Any]:
        return session._looked_up(session._asked(stage, of, bare=False))

    monkeypatch.setattr(Session, "_stepped", with_names)
    seeing = place.steps(given, train=train, cached=False, end="emit")
    assert shown(without) == shown(seeing)


def test_names_that_a_step_adds_may_be_those_of_a_model(place: Place) -> None:
    """Inputs of both are called as the labels: that is an error, and the other model's steps are no reason for none."""
    given = lstm()
    place.steps(given, train="loss=mse")
    for name in ("x", "scores", "loss", "y"):
        other = onnx.ModelProto.FromString(given.SerializeToString().replace(b"scores", b"output"))
        for node in other.graph.node:
            node.input[:] = [name if i == "x" else i for i in node.input]
        other.graph.input[0].name = name
        if name != "y":
            place.steps(other, train="loss=mse")
            continue
        messages = [str(_refused(place, other, cached=cached)) for cached in (True, False)]
        assert messages[0] == messages[1] and 'would be named "y"' in messages[0]


@pytest.mark.parametrize("name", ["w", "ünïcode", 'with "quotes" and \\', "a\nb", token(1), "\\ue0000\\ue001"])
def test_errors_have_the_names_of_the_model(name: str, place: Place) -> None:
    """A model that has nothing to train but a number, which the message names."""
    for called in ("first", name):
        w = Writer(0)
        w.op("Mul", "a", w.constant(2.0, np.float32, called), name="z")
        model = w.model("m", {"a": (np.float32, (4,))}, {"z": (np.float32, (4,))})
        known, fresh = (_refused(place, model, cached=cached) for cached in (True, False))
        assert str(known) == str(fresh)
        assert any(shown_name(called) in text for d in known.diagnostics for text in (d.message, d.help, *d.notes))


def _refused(place: Place, model: onnx.ModelProto, *, cached: bool) -> DlcError:
    with pytest.raises(DlcError) as problem:
        place.steps(model, train="loss=mse", cached=cached)
    return problem.value


def test_texts_get_their_names_back() -> None:
    draw = random.Random(0)
    drawn = ("".join(draw.choices(ALPHABET, k=draw.randint(0, 9))) for _ in range(50))
    table = Table((*drawn, token(1), "\\ue0001\\ue001"))
    for k, name in enumerate(table.names):
        assert table.text(f"{token(k)}.gradient, of {token(k)}") == f"{name}.gradient, of {name}"
        assert json.loads(table.text(json.dumps(f"a {token(k)} b"))) == f"a {name} b"
        assert unquote(table.text(quote(f"a {token(k)} b"))) == f"a {name} b"
    assert table.text(f"no name: {token(99)}") == f"no name: {token(99)}"
