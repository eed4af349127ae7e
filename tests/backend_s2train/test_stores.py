"""Counting the roundings that lie before an instruction, which the bound on errors of training steps grows with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Flag, Role, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Function

from tests.backend_s2train.networks import S2_NETWORKS
from tests.backend_s2train.programs import Hand, hosted
from tests.backend_s2train.stores import stores_before
from tests.backend_s2train.torch_steps import by_parameter, step_of


def test_what_the_host_computes_is_rounded_too() -> None:
    assert stores_before(hosted()) == [0, 1, 2, 0]


def test_the_host_rounds_nothing_that_it_moves() -> None:
    program = hosted()
    (function,) = program.functions
    body = ("graph(%0 {x}, %1 {w}) {{", "  %2 = transpose(%0) perm=(0,1,3,2)", '  return %2 "y0", %2 "y1"', "}}", "")
    text = "\n".join(body).format(x='"x0": f32[1,4,3,3]', w='"x1": f32[4,1,1]')
    moved = replace(program, functions=(Function(text, function.reads, function.writes),))
    assert stores_before(moved) == [0, 0, 1, 0]


@pytest.mark.parametrize("deep", [0, 1])
def test_joined_results_have_the_longest_way_of_their_parts(deep: int) -> None:
    """One part of a storage is two additions deep, the other is the input, whichever is written last."""
    hand = Hand()
    x = hand.tensor("x", (1, 4, 2, 2), Role.INPUT)
    both = hand.tensor("both", (2, 4, 2, 2), Role.ACTIVATION)
    parts = [hand.view(f"part {k}", both, (1, 4, 2, 2), k * 32) for k in range(2)]
    y = hand.tensor("y", (2, 4, 2, 2), Role.OUTPUT)
    hand.do(Opcode.ELTWISE, Stage.FORWARD, Flag.ADD, src0=x, res=x, dst0=parts[deep])
    hand.do(Opcode.ELTWISE, Stage.FORWARD, Flag.ADD, src0=parts[deep], res=x, dst0=parts[deep])
    hand.do(Opcode.COPY, src0=x, dst0=parts[1 - deep])
    hand.do(Opcode.ELTWISE, Stage.FORWARD, Flag.RELU, src0=both, dst0=y)
    hand.entry("predict", [("x", x)], outputs=[("y", y)])
    program = hand.program()
    assert list(verify(program)) == []
    assert stores_before(program) == [0, 1, 0, 2, 0]


def test_the_way_of_a_network_leads_through_all_its_layers() -> None:
    """Behind the loss there is at least one rounding for each layer, and as many again on the way back."""
    program = step_of(S2_NETWORKS["branches"])
    counts = stores_before(program)
    loss = max(n for n, i in enumerate(program.instructions) if Flag.SOFTMAX_CE in i.flags)
    assert counts[loss] >= 5 and max(counts) >= 2 * counts[loss] - 2


def test_layer_norms_have_scales_and_shifts_of_their_own() -> None:
    """Only a batch norm's are two rows of one tensor."""
    scale, rows = np.arange(4.0), np.arange(8.0).reshape(2, 4)
    assert by_parameter({"norm.weight": scale}).keys() == {"norm.weight"}
    assert by_parameter({"norm.weight": rows}).keys() == {"norm.weight", "norm.bias"}
