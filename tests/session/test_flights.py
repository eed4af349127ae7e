"""Builds of one model at once, on one cache."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.session.building import SMALL, command, conv_net, environment, save


@pytest.mark.parametrize("count", [2, 4])
def test_each_step_is_done_by_one_process(count: int, tmp_path: Path) -> None:
    save(conv_net(SMALL), tmp_path / "net.onnx")
    arguments = "build", "net.onnx", "--target", "c{flags=-O0}", "--cache-dir", "cache", "--json", "-o"
    running = [
        subprocess.Popen(
            command(*arguments, f"out{k}"), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
        )
        for k in range(count)
    ]
    documents = [json.loads(process.communicate()[0]) for process in running]
    assert [process.returncode for process in running] == [0] * count
    steps = len(documents[0]["steps"])
    made = [step for document in documents for step in document["steps"] if not step["cached"]]
    assert len(made) == steps
    kernels = documents[0]["memory"]["kernels"] + 1
    assert sum(step["counts"].get("compile runs", 0) for step in made) == kernels
    files = [{p.name: p.read_bytes() for p in (tmp_path / f"out{k}").iterdir()} for k in range(count)]
    assert all(each == files[0] for each in files)
