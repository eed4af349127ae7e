"""`dlc build`: what each flag does."""

import json
import re
from pathlib import Path

import pytest
from onnx import helper

from dlc.base.diagnostics import ExitCode
from tests.cli import models
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden

FILES = {
    "CMakeLists.txt",
    "libsmall.so",
    "manifest.json",
    "small.c",
    "small.h",
    "small.hpp",
    "small.pc",
    "smallConfig.cmake",
}


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("dynamic.onnx").write_bytes(small("batch").SerializeToString())


def names(directory: str) -> set[str]:
    return {p.name for p in Path(directory).iterdir()}


def test_it_says_what_it_wrote(dlc: Dlc) -> None:
    ran = dlc("build", "small.onnx", "-q")
    assert ran.err == ""
    assert re.fullmatch(
        r"build/small: \d+ files, [\d.,]+ \w+\n"
        r"arena [\d,]+ B \(lower bound [\d,]+ B, overhead \d+\.\d\d %\), weights [\d,]+ B\n",
        ran.out,
    )
    assert names("build/small") >= FILES


def test_the_table_goes_to_stderr(dlc: Dlc) -> None:
    ran = dlc("build", "small.onnx", "-o", "out")
    head, *rows = ran.err.splitlines()
    assert head.split() == ["pass", "ms", "cache", "nodes", "note"]
    assert [row.split()[0] for row in rows[:2]] == ["onnx", "integers"]
    assert rows[-1].startswith("build c ")
    assert ran.out.startswith("out: ")
    again = dlc("build", "small.onnx", "-o", "out").err
    assert all(re.search(r"\d  hit\b", row) for row in again.splitlines()[1:] if row[0] != " "), again


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_table_fits_the_terminal(dlc: Dlc, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Options that have their defaults are in --print-pipeline; long notes go on below."""
    arguments = ("build", "small.onnx", "-t", "c{cpu=generic lib=none}", "--set", "fuse.max-nests=5", "-o", "out")
    monkeypatch.setenv("COLUMNS", "1000")
    whole = dlc(*arguments).err
    monkeypatch.setenv("COLUMNS", str(width))
    wrapped = dlc(*arguments).err
    if width >= 80:
        assert max(map(len, wrapped.splitlines())) <= width
    assert "emit c{cpu=generic lib=none}  " in wrapped
    assert "fuse{max-nests=5" in wrapped
    assert "simplify  " in wrapped
    words = [word for line in whole.splitlines() for word in line.split() if word not in ("miss", "hit")]
    assert {w for w in words if not re.fullmatch(r"[\d.]+", w)} <= set(wrapped.split())


def test_the_table_of_a_stored_build_is_the_same(dlc: Dlc) -> None:
    arguments = ("build", "small.onnx", "-t", "c{cpu=generic lib=none}", "-o", "out")
    first, again = (dlc(*arguments).err.splitlines() for _ in range(2))
    steps = [[row[:31].strip() for row in rows] for rows in (first, again)]
    assert steps[0] == steps[1]


def test_shapes_from_flags(dlc: Dlc, golden: Golden) -> None:
    assert "arena of a call" in dlc("build", "dynamic.onnx", "-o", "any", "-q").out
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    inner = models.model(relu, [("x", [2, "length"])], [("y", [2, "length"])])
    Path("inner.onnx").write_bytes(inner.SerializeToString())
    golden("build/symbolic.txt", dlc("build", "inner.onnx", "-q").transcript())
    golden("build/unknown_dim.txt", dlc("build", "dynamic.onnx", "--dim", "bach=2", "-q").transcript())
    golden("build/unknown_input.txt", dlc("build", "dynamic.onnx", "--input", "y:2x3", "-q").transcript())
    for flags in (["--dim", "batch=5"], ["--input", "x:5x3"]):
        assert dlc("build", "dynamic.onnx", "-o", "out", "-q", *flags).code == 0
        signature = json.loads(Path("out/manifest.json").read_text())["signature"]
        assert signature["outputs"][0]["shape"] == [5, 4]


def test_print_pipeline_writes_nothing(dlc: Dlc) -> None:
    ran = dlc("build", "small.onnx", "-p", "expand,lower,order,plan-memory", "--without", "expand", "--print-pipeline")
    lines = ran.out.splitlines()
    assert lines[0] == "pipeline expand,lower,order,plan-memory  (--pipeline)"
    assert [line.split()[1].partition("{")[0] for line in lines[1:-1]] == ["lower", "order", "plan-memory"]
    assert lines[-1].startswith("target c{")
    assert not Path("build").exists()


def test_settings_tell_where_they_come_from(dlc: Dlc) -> None:
    ran = dlc("build", "small.onnx", "--set", "fuse.max-nests=4", "--print-pipeline")
    assert re.search(r"fuse\{max-nests=4.*\} +max-nests from --set", ran.out)


def test_the_configuration_names_targets(dlc: Dlc) -> None:
    Path("dlc.toml").write_text('[target.plain]\nbackend = "c{lib=none}"\n')
    assert dlc("build", "small.onnx", "-t", "plain", "-o", "out", "-q").code == 0
    assert names("out") == FILES - {"libsmall.so"} | (names("out") - FILES)
    assert "libsmall.so" not in names("out")


def test_stop_after_prints_the_state(dlc: Dlc) -> None:
    ran = dlc("build", "small.onnx", "--stop-after", "parse", "-q")
    assert ran.out.startswith('graph(%0 "x": f32[2,3]) {\n')
    assert ran.err == ""
    assert not Path("build").exists()
    assert dlc("build", "small.onnx", "--stop-after", "plan-memory", "-q").out.splitlines()[-1].startswith("plan {")
    listed = dlc("build", "small.onnx", "--stop-after", "emit", "-q").out.splitlines()
    assert {"# small.c", "# small.h"} <= set(listed)


def test_what_stop_after_prints_can_be_run_on(dlc: Dlc) -> None:
    Path("graph.dlc").write_text(dlc("build", "small.onnx", "--stop-after", "parse", "-q").out)
    whole = dlc("build", "small.onnx", "--stop-after", "simplify", "-q", "-p", "simplify,lower,order,plan-memory")
    assert dlc("opt", "graph.dlc", "-p", "simplify", "-q").out == whole.out


def test_explain(dlc: Dlc) -> None:
    lines = dlc("build", "small.onnx", "--explain", "fuse", "-o", "out", "-q").out.splitlines()
    assert lines[0].startswith("fuse{")
    assert any(line.startswith("  nodes ") for line in lines)
    cached = dlc("build", "small.onnx", "--explain", "fuse", "-o", "out", "-q").out.splitlines()
    assert cached == lines


def test_dump_ir(dlc: Dlc) -> None:
    assert dlc("build", "small.onnx", "--dump-ir", "all", "-o", "all", "-q").code == 0
    found = sorted(p.name for p in Path("all/ir").iterdir())
    assert found[0] == "000-parse.dlc"
    assert found[-1].endswith("-plan-memory.dlc")
    assert dlc("build", "small.onnx", "--dump-ir", "lower", "-o", "one", "-q").code == 0
    assert [p.name.partition("-")[2] for p in Path("one/ir").iterdir()] == ["lower.dlc"]
    assert dlc("build", "small.onnx", "--dump-ir", "changed", "-o", "some", "-q").code == 0
    assert {p.name for p in Path("some/ir").iterdir()} < set(found)
    assert '"product"' in Path("all/ir/000-parse.dlc").read_text()  # where each op comes from


def test_html(dlc: Dlc) -> None:
    """Everything in one file that loads nothing: memory over time, the bound, kernels with their work."""
    assert dlc("build", "small.onnx", "--html", "-o", "out", "-q", "-p", "expand,lower,order,plan-memory").code == 0
    page = Path("out/report.html").read_text(encoding="utf-8")
    for part in (">Passes</h2>", ">Graph</h2>", ">Memory</h2>", "<svg", "<polyline", "Kernels"):
        assert part in page
    loading = page.replace("http://www.w3.org/2000/svg", "")  # the name of a language
    assert not re.search(r"<script[^>]* src|<link|https?://|url\(|@import|<img|<iframe", loading)
    assert "<dt>MACs</dt><dd>24</dd>" in page  # 2 x 3 x 4


def test_jobs_do_not_change_the_result(dlc: Dlc) -> None:
    for jobs in ("1", "3"):
        assert dlc("build", "small.onnx", "-j", jobs, "-o", jobs, "-q", "--cache", "off").code == 0
    assert all((Path("1") / name).read_bytes() == (Path("3") / name).read_bytes() for name in FILES)


def test_cache_modes(dlc: Dlc, golden: Golden) -> None:
    missed = dlc("build", "small.onnx", "-o", "out", "-q", "--cache", "require")
    assert missed.code == ExitCode.CACHE_MISS
    assert "has no cached result" in missed.err
    assert not Path("out").exists()

    def hits(mode: str) -> tuple[int, int]:
        found = dlc("build", "small.onnx", "-o", "out", "--json", "--cache", mode).document["cache"]
        return found["hits"] > 0, found["misses"] > 0

    assert hits("ro") == (False, True)
    assert hits("off") == (False, False)
    assert hits("rw") == (False, True)
    assert hits("rw") == (True, False)
    assert hits("require") == (True, False)
    assert hits("refresh") == (False, True)
    assert hits("ro") == (True, False)


def test_the_environment_says_the_same_as_flags(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_CACHE", "require")
    assert dlc("build", "small.onnx", "-q").code == ExitCode.CACHE_MISS
    assert dlc("build", "small.onnx", "-q", "--cache", "off").code == 0


def test_another_cache_directory(dlc: Dlc) -> None:
    assert dlc("build", "small.onnx", "-q", "--cache-dir", "here").code == 0
    assert dlc("build", "small.onnx", "-q", "--cache-dir", "here", "--cache", "require").code == 0
    assert dlc("build", "small.onnx", "-q", "--cache", "require").code == ExitCode.CACHE_MISS
