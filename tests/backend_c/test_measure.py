"""This machine as a file: from what the processor says, and from what probes measured."""

from __future__ import annotations

import platform
from dataclasses import fields, replace
from pathlib import Path

import pytest
from dlc_backend_c import measure
from dlc_backend_c.backend import C
from dlc_backend_c.machine_file import SPEEDS, MachineFile, named, names, read, to_toml
from dlc_backend_c.measure import Machine
from dlc_backend_c.processor import Processor, caches
from dlc_backend_c.profiler import Clock

from dlc.api.profile import Limits, Memory
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.kernel.schedules.machine import Machine as Numbers
from dlc.kernel.text import parse_kernel
from tests.backend_c.test_schedules import matmul

GIGA = 1e9


class Probes:
    """A processor of 2 GHz with one unit for vectors of 32 bytes, which loads one of them in a cycle."""

    def limits(self) -> Limits:
        memories = (("L1", 48 << 10, 64), ("L2", 2 << 20, 24), ("L3", 30 << 20, 16), ("memory", None, 3.3333))
        return Limits(32 * GIGA, tuple(Memory(name, size, 2 * GIGA * rate) for name, size, rate in memories))

    def clock(self) -> Clock:
        return Clock(2 * GIGA, 3.0)


@pytest.mark.parametrize("name", names())
def test_a_description_is_written_as_it_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "again.toml"
    path.write_text(to_toml(named(name)))
    assert read(path) == named(name)


def test_a_description_with_memories_is_written_as_it_is_read(tmp_path: Path) -> None:
    machine = replace(named("cortex-m7"), memories=(("dtcm", 128 << 10), ("axi", 512 << 10)), costs=(("axi", 2.5),))
    path = tmp_path / "again.toml"
    path.write_text(to_toml(machine))
    assert read(path) == machine
    assert 'memories = ["dtcm:128KiB", "axi:512KiB"]' in path.read_text()


def test_a_measured_machine(tmp_path: Path) -> None:
    base = named("x86-64-v3")
    machine = Machine(base, Processor('An "odd" µ-processor', 12, {1: 48 << 10, 2: 2 << 20, 3: 30 << 20}))
    found = machine.measured(Probes())
    path = tmp_path / "here.toml"
    path.write_text(found.text)
    assert read(path) == replace(
        base,
        description='An "odd" µ-processor, as measured',
        l1=48 << 10,
        l2=2 << 20,
        l2_rate=24.0,
        memory_rate=3.33,
        operations=1.0,
        loads=2.0,
        latency=3.0,
    )
    assert found.facts["cores"] == 12
    assert (found.facts["GHz"], found.facts["GFLOP/s"], found.facts["GB/s from L3"]) == (2.0, 32.0, 32.0)
    numbers = C(machine=str(path)).processor(), C(cpu="x86-64-v3").processor()
    assert "memory_rate=3.33" in numbers[0] and "memory_rate" not in numbers[1]


def test_what_nobody_tells_is_as_in_the_description() -> None:
    base = named("x86-64-v4")
    machine = Machine(base, Processor("other", 1, {}))
    assert (machine.l1, machine.l2) == (base.l1, base.l2)
    assert "1MiB" in machine.measured(Probes()).text


def test_caches_are_those_that_hold_data(tmp_path: Path) -> None:
    told = [("Data", "1", "48K"), ("Instruction", "1", "32K"), ("Unified", "2", "2048K"), ("Unified", "3", "many")]
    for k, values in enumerate(told):
        index = tmp_path / f"index{k}"
        index.mkdir()
        for name, value in zip(("type", "level", "size"), values, strict=True):
            (index / name).write_text(f"{value}\n")
    (tmp_path / "index9").mkdir()
    assert caches(tmp_path) == {1: 48 << 10, 2: 2 << 20}
    assert caches(tmp_path / "none") == {}


def test_speeds_are_those_of_estimates() -> None:
    defaults = {f.name: f.default for f in fields(Numbers)}
    assert {name: getattr(MachineFile(), name) for name in SPEEDS} == {name: defaults[name] for name in SPEEDS}


@pytest.mark.parametrize(("rate", "chosen"), [(6.0, "tiles"), (0.05, "loops")])
def test_speeds_change_what_is_chosen(rate: float, chosen: str, tmp_path: Path) -> None:
    """A panel that is copied is written and read again."""
    path = tmp_path / "here.toml"
    path.write_text(to_toml(replace(named("x86-64-v3"), l2=1 << 20, memory_rate=rate)))
    backend = C(machine=str(path))
    (schedule,) = backend.schedules([parse_kernel(matmul(6, 64, 16, True))])
    assert schedule.text.startswith(f"{chosen}{{")
    # Winograd's estimate has them too.
    rates = {key: value for key, value in backend.settings()["winograd"].items() if "rate" in key}
    assert rates == ({} if rate == 6.0 else {"memory-rate": str(rate)})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (C(cpu="cortex-m4"), "cannot be measured as Arm Cortex-M4 with single precision: it is "),
        (C(cpu="x86-64-v4"), "cannot be measured as x86-64 with AVX-512, as servers since 2017: it lacks avx2, "),
    ],
)
def test_another_machine_is_not_measured(options: C, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(measure, "missing", lambda features: tuple(sorted(features)))  # pyright: ignore
    with pytest.raises(DlcError, match=reason) as caught:
        options.measured_machine()
    assert caught.value.exit_code == ExitCode.USAGE


def test_there_is_no_compiler() -> None:
    with pytest.raises(DlcError, match="the C compiler absent-cc is not installed") as caught:
        C(cc="absent-cc").measured_machine()
    assert caught.value.exit_code == ExitCode.TOOL


def test_this_machine(tmp_path: Path) -> None:
    found = C().measured_machine()
    path = tmp_path / "here.toml"
    path.write_text(found.text)
    machine = read(path)
    # Whatever else runs here: within a factor of what processors of the last twenty years do.
    assert 0.1 < float(found.facts["GHz"]) < 10
    assert 0.1 < machine.operations < 8
    assert 0.1 < machine.loads < 8
    assert 1 < machine.latency < 20
    assert 0.1 < machine.memory_rate < machine.l2_rate * 2 < 1000
