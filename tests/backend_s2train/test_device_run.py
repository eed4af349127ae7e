"""`dlc run` with --entry, --until, --trace and --dump."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C

import dlc
from dlc.api.device_run import DeviceRun
from dlc.base.diagnostics import ExitCode
from dlc.cli.frame import run
from tests.backend_s2train.device_models import trained_program
from tests.backend_s2train.replay import differences, lines


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    """A training program with a convolution, a norm, a pool and two linear layers."""
    return trained_program(tmp_path_factory.mktemp("program"), shared)


@pytest.fixture(scope="module")
def dump(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All instructions of a step."""
    made = tmp_path_factory.mktemp("dump") / "step"
    assert run(["run", str(program), "--entry", "step", "--dump", str(made), "-q"]) == 0
    return made


def test_every_instruction_of_a_dump_gives_the_same_bits_in_the_simulator_of_the_pages(
    program: Path, dump: Path
) -> None:
    index = json.loads((dump / "index.json").read_text())
    assert len(index["instructions"]) >= 9
    assert [*differences(dump, program.read_bytes())] == []


def test_a_changed_bit_of_a_dump_is_found(program: Path, dump: Path, tmp_path: Path) -> None:
    index = json.loads((dump / "index.json").read_text())
    operand = next(o for o in index["instructions"][0]["operands"] if o["slot"] == "dst0")
    for folder in dump.iterdir():
        if folder.is_dir():
            (tmp_path / folder.name).symlink_to(folder)
    file = tmp_path / "other.hex"
    text = (dump / operand["after"]["hex"]).read_text()
    file.write_text(("0001" if text[:4] != "0001" else "0002") + text[4:])
    place = json.dumps(operand["after"]["hex"])
    (tmp_path / "index.json").write_text(json.dumps(index).replace(place, '"other.hex"'))
    (found,) = differences(tmp_path, program.read_bytes())
    assert re.match(r"instruction \d+: dst0 at byte [01] ", found)


def test_both_files_of_a_tensor_hold_the_same(dump: Path) -> None:
    index = json.loads((dump / "index.json").read_text())
    kinds: set[str] = set()
    for operand in (o for i in index["instructions"] for o in i["operands"]):
        for files in (operand[k] for k in ("before", "after") if k in operand):
            values, data = np.load(dump / files["npy"]), lines(dump / files["hex"])
            kinds.add(operand["element"])
            assert list(values.shape) == operand["shape"] and len(data) == operand["bytes"]
            if operand["element"] == "bit":
                assert np.packbits(values.reshape(-1), bitorder="little").tobytes() == data
            elif operand["element"] != "ptr2":
                assert values.tobytes() == data
    assert kinds >= {"fp16", "fp32", "bit", "ptr2", "int32"}


def test_registers_are_pairs_of_address_and_value(dump: Path) -> None:
    index = json.loads((dump / "index.json").read_text())
    for instruction in index["instructions"]:
        words = [int(word, 16) for word in (dump / instruction["registers"]).read_text().split()]
        pairs = dict(zip(words[::2], words[1::2], strict=True))
        operation = b"".join(pairs[0xE0000000 + 4 * k].to_bytes(4, "little") for k in range(8))
        assert operation.hex() == instruction["word"]
        assert pairs[0x4080001C + 0x10000] == instruction["setup"]["csr"]
        assert pairs[0x47F00010 + 0x10000] == instruction["setup"]["norm_config"]


def test_a_trace_has_every_instruction_and_units_that_take_turns(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert run(["run", str(program), "--entry", "step", "--trace", str(path), "-q"]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(names.values()) == ["instruction", "configure", "load", "compute", "store"]
    spans = [e for e in events if e["ph"] == "X"]
    whole = [e for e in spans if names[e["tid"]] == "instruction"]
    assert all(a["ts"] + a["dur"] == b["ts"] for a, b in pairwise(whole))
    by_name = {e["name"]: e for e in whole}
    for e in spans:
        around = by_name[e["name"]]
        assert around["ts"] <= e["ts"] <= e["ts"] + e["dur"] <= around["ts"] + around["dur"] + 1e-6


def test_until_gives_what_the_last_instruction_wrote(
    program: Path, dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = json.loads((dump / "index.json").read_text())
    second = index["instructions"][1]
    line = ["run", str(program), "--entry", "step", "-q", "--dump", str(tmp_path / "d")]
    assert run([*line, "--until", str(second["number"]), "-o", str(tmp_path / "o.npz")]) == 0
    held = np.load(tmp_path / "o.npz")
    for operand in second["operands"]:
        if "after" in operand:
            golden = np.load(dump / operand["after"]["npy"])
            assert np.array_equal(held[operand["slot"]].reshape(golden.shape), golden.astype(np.float32))
    assert len(json.loads((tmp_path / "d" / "index.json").read_text())["instructions"]) == 2
    capsys.readouterr()
    assert run(["run", str(program), "--entry", "step", "--until", "0"]) == ExitCode.USAGE
    assert "--until 0: entry step has the instructions" in capsys.readouterr().err


def test_what_has_no_effect_or_no_meaning_is_refused(
    program: Path, dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*line: str) -> str:
        assert run(["run", *line, "-q"]) == ExitCode.USAGE
        return capsys.readouterr().err

    assert "--entry stop: the program has no such entry" in refused(str(program), "--entry", "stop")
    assert "there is something already" in refused(str(program), "--dump", str(dump))
    assert "--entry and --time do not go together" in refused(str(program), "--entry", "step", "--time")
    with pytest.raises(dlc.DlcError, match="--trace: a program of c has no instructions of a device"):
        C().load_device_run(dlc.Source(program), DeviceRun(trace=tmp_path / "t.json"))
