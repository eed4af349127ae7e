"""`dlc tune` and `--tune`: schedules are measured once, and builds use what was found."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.target import target_for

from dlc.api.tuning import Record, Tuning, read_tuning
from dlc.base.diagnostics import ExitCode
from dlc.cache import Cache, open_cache
from dlc.cli.options import CacheOptions
from dlc.cli.workspace import cache_policy, configuration
from dlc.driver.executors import cluster
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.text import parse_kernel
from dlc.tune import known
from dlc.tune.place import Place, Tuned
from tests.cli.conftest import Dlc
from tests.cli.models import small

TEXT = "kernel(f32[20,24], f32[24,40]) -> (f32[20,40]) {\n  k<24: r0[i,j] += p0[i,k]*p1[k,j]\n}"
KERNEL = parse_kernel(TEXT)
OTHER = print_choices(scheduled(KERNEL, target_for("native").machine, parse_choices("loops")).choices)
"""That applies to it on any machine, with all of its numbers, and that nobody chooses by default."""
QUICK = ("--budget", "1", "--candidates", "2", "-q")


@pytest.fixture(autouse=True)
def model() -> None:
    kernel = TEXT.replace("kernel(", "kernel @k0(")
    graph = 'graph(%0 "a": f32[20,24], %1 "b": f32[24,40]) {\n  %2 = @k0(%0, %1) | "product"\n  return %2 "c"\n}\n'
    Path("product.dlc").write_text(f"{kernel}\n{graph}")


@pytest.fixture
def record() -> Record:
    """Of the model's kernel, with its default schedule; the file has another one, as if that had been faster."""
    tuner = C().tuner()
    (default,) = tuner.trials(KERNEL, 1, 0)
    found = Record(KERNEL.digest, tuner.fingerprint(), ("product",), default.schedule, default.schedule, 9, 500, 400)
    write(found, schedule=OTHER)
    return found


def write(found: Record, **changed: object) -> None:
    Path("tuned.toml").write_text(Tuning([replace(found, **changed)]).text)  # pyright: ignore


def notes(dlc: Dlc, *arguments: str) -> tuple[str, str]:
    """(what the step says that chooses schedules, the schedule)."""
    ran = dlc("build", "product.dlc", "--explain", "schedule-kernels", *arguments)
    assert ran.code == 0, ran.err
    (schedule,) = re.findall(r"^  scheduled [0-9a-f]{16} .*? as ([^,]*),", ran.out, re.MULTILINE)
    said = [line.strip() for line in ran.out.splitlines() if re.search("measured schedule|estimate decides", line)]
    return "; ".join(said), schedule


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_is_found_is_written_and_remembered(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = dlc("tune", "product.dlc", *QUICK, "-o", "first.toml")
    assert ran.code == 0, ran.err
    assert "1 of 1 kernels: 1 measured, 0 known from the cache" in ran.out
    (found,) = read_tuning(Path("first.toml")).records
    assert found.nodes == ("product",)
    assert found.default
    assert 0 < found.tuned_ns <= found.default_ns
    monkeypatch.setattr(Place, "tune", interrupted)
    again = dlc("tune", "product.dlc", *QUICK, "-o", "second.toml")
    assert "1 of 1 kernels: 0 measured, 1 known from the cache" in again.out
    assert Path("second.toml").read_text() == Path("first.toml").read_text()
    refreshed = dlc("tune", "product.dlc", *QUICK, "--cache", "refresh")
    assert "0 of 1 kernels: 0 measured, 0 known from the cache; 1 not reached: interrupted" in refreshed.out


def test_a_build_uses_a_file(dlc: Dlc, record: Record) -> None:
    plain = notes(dlc, "-q")
    assert plain == ("", record.default)
    assert notes(dlc, "-q", "--tune", "tuned.toml") == ("1 of 1 kernels have measured schedules", OTHER)
    assert notes(dlc, "-q", "-t", "c{tune=tuned.toml}")[1] == OTHER
    a, b = (np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate(((20, 24), (24, 40))))
    np.savez("in.npz", a=a, b=b)
    ran = dlc("run", "product.dlc", "in.npz", "-o", "out.npz", "-q", "--tune", "tuned.toml")
    assert ran.code == 0, ran.err
    np.testing.assert_allclose(np.load("out.npz")["c"], a @ b, rtol=1e-4, atol=1e-4)


def test_the_content_of_a_file_counts_not_its_path(dlc: Dlc, record: Record) -> None:
    line = ("build", "product.dlc", "--json", "-o", "out")
    first = dlc(*line, "--tune", "tuned.toml").document
    shutil.copy("tuned.toml", "copy.toml")
    text = Path("out/product.c").read_text()
    second = dlc(*line, "--tune", "copy.toml").document
    assert [s["cached"] for s in second["steps"]] == [True] * len(first["steps"])
    assert Path("out/product.c").read_text() == text
    write(record, schedule=record.default)
    third = dlc(*line, "--tune", "tuned.toml").document
    assert not all(s["cached"] for s in third["steps"])
    assert Path("out/product.c").read_text() != text
    assert all(s["cached"] for s in dlc(*line, "--tune", "tuned.toml").document["steps"])
    write(record, schedule=OTHER)
    dlc(*line, "--tune", "tuned.toml")
    assert Path("out/product.c").read_text() == text
    assert "tuned.toml" not in Path("out/manifest.json").read_text()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kernel": "0" * 32}, "0 of 1 kernels have measured schedules; 1 were not measured"),
        ({"schedule": "heap"}, "1 have a measured schedule that does not apply any more; the estimate decides for"),
        ({"schedule": "heaps"}, "there is no schedule heaps"),
        ({"schedule": "loops,loops"}, "the kernel has 1 groups of nests, and the schedule has 2 parts"),
    ],
)
def test_records_that_do_not_apply_are_noted(dlc: Dlc, record: Record, changed: dict[str, str], said: str) -> None:
    write(record, **changed)
    note, schedule = notes(dlc, "-q", "--tune", "tuned.toml")
    assert said in note
    assert schedule == record.default


def test_records_of_other_machines_are_left_alone(dlc: Dlc, record: Record) -> None:
    note, schedule = notes(dlc, "-q", "-t", "c{cpu=generic}", "--tune", "tuned.toml")
    assert note == "0 of 1 kernels have measured schedules; 1 were measured for other machines only"
    assert schedule != OTHER


def test_a_schedule_that_the_user_gives_comes_first(dlc: Dlc, record: Record) -> None:
    given = f"{record.kernel[:16]}={record.default}"
    assert notes(dlc, "-q", "--tune", "tuned.toml", "--schedule", given)[1] == record.default


def own_cache() -> Cache:
    """The cache of the command line, with the key by which it knows its own results."""
    policy = cache_policy(configuration(CacheOptions()))
    return open_cache(Path(os.environ["DLC_CACHE_DIR"]), "rw", policy=policy)


def test_a_build_uses_the_cache(dlc: Dlc, record: Record) -> None:
    with open_cache(
        Path(os.environ["DLC_CACHE_DIR"]), "rw", policy=cache_policy(configuration(CacheOptions()))
    ) as cache:
        known.remember(cache, replace(record, schedule=OTHER))
    assert notes(dlc, "-q")[1] == record.default, "not unless it is asked for"
    assert notes(dlc, "-q", "--tune", "cache") == ("1 of 1 kernels have measured schedules", OTHER)
    with open_cache(
        Path(os.environ["DLC_CACHE_DIR"]), "rw", policy=cache_policy(configuration(CacheOptions()))
    ) as cache:
        known.remember(cache, record)
    for _ in range(2):
        assert dlc("build", "product.dlc", "-q", "--tune", "cache").code == 0
    assert notes(dlc, "-q", "--tune", "cache")[1] == record.schedule
    assert notes(dlc, "-q", "--tune", "cache", "--cache", "off")[0].startswith("0 of 1")


def test_files_are_merged(dlc: Dlc, record: Record) -> None:
    slower = replace(record, schedule="rows", tuned_ns=record.default_ns * 2)
    elsewhere = replace(record, fingerprint=replace(record.fingerprint, processor="another"))
    Path("a.toml").write_text(Tuning([slower, elsewhere]).text)
    Path("b.toml").write_text(Tuning([record]).text)
    for order in (("a.toml", "b.toml"), ("b.toml", "a.toml")):
        ran = dlc("tune", "--merge", *order, "-o", "c.toml", "--json")
        assert ran.document["records"] == 2
        assert Path("c.toml").read_text() == Tuning([record, elsewhere]).text


def test_an_interruption_keeps_what_there_is(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "tune", interrupted)
    ran = dlc("tune", "product.dlc", *QUICK, "-o", "tuned.toml")
    assert ran.code == ExitCode.INTERRUPTED
    assert "0 of 1 kernels: 0 measured, 0 known from the cache; 1 not reached: interrupted" in ran.out
    assert read_tuning(Path("tuned.toml")).records == ()


def test_other_results_are_a_mismatch(dlc: Dlc, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Tuned(record, 2, wrong=("rows",), failed=(("words", "gcc failed"),))
    monkeypatch.setattr(Place, "tune", lambda *_: found)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    ran = dlc("tune", "product.dlc", *QUICK, "-o", "tuned.toml")
    assert ran.code == ExitCode.MISMATCH
    assert f"{record.kernel[:16]}: OTHER RESULTS with rows: please report it" in ran.out
    assert f"{record.kernel[:16]}: words cannot be built: gcc failed" in ran.out
    assert read_tuning(Path("tuned.toml")).records == (record,)


def test_open_sizes_are_not_measured(dlc: Dlc) -> None:
    Path("open.onnx").write_bytes(small("batch").SerializeToString())
    ran = dlc("tune", "open.onnx", *QUICK)
    assert ran.code == 0
    assert "not measured: its sizes are known when the program runs: give them by --dim" in ran.out
    assert "0 of 0 kernels" in ran.out


def test_kernels_are_chosen(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "tune", interrupted)
    for wanted in ("product", "duct,x", "1", KERNEL.digest[:10]):
        assert "of 1 kernels" in dlc("tune", "product.dlc", *QUICK, "--kernels", wanted).out
    assert "0 of 0 kernels" in dlc("tune", "product.dlc", *QUICK, "--kernels", "0").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tune", "product.dlc", "--kernels", "conv"), "--kernels conv: no kernel has such a node"),
        (("tune", "product.dlc", "product.dlc"), "2 models are given"),
        (("tune", "product.dlc", "-t", "s2train"), "s2train does not measure schedules of kernels"),
        (("tune", "product.dlc", "--executor", "ray://host:1"), "--executor ray://host:1: there is no such executor"),
        (("tune", "--merge", "tuned.toml"), "--merge needs a file to write to"),
        (("tune", "--merge", "absent.toml", "-o", "x.toml"), "absent.toml cannot be read: No such file"),
        (("tune", "--merge", "product.dlc", "-o", "x.toml"), "product.dlc is not a file of dlc tune"),
        (("tune", "--merge", "product.dlc", "-o", "x.toml", "-t", "c"), "--target: --merge builds nothing"),
        (("build", "product.dlc", "--tune", "absent.toml"), "absent.toml cannot be read: No such file"),
        (("build", "product.dlc", "-t", "s2train", "--tune", "x"), "--tune: s2train has no schedules that could be"),
    ],
)
def test_what_cannot_be(dlc: Dlc, arguments: tuple[str, ...], message: str) -> None:
    ran = dlc(*arguments)
    assert ran.code == ExitCode.USAGE
    assert message in ran.err


def test_a_cluster_needs_its_package(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_spec", {"distributed": None}.get)
    ran = dlc("tune", "product.dlc", *QUICK, "--executor", "dask://localhost:1")
    assert ran.code == ExitCode.USAGE
    assert "the Python package distributed is not installed" in ran.err
