"""Gradients around residual blocks that are taken out of those behind a norm."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Flag
from dlc_backend_s2train.cost.figures import peak_and_bound, planned
from dlc_backend_s2train.cost.operand_traffic import Kind, by_kind, unfused_of
from dlc_backend_s2train.simulator.machine import Machine

from dlc.graph import Graph, Op
from dlc.ops.normalize import BatchNorm
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.networks import S2_NETWORKS
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.selected import Model, instructions, program, select, training, unshared
from tests.backend_s2train.test_training_steps import judge
from tests.backend_s2train.torch_steps import SGD, bound, compare, step_of


def test_a_step_agrees_with_pytorch_and_moves_less() -> None:
    network = S2_NETWORKS["blocks"]
    single, double = (step_of(network, SGD, select) for select in ("residual=single", ""))
    assert list(verify(single)) == []
    (i,) = (i for i in single.instructions if Flag.ADD_SINGLE in i.flags)
    assert judge(compare(single, network)) == []
    # One map less is written; a norm's [4, 8] is read in its place.
    saved = single.tensors[i.operands["res"]].nbytes
    assert by_kind(double)[Kind.FEATURES].bytes - by_kind(single)[Kind.FEATURES].bytes == saved == 2 * 4 * 8 * 8 * 8
    assert by_kind(single)[Kind.WEIGHTS].bytes - by_kind(double)[Kind.WEIGHTS].bytes == 2 * 4 * 8
    assert unfused_of(single) == unfused_of(double)


def residual(factor: float) -> Graph:
    """Two blocks beside the identity; the norms at their ends have a scale of `factor`.

    Behind the second one maps are flattened, so that the gradient before its norm is stored anyway.
    """
    m = Model()
    x = m.relu(m.norm(m.conv(m.x(2, 3, 4, 4), 4)))
    for _ in range(2):
        inside = m.relu(m.norm(m.conv(x, 4)))
        inside = m.conv(inside, 4)
        norm = m.norm(inside)
        assert isinstance(norm, BatchNorm)
        scale = m.constant("scale", np.full(4, factor))
        last: Op = BatchNorm(inside, scale, norm.bias, norm.mean, norm.var)
        x = m.relu(m.add(last, x))
    return training(m.graph(m.linear(m.flat(x), 3)), more="wrt=!norms stored-norms=yes")


@pytest.mark.parametrize(("factor", "single"), [(1.0, True), (-0.5, True), (0.0, False), (1e-3, False), (1e3, False)])
def test_norms_that_lose_the_gradient_are_left_as_they_are(factor: float, single: bool) -> None:
    found = instructions(select(residual(factor), residual="single"))
    flags = [flag for i in found if i.stage == "backward" for flag in i.flags]
    assert (flags.count("add_single"), flags.count("add")) == ((1, 1) if single else (0, 2))
    if not single:
        assert [i.attrs for i in found] == [i.attrs for i in instructions(select(residual(factor)))]


def beside_a_projection(n: int = 2, side: int = 4, kernel: int = 3) -> Graph:
    """A block beside a projection, then one beside the identity, whose first convolution ends the published chain.

    Back through that comes the sum at the block's begin, then relu and the two norms before it.
    """
    m = Model()
    x = m.x(n, 3, side, side)
    x = m.relu(m.norm(m.conv(x, 4)))
    inside = m.norm(m.conv(m.relu(m.norm(m.conv(x, 4))), 4))
    x = m.relu(m.add(inside, m.norm(m.conv(x, 4, 1))))
    inside = m.norm(m.conv(m.relu(m.norm(m.conv(x, 4, kernel))), 4))
    x = m.pool(m.relu(m.add(inside, x)), 2)
    return training(m.graph(m.linear(m.flat(x), 3)))


CHAIN = {"add_single", "mask_read", "bn_backward", "bn_backward_2"}


def test_the_published_chain_is_one_word_and_agrees_with_two_lines() -> None:
    graph = beside_a_projection()
    single, double = (select(graph, residual=residual) for residual in ("single", "double"))
    (chain,) = (i for i in instructions(single) if {"add_single", "bn_backward_2"} <= set(i.flags))
    assert chain.opcode == "conv" and set(chain.flags) == CHAIN
    assert {"bn0", "bn1", "aux", "res"} <= {slot for slot, _, _ in chain.reads}
    x, y = halves(1, 2, 3, 4, 4), np.arange(2)
    found: list[Machine] = []
    for made in (single, double):
        found.append(machine_of(unshared(program(made)), checked=True))
        found[-1].run("step", {"x": x, "y": y})
    one, two = found
    names = [s.name for s in double.inputs if s.name.endswith("momentum")]
    assert len(names) == 8
    for name in names:
        # The velocity is the gradient: one more store of fp16, which scale/std takes at most another rounding of.
        want, got = two.read(name).astype(np.float64), one.read(name).astype(np.float64)
        assert np.linalg.norm(got - want) <= bound(2) * np.linalg.norm(want), name


@pytest.mark.parametrize("more", [{"kernel": 5}, {"n": 17, "side": 64}])
def test_partial_sums_and_parts_of_batches_keep_two_lines_there(more: dict[str, int]) -> None:
    found = instructions(select(beside_a_projection(**more), residual="single"))
    assert [i for i in found if "bn_backward_2" in i.flags]
    assert not [i for i in found if {"add_single", "bn_backward_2"} <= set(i.flags)]


def test_norms_by_the_batch_keep_both() -> None:
    m = Model()
    x = m.relu(m.norm(m.conv(m.x(2, 3, 4, 4), 4)))
    x = m.relu(m.add(m.norm(m.conv(x, 4)), x))
    graph = training(m.graph(m.linear(m.flat(x), 3)), more="stored-norms=no")
    assert not any("add_single" in i.flags for i in instructions(select(graph, residual="single")))


def test_resnet18() -> None:
    """All five blocks beside the identity: three have projections before them, whose second norm takes `bn1`."""
    step = step_of(S2_NETWORKS["resnet18"], SGD, "residual=single")
    assert list(verify(step)) == []
    assert sum(Flag.ADD_SINGLE in i.flags for i in step.instructions) == 5
    peak, least = peak_and_bound([step.storages[n] for n in planned(step)])
    assert peak == least == 4_796_416
    one, other = by_kind(step)[Kind.FEATURES], unfused_of(step)[Kind.FEATURES]
    assert 0.43 < one.bytes / other.bytes < 0.44
