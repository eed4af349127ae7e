"""The unit behind the array works once, on the sum of a decomposed product.

Integers throughout, of which fp32 holds all sums: a program in blocks gives the bits of one with whole kernels.
"""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_s2train.codes import Splitting
from dlc_backend_s2train.decompose.s2_decompose import S2Decompose
from dlc_backend_s2train.instruction import S2Instruction, geometry_values
from dlc_backend_s2train.program import Geometry

from dlc import Report
from dlc.base.types import Type, f16, f32
from dlc.graph import Constant, Graph, Op, Tensor
from tests.backend_s2train.products_by_hand import both, integers, program, same, square, x_of
from tests.backend_s2train.unit_by_hand import backward_with_all, forward_with_all

G = square(5)
CROPPED = square(7, 2, size=12, pad=1)


@pytest.mark.parametrize("dropout", [False, True])
def test_the_unit_behind_the_array_works_on_the_whole_sum(dropout: bool) -> None:
    graph = forward_with_all(G, dropout)
    given = {i.name: integers(k, *i.shape, dtype=np.float32) for k, i in enumerate(graph.inputs)}
    made, found, wanted = both(graph, given)
    same(found, wanted)
    text = [(op.opcode, op.splitting, op.flags) for op in made.ops if isinstance(op, S2Instruction)]
    first, middle = ("accumulate_out", "first"), ("accumulate_in", "accumulate_out")
    (whole,) = (op for op in graph.ops if isinstance(op, S2Instruction))
    if dropout:
        # The bits of dropout go to `aux`, where the partial sum would come from.
        assert text == [
            ("conv", first, ()),
            *[("conv", middle, ())] * 3,
            ("eltwise", ("first", "last"), whole.flags),
        ]
    else:
        assert text == [
            ("conv", first, ()),
            *[("conv", middle, ())] * 2,
            ("conv", ("accumulate_in", "last"), whole.flags),
        ]


def test_sums_lie_in_one_place() -> None:
    """A partial sum is written over the one before it."""
    made = program(S2Decompose().run(forward_with_all(G, False), Report()))
    sums = [i.operands for i in made.instructions if Splitting.ACCUMULATE_OUT in i.splitting]
    assert len(sums) == 3
    assert len({made.tensors[o["dst0"]].storage for o in sums}) == 1


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("g", [G, CROPPED], ids=["5x5", "7x7 stride 2"])
def test_gradients_pass_the_unit_once(g: Geometry, dropout: bool) -> None:
    graph = backward_with_all(g, dropout)
    given = {i.name: integers(k, *i.shape, dtype=np.float32) for k, i in enumerate(graph.inputs)}
    made, found, wanted = both(graph, given)
    same(found, wanted)
    last = [op for op in made.ops if isinstance(op, S2Instruction)][-1]
    assert (last.opcode, "accumulate_in" in last.splitting) == (("eltwise", False) if dropout else ("conv", True))
    assert sum("bn_backward" in op.flags for op in made.ops if isinstance(op, S2Instruction)) == 1


def test_partial_sums_of_others_go_on() -> None:
    """A product that is a part of a sum itself: it begins with one and leaves one."""
    g = G
    x, y = x_of(g), (g.n, g.co, g.ho, g.wo)
    values = [integers(k, g.co, g.ci, g.kh, g.kw) for k in range(3)]
    partial: Op | None = None
    for k, value in enumerate(values):
        read: dict[str, Op] = {"src0": x, "src1": Constant(Tensor.of(value), f"w{k}")}
        read |= {} if partial is None else {"aux": partial}
        out = k < 2
        partial = S2Instruction(
            tuple(read.values()),
            opcode="conv",
            splitting=(
                *(("accumulate_in",) if k else ()),
                *(("accumulate_out",) if out else ()),
                *(("first",) if not k else ()),
                *(("last",) if not out else ()),
            ),
            geometry=geometry_values(g),
            reads=tuple((slot, v.shape, 0) for slot, v in read.items()),
            writes=(("dst0", "fp32" if out else "fp16", y, "partial" if out else "activation", 0),),
            results=(Type(f32 if out else f16, y),),
        )
    assert partial is not None
    made, found, wanted = both(Graph((x,), (partial,), ("y",)), {"x": integers(9, *x.shape, dtype=np.float32)})
    same(found, wanted)
    text = [op.splitting for op in made.ops if isinstance(op, S2Instruction)]
    first, middle, last = ("accumulate_out", "first"), ("accumulate_in", "accumulate_out"), ("accumulate_in", "last")
    assert text == [first, *[middle] * 10, last]
