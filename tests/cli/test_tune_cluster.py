"""Kernels tuned by workers of a Dask cluster, each on itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlc.api.tuning import read_tuning
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.driver.executors import cluster as cluster_module
from dlc.kernel.text import parse_kernel
from dlc.tune import messages
from dlc.tune.executors import Lane, opened
from tests.cli.conftest import Dlc

distributed: Any = pytest.importorskip("distributed")
TEXT = "kernel(f32[12,16], f32[16,32]) -> (f32[12,32]) {\n  k<16: r0[i,j] += p0[i,k]*p1[k,j]\n}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    settings = {"dashboard_address": None, "processes": False, "protocol": "tcp"}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **settings) as found:
        yield found


def address(cluster: Any) -> str:
    return str(cluster.scheduler_address).replace("tcp://", "dask://")


def no_lane() -> Lane:
    raise AssertionError("nothing runs here")


def test_one_worker_of_a_computer_measures(cluster: Any) -> None:
    lanes = opened(address(cluster), no_lane)
    try:
        assert len(lanes.all) == 1
        assert lanes.all[0].remote
        assert lanes.notes == ("1 more workers on the same computers are not used: they would disturb measurements",)
    finally:
        lanes.close()


def test_records_are_like_those_of_this_process(dlc: Dlc, cluster: Any) -> None:
    graph = 'graph(%0 "a": f32[12,16], %1 "b": f32[16,32]) {\n  %2 = @k0(%0, %1) | "product"\n  return %2 "c"\n}\n'
    Path("product.dlc").write_text(f"{TEXT.replace('kernel(', 'kernel @k0(')}\n{graph}")
    line = ("tune", "product.dlc", "--budget", "1", "--candidates", "2")
    ran = dlc(*line, "--executor", address(cluster), "-o", "far.toml", "-q")
    assert ran.code == 0, ran.err
    assert "1 of 1 kernels: 1 measured" in ran.out
    (far,) = read_tuning(Path("far.toml")).records
    dlc(*line, "-o", "near.toml", "-q", "--cache", "refresh")
    (near,) = read_tuning(Path("near.toml")).records
    assert far.kernel == near.kernel == parse_kernel(TEXT).digest
    assert (far.fingerprint, far.nodes, far.default) == (near.fingerprint, near.nodes, near.default)


def test_what_goes_wrong_there_is_told_here(dlc: Dlc, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise MemoryError(f"no room for {messages.request_of(text).kernel.digest[:4]}")

    graph = 'graph(%0 "a": f32[12,16], %1 "b": f32[16,32]) {\n  %2 = @k0(%0, %1)\n  return %2 "c"\n}\n'
    Path("product.dlc").write_text(f"{TEXT.replace('kernel(', 'kernel @k0(')}\n{graph}")
    monkeypatch.setattr(messages, "tune_text", broken)
    ran = dlc("tune", "product.dlc", "-q", "--executor", address(cluster))
    assert "MemoryError: no room for" in ran.out
    assert "0 of 1 kernels" in ran.out


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "TIMEOUT", "1s")
    with pytest.raises(DlcError, match="no scheduler answers") as raised:
        opened("dask://127.0.0.1:9", no_lane)
    assert raised.value.exit_code == ExitCode.TOOL


def test_there_are_no_workers() -> None:
    settings = {"dashboard_address": None, "processes": False, "protocol": "tcp"}
    with (
        distributed.LocalCluster(n_workers=0, **settings) as empty,
        pytest.raises(DlcError, match="the scheduler has no workers"),
    ):
        opened(address(empty), no_lane)
