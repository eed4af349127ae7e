"""Results are of who has the key: commands take a text from a variable, Python from an argument."""

from pathlib import Path

import pytest

import dlc
from tests.session.building import SMALL, build, conv_net, environment, save

SECRET = "what the jobs of a CI know"


def test_python_shares_the_results_of_commands_that_have_the_text(tmp_path: Path) -> None:
    model = save(conv_net(SMALL), tmp_path / "net.onnx")
    target = "c{flags=-O0}"
    arguments = "net.onnx", "--target", target, "--cache-dir", "cache", "-o", "out"
    build(*arguments, cwd=tmp_path, env=environment(DLC_CACHE_KEY=SECRET))
    how = {"cache": "require", "cache_dir": tmp_path / "cache"}
    dlc.build(model, target, cache_key=SECRET, **how)  # type: ignore[arg-type]
    for key in ("", SECRET + "?"):
        with pytest.raises(dlc.DlcError) as problem:
            dlc.build(model, target, cache_key=key, **how)  # type: ignore[arg-type]
        assert problem.value.diagnostics[0].code == "cache-miss"
