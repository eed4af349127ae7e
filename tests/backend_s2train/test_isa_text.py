"""Text of instructions: assembler and disassembler are inverse; every complaint has a place and a caret."""

import json
from pathlib import Path

import pytest
from dlc_backend_s2train.isa import text
from dlc_backend_s2train.isa import words as v2
from dlc_backend_s2train.program import Instruction
from dlc_backend_s2train.v1 import encoding as v1
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from tests.backend_s2train.isa_words import instructions, v1_words
from tests.conftest import Golden

VECTORS = json.loads((Path(__file__).parent.parent / "data" / "s2train" / "vectors.json").read_text("utf-8"))
PROGRAM = b"".join(bytes.fromhex(v["hex"]) for v in VECTORS["instr_resnet18_b4_imm"])
DIRECTED = b"".join(bytes.fromhex(v["hex"]) for v in VECTORS["instr_directed"])


@given(st.lists(v1_words(), max_size=4))
def test_words_of_version_1_print_and_parse(words: list[v1.Word]) -> None:
    written = text.format_v1(words)
    assert written.count("\n") == len(words)
    assert text.parse_v1(written) == tuple(words)
    data = b"".join(map(v1.encode, words))
    assert text.disassemble(data, 1) == written
    assert text.assemble(written, 1) == data


@given(st.lists(instructions(), max_size=4))
def test_instructions_print_and_parse(program: list[Instruction]) -> None:
    written = text.format_v2(program)
    assert written.count("\n") == len(program)
    assert text.parse_v2(written) == tuple(program)
    data = v2.encode_program(program)
    assert text.disassemble(data, 2) == written
    assert text.assemble(written, 2) == data


@pytest.mark.parametrize(("name", "data"), [("resnet18", PROGRAM), ("directed", DIRECTED)])
def test_the_published_words_as_text(golden: Golden, name: str, data: bytes) -> None:
    written = text.disassemble(data, 1)
    golden(f"v1_{name}.s2t.txt", written)
    assert text.assemble(written, 1) == data


def test_comments_and_space_are_free() -> None:
    free = """
    # a layer
    conv  forward(src0=%0 , src1=%1,  # the weights
                  dst0=%2) geometry 3  # behind
    end
    """
    neat = "conv forward (src0 = %0, src1 = %1, dst0 = %2) geometry 3\nend\n"
    assert text.format_v2(text.parse_v2(free)) == neat
    assert text.parse_v2("") == text.parse_v1("# nothing\n") == ()


BAD_2 = {
    "unknown opcode": "konv forward (src0 = %0, src1 = %1, dst0 = %2) geometry 0",
    "no stage": "conv (src0 = %0, src1 = %1, dst0 = %2) geometry 0",
    "stage of another": "update forward (src0 = %0, dst0 = %2) hyper 0",
    "unknown flag": "conv forward [relo] (src0 = %0, src1 = %1, dst0 = %2) geometry 0",
    "flag twice": "conv forward [relu, relu] (src0 = %0, src1 = %1, dst0 = %2) geometry 0",
    "unknown operand": "conv forward (scr0 = %0, src1 = %1, dst0 = %2) geometry 0",
    "operand twice": "conv forward (src0 = %0, src0 = %1, dst0 = %2) geometry 0",
    "operand missing": "nop\nconv forward [add] (src0 = %0, src1 = %1) geometry 0",
    "no number": "conv forward (src0 = %x, src1 = %1, dst0 = %2) geometry 0",
    "leading zero": "conv forward (src0 = %00, src1 = %1, dst0 = %2) geometry 0",
    "large number": "conv forward (src0 = %65535, src1 = %1, dst0 = %2) geometry 0",
    "unknown field": "conv forward (src0 = %0, src1 = %1, dst0 = %2) geometri 0",
    "field twice": "nop wait 1 wait 2",
    "two on a line": "nop end",
    "splitting twice": "nop splitting [] splitting [first]",
    "negative": "nop wait -1",
    "cut off": "conv forward (src0 = %0,",
    "strange character": "nop; end",
}
BAD_1 = {
    "op of version 2": "eltwise forward (src0 = %0)",
    "no stage 1": "conv [relu] (in_feature = %0)",
    "flag of another stage": "conv weight_gradient [relu] (output_grad = %0, input = %1, weight_grad = %2)",
    "value": "conv forward (in_feature = %0, weight = %1, output = %2) kernel 5",
    "missing mask": "conv forward [relu] (in_feature = %0, weight = %1, output = %2) kernel 3",
    "too large": "conv forward (in_feature = %0, weight = %1, output = %512) kernel 3",
    "rule": "linear forward (in_feature = %0, weight = %1, output = %2) kernel 3",
}


def test_complaints(golden: Golden) -> None:
    shown: list[str] = []
    for name, bad in [*BAD_2.items(), *BAD_1.items()]:
        with pytest.raises(DlcError) as caught:
            text.assemble(bad, 1 if name in BAD_1 else 2, "net.s2a")
        for diagnostic in caught.value.diagnostics:
            assert diagnostic.location is not None
            assert diagnostic.location.line > 0
            assert diagnostic.location.column > 0
        shown.append(f"# {name}\n{caught.value}\n")
    golden("isa_text_errors.txt", "\n".join(shown))


@given(st.text("conv forwad[](),=%019relu_\n#kl", max_size=60), st.sampled_from([1, 2]))
def test_any_text_is_instructions_or_refused(words: str, version: text.Version) -> None:
    try:
        data = text.assemble(words, version)
    except DlcError as refused:
        assert all(d.location and d.location.line > 0 for d in refused.diagnostics)
    else:
        assert text.assemble(text.disassemble(data, version), version) == data


@given(st.data())
def test_a_damaged_line_is_another_or_refused(data: st.DataObject) -> None:
    written = text.print_v2(data.draw(instructions()))
    at = data.draw(st.integers(0, len(written) - 1))
    damaged = written[:at] + data.draw(st.text(max_size=2)) + written[at + 1 :]
    try:
        found = text.parse_v2(damaged)
    except DlcError:
        return
    assert text.parse_v2(text.format_v2(found)) == found


def test_a_number_of_a_million_digits_is_refused() -> None:
    for bad in ("nop wait " + "9" * 1_000_000, "fill forward (dst0 = %" + "9" * 1_000_000 + ")", "x" * 1_000_000):
        with pytest.raises(DlcError) as caught:
            text.parse_v2(bad)
        assert len(str(caught.value)) < 5000
