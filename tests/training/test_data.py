"""Data sets: what is read, converted and refused, and the order of their rows."""

import io
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.api.program import Port
from dlc.api.training import Classes
from dlc.base.allowed import Allowed
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.types import DTYPES, Array, Type
from dlc.training.loop.data import DataSet, batch_size, read_data
from dlc.training.loop.shuffle import permutation

X = Port("x", Type(DTYPES["f32"], (4, 1, 2)))
Y = Port("y", Type(DTYPES["i64"], (4,)), Classes(3).allowed)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., DataSet]:
    """`read(x=…, y=…)` through an .npz."""

    def call(*ports: Port, packed: bool = False, **arrays: Array) -> DataSet:
        path = tmp_path / "data.npz"
        write(path, packed, arrays)
        return read_data([str(path)], ports or (X, Y))

    return call


def write(path: Path, packed: bool, arrays: dict[str, Array]) -> None:
    (np.savez_compressed if packed else np.savez)(path, **arrays)  # pyright: ignore[reportArgumentType]


Read = Callable[..., DataSet]


def codes(problem: DlcError) -> list[str]:
    return [d.code for d in problem.diagnostics]


def good(rows: int = 6) -> dict[str, Array]:
    return {"x": np.arange(rows * 2, dtype=np.float32).reshape(rows, 1, 2), "y": np.arange(rows) % 3}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_what_numpy_loads(read: Read, packed: bool, order: str) -> None:
    arrays = good()
    arrays["x"] = np.asarray(arrays["x"], order=order)  # pyright: ignore[reportCallIssue, reportArgumentType]
    data = read(packed=packed, **arrays)
    index = np.array([5, 0, 2, 2])
    batch = data.batch(index)
    assert list(batch) == ["x", "y"]
    for name, array in batch.items():
        np.testing.assert_array_equal(array, arrays[name][index])
        assert array.flags.c_contiguous
        assert array.flags.aligned
    assert data.columns[0].array.flags.writeable == packed  # read-only: mapped where it lies


def test_npy_files(tmp_path: Path) -> None:
    for name, array in good().items():
        np.save(tmp_path / f"{name}_train.npy", array)
    data = read_data([f"x={tmp_path}/x_train.npy", f"y={tmp_path}/y_train.npy"], (X, Y))
    assert data.rows == 6
    np.testing.assert_array_equal(data.batch(np.array([3]))["x"], good()["x"][3:4])


@given(
    source=st.sampled_from(["f2", "f4", "f8", ">f4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]),
    target=st.sampled_from([name for name, t in DTYPES.items() if not t.library]),
    values=st.lists(
        st.sampled_from([0, 1, 2, 127, 200, 40_000, 16_777_217, 2**40 + 1, -1, 0.5, 1e300]), min_size=4, max_size=4
    ),
)
def test_converted_or_refused(
    tmp_path_factory: pytest.TempPathFactory, source: str, target: str, values: list[float]
) -> None:
    """What is taken has the same values; floats may be rounded, nothing else; integers are never made of floats."""
    with np.errstate(all="ignore"):
        array = np.array(values).astype(source)
    path = tmp_path_factory.mktemp("d") / "d.npz"
    np.savez(path, a=array)
    port = Port("a", Type(DTYPES[target], (4,)))
    kind = DTYPES[target].numpy.kind
    with np.errstate(all="ignore"):
        moved = array.astype(DTYPES[target].numpy)
    fits = (
        array.dtype.kind == "b"
        or kind == array.dtype.kind
        or kind == "f"
        or (kind in "iu" and array.dtype.kind in "iu")
    )
    if kind == "f" and array.dtype.kind == "f":
        fits = fits and not (np.isinf(moved) & ~np.isinf(array)).any()
    else:
        fits = fits and [int(v) for v in moved if np.isfinite(v)] == [int(v) for v in array if np.isfinite(v)]
    try:
        data = read_data([str(path)], (port,))
    except DlcError as problem:
        assert not fits, str(problem)
        assert codes(problem)[0] in ("wrong-array", "bad-value")
    else:
        assert fits
        np.testing.assert_array_equal(data.batch(np.arange(4))["a"], moved)
        assert any(n.code == "converted" for n in data.notes) == (array.dtype.newbyteorder("=") != moved.dtype)


def test_dimensions_of_size_one(read: Read) -> None:
    data = read(x=good()["x"][:, 0], y=good()["y"][:, None])
    assert data.batch(np.arange(4))["x"].shape == (4, 1, 2)
    assert [n.code for n in data.notes] == ["reshaped", "reshaped"]


@pytest.mark.parametrize("nested", [False, True])
def test_several_labels_a_row(read: Read, nested: bool) -> None:
    x, y = Port("x", Type(DTYPES["i64"], (2, 3))), replace(Y, type=Type(DTYPES["i64"], (6,)))
    labels = np.arange(15) % 3
    data = read(x, y, x=np.arange(15).reshape(5, 3), y=labels.reshape(5, 3) if nested else labels)
    batch = data.batch(np.array([4, 1]))
    assert (data.rows, batch_size((x, y))) == (5, 2)
    np.testing.assert_array_equal(batch["y"], [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(batch["x"], [[12, 13, 14], [3, 4, 5]])


def test_arguments_without_rows() -> None:
    for shape in ((), (0, 2), (6,)):
        with pytest.raises(DlcError, match="no batches of rows"):
            batch_size((X, Port("y", Type(DTYPES["i64"], shape))))


def replaced(**arrays: Array) -> dict[str, Array]:
    return {**good(), **arrays}


def spoilt(name: str, at: tuple[int, ...], value: float) -> dict[str, Array]:
    arrays = good()
    arrays[name][at] = value
    return arrays


BAD = {
    "missing": ({"x": good()["x"], "labels": good()["y"]}, ["missing-array"], 'no array "y" of i64[4] batches'),
    "shape": (replaced(x=np.zeros((6, 3), np.float32)), ["wrong-array"], "rows of 1x2, found f32[6,3]"),
    "same_size": (replaced(x=np.zeros((6, 2, 2), np.float32)), ["wrong-array"], "rows of 1x2, found f32[6,2,2]"),
    "scalar": (replaced(y=np.array(3)), ["wrong-array"], "rows of one number, found i64[]"),
    "one_hot": (replaced(y=np.eye(6, 3)), ["wrong-array"], "array.argmax(axis=1)"),
    "float_labels": (replaced(y=np.zeros(6)), ["wrong-array"], "expected elements i64, found f64[6]"),
    "rows": (replaced(y=np.zeros(5, np.int64)), ["different-rows"], '"x" has 6, "y" has 5'),
    "no_rows": (good(0), ["no-rows"], "there are no rows"),
    "label": (spoilt("y", (4,), 3), ["bad-label"], '"y", row 4: 3 at [4] is not a valid label: labels are 0 to 2'),
    "negative_label": (spoilt("y", (0,), -1), ["bad-label"], '"y", row 0: -1 at [0] is not a valid label'),
    "nan": (spoilt("x", (2, 0, 1), np.nan), ["not-a-number"], '"x", row 2: nan at [2, 0, 1] is not a number'),
    "overflow": (replaced(x=np.full((6, 1, 2), 1e39)), ["bad-value"], "cannot be converted to f32; 11 more"),
    "all_at_once": (
        {"x": np.full((6, 1, 2), np.nan, np.float32), "y": np.full(6, 9)},
        ["not-a-number", "bad-label"],
        "labels are 0 to 2",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(read: Read, name: str) -> None:
    arrays, expected, text = BAD[name]
    with pytest.raises(DlcError) as caught:
        read(**arrays)
    assert codes(caught.value) == expected
    assert caught.value.exit_code == ExitCode.USAGE
    assert text in str(caught.value)


def test_a_label_that_does_not_count(read: Read) -> None:
    y = replace(Y, allowed=Classes(3, -100).allowed)
    assert read(X, y, **spoilt("y", (1,), -100)).rows == 6
    with pytest.raises(DlcError, match=r"labels are 0 to 2, or -100 for what does not count"):
        read(X, y, **spoilt("y", (1,), -1))


def test_an_index_out_of_range(read: Read) -> None:
    ids = np.arange(18).reshape(6, 3) % 10
    tokens = Port("x", Type(DTYPES["i64"], (2, 3)), Allowed.parse("index -10..9"))
    labels = replace(Y, type=Type(DTYPES["i64"], (2,)))
    assert read(tokens, labels, x=ids, y=np.zeros(6, np.int64)).rows == 6
    ids[4, 1] = 10
    with pytest.raises(DlcError, match=r'"x", row 4: 10 at \[4, 1\] is out of range: indices are -10 to 9') as caught:
        read(tokens, labels, x=ids, y=np.zeros(6, np.int64))
    assert codes(caught.value) == ["bad-index"]


@pytest.mark.parametrize(
    ("text", "refused"), [("[0:2,1:2]0..9", True), ("[0:2,0:1]0..9", False), ("[0:1,1:2]0..9", False)]
)
def test_ranges_of_columns(read: Read, text: str, refused: bool) -> None:
    """What holds for a place in the batch only is left to the step: rows come into any place."""
    ids = np.zeros((6, 3), np.int64)
    ids[4, 1] = 10
    tokens = Port("x", Type(DTYPES["i64"], (2, 3)), Allowed.parse(f"index {text}"))
    labels = replace(Y, type=Type(DTYPES["i64"], (2,)))
    if not refused:
        assert read(tokens, labels, x=ids, y=np.zeros(6, np.int64)).rows == 6
        return
    with pytest.raises(DlcError, match=r'"x", row 4: 10 at \[4, 1\] is out of range: indices are 0 to 9'):
        read(tokens, labels, x=ids, y=np.zeros(6, np.int64))


def test_infinite_values_and_unused_arrays_are_reported(read: Read) -> None:
    data = read(**spoilt("x", (3, 0, 0), -np.inf), z=np.zeros(3))
    assert [(n.code, n.severity) for n in data.notes] == [("unused-array", "note"), ("infinite", "warning")]


def test_the_digest_is_that_of_the_content(read: Read) -> None:
    first = read(**good()).digest
    assert read(packed=True, **good()).digest == first
    assert read(**spoilt("x", (5, 0, 1), 11.5)).digest != first
    assert read(**{k: v[:-1] for k, v in good().items()}).digest != first


def npz(tmp_path: Path, content: bytes, compress: int = zipfile.ZIP_STORED) -> list[str]:
    with zipfile.ZipFile(tmp_path / "evil.npz", "w", compress) as archive:
        archive.writestr("x.npy", content)
    return [str(tmp_path / "evil.npz")]


def header(text: str, version: bytes = b"\1\0") -> bytes:
    padded = text.ljust(118) + "\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(padded)) + padded.encode("latin1")


def pickled() -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}], object), allow_pickle=True)
    return out.getvalue()


EVIL = {
    "pickle": pickled(),
    "empty": b"",
    "text": b"hello",
    "cut": header("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1, 2)}")[:40],
    "short": header("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1, 2)}") + b"\0" * 31,
    "long": header("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1, 2)}") + b"\0" * 33,
    "huge": header("{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000000, 1, 2)}"),
    "negative": header("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 1, -2)}") + b"\0" * 32,
    "text_elements": header("{'descr': '<U4', 'fortran_order': False, 'shape': (4, 1, 2)}") + b"\0" * 128,
    "records": header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4, 1, 2)}") + b"\0" * 32,
    "subarrays": header("{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (4, 1)}") + b"\0" * 32,
    "code": header("{'descr': __import__('os'), 'shape': (4,)}"),
    "version": header("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1, 2)}", b"\3\0") + b"\0" * 32,
    "deep": header("(" * 100),
}


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("compress", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
def test_hostile_arrays(tmp_path: Path, name: str, compress: int) -> None:
    with pytest.raises(DlcError, match="unreadable-file"):
        read_data(npz(tmp_path, EVIL[name], compress), (X,))
    path = tmp_path / "evil.npy"
    path.write_bytes(EVIL[name])
    with pytest.raises(DlcError, match="unreadable-file"):
        read_data([f"x={path}"], (X,))


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.training.loop.arrays.free_memory", lambda: 1 << 20)
    content = header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1, 2)}") + bytes(8_000_000)
    with pytest.raises(DlcError, match=r"unpacks to 8,000,000 bytes, and 1,048,576 are free") as caught:
        read_data(npz(tmp_path, content, zipfile.ZIP_DEFLATED), (X,))
    assert caught.value.exit_code == ExitCode.LIMIT


@given(st.data())
def test_damage_never_ends_in_anything_but_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("d") / "d.npz"
    write(path, data.draw(st.booleans()), good())
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    try:
        found = read_data([str(path)], (X, Y))
    except DlcError:
        return
    # What zip leaves unprotected are names and times: values are those that were written.
    np.testing.assert_array_equal(found.batch(np.arange(6))["x"], good()["x"])


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (["absent.npz"], "No such file"),
        (["data.csv"], "give FILE.npz or NAME=FILE.npy"),
        (["x.npy"], "does not say which array it is"),
        (["x=d.npz"], "an .npz names its arrays itself"),
        (["d.npz", "x=x.npy"], "is given twice"),
        (["folder.npz"], "Is a directory"),
    ],
)
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], text: str) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("d.npz"), False, good())
    np.save("x.npy", good()["x"])
    Path("data.csv").write_text("1,2\n")
    Path("folder.npz").mkdir()
    with pytest.raises(DlcError) as caught:
        read_data(files, (X, Y))
    assert text in str(caught.value)


@given(st.integers(0, 300), st.integers(0, 2**63), st.integers(-1, 1000))
def test_a_permutation(count: int, seed: int, epoch: int) -> None:
    found = permutation(count, seed, epoch)
    assert sorted(found.tolist()) == list(range(count))
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, permutation(count, seed, epoch))


def test_permutations_differ_and_stay() -> None:
    """Written down: what NumPy does may change from version to version, this may not."""
    assert permutation(8, 0, 0).tolist() == [4, 6, 7, 1, 2, 0, 5, 3]
    orders = {tuple(permutation(20, seed, epoch).tolist()) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


def splitmix(state: int) -> tuple[int, int]:
    """The generator as its authors wrote it, in Python's integers: (next state, number)."""
    mask = (1 << 64) - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return state, z ^ (z >> 31)


def test_the_numbers_are_those_of_the_paper() -> None:
    """The first of seed 1234567, as published with the generator in other libraries."""
    state, found = 1234567, list[int]()
    for _ in range(5):
        state, z = splitmix(state)
        found.append(z)
    assert found[:3] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    keys = [splitmix(k * 0x9E3779B97F4A7C15 & (1 << 64) - 1)[1] for k in range(50)]
    assert permutation(50).tolist() == sorted(range(50), key=keys.__getitem__)


def test_places_are_even() -> None:
    """Row 0 comes to every place about as often: chi-squared of 10 places in 2,000 shuffles."""
    count = np.zeros(10)
    for epoch in range(2000):
        count[permutation(10, 5, epoch).tolist().index(0)] += 1
    assert ((count - 200) ** 2 / 200).sum() < 27.9  # 0.1 % with 9 degrees of freedom
