"""`dlc plan` of several memories: what lies in each, what is accessed, and what copies between them are good for."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Dlc

WAITS = """\
graph(%0 "x": f32[64,64]) {
  %1 = exp(%0)
  %2 = transpose(%1) perm=(1,0)
  %3 = softmax(%2) axis=1
  %4 = transpose(%3) perm=(1,0)
  %5 = softmax(%4) axis=1
  %6 = add(%5, %1)
  return %6 "y"
}
"""
TARGET = ("-t", "c{cpu=cortex-m7 memory=dtcm:32KiB,sdram:1MiB}", "-p", "lower,order,plan-memory")


@pytest.fixture(autouse=True)
def model() -> None:
    Path("waits.dlc").write_text(WAITS)


def test_the_table(dlc: Dlc) -> None:
    ran = dlc("plan", "waits.dlc", "-q", *TARGET)
    assert ran.code == 0
    *table, copies = ran.out.splitlines()[2:]
    assert copies == "1 copy of 16,384 B between memories: accesses cost 327,680 → 311,296, at least 311,296"
    assert [line.split() for line in table] == [
        ["memory", "bytes", "accessed", "with", "copies=no"],
        ["dtcm", "32,768", "B", "180,224", "B", "131,072", "B"],
        ["sdram", "16,384", "B", "32,768", "B", "49,152", "B"],
    ]


def test_the_table_without_copies(dlc: Dlc) -> None:
    ran = dlc("plan", "waits.dlc", "-q", *TARGET, "--set", "plan-memory.copies=no")
    assert [line.split()[-2:] for line in ran.out.splitlines()[2:]] == [
        ["bytes", "accessed"],
        ["131,072", "B"],
        ["49,152", "B"],
    ]


def test_the_document(dlc: Dlc) -> None:
    ran = dlc("plan", "waits.dlc", "--json", *TARGET, "--set", "plan-memory.costs=sdram:10")
    (function,) = json.loads(ran.out)["functions"]
    assert [m["accessed_bytes"] for m in function["memories"]] == [180224, 32768]
    assert [m["accessed_bytes_without_copies"] for m in function["memories"]] == [131072, 49152]
    assert (function["copies"], function["copied_bytes"]) == (1, 16384)
    assert function["access_cost"] == 180224 + 10 * 32768 < function["access_cost_without_copies"]
    assert function["access_cost_bound"] <= function["access_cost"]
