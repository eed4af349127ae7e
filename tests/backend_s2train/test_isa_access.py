"""Which operands instructions have, and which instructions there are not."""

import pytest
from dlc_backend_s2train.codes import NO_FLAGS, Flag, Slot, Splitting, Stage
from dlc_backend_s2train.isa.access import access, flag_faults
from dlc_backend_s2train.isa.instruction_set import FORM_OF, Opcode
from dlc_backend_s2train.program import Instruction

from dlc.base.diagnostics import DlcError

F, S = Flag, Stage
CONV: tuple[Slot, ...] = ("src0", "src1", "dst0")


def made(opcode: Opcode, stage: Stage, flags: Flag, *slots: Slot, **rest: object) -> Instruction:
    """An instruction with a geometry, hyper-parameters, and tensors 0, 1, 2… in `slots`."""
    fields: dict[str, object] = {"geometry": 0, "hyper": 0, **rest}
    return Instruction(opcode, stage, flags, operands={s: n for n, s in enumerate(slots)}, **fields)  # type: ignore[arg-type]


GOOD = [
    (made(Opcode.CONV, S.FORWARD, NO_FLAGS, "src0", "src1", "dst0"), "r r w"),
    (
        made(
            Opcode.CONV,
            S.FORWARD,
            F.BN_FORWARD | F.ADD | F.RELU | F.MASK_WRITE | F.POOL_4 | F.POINTER_WRITE | F.DROPOUT,
            *("src0", "src1", "dst0", "mask", "ptr", "bn0", "res", "aux"),
        ),
        "r r w w w r r w",
    ),
    (made(Opcode.LINEAR, S.FORWARD, F.SOFTMAX_CE, "src0", "src1", "dst0", "dst1", "aux"), "r r w w r"),
    (made(Opcode.ELTWISE, S.FORWARD, F.BN_TRAIN, "src0", "dst0", "dst1", "bn0", "bn1"), "r w w r u"),
    # By running statistics, and by stored ones.
    (made(Opcode.CONV, S.FORWARD, F.BN_FORWARD, "src0", "src1", "dst0", "bn0", "bn1"), "r r w r r"),
    (made(Opcode.ELTWISE, S.FORWARD, F.BN_FORWARD, "src0", "dst0", "bn0"), "r w r"),
    (made(Opcode.LOSS, S.FORWARD, Flag.SOFTMAX_CE, "src0", "dst0", "dst1", "aux"), "r w w r"),
    (made(Opcode.LOSS, S.FORWARD, NO_FLAGS, "src0", "dst0"), "r w"),
    (
        made(
            Opcode.CONV,
            S.BACKWARD,
            F.ADD | F.MASK_READ | F.BN_BACKWARD | F.BN_BACKWARD_2,
            *("src0", "src1", "dst0", "dst1", "mask", "bn0", "bn1", "res"),
        ),
        "r r w w r r r r",
    ),
    # The addend has a norm of its own.
    (
        made(Opcode.CONV, S.BACKWARD, F.ADD_SINGLE | F.BN_BACKWARD, "src0", "src1", "dst0", "bn0", "bn1", "res"),
        "r r w r r r",
    ),
    # It has one beside two others: the published chain of a single residual, relu and two norms.
    (
        made(
            Opcode.CONV,
            S.BACKWARD,
            F.ADD_SINGLE | F.MASK_READ | F.BN_BACKWARD | F.BN_BACKWARD_2,
            *("src0", "src1", "dst0", "dst1", "mask", "bn0", "bn1", "res", "aux"),
        ),
        "r r w w r r r r r",
    ),
    # The gradient before the norm goes to dst1.
    (
        made(Opcode.CONV, S.BACKWARD, F.BN_BACKWARD, "src0", "src1", "dst0", "dst1", "bn0"),
        "r r w w r",
    ),
    (
        made(Opcode.ELTWISE, S.BACKWARD, F.BN_TRAIN | F.BN_BACKWARD, "src0", "src1", "dst0", "dst1", "bn0", "bn1"),
        "r r w w r r",
    ),
    (made(Opcode.LINEAR, S.WEIGHT_GRADIENT, F.PRUNE, "src0", "dst0"), "r w"),
    (made(Opcode.UPDATE, S.WEIGHT_UPDATE, NO_FLAGS, "src0", "dst0", "dst1", "aux"), "r u u u"),
    (made(Opcode.POOL, S.FORWARD, F.POINTER_WRITE, "src0", "dst0", "ptr"), "r w w"),
    (made(Opcode.POOL, S.BACKWARD, F.POINTER_READ, "src0", "dst0", "ptr"), "r w r"),
    (made(Opcode.COPY, S.BACKWARD, NO_FLAGS, "src0", "dst0"), "r w"),
    (made(Opcode.FILL, S.FORWARD, NO_FLAGS, "dst0"), "w"),
    (Instruction(Opcode.END), ""),
    (
        made(
            Opcode.CONV,
            S.FORWARD,
            NO_FLAGS,
            *("src0", "src1", "dst0", "aux"),
            splitting=Splitting.ACCUMULATE_IN | Splitting.ACCUMULATE_OUT,
        ),
        "r r w r",
    ),
]


@pytest.mark.parametrize(("instruction", "ways"), GOOD, ids=str)
def test_operands_are_read_written_or_both(instruction: Instruction, ways: str) -> None:
    found = access(instruction)
    assert " ".join(way[0] for way in found.values()) == ways
    assert set(found) == set(instruction.operands)


BAD = [
    (made(Opcode.UPDATE, S.FORWARD, NO_FLAGS), "update forward: there is no such stage; update has weight_update"),
    (made(Opcode.CONV, S.FORWARD, NO_FLAGS, "src0", "dst0"), "operand src1 is missing"),
    (made(Opcode.CONV, S.FORWARD, NO_FLAGS, "src0", "src1", "dst0", "mask"), "operand mask has no use"),
    (made(Opcode.CONV, S.FORWARD, F.MASK_READ, "src0", "src1", "dst0", "mask"), "it has no flag mask_read"),
    (made(Opcode.CONV, S.FORWARD, F.MASK_WRITE, "src0", "src1", "dst0", "mask"), "mask_write needs relu"),
    (made(Opcode.CONV, S.FORWARD, F.POOL_2 | F.POOL_4, "src0", "src1", "dst0"), "do not go together: one window"),
    (made(Opcode.CONV, S.BACKWARD, F.POOL_2, "src0", "src1", "dst0"), "pool_2 needs pointer_read"),
    (made(Opcode.ELTWISE, S.BACKWARD, F.BN_TRAIN, "src0", "src1", "dst0", "dst1", "bn1"), "needs bn_backward"),
    (made(Opcode.CONV, S.FORWARD, NO_FLAGS, *CONV, geometry=None), "it needs a geometry"),
    (made(Opcode.UPDATE, S.WEIGHT_UPDATE, NO_FLAGS, "src0", "dst0", hyper=None), "it needs hyper-parameters"),
    (made(Opcode.END, S.FORWARD, NO_FLAGS), "it has no geometry"),
    (made(Opcode.CONV, S.FORWARD, NO_FLAGS, *CONV, wait=16), "wait 16 lies outside 0 to 15"),
    (made(Opcode.CONV, S.FORWARD, NO_FLAGS, *CONV, geometry=65535), "geometry 65535 lies outside 0 to 65534"),
    (
        made(Opcode.CONV, S.FORWARD, F.RELU, *CONV, splitting=Splitting.ACCUMULATE_OUT),
        "accumulate_out leaves the post-processing unit out, but relu is set",
    ),
    (
        made(Opcode.CONV, S.BACKWARD, NO_FLAGS, *CONV, "dst1", splitting=Splitting.ACCUMULATE_OUT),
        "operand dst1 has no use (it goes with bn_backward_2)",
    ),
    (
        made(Opcode.LINEAR, S.FORWARD, F.SOFTMAX_CE, *CONV, "aux", splitting=Splitting.ACCUMULATE_IN),
        "accumulate_in and softmax_ce both want operand aux",
    ),
    (made(Opcode.POOL, S.FORWARD, NO_FLAGS, "src0", "dst0", splitting=Splitting.ACCUMULATE_IN), "it has no accumulate"),
]


@pytest.mark.parametrize(("instruction", "fault"), BAD, ids=[fault for _, fault in BAD])
def test_what_is_no_instruction_is_refused_with_the_reason(instruction: Instruction, fault: str) -> None:
    with pytest.raises(DlcError) as caught:
        access(instruction)
    assert [d.code for d in caught.value.diagnostics] == ["bad-instruction"]
    assert fault in str(caught.value)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(DlcError) as caught:
        access(made(Opcode.CONV, S.FORWARD, F.ADD | F.MASK_READ, "src0", "dst1", geometry=None))
    text = str(caught.value)
    for fault in (
        "no flag mask_read",
        "src1 is missing",
        "dst0",
        "res is missing (add)",
        "dst1 has no use",
        "geometry",
    ):
        assert fault in text


def test_every_flag_of_a_form_can_be_set() -> None:
    """A flag in the table that no combination allows would be dead."""
    for (opcode, stage), form in FORM_OF.items():
        for flag in form.flags:
            others = [NO_FLAGS, *form.flags, F.POOL_2 | F.POINTER_READ]
            ways = (list(flag_faults(form, stage, flag | other, Splitting(0))) for other in others)
            assert any(not faults for faults in ways), f"{opcode} {stage} {flag}"
