"""`dlc show`, `dlc list` and `dlc opt`: what can be looked at."""

import json
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def test_a_model(dlc: Dlc, golden: Golden) -> None:
    golden("show/model.txt", dlc("show", "small.onnx").transcript())
    golden("show/text.txt", dlc("show", "small.onnx", "--text", "--origins").transcript())


def test_a_model_with_symbolic_dimensions(dlc: Dlc) -> None:
    Path("dynamic.onnx").write_bytes(small("batch").SerializeToString())
    assert '"x": f32[batch,3]' in dlc("show", "dynamic.onnx").out
    assert '"x": f32[7,3]' in dlc("show", "dynamic.onnx", "--dim", "batch=7").out


def test_text_is_a_model_too(dlc: Dlc) -> None:
    Path("graph.dlc").write_text(dlc("show", "small.onnx", "--text").out)
    first, second = dlc("show", "small.onnx", "--json").document, dlc("show", "graph.dlc", "--json").document
    assert [first[key] for key in ("inputs", "outputs", "ops")] == [second[key] for key in ("inputs", "outputs", "ops")]


def test_a_program(dlc: Dlc) -> None:
    assert dlc("build", "small.onnx", "-o", "out", "-q").code == 0
    assert "changed" not in dlc("show", "out").out
    Path("out/small.c").write_text("int x;\n")
    Path("out/small.pc").unlink()
    states = {f["name"]: f["state"] for f in dlc("show", "out", "--json").document["files"]}
    assert (states["small.c"], states["small.pc"], states["small.h"]) == ("changed", "missing", "as built")


def test_everything_a_build_left_in_the_cache(dlc: Dlc) -> None:
    steps = dlc("build", "small.onnx", "-o", "out", "--json").document["steps"]
    for step in steps:
        kind, digest = step["output"].split()
        ran = dlc("show", digest[:12])
        assert ran.code == 0
        assert f"{kind} {digest}" in ran.out
        found = dlc("show", digest, "--json").document
        assert (found["kind"], found["state"]) == ("result", step["output"])
        for file in found["files"]:
            assert dlc("show", file["digest"][:16]).code == 0
        text = dlc("show", digest, "--text").out
        assert text.startswith(
            {"graph": ("graph(", "kernel "), "plan": ("graph(", "kernel "), "artifact": "# files"}[kind]
        )


def test_a_cached_file_can_be_taken_out(dlc: Dlc) -> None:
    steps = dlc("build", "small.onnx", "-o", "out", "--json").document["steps"]
    files = dlc("show", steps[-1]["output"].split()[1], "--json").document["files"]
    digest = next(f["digest"] for f in files if f["name"] == "file/libsmall.so")
    assert dlc("show", digest, "-o", "copy.so").code == 0
    assert Path("copy.so").read_bytes() == Path("out/libsmall.so").read_bytes()
    refused = dlc("show", digest, "-o", "folder/copy.so")
    assert refused.code == ExitCode.MODEL
    assert "folder/copy.so cannot be written" in refused.err


def test_an_ambiguous_digest(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    from dlc.cache import Cache, Key
    from dlc.cli import workspace

    store = workspace.open_configured(workspace.configuration(workspace.CacheOptions()))
    number, seen = 0, dict[str, int]()
    while True:  # two records whose digests start alike
        key = Key.of(step="test", n=str(number))
        if key.digest[:4] in seen:
            break
        seen[key.digest[:4]] = number
        number += 1
    assert isinstance(store, Cache)
    for n in (number, seen[key.digest[:4]]):
        store.save(Key.of(step="test", n=str(n)), {}, {})
    store.close()
    ran = dlc("show", key.digest[:4])
    assert ran.code == ExitCode.USAGE
    assert ran.err.startswith("error[ambiguous-digest]: 2 digests start with")
    assert dlc("show", key.digest).code == 0


@pytest.mark.parametrize("kind", ["passes", "ops", "frontends", "backends", "pipelines", "onnx"])
def test_listings(dlc: Dlc, kind: str) -> None:
    """The short way without typer and the long way say the same."""
    ran = dlc("list", kind)
    assert ran.code == 0
    items = dlc("list", kind, "--json").document["items"]
    assert items
    for item in items:
        assert item["name"].replace("_", "") in ran.out.replace("_", "")
    assert dlc("list", kind, "--json").document["kind"] == kind


def test_opt_runs_what_the_file_says(dlc: Dlc, golden: Golden) -> None:
    text = 'graph(%0 "x": f32[2]) {\n  %1 = neg(%0)\n  %2 = neg(%1)\n  return %2 "y"\n}\n'
    Path("twice.dlc").write_text(f"# RUN: simplify\n{text}")
    golden("opt/run.txt", dlc("opt", "twice.dlc", "-q").transcript())
    shown = dlc("opt", "twice.dlc", "-p", "simplify,lower", "--print-after", "all", "-q").out
    assert [line for line in shown.splitlines() if line.startswith("# after ")][-1].startswith("# after lower")
    data = dlc("opt", "twice.dlc", "--json").document
    assert data["text"] == dlc("opt", "twice.dlc", "-q").out
    assert json.dumps(data["steps"][0]["counts"])
