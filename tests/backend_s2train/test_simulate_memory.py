"""The machine's memory: values live in it alone, and what is not there is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dlc_backend_s2train.codes import Arena, Role, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Instruction, Program, Storage
from dlc_backend_s2train.simulator.machine import Machine

from dlc import DlcError
from tests.backend_s2train.machines import machine_of, unverified
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.programs import Hand, conv_step, linear_step
from tests.backend_s2train.test_simulate import batch


def tensor_of(program: Program, name: str) -> int:
    return next(number for number, tensor in enumerate(program.tensors) if tensor.name == name)


def storage_of(program: Program, name: str) -> int:
    return program.tensors[tensor_of(program, name)].storage


def with_storage(program: Program, name: str, **changes: Any) -> Program:
    """The program with the storage of a tensor changed."""
    number = storage_of(program, name)
    storages = list(program.storages)
    storages[number] = replace(storages[number], **changes)
    return replace(program, storages=tuple(storages))


def with_instruction(program: Program, number: int, **changes: Any) -> Program:
    instructions = list(program.instructions)
    instructions[number] = replace(instructions[number], **changes)
    return replace(program, instructions=tuple(instructions))


def overlapped(program: Program) -> Program:
    """dy lies where dh is: the weight gradient of the second layer, which comes after dh, reads wrong bytes."""
    at = program.storages[storage_of(program, "dy")].address
    return with_storage(program, "dh", address=at)


def test_a_wrong_address_shows_in_results_and_is_refused_when_checked() -> None:
    good, bad = linear_step(), overlapped(linear_step())
    arrays = batch(good, 0)
    one, two = unverified(good, "bit-true"), unverified(bad, "bit-true")
    for machine in (one, two):
        machine.run("step", arrays)
    assert not np.array_equal(one.read("w2"), two.read("w2"))
    with pytest.raises(DlcError) as caught:
        unverified(bad, checked=True).run("step", arrays)
    (problem,) = caught.value.diagnostics
    assert problem.code == "stale-read"
    assert problem.location is not None and problem.location.node == "dy"
    at = bad.storages[storage_of(bad, "dy")].address
    assert problem.message == (
        f'instruction 3 (linear weight-gradient) reads "dy" at byte {at:,} of feature_gradients, storage '
        f"{storage_of(bad, 'dy')}, but instruction 2 (linear backward) wrote it for storage "
        f'{storage_of(bad, "dh")} ("dh")'
    )


def test_arenas_share_one_space_of_addresses() -> None:
    """The mask, an activation, lies where dy does, a gradient."""
    good = linear_step()
    bad = with_storage(good, "dy", address=good.storages[storage_of(good, "h.mask")].address)
    assert bad.storages[storage_of(bad, "dy")].arena is not bad.storages[storage_of(bad, "h.mask")].arena
    with pytest.raises(DlcError, match=r'reads "h\.mask" at byte'):
        unverified(bad, checked=True).run("step", batch(bad, 0))


def test_one_byte_is_enough() -> None:
    """The last byte of dy, the first of dh."""
    good = linear_step()
    at = good.storages[storage_of(good, "dy")]
    bad = with_storage(good, "dh", address=at.address + at.size - 1)
    with pytest.raises(DlcError, match=f"at byte {at.address + at.size - 1:,} of"):
        unverified(bad, checked=True).run("step", batch(bad, 0))


def test_what_nobody_wrote_is_refused_in_every_run() -> None:
    """Without the first instruction its mask and value are, at best, those of the run before."""
    program = linear_step()
    machine = unverified(program, checked=True)
    machine.run("step", batch(program, 0))
    without = replace(program, entries=(replace(program.entries[0], begin=1), program.entries[1]))
    with pytest.raises(DlcError, match=r'instruction 1 .* reads "h" .* nobody wrote it in this entry'):
        unverified(without, checked=True).run("step", batch(program, 0))
    # What a run leaves behind is nothing that the next may read.
    whole = replace(program.entries[0], name="whole")
    other = unverified(replace(without, entries=(*without.entries, whole)), checked=True)
    other.run("whole", batch(program, 0))
    with pytest.raises(DlcError, match="nobody wrote it in this entry"):
        other.run("step", batch(program, 0))


def test_outputs_that_were_not_written_are_refused() -> None:
    program = linear_step()
    entry = replace(program.entries[1], begin=program.entries[1].begin + 1, inputs=(), end=program.entries[1].begin + 1)
    bad = replace(program, entries=(program.entries[0], entry))
    with pytest.raises(DlcError, match='the host reads "y"'):
        unverified(bad, checked=True).run("predict", {})


@pytest.mark.parametrize(("changes", "verb"), [({"end": 2}, "reads"), ({"begin": 1}, "writes")])
def test_a_storage_outside_its_lifetime_is_refused(changes: dict[str, int], verb: str) -> None:
    bad = with_storage(linear_step(), "h.mask", **changes)
    with pytest.raises(DlcError, match=f'{verb} "h.mask", but its storage') as caught:
        unverified(bad, checked=True).run("step", batch(bad, 0))
    assert caught.value.diagnostics[0].code == "dead-storage"


def test_a_result_may_lie_where_its_operand_lay() -> None:
    """All operands are read before any result is written, so dy may take the bytes of dflat."""
    program = conv_step()
    storage = storage_of(program, "dflat")
    at = program.storages[storage_of(program, "dy")].address
    moved = with_storage(program, "dflat", address=at)
    arrays = batch(program, 0)
    one = unverified(program, "bit-true", checked=True).run("step", arrays)["loss"]
    machine = unverified(moved, "bit-true", checked=True)
    assert machine.run("step", arrays)["loss"] == one
    reference = unverified(program, "bit-true")
    reference.run("step", arrays)
    np.testing.assert_array_equal(machine.read("w"), reference.read("w"))
    with pytest.raises(DlcError, match=f"storage {storage}, but instruction 5"):
        machine.read("dflat")


def edit(change: Callable[[Program], Program]) -> Callable[[], Program]:
    return lambda: change(linear_step())


HUGE = Storage(Arena.FEATURES, 1 << 60, 1 << 40, 0, 1)
BAD = {
    "too-large": edit(lambda p: replace(p, storages=(*p.storages, HUGE))),
    "negative-address": edit(lambda p: with_storage(p, "h", address=-64)),
    "weights-too-long": edit(lambda p: replace(p, weights={storage_of(p, "w1"): bytes(1000)})),
    "weights-nowhere": edit(lambda p: replace(p, weights={999: b""})),
    "no-such-tensor": edit(lambda p: with_instruction(p, 2, operands={**p.instructions[2].operands, "src0": 999})),
    "no-such-geometry": edit(lambda p: with_instruction(p, 2, geometry=77)),
    "no-such-hyper": edit(lambda p: with_instruction(p, 1, hyper=77)),
    "entry-too-long": edit(lambda p: replace(p, entries=(replace(p.entries[0], end=999),))),
    "illegal": edit(lambda p: with_instruction(p, 2, stage=Stage.WEIGHT_UPDATE)),
}


CODES = {
    "negative-address": "bad-storage",
    "weights-too-long": "bad-weights",
    "entry-too-long": "bad-entry",
    "too-large": "too-large",
    "illegal": "bad-instruction",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_programs_become_no_machine(name: str) -> None:
    with pytest.raises(DlcError) as caught:
        machine_of(BAD[name]())
    assert CODES.get(name, "no-such-number") in {d.code for d in caught.value.diagnostics}


def test_the_limit_counts_the_shadow() -> None:
    program = linear_step()
    size = max(storage.address + storage.size for storage in program.storages)
    for limit, checked in ((size, False), (9 * size, True)):
        assert unverified(program, limit=limit, checked=checked).run("step", batch(program, 0))
    for limit, checked in ((size - 1, False), (9 * size - 1, True)):
        with pytest.raises(DlcError, match=f"the limit is {limit:,}"):
            unverified(program, limit=limit, checked=checked)


def test_a_tensor_outside_its_storage_is_refused() -> None:
    program = linear_step()
    number = tensor_of(program, "h")
    for changes in ({"offset": 40}, {"offset": -2}, {"shape": (4, 7)}, {"storage": 500}):
        tensors = list(program.tensors)
        tensors[number] = replace(tensors[number], **changes)
        with pytest.raises(DlcError) as caught:
            machine_of(replace(program, tensors=tuple(tensors)))
        codes = {d.code for d in caught.value.diagnostics}
        assert codes & {"outside-storage", "misaligned", "bad-operand", "no-such-number"}, changes


def test_operands_that_do_not_fit_name_the_instruction() -> None:
    program = linear_step()
    bad = replace(program, geometries=tuple(replace(g, ci=g.ci + 1) for g in program.geometries))
    with pytest.raises(DlcError, match=r"instruction 0 \(linear forward\): src0 is \[4, 8\], but \[4, 9, 1, 1\]"):
        unverified(bad).run("step", batch(program, 0))


@pytest.mark.parametrize(
    ("samples", "what"),
    [((0, 5), "samples 0 to 5 of 4"), ((2, 2), "samples 2 to 2"), ((-1, 2), "samples -1"), ((1, 3), "inside a byte")],
)
def test_samples_that_are_not_there_are_refused(samples: tuple[int, int], what: str) -> None:
    program = linear_step()
    first: Instruction = program.instructions[0]
    assert first.geometry is not None
    geometries = list(program.geometries)
    geometries[first.geometry] = Geometry(4, 8, 6, samples=samples)
    with pytest.raises(DlcError, match=what):
        unverified(replace(program, geometries=tuple(geometries))).run("step", batch(program, 0))


def test_a_loss_is_of_a_whole_batch() -> None:
    program = linear_step()
    number = program.instructions[1].geometry
    assert number is not None
    geometries = list(program.geometries)
    geometries[number] = replace(geometries[number], samples=(0, 2))
    with pytest.raises(DlcError, match="whole batches"):
        unverified(replace(program, geometries=tuple(geometries))).run("step", batch(program, 0))


CALLS: list[tuple[Callable[[Machine, Any], object], str]] = [
    (lambda m, a: m.run("step", {"x": a["x"]}), '"label" is missing'),
    (lambda m, a: m.run("step", {**a, "z": a["x"]}), '"z" is none of its inputs'),
    (lambda m, a: m.run("step", {**a, "x": a["x"][:2]}), r"the shape \(4, 8\), not \(2, 8\)"),
    (lambda m, a: m.run("step", {**a, "label": a["label"] + 0.5}), "float64 goes into int32"),
    (lambda m, a: m.run("step", {**a, "label": a["label"] + (1 << 40)}), "go into int32"),
    (lambda m, a: m.run("step", {**a, "label": a["label"] + 50}), "instruction 1 .*is not a class of 3"),
    (lambda m, a: m.run("stop", a), "did you mean step"),
    (lambda m, _: m.read("nothing"), 'the program has no tensor "nothing"'),
    (lambda m, _: m.read("w11"), "did you mean w1"),
    (lambda m, _: m.read("w1", "stop"), 'no entry "stop"'),
    (lambda m, _: m.read(500), "there is no tensor 500"),
    (lambda m, _: m.write("w1", halves(0, 2, 2)), "has the shape"),
    (lambda m, _: m.restore(unverified(conv_step()).snapshot()), "of another program"),
]


@pytest.mark.parametrize(("call", "what"), CALLS)
def test_calls_that_make_no_sense_are_refused(call: Callable[[Machine, Any], object], what: str) -> None:
    program = linear_step()
    with pytest.raises(DlcError, match=what):
        call(unverified(program), batch(program, 0))


def test_a_name_that_several_tensors_have_is_one_with_its_entry() -> None:
    """Values of two entries, one of which looks at its value in two ways."""
    hand = Hand()
    x = hand.tensor("x", (2, 3), Role.INPUT)
    held = [hand.tensor("h", (2, 3), Role.ACTIVATION) for _ in range(2)]
    flat = hand.view("h", held[1], (6,))
    results = [hand.tensor(f"y{k}", (2, 3), Role.OUTPUT) for k in range(2)]
    for k, (first, then) in enumerate(((held[0], held[0]), (held[1], flat))):
        hand.do(Opcode.COPY, src0=x, dst0=first)
        hand.do(Opcode.COPY, src0=then, dst0=results[k])
        hand.entry(f"e{k}", inputs=(("x", x),), outputs=(("y", results[k]),))
    machine = unverified(hand.program())
    values = halves(0, 2, 3)
    for entry, sign in (("e0", 1), ("e1", -1)):
        machine.run(entry, {"x": sign * values})
    np.testing.assert_array_equal(machine.read("h", "e0"), values)
    for call in (lambda: machine.read("h"), lambda: machine.write("h", values)):
        with pytest.raises(DlcError, match='3 tensors of the program are called "h"') as refused:
            call()
        assert refused.value.diagnostics[0].notes == (
            "%1: fp16[2, 3], storage 1, of e0",
            "%2: fp16[2, 3], storage 2, of e1",
            "%3: fp16[6], storage 2, of e1",
        )
    with pytest.raises(DlcError, match='2 tensors of entry "e1"'):
        machine.read("h", "e1")
    with pytest.raises(DlcError, match='0 tensors of entry "e0" are called "y1"'):
        machine.read("y1", "e0")
    machine.write("h", values * 2, "e0")
    np.testing.assert_array_equal(machine.read(held[0]), values * 2)
