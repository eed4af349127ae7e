"""Control words of the post-processing unit and transfer words, against those of the published compiler."""

import json
from pathlib import Path

import pytest
from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Instruction
from dlc_backend_s2train.v1.control_words import (
    BYPASS,
    Control,
    Transfer,
    control_of,
    decode_control,
    decode_transfer,
    encode_control,
    encode_transfer,
)
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError

VECTORS = json.loads((Path(__file__).parent.parent / "data" / "s2train" / "vectors.json").read_text("utf-8"))
PPU = {vector["name"].split()[0]: vector["bits"] for vector in VECTORS["ppu"]}
F = Flag
FLAGS = {
    "P1": F.BN_FORWARD | F.RELU | F.MASK_WRITE,
    "P2": F.BN_FORWARD | F.ADD | F.RELU | F.MASK_WRITE,
    "P3": F.BN_FORWARD | F.ADD | F.RELU | F.MASK_WRITE | F.POOL_4 | F.POINTER_WRITE,
    "P4": F.BN_FORWARD,
    "P5": F.RELU | F.MASK_WRITE | F.POOL_2 | F.POINTER_WRITE,
    "P6": F.POOL_4 | F.POINTER_READ | F.MASK_READ | F.BN_BACKWARD,
    "P7": F.MASK_READ | F.BN_BACKWARD,
    "P8": F.ADD | F.MASK_READ | F.BN_BACKWARD,
    "P9": F.ADD_SINGLE | F.MASK_READ | F.BN_BACKWARD | F.BN_BACKWARD_2,
}


SHAPES = {
    "P1": (4, 64, 32, 32),
    "P2": (4, 128, 16, 16),
    "P3": (4, 512, 4, 4),
    "P4": (4, 128, 16, 16),
    "P5": (4, 96, 32, 32),
    "P6": (4, 512, 4, 4),
    "P7": (4, 512, 4, 4),
    "P8": (4, 256, 8, 8),
    "P9": (4, 256, 8, 8),
}
FORWARD = ("P1", "P2", "P3", "P4", "P5")


def case(name: str) -> tuple[Instruction, Geometry]:
    """The instruction and shapes of a vector."""
    n, c, h, w = SHAPES[name]
    # Sides that do not count have another size.
    if name in FORWARD:
        return Instruction(Opcode.CONV, Stage.FORWARD, FLAGS[name]), Geometry(n, 3, c, ho=h, wo=w, hi=99, wi=99)
    return Instruction(Opcode.CONV, Stage.BACKWARD, FLAGS[name]), Geometry(n, c, 3, hi=h, wi=w, ho=99, wo=99)


@pytest.mark.parametrize("name", PPU)
def test_control_words_are_those_of_the_published_compiler(name: str) -> None:
    control = control_of(*case(name))
    assert encode_control(control) == PPU[name]
    assert decode_control(PPU[name]) == control


@given(st.text("01", min_size=50, max_size=50))
def test_any_fifty_bits_decode_and_encode(bits: str) -> None:
    assert encode_control(decode_control(bits)) == bits


@pytest.mark.parametrize("bits", ["", "0" * 49, "0" * 49 + "2", "0" * 51])
def test_other_text_is_no_control_word(bits: str) -> None:
    with pytest.raises(DlcError, match="50 zeros and ones"):
        decode_control(bits)


def test_no_flags_bypass_everything() -> None:
    assert control_of(Instruction(Opcode.CONV), Geometry(1, 1, 1, ho=999, wo=999)) == BYPASS
    assert encode_control(BYPASS) == "0" * 50


def test_a_range_of_samples_counts_only_them() -> None:
    instruction = Instruction(Opcode.CONV, flags=Flag.BN_FORWARD)
    assert control_of(instruction, Geometry(128, 3, 3, ho=32, wo=32, samples=(64, 128))).bn_finish == 65535
    with pytest.raises(DlcError, match="131072 elements"):
        control_of(instruction, Geometry(128, 3, 3, ho=32, wo=32))


@pytest.mark.parametrize("width", [0, 3, 18])
def test_a_pool_that_does_not_fill_the_map_is_refused(width: int) -> None:
    instruction = Instruction(Opcode.CONV, flags=Flag.POOL_4 | Flag.POINTER_WRITE)
    with pytest.raises(DlcError, match="bad-geometry"):
        control_of(instruction, Geometry(1, 3, 3, ho=4, wo=width))


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DlcError, match="bn_finish cannot be 65536"):
        encode_control(Control(bn_finish=65536))


@pytest.mark.parametrize("vector", VECTORS["sendrecv32"], ids=lambda v: v["op"])
def test_transfer_words_are_those_of_the_published_compiler(vector: dict[str, str]) -> None:
    transfer = Transfer("send" if vector["op"] == "send" else "receive", int(vector["tensor"]), int(vector["port"]))
    assert encode_transfer(transfer).hex() == vector["hex"]
    assert decode_transfer(bytes.fromhex(vector["hex"])) == transfer


@given(st.binary(min_size=4, max_size=4))
def test_any_transfer_word_is_one_or_refused(data: bytes) -> None:
    if data[0] >> 2 in (1, 2):
        assert encode_transfer(decode_transfer(data)) == data
    else:
        with pytest.raises(DlcError, match="opcode at bit 0"):
            decode_transfer(data)
    with pytest.raises(DlcError, match="not 3"):
        decode_transfer(data[:3])
