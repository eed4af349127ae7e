"""`dlc build` of several models: by processes of this computer, and by workers of a Dask cluster that share a cache."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlc.base.diagnostics import DlcError
from dlc.cli import build_job, build_many
from dlc.cli.build_many import outputs_of
from dlc.driver.executors import cluster as clusters
from tests.cache.test_level_servers import SERVERS
from tests.cli.conftest import Dlc
from tests.tools import found

distributed: Any = pytest.importorskip("distributed")
ROOT = Path(__file__).parents[2]
TARGET = ("-t", "c{cpu=generic flags=-O0 lib=none}")
GRAPH = 'graph(%0 "x": f32[4,6]) {{\n  %1 = {op}(%0)\n  return %1 "y"\n}}\n'


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes import what this one does."""
    paths = [ROOT, *(ROOT / "plugins").glob("*/"), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, paths)))


@pytest.fixture
def models() -> None:
    """Two that can be built, and one that cannot."""
    for name, op in (("one", "exp"), ("two", "log"), ("bad", "nonsense")):
        Path(f"{name}.dlc").write_text(GRAPH.format(op=op))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    settings = {"dashboard_address": None, "processes": False, "protocol": "tcp"}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **settings) as found:
        yield found


def address(cluster: Any) -> str:
    return str(cluster.scheduler_address).replace("tcp://", "dask://")


def test_a_killed_worker_costs_one_job(dlc: Dlc, models: None, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"dashboard_address": None, "processes": False, "protocol": "tcp"}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **settings) as cluster:
        line = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
        flags = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
        other = subprocess.Popen([*line, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while len(cluster.scheduler.workers) < 2:
                assert other.poll() is None
                time.sleep(0.05)
            started = build_many._Shown.started  # pyright: ignore[reportPrivateUsage]

            def watched(self: Any, number: int, lane: Any) -> None:
                started(self, number, lane)
                if lane.address not in {str(w.address) for w in cluster.workers.values()}:
                    threading.Timer(0.5, other.send_signal, (signal.SIGKILL,)).start()

            monkeypatch.setattr(build_many._Shown, "started", watched)  # pyright: ignore[reportPrivateUsage]
            line = ("build", "one.dlc", "two.dlc", "bad.dlc", *TARGET, "-o", "out")
            ran = dlc(*line, "--executor", address(cluster), "--json")
        finally:
            other.kill()
            other.wait()
    found = json.loads(ran.out)
    assert (ran.code, found["ok"], found["built"], found["failed"]) == (1, False, 2, 1), found
    one, two, bad = found["models"]
    assert sum(m["tries"] for m in found["models"]) == 4  # of three jobs: one was begun twice
    assert [(m["model"], m["output"], m["ok"]) for m in (one, two)] == [
        ("one.dlc", "out/one", True),
        ("two.dlc", "out/two", True),
    ]
    assert one["cache"]["misses"] + two["cache"]["misses"] > 0  # as it went at workers; here they were installed
    assert bad["diagnostics"][0]["location"]["source"] == "bad.dlc"
    assert not Path("out/bad").exists()
    assert [d["code"] for d in found["diagnostics"] if d["severity"] == "warning"] == ["lost-worker"]
    assert Path("out/one/one.h").exists()
    assert Path("out/two/two.h").exists()


@pytest.mark.parametrize("server", found("redis-server"))
def test_workers_with_other_homes_share_a_level(
    server: str, dlc: Dlc, models: None, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second computer and its worker, in another directory, have nothing but the server: all hits, equal files.

    The worker has the server's password from its environment: jobs do not.
    """
    monkeypatch.delenv("DLC_CACHE_DIR", raising=False)
    built: list[dict[str, bytes]] = []
    graphs = {name: Path(name).read_bytes() for name in ("one.dlc", "two.dlc")}
    with SERVERS[server](tmp_path, monkeypatch) as url:
        monkeypatch.setenv("DLC_CACHE_LEVELS", url)
        for home in ("a", "b"):
            (tmp_path / home / "work").mkdir(parents=True)
            monkeypatch.chdir(tmp_path / home / "work")
            for name, text in graphs.items():
                Path(name).write_bytes(text)
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home / "cache"))
            line = ("build", "one.dlc", "two.dlc", "-o", "out", *TARGET, "--executor", address(cluster))
            ran = dlc(*line, "--cache-levels", f"{url}#rw", "--json")
            assert ran.code == 0, ran.out + ran.err
            misses = [m["cache"]["misses"] for m in json.loads(ran.out)["models"]]
            assert all(misses) if home == "a" else misses == [0, 0]
            files = [f for f in Path("out").rglob("*") if f.is_file()]
            built.append({str(f): f.read_bytes() for f in files})
            assert (tmp_path / home / "cache").is_dir(), "each has a cache of its own"
    assert built[0] == built[1]
    assert len(built[0]) > 10


def test_what_a_worker_made_and_the_cache_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_many._Model("a.dlc", Path("out"), worker="w:1")  # pyright: ignore[reportPrivateUsage]
    missing = {"exit_code": 7, "diagnostics": [{"message": "step compile has no cached result", "notes": ["cc: x"]}]}

    def lacking(text: str) -> str:
        return json.dumps(missing) if "out" in text else ""

    monkeypatch.setattr(build_many, "build_text", lacking)
    build_many._install(model, ["-o", "out"])  # pyright: ignore[reportPrivateUsage]
    assert (model.code, model.document["diagnostics"][0]["code"]) == (1, "not-shared")
    assert model.document["diagnostics"][0]["notes"] == ["step compile has no cached result", "cc: x"]


def test_what_a_worker_does_not_find_has_to_do_with_credentials(tmp_path: Path) -> None:
    cache = {"mode": "rw", "directory": str(tmp_path / "cache"), "levels": ""}
    job: dict[str, Any] = {"arguments": [], "model": "a.dlc", "files": {"a.dlc": "0" * 64}, "cache": cache}
    (found,) = json.loads(build_job.build_text(json.dumps(job)))["diagnostics"]
    assert found["code"] == "not-shared"
    assert "DLC_CACHE_LEVELS" in found["help"]


@pytest.mark.parametrize(
    ("own", "passed"),
    [
        ("redis://:s3cret@a:1/2", "redis://:s3cret@a:1/2#rw,https://b/c#ro"),
        ("disk,https://x:y@b/c#rw", "redis://a:1/2#rw,https://x:y@b/c#ro"),
        ("redis://:s3cret@evil:1/2,redis://:s3cret@a:1/3", "redis://a:1/2#rw,https://b/c#ro"),
        ("", "redis://a:1/2#rw,https://b/c#ro"),
        ("gopher://a", "redis://a:1/2#rw,https://b/c#ro"),
    ],
)
def test_a_worker_adds_its_own_credentials_for_the_same_urls(
    own: str, passed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLC_CACHE_LEVELS", own)
    add = build_job._with_own_credentials  # pyright: ignore[reportPrivateUsage]
    assert add("redis://a:1/2#rw,https://b/c#ro") == passed
    assert add("") == ""


def test_a_worker_with_another_version_is_refused(
    dlc: Dlc, models: None, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = clusters.facts_text()
    monkeypatch.setattr(clusters, "facts_text", lambda: here.replace('"dlc": "', '"dlc": "9.'))
    ran = dlc("build", "one.dlc", *TARGET, "--executor", address(cluster), "-q")
    assert ran.code == 5
    assert "is not used: it does not run the same dlc" in ran.err
    assert "note  dlc: 9." in ran.err
    assert "no worker runs the same dlc as this computer" in ran.err


def test_ctrl_c_keeps_what_is_built(models: None) -> None:
    more = [f"more{k}.dlc" for k in range(20)]  # so many that the signal comes before the last
    for name in more:
        Path(name).write_bytes(Path("two.dlc").read_bytes())
    line = [sys.executable, "-m", "dlc", "build", "one.dlc", "bad.dlc", *more, *TARGET, "-o", "out", "-j", "1"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    assert "one.dlc: built" in process.stderr.readline()
    assert "bad.dlc: failed" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert (built := re.search(r"(\d+) of 22 models built", out))
    assert 1 <= int(built[1]) < 21
    assert f"warning[interrupted]: interrupted: {built[1]} of 22 models are built" in err
    assert "bad.dlc  failed" in out
    assert "from  bad.dlc" in err
    assert "Traceback" not in err
    assert Path("out/one/one.h").exists()


def test_models_of_one_name() -> None:
    assert [str(p) for p in outputs_of(["a/net.onnx", "b/net.onnx", "c.onnx"], Path("out"))] == [
        "out/a-net",
        "out/b-net",
        "out/c",
    ]
    with pytest.raises(DlcError, match="would both be written to build/a-net"):
        outputs_of(["a/net.onnx", "a/net.dlc"], None)
    assert outputs_of(["net.onnx"], Path("out")) == [Path("out")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("one.dlc", "two.dlc", "--stats"), "error[no-effect]: with several models"),
        (("one.dlc", "--executor", "ssh://x"), "error[bad-option]: --executor ssh://x: there is no such executor"),
        (("one.dlc", "--executor", "dask://x:1", "--cache", "off"), "error[no-effect]: --cache off"),
    ],
)
def test_held_wrong(dlc: Dlc, models: None, words: tuple[str, ...], said: str) -> None:
    ran = dlc("build", *words)
    assert (ran.code, ran.err.splitlines()[0][: len(said)]) == (2, said)
