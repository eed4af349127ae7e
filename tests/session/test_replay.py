"""A build is found by its request only while everything that decided about it is as it was."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.session.building import SMALL, build, command, contents, conv_net, dlc, environment, save

SOURCES = ("-t", "c{lib=none}")


ONNX: Any = onnx
"""Its functions are typed in part only."""


def hits(document: dict[str, Any]) -> list[bool]:
    return [bool(step["cached"]) for step in document["steps"]]


def kept(cache: Path) -> dict[str, bytes]:
    """The files of a cache, without those that SQLite makes to read a database."""
    return {name: data for name, data in contents(cache).items() if not name.endswith(("-shm", "-wal"))}


def test_changed_external_data_is_noticed(tmp_path: Path) -> None:
    for seed in (0, 1):
        model = conv_net(SMALL, seed=seed)
        (tmp_path / f"s{seed}").mkdir()
        ONNX.save_model(
            model,
            str(tmp_path / f"s{seed}" / "net.onnx"),
            save_as_external_data=True,
            location="weights.data",
            size_threshold=64,
        )
    shutil.copytree(tmp_path / "s0", tmp_path / "m")
    arguments = ("m/net.onnx", *SOURCES, "-o", "out", "--cache-dir", "cache")
    build(*arguments, cwd=tmp_path)
    first = contents(tmp_path / "out")
    assert all(hits(build(*arguments, cwd=tmp_path)))
    shutil.copy(tmp_path / "s1" / "weights.data", tmp_path / "m" / "weights.data")
    assert not all(hits(build(*arguments, cwd=tmp_path)))
    assert contents(tmp_path / "out")["net_weights.bin"] != first["net_weights.bin"]
    (tmp_path / "m" / "weights.data").unlink()
    gone = dlc("build", *arguments, cwd=tmp_path)
    assert gone.returncode == 1 and "weights.data" in gone.stderr


def test_another_compiler_is_noticed(tmp_path: Path) -> None:
    save(conv_net(()), tmp_path / "net.onnx")
    (tmp_path / "bin").mkdir()
    compiler = tmp_path / "bin" / "gcc"
    real = shutil.which("gcc")
    compiler.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    env = environment(PATH=f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    arguments = ("net.onnx", "-o", "out", "--cache-dir", "cache")
    build(*arguments, cwd=tmp_path, env=env)
    assert all(hits(build(*arguments, cwd=tmp_path, env=env)))
    compiler.write_text(f'#!/bin/sh\n# another version\nexec {real} "$@"\n')
    again = hits(build(*arguments, cwd=tmp_path, env=env))
    assert all(again[:-2]) and not any(again[-2:])  # emit and build depend on it, the passes do not
    compiler.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    assert dlc("build", *arguments, cwd=tmp_path, env=env).returncode == 5


def test_another_name_of_a_compiler_is_no_other_compiler(tmp_path: Path) -> None:
    save(conv_net(()), tmp_path / "net.onnx")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "acme-cc-12").symlink_to(shutil.which("gcc") or "")
    env = environment(PATH=f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    arguments = ("net.onnx", "-o", "out", "--cache-dir", "cache")
    build(*arguments, "-t", "c{cc=gcc}", cwd=tmp_path, env=env)
    first = contents(tmp_path / "out")
    assert all(hits(build(*arguments, "-t", "c{cc=acme-cc-12}", cwd=tmp_path, env=env)))
    assert contents(tmp_path / "out") == first


def is_quick(*arguments: str, cwd: Path, env: Mapping[str, str]) -> bool:
    """Whether a build is found by its request: without importing any pass."""
    line = [sys.executable, "-X", "importtime", *command("build", *arguments)[1:]]
    done = subprocess.run(line, cwd=cwd, env=env, capture_output=True, text=True, check=True)
    return "dlc.passes" not in done.stderr


def test_only_libraries_that_steps_used_are_part_of_the_request(tmp_path: Path) -> None:
    """Another environment has other packages: they are no reason for the long way, which a cache that is only read
    takes at every command."""
    save(conv_net(()), tmp_path / "net.onnx")
    arguments = ("net.onnx", *SOURCES, "-o", "out", "--cache-dir", "cache", "-q")
    build(*arguments, cwd=tmp_path, env=environment())
    for name, quick in (("other_package-1.0", True), ("numpy-0.1", False)):
        place = tmp_path / name
        (place / f"{name}.dist-info").mkdir(parents=True)
        found = environment()
        env = {**found, "PYTHONPATH": f"{place}{os.pathsep}{found['PYTHONPATH']}"}
        assert is_quick(*arguments, "--cache", "ro", cwd=tmp_path, env=env) == quick, name


def test_configuration_and_flags_are_part_of_the_request(tmp_path: Path) -> None:
    save(conv_net(()), tmp_path / "net.onnx")
    arguments = ("net.onnx", *SOURCES, "-o", "out", "--cache-dir", "cache")
    build(*arguments, cwd=tmp_path)
    (tmp_path / "dlc.toml").write_text('[target.small]\nbackend = "c{lib=none cpu=generic}"\n')
    build("net.onnx", "-t", "small", *arguments[3:], cwd=tmp_path)
    assert all(hits(build("net.onnx", "-t", "small", *arguments[3:], cwd=tmp_path)))
    assert b"cpu=generic" in contents(tmp_path / "out")["manifest.json"]
    (tmp_path / "dlc.toml").write_text('[target.small]\nbackend = "c{lib=none cpu=x86-64-v3}"\n')
    build("net.onnx", "-t", "small", *arguments[3:], cwd=tmp_path)
    assert b"cpu=x86-64-v3" in contents(tmp_path / "out")["manifest.json"]
    wrong = dlc("build", "net.onnx", "-t", "smal", *arguments[3:], cwd=tmp_path)
    assert wrong.returncode == 2 and "smal" in wrong.stderr


@pytest.mark.parametrize("mode", ["ro", "require"])
def test_a_cache_that_is_only_read_is_not_written(mode: str, tmp_path: Path) -> None:
    save(conv_net(()), tmp_path / "net.onnx")
    arguments = ("net.onnx", *SOURCES, "-o", "out", "--cache-dir", "cache")
    build(*arguments, cwd=tmp_path)
    before = kept(tmp_path / "cache")
    assert all(hits(build(*arguments, "--cache", mode, cwd=tmp_path)))
    assert kept(tmp_path / "cache") == before
    if mode == "ro":
        save(conv_net((), seed=8), tmp_path / "net.onnx")
        assert not all(hits(build(*arguments, "--cache", mode, cwd=tmp_path)))
        assert kept(tmp_path / "cache") == before


def test_many_processes_build_at_once(tmp_path: Path) -> None:
    """Four of them, two models, one cache, one output directory for each model."""
    for seed in (0, 1):
        save(conv_net(SMALL, seed=seed), tmp_path / f"m{seed}" / "net.onnx")
        build(f"m{seed}/net.onnx", "-o", f"expected{seed}", "--cache", "off", cwd=tmp_path)
    running = [
        subprocess.Popen(
            command("build", f"m{k % 2}/net.onnx", "-o", f"out{k % 2}", "--cache-dir", "cache"),
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for k in range(4)
    ]
    for process in running:
        message = process.communicate()[1]
        assert process.returncode == 0 and "warning" not in message, message
    for seed in (0, 1):
        assert contents(tmp_path / f"out{seed}") == contents(tmp_path / f"expected{seed}")
    assert dlc("cache", "verify", "--cache-dir", "cache", cwd=tmp_path).returncode == 0
