"""Files that are not models, or do harm: their faults are reported quickly and in little memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from building import model_of, parse
from dlc_frontend_onnx.frontend import Onnx, read_model
from dlc_frontend_onnx.wire import encode_varint
from hostile import CHANGES, NAMES, Change, X, changed, small
from hostile_calls import CHANGES as CALLS
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from dlc import DlcError, Report, Source
from dlc.graph import Constant

ALL = (*CHANGES, *CALLS)
MEMORY = 64 << 20
"""Bytes that refusing a model may take."""


def refusal(model: onnx.ModelProto | bytes, **options: object) -> DlcError:
    """The error, which has a place and a remedy in all its parts and takes little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(DlcError) as caught:
            parse(model, **options)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    check(caught.value)
    return caught.value


def check(problem: DlcError) -> None:
    """Place, remedy, and nothing that a terminal would obey."""
    for d in problem.diagnostics:
        assert d.location is not None, d
        assert d.location.source, d
        assert d.help, d
    assert all(c == "\n" or c.isprintable() for c in str(problem))


@cache
def refused(change: Change) -> DlcError:
    """The error of a model with one fault."""
    return refusal(changed(change))


@pytest.mark.parametrize(("change", "code"), ALL, ids=[c.__name__ for c, _ in ALL])
def test_a_model_with_one_fault_is_refused_with_its_place_and_a_remedy(change: Change, code: str) -> None:
    found = refused(change)
    assert {d.code for d in found.diagnostics} == {code}, str(found)


def test_the_messages_are_these(golden: object) -> None:
    assert callable(golden)
    golden("hostile.txt", "\n".join(f"# {c.__name__}\n{refused(c)}" for c, _ in ALL))


@pytest.mark.parametrize("end", range(0, 5000, 97))
def test_a_truncated_file_is_refused_with_the_byte_at_which_it_ends(end: int) -> None:
    data = small().SerializeToString()[:-1]
    found = refusal(data[: end % len(data)])
    assert {d.code for d in found.diagnostics} <= {"not-a-model", "undefined", "no-outputs", "too-old"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty (0 bytes)"),
        (b"\x00" * 64, "field number 0 at byte 0"),
        (b"\x08\x0a\x3a" + b"\xff" * 20, "a number is longer than 10 bytes at byte 3"),
        (b"\x08\x0a\x3a\x05\x00", "a field of 5 bytes, of which 1 are there at byte 2"),
        (b"\x08\x0a\x3b", "wire type 3 at byte 2"),
        (b"\x08\x0a", "it has no graph or no version"),
        (b"\x08\x0a\x38\x01", "it has no graph or no version"),
        (b"version https://git-lfs.github.com/spec/v1\n", "(43 bytes) is a pointer of Git LFS"),
        (b"PK\x03\x04zip", "is not an ONNX model, or is truncated"),
        (b"\x7fELF\x02\x01\x01", "is not an ONNX model, or is truncated"),
    ],
)
def test_what_is_no_protobuf_is_refused_at_its_byte(data: bytes, words: str) -> None:
    (found,) = refusal(data).diagnostics
    assert found.code == "not-a-model"
    assert words in found.message


def test_a_graph_as_a_number_is_no_graph() -> None:
    assert "no graph" in str(refusal(b"\x08\x0a\x38\x07"))


def test_messages_that_nest_deeper_than_any_model_are_refused() -> None:
    data = b""
    for _ in range(5000):  # graph ← attribute ← node ← graph …
        for key in (b"\x32", b"\x2a", b"\x0a"):
            data = key + encode_varint(len(data)) + data
        if len(data) > 60000:
            break
    assert "not an ONNX model" in str(refusal(b"\x08\x0a\x3a" + encode_varint(len(data)) + data))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    refusal(data)
    refusal(b"\x08\x0a\x3a" + encode_varint(len(data)) + data)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_kept_as_they_are_and_shown_escaped(name: str) -> None:
    node = helper.make_node("Neg", ["x" + name], ["y" + name], name="n" + name)
    graph = parse(model_of([node], {"x" + name: X}, ["y" + name]))
    assert graph.names == ("y" + name,)
    assert [i.name for i in graph.inputs] == ["x" + name]
    assert set(graph.origins.values()) == {("n" + name,)}
    wrong = helper.make_node("Nothing", ["x" + name], ["y" + name], name="n" + name, domain=name)
    shown = str(refusal(model_of([wrong], {"x" + name: X}, ["y" + name])))
    assert len(shown) < 8000


@pytest.mark.parametrize("field", ["relu", "gemm", "to", "Relu", "x", "g"])
def test_a_name_that_is_no_text_is_refused(field: str) -> None:
    data = small().SerializeToString()
    key = encode_varint(len(field)) + field.encode()
    assert key in data
    (found,) = refusal(data.replace(key, key[:1] + b"\xff" * len(field))).diagnostics
    assert found.code == "bad-name"
    assert "\\xff" in found.message


def test_many_errors_of_one_kind_are_counted() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"], name=f"n{k}") for k in range(1000)]
    found = refusal(model_of(nodes, {"x": X}, ["y"])).diagnostics
    assert len(found) == 20
    assert found[-1].notes == ("and 979 more errors of this kind",)


# ---- mutated models


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few changed, added, lost or repeated."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, length = rng.randrange(len(out)), rng.randrange(1, 12)
        match rng.randrange(5):
            case 0:
                out[at] = rng.randrange(256)
            case 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2 if len(out) > 200:
                del out[at : at + length]
            case 3:
                out[at:at] = rng.randbytes(length)
            case _:
                out[at:at] = out[rng.randrange(len(out)) :][:length]
    return bytes(out)


LIGHT = ("bvlc_alexnet", "inception_v1", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512")


def models() -> Iterator[bytes]:
    spec = find_spec("onnx")
    assert spec is not None
    assert spec.origin is not None
    for name in LIGHT:
        yield (Path(spec.origin).parent / f"backend/test/data/light/light_{name}.onnx").read_bytes()
    yield small().SerializeToString()


def test_mutated_models_are_read_or_refused() -> None:
    rng = random.Random(1)
    seeds = list(models())
    refused = 0
    for _ in range(250):
        data = mutated(rng.choice((*seeds, *(seeds[-1],) * 20)), rng)
        try:
            parse(data)
        except DlcError as problem:
            check(problem)
            refused += 1
    assert refused > 100


# ---- external data


def external(folder: Path, **entries: str) -> Source:
    """A model in a folder whose one initializer, of 24 bytes, lies in another file."""
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"], {"w": X})
    w = model.graph.initializer[0]
    w.ClearField("raw_data")
    w.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        w.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return Source(path)


def refused_data(source: Source) -> str:
    with pytest.raises(DlcError) as caught:
        Onnx().parse(source, Report())
    check(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with 40 bytes of data beside it, below it, and behind links."""
    inner = tmp_path / "model"
    (inner / "sub").mkdir(parents=True)
    data = np.arange(10, dtype=np.float32).tobytes()
    for place in (tmp_path / "outside.bin", inner / "w.bin", inner / "sub" / "w.bin"):
        place.write_bytes(data)
    (inner / "link.bin").symlink_to(tmp_path / "outside.bin")
    (inner / "links").symlink_to(tmp_path)
    (inner / "hard.bin").hardlink_to(tmp_path / "outside.bin")
    return inner


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "is outside the model's directory"),
        ({"location": "missing.bin"}, "No such file"),
        ({"location": "../outside.bin"}, "is outside the model's directory"),
        ({"location": "sub/../../outside.bin"}, "is outside the model's directory"),
        ({"location": "..\\outside.bin"}, "is outside the model's directory"),
        ({"location": "C:\\outside.bin"}, "is outside the model's directory"),
        ({"location": "/etc/hostname"}, "is outside the model's directory"),
        ({"location": "w.bin\0"}, "is outside the model's directory"),
        ({"location": "sub"}, "is not a file"),
        ({"location": "link.bin"}, "symbolic link"),
        ({"location": "links/outside.bin"}, "symbolic link"),
        ({"location": "hard.bin"}, "hard links"),
        ({"location": "w.bin/inner"}, "Not a directory"),
        ({"location": "w.bin", "offset": "-4"}, "'-4', which is not a number"),
        ({"location": "w.bin", "offset": "x"}, "'x', which is not a number"),
        ({"location": "w.bin", "offset": "9" * 30}, "which is not a number"),
        ({"location": "w.bin", "offset": "20"}, "takes 24 bytes, 20 are stored"),
        ({"location": "w.bin", "offset": "100"}, "bytes 100 to 100 of w.bin, which has 40"),
        ({"location": "w.bin", "length": "-24"}, "'-24', which is not a number"),
        ({"location": "w.bin", "length": "20"}, "takes 24 bytes, 20 are stored"),
        ({"location": "w.bin", "offset": "17", "length": "24"}, "bytes 17 to 41 of w.bin, which has 40"),
    ],
)
def test_external_data_that_is_missing_or_elsewhere_is_refused(
    folder: Path, entries: dict[str, str], words: str
) -> None:
    assert words in refused_data(external(folder, **entries))


@pytest.mark.parametrize("name", ["w.bin", "sub/w.bin", "./w.bin"])
def test_external_data_is_read_where_it_lies(folder: Path, name: str) -> None:
    source = external(folder, location=name, offset="4", length="24")
    assert [s.path for s in Onnx().companions(source)] == [folder / name]
    graph = Onnx().parse(source, Report())
    (found,) = (op.tensor.array() for op in graph.ops if isinstance(op, Constant))
    np.testing.assert_array_equal(found.reshape(-1), np.arange(1, 7, dtype=np.float32))
    assert not isinstance(found, np.memmap)  # a file that somebody truncates would end the process


def test_external_data_of_a_model_without_a_file_is_refused(folder: Path) -> None:
    source = external(folder, location="w.bin")
    found = refused_data(Source(data=bytes(source.view()), label="pipe"))
    assert "and the model is not a file" in found


def test_data_in_the_model_itself_is_read_once(tmp_path: Path) -> None:
    big = np.arange(1 << 20, dtype=np.float32)
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": big}, ["y"], {"w": big})
    path = tmp_path / "big.onnx"
    path.write_bytes(model.SerializeToString())
    skeleton, (place,) = read_model(Source(path))
    assert place is not None
    assert place.length == big.nbytes
    assert len(skeleton.SerializeToString()) < 1000
    tracemalloc.start()
    Onnx().parse(Source(path), Report())
    assert tracemalloc.get_traced_memory()[1] < 2.5 * big.nbytes
    tracemalloc.stop()
