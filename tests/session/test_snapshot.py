"""A build is made from its files as they were when it opened them, and keeps nothing once one of them changed.

`benchmarks/snapshot_fuzz.py` does the same at every moment of builds of every kind of input.
"""

import mmap
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cache import Cache, MemoryStore
from dlc.driver.program import Compiler
from dlc.driver.session import Session
from dlc.files import inputs
from dlc.files.inputs import InputFile, Inputs
from dlc.plugins.discovery import load_registry

SHAPE = (64, 96)


def model(seed: int, external: bool) -> tuple[bytes, bytes]:
    """(model, external data) of x @ w."""
    value = np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)
    w = numpy_helper.from_array(value, "w")
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SHAPE[0]])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, SHAPE[1]])],
            [w],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    if external:
        tensor: onnx.TensorProto = proto.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
    return proto.SerializeToString(), value.tobytes()


def written(path: Path, new: bytes) -> None:
    path.write_bytes(new)


def with_old_times(path: Path, new: bytes) -> None:
    found = path.stat()
    path.write_bytes(new)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def renamed(path: Path, new: bytes) -> None:
    path.with_suffix(".new").write_bytes(new)
    path.with_suffix(".new").rename(path)


def mapped(path: Path, new: bytes) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:] = new


def truncated(path: Path, new: bytes) -> None:
    os.truncate(path, len(new) // 2)


def removed(path: Path, new: bytes) -> None:
    path.unlink()


CHANGES = (written, with_old_times, renamed, mapped, truncated, removed)


def compiler() -> Compiler:
    return Compiler(load_registry(), Cache(MemoryStore(), "rw"), jobs=1)


def program(compiler: Compiler, place: Path) -> dict[str, bytes]:
    files: Any = compiler.artifact(Source(place / "m.onnx"), "c{lib=none}").files
    return {name: bytes(c.read_bytes() if isinstance(c, Path) else c) for name, c in files.items()}


@cache
def expected(external: bool) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What both versions give."""
    found: list[dict[str, bytes]] = []
    for seed in (1, 2):
        with TemporaryDirectory() as folder:
            for name, content in zip(("m.onnx", "w.bin"), model(seed, external), strict=True):
                (Path(folder) / name).write_bytes(content)
            found.append(program(compiler(), Path(folder)))
    assert found[0] != found[1]
    return found[0], found[1]


@pytest.mark.parametrize(
    ("change", "external", "in_parts", "step"),
    [(c, e, p, ("onnx", "emit")[(k + e + p) % 2]) for k, c in enumerate(CHANGES) for e in (0, 1) for p in (0, 1)],
)
def test_a_file_that_changes_during_a_build(
    change: Callable[[Path, bytes], None],
    external: bool,
    in_parts: bool,
    step: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if in_parts:  # as files that are larger than a part of the memory
        for name, value in (("KEPT", 0), ("MOST_KEPT", 0), ("BLOCK", 256)):
            monkeypatch.setattr(inputs, name, value)
    versions = [model(seed, external) for seed in (1, 2)]
    wanted, place, found = expected(external), tmp_path, compiler()
    (place / "m.onnx").write_bytes(versions[0][0])
    (place / "w.bin").write_bytes(versions[0][1])
    name = "w.bin" if external else "m.onnx"
    new = versions[1][1] if external else versions[1][0]
    plain = Session._run  # pyright: ignore[reportPrivateUsage]

    def changing(self: Session, asked: Any, value: Any) -> Any:
        if asked.key.value("step").startswith(step):
            change(place / name, new)
        return plain(self, asked, value)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_run", changing)
        with pytest.raises(DlcError) as caught:
            program(found, place)
    assert [d.code for d in caught.value.diagnostics] == ["input-changed"]
    assert caught.value.exit_code == ExitCode.MODEL
    for k in (1, 0):
        (place / "m.onnx").write_bytes(versions[k][0])
        (place / "w.bin").write_bytes(versions[k][1])
        assert program(found, place) == wanted[k]


def test_what_changes_no_content_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"content")
    files = Inputs()
    assert files.open(path).digest("sha256")
    os.utime(path)
    path.chmod(0o600)
    os.link(path, tmp_path / "g")
    files.check(now=True)
    renamed(path, b"content")
    files.check(now=True)
    path.write_bytes(b"CONTENT")
    with pytest.raises(DlcError, match="f changed while it was used"):
        files.check(now=True)


def test_a_block_that_is_not_what_was_hashed_is_never_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BLOCK", 64)
    path, content = tmp_path / "f", os.urandom(1000)
    path.write_bytes(content)
    file = InputFile(path, 0)
    file.digest("blake3")
    for offset, size in ((0, 1000), (1, 63), (64, 64), (63, 2), (100, 500), (999, 1), (1000, 0), (990, 100)):
        assert file.read(offset, size) == content[offset : offset + size]
    with_old_times(path, content[:500] + bytes([content[500] ^ 1]) + content[501:])
    assert file.read(0, 448) == content[:448] and file.read(512, 488) == content[512:]
    with pytest.raises(DlcError):
        file.read(500, 1)
    os.truncate(path, 600)
    with pytest.raises(DlcError):
        file.view()


def test_the_digest_of_a_file_is_noted_for_what_was_read_only(tmp_path: Path) -> None:
    store, path = Cache(MemoryStore(), "rw"), tmp_path / "m"
    path.write_bytes(b"one")
    with Inputs().active():
        first = store.source_digest(path)
        path.write_bytes(b"two")
        assert store.source_digest(path) == first  # this build is of the first content
    os.utime(path, (1, 1))
    second = Cache(store.store, "rw").source_digest(path)
    assert second != first
    with Inputs().active():
        assert Cache(store.store, "rw").source_digest(path) == second


def test_a_stream_reads_what_was_opened_first(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    with Inputs().active():
        with Source(path).stream() as file:
            path.write_bytes(b"other")
            assert (file.read(3), file.seek(-2, os.SEEK_END), file.read()) == (b"012", 8, b"89")
        assert Source(path).part(-4, 2) == b"67" and Source(path).size == 10
