"""The unit behind the array works once, on the sum of a decomposed product.

Integers throughout, of which fp32 holds all sums: a program in blocks gives the bits of one with whole kernels.
"""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_s2train.decompose.s2_decompose import S2Decompose
from dlc_backend_s2train.instruction import S2Instruction, geometry_values, hyper_values
from dlc_backend_s2train.program import Geometry, Hyper, Splitting

from dlc import Report
from dlc.graph import Constant, Graph, Input, Item, Op, Tensor
from dlc.types import Type, f16, f32, u8
from tests.backend_s2train.products_by_hand import both, integers, program, same, square, x_of

G = square(5)
CROPPED = square(7, 2, size=12, pad=1)


def norm(channels: int, seed: int) -> Constant:
    """[4, C] of mean, 1/std, scale and shift: whole numbers and powers of two, so that nothing is rounded."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(-2, 3, channels), rng.choice([0.5, 1, 2], channels), rng.choice([-1, 1, 2], channels)]
    return Constant(Tensor.of(np.stack([*rows, rng.integers(-2, 3, channels)]).astype(np.float16)), f"norm{seed}")


def bits(shape: tuple[int, ...]) -> Type:
    return Type(u8, (int(np.prod(shape)) // 8,))


def forward_with_all(g: Geometry, dropout: bool) -> Graph:
    """Convolution, norm, addition, relu with mask, max-pool with pointers, and perhaps dropout."""
    x, y = x_of(g), (g.n, g.co, g.ho, g.wo)
    res = Input("res", Type(f16, y))
    w = Constant(Tensor.of(integers(1, g.co, g.ci, g.kh, g.kw)), "w")
    pooled = (g.n, g.co, g.ho // 2, g.wo // 2)
    reads: dict[str, Op] = {"src0": x, "src1": w, "bn0": norm(g.co, 2), "res": res}
    flags = ["relu", "mask_write", "add", "bn_forward", "pool_2", "pointer_write"]
    writes = [
        ("dst0", "fp16", pooled, "activation", 0),
        ("mask", "bit", y, "mask", 0),
        ("ptr", "ptr2", pooled, "pointer", 0),
    ]
    results = [Type(f16, pooled), bits(y), Type(u8, (int(np.prod(pooled)) // 4,))]
    if dropout:
        flags.append("dropout")
        writes.append(("aux", "bit", pooled, "mask", 0))
        results.append(bits(pooled))
    op = S2Instruction(
        tuple(reads.values()),
        opcode="conv",
        flags=tuple(flags),
        geometry=geometry_values(g),
        hyper=hyper_values(Hyper(keep=0.5, seed=11)) if dropout else (),
        reads=tuple((slot, v.shape, 0) for slot, v in reads.items()),
        writes=tuple(writes),
        results=tuple(results),
    )
    outputs = tuple(Item(op, k) for k in range(len(results)))
    return Graph((x, res), outputs, ("y", "mask", "pointers", "kept")[: len(results)], origins={op.digest: ("conv",)})


@pytest.mark.parametrize("dropout", [False, True])
def test_the_unit_behind_the_array_works_on_the_whole_sum(dropout: bool) -> None:
    graph = forward_with_all(G, dropout)
    given = {i.name: integers(k, *i.shape, dtype=np.float32) for k, i in enumerate(graph.inputs)}
    made, found, wanted = both(graph, given)
    same(found, wanted)
    told = [(op.opcode, op.splitting, op.flags) for op in made.ops if isinstance(op, S2Instruction)]
    first, middle = ("accumulate_out", "first"), ("accumulate_in", "accumulate_out")
    (whole,) = (op for op in graph.ops if isinstance(op, S2Instruction))
    if dropout:
        # The bits of dropout go to `aux`, where the partial sum would come from.
        assert told == [
            ("conv", first, ()),
            *[("conv", middle, ())] * 3,
            ("eltwise", ("first", "last"), whole.flags),
        ]
    else:
        assert told == [
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


def decided(shape: tuple[int, ...]) -> S2Instruction:
    """relu and dropout of an input: a mask and the bits of dropout, as results 1 and 2."""
    return S2Instruction(
        (Input("before", Type(f16, shape)),),
        opcode="eltwise",
        flags=("relu", "mask_write", "dropout"),
        hyper=hyper_values(Hyper(keep=0.5, seed=11)),
        reads=(("src0", shape, 0),),
        writes=(
            ("dst0", "fp16", shape, "activation", 0),
            ("mask", "bit", shape, "mask", 0),
            ("aux", "bit", shape, "mask", 0),
        ),
        results=(Type(f16, shape), bits(shape), bits(shape)),
    )


def backward_with_all(g: Geometry, dropout: bool) -> Graph:
    """Gradient of the data, addition, mask, perhaps dropout, then a norm with the gradient before it kept."""
    x = (g.n, g.ci, g.hi, g.wi)
    dy, res = Input("dy", Type(f16, (g.n, g.co, g.ho, g.wo))), Input("res", Type(f16, x))
    w = Constant(Tensor.of(integers(1, g.co, g.ci, g.kh, g.kw)), "w")
    masks = decided(x)
    reads: dict[str, Op] = {"src0": dy, "src1": w, "mask": Item(masks, 1), "bn0": norm(g.ci, 2), "res": res}
    flags = ["mask_read", "add", "bn_backward"]
    if dropout:
        flags.append("dropout")
        reads["aux"] = Item(masks, 2)
    op = S2Instruction(
        tuple(reads.values()),
        opcode="conv",
        stage="backward",
        flags=tuple(flags),
        geometry=geometry_values(g),
        hyper=hyper_values(Hyper(keep=0.5)) if dropout else (),
        reads=tuple((slot, x if slot in ("mask", "aux") else v.shape, 0) for slot, v in reads.items()),
        writes=(("dst0", "fp16", x, "feature_gradient", 0), ("dst1", "fp16", x, "feature_gradient", 0)),
        results=(Type(f16, x), Type(f16, x)),
    )
    return Graph(
        (dy, res, masks.operands[0]),  # pyright: ignore[reportArgumentType]  # an input
        (Item(op, 0), Item(op, 1), Item(masks, 0)),
        ("dx", "before the norm", "y"),
    )


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
    told = [op.splitting for op in made.ops if isinstance(op, S2Instruction)]
    first, middle, last = ("accumulate_out", "first"), ("accumulate_in", "accumulate_out"), ("accumulate_in", "last")
    assert told == [first, *[middle] * 10, last]
