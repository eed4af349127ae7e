"""`--json`: one document per command, whose form is part of the interface."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dlc.cli.table import COMMANDS
from dlc.debug.crash_report import CrashReport
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden
from tests.op_packs.packs import SOUND
from tests.training.linear import Linear, blobs, save

MAPS = {"counts", "facts", "kinds", "memory", "ops", "offers", "refused"}
"""Objects whose keys are names of things, not part of the form."""

LISTS = {"missed", "notes"}
"""Lists whose length depends on what passes have to say."""

LINES = {
    "build": ["build", "small.onnx", "-o", "out", "--explain", "fuse"],
    "build_stopped": ["build", "small.onnx", "--stop-after", "parse"],
    "build_pipeline": ["build", "small.onnx", "--print-pipeline"],
    "build_failed": ["build", "absent.onnx"],
    "ops_show": ["ops", "show", "softmax"],
    "ops_check": ["ops", "check", "demo.ops.yaml", "--target", "none"],
    "run": ["run", "out", "--time", "--calls", "2"],
    "bench": ["bench", "small.onnx", "--rounds", "2", "--against", "torch", "--html", "bench.html"],
    "tune": ["tune", "small.onnx", "--budget", "1", "--candidates", "1", "-o", "tuned.toml"],
    "verify": ["verify", "out", "--model", "small.onnx"],
    "train": ["train", "out", "--data", "train.npz", "--validation", "0.5", "--epochs", "1"],
    "plan": ["plan", "small.onnx", "--html", "plan.html"],
    "report": ["report", "out", "--html", "report.html", "--trace", "trace.json"],
    "report_difference": ["report", "out", "out"],
    "opt": ["opt", "graph.dlc", "-p", "simplify"],
    "show_model": ["show", "small.onnx", "--text"],
    "show_program": ["show", "out"],
    "explain": ["explain", "unsupported-op"],
    "list": ["list", "passes"],
    "list_errors": ["list", "errors"],
    "list_overview": ["list"],
    "debug_bisect-passes": ["debug", "bisect-passes", "small.onnx", "-p", "lower,order,plan-memory"],
    "debug_first-divergence": ["debug", "first-divergence", "small.onnx", "-p", "lower,order,plan-memory"],
    "debug_reduce": ["debug", "reduce", "small.onnx", "--check", "grep -q Relu"],
    "debug_repro": ["debug", "repro", "dlc-crash-1.txt", "--yes"],
    "cache_stats": ["cache", "stats"],
    "cache_why": ["cache", "why", "small.onnx", "--set", "fuse.max-nests=3"],
    "cache_verify": ["cache", "verify"],
    "cache_trim": ["cache", "trim", "1GiB"],
    "cache_clear": ["cache", "clear"],
    "cache_export": ["cache", "export", "-o", "other.dlccache"],
    "cache_import": ["cache", "import", "made.dlccache", "--cache-dir", "new"],
    "cache_keygen": ["cache", "keygen", "-o", "other.pem"],
    "cache_sign": ["cache", "sign", "--as-is"],
    "cache_audit": ["cache", "audit", "small.onnx"],
    "trust": ["trust"],
    "plugins": ["plugins"],
    "plugins_new": ["plugins", "new", "pass", "some-pass"],
    "plugins_test": ["plugins", "test", "kernel", "--only", "documented"],
    "doctor": ["doctor"],
}


def form(value: Any, key: str = "") -> Any:
    """The form of a document: types in place of values, one element for each list."""
    if key in MAPS | LISTS:
        return "map" if key in MAPS else "list"
    match value:
        case dict():
            return {str(k): form(v, str(k)) for k, v in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case list():
            return union([form(v) for v in value])  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case None:
            return "null"
        case _:
            return type(value).__name__


def union(forms: Sequence[Any]) -> list[Any]:
    """The different forms of a list's elements; objects are merged, keys that not all of them have get a `?`."""
    objects: list[dict[str, Any]] = [f for f in forms if isinstance(f, dict)]
    others = sorted({json.dumps(f) for f in forms if not isinstance(f, dict)})
    merged: dict[str, Any] = {}
    for found in objects:
        for key, value in found.items():
            held = merged.get(key)
            merged[key] = union([*held, *value]) if isinstance(value, list) and isinstance(held, list) else value
    optional = {f"{k}{'' if all(k in f for f in objects) else '?'}": v for k, v in merged.items()}
    return [*([optional] if objects else []), *(json.loads(f) for f in others)]


@pytest.mark.usefixtures("small_caches")
@pytest.mark.parametrize("name", LINES)
def test_form_of_the_document(
    dlc: Dlc, golden: Golden, program: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change here is a change for every program that reads it: add keys, or count the version up."""
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("graph.dlc").write_text('graph(%0 "x": f32[2]) {\n  %1 = neg(%0)\n  return %1 "y"\n}\n')
    if name in ("run", "verify", "show_program"):
        Path("out").symlink_to(program / "out")
    if name.startswith("report"):
        assert dlc("build", "small.onnx", "-o", "out", "-q", "--record", "-p", "lower,order,plan-memory").code == 0
    if name == "debug_repro":
        report = CrashReport.of(["show", "graph.dlc"], KeyError(), "graph.dlc")
        Path("dlc-crash-1.txt").write_text(report.line)
    if name == "ops_check":
        Path("demo.ops.yaml").write_text(SOUND)
    if name == "train":
        Path("out").mkdir()
        save("train.npz", **blobs(30))
        monkeypatch.setattr("dlc.runtime.loading.load", lambda *_, **__: Linear())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    if name.startswith("cache_"):
        assert dlc("build", "small.onnx", "-o", "made", "-q").code == 0
        assert dlc("cache", "export", "-o", "made.dlccache").code == 0
        assert dlc("cache", "keygen", "-o", "key.pem").code == 0
    if name == "cache_sign":
        monkeypatch.setenv("DLC_CACHE_SIGNING_KEY", "key.pem")
    ran = dlc(*LINES[name], "--json")
    found = ran.document
    golden(f"json/{name}.txt", f"{found['schema']}\n{json.dumps(form(found), indent=2)}")
    assert list(found)[:4] == ["schema", "ok", "exit_code", "diagnostics"]
    assert (found["ok"], found["exit_code"]) == (ran.code == 0, ran.code)
    assert json.dumps(found, allow_nan=False)


def test_every_command_is_covered() -> None:
    """By the table above."""
    wanted = {name for c in COMMANDS for name in ([f"{c.name}_{part}" for part in c.parts] or [c.name])}
    covered = {name if name in wanted else name.partition("_")[0] for name in LINES}
    assert wanted <= covered


def test_infinities_are_text(dlc: Dlc) -> None:
    """JSON has no NaN and no infinity."""
    Path("graph.dlc").write_text(
        'graph(%0 "x": f32[2]) {\n  %1 = sub(%0, %0)\n  %2 = div(%1, %1)\n  return %2 "y"\n}\n'
    )
    output = dlc("run", "graph.dlc", "--json").document["outputs"][0]
    assert output["min"] == output["mean"] == output["first"][0] == "nan"


def test_a_repeated_build_says_the_same(dlc: Dlc) -> None:
    """It takes a shorter way through the code, which nobody should notice but by the time."""
    Path("small.onnx").write_bytes(small().SerializeToString())

    def lasting(found: dict[str, Any]) -> dict[str, Any]:
        steps = [{k: v for k, v in s.items() if k not in ("milliseconds", "cached")} for s in found["steps"]]
        for job in (job for step in steps for job in step["jobs"]):
            del job["cached"]
        return {k: v for k, v in found.items() if k not in ("milliseconds", "cache")} | {"steps": steps}

    first, second = (dlc("build", "small.onnx", "-o", "out", "--json").document for _ in range(2))
    assert form(first) == form(second)
    assert lasting(first) == lasting(second)
    assert all(step["cached"] for step in second["steps"])
    texts = {dlc("build", "small.onnx", "-o", "out", "-q").out for _ in range(2)}
    texts.add(dlc("build", "small.onnx", "-o", "out", "-q", "--explain", "parse").out.partition("out: ")[2])
    assert len({text.removeprefix("out: ") for text in texts}) == 1
