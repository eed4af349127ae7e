"""Programs that hold words of version 1 too: they say the same, with few numbers for many tensors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from dlc_backend_s2train.build_lines import word_lines
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import NO_FLAGS, Flag, Slot
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.container.files import show
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.isa.text import assemble, disassemble
from dlc_backend_s2train.program import Program
from dlc_backend_s2train.v1 import encoding as v1
from dlc_backend_s2train.v1.correspondence import SLOTS, Holders, restored, worded
from dlc_backend_s2train.v1.legalize import with_words, word_facts
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cli.frame import run
from tests.backend_s2train.networks import S2_NETWORKS, ResNet101
from tests.backend_s2train.programs import conv_step, forward_conv
from tests.backend_s2train.test_training_steps import judge
from tests.backend_s2train.torch_steps import SGD, compare, step_of
from tests.training.torch_networks import Network, pictures

SELECT = "update=apart masks=yes"
IMPLICIT = Flag.POOL_2 | Flag.POOL_4 | Flag.ADD | Flag.ADD_SINGLE | Flag.PRUNE
"""Flags that words have no bit of their own for."""


def step(network: Network) -> Program:
    return step_of(network, SGD, SELECT, target="s2train{isa=v1}")


def out_of_words(program: Program) -> Program:
    """The program whose instructions are what their words say; operands that words have are wrong before."""
    holders = Holders(program.numbering)
    instructions = list(program.instructions)
    for number, data in zip(worded(program), program.legacy, strict=True):
        word = v1.decode(data)
        instruction = instructions[number]
        tensors = {name: holders.at(number, n) for name, n in v1.tensors_of(word).items()}
        assert None not in tensors.values()
        hidden: list[Slot] = [s for s in instruction.operands if s not in SLOTS[word.stage].values()]
        if Flag.ADD_SINGLE in instruction.flags and "bn1" in instruction.operands:
            hidden.append("bn1")
        emptied = replace(
            instruction,
            opcode=Opcode.NOP,
            flags=instruction.flags & IMPLICIT,
            operands={s: instruction.operands[s] for s in hidden},
        )
        instructions[number] = restored(word, emptied, {k: t for k, t in tensors.items() if t is not None})
    return replace(program, instructions=tuple(instructions))


def test_resnet101_in_words_of_version_1() -> None:
    """All 101 layers, few channels: more than 512 tensors, fewer in use at once."""
    program = step(Network(partial(ResNet101, 2), pictures(32), 1))
    data = b"".join(program.legacy)
    facts = word_facts(program)
    assert int(facts["v1_tensors"]) > v1.TENSORS >= int(facts["v1_numbers"])
    # What ends the network is undone before the first product backward; a classifier's bias is a vector.
    assert facts["v1_without"] == "1 eltwise backward, 1 linear weight_gradient, 1 update weight_update"
    assert facts["v1_words"] == len(program.instructions) - 3 - sum(
        i.opcode is Opcode.COPY for i in program.instructions
    )
    assert list(verify(program)) == []
    assert out_of_words(program) == program
    text = disassemble(data, 1)
    assert assemble(text, 1) == data
    shown = show(program, "resnet101.s2t")
    assert all(
        f"{word.hex()}  {line}  # " in shown for word, line in zip(program.legacy, text.splitlines(), strict=True)
    )
    assert read(memoryview(write(program)), "x.s2t") == program


@pytest.fixture(scope="module")
def small() -> Program:
    return step(S2_NETWORKS["blocks"])


def test_words_are_executed(small: Program) -> None:
    """Instructions out of words, through their numbering, train as PyTorch does."""
    found = out_of_words(small)
    assert found == small
    assert judge(compare(found, S2_NETWORKS["blocks"])) == []


def test_an_addend_on_a_single_line() -> None:
    """Of the addend's norm words say nothing, though they have a place for another norm's number."""
    program = step_of(S2_NETWORKS["blocks"], SGD, f"{SELECT} residual=single", target="s2train{isa=v1}")
    assert any(Flag.ADD_SINGLE in i.flags for i in program.instructions)
    assert out_of_words(program) == program


def test_numbers_are_those_of_tensors_where_they_suffice(small: Program) -> None:
    assert all(entry.number == entry.tensor for entry in small.numbering)
    assert "numbers of version 1" not in show(small, "x")
    (line,) = word_lines(word_facts(small))
    assert line.startswith(f"version 1: {len(small.legacy)} words, ")


def recycled(program: Program) -> Program:
    """The program with its numbers given anew as if it had too many tensors."""
    many = [*program.tensors, *(replace(program.tensors[0], name=f"unused {n}") for n in range(600))]
    moved = {n: n + 600 for n in range(len(program.tensors))}
    tensors = [*many[len(program.tensors) :], *program.tensors]
    instructions = tuple(
        replace(i, operands={slot: moved[n] for slot, n in i.operands.items()}) for i in program.instructions
    )
    entries = tuple(
        replace(e, **{kind: tuple((name, moved[n]) for name, n in getattr(e, kind)) for kind in KINDS})
        for e in program.entries
    )
    bare = replace(program, tensors=tuple(tensors), instructions=instructions, entries=entries, legacy=(), numbering=())
    return with_words(bare)


KINDS = ("inputs", "labels", "outputs")


def test_numbers_given_anew_are_shown_and_right(small: Program) -> None:
    program = recycled(small)
    assert list(verify(program)) == []
    assert out_of_words(program) == program
    assert "number  tensor  instructions" in show(program, "x")
    assert int(word_facts(program)["v1_numbers"]) < int(word_facts(program)["v1_tensors"])


@given(st.data())
def test_another_bit_of_a_word_is_found(small: Program, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(small.legacy) - 1))
    # Header and operands; what is behind them is zero, and refused otherwise.
    bit = data.draw(st.integers(0, 8 * v1.BYTES - 1))
    word = int.from_bytes(small.legacy[number], "big") ^ (1 << (8 * v1.BYTES - 1 - bit))
    words = [*small.legacy]
    words[number] = word.to_bytes(v1.BYTES, "big")
    found = verify(replace(small, legacy=tuple(words)))
    assert found and {p.code for p in found} == {"bad-word"}
    assert found[0].message.startswith(f"instruction {[*worded(small)][number]} (")


def test_numbers_that_stand_for_other_tensors_are_found(small: Program) -> None:
    program = recycled(small)
    one, other, *rest = program.numbering
    swapped = (replace(one, number=other.number), replace(other, number=one.number), *rest)
    assert (one.begin, one.end) == (other.begin, other.end)  # of two weights
    assert "; the instruction has tensor" in verify(replace(program, numbering=swapped))[0].message
    assert "stands for no tensor here" in verify(replace(program, numbering=program.numbering[1:]))[0].message
    twice = replace(program.numbering[0], tensor=program.numbering[1].tensor)
    assert " stands for tensor " in verify(replace(program, numbering=(*program.numbering, twice)))[0].message
    assert "; there are none" in verify(replace(program, legacy=()))[0].message
    assert "instructions that it has" in verify(replace(program, legacy=program.legacy[1:]))[0].message


def test_a_file_with_a_word_that_is_none_is_refused(small: Program) -> None:
    words = (*small.legacy[:2], b"\xff" * 16, *small.legacy[3:])
    with pytest.raises(DlcError) as refused:
        read(memoryview(write(replace(small, legacy=words))), "x.s2t")
    (problem,) = refused.value.diagnostics
    assert problem.message.startswith("section INS1: word 2: ")
    assert problem.location is not None and problem.location.byte > 0


def test_a_program_made_by_hand() -> None:
    program = with_words(conv_step())
    assert list(verify(program)) == []
    assert out_of_words(program) == program
    assert read(memoryview(write(program)), "x.s2t") == program


def test_all_reasons_at_once() -> None:
    """What version 1 cannot say is listed by reason, with the instructions and what helps."""
    program = forward_conv()
    first, last = program.instructions
    geometries = (*program.geometries, replace(program.geometries[0], groups=3, dilation=(2, 2)))
    plain = replace(
        first, flags=NO_FLAGS, geometry=1, operands={s: first.operands[s] for s in ("src0", "src1", "dst0")}
    )
    unmasked = replace(
        first, flags=first.flags & ~Flag.MASK_WRITE, operands={s: t for s, t in first.operands.items() if s != "mask"}
    )
    many = (*(unmasked,) * 6, plain, last)
    with pytest.raises(DlcError) as refused:
        with_words(replace(program, instructions=many, geometries=geometries))
    one, other = refused.value.diagnostics
    assert one.message == "version 1 has no word for 6 instructions: relu always writes its mask"
    assert one.notes == (*(f'instruction {n}, conv forward: "y"' for n in range(4)), "and 2 more")
    assert "s2-select.masks=yes" in one.help
    assert other.message == (
        "version 1 has no word for an instruction: no field says dilation 2 x 2; no field says 3 groups"
    )
    assert "isa=v2" in other.help


def test_a_build_for_version_1_selects_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inference too: words of relu always name a mask. With another pipeline what is missing is reported."""
    network, source = S2_NETWORKS["blocks"], tmp_path / "blocks.onnx"
    source.write_bytes(network.onnx(network.module()))
    line = ["build", str(source), "--target", "s2train{isa=v1}", "-q", "--cache", "off", "-o", str(tmp_path)]
    assert run([*line, "--train", "loss=cross-entropy"]) == 0
    output = capsys.readouterr().out
    content = (tmp_path / "blocks.s2t").read_bytes()
    program = read(memoryview(content), "blocks.s2t")
    assert f"\nversion 1: {len(program.legacy)} words, " in output
    assert len(program.legacy) == len(program.instructions) - 4  # a stage, a loss and a bias's gradient and update
    assert [e.name for e in program.entries] == ["predict", "evaluate", "step"]
    assert all(Flag.MASK_WRITE in i.flags for i in program.instructions if Flag.RELU in i.flags)
    assert out_of_words(program) == program
    assert run(["verify", str(tmp_path / "blocks.s2t")]) == 0
    assert "; words of version 1 say the same" in capsys.readouterr().out
    assert run(line) == 0
    capsys.readouterr()
    assert run([*line, "-p", "s2train"]) == ExitCode.MODEL
    assert "help  set s2-select.masks=yes, or leave --pipeline out" in capsys.readouterr().err
