"""The verifier: programs made by hand are right, and each way to make one wrong is reported with its numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from dlc_backend_s2train.checks import MOST, verify
from dlc_backend_s2train.checks.shapes import fits
from dlc_backend_s2train.codes import NO_FLAGS, Arena, Element, Flag, Role, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Entry, Geometry, Hyper, Program, Storage, Tensor
from hypothesis import given
from hypothesis import strategies as st

from tests.backend_s2train.mutations import mutated, outcome
from tests.backend_s2train.programs import PROGRAMS, Hand, conv_step, forward_conv, linear_step

Change = Callable[[Program], Program]


def number(program: Program, name: str) -> int:
    return next(n for n, t in enumerate(program.tensors) if t.name == name)


def storage(name: str, **values: Any) -> Change:
    """The storage of a tensor becomes another."""

    def change(p: Program) -> Program:
        storages = list(p.storages)
        n = p.tensors[number(p, name)].storage
        storages[n] = replace(storages[n], **values)
        return replace(p, storages=tuple(storages))

    return change


def onto(name: str, other: str) -> Change:
    """The storage of a tensor lies where that of another does."""

    def change(p: Program) -> Program:
        return storage(name, address=p.storages[p.tensors[number(p, other)].storage].address)(p)

    return change


def tensor(name: str, **values: Any) -> Change:
    """A tensor becomes another."""

    def change(p: Program) -> Program:
        n = number(p, name)
        return replace(p, tensors=(*p.tensors[:n], replace(p.tensors[n], **values), *p.tensors[n + 1 :]))

    return change


def instruction(at: int, operands: dict[str, str] | None = None, **values: Any) -> Change:
    """An instruction becomes another; operands by name."""

    def change(p: Program) -> Program:
        old = p.instructions[at]
        found = {slot: number(p, name) for slot, name in (operands or {}).items()}
        made = replace(old, **{"operands": {**old.operands, **found}, **values})
        return replace(p, instructions=(*p.instructions[:at], made, *p.instructions[at + 1 :]))

    return change


def geometry(at: int, **values: Any) -> Change:
    """A geometry becomes another."""

    def change(p: Program) -> Program:
        made = replace(p.geometries[at], **values)
        return replace(p, geometries=(*p.geometries[:at], made, *p.geometries[at + 1 :]))

    return change


def hyper(at: int, **values: Any) -> Change:
    """Hyper-parameters become others."""

    def change(p: Program) -> Program:
        made = replace(p.hypers[at], **values)
        return replace(p, hypers=(*p.hypers[:at], made, *p.hypers[at + 1 :]))

    return change


def order(*numbers: int) -> Change:
    """Instructions in another order; all storages live throughout."""

    def change(p: Program) -> Program:
        rest = p.instructions[len(numbers) :]
        storages = tuple(replace(s, begin=0, end=len(p.instructions)) for s in p.storages)
        return replace(p, instructions=(*(p.instructions[n] for n in numbers), *rest), storages=storages)

    return change


def entry(at: int, **values: Any) -> Change:
    """An entry becomes another."""

    def change(p: Program) -> Program:
        return replace(p, entries=(*p.entries[:at], replace(p.entries[at], **values), *p.entries[at + 1 :]))

    return change


def whole(**values: Any) -> Change:
    """A part of the program becomes another."""
    return lambda p: replace(p, **values)


CASES: dict[str, tuple[Callable[[], Program], Change, str, str]] = {
    "storages share bytes": (
        conv_step,
        onto("pooled", "y.mask"),
        "overlap",
        "storage 6 (features) and storage 8 (features) share 36 bytes at address",
    ),
    "a lifetime beyond the program": (
        conv_step,
        storage("pooled", end=99),
        "bad-storage",
        "from instruction 0 to 99 of 9",
    ),
    "weights that die": (conv_step, storage("w", end=3), "bad-storage", "so it lives from 0 to 9"),
    "weights of another size": (conv_step, storage("w", size=218), "bad-weights", "has 218 bytes, and weights of 216"),
    "weights of the host": (conv_step, storage("w", arena=Arena.HOST), "bad-weights", "outside the arena weights"),
    "weights for nothing": (conv_step, whole(weights={77: b""}), "no-such-number", "given for storage 77 of"),
    "a tensor without storage": (conv_step, tensor("w", storage=99), "no-such-number", "lies in storage 99 of"),
    "a tensor of nothing": (conv_step, tensor("w", shape=(4, 0)), "bad-tensor", "has the shape [4, 0]"),
    "a tensor outside": (conv_step, tensor("w", offset=2), "outside-storage", "has bytes 2 to 218 of storage"),
    "a crooked tensor": (
        conv_step,
        storage("loss", address=514),
        "misaligned",
        "514; fp32 needs multiples of 4",
    ),
    "no such operand": (conv_step, instruction(0, operands={}, geometry=9), "no-such-number", "geometry 9 does not"),
    "no such flag": (conv_step, instruction(0, flags=Flag.MASK_READ), "bad-instruction", "it has no flag mask"),
    "weights turned around": (
        linear_step,
        tensor("w1", shape=(8, 6)),
        "bad-operand",
        'src1, tensor 4 "w1", has the shape [8, 6]; it should be [6, 8, 1, 1]',
    ),
    "labels that are floats": (
        linear_step,
        tensor("label", element=Element.FP32),
        "bad-operand",
        "holds fp32; it",
    ),
    "a mask of bytes": (
        forward_conv,
        tensor("y.mask", element=Element.PTR4),
        "bad-operand",
        "ptr4; it should be bit",
    ),
    "windows that do not fit": (forward_conv, geometry(0, ho=7), "bad-geometry", "7 windows of 3 need 9 rows"),
    "no samples": (forward_conv, geometry(0, n=0), "bad-geometry", "has a size of 0"),
    "groups that do not divide": (forward_conv, geometry(0, groups=2), "bad-geometry", "2 groups do not divide 3"),
    "a kernel of a linear layer": (
        linear_step,
        geometry(0, kh=3, pads=(1, 0, 1, 0)),
        "bad-geometry",
        "a linear layer has maps and kernels of 1 x 1",
    ),
    "samples that are not there": (forward_conv, geometry(0, samples=(1, 3)), "bad-geometry", "samples 1 to 3 of 2"),
    "samples of a loss": (linear_step, geometry(1, samples=(0, 2)), "bad-geometry", "it works on whole batches"),
    "samples inside a byte": (
        linear_step,
        geometry(0, samples=(1, 2)),
        "bad-geometry",
        "sample 1 of mask begins inside a byte",
    ),
    "a result over its operand": (
        linear_step,
        instruction(2, {"dst0": "dy"}, geometry=1),
        "bad-operand",
        "it should be [4, 6, 1, 1]",
    ),
    "a loss scale of 0": (linear_step, hyper(1, scale=0.0), "bad-number", "divides gradients by a loss scale of 0.0"),
    "a read before its write": (
        linear_step,
        order(1, 0),
        "read-before-write",
        'instruction 0 (linear forward): src0, tensor 12 "h", is read, but nothing has written bytes 0 to 48',
    ),
    "an input that is not given": (linear_step, entry(1, inputs=()), "read-before-write", 'in entry "predict"'),
    "an output that is not made": (linear_step, entry(1, begin=14), "read-before-write", 'nothing writes output "y"'),
    "an operand that is dead": (
        linear_step,
        storage("h", end=2),
        "dead-operand",
        'src1, tensor 12 "h", lies in storage 10, which lives from instruction 0 to 2',
    ),
    "an input that is dead": (linear_step, storage("x", begin=1), "dead-operand", "has to live at instruction 0"),
    "a weight after its update": (
        linear_step,
        order(0, 1, 3, 5, 2),
        "stale-weight",
        'src1, tensor 8 "w2", is read after instruction 3 updated it',
    ),
    "an entry outside": (linear_step, entry(1, end=99), "bad-entry", "has the instructions 12 to 99 of"),
    "entries of one name": (linear_step, entry(1, name="step"), "bad-entry", 'two entries "step"'),
    "inputs of one name": (linear_step, entry(1, inputs=(("x", 0), ("x", 0))), "bad-entry", 'two inputs "x"'),
    "an input that is no tensor": (linear_step, entry(1, inputs=(("x", 99),)), "bad-entry", "tensor 99 of 21"),
    "a label that is no number": (linear_step, entry(0, labels=(("label", 0),)), "bad-entry", "it should be int32"),
    "a token that nobody gave": (linear_step, instruction(1, wait=3), "token", "waits for token 3, which nothing"),
    "a token that nobody takes": (linear_step, instruction(1, signal=3), "token", "token 3 of instruction 1 is given"),
}


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_made_by_hand_are_right(make: Callable[[], Program]) -> None:
    assert verify(make()) == []


@pytest.mark.parametrize(("make", "change", "code", "message"), CASES.values(), ids=CASES)
def test_what_is_wrong_is_reported(make: Callable[[], Program], change: Change, code: str, message: str) -> None:
    problems = verify(change(make()))
    assert [p for p in problems if p.code == code and message in p.message], [str(p.message) for p in problems]


def test_all_problems_are_reported_at_once() -> None:
    program = linear_step()
    for change in (storage("h", end=2), instruction(1, wait=3), tensor("dw1", element=Element.PTR4)):
        program = change(program)
    assert {p.code for p in verify(program)} == {"dead-operand", "token", "bad-operand"}


def test_a_token_that_is_given_and_awaited_is_right() -> None:
    assert verify(instruction(3, wait=5)(instruction(1, signal=5)(linear_step()))) == []


def test_a_result_replaces_only_what_is_read_element_by_element() -> None:
    """A relu works in place; a convolution, a half of the bytes and a mask of other elements do not."""
    hand = Hand()
    x = hand.tensor("x", (2, 4, 6, 6), Role.INPUT)
    w = hand.tensor("w", (4, 4, 3, 3), Role.WEIGHT)
    y = hand.tensor("y", (2, 4, 6, 6), Role.OUTPUT)
    other = hand.tensor("other", (3, 4, 6, 6), Role.ACTIVATION)
    low, high = hand.view("low", other, (2, 4, 6, 6)), hand.view("high", other, (2, 4, 6, 6), 288)
    shape = Geometry(2, 4, 4, 6, 6, 6, 6, 3, 3, pads=(1, 1, 1, 1))
    hand.do(Opcode.CONV, Stage.FORWARD, NO_FLAGS, shape, src0=x, src1=w, dst0=y)
    hand.do(Opcode.ELTWISE, Stage.FORWARD, Flag.RELU, src0=y, dst0=y)
    hand.do(Opcode.CONV, Stage.FORWARD, Flag.ADD, shape, src0=x, src1=w, dst0=y, res=y)
    hand.do(Opcode.CONV, Stage.FORWARD, NO_FLAGS, shape, src0=y, src1=w, dst0=low)
    hand.entry("predict", [("x", x)], outputs=[("y", y)])
    assert verify(hand.program()) == []
    hand = replace(hand, instructions=hand.instructions[:-1], entries=[])
    hand.do(Opcode.CONV, Stage.FORWARD, NO_FLAGS, shape, src0=y, src1=w, dst0=y)
    hand.do(Opcode.ELTWISE, Stage.FORWARD, Flag.RELU, src0=low, dst0=high)
    hand.entry("predict", [("x", x)], outputs=[("y", y)])
    assert [(p.code, p.message) for p in verify(hand.program())] == [
        (
            "collision",
            'instruction 4 (conv forward): src0, tensor 2 "y", bytes 0 to 576 of storage 2 and dst0, tensor 2 "y", '
            "bytes 0 to 576 of storage 2, share bytes, and dst0 is written while src0 is read",
        ),
        (
            "collision",
            'instruction 5 (eltwise forward): src0, tensor 4 "low", bytes 0 to 576 of storage 3 and dst0, tensor 5 '
            '"high", bytes 288 to 864 of storage 3, share bytes, and dst0 is written while src0 is read',
        ),
    ]


def split(samples: tuple[int, int], channels: tuple[int, int] = (0, 0)) -> Geometry:
    return Geometry(4, 4, 2, 6, 6, 6, 6, 3, 3, pads=(1, 1, 1, 1), samples=samples, channels=channels)


def by_samples(*parts: tuple[int, int]) -> Program:
    """A convolution in parts of the batch."""
    hand = Hand()
    x, y = hand.tensor("x", (4, 4, 6, 6), Role.INPUT), hand.tensor("y", (4, 2, 6, 6), Role.OUTPUT)
    w = hand.tensor("w", (2, 4, 3, 3), Role.WEIGHT)
    for part in parts:
        hand.do(Opcode.CONV, Stage.FORWARD, NO_FLAGS, split(part), src0=x, src1=w, dst0=y)
    hand.entry("predict", [("x", x)], outputs=[("y", y)])
    return hand.program()


def test_parts_of_a_batch_have_to_be_the_whole() -> None:
    assert verify(by_samples((2, 4), (0, 2))) == []
    (problem,) = verify(by_samples((0, 1), (2, 4)))
    assert problem.message == 'entry "predict": nothing writes output "y", tensor 1 "y", bytes 144 to 288'


def test_parts_of_the_channels_go_through_a_partial_sum() -> None:
    hand = Hand()
    x, y = hand.tensor("x", (4, 4, 6, 6), Role.INPUT), hand.tensor("y", (4, 2, 6, 6), Role.OUTPUT)
    w = [hand.tensor(f"w{k}", (2, 2, 3, 3), Role.WEIGHT) for k in range(2)]
    total = hand.tensor("total", (4, 2, 6, 6), Role.PARTIAL, Element.FP32)
    halves = [split((0, 0), part) for part in ((0, 2), (2, 4))]
    hand.do(Opcode.CONV, Stage.FORWARD, NO_FLAGS, halves[0], src0=x, src1=w[0], dst0=total)
    hand.do(Opcode.CONV, Stage.FORWARD, Flag.RELU, halves[1], src0=x, src1=w[1], dst0=y, aux=total)
    first, second = hand.instructions
    hand.instructions[0] = replace(first, splitting=Splitting.FIRST | Splitting.ACCUMULATE_OUT)
    hand.instructions[1] = replace(second, splitting=Splitting.LAST | Splitting.ACCUMULATE_IN)
    hand.entry("predict", [("x", x)], outputs=[("y", y)])
    assert verify(hand.program()) == []
    hand.instructions[0] = replace(first, splitting=Splitting.FIRST)
    assert {p.code for p in verify(hand.program())} == {"bad-operand", "read-before-write"}


@pytest.mark.parametrize(
    ("flags", "figures", "message"),
    [
        (Flag.DROPOUT, Hyper(keep=-0.5), "dropout keeps with the probability -0.5"),
        (Flag.DROPOUT, Hyper(keep=1.5), "dropout keeps with the probability 1.5"),
        (Flag.BN_TRAIN, Hyper(epsilon=-1.0), "a variance gets an epsilon of -1.0"),
        (Flag.DROPOUT | Flag.BN_TRAIN, Hyper(keep=0.5, epsilon=1e-5), ""),
    ],
)
def test_numbers_have_to_make_sense(flags: Flag, figures: Hyper, message: str) -> None:
    hand = Hand()
    x, y = hand.tensor("x", (4, 8), Role.INPUT), hand.tensor("y", (4, 8), Role.OUTPUT)
    operands = {"src0": x, "dst0": y}
    if Flag.DROPOUT in flags:
        operands["aux"] = hand.tensor("bits", (4, 8), Role.MASK, Element.BIT)
    if Flag.BN_TRAIN in flags:
        operands["bn0"] = hand.tensor("norm", (4, 8), Role.NORM)
        operands["dst1"] = hand.tensor("statistics", (2, 8), Role.NORM, Element.FP32)
    hand.do(Opcode.ELTWISE, Stage.FORWARD, flags, None, figures, **operands)
    hand.entry("predict", [("x", x)], outputs=[("y", y)])
    found = [p.message for p in verify(hand.program()) if p.code == "bad-number"]
    assert len(found) == bool(message) and all(message in f for f in found)
    assert message or verify(hand.program()) == []


small = st.integers(0, 12)
spans = st.lists(st.tuples(small, st.integers(0, 5), small, st.integers(0, 5), st.sampled_from(Arena)), max_size=12)


@given(spans)
def test_overlaps_are_those_of_the_definition(found: list[tuple[int, int, int, int, Arena]]) -> None:
    """Against every pair of storages, byte by byte and instruction by instruction."""
    arenas = [Arena.FEATURES if arena is Arena.WEIGHTS else arena for *_, arena in found]
    storages = tuple(
        Storage(arena, a, size, b, b + life) for (a, size, b, life, _), arena in zip(found, arenas, strict=True)
    )
    hand = Hand()
    for _ in range(20):
        hand.do(Opcode.NOP)
    want: set[tuple[int, int]] = set()
    for (n, one), (m, other) in combinations(enumerate(storages), 2):
        bytes_ = set(range(one.address, one.address + one.size)) & set(range(other.address, other.address + other.size))
        steps = set(range(one.begin, one.end)) & set(range(other.begin, other.end))
        if bytes_ and steps:
            want.add((n, m))
    problems = verify(replace(hand.program(), storages=storages))
    text = {tuple(sorted(int(word.split()[0]) for word in p.message.split("storage ")[1:3])) for p in problems}
    assert text == want and len(problems) == len(want)


piece = st.tuples(st.integers(0, 7), st.integers(1, 5)).map(lambda p: (p[0], min(p[1], 8 - p[0])))


@given(st.lists(piece, max_size=8), piece)
def test_what_is_written_piece_by_piece_is_known(pieces: list[tuple[int, int]], wanted: tuple[int, int]) -> None:
    """Against a set of bytes: what is read of 16 bytes is there when the pieces that were written cover it."""
    hand = Hand()
    y = hand.tensor("y", (8,), Role.OUTPUT)
    written: set[int] = set()
    for begin, count in pieces:
        hand.do(Opcode.FILL, dst0=hand.view(f"y.{begin}.{count}", y, (count,), 2 * begin))
        written |= set(range(2 * begin, 2 * (begin + count)))
    begin, count = wanted
    copy = hand.tensor("copy", (count,), Role.OUTPUT)
    hand.do(Opcode.COPY, src0=hand.view("read", y, (count,), 2 * begin), dst0=copy)
    hand.entry("part", outputs=[("copy", copy)])
    missing = sorted(set(range(2 * begin, 2 * (begin + count))) - written)
    problems = verify(hand.program())
    assert len(problems) == bool(missing)
    if missing:
        end = next(k for k in range(missing[0], 17) if k not in missing)
        assert f"nothing has written bytes {missing[0]} to {end} in" in problems[0].message


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((2, 36), (2, 4, 3, 3), True),
        ((6, 1, 1), (6,), True),
        ((), (1, 1), True),
        ((4, 6), (6, 4), False),
        ((2, 12), (4, 6), False),
        ((8,), (9,), False),
    ],
)
def test_shapes_that_only_divide_dimensions_fit(one: tuple[int, ...], other: tuple[int, ...], same: bool) -> None:
    assert fits(one, other) == fits(other, one) == same


def test_thousands_of_storages_take_little_time() -> None:
    """As in a comb: half of them live to the end, the others for one instruction each, above all of those."""
    count, steps = 10_000, 500
    hand = Hand()
    hand.do(Opcode.NOP)
    lasting = [Storage(Arena.FEATURES, 64 * n, 64, n % steps, steps) for n in range(count)]
    passing = [Storage(Arena.FEATURES, 64 * (count + n // steps), 64, n % steps, n % steps + 1) for n in range(count)]
    program = replace(hand.program(), instructions=hand.program().instructions * steps)
    began = time.process_time()
    assert verify(replace(program, storages=(*lasting, *passing))) == []
    assert time.process_time() - began < 5


def test_problems_without_end_are_cut_off() -> None:
    hand = Hand()
    hand.do(Opcode.NOP)
    storages = (Storage(Arena.FEATURES, 0, 64, 0, 1),) * 5000
    tensors = tuple(Tensor(f"t{n}", n, (9, 9, 9), Element.FP32, Role.ACTIVATION) for n in range(5000))
    problems = verify(replace(hand.program(), storages=storages, tensors=tensors, entries=(Entry("e", 0, 9),)))
    assert len(problems) == MOST


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_damaged_files_are_refused_or_found_wrong_or_run(first: int) -> None:
    """Never another exception; `benchmarks/s2t_fuzz.py` does the same with as many as one wants."""
    outcomes = {outcome(mutated(number)) for number in range(first, first + 100)}
    assert outcomes >= {"refused", "wrong", "valid"}
