"""Training programs called with arrays: what moves what, what is refused, and what is equal to the last bit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_c.training_runtime import TrainingModel
from hypothesis import given, settings
from hypothesis import strategies as st

import dlc
from dlc import DlcError
from dlc.api.training_program import TrainingProgram
from dlc.base.types import Array, Type, f16, f32
from dlc.graph import Constant, Graph, Input, Tensor, make_graph
from dlc.ops.linear import Gemm
from tests.backend_c.bundles import bundle_of, trainer
from tests.backend_c.models import Bench, numbers
from tests.training.nets import BATCH, NETS, module_of, relative_error, torch_step

ADAM = "optimizer=adam{lr=0.01}"
MLP = NETS["mlp"]
BATCHES = MLP.batches(12)
X, Y = BATCHES[0]
Make = Callable[..., TrainingModel]


@pytest.fixture(scope="module")
def make(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """`make(options)`: a new program of the small network, built once for each options."""
    known: dict[tuple[str, int], Path] = {}

    def program(options: str = ADAM, batch: int = BATCH) -> TrainingModel:
        key = options, batch
        if key not in known:
            known[key] = tmp_path_factory.mktemp("net")
            return trainer(bundle_of(MLP.graph(module_of(MLP), batch), options), known[key], bench)
        found = dlc.load(known[key])
        assert isinstance(found, TrainingModel)
        return found

    return program


def memory(program: TrainingProgram) -> dict[str, bytes]:
    """All that training depends on."""
    return {n: a.tobytes() for part in (program.parameters(), program.state()) for n, a in part.items()}


def run(program: TrainingProgram, steps: int = 12) -> list[float]:
    return [program.train_step(x, y) for x, y in BATCHES[:steps]]


@pytest.mark.parametrize("options", [ADAM, f"{ADAM} updates=immediate"])
def test_it_learns_what_pytorch_learns(options: str, make: Make) -> None:
    program, module = make(options), module_of(MLP)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    want = [torch_step(module, optimizer, x, y) for x, y in BATCHES]
    np.testing.assert_allclose(run(program), want, rtol=1e-5)
    for name, weight in module.named_parameters():
        assert relative_error(program.parameters()[name], weight.detach().numpy()) < 1e-5
    scores = module(torch.from_numpy(X)).detach().numpy()  # pyright: ignore[reportUnknownMemberType]
    np.testing.assert_allclose(program(X)["scores"], scores, rtol=1e-4, atol=1e-6)
    judged = program.evaluate(X, Y)
    np.testing.assert_array_equal(judged["scores"], program(X)["scores"])
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(judged["scores"]), torch.from_numpy(Y))  # pyright: ignore
    assert float(judged["loss"]) == pytest.approx(float(loss), rel=1e-5)


def test_immediate_updates_give_the_bits_of_final_ones(make: Make) -> None:
    final, immediate = make(ADAM), make(f"{ADAM} updates=immediate")
    assert run(final) == run(immediate)
    assert memory(final) == memory(immediate)
    assert not immediate.gradients() and list(final.gradients()) == list(final.parameters())


def test_gradients_are_those_of_pytorch(make: Make) -> None:
    program, module = make(ADAM), module_of(MLP)
    program.train_step(X, Y)
    torch_step(module, torch.optim.SGD(module.parameters(), lr=0.0), X, Y)
    for name, weight in module.named_parameters():
        assert weight.grad is not None
        assert relative_error(program.gradients()[name], weight.grad.numpy()) < 1e-5


def test_summed_steps_are_one_step_on_all_their_rows(make: Make) -> None:
    summed, whole = make("optimizer=adam{lr=0.01} accumulate=4"), make(ADAM, 4 * BATCH)
    start = {n: a.copy() for n, a in summed.parameters().items()}
    for k in range(0, 12, 4):
        for x, y in BATCHES[k : k + 3]:
            summed.train_step(x, y)
            assert k or all(np.array_equal(a, start[n]) for n, a in summed.parameters().items())
        summed.train_step(*BATCHES[k + 3])
        whole.train_step(*(np.concatenate([b[i] for b in BATCHES[k : k + 4]]) for i in (0, 1)))
        for name, weight in whole.parameters().items():
            assert relative_error(summed.parameters()[name], weight) < 1e-4, (k, name)


def test_a_checkpoint_between_summed_steps_goes_on_to_the_same_bits(make: Make) -> None:
    options = "optimizer=sgd{lr=0.1 momentum=0.9} accumulate=4"
    straight, other = make(options), make(options)
    run(straight)
    run(other, 6)
    resumed = make(options)
    resumed.restore(other.checkpoint())
    for x, y in BATCHES[6:]:
        resumed.train_step(x, y)
    assert memory(resumed) == memory(straight)


@pytest.mark.parametrize("options", [ADAM, f"{ADAM} updates=immediate"])
def test_a_run_that_goes_on_from_a_checkpoint_gives_the_same_bits(options: str, make: Make) -> None:
    straight, first, second = make(options), make(options), make(options)
    losses = run(straight)
    run(first, 5)
    second.restore(first.checkpoint())
    assert [second.train_step(x, y) for x, y in BATCHES[5:]] == losses[5:]
    assert memory(second) == memory(straight)
    second.reset()
    assert run(second) == losses and memory(second) == memory(straight)


@settings(max_examples=150)
@given(st.data())
def test_a_checkpoint_with_one_other_byte_is_refused(make: Make, data: st.DataObject) -> None:
    program = make(ADAM)
    run(program, 2)
    whole = program.checkpoint()
    before = memory(program)
    at = data.draw(st.integers(0, len(whole) - 1))
    other = bytearray(whole)
    other[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DlcError, match="bad-checkpoint"):
        program.restore(bytes(other))
    assert memory(program) == before


@given(st.binary(max_size=200))
def test_what_is_no_checkpoint_is_refused(make: Make, content: bytes) -> None:
    program = make(ADAM)
    before = memory(program)
    for given_ in (content, program.checkpoint()[: len(content)], program.checkpoint() + content + b"\0"):
        with pytest.raises(DlcError, match="bad-checkpoint"):
            program.restore(given_)
    assert memory(program) == before


def test_a_checkpoint_tells_what_is_wrong_with_it(make: Make) -> None:
    program, other = make(ADAM), make("optimizer=sgd")
    whole = program.checkpoint()
    wrong = {
        b"": "it is none",
        whole[:20]: "it ends after 20 bytes",
        whole[:8] + b"\x09" + whole[9:]: "it has version 9, not 1",
        whole[:-64]: f"it has {len(whole) - 64} bytes, not {len(whole)}",
        whole[:-1] + b"\x01": "its checksum is another",
        other.checkpoint(): "it is of another program",
    }
    for content, reason in wrong.items():
        with pytest.raises(DlcError, match=reason):
            program.restore(content)


@pytest.mark.parametrize("other", ["text", 3, None, [b"dlc"], np.zeros(64, np.uint8)[::2]])
def test_what_is_no_bytes_is_no_checkpoint(make: Make, other: Any) -> None:
    program = make(ADAM)
    before = memory(program)
    with pytest.raises(DlcError, match=r"\[bad-checkpoint\].*of type (str|int|NoneType|list|ndarray)"):
        program.restore(other)
    assert memory(program) == before


def test_bytes_of_any_kind_are_a_checkpoint(make: Make) -> None:
    program = make(ADAM)
    whole = program.checkpoint()
    for kind in (bytearray(whole), memoryview(whole), np.frombuffer(whole, np.float32)):
        run(program, 2)
        program.restore(kind)  # pyright: ignore[reportArgumentType]
        assert program.checkpoint() == whole


def test_a_label_that_is_none_is_reported_and_moves_nothing(make: Make) -> None:
    for options in (ADAM, f"{ADAM} updates=immediate"):
        program = make(options)
        before, wrong = memory(program), Y.copy()
        wrong[3] = 5
        for call in (program.train_step, program.evaluate):
            with pytest.raises(DlcError, match=r'"y": 5 at \[3\] is not a valid label: labels are 0 to 4') as found:
                call(X, wrong)
            assert found.value.diagnostics[0].code == "bad-label"
        assert memory(program) == before
    ignoring = make("loss=cross-entropy{ignore=-1} optimizer=sgd")
    wrong[3] = -1
    assert np.isfinite(ignoring.train_step(X, wrong))
    wrong[3] = -2
    with pytest.raises(DlcError, match="or -1 for what does not count"):
        ignoring.train_step(X, wrong)


def test_a_loss_that_is_not_finite_moves_no_weight(make: Make) -> None:
    program, bad, large = make(ADAM), X.copy(), X.copy()
    run(program, 2)
    bad[0, 0], large[0, 0] = np.nan, np.inf
    before = memory(program)
    with pytest.raises(DlcError, match="the loss is nan; no weight has changed") as found:
        program.train_step(bad, Y)
    assert found.value.diagnostics[0].code == "not-finite"
    assert {n for n, b in memory(program).items() if b != before[n]} == {"step"}
    assert np.isnan(program.evaluate(bad, Y)["loss"])
    # tanh is 1 there, and its derivative 0 times infinity
    assert np.isfinite(program.evaluate(large, Y)["loss"])
    with pytest.raises(DlcError, match="a gradient is infinite or NaN; no weight has changed"):
        program.train_step(large, Y)
    assert {n for n, b in memory(program).items() if b != before[n]} == {"step"}
    assert np.isfinite(program.train_step(X, Y))
    immediate = make(f"{ADAM} updates=immediate")
    with pytest.raises(DlcError, match="some weights may have changed"):
        immediate.train_step(bad, Y)


def test_one_bad_step_of_several_stops_their_update(make: Make) -> None:
    program, bad = make("optimizer=sgd accumulate=4"), X.copy()
    before, bad[0, 0] = {n: a.copy() for n, a in program.parameters().items()}, np.nan
    for k in range(4):
        if k == 1:
            with pytest.raises(DlcError, match="the loss is nan"):
                program.train_step(bad, Y)
        elif k == 3:
            with pytest.raises(DlcError, match="a gradient is infinite or NaN"):
                program.train_step(X, Y)
        else:
            program.train_step(X, Y)
    assert all(np.array_equal(a, before[n]) for n, a in program.parameters().items())
    for x, y in BATCHES[:4]:  # the next four begin anew
        program.train_step(x, y)
    assert all(np.isfinite(a).all() and not np.array_equal(a, before[n]) for n, a in program.parameters().items())


def test_programs_that_average_gradients_are_one_program_on_all_rows(make: Make) -> None:
    halves, whole = [make(ADAM) for _ in range(2)], make(ADAM, 2 * BATCH)
    barrier, flats = threading.Barrier(2), list[Array]()

    def average(flat: Array) -> None:
        flats.append(flat)
        barrier.wait(60)
        if barrier.wait(60) == 0:
            first, second = flats
            first[:] = second[:] = (first + second) / 2
            flats.clear()
        barrier.wait(60)

    def train(k: int) -> None:
        for step in range(0, 12, 2):
            halves[k].train_step(*BATCHES[step + k])

    for half in halves:
        half.all_reduce(average)
    threads = [threading.Thread(target=train, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for step in range(0, 12, 2):
        whole.train_step(*(np.concatenate([BATCHES[step + k][i] for k in range(2)]) for i in (0, 1)))
    for thread in threads:
        thread.join(60)
    assert memory(halves[0]) == memory(halves[1])
    for name, weight in whole.parameters().items():
        assert relative_error(halves[0].parameters()[name], weight) < 1e-4, name


def test_an_exception_of_the_hook_comes_out_and_moves_nothing(make: Make) -> None:
    program = make(ADAM)
    seen: list[int] = []

    def broken(flat: Array) -> None:
        seen.append(flat.size)
        raise ConnectionError("the other end is gone")

    before = {n: a.copy() for n, a in program.parameters().items()}
    program.all_reduce(broken)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="the other end is gone"):
            program.train_step(X, Y)
    assert all(np.array_equal(a, before[n]) for n, a in program.parameters().items())
    program.all_reduce(None)
    program.train_step(X, Y)
    assert seen == [program.facts["gradients_bytes"] // 4] * 2  # pyright: ignore[reportOperatorIssue]
    with pytest.raises(DlcError, match="as soon as its gradient is known"):
        make(f"{ADAM} updates=immediate").all_reduce(broken)


def test_threads_that_train_at_the_same_time_give_the_same_bits(make: Make) -> None:
    programs = [make(ADAM) for _ in range(3)]
    found: list[list[float]] = [[], [], []]

    def train(k: int) -> None:
        found[k] += run(programs[k])

    threads = [threading.Thread(target=train, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    train(2)
    assert found[0] == found[1] == found[2]
    assert memory(programs[0]) == memory(programs[1]) == memory(programs[2])


def test_what_is_set_is_what_it_goes_on_with(make: Make) -> None:
    program = make(ADAM)
    for view in program.parameters().values():
        assert view.ctypes.data % 64 == 0 and view.flags.writeable
        view[...] = 0
    np.testing.assert_array_equal(program(X)["scores"], np.zeros((BATCH, 5), np.float32))
    assert program.state()["step"] == 0
    program.train_step(x=X, y=Y)
    assert program.state()["step"] == 1 and program.state()["step"].shape == ()


WRONG: list[tuple[Callable[[TrainingModel], Any], str]] = [
    (lambda p: p.train_step(X), 'missing: "y" (i64[8])'),
    (lambda p: p.train_step(x=X), 'missing: "y" (i64[8])'),
    (lambda p: p.train_step(X, Y, Y), "3 positional arguments"),
    (lambda p: p.train_step(Y, X), 'input "x": expected float32[8,12], found int64[8]'),
    (lambda p: p.train_step(X[:4], Y[:4]), 'input "x": expected float32[8,12], found float32[4,12]'),
    (lambda p: p.train_step(X, Y.astype(np.int32)), 'input "y": expected int64[8], found int32[8]'),
    (lambda p: p.evaluate(X, Y, z=X), 'there is no input "z"'),
    (lambda p: p(X, Y), "2 positional arguments"),
    (lambda p: p.save_onnx("model.onnx"), "the model cannot be exported"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments_are_refused_by_name(call: Callable[[TrainingModel], Any], message: str, make: Make) -> None:
    program = make(ADAM)
    before = memory(program)
    with pytest.raises(DlcError) as found:
        call(program)
    assert message in str(found.value)
    assert memory(program) == before


def test_gradients_of_several_types_are_not_one_array(bench: Bench, tmp_path: Path) -> None:
    graph = mixed()
    program = trainer(bundle_of(graph, "loss=mse optimizer=sgd{lr=0.1}"), tmp_path, bench)
    assert {a.dtype for a in program.gradients().values()} == {np.dtype("f2"), np.dtype("f4")}
    with pytest.raises(DlcError, match="several types: float16, float32"):
        program.all_reduce(lambda flat: None)


def mixed() -> Graph:
    """f32 → f16: a layer of each type."""
    from dlc.ops.elementwise import Cast

    x = Input("x", Type(f32, (4, 3)))
    w = Constant(Tensor.of(numbers(3, 2, seed=1)), "w")
    v = Constant(Tensor.of(numbers(2, 2, seed=2).astype(np.float16)), "v")
    return make_graph((x,), {"y_": Cast(Gemm(Cast(Gemm(x, w, None), to=f16), v, None), to=f32)})
