"""`dlc.load`: arrays in, arrays out, nothing copied, everything that is wrong refused by name."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c import target
from dlc_backend_c.backend import C
from dlc_backend_c.elf import machine_of
from dlc_backend_c.library import Library
from dlc_backend_c.runtime import Argument, Model

import dlc
from dlc import DlcError, ExitCode, Spec
from dlc.base.types import Type, bool_, f16, f32, i64
from dlc.files.hashing import content_sha256
from dlc.graph import Input, evaluate, make_graph
from dlc.ops.elementwise import Add, Not
from dlc.ops.linear import MatMul
from dlc.runtime.calling import input_array
from tests.backend_c.conftest import Compile
from tests.backend_c.models import Array, Bench, constant, numbers, small_net, sums


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    from dlc import Report
    from dlc.runtime.install import install
    from tests.backend_c.models import plan_of

    place = tmp_path_factory.mktemp("sums")
    install(C().build(C().emit(plan_of(sums()), Report()), Bench()), place)
    yield place


@pytest.fixture(scope="module")
def model(directory: Path) -> Model:
    return loaded(directory)


def loaded(directory: Path) -> Model:
    found = C().load(directory)
    assert isinstance(found, Model)
    return found


A, B = numbers(2, 3, seed=1), numbers(2, 3, seed=2)
WANT = evaluate(sums(), {"a": A, "b": B})["y"]


def test_the_signature_is_the_models(model: Model) -> None:
    assert model.inputs == (Argument("a", np.dtype("f4"), (2, 3)), Argument("b", np.dtype("f4"), (2, 3)))
    assert model.outputs == (Argument("y", np.dtype("f4"), (2, 3)),)


def test_inputs_by_name_in_any_form(model: Model) -> None:
    for got in (model(a=A, b=B), model({"a": A, "b": B}), model({"a": A}, b=B), model(A, B), model(A, b=B)):
        np.testing.assert_allclose(got["y"], WANT, rtol=1e-6)


def test_results_are_new_each_time_unless_given(model: Model) -> None:
    first, second = model(a=A, b=B)["y"], model(a=A, b=-B)["y"]
    np.testing.assert_allclose(first, WANT, rtol=1e-6)
    assert not np.array_equal(first, second)
    mine = np.empty((2, 3), np.float32)
    assert model(a=A, b=B, out={"y": mine})["y"] is mine
    np.testing.assert_allclose(mine, WANT, rtol=1e-6)


def test_what_lies_otherwise_is_read_all_the_same(model: Model) -> None:
    skewed = np.frombuffer(b"\0" + A.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)
    frozen = A.copy()
    frozen.flags.writeable = False
    for a in (np.asfortranarray(A), np.repeat(A, 2, axis=1)[:, ::2], skewed, frozen):
        np.testing.assert_allclose(model(a=a, b=B)["y"], WANT, rtol=1e-6)


@dataclass
class Foreign:
    """Another library's tensor."""

    array: Array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack_is_read_in_place(model: Model) -> None:
    np.testing.assert_allclose(model(a=Foreign(A), b=Foreign(B))["y"], WANT, rtol=1e-6)


WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda m: m(a=A), 'missing: "b" (f32[2,3])'),
    (lambda m: m(a=A, b=B, c=A), 'there is no input "c"'),
    (lambda m: m(a=A, bb=B), 'there is no input "bb"'),
    (lambda m: m(a=A.astype("f8"), b=B), 'input "a": expected float32[2,3], found float64[2,3]'),
    (lambda m: m(a=A.astype(">f4"), b=B), 'input "a": expected float32[2,3], found >f4[2,3]'),
    (lambda m: m(a=A, b=B.T), 'input "b": expected float32[2,3], found float32[3,2]'),
    (lambda m: m(a=A, b=[1, 2]), 'input "b": expected float32[2,3], found int64[2]'),
    (lambda m: m(A), 'missing: "b"'),
    (lambda m: m(A, B, A), '3 positional arguments; the program has 2 inputs: "a", "b"'),
    (lambda m: m(A, a=A, b=B), 'input "a" is given twice'),
    (lambda m: m(a=A, b=B, out={"z": A}), 'there is no output "z"'),
    (lambda m: m(a=A, b=B, out={"y": [0.0]}), 'output "y": expected a numpy array, found list'),
    (lambda m: m(a=A, b=B, out={"y": np.empty((3, 2), "f4")}), 'output "y": expected float32[2,3]'),
    (lambda m: m(a=A, b=B, out={"y": np.empty((3, 2), "f4").T}), 'output "y": its buffer must be C-contiguous'),
    (lambda m: m(a=A, b=B, out={"y": np.broadcast_to(A, (2, 3))}), 'output "y": its buffer must be'),
    (lambda m: m(a=A, b=B, out={"y": A}), 'output "y": its buffer overlaps another one'),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments_are_refused_by_name(model: Model, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(DlcError) as found:
        call(model)
    assert message in str(found.value)


def test_a_single_input_needs_no_name_and_may_have_any(compile_model: Compile, tmp_path: Path) -> None:
    graph = small_net("x:0 */ out")
    compile_model(graph, "c{}", tmp_path)
    x = numbers(1, 3, 8, 8)
    m = C().load(tmp_path)
    for got in (m(x), m({"x:0 */ out": x})):
        np.testing.assert_allclose(
            got["features"], evaluate(graph, {"x:0 */ out": x})["features"], rtol=1e-5, atol=1e-6
        )


def test_types_and_sizes_of_every_kind(compile_model: Compile, tmp_path: Path) -> None:
    n, h = Input("n", Type(i64, ())), Input("h", Type(f16, (3,)))
    t, e = Input("t", Type(bool_, (2, 2))), Input("e", Type(i64, (0, 4)))
    graph = make_graph((n, h, t, e), {"n2": Add(n, n), "h2": Add(h, h), "t2": Not(t), "e2": Add(e, e)})
    compile_model(graph, "c{}", tmp_path)
    feeds = {"n": np.array(21), "h": np.array([1, -2, 0.5], "f2"), "t": np.eye(2, dtype=bool)}
    feeds["e"] = np.empty((0, 4), np.int64)
    got = C().load(tmp_path)(feeds)
    for name, want in evaluate(graph, feeds).items():
        assert got[name].dtype == want.dtype and got[name].shape == want.shape
        np.testing.assert_array_equal(got[name], want)


def test_threads_have_working_memory_of_their_own(compile_model: Compile, tmp_path: Path) -> None:
    graph = small_net()
    compile_model(graph, "c{}", tmp_path)
    m = C().load(tmp_path)
    problems: list[int] = []

    def work(seed: int) -> None:
        x = numbers(1, 3, 8, 8, seed=seed)
        want = m(x)["probabilities"].copy()
        problems.extend(k for k in range(200) if not np.array_equal(m(x)["probabilities"], want))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert problems == []


def test_nothing_is_copied_that_can_be_read_in_place(model: Model) -> None:
    port = model.signature.inputs[0]
    assert input_array(port, A) is A
    assert np.shares_memory(input_array(port, Foreign(A)), A)
    half = np.zeros((2, 6), np.float32)[:, :3]
    assert not np.shares_memory(input_array(port, half), half)  # its rows do not follow one another
    whole = np.zeros((4, 3), np.float32)
    model(a=A, b=B, out={"y": whole[2:]})
    np.testing.assert_allclose(whole[2:], WANT, rtol=1e-6)
    assert not whole[:2].any()


def test_arrays_of_the_exact_type_are_not_looked_at_twice(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a small model takes less time than the long way does."""

    def refuse(*_: object) -> None:
        raise AssertionError("the long way")

    monkeypatch.setattr(Library, "call", refuse)
    for got in (model(a=A, b=B), model({"a": A, "b": B}), model({"b": B, "a": A})):
        np.testing.assert_allclose(got["y"], WANT, rtol=1e-6)
        assert got["y"].__array_interface__["data"][0] % 64 == 0
    mine = np.empty((2, 3), np.float32)
    assert model(a=A, b=B, out={"y": mine})["y"] is mine
    np.testing.assert_allclose(mine, WANT, rtol=1e-6)
    with pytest.raises(AssertionError, match="the long way"):
        model(a=A, b=mine, out={"y": mine})
    for other in (np.asfortranarray(A), A.astype(np.float64), A[:1]):
        with pytest.raises(AssertionError, match="the long way"):
            model(a=other, b=B)


def test_other_threads_run_during_a_call(compile_model: Compile, tmp_path: Path) -> None:
    """One call that takes long, so that Python's lock is never given up between calls."""
    x = Input("x", Type(f32, (256, 512)))
    compile_model(make_graph((x,), {"y": MatMul(x, constant(512, 512))}), "c{cpu=generic flags=-O0}", tmp_path)
    m, feeds = C().load(tmp_path), {"x": numbers(256, 512)}
    m(feeds)
    started, ended, steps = threading.Event(), threading.Event(), 0

    def call() -> None:
        started.set()
        m(feeds)
        ended.set()

    thread = threading.Thread(target=call)
    thread.start()
    started.wait()
    while not ended.is_set():
        steps += 1
    thread.join()
    assert steps > 1000


def test_dlc_load_finds_the_backend(directory: Path) -> None:
    np.testing.assert_allclose(dlc.load(directory)(a=A, b=B)["y"], WANT, rtol=1e-6)


def test_what_was_built_again_into_one_directory_is_loaded_anew(compile_model: Compile, tmp_path: Path) -> None:
    x = Input("x", Type(f32, (4,)))
    given, models = np.arange(4, dtype=np.float32), list[Model]()
    for y in (Add(x, x), Add(Add(x, x), x), Add(x, x)):
        compile_model(make_graph((x,), {"y": y}), "c{}", tmp_path)
        models.append(loaded(tmp_path))
    for m, times in zip(models, (2, 3, 2), strict=True):
        np.testing.assert_array_equal(m(given)["y"], times * given)


def test_programs_of_one_library_keep_weights_of_their_own(compile_model: Compile, tmp_path: Path) -> None:
    x = Input("x", Type(f32, (2, 8)))
    models, wanted = list[Model](), list[Array]()
    for seed in (1, 2):
        graph = make_graph((x,), {"y": MatMul(x, constant(8, 3, seed=seed))})
        compile_model(graph, "c{weights=map}", tmp_path)
        models.append(loaded(tmp_path))
        wanted.append(evaluate(graph, {"x": numbers(2, 8)})["y"])
    assert not np.allclose(wanted[0], wanted[1])
    for m, want in zip(models, wanted, strict=True):
        np.testing.assert_allclose(m(numbers(2, 8))["y"], want, rtol=1e-5)


def test_a_library_that_is_not_the_one_described_is_not_loaded(directory: Path, tmp_path: Path) -> None:
    for path in directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    library = tmp_path / "libmodel.so"
    library.write_bytes(library.read_bytes()[:-100] + bytes(100))
    with pytest.raises(DlcError, match="not the library that the manifest describes"):
        C().load(tmp_path)
    library.unlink()
    with pytest.raises(DlcError, match="No such file"):
        C().load(tmp_path)


def test_what_was_built_without_a_shared_library_is_not_loaded(compile_model: Compile, tmp_path: Path) -> None:
    compile_model(sums(), "c{lib=static}", tmp_path)
    with pytest.raises(DlcError, match="holds no shared library"):
        C().load(tmp_path)


@pytest.mark.parametrize(
    ("cpu", "has", "lacks", "help"),
    [
        ("x86-64-v3", "generic", "avx2, bmi1, bmi2, f16c, fma, movbe", "generic"),
        ("x86-64-v4", "x86-64-v3", "avx512bw, avx512cd, avx512dq, avx512f, avx512vl", "x86-64-v3"),
    ],
)
def test_a_library_for_a_larger_cpu_is_refused(
    cpu: str, has: str, lacks: str, help: str, compile_model: Compile, tmp_path: Path, monkeypatch: Any
) -> None:
    compile_model(sums(), f"c{{cpu={cpu}}}", tmp_path)
    monkeypatch.setattr(target, "_features", lambda: target.levels()[has])
    with pytest.raises(DlcError, match=f"the library is built for {cpu}: this processor lacks {lacks}\n") as caught:
        C().load(tmp_path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.diagnostics[0].help == f"build the model again: here, or with c{{cpu={help}}}"
    assert C.from_spec(Spec.parse(f"c{{cpu={help}}}"))


def test_levels_follow_from_flags() -> None:
    known = [target.target_for(name) for name in target.levels()]
    assert [t.cpu for t in known] == [
        "generic",
        "x86-64-v3",
        "x86-64-v3-vnni",
        "x86-64-v4",
        "x86-64-v4-vnni",
        "x86-64-v4-bf16",
    ]
    assert [target.level_of(t.flags) for t in known] == [t.cpu for t in known]
    for level, features in target.levels().items():
        assert target.level_of(target.native(features).flags) == level


def test_a_library_for_another_machine_is_refused(compile_model: Compile, tmp_path: Path) -> None:
    """It says for which, in place of a loader's words."""
    compile_model(sums(), "c{}", tmp_path)
    here = machine_of(tmp_path / "libmodel.so")
    assert here and here == machine_of(Path(sys.executable))
    library = bytearray((tmp_path / "libmodel.so").read_bytes())
    other = 183 if library[18] != 183 else 62
    library[18:20] = other.to_bytes(2, "little")
    (tmp_path / "libmodel.so").write_bytes(library)
    text = json.loads((tmp_path / "manifest.json").read_text())
    text["files"]["libmodel.so"]["sha256"] = content_sha256(bytes(library))
    (tmp_path / "manifest.json").write_text(json.dumps(text))
    name = {183: "aarch64", 62: "x86-64"}[other]
    with pytest.raises(DlcError, match=f"the library is built for {name}, this machine runs {here}") as caught:
        C().load(tmp_path)
    assert caught.value.diagnostics[0].help.startswith("build the model again here")
    assert machine_of(tmp_path / "manifest.json") == machine_of(tmp_path / "absent") == ""
