"""Words of version 1 against those that the published compiler made."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dlc_backend_s2train.v1 import encoding as v1
from hypothesis import given

from dlc.base.diagnostics import DlcError
from tests.backend_s2train.isa_words import v1_words

VECTORS = json.loads((Path(__file__).parent.parent / "data" / "s2train" / "vectors.json").read_text("utf-8"))
DIRECTED: list[dict[str, Any]] = VECTORS["instr_directed"]
PROGRAM: list[dict[str, Any]] = VECTORS["instr_resnet18_b4_imm"]
KERNELS = {"conv1x1": 1, "conv3x3": 3, "conv16": 16}


@pytest.mark.parametrize("vector", DIRECTED, ids=lambda v: v["name"])
def test_a_directed_word_decodes_to_its_operands_and_back(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    word = v1.decode(data)
    values = dataclasses.asdict(word)
    # In the order of the vector, which is that of the bits.
    names = [name for name, _, _ in v1.operands(type(word)) if values[name] is not None]
    assert [(name, values[name]) for name in names] == list(vector["operands"].items())
    assert v1.used_bits(word) == vector["used_bits"]
    assert v1.encode(word) == data


@pytest.mark.parametrize("vector", DIRECTED, ids=lambda v: v["name"])
def test_a_directed_word_means_what_its_name_says(vector: dict[str, Any]) -> None:
    word = v1.decode(bytes.fromhex(vector["hex"]))
    name = vector["name"]
    said = name.split()
    stage = {"fwd": v1.Forward, "bwd": v1.Backward, "WG": v1.WeightGradient, "WU": v1.WeightUpdate}[said[1]]
    assert isinstance(word, stage)
    assert word.op == ("linear" if "linear" in name else "conv")
    assert word.net == ("alexnet" if "alexnet" in name else "resnet")
    for text, kernel in KERNELS.items():
        assert text not in said or getattr(word, "kernel", None) == kernel
    if not isinstance(word, v1.WeightUpdate):
        assert word.stride == (2 if "s2" in said or "s=2" in said else 1)
        assert word.padding == ("outside" if "outside" in said else "inner" if "inner" in said else "none")
        assert word.part_sum == ("part_sum" in name)
    if isinstance(word, v1.Forward | v1.Backward) and "optional" not in said:
        assert (word.relu, word.add, word.maxpool) == ("+relu" in name, "+add" in name, "+maxpool" in name)
        assert word.bn == ("+bn" in name) + ("+bn two" in name)


@pytest.mark.parametrize("number", range(len(PROGRAM)))
def test_a_word_of_the_published_program_decodes_and_encodes(number: int) -> None:
    data = bytes.fromhex(PROGRAM[number]["hex"])
    word = v1.decode(data)
    assert v1.encode(word) == data
    assert v1.used_bits(word) == int(PROGRAM[number]["used_bits"])
    op: str = PROGRAM[number]["op"]
    stage = {"F": v1.Forward, "B": v1.Backward, "WG": v1.WeightGradient, "WU": v1.WeightUpdate}
    assert isinstance(word, stage[op[:2] if op[0] == "W" else op[0]])
    assert word.op == ("linear" if "Linear" in op else "conv")
    # Residual backwards were written without addend and norm.
    if isinstance(word, v1.Forward | v1.Backward) and "Split" not in op:
        assert (word.bn, word.add, word.relu) == ("Bn" in op, "Add" in op, "Relu" in op)


def test_the_published_program_decodes_as_a_whole() -> None:
    data = b"".join(bytes.fromhex(v["hex"]) for v in PROGRAM)
    words = v1.decode_program(data)
    assert b"".join(map(v1.encode, words)) == data
    # The updated weight is the one that the gradient was computed for.
    gradients = {w.weight_grad for w in words if isinstance(w, v1.WeightGradient)}
    assert {w.weight_grad for w in words if isinstance(w, v1.WeightUpdate)} == gradients


@pytest.mark.parametrize("vector", [*DIRECTED, *PROGRAM], ids=lambda v: v.get("name", v["hex"]))
def test_a_flipped_bit_gives_another_word_or_is_refused_with_its_place(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    original = v1.decode(data)
    used = v1.used_bits(original)
    for bit in range(128):
        flipped = (int.from_bytes(data, "big") ^ 1 << 127 - bit).to_bytes(16, "big")
        try:
            word = v1.decode(flipped)
        except DlcError as refused:
            (diagnostic,) = refused.diagnostics
            assert diagnostic.code == "bad-word"
            assert diagnostic.location is not None
            assert 0 <= diagnostic.location.byte < 16
            assert "bit" in diagnostic.message
            if bit >= used:
                assert f"bit {bit} is set, which must be zero" in diagnostic.message
                assert diagnostic.location.byte == bit // 8
        else:
            assert bit < used
            assert word != original
            assert v1.encode(word) == flipped


def hexed(**fields: int) -> bytes:
    """A word by the numbers in its header; operands are zero."""
    header = 0
    for field, at in v1.HEADER.places:
        header |= fields.get(field.name, 0) << 16 - at - field.width
    return header.to_bytes(2, "big") + bytes(14)


REFUSED = [
    (hexed(padding=3), "padding at bit 5 is 11, which is reserved"),
    (hexed(kernel=3), "kernel at bit 7 is 11, which is reserved"),
    (hexed(bn=3), "bn at bit 11 is 11, which is reserved"),
    (hexed(bn=2), "bn at bit 11 is 2, but only a backward has two norms"),
    (hexed(op=1, padding=2, stride=1), "stride at bit 4 is 2, but a linear layer has no stride"),
    (hexed(op=1, padding=2, kernel=1), "kernel at bit 7 is 3, but a linear layer has no kernel"),
    (hexed(op=1, padding=0), "padding at bit 5 is outside, but a linear layer has no padding"),
    (hexed(op=1, padding=2, maxpool=1), "maxpool at bit 13 is set"),
    (hexed(softmax=1), "softmax at bit 15 is set, but softmax follows a linear layer"),
    (hexed(stage=2, relu=1), "relu at bit 9 is set, but the stage has no relu"),
    (hexed(stage=1, softmax=1), "softmax at bit 15 is set, but the stage has no softmax"),
    (hexed(net=1, stage=3, kernel=1, padding=2), "kernel at bit 7 is 3, but the stage has no kernel"),
    (hexed(net=1, stage=3), "padding at bit 5 is outside, but the stage has no padding"),
]


@pytest.mark.parametrize(("data", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_what_makes_no_sense_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(DlcError, match="bad-word") as caught:
        v1.decode(data)
    assert reason in str(caught.value)


LEGAL = {
    # Bits that are free, and codes of padding, kernel and norms: net, stride, relu, add, maxpool, part_sum.
    (v1.Forward, "conv"): 2**6 * 3 * 3 * 2,
    # Without softmax relu and add are free.
    (v1.Forward, "linear"): 2**2 * 2 * (1 + 2**2),
    (v1.Backward, "conv"): 2**6 * 3 * 3 * 3,
    (v1.Backward, "linear"): 2**4 * 3,
    (v1.WeightGradient, "conv"): 2**3 * 3 * 3,
    (v1.WeightGradient, "linear"): 2**2,
    (v1.WeightUpdate, "conv"): 2,
    (v1.WeightUpdate, "linear"): 2,
}


def test_of_all_headers_those_that_make_sense_are_legal() -> None:
    found: Counter[tuple[type[v1.Word], str]] = Counter()
    for header in range(1 << 16):
        try:
            word = v1.decode(header.to_bytes(2, "big") + bytes(14))
        except DlcError:
            continue
        found[type(word), word.op] += 1
        assert v1.encode(word)[:2] == header.to_bytes(2, "big")
    assert found == LEGAL


def test_places_count_from_the_file() -> None:
    good = bytes.fromhex(PROGRAM[0]["hex"])
    with pytest.raises(DlcError) as caught:
        v1.decode_program(good + good[:-1] + b"\x01", "net.bin")
    assert "net.bin: byte 31" in str(caught.value)
    assert "bit 127 is set" in str(caught.value)
    with pytest.raises(DlcError, match="byte 32"):
        v1.decode_program(good * 2 + b"\0" * 3, "net.bin")


UNENCODABLE: list[tuple[v1.Word, str]] = [
    (v1.Forward(in_feature=512, weight=1, output=2), "in_feature cannot be 512"),
    (v1.Forward(in_feature=-1, weight=1, output=2), "in_feature cannot be -1"),
    (v1.Forward(in_feature=0, weight=1, output=2, relu=True), "operand relu_mask is missing"),
    (v1.Forward(in_feature=0, weight=1, output=2, res_add=3), "operand res_add has no place"),
    (v1.Forward(in_feature=0, weight=1, output=2, kernel=5), "kernel cannot be 5"),  # pyright: ignore[reportArgumentType]
    (v1.Forward(in_feature=0, weight=1, output=2, softmax=True), "softmax follows a linear layer"),
    (v1.WeightUpdate(weight_grad=0, weight=1, op="pool"), "op cannot be 'pool'"),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("word", "reason"), UNENCODABLE, ids=[reason for _, reason in UNENCODABLE])
def test_what_no_word_can_say_is_refused(word: v1.Word, reason: str) -> None:
    with pytest.raises(DlcError, match="bad-instruction") as caught:
        v1.encode(word)
    assert reason in str(caught.value)


@given(v1_words())
def test_every_legal_word_encodes_and_decodes(word: v1.Word) -> None:
    data = v1.encode(word)
    assert len(data) == 16
    assert v1.decode(data) == word
