"""Gradients around residual blocks that are taken out of those behind a norm."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Flag
from dlc_backend_s2train.cost.figures import peak_and_bound, planned
from dlc_backend_s2train.cost.operand_traffic import Kind, by_kind, unfused_of

from dlc.graph import Graph, Op
from dlc.ops.normalize import BatchNorm
from tests.backend_s2train.networks import S2_NETWORKS
from tests.backend_s2train.selected import Model, instructions, select, training
from tests.backend_s2train.test_training_steps import judge
from tests.backend_s2train.torch_steps import SGD, compare, step_of


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


def test_norms_by_the_batch_keep_both() -> None:
    m = Model()
    x = m.relu(m.norm(m.conv(m.x(2, 3, 4, 4), 4)))
    x = m.relu(m.add(m.norm(m.conv(x, 4)), x))
    graph = training(m.graph(m.linear(m.flat(x), 3)), more="stored-norms=no")
    assert not any("add_single" in i.flags for i in instructions(select(graph, residual="single")))


def test_resnet18() -> None:
    """Before three of five blocks beside the identity stand projections, whose second norm takes `bn1`."""
    program = step_of(S2_NETWORKS["resnet18"], SGD, "residual=single")
    assert list(verify(program)) == []
    assert sum(Flag.ADD_SINGLE in i.flags for i in program.instructions) == 2
    peak, bound = peak_and_bound([program.storages[n] for n in planned(program)])
    assert peak == bound == 4_861_952
    one, other = by_kind(program)[Kind.FEATURES], unfused_of(program)[Kind.FEATURES]
    assert 0.44 < one.bytes / other.bytes < 0.45
