"""Weights that are trained in blocks, and what cannot be decomposed.

Integers throughout, of which fp32 holds all sums: a program in blocks gives the bits of one with whole kernels.
"""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_s2train.decompose.blocks import blocks_of
from dlc_backend_s2train.decompose.s2_decompose import S2Decompose
from dlc_backend_s2train.instruction import S2Instruction, hyper_values
from dlc_backend_s2train.program import Geometry, Hyper

from dlc import DlcError, Report
from dlc.base.types import Type, f16, f32
from dlc.graph import Constant, Graph, Input, Item, Op, Tensor
from tests.backend_s2train.products_by_hand import both, instruction, integers, rectangular, same, square, x_of

G = square(5)
CROPPED = square(7, 2, size=12, pad=1)


def update(gradient: S2Instruction, w: Input, state: Input, master: Input | None, fused: bool = False) -> S2Instruction:
    """w' = w - r·v', v' = m·v + dw + d·w, in fp16 with a velocity of fp32, perhaps with a master copy.

    `fused` takes the place of the gradient's instruction.
    """
    factors = {slot: x for x, (slot, _, _) in zip(gradient.args, gradient.reads, strict=True)}
    held = {**(factors if fused else {"src0": gradient}), "dst0": w, "dst1": master, "aux": state}
    reads = {slot: v for slot, v in held.items() if v is not None}
    kinds = {"dst0": ("fp16", "weight"), "dst1": ("fp32", "state"), "aux": ("fp32", "state")}
    written = {slot: v for slot, v in reads.items() if slot in kinds}
    return S2Instruction(
        tuple(reads.values()),
        opcode=gradient.opcode if fused else "update",
        stage="weight_update",
        geometry=gradient.geometry if fused else (),
        hyper=hyper_values(Hyper(rate=0.25, momentum=0.5, decay=0.5, scale=2.0)),
        reads=tuple((slot, v.shape, 0) for slot, v in reads.items()),
        writes=tuple((slot, kinds[slot][0], v.shape, kinds[slot][1], 0) for slot, v in written.items()),
        results=tuple(v.type for v in written.values()),
    )


def trained(g: Geometry, other: Geometry | None = None, master: bool = False, fused: bool = False) -> Graph:
    """Both gradients and the update of a weight; `other` is a second product of the weight, and gradients add up."""
    shape = (g.co, g.ci // g.groups, g.kh, g.kw)
    w = Input("w", Type(f16, shape), "weight", Tensor.of(integers(1, *shape)))
    state = Input("w.momentum", Type(f32, shape), "state", Tensor.of(integers(2, *shape, dtype=np.float32)))
    copy = Input("w.master", Type(f32, shape), "state", Tensor.of(integers(1, *shape, dtype=np.float32)))
    inputs: list[Input] = []
    gradients: list[S2Instruction] = []
    outputs: dict[str, Op] = {}
    both = [g] if other is None else [g, other]
    for k, each in enumerate(both):
        x, dy = Input(f"x{k}", x_of(each).type), Input(f"dy{k}", Type(f16, (each.n, each.co, each.ho, each.wo)))
        inputs += [x, dy]
        outputs[f"y{k}"] = instruction("forward", each, {"src0": x, "src1": w}, dy.shape, "activation")
        outputs[f"dx{k}"] = instruction("backward", each, {"src0": dy, "src1": w}, x.shape, "feature_gradient")
        read = {"src0": dy, "src1": x}
        gradients.append(instruction("weight_gradient", each, read, shape, "weight_gradient"))
    gradient = gradients[0]
    if other is not None:
        gradient = S2Instruction(
            tuple(gradients),
            opcode="eltwise",
            stage="backward",
            flags=("add",),
            reads=(("src0", shape, 0), ("res", shape, 0)),
            writes=(("dst0", "fp16", shape, "weight_gradient", 0),),
            results=(Type(f16, shape),),
        )
    op = update(gradient, w, state, copy if master else None, fused)
    held = [w, *([copy] if master else []), state]
    outputs |= {i.name: Item(op, k) for k, i in enumerate(held)}
    count = len(outputs) - len(held)
    aliases = tuple((count + k, len(inputs) + k) for k in range(len(held)))
    return Graph((*inputs, *held), tuple(outputs.values()), tuple(outputs), aliases)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("master", [False, True])
@pytest.mark.parametrize("g", [G, CROPPED, rectangular((5, 5), groups=2)], ids=["5x5", "7x7 stride 2", "groups"])
def test_weights_are_trained_in_blocks(g: Geometry, master: bool, fused: bool) -> None:
    graph = trained(g, master=master, fused=fused)
    given = {i.name: integers(k + 5, *i.shape, dtype=np.float32) for k, i in enumerate(graph.inputs[:2])}
    made, found, wanted = both(graph, given)
    same(found, wanted)
    names = [blocks_of(i.name) for i in made.inputs[2:]]
    assert {text[0] for text in names if text} == {i.name for i in graph.inputs[2:]}
    assert None not in names
    assert all(made.names[i] == made.inputs[j].name for i, j in made.aliases)
    assert len(made.aliases) == len(made.inputs) - 2


def test_products_that_disagree_agree_on_single_taps() -> None:
    """One weight under two strides, of which the array has only one."""
    first, second = square(3), square(3, 3)
    graph = trained(first, second)
    given = {i.name: integers(k + 5, *i.shape, dtype=np.float32) for k, i in enumerate(graph.inputs[:4])}
    made, found, wanted = both(graph, given)
    same(found, wanted)
    assert sum(i.role == "weight" for i in made.inputs) == 9


def test_products_that_agree_share_blocks() -> None:
    first, second = square(5), square(5, size=8)
    graph = trained(first, second)
    given = {i.name: integers(k + 5, *i.shape, dtype=np.float32) for k, i in enumerate(graph.inputs[:4])}
    made, found, wanted = both(graph, given)
    same(found, wanted)
    assert sum(i.role == "weight" for i in made.inputs) == 4


def test_products_of_equal_constants_need_not_agree() -> None:
    x, w = x_of(square(3)), Constant(Tensor.of(integers(1, 4, 3, 3, 3)), "w")
    geometries = square(3), square(3, 3)
    made = [
        instruction("forward", g, {"src0": x, "src1": w}, (g.n, g.co, g.ho, g.wo), "activation") for g in geometries
    ]
    graph, found, wanted = both(
        Graph((x,), tuple(made), ("whole", "taps")), {"x": integers(3, *x.shape, dtype=np.float32)}
    )
    same(found, wanted)
    assert sum(isinstance(op, S2Instruction) for op in graph.ops) == 10


# ---- refusals ----
def refused(graph: Graph) -> list[str]:
    with pytest.raises(DlcError) as problem:
        S2Decompose().run(graph, Report())
    assert {d.code for d in problem.value.diagnostics} == {"not-decomposed"}
    return [d.message for d in problem.value.diagnostics]


def forward(g: Geometry) -> Graph:
    w = Constant(Tensor.of(np.zeros((g.co, g.ci, g.kh, g.kw), np.float16)), "w")
    op = instruction("forward", g, {"src0": x_of(g), "src1": w}, (g.n, g.co, g.ho, g.wo), "activation")
    return Graph((x_of(g),), (op,), ("y",), origins={op.digest: ("conv1",)})


def test_kernels_larger_than_their_input_are_refused() -> None:
    g = Geometry(1, 1, 1, 4, 9, 1, 1, 7, 7, (1, 1), (1, 1, 1, 1))
    assert refused(forward(g)) == [
        "conv1: 1 windows of 7 taps, stride 1 and dilation 1, need 7 rows, but the input has 6 with its pads"
    ]


def test_geometries_without_size_are_refused() -> None:
    g = Geometry(1, 1, 1, 9, 9, 0, 1, 5, 5)
    assert refused(forward(g)) == ["conv1: its geometry has a size of 0"]


@pytest.mark.parametrize("kernel", [(100, 100), (2000, 1)])
def test_kernels_of_too_many_blocks_are_refused(kernel: tuple[int, int]) -> None:
    g = Geometry(1, 1, 1, *kernel, 1, 1, *kernel)
    assert refused(forward(g)) == [f"conv1: its kernel of {kernel[0]} x {kernel[1]} makes more than 1024 blocks"]


def test_whole_readers_of_a_kernel_in_blocks_are_refused() -> None:
    graph = trained(G)
    (w,) = (i for i in graph.inputs if i.role == "weight")
    op = S2Instruction(
        (w,),
        opcode="copy",
        reads=(("src0", w.shape, 0),),
        writes=(("dst0", "fp16", (w.type.size,), "activation", 0),),
        results=(Type(f16, (w.type.size,)),),
    )
    more = Graph(graph.inputs, (*graph.outputs, op), (*graph.names, "flat"), graph.aliases)
    assert refused(more) == ["s2_instruction: copy forward reads w as a whole, which lies in blocks"]


def test_names_of_blocks_that_are_taken_are_refused() -> None:
    graph = trained(G)
    other = Input("w[0:3:1,3:5:1]", Type(f16, (3,)))
    extra = S2Instruction(
        (other,),
        opcode="copy",
        reads=(("src0", (3,), 0),),
        writes=(("dst0", "fp16", (3,), "activation", 0),),
        results=(Type(f16, (3,)),),
    )
    more = Graph(
        (other, *graph.inputs),
        (*graph.outputs, extra),
        (*graph.names, "z"),
        tuple((i, j + 1) for i, j in graph.aliases),
    )
    assert refused(more) == ["w[0:3:1,3:5:1]: input w[0:3:1,3:5:1] is called like a block"]


def test_blocks_are_pruned_by_coins_of_their_own() -> None:
    """Gradients that are equal everywhere: coins of the same seed would fall alike in every block."""
    g = square(6, size=10, pad=0)
    x, dy = x_of(g), Input("dy", Type(f16, (g.n, g.co, g.ho, g.wo)))
    shape = (g.co, g.ci, 6, 6)
    hyper = hyper_values(Hyper(threshold=100.0, seed=5))
    read = {"src0": dy, "src1": x}
    op = instruction("weight_gradient", g, read, shape, "weight_gradient", flags=("prune",), hyper=hyper)
    given = {"x": np.ones(x.shape), "dy": np.ones(dy.shape)}
    made, found, _ = both(Graph((x, dy), (op,), ("dw",)), given)
    assert len({op.hyper for op in made.ops if isinstance(op, S2Instruction)}) == 4
    dw = found["dw"]
    assert set(dw.ravel()) == {0.0, 100.0}
    parts = [dw[..., i : i + 3, j : j + 3] for i in (0, 3) for j in (0, 3)]
    for k, one in enumerate(parts):
        assert 0.35 < (one > 0).mean() < 0.65
        assert all(0.3 < (one == other).mean() < 0.7 for other in parts[k + 1 :])
