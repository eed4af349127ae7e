"""Weights: one file, aligned, equal contents once, one tensor in memory at a time."""

import ctypes
import gc
import hashlib
import subprocess
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.weights import (
    ALIGN,
    IN_MEMORY,
    LIBRARY_LIMIT,
    MAP_ABOVE,
    Blob,
    storage_of,
    write_weights,
)
from dlc_backend_c.weights_text import data_type, weights_text

from dlc import DlcError
from dlc.base.types import DTYPES, Type, bool_, f32, f64
from dlc.files.hashing import OwnedFile, content_sha256, file_sha256
from dlc.graph import Constant, LazyData, Op, Splat, Tensor
from dlc.graph.tensor import digest_of_data
from dlc.ops.elementwise import Mul
from dlc.ops.shape import Concat, Reshape, Transpose
from tests.backend_c.models import Array, constant
from tests.tools import COMPILERS


def blob_bytes(blob: Blob) -> bytes:
    return blob.content if isinstance(blob.content, bytes) else blob.content.read_bytes()


def value_at(blob: Blob, op: Op) -> Array:
    return np.frombuffer(blob_bytes(blob), op.dtype.numpy, op.type.size, blob.offsets[op.digest]).reshape(op.shape)


def test_every_constant_lies_where_its_offset_says() -> None:
    w = constant(3, 5)
    ops: list[Op] = [w, Transpose(w, (1, 0)), Mul(w, w), Splat(2.5, Type(f64, (3,))), Splat(True, Type(bool_, (7,)))]
    ops += [Concat((w, Transpose(Transpose(w, (1, 0)), (1, 0)), Mul(w, w)), axis=0), Concat((w, w), axis=1)]
    blob = write_weights(ops, "w.bin")
    want = w.tensor.array()
    values = (want, want.T, want * want, np.full(3, 2.5), np.ones(7, bool))
    values += (np.concatenate([want, want, want * want]), np.concatenate([want, want], 1))
    for op, value in zip(ops, values, strict=True):
        np.testing.assert_array_equal(value_at(blob, op), value)
        assert blob.offsets[op.digest] % ALIGN == 0
    data = blob_bytes(blob)
    assert len(data) == blob.size and blob.size % ALIGN == 0
    assert hashlib.sha256(data).hexdigest() == blob.sha256


def test_equal_contents_are_stored_once_whatever_their_shape() -> None:
    w = constant(4, 6)
    blob = write_weights([w, Reshape(w, (24,)), constant(4, 6, seed=1)], "w.bin")
    assert blob.offsets[w.digest] == blob.offsets[Reshape(w, (24,)).digest] == 0
    assert blob.size == 256 and blob.shared == 96


def test_no_constants_give_no_bytes_and_empty_ones_an_address() -> None:
    assert write_weights([], "w.bin").size == 0
    empty = Constant(Tensor.of(np.zeros((0, 3), np.float32)))
    blob = write_weights([empty], "w.bin")
    assert blob.offsets == {empty.digest: 0} and blob.size == ALIGN


@pytest.fixture
def large() -> list[Op]:
    """Eight different tensors of 4 MiB that exist only while somebody reads them."""

    def fetch(k: int) -> Array:
        return np.full((1024, 1024), k, np.float32)

    class Fresh(LazyData):
        def array(self, type: Type) -> Array:
            return self.fetch()

    of = Type(f32, (1024, 1024))
    return [Constant(Tensor(of, digest_of_data(of, fetch(k)), Fresh(lambda k=k: fetch(k)))) for k in range(8)]


def test_large_weights_are_streamed_to_a_file_that_lives_as_long_as_its_path(large: list[Op]) -> None:
    tracemalloc.start()
    blob = write_weights(large, "w.bin")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert blob.size == 32 << 20 > IN_MEMORY
    assert peak < 3 * (4 << 20)
    assert isinstance(blob.content, OwnedFile)
    place = str(blob.content)
    for k, op in enumerate(large):
        assert np.all(np.memmap(place, np.float32, "r", blob.offsets[op.digest], (1024, 1024)) == k)
    del blob
    gc.collect()
    assert not OwnedFile(place).exists() and not OwnedFile(place).parent.exists()


def of_every_size() -> list[Op]:
    """Elements of 1, 2, 4 and 8 bytes, and packed ones; sizes that fill no line."""
    rng = np.random.default_rng(0)
    types = [DTYPES[name] for name in ("f32", "f64", "f64", "i8", "f16", "bf16", "bool", "i64", "f32", "u4")]
    counts = (100, 3, 5, 37, 11, 1, 9, 6, 70_001, 7)
    return [
        Constant(Tensor.of(rng.integers(0, 2 if t is bool_ else 9, n).astype(t.numpy), t))
        for t, n in zip(types, counts, strict=True)
    ]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("align", [4, 64])
def test_text_holds_every_byte(cc: str, align: int, tmp_path: Path) -> None:
    blob = write_weights(of_every_size(), "w.bin", align=align)
    text = weights_text(
        blob, "net", "", f"__attribute__((aligned({align}))) const {data_type('net')} net_weights =", "w.c"
    )
    source = tmp_path / "w.c"
    source.write_text(text.read_text() + "const void *bytes(void);\nconst void *bytes(void) { return &net_weights; }\n")
    command = [
        cc,
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        str(source),
        "-o",
        str(tmp_path / "w.so"),
    ]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(tmp_path / "w.so"))
    library.bytes.restype = ctypes.c_void_p
    assert ctypes.string_at(library.bytes(), blob.size) == blob_bytes(blob)
    assert {size for _, size in blob.elements} == {1, 2, 4, 8}


def test_equal_bytes_of_elements_of_other_sizes_are_stored_apart() -> None:
    """In another order of bytes they differ."""
    ops: list[Op] = [Splat(1, Type(DTYPES["i64"], (8,))), Constant(Tensor.of(np.array([1, 0] * 8, np.int32)))]
    assert len(set(write_weights(ops, "w.bin").offsets.values())) == 2


def test_contents_that_begin_and_end_alike_are_distinguished() -> None:
    """Samples of them are equal, so digests decide; those of the first are taken from the file."""
    values = [np.zeros(4096, np.float32) for _ in range(5)]
    for k, value in enumerate(values):
        value[2000] = (1, 2, 1, 3, 2)[k]
    ops = [Reshape(Constant(Tensor.of(v)), (4096 >> k, 1 << k)) for k, v in enumerate(values)]
    blob = write_weights(ops, "w.bin")
    assert [blob.offsets[op.digest] for op in ops] == [0, 16384, 0, 32768, 16384]
    assert blob.size == 3 * 16384 and blob.shared == 2 * 16384
    for op, value in zip(ops, values, strict=True):
        np.testing.assert_array_equal(value_at(blob, op).ravel(), value)
    assert hashlib.sha256(blob_bytes(blob)).hexdigest() == blob.sha256


def test_the_digest_of_large_weights_is_known(large: list[Op]) -> None:
    blob = write_weights(large, "w.bin")
    assert isinstance(blob.content, OwnedFile)
    assert content_sha256(blob.content) == blob.sha256 == file_sha256(blob.content)


def test_weights_are_in_the_library_unless_they_are_large_or_somebody_chose() -> None:
    assert storage_of("auto", MAP_ABOVE) == "incbin"
    assert storage_of("auto", MAP_ABOVE + ALIGN) == "map"
    assert storage_of("incbin", LIBRARY_LIMIT - ALIGN) == "incbin"
    assert storage_of("map", 0) == "map"
    for choice in ("incbin", "text"):
        with pytest.raises(DlcError, match="do not fit into a library"):
            storage_of(choice, LIBRARY_LIMIT)
