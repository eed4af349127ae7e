"""Records: their JSON form against their schema, what they hold of a build, traces, differences, and bad files."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dlc.base.diagnostics import DlcError
from dlc.record.diff import difference
from dlc.record.files import read_record, record_text
from dlc.record.json_form import schema
from dlc.record.record import Record
from dlc.record.trace import trace
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.cli.records import planned


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return planned(small(), tmp_path_factory.mktemp("record"))


def valid(path: Path) -> None:
    """Judged by another implementation of JSON Schema."""
    judge: Any = Draft202012Validator(schema())
    judge.validate(json.loads(path.read_text()))


def test_the_form_and_its_inverse(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(record_text(record))
    assert read_record(path) == record
    Draft202012Validator.check_schema(schema())
    valid(path)


def test_every_field_is_explained() -> None:
    for name, declared in schema()["$defs"].items():
        assert declared["description"], name
        assert all(p["description"] for p in declared["properties"].values()), name


def changed(record: Record, place: str, value: object) -> dict[str, Any]:
    """A record's JSON with another value at a place: `functions.0.graph.1.reads`."""
    data: Any = json.loads(record_text(record))
    *way, last = place.split(".")
    at = data
    for key in way:
        at = at[int(key) if isinstance(at, list) else key]
    if value is None:
        del at[last]
    else:
        at[int(last) if isinstance(at, list) else last] = value
    return data


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("schema", "dlc.record/0", "its schema is 'dlc.record/0', not 'dlc.record/1'"),
        ("schema", None, "it has no schema"),
        ("model", 3, "model is 3, not string"),
        ("target", None, "target is missing"),
        ("graph", {}, "graph is an object, not array"),
        ("graph.0.reads", [0], "graph[0].reads names a node that does not stand before it"),
        ("functions.0.graph.1.reads", [-1], "functions[0].graph[1].reads names a node"),
        ("functions.0.layers.0.number", 7, "functions[0].layers are not numbered from 0 on"),
        ("functions.0.layers.0.macs", "many", "functions[0].layers[0].macs is 'many', not integer or null"),
        ("functions.0.layers.0.operations", True, "functions[0].layers[0].operations is True"),
        ("functions.0.memory.values.0.offset", 10**9, "functions[0].memory.values[0] does not lie in the arena"),
        ("runs.0.programs", [], "runs[0] has no times of dlc's program"),
        ("runs.0.limits.gflops", 0, "runs[0].limits has a rate that is not positive"),
        ("facts", [1], "facts is a list, not object"),
        ("passes.0.counts", {"nodes": "two"}, "passes[0].counts.nodes is 'two', not integer"),
    ],
)
def test_what_is_no_record(record: Record, tmp_path: Path, place: str, value: object, said: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(changed(record, place, value)))
    with pytest.raises(DlcError) as found:
        read_record(path)
    (problem,) = found.value.diagnostics
    assert problem.code == "not-a-record"
    assert said in problem.message


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"schema": NaN}', b"[" * 100_000])
def test_files_that_hold_anything(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(DlcError, match="no record"):
        read_record(path)


def test_a_build_and_a_cached_one(dlc: Dlc, tmp_path: Path) -> None:
    """Layers name nodes, kernels and lines; a cached build tells the times of the one that made its results."""
    Path("small.onnx").write_bytes(small().SerializeToString())
    line = ("build", "small.onnx", "-t", "c{lib=none}", "--record", "-q")
    assert dlc(*line, "-o", "one").code == 0
    assert dlc(*line, "-o", "two").code == 0
    one, two = read_record(Path("one")), read_record(Path("two/record.json"))
    valid(Path("two/record.json"))
    assert {n for layer in one.functions[0].layers for n in layer.nodes} == {"product", "bias", "positive"}
    text = Path("one/small.c").read_text().splitlines()
    kernels = {k.digest: k for k in one.kernels}
    for layer in one.functions[0].layers:
        kernel = kernels[layer.kernel]
        assert f" {kernel.symbol}(" in text[kernel.line - 1]
        assert kernel.file == "small.c"
        assert {j.step for j in kernel.jobs} == {"schedule", "generate"}
        assert kernel.cycles > 0
    boxes = {name: node for node in one.graph for name in node.names}
    assert all(boxes[n].layers for n in ("product", "bias", "positive"))
    (weight, bias) = one.functions[0].weights
    assert weight.bytes + bias.bytes >= 4 * (3 * 4 + 4)
    assert not any(p.cached for p in one.passes)
    assert all(p.cached for p in two.passes)
    assert [p.made_ms for p in two.passes] == [p.made_ms for p in one.passes]
    made = [[(j.step, j.made_ms) for j in k.jobs] for k in one.kernels]
    assert made == [[(j.step, j.made_ms) for j in k.jobs] for k in two.kernels]
    assert all(j.cached for k in two.kernels for j in k.jobs)
    assert {f.name: f.bytes for f in one.files} == {
        p.name: p.stat().st_size for p in Path("one").iterdir() if p.name != "record.json"
    }
    found = dlc("report", "one", "two", "--json").document["difference"]
    assert {layer["state"] for layer in found["layers"]} == {"same"}
    other = dlc("build", "small.onnx", "-t", "c{cpu=generic lib=none}", "--record", "-q", "-o", "three")
    assert other.code == 0
    ran = dlc("report", "one", "three", "--html", "diff.html")
    assert "1 changed" in ran.out
    assert "product" in ran.out
    assert "<script" not in Path("diff.html").read_text()


def test_a_trace(record: Record) -> None:
    """Events of a thread follow each other; they add up to what was measured, and the counter to the memory."""
    events = json.loads(json.dumps(trace(record)))["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "C"}
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for e in events:
        if e["ph"] == "X":
            threads.setdefault((e["pid"], e["tid"]), []).append(e)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert named == set(threads)
    for of_thread in threads.values():
        for a, b in pairwise(of_thread):
            assert a["ts"] + a["dur"] <= b["ts"] + 0.002
    passes, layers = threads[1, 0], threads[2, 0]
    made = 1000 * sum(p.made_ms for p in record.passes)
    assert abs(sum(e["dur"] for e in passes) - made) < 0.1
    cycles = {k.digest: k.cycles for k in record.kernels}
    estimated = sum(cycles[x.kernel] for x in record.functions[0].layers) / 1000
    assert abs(sum(e["dur"] for e in layers) - estimated) < 0.01
    assert [e["args"]["layer"] for e in layers] == list(range(len(layers)))
    memory = record.functions[0].memory
    assert memory is not None
    live = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
    assert max(live) == 2 * 4 * 4 <= memory.bound
    assert live[-1] == 0
    main = record.functions[0]
    timed = replace(record, functions=(replace(main, layers=tuple(replace(x, ms=2.0) for x in main.layers)),))
    durations = [e["dur"] for e in trace(timed)["traceEvents"] if e.get("cat") == "layer"]
    assert durations == [2000.0] * len(main.layers)


def test_layers_of_two_builds_that_belong_together(record: Record) -> None:
    """By their nodes: all, or else most of them."""
    main = record.functions[0]
    first, second, third = main.layers
    joined = replace(first, nodes=(*first.nodes, *second.nodes), kernel=second.kernel)
    fused = replace(record, functions=(replace(main, layers=(joined, replace(third, number=1))),))
    found = difference(record, fused)
    assert [(c.before, c.after, c.state) for c in found.layers] == [
        (0, 0, "changed"),
        (2, 1, "same"),
        (1, None, "gone"),
    ]
    assert [c.state for c in difference(fused, record).layers] == ["changed", "added", "same"]
    assert next(f for f in found.figures if f.name == "layers").after == 2
