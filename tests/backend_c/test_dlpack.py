"""Memory of other libraries is read and written in place: by address, by the counter of copies, by what is refused."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from dlc_backend_c.backend import C
from dlc_backend_c.runtime import Model

from dlc import DlcError
from dlc.base.types import Type, bf16, bool_, f32
from dlc.graph import Input, make_graph
from dlc.ops.elementwise import Add, Not
from dlc.runtime import dlpack
from dlc.runtime.calling import input_array


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    from dlc import Report
    from dlc.runtime.install import install
    from tests.backend_c.models import Bench, plan_of

    x, h, t = Input("x", Type(f32, (3, 4))), Input("h", Type(bf16, (5,))), Input("t", Type(bool_, (2,)))
    graph = make_graph((x, h, t), {"x2": Add(x, x), "h2": Add(h, h), "t2": Not(t)})
    place = tmp_path_factory.mktemp("dlpack")
    backend = C(flags=("-O0",))
    install(backend.build(backend.emit(plan_of(graph), Report()), Bench()), place)
    found = backend.load(place)
    assert isinstance(found, Model)
    yield found


def feeds() -> dict[str, Any]:
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    return {"x": x, "h": torch.arange(5).to(torch.bfloat16), "t": torch.tensor([True, False])}


def test_tensors_are_read_and_written_in_place(model: Model) -> None:
    given, before = feeds(), model.copied.arrays
    out = {"x2": torch.zeros(3, 4), "h2": torch.zeros(5, dtype=torch.bfloat16), "t2": torch.zeros(2, dtype=torch.bool)}
    got = model(given, out=out)
    assert model.copied.arrays == before
    for name, port in zip(("x", "h", "t"), model.signature.inputs, strict=True):
        read = input_array(port, given[name])
        assert read.__array_interface__["data"][0] == given[name].data_ptr()
    for name, tensor in out.items():
        assert got[name].__array_interface__["data"][0] == tensor.data_ptr()
    torch.testing.assert_close(out["x2"], given["x"] * 2)
    torch.testing.assert_close(out["h2"], given["h"] * 2)
    np.testing.assert_array_equal(out["t2"], [False, True])
    assert got["h2"].dtype == ml_dtypes.bfloat16


def test_results_are_lent_to_other_libraries(model: Model) -> None:
    got = model(feeds())["x2"]
    tensor = torch.from_dlpack(got)
    assert tensor.data_ptr() == got.__array_interface__["data"][0]
    want = got.copy()
    del got
    gc.collect()
    np.testing.assert_array_equal(tensor.numpy(), want)


def test_what_cannot_be_read_in_place_is_counted(model: Model) -> None:
    given = feeds()
    arrays, size = model.copied.arrays, model.copied.bytes
    columns = torch.arange(12, dtype=torch.float32).reshape(4, 3).T
    np.testing.assert_array_equal(model({**given, "x": columns})["x2"], columns.numpy() * 2)
    assert (model.copied.arrays - arrays, model.copied.bytes - size) == (1, 48)
    np.testing.assert_array_equal(model({**given, "t": [True, False]})["t2"], [False, True])
    assert model.copied.arrays - arrays == 2


def test_what_may_only_be_read_is_read_but_not_written(model: Model) -> None:
    frozen = np.ones((3, 4), np.float32)
    frozen.flags.writeable = False
    before = model.copied.arrays
    np.testing.assert_array_equal(model({**feeds(), "x": Foreign(frozen)})["x2"], np.full((3, 4), 2))
    assert model.copied.arrays == before
    with pytest.raises(DlcError, match="not writable"):
        model(feeds(), out={"x2": Foreign(frozen)})
    np.testing.assert_array_equal(frozen, np.ones((3, 4)))


@dataclass
class Foreign:
    """Another library's tensor, of whatever device it says."""

    of: Any
    device: tuple[int, int] = (1, 0)
    old: bool = False
    """Whether the library is from before version 1.0, and takes no options."""

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("unexpected keyword")
        return self.of.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def test_libraries_from_before_version_1_are_read_and_written(model: Model) -> None:
    given, out = feeds(), torch.zeros(5, dtype=torch.bfloat16)
    before = model.copied.arrays
    old = {name: Foreign(tensor, old=True) for name, tensor in given.items()}
    model(old, out={"h2": Foreign(out, old=True)})
    torch.testing.assert_close(out, given["h"] * 2)
    assert model.copied.arrays == before


REFUSED: list[tuple[str, Any, str]] = [
    ("x", Foreign(np.zeros((3, 4), "f4"), (2, 1)), "it lies on CUDA 1; copy it to the CPU first"),
    ("x", Foreign(np.zeros((3, 4), "f4"), (99, 0)), "it lies on device type 99 0"),
    ("x", torch.zeros(3, 4, requires_grad=True), "detach"),
    ("x", torch.zeros(3, 4, device="meta"), "meta"),
    ("x", torch.zeros(3, 4, dtype=torch.float64), "expected float32[3,4], found float64[3,4]"),
    ("x", torch.zeros(4, 3), "expected float32[3,4], found float32[4,3]"),
    ("x", torch.zeros(3, 4, dtype=torch.bfloat16), "expected float32[3,4], found bfloat16[3,4]"),
    ("h", torch.zeros(5, dtype=torch.float16), "expected bfloat16[5], found float16[5]"),
    ("x", [[1.0], [1.0, 2.0]], "inhomogeneous"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_what_is_no_memory_of_this_kind_is_refused(model: Model, name: str, value: Any, message: str) -> None:
    with pytest.raises(DlcError) as found:
        model({**feeds(), name: value})
    assert found.value.diagnostics[0].code == "wrong-argument"
    assert f'input "{name}"' in str(found.value) and message in str(found.value)


def test_tensors_of_every_layout_and_type() -> None:
    base = torch.arange(24).reshape(2, 3, 4).to(torch.bfloat16)
    for tensor in (base, base[:, 1:], base.permute(2, 0, 1), base[0, 0, 0], base[:0], base[::2, :, ::3]):
        found = dlpack.lent(tensor)
        assert found.shape == tuple(tensor.shape) and found.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(found.astype(np.float32), tensor.float().numpy())
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        narrow = torch.tensor([1.0, -2.0, 0.5]).to(getattr(torch, name))
        assert dlpack.lent(narrow).astype(np.float32).tolist() == [1.0, -2.0, 0.5]
        assert dlpack.lent(narrow).dtype.name == name


def test_memory_is_kept_for_as_long_as_an_array_lies_over_it() -> None:
    found = dlpack.lent(torch.full((1 << 20,), 3.0, dtype=torch.bfloat16))[5:]
    gc.collect()
    torch.full((1 << 20,), 7.0, dtype=torch.bfloat16)  # would take the memory if it were free
    assert (found == 3).all()
