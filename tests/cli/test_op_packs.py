"""`--ops`, `plugins.ops` and `dlc ops check`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.cli.conftest import Dlc
from tests.conftest import Golden
from tests.frontend_onnx.building import QUICK, model_of
from tests.op_packs.packs import SOUND


def write(text: str = SOUND) -> None:
    Path("packs").mkdir(exist_ok=True)
    Path("packs/demo.ops.yaml").write_text(text)
    node = helper.make_node("Scale", ["x"], ["y"], domain="org.demo", by=3.0)
    model = model_of([node], {"x": np.ones((2, 3), np.float32)}, ["y"], domains=["org.demo"])
    Path("model.onnx").write_bytes(model.SerializeToString())


def test_a_model_is_built_and_verified_with_a_pack(dlc: Dlc) -> None:
    write()
    assert dlc("build", "model.onnx", "-o", "out", "-q").code == 1
    built = ["build", "model.onnx", "-o", "out", "-q", "-t", QUICK, "--ops", "packs"]
    assert dlc(*built).code == 0
    assert dlc("verify", "out", "--model", "model.onnx", "--reference", "numpy", "--ops", "packs").code == 0
    assert "demo_scale" in dlc("show", "model.onnx", "--ops", "packs").out
    assert dlc(*built, "--cache", "require").code == 0


def test_another_pack_is_another_result(dlc: Dlc) -> None:
    write()
    Path("dlc.toml").write_text('[plugins]\nops = ["packs"]\n')
    built = ["build", "model.onnx", "-o", "out", "-q", "-t", QUICK]
    for _ in range(2):
        assert dlc(*built).code == 0
    assert dlc(*built, "--cache", "require").code == 0
    write(SOUND.replace("* factor + shift[c]", "* factor - shift[c]").replace("y: [2.5, 4.0]", "y: [1.5, 4.0]"))
    assert dlc(*built, "--cache", "require").code == 7


def test_ops_are_listed_with_the_others(dlc: Dlc) -> None:
    write()
    Path("dlc.toml").write_text('[plugins]\nops = ["packs/demo.ops.yaml"]\n')
    assert "demo_pool(x) size=\n    y = the sum of blocks of `size` elements.\n" in dlc("list", "ops").out
    assert "org.demo.Scale" in dlc("list", "onnx").out
    assert "ops demo_scale, demo_pool, demo_gate" in dlc("plugins").out


def test_the_page_of_an_op_is_made_of_its_record(dlc: Dlc, golden: Golden) -> None:
    write()
    pages = [dlc("ops", "show", f"demo_{name}", "--ops", "packs") for name in ("scale", "pool", "gate")]
    golden("op_pages.txt", "\n\n".join(page.transcript() for page in pages))
    assert "class     dlc.ops.pool.AveragePool\n" in dlc("ops", "show", "average_pool").out
    assert "did you mean demo_scale?" in dlc("ops", "show", "demo_scales", "--ops", "packs").err


def test_what_differs_is_told(dlc: Dlc) -> None:
    write(SOUND.replace("y: [[3.0, 7.0]]", "y: [[3.0, 8.0]]").replace('x: "dy * sigmoid(b)"', 'x: "dy * b"'))
    ran = dlc("ops", "check", "packs", "--target", "none")
    assert ran.code == 3
    told = [tuple(line.split()[:3]) for line in ran.out.splitlines()[1:-1]]
    assert told == [("demo_pool", "0", "example"), ("demo_gate", "0", "gradient"), ("demo_gate", "0", "declared")]
    assert "3 ops, 13 checks, 3 of them failed" in ran.out


def test_a_pack_that_is_not_sound_ends_the_command(dlc: Dlc) -> None:
    write(SOUND.replace("* factor", "* facter"))
    for line in (["ops", "check", "packs"], ["build", "model.onnx", "--ops", "packs"]):
        ran = dlc(*line)
        assert ran.code == 6
        assert "packs/demo.ops.yaml:8:31" in ran.err


def test_a_missing_library_is_named(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    monkeypatch.setattr("dlc.op_packs.libraries.find_spec", lambda name: None if name == "yaml" else True)  # pyright: ignore
    for line in (["ops", "check", "packs"], ["build", "model.onnx", "--ops", "packs"]):
        ran = dlc(*line)
        assert ran.code == 5
        assert 'pip install "dlc[packs]"' in ran.err
