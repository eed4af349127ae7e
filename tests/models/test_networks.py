"""Networks whose graphs are written here: random weights, computed shapes, masks, both forms of normalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.models.building import Bench, Built, assert_close, random_inputs, reference
from tests.models.writing import Array
from tests.models.zoo import bert, gpt, mlp, mobilenet_v2

Model = Callable[[], onnx.ModelProto]
CASES: Mapping[str, tuple[Callable[..., onnx.ModelProto], Mapping[str, Any]]] = {
    "mlp": (mlp, {}),
    "mlp, batch of 3": (mlp, {"batch": 3, "sizes": (33, 65, 7)}),
    "mobilenet": (mobilenet_v2, {}),
    "bert": (bert, {}),
    "bert, decomposed": (bert, {"norm": "decomposed", "batch": 2, "length": 13}),
    "gpt": (gpt, {}),
    "gpt with a past, batch of 2": (gpt, {"past": 5, "batch": 2, "length": 3}),
    "gpt, trilu": (gpt, {"mask": "trilu", "length": 9}),
}


def build(bench: Bench, model: onnx.ModelProto, place: Path) -> Built:
    built = bench.compile(model, place)
    memory = built.memory
    assert memory["arena"] <= 1.02 * memory["bound"]
    return built


def inputs(built: Built, seed: int = 1) -> dict[str, Array]:
    """Random inputs; token numbers from the whole vocabulary, a mask that hides the end of every text."""
    generator = np.random.default_rng(seed)
    feeds = random_inputs(built.program, seed)
    for name, array in feeds.items():
        if name == "input_ids":
            feeds[name] = generator.integers(0, 100, array.shape)
        elif name == "attention_mask":
            lengths = generator.integers(1, array.shape[1], (len(array), 1))
            feeds[name] = np.asarray(np.arange(array.shape[1]) < lengths, np.int64)
    return feeds


@pytest.mark.parametrize("case", CASES)
def test_the_outputs_are_those_of_onnxruntime(case: str, bench: Bench, place: Path) -> None:
    make, options = CASES[case]
    built = build(bench, make(**options), place)
    for seed in (1, 2):
        feeds = inputs(built, seed)
        assert_close(built(feeds), reference(built.source, feeds))


def test_no_step_that_only_improves_is_needed(bench: Bench, place: Path) -> None:
    """Sizes that fill neither vectors nor tiles."""
    models = {
        "gpt": gpt(batch=2, length=7, hidden=36, layers=1, heads=3, vocabulary=31, past=1),
        "mobilenet": mobilenet_v2(size=33, width=0.1, classes=7),
    }
    for name, model in models.items():
        flags = [word for step in ("fold-constants", "simplify", "layout", "fuse") for word in ("--without", step)]
        built = bench.compile(model, place / name, *flags, target="c{flags=-O0}")
        feeds = random_inputs(built.program)
        assert_close(built(feeds), reference(built.source, feeds))


def test_both_forms_of_layer_normalization_give_the_same(bench: Bench, place: Path) -> None:
    whole = build(bench, bert(layers=1), place / "op")
    parts = build(bench, bert(layers=1, norm="decomposed"), place / "decomposed")
    feeds = inputs(whole)
    assert_close(parts(feeds), whole(feeds))


def test_hidden_tokens_change_nothing(bench: Bench, place: Path) -> None:
    built = build(bench, bert(layers=1), place)
    feeds = inputs(built)
    hidden = feeds["attention_mask"] == 0
    assert hidden.any()
    other = {**feeds, "input_ids": np.where(hidden, 7, feeds["input_ids"])}
    seen = ~hidden[0]
    before, after = built(feeds)["last_hidden_state"], built(other)["last_hidden_state"]
    assert np.array_equal(before[0, seen], after[0, seen])


def test_later_tokens_change_no_earlier_logits(bench: Bench, place: Path) -> None:
    built = build(bench, gpt(layers=1), place)
    feeds = inputs(built)
    other = feeds["input_ids"].copy()
    other[0, 10:] = 99 - other[0, 10:]
    before, after = built(feeds)["logits"], built({"input_ids": other})["logits"]
    assert np.array_equal(before[0, :10], after[0, :10])
    assert not np.array_equal(before[0, 10:], after[0, 10:])


def test_a_text_in_two_parts_gives_the_logits_of_the_whole(bench: Bench, place: Path) -> None:
    """Keys and values that the first part returns are the past of the second."""
    whole = build(bench, gpt(past=2, length=8, layers=1), place / "whole")
    first = build(bench, gpt(past=2, length=5, layers=1), place / "first")
    second = build(bench, gpt(past=7, length=3, layers=1), place / "second")
    feeds = inputs(whole)
    ids = feeds["input_ids"]
    given = first({**feeds, "input_ids": ids[:, :5].copy()})
    past = {name.replace("present", "past"): y for name, y in given.items() if name != "logits"}
    rest = second({**past, "input_ids": ids[:, 5:].copy()})
    want = whole(feeds)
    assert_close({"logits": np.concatenate([given["logits"], rest["logits"]], 1)}, {"logits": want["logits"]})
