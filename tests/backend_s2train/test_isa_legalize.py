"""Instructions as words of version 1: the published words again, reasons, and numbers given anew."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from dlc_backend_s2train.codes import NO_FLAGS, Arena, Element, Flag, Role, Slot, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Instruction, Program, Storage, Tensor
from dlc_backend_s2train.v1 import encoding as v1
from dlc_backend_s2train.v1.legalize import from_v1, number_tensors, to_v1
from hypothesis import given
from hypothesis import strategies as st

VECTORS = json.loads((Path(__file__).parent.parent / "data" / "s2train" / "vectors.json").read_text("utf-8"))
DIRECTED: list[dict[str, Any]] = VECTORS["instr_directed"]
PROGRAM = [bytes.fromhex(vector["hex"]) for vector in VECTORS["instr_resnet18_b4_imm"]]
F, S, Op = Flag, Stage, Opcode


def program(instructions: Sequence[Instruction], geometries: Sequence[Geometry] = (), count: int = 600) -> Program:
    """`count` tensors of four axes, each with a storage of its own; the first ten are weights."""
    end = len(instructions)
    arenas = [Arena.WEIGHTS if t < 10 else Arena.FEATURES for t in range(count)]
    tensors = tuple(Tensor(f"t{t}", t, (1, 1, 1, 1), Element.FP16, Role.ACTIVATION) for t in range(count))
    storages = tuple(Storage(arena, 64 * t, 2, 0, end) for t, arena in enumerate(arenas))
    return Program(tensors, storages, tuple(geometries), (), tuple(instructions), ())


def instruction_of(word: v1.Word, geometry: int) -> Instruction:
    """An instruction that does what a word says; tensors that the word does not name are 500 and on."""
    opcode = Op.CONV if word.op == "conv" else Op.LINEAR
    on: dict[str, Any] = {field.name: getattr(word, field.name) for field in fields(word)}
    splitting = Splitting.LAST | (Splitting.ACCUMULATE_IN if on.get("part_sum") else Splitting.FIRST)
    extra: dict[Slot, int] = {"aux": 500} if on.get("part_sum") or on.get("softmax") else {}
    flags = NO_FLAGS
    match word:
        case v1.Forward():
            flags |= (F.RELU | F.MASK_WRITE) * word.relu | (F.POOL_2 | F.POINTER_WRITE) * word.maxpool
            flags |= F.ADD * word.add | F.BN_FORWARD * word.bn | F.SOFTMAX_CE * word.softmax
            slots = {"src0": "in_feature", "src1": "weight", "dst0": "output", "mask": "relu_mask"}
            slots |= {"ptr": "pool_mask", "bn0": "bn_use", "res": "res_add"}
        case v1.Backward():
            flags |= F.MASK_READ * word.relu | (F.POOL_2 | F.POINTER_READ) * word.maxpool | F.ADD * word.add
            flags |= F.BN_BACKWARD * (word.bn > 0) | F.BN_BACKWARD_2 * (word.bn > 1)
            slots = {"src0": "output_grad", "src1": "weight", "dst0": "input_grad", "mask": "relu_mask"}
            slots |= {"ptr": "pool_mask", "bn0": "bn_use", "bn1": "bn_use2"}
            extra |= {"res": 501} if word.add else {}
            extra |= {"dst1": 502} if word.bn > 1 else {}
        case v1.WeightGradient():
            slots = {"src0": "output_grad", "src1": "input", "dst0": "weight_grad"}
        case v1.WeightUpdate():
            opcode, slots = Op.UPDATE, {"src0": "weight_grad", "dst0": "weight"}
    operands: dict[Any, int] = {slot: on[name] for slot, name in slots.items() if on[name] is not None}
    hyper = 0 if opcode is Op.UPDATE else None
    return Instruction(opcode, word.stage, Flag(flags), splitting, geometry, hyper, operands | extra)


def said_again(words: Sequence[v1.Word]) -> list[v1.Word]:
    """The words after they were instructions."""
    geometries: list[Geometry] = []
    for word in words:
        kernel, stride = getattr(word, "kernel", 1), getattr(word, "stride", 1)
        geometries.append(Geometry(1, 1, 1, kh=kernel, kw=kernel, stride=(stride, stride)))
    made = program([instruction_of(word, at) for at, word in enumerate(words)], geometries)
    # Updates know a linear layer by its weights' two axes.
    linear = {word.weight for word in words if isinstance(word, v1.WeightUpdate) and word.op == "linear"}
    tensors = tuple(replace(t, shape=(1, 1)) if n in linear else t for n, t in enumerate(made.tensors))
    legacy = to_v1(replace(made, tensors=tensors))
    assert legacy.complete
    return list(from_v1(legacy.words.values()))


@pytest.mark.parametrize("vector", DIRECTED, ids=lambda v: v["name"])
def test_a_directed_word_is_made_again(vector: dict[str, Any]) -> None:
    word = v1.decode(bytes.fromhex(vector["hex"]))
    # What the published emitters always write, whatever the layer is.
    expected = replace(word, net="resnet")
    if isinstance(expected, v1.Forward | v1.Backward):
        expected = replace(expected, padding="none")
    if isinstance(expected, v1.WeightGradient):
        expected = replace(expected, stride=1, kernel=1)
    assert said_again([word]) == [expected]


def test_the_published_program_is_made_again() -> None:
    words = from_v1(PROGRAM)
    assert [v1.encode(word) for word in said_again(words)] == PROGRAM


def test_a_residual_backward_leaves_addend_and_second_gradient_out() -> None:
    operands: dict[Slot, int] = {"src0": 88, "src1": 70, "dst0": 90, "dst1": 91, "mask": 68, "res": 40}
    flags = F.ADD | F.MASK_READ | F.BN_BACKWARD | F.BN_BACKWARD_2
    two = Instruction(Op.CONV, S.BACKWARD, flags, geometry=0, operands={**operands, "bn0": 64, "bn1": 67})
    legacy = to_v1(program([two, Instruction(Op.END)], [Geometry(1, 1, 1, kh=3, kw=3)]))
    assert [word.hex() for word in legacy.words.values()] == [DIRECTED[20]["hex"]]
    assert legacy.implicit == {0: "dst1, res"}
    one = replace(two, flags=F.ADD | F.MASK_READ | F.BN_BACKWARD, operands={**operands, "bn0": 64})
    legacy = to_v1(program([one], [Geometry(1, 1, 1, kh=3, kw=3)]))
    (word,) = from_v1(legacy.words.values())
    assert isinstance(word, v1.Backward)
    assert (word.add, word.bn, word.bn_use, word.bn_use2) == (True, 1, 64, None)
    assert legacy.implicit == {0: "dst1, res"}


def test_an_addend_behind_one_norm_leaves_that_norm_out() -> None:
    operands: dict[Slot, int] = {"src0": 88, "src1": 70, "dst0": 90, "res": 40, "bn1": 64}
    single = Instruction(Op.CONV, S.BACKWARD, F.ADD_SINGLE, geometry=0, operands=operands)
    legacy = to_v1(program([single], [PLAIN]))
    (word,) = from_v1(legacy.words.values())
    assert isinstance(word, v1.Backward)
    assert (word.add, word.bn) == (True, 0)
    assert legacy.implicit == {0: "res, bn1, add_single"}


def test_an_update_is_that_of_the_layer_which_reads_the_weight() -> None:
    layer = Instruction(Op.LINEAR, geometry=0, operands={"src0": 10, "src1": 1, "dst0": 12})
    other = Instruction(Op.CONV, S.WEIGHT_GRADIENT, geometry=0, operands={"src0": 10, "src1": 1, "dst0": 12})
    update = Instruction(Op.UPDATE, S.WEIGHT_UPDATE, hyper=0, operands={"src0": 12, "dst0": 1, "aux": 2})
    # Four axes alone would be a convolution's.
    legacy = to_v1(program([layer, other, update], [PLAIN]))
    assert [word.op for word in from_v1(legacy.words.values())] == ["linear", "conv", "linear"]
    assert legacy.implicit == {2: "aux"}
    (alone,) = from_v1(to_v1(program([update])).words.values())
    assert alone.op == "conv"


PLAIN = Geometry(1, 1, 1)
CONV: dict[Slot, int] = {"src0": 10, "src1": 1, "dst0": 12}
UNSAYABLE = [
    (Instruction(Op.CONV, flags=F.RELU, geometry=0, operands=CONV), PLAIN, "relu always writes its mask"),
    (Instruction(Op.CONV, flags=F.POOL_2, geometry=0, operands=CONV), PLAIN, "a pool always writes its pointers"),
    (
        Instruction(Op.LINEAR, flags=F.DROPOUT, geometry=0, hyper=0, operands={**CONV, "aux": 20}),
        PLAIN,
        "no bit says dropout",
    ),
    (
        Instruction(Op.CONV, S.WEIGHT_UPDATE, geometry=0, hyper=0, operands=CONV),
        PLAIN,
        "no word says a gradient that is applied at once",
    ),
    (Instruction(Op.CONV, geometry=0, operands=CONV), replace(PLAIN, kh=5, kw=5), "no code says kernel 5 x 5"),
    (Instruction(Op.CONV, geometry=0, operands=CONV), replace(PLAIN, kh=1, kw=3), "no code says kernel 1 x 3"),
    (Instruction(Op.CONV, geometry=0, operands=CONV), replace(PLAIN, stride=(2, 1)), "no code says stride 2 x 1"),
    (Instruction(Op.CONV, geometry=0, operands=CONV), replace(PLAIN, dilation=(2, 2)), "no field says dilation 2 x 2"),
    (Instruction(Op.CONV, geometry=0, operands=CONV), replace(PLAIN, groups=3), "no field says 3 groups"),
]


@pytest.mark.parametrize(("instruction", "geometry", "reason"), UNSAYABLE, ids=[reason for _, _, reason in UNSAYABLE])
def test_what_no_word_says_has_a_reason(instruction: Instruction, geometry: Geometry, reason: str) -> None:
    fine = Instruction(Op.CONV, geometry=1, operands=CONV)
    legacy = to_v1(program([fine, instruction], [geometry, PLAIN]))
    # The others have their words all the same.
    assert list(legacy.words) == [0]
    assert legacy.reasons == {1: reason}
    assert not legacy.complete


WITHOUT = {
    "a stage of its own": Instruction(Op.ELTWISE, flags=F.RELU, operands={"src0": 10, "dst0": 11}),
    "copy": Instruction(Op.COPY, operands={"src0": 10, "dst0": 11}),
    "loss": Instruction(Op.LOSS, flags=F.SOFTMAX_CE, operands={"src0": 10, "aux": 20, "dst0": 11}),
    "gradient of a bias": Instruction(Op.CONV, S.WEIGHT_GRADIENT, geometry=0, operands={"src0": 10, "dst0": 11}),
    "update of a vector": Instruction(Op.UPDATE, S.WEIGHT_UPDATE, hyper=0, operands={"src0": 11, "dst0": 7}),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_what_version_1_does_not_have_is_left_out(name: str) -> None:
    fine = Instruction(Op.CONV, geometry=0, operands=CONV)
    made = program([WITHOUT[name], fine], [PLAIN])
    tensors = tuple(replace(t, shape=(3,)) if n == 7 else t for n, t in enumerate(made.tensors))
    legacy = to_v1(replace(made, tensors=tensors))
    assert (list(legacy.words), legacy.without) == ([1], (0,))
    assert legacy.complete


def test_instructions_without_arithmetic_have_no_word() -> None:
    view = Instruction(Op.COPY, operands={"src0": 10, "dst0": 11})
    made = program([Instruction(Op.NOP), view, Instruction(Op.BARRIER), Instruction(Op.END)])
    tensors = list(made.tensors)
    tensors[11] = replace(tensors[11], storage=10)
    legacy = to_v1(replace(made, tensors=tuple(tensors)))
    assert (legacy.words, legacy.reasons, legacy.without) == ({}, {}, ())


def chain(length: int) -> Program:
    """Layers one behind the other over more tensors than version 1 has numbers; all share weight 0."""
    steps = [
        Instruction(Op.CONV, geometry=0, operands={"src0": 10 + at, "src1": 0, "dst0": 11 + at}) for at in range(length)
    ]
    return program(steps, [PLAIN], count=length + 11)


def test_a_chain_of_many_tensors_needs_few_numbers() -> None:
    legacy = to_v1(chain(2000))
    assert legacy.complete
    assert list(legacy.words) == list(range(2000))
    assert legacy.numbers == 3  # the weight, what a layer reads, what it writes
    for at, word in enumerate(from_v1(legacy.words.values())):
        numbers = v1.tensors_of(word)
        assert len(set(numbers.values())) == 3
        holders = {e.number: e.tensor for e in legacy.numbering if e.begin <= at < e.end}
        assert [holders[numbers[name]] for name in ("in_feature", "weight", "output")] == [10 + at, 0, 11 + at]


def test_up_to_512_tensors_keep_their_numbers() -> None:
    legacy = to_v1(chain(501))
    assert all(entry.number == entry.tensor for entry in legacy.numbering)
    assert to_v1(chain(502)).numbers == 3


def test_more_tensors_in_use_at_once_than_numbers_are_a_reason() -> None:
    there = [Instruction(Op.CONV, geometry=0, operands={"src0": 10, "src1": 0, "dst0": 11 + at}) for at in range(600)]
    back = [
        Instruction(Op.CONV, S.BACKWARD, geometry=0, operands={"src0": 11 + at, "src1": 0, "dst0": 700})
        for at in reversed(range(600))
    ]
    legacy = to_v1(program(there + back, [PLAIN], count=701))
    # The weight, the input and 510 outputs have numbers; each of the others is written once and read once.
    assert legacy.numbers == 602
    assert len(legacy.reasons) == 2 * (600 - 510)
    assert legacy.reasons[599] == "more than 512 tensors are in use: it needs number 601"
    assert len(legacy.words) == 1200 - len(legacy.reasons)


@given(st.lists(st.lists(st.integers(0, 24), min_size=1, max_size=5), max_size=30), st.integers(0, 30))
def test_no_two_tensors_in_use_share_a_number(uses: list[list[int]], limit: int) -> None:
    made = program([Instruction(Op.NOP)] * len(uses), count=25)
    numbered = number_tensors(made, list(enumerate(uses)), limit)
    assert {entry.tensor for entry in numbered} == {tensor for tensors in uses for tensor in tensors}
    for entry in numbered:
        touched = [at for at, tensors in enumerate(uses) if entry.tensor in tensors]
        assert entry.begin <= touched[0] <= touched[-1] < entry.end
        if entry.tensor < 10 or all(t < limit for tensors in uses for t in tensors):
            assert (entry.begin, entry.end) == (0, len(uses))
    for at in range(len(uses)):
        there = [entry.number for entry in numbered if entry.begin <= at < entry.end]
        assert len(there) == len(set(there))
    alive = [sum(entry.begin <= at < entry.end for entry in numbered) for at in range(len(uses))]
    if any(t >= limit for tensors in uses for t in tensors):
        # As few as can be: as many as are in use at once.
        assert max(entry.number for entry in numbered) + 1 == max(alive)
