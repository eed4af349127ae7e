"""Constants by content: hashed once, read from their files, fetched when needed, never printed."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from dlc.base.types import DTYPES, Type, dtype_of_numpy, f32, i64, u8
from dlc.files.inputs import Inputs
from dlc.graph import Constant, FileData, LazyData, Tensor, evaluate, make_graph, parse_graph, print_graph, verify
from dlc.graph import tensor as module
from dlc.graph.tensor import Array
from dlc.ops.elementwise import Neg, Relu
from tests.graph.random_graphs import OPS


@given(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 3), max_size=3), st.integers(0, 9))
def test_equal_bits_equal_digest(name: str, shape: list[int], seed: int) -> None:
    dtype = DTYPES[name]
    rng = np.random.default_rng(seed)
    value = rng.integers(0, 2, shape).astype(dtype.numpy)
    one = Tensor.of(value)
    assert one == Tensor.of(np.copy(value, order="F"))
    assert one == Tensor.of(value.tolist(), dtype) or not value.size
    assert one.type == Type(dtype, tuple(shape))
    assert one.array().dtype == dtype.numpy
    flat = Tensor.of(value.reshape(-1))
    assert (one.digest == flat.digest) == (one.type == flat.type)


def test_bits_count_not_values() -> None:
    values = [np.array([v], np.float32) for v in (0.0, -0.0, 1.0, np.nan)]
    digests = {Tensor.of(v).digest for v in values}
    assert len(digests) == 4
    assert Tensor.of(np.array([1], np.int32)).digest != Tensor.of(np.array([1], np.uint32)).digest
    assert Tensor.of(np.array([np.nan], np.float32)) == Tensor.of(np.array([np.nan], np.float32))


def test_what_has_no_element_type_is_refused() -> None:
    with pytest.raises(TypeError, match="complex128"):
        Tensor.of(np.array([1j]))
    assert dtype_of_numpy(np.dtype("U3")) is None


def test_elements_are_read_only_and_the_caller_keeps_his_array() -> None:
    mine = np.arange(3.0)
    tensor = Tensor.of(mine.reshape(1, 3))
    with pytest.raises(ValueError, match="read-only"):
        tensor.array()[0] = 1
    before = tensor.array().copy()
    assert mine.flags.writeable
    mine[0] = 99
    assert np.array_equal(tensor.array(), before)


def test_files_are_read_as_they_were_when_the_build_opened_them(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32)
    (tmp_path / "weights.bin").write_bytes(b"head" + values.tobytes())
    of = Type(f32, (3, 4))
    tensor = Tensor.stored(of, FileData(tmp_path, "weights.bin", 4))
    assert tensor == Tensor.of(values.reshape(3, 4))
    assert not tensor.array().flags.writeable
    with Inputs().active() as inputs:
        kept = Tensor.stored(of, FileData(tmp_path, "weights.bin", 4))
    os.truncate(tmp_path / "weights.bin", 0)
    assert np.array_equal(kept.array(), values.reshape(3, 4))
    with pytest.raises(DlcError, match="changed while it was used"):
        inputs.check(now=True)
    assert Tensor.stored(Type(f32, (0, 4)), FileData(tmp_path, "absent", 0)).array().shape == (0, 4)


def test_what_is_lazy_is_fetched_once_even_by_many_threads() -> None:
    calls: list[int] = []

    def fetch() -> Array:
        calls.append(1)
        return np.ones(4, np.float32)

    tensor = Tensor(Type(f32, (4,)), "0" * 32, LazyData(fetch))
    got: list[Array] = []
    threads = [threading.Thread(target=lambda: got.append(tensor.array())) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(calls) == 1
    assert all(g is got[0] for g in got)


def refuse(*_: Any) -> Any:
    raise AssertionError("the values were touched")


def test_graphs_never_touch_the_values_of_large_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    of = Type(f32, (1 << 20, 1 << 10))  # 4 GiB that do not exist
    tensor = Tensor(of, "0123456789abcdef" * 2, LazyData(refuse))
    monkeypatch.setattr(module, "digest_of_data", refuse)
    graph = make_graph([], {"y": Relu(Constant(tensor))})
    text = print_graph(graph)
    assert len(text) < 200
    again = parse_graph(text, OPS, lambda of, digest: tensor)
    assert again == graph
    assert verify(graph) == ()
    assert graph.rewrite(lambda op: Neg(op.x) if isinstance(op, Relu) else None).outputs[0].type == of
    assert graph.substitute({Constant(tensor): Constant(tensor)}) == graph


def test_a_tensor_of_a_broadcast_or_strided_array_is_its_elements() -> None:
    wide = np.broadcast_to(np.float32(1.5), (2, 3))
    assert Tensor.of(wide) == Tensor.of(np.full((2, 3), 1.5, np.float32))
    strided = np.arange(10, dtype=np.int64)[::-3]
    assert Tensor.of(strided).array().tolist() == [9, 6, 3, 0]
    assert Tensor.of(np.arange(4, dtype=">i4")).array().tolist() == [0, 1, 2, 3]


def test_small_constants_stand_in_the_text_but_not_nans() -> None:
    small = make_graph([], {"y": Constant(Tensor.of([1, 2], i64))})
    assert "i64[2]{1,2}" in print_graph(small)
    quiet = Tensor.of(np.array([np.nan], np.float32))
    assert quiet.digest in print_graph(make_graph([], {"y": Constant(quiet)}))


def test_evaluation_gives_constants() -> None:
    values = evaluate(make_graph([], {"y": Constant(Tensor.of([1, 255], u8))}), {})
    assert values["y"].tolist() == [1, 255]
