"""Training steps of whole networks, from ONNX to the simulator, against PyTorch's autograd in double precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Role
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Program

from tests.backend_s2train.networks import S2_NETWORKS
from tests.backend_s2train.torch_steps import Compared, compare, step_of


def judge(found: Compared) -> list[str]:
    """What is further apart than the bound of torch_steps allows."""
    loss, want = found.loss
    wrong = [f"loss {loss}, not {want}"] if abs(loss - want) > found.loss_bound else []
    for kind, errors in (("gradient", found.gradients), ("new value", found.weights)):
        wrong += [f"{kind} of {name}: {e:.2e}, bound {limit:.2e}" for name, (e, limit) in errors.items() if e > limit]
    for number, (taken, limit) in enumerate(found.decisions):
        if taken.size > limit:
            wrong.append(f"decision {number}: {taken.size:.2e} of the values decided wrongly, bound {limit:.2e}")
    differ = sum(taken.differ for taken, _ in found.decisions)
    expected = sum(taken.elements * limit for taken, limit in found.decisions)
    if differ > expected:
        wrong.append(f"{differ} decisions differ, at most {expected:.1f} may")
    return wrong


@pytest.mark.parametrize("name", S2_NETWORKS)
def test_one_step_agrees_with_pytorch(name: str) -> None:
    network = S2_NETWORKS[name]
    program = step_of(network)
    assert list(verify(program)) == []
    found = compare(program, network)
    assert judge(found) == []
    parameters = dict(network.module().named_parameters())
    assert found.gradients.keys() == {n for n in parameters if "norm" not in n and "past.1" not in n}
    # The step is seen in the weights, not lost in their rounding.
    assert max(moved / found.weights[n][1] for n, moved in found.moved.items()) > 10


def test_nesterov_without_decay() -> None:
    network, optimizer = S2_NETWORKS["blocks"], "sgd{lr=1.0 momentum=0.9 nesterov=yes}"
    assert judge(compare(step_of(network, optimizer), network, optimizer)) == []


def test_no_momentum() -> None:
    network, optimizer = S2_NETWORKS["blocks"], "sgd{lr=1.0}"
    assert judge(compare(step_of(network, optimizer), network, optimizer)) == []


def test_without_fusion() -> None:
    """Every stage an instruction of its own, which rounds what it stores."""
    network = S2_NETWORKS["blocks"]
    program = step_of(network, select="fuse=no")
    assert list(verify(program)) == []
    assert len(program.instructions) > len(step_of(network).instructions)
    assert judge(compare(program, network)) == []


def scaled(program: Program, role: Role, row: int, factor: float) -> Program:
    """The program with one row of the first tensor of a role multiplied."""
    tensor = next(t for t in program.tensors if t.role is role and t.storage in program.weights and len(t.shape) > 1)
    values = np.frombuffer(program.weights[tensor.storage], np.float16).reshape(tensor.shape).copy()
    values[row] *= np.float16(factor)
    return replace(program, weights={**program.weights, tensor.storage: values.tobytes()})


def test_small_faults_are_seen() -> None:
    """One channel's norm, or one filter, off by three in a hundred; a rate off by one in a hundred."""
    network = S2_NETWORKS["blocks"]
    program = step_of(network)
    assert judge(compare(scaled(program, Role.NORM, 1, 1.03), network))
    assert judge(compare(scaled(program, Role.WEIGHT, 1, 1.03), network))
    hypers = tuple(replace(h, rate=h.rate * 1.01) for h in program.hypers)
    assert any("new value" in line for line in judge(compare(replace(program, hypers=hypers), network)))


def test_a_wrong_operand_is_seen() -> None:
    """The first relu's backward reads the second one's mask, which has the same shape."""
    network = S2_NETWORKS["blocks"]
    program = step_of(network)
    masks = [n for n, t in enumerate(program.tensors) if t.role is Role.MASK]
    one, other = masks[:2]
    assert program.tensors[one].shape == program.tensors[other].shape
    swapped = tuple(
        replace(i, operands={**i.operands, "mask": other})
        if i.opcode is Opcode.CONV and i.stage.name == "BACKWARD" and i.operands.get("mask") == one
        else i
        for i in program.instructions
    )
    storages = tuple(
        replace(s, end=len(swapped)) if n == program.tensors[other].storage else s
        for n, s in enumerate(program.storages)
    )
    assert swapped != program.instructions
    assert judge(compare(replace(program, instructions=swapped, storages=storages), network))
