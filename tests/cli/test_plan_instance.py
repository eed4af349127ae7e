"""`dlc plan FILE.csv`: offsets for bare buffers, limits, and files that are none."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cli.instance import read
from dlc.placement import Buffer, check_placement
from tests.cli.conftest import Dlc
from tests.conftest import Golden

GAP = "id,lower,upper,size\n" + "".join(
    f"b{k},{low},{high},{size}\n"
    for k, (low, high, size) in enumerate(
        ((6, 7, 3), (4, 7, 3), (1, 3, 2), (2, 6, 2), (2, 4, 2), (3, 6, 1), (1, 2, 3), (0, 2, 1))
    )
)
"""At most 6 bytes are live at once, and 7 are needed."""

BAD = {
    "empty": "",
    "no-columns": "name,begin,end\n",
    "unknown-column": "id,lower,upper,size,colour\nb,0,1,2,red\n",
    "twice": "id,lower,upper,size,size\nb,0,1,2,2\n",
    "gaps": "id,lower,upper,size,gaps\nb,0,9,2,3-4\n",
    "negative": "id,lower,upper,size\na,0,1,2\nb,-1,1,2\nc,0,1,-2\n",
    "not-numbers": "id,lower,upper,size\na,0,1,nan\nb,0,1,1e9\nc,0,1,inf\nd,,1,2\ne,0,1,0x10\nf,0,1,٣\ng,0,1,2.5\n",
    "huge": f"id,lower,upper,size\na,0,1,{1 << 61}\nb,0,1,{'9' * 5000}\n",
    "backwards": "id,lower,upper,size\na,4,4,1\nb,9,4,1\n",
    "same-id": "id,lower,upper,size\na,0,1,2\n\na,1,2,2\n",
    "short": "id,lower,upper,size\na,0,1\nb,0,1,2,3\n,0,1,2\n",
    "quote": 'id,lower,upper,size\n"a,0,1,2\n',
    "zero": "id,lower,upper,size\n\0,0,1,2\x00\n\x1b[31mred,9,1,2\n",
    "alignment": "id,lower,upper,size,alignment\na,0,1,2,0\nb,0,1,2,99999999999\n",
}


def test_files_that_are_no_instances(golden: Golden) -> None:
    said: list[str] = []
    for name, text in BAD.items():
        Path(f"{name}.csv").write_text(text, encoding="utf-8")
        with pytest.raises(DlcError) as caught:
            read(Path(f"{name}.csv"))
        assert caught.value.exit_code == ExitCode.USAGE
        (found,) = caught.value.diagnostics
        said += [found.message, *(f"  {note}" for note in found.notes)]
    golden("instances.txt", "\n".join(said) + "\n")


def test_a_file_that_is_no_instance(dlc: Dlc) -> None:
    Path("bad.csv").write_text(BAD["backwards"])
    run = dlc("plan", "bad.csv", "-o", "out.csv")
    assert (run.code, run.err.partition(":")[0]) == (ExitCode.USAGE, "error[bad-instance]")
    assert not Path("out.csv").exists()


def test_files_that_cannot_be_read(dlc: Dlc) -> None:
    Path("binary.csv").write_bytes(b"id,lower,upper,size\n\xff\xfe")
    assert "byte 20 is no UTF-8 text" in dlc("plan", "binary.csv").err
    Path("directory.csv").mkdir()
    assert "cannot be read: Is a directory" in dlc("plan", "directory.csv").err
    assert "cannot be read: No such file" in dlc("plan", "absent.csv").err


def test_the_least_arena_is_found_and_written(dlc: Dlc) -> None:
    Path("gap.csv").write_text(GAP)
    run = dlc("plan", "gap.csv", "--strategy", "exact", "-o", "out.csv", "--html", "out.html")
    found = re.sub(r"\d+\.\d\d s", "N s", run.out)
    assert found == (
        "8 buffers: arena 7 B, lower bound 6 B at step 1, overhead 16.67 %, optimal\n"
        "by first-fit by size, N s\noutput: out.csv\nhtml: out.html\n"
    )
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    buffers = [Buffer(k, int(r["size"]), int(r["lower"]), int(r["upper"])) for k, r in enumerate(rows)]
    assert check_placement(buffers, [int(r["offset"]) for r in rows], 1, 7) == []
    assert "b3" in Path("out.html").read_text()
    again = dlc("plan", "out.csv", "--strategy", "exact", "--json").document
    assert (again["arena_bytes"], again["floor_bytes"], again["optimal"]) == (7, 7, True)
    assert again["offsets"] == {r["id"]: int(r["offset"]) for r in rows}


def test_strategies_of_a_file(dlc: Dlc) -> None:
    Path("gap.csv").write_text(GAP)
    run = dlc("plan", "gap.csv", "--compare", "none,exact", "--svg", "out.svg")
    assert re.sub(r"\d\.\d{3}", "N", run.out) == (
        "strategy  arena  lower bound                gap  seconds  method\n"
        "none       17 B          6 B           183.33 %    N  no reuse\n"
        "exact       7 B          6 B  16.67 % (optimal)    N  first-fit by size\n"
        "svg: out.svg\n"
    )
    assert Path("out.svg").read_text(encoding="utf-8").count("<svg") == 3
    assert "error[no-effect]: --output" in dlc("plan", "gap.csv", "--compare", "none", "-o", "out.csv").err


def test_a_limit_says_what_is_proven(dlc: Dlc) -> None:
    Path("gap.csv").write_text(GAP)
    assert dlc("plan", "gap.csv", "--limit", "7", "--strategy", "exact").code == ExitCode.OK
    proven = dlc("plan", "gap.csv", "--limit", "6", "--strategy", "exact")
    assert proven.code == ExitCode.LIMIT
    assert "note  no offsets with these lifetimes take less, so the limit cannot be met" in proven.err
    open_ = dlc("plan", "gap.csv", "--limit", "6", "--strategy", "greedy", "-o", "out.csv")
    assert open_.code == ExitCode.LIMIT
    said = "every arena below 6 bytes is proven impossible with these lifetimes, so the limit may be possible"
    assert f"note  {said}: it is not disproved" in open_.err
    assert not Path("out.csv").exists()


def test_alignment_of_all_is_the_least_that_suits_each(dlc: Dlc) -> None:
    Path("a.csv").write_text("id,lower,upper,size,alignment\na,0,2,3,4\nb,1,3,1,6\n")
    found = dlc("plan", "a.csv", "--json").document
    assert all(offset % 12 == 0 for offset in found["offsets"].values())
    assert (found["arena_bytes"], found["bound_bytes"]) == (24, 24)
    assert dlc("plan", "a.csv", "--align", "8", "--json").document["arena_bytes"] == 48


def test_fixed_offsets_are_kept(dlc: Dlc) -> None:
    Path("a.csv").write_text("id,lower,upper,size,fixed\na,0,2,4,8\nb,0,2,4,\nc,1,2,4,\nd,2,4,8,0\n")
    found = dlc("plan", "a.csv", "-o", "out.csv", "--json").document
    assert (found["offsets"]["a"], found["offsets"]["d"], found["arena_bytes"]) == (8, 0, 12)
    assert "strategy=exact knows no fixed offsets" in dlc("plan", "a.csv", "--strategy", "exact").err
    assert "a is fixed at 8, no multiple of 16" in dlc("plan", "a.csv", "--align", "16").err
    Path("b.csv").write_text("id,lower,upper,size,fixed\na,0,2,4,8\nb,0,2,4,\nc,1,3,4,10\n")
    run = dlc("plan", "b.csv")
    assert (run.code, run.err.splitlines()[0]) == (
        ExitCode.USAGE,
        "error[bad-instance]: fixed offsets: a and c share bytes [10, 12) at step 1",
    )


def test_flags_that_mean_nothing(dlc: Dlc) -> None:
    Path("gap.csv").write_text(GAP)
    run = dlc("plan", "gap.csv", "--train", "loss=mse", "--dim", "batch=1")
    assert (run.code, "error[no-effect]: --dim, --train" in run.err) == (ExitCode.USAGE, True)
    for flags, said in (
        (("--strategy", "best"), 'unknown value "best"'),
        (("--align", "0"), "align"),
    ):
        run = dlc("plan", "gap.csv", *flags)
        assert (run.code, said in run.err) == (ExitCode.USAGE, True), run.err


def test_a_model_takes_the_same_flags(dlc: Dlc) -> None:
    text = 'graph(%0 "x": f32[8,8]) {\n  %1 = exp(%0)\n  %2 = transpose(%1) perm=(1,0)\n  return %2 "y"\n}\n'
    Path("m.dlc").write_text(text)
    found = dlc("plan", "m.dlc", "--strategy", "exact", "--align", "32", "-q", "--json")
    assert found.code == ExitCode.OK, found.err
    assert "plan-memory{strategy=exact align=32 " in found.document["pipeline"]
    refused = dlc("plan", "m.dlc", "-o", "out.csv")
    assert "error[no-effect]: --output writes a CSV file" in refused.err
