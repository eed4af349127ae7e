"""What is wrong with a command line: the message, the remedy, the exit code."""

from pathlib import Path

import pytest
from onnx import helper

from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden

MISTAKES = {
    "unknown_command": ["buidl"],
    "no_model": ["build"],
    "unknown_flag": ["build", "small.onnx", "--pipelin", "expand"],
    "flag_without_value": ["build", "small.onnx", "-o"],
    "bad_cache_mode": ["build", "small.onnx", "--cache", "on"],
    "missing_file": ["build", "absent.onnx"],
    "directory_as_model": ["build", "folder"],
    "unknown_format": ["build", "notes.txt"],
    "unknown_target": ["build", "small.onnx", "-t", "d"],
    "unknown_option_of_target": ["build", "small.onnx", "-t", "c{cpus=native}"],
    "bad_value_of_target": ["build", "small.onnx", "-t", "c{cpu=fast}"],
    "unknown_frontend": ["build", "small.onnx", "--frontend", "onx"],
    "unknown_pass": ["build", "small.onnx", "-p", "expand,simplfy"],
    "wrong_order": ["build", "small.onnx", "-p", "lower,expand"],
    "bad_pipeline_text": ["build", "small.onnx", "-p", "expand{keep="],
    "unknown_setting": ["build", "small.onnx", "--set", "fuse.max-nest=4"],
    "bad_setting": ["build", "small.onnx", "--set", "fuse.max-nests"],
    "setting_without_effect": ["build", "small.onnx", "--set", "fsue.max-nests=4"],
    "without_without_effect": ["build", "small.onnx", "--without", "layuot"],
    "bad_dim": ["build", "small.onnx", "--dim", "batch"],
    "bad_input": ["build", "small.onnx", "--input", "x"],
    "stop_after_nothing": ["build", "small.onnx", "--stop-after", "fold"],
    "stopped_report": ["build", "small.onnx", "--stop-after", "lower", "--html"],
    "explain_nothing": ["build", "small.onnx", "--explain", "fus"],
    "dump_nothing": ["build", "small.onnx", "--dump-ir", "fus"],
    "run_no_program": ["run", "folder"],
    "run_unreadable_array": ["run", "OUT", "notes.npy"],
    "run_unknown_input": ["run", "OUT", "z=notes.npy"],
    "run_flag_for_a_build": ["run", "OUT", "--set", "fuse.max-nests=4"],
    "run_calls_untimed": ["run", "OUT", "--calls", "5"],
    "run_output_of_another_format": ["run", "OUT", "-o", "result.npy"],
    "device_as_model": ["build", "/dev/null"],
    "bench_for_no_time": ["bench", "small.onnx", "--rounds", "0"],
    "bench_rounds_and_seconds": ["bench", "small.onnx", "--rounds", "5", "--seconds", "1"],
    "bench_unknown_runtime": ["bench", "small.onnx", "--against", "onxruntime"],
    "bench_steps_of_a_program": ["bench", "OUT", "--kernels"],
    "bench_steps_of_another_target": ["bench", "small.onnx", "-t", "s2train", "--kernels"],
    "verify_with_two_references": ["verify", "OUT", "-e", "notes.npy", "--reference", "numpy"],
    "verify_without_reference": ["verify", "OUT"],
    "verify_unknown_reference": ["verify", "small.onnx", "--reference", "torch"],
    "show_nothing": ["show", "nothing-like-this"],
    "show_unknown_digest": ["show", "0123456789"],
    "show_text_of_a_program": ["show", "OUT", "--text"],
    "list_nothing": ["list", "pases"],
    "opt_without_pipeline": ["opt", "plain.dlc"],
    "opt_bad_text": ["opt", "notes.txt", "-p", "simplify"],
    "trim_bad_size": ["cache", "trim", "10foo"],
    "clear_unconfirmed": ["cache", "clear"],
    "unknown_part_of_cache": ["cache", "stat"],
}

UNREADABLE = {"unknown_format", "opt_bad_text"}
"""What is wrong there is the file, not the command line."""


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(dlc: Dlc, golden: Golden, program: Path, name: str) -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("OUT").symlink_to(program / "out")
    Path("folder").mkdir()
    Path("notes.txt").write_text("nothing of interest\n")
    Path("notes.npy").write_text("nothing of interest\n")
    Path("plain.dlc").write_text('graph(%0 "x": f32[2]) {\n  %1 = relu(%0)\n  return %1 "y"\n}\n')
    before = {str(p) for p in Path().rglob("*")}
    ran = dlc(*MISTAKES[name])
    golden(f"errors/{name}.txt", ran.transcript())
    assert ran.code == (ExitCode.MODEL if name in UNREADABLE else ExitCode.USAGE)
    assert ran.out == ""
    assert {str(p) for p in Path().rglob("*")} == before


def test_a_mistake_with_json_is_a_document(dlc: Dlc) -> None:
    found = dlc("buidl", "--json").document
    assert found["schema"] == "dlc.error/1"
    assert found["exit_code"] == ExitCode.USAGE
    assert found["diagnostics"][0]["help"] == "did you mean build?"


def test_documents_name_all_nodes_and_open_dimensions(dlc: Dlc) -> None:
    model = small("batch")
    for k in range(7):
        model.graph.node.append(helper.make_node("Mine", ["x"], [f"m{k}"], f"mine{k}", domain="org.example"))
        model.graph.output.append(helper.make_empty_tensor_value_info(f"m{k}"))
    Path("open.onnx").write_bytes(model.SerializeToString())
    ran = dlc("build", "open.onnx", "--json")
    found = {d["code"]: d for d in ran.document["diagnostics"]}
    assert (ran.code, sorted(found)) == (ExitCode.MODEL, ["unbound-dimension", "unsupported-op"])
    assert found["unsupported-op"]["nodes"] == [f"mine{k}" for k in range(7)]
    assert "org.example" in found["unsupported-op"]["message"]
