"""Products with all stages of the unit behind the array: graphs of one instruction."""

from __future__ import annotations

import numpy as np
from dlc_backend_s2train.instruction import S2Instruction, geometry_values, hyper_values
from dlc_backend_s2train.program import Geometry, Hyper

from dlc.base.types import Type, f16, u8
from dlc.graph import Constant, Graph, Input, Item, Op, Tensor
from tests.backend_s2train.products_by_hand import integers, x_of


def norm(channels: int, seed: int) -> Constant:
    """[4, C] of mean, 1/std, scale and shift: whole numbers and powers of two, so that nothing is rounded."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(-2, 3, channels), rng.choice([0.5, 1, 2], channels), rng.choice([-1, 1, 2], channels)]
    return Constant(Tensor.of(np.stack([*rows, rng.integers(-2, 3, channels)]).astype(np.float16)), f"norm{seed}")


def bits(shape: tuple[int, ...]) -> Type:
    """What bits of a shape are stored as."""
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
