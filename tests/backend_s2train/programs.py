"""Small programs made by hand: each legal, with weights, every arena and several entries among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from dlc_backend_s2train.codes import NO_FLAGS, Arena, Element, Flag, Role, Slot, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import (
    Entry,
    Function,
    Geometry,
    Hyper,
    Instruction,
    Program,
    Storage,
    Tensor,
)

ARENAS = {
    Role.INPUT: Arena.HOST,
    Role.LABEL: Arena.HOST,
    Role.OUTPUT: Arena.HOST,
    Role.LOSS: Arena.HOST,
    Role.WEIGHT: Arena.WEIGHTS,
    Role.NORM: Arena.WEIGHTS,
    Role.STATE: Arena.WEIGHTS,
    Role.FEATURE_GRADIENT: Arena.FEATURE_GRADIENTS,
    Role.WEIGHT_GRADIENT: Arena.WEIGHT_GRADIENTS,
}
"""Where the tensors of a role lie; the others lie among the features."""


@dataclass
class Hand:
    """A program that grows: storages one behind the other, 64-byte aligned, in use from first to last instruction."""

    tensors: list[Tensor] = field(default_factory=list[Tensor])
    storages: list[tuple[Arena, int, int]] = field(default_factory=list[tuple[Arena, int, int]])
    geometries: list[Geometry] = field(default_factory=list[Geometry])
    hypers: list[Hyper] = field(default_factory=list[Hyper])
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    entries: list[Entry] = field(default_factory=list[Entry])
    weights: dict[int, bytes] = field(default_factory=dict[int, bytes])
    at: int = 0

    def tensor(
        self, name: str, shape: Sequence[int], role: Role, element: Element = Element.FP16, value: Any = None
    ) -> int:
        """A tensor with a storage of its own, which begins with `value` if one is given."""
        found = Tensor(name, len(self.storages), tuple(shape), element, role)
        self.storages.append((ARENAS.get(role, Arena.FEATURES), self.at, found.nbytes))
        self.at += -(-found.nbytes // 64) * 64
        if value is not None:
            types = {Element.FP16: "<f2", Element.FP32: "<f4", Element.INT32: "<i4"}
            data = np.ascontiguousarray(np.broadcast_to(np.asarray(value, types[element]), shape)).tobytes()
            self.weights[found.storage] = data
        self.tensors.append(found)
        return len(self.tensors) - 1

    def view(self, name: str, of: int, shape: Sequence[int], offset: int = 0, role: Role | None = None) -> int:
        """Another tensor in the storage of one that is there."""
        base = self.tensors[of]
        role = base.role if role is None else role
        self.tensors.append(Tensor(name, base.storage, tuple(shape), base.element, role, base.offset + offset))
        return len(self.tensors) - 1

    def do(
        self,
        opcode: Opcode,
        stage: Stage = Stage.FORWARD,
        flags: Flag = NO_FLAGS,
        geometry: Geometry | None = None,
        hyper: Hyper | None = None,
        **operands: int,
    ) -> None:
        """One more instruction."""
        slots: Mapping[Slot, int] = operands  # pyright: ignore[reportAssignmentType]  # keywords are slots
        number, figures = _numbered(self.geometries, geometry), _numbered(self.hypers, hyper)
        made = Instruction(opcode, stage, flags, geometry=number, hyper=figures, operands=slots)
        self.instructions.append(made)

    def entry(
        self,
        name: str,
        inputs: Sequence[tuple[str, int]] = (),
        labels: Sequence[tuple[str, int]] = (),
        outputs: Sequence[tuple[str, int]] = (),
    ) -> None:
        """A function of all instructions since the entry before."""
        begin = self.entries[-1].end if self.entries else 0
        self.do(Opcode.END)
        self.entries.append(Entry(name, begin, len(self.instructions), tuple(inputs), tuple(labels), tuple(outputs)))

    def program(self, **meta: str) -> Program:
        """All of it, with lifetimes: weights and what the host sees live always, the rest while it is used."""
        spans: dict[int, tuple[int, int]] = {}
        for number, instruction in enumerate(self.instructions):
            for operand in instruction.operands.values():
                storage = self.tensors[operand].storage
                spans[storage] = (spans.get(storage, (number, 0))[0], number + 1)
        always = (0, len(self.instructions))
        storages = [
            Storage(arena, at, size, *(always if arena in (Arena.HOST, Arena.WEIGHTS) else spans[number]))
            for number, (arena, at, size) in enumerate(self.storages)
        ]
        return Program(
            tuple(self.tensors),
            tuple(storages),
            tuple(self.geometries),
            tuple(self.hypers),
            tuple(self.instructions),
            tuple(self.entries),
            dict(self.weights),
            meta=meta,
        )


def _numbered(table: list[Any], record: Any) -> int | None:
    """The number of a record in a table, which gets it if it lacks it."""
    if record is None:
        return None
    if record not in table:
        table.append(record)
    return table.index(record)


def _random(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape) * 0.25


def forward_conv() -> Program:
    """`predict`: y[2, 4, 6, 6] = relu(bn(conv3x3(x[2, 3, 6, 6]))), padded by 1, with the relu's mask kept."""
    hand = Hand()
    x = hand.tensor("x", (2, 3, 6, 6), Role.INPUT)
    w = hand.tensor("w", (4, 3, 3, 3), Role.WEIGHT, value=_random(0, 4, 3, 3, 3))
    norm = hand.tensor("norm", (4, 4), Role.NORM, value=[[0.1] * 4, [1.5] * 4, [1.0] * 4, [0.25] * 4])
    mask = hand.tensor("y.mask", (2, 4, 6, 6), Role.MASK, Element.BIT)
    y = hand.tensor("y", (2, 4, 6, 6), Role.OUTPUT)
    shape = Geometry(2, 3, 4, 6, 6, 6, 6, 3, 3, pads=(1, 1, 1, 1))
    flags = Flag.BN_FORWARD | Flag.RELU | Flag.MASK_WRITE
    hand.do(Opcode.CONV, Stage.FORWARD, flags, shape, src0=x, src1=w, dst0=y, mask=mask, bn0=norm)
    hand.entry("predict", inputs=[("x", x)], outputs=[("y", y)])
    return hand.program(model="forward_conv")


def linear_step() -> Program:
    """`step` of 8 - relu 6 - 3 classes, batch 4: loss, backward, gradients of weights and biases, SGD with momentum;
    and `predict` with the same weights."""
    hand = Hand()
    x = hand.tensor("x", (4, 8), Role.INPUT)
    label = hand.tensor("label", (4,), Role.LABEL, Element.INT32)
    loss = hand.tensor("loss", (1,), Role.LOSS, Element.FP32)
    out = hand.tensor("y", (4, 3), Role.OUTPUT)
    layers: list[tuple[int, int, int, int]] = []
    for number, (ci, co) in enumerate([(8, 6), (6, 3)], 1):
        w = hand.tensor(f"w{number}", (co, ci), Role.WEIGHT, value=_random(number, co, ci))
        norm = hand.tensor(
            f"bias{number}", (4, co), Role.NORM, Element.FP32, [[0] * co, [1] * co, [1] * co, [0.5] * co]
        )
        b = hand.view(f"b{number}", norm, (co,), 12 * co, Role.WEIGHT)
        velocity = hand.tensor(f"v{number}", (co, ci), Role.STATE, Element.FP32)
        layers.append((w, norm, b, velocity))
    (w1, bias1, b1, v1), (w2, bias2, b2, v2) = layers
    h = hand.tensor("h", (4, 6), Role.ACTIVATION)
    mask = hand.tensor("h.mask", (4, 6), Role.MASK, Element.BIT)
    dy = hand.tensor("dy", (4, 3), Role.FEATURE_GRADIENT)
    dh = hand.tensor("dh", (4, 6), Role.FEATURE_GRADIENT)
    dw2, dw1 = (hand.tensor(f"dw{k}", s, Role.WEIGHT_GRADIENT) for k, s in ((2, (3, 6)), (1, (6, 8))))
    db2, db1 = (hand.tensor(f"db{k}", (c,), Role.WEIGHT_GRADIENT, Element.FP32) for k, c in ((2, 3), (1, 6)))
    first, second = Geometry(4, 8, 6), Geometry(4, 6, 3)
    sgd, scaled = Hyper(rate=0.0625, momentum=0.875, decay=0.0009765625, scale=128.0), Hyper(scale=128.0)
    relu = Flag.BN_FORWARD | Flag.RELU
    hand.do(Opcode.LINEAR, Stage.FORWARD, relu | Flag.MASK_WRITE, first, src0=x, src1=w1, dst0=h, mask=mask, bn0=bias1)
    flags = Flag.BN_FORWARD | Flag.SOFTMAX_CE
    hand.do(
        Opcode.LINEAR, Stage.FORWARD, flags, second, scaled, src0=h, src1=w2, dst0=dy, dst1=loss, bn0=bias2, aux=label
    )
    hand.do(Opcode.LINEAR, Stage.BACKWARD, Flag.MASK_READ, second, src0=dy, src1=w2, dst0=dh, mask=mask)
    for gradient, value, geometry, dw, db, w, b, v in (
        (dy, h, second, dw2, db2, w2, b2, v2),
        (dh, x, first, dw1, db1, w1, b1, v1),
    ):
        hand.do(Opcode.LINEAR, Stage.WEIGHT_GRADIENT, NO_FLAGS, geometry, src0=gradient, src1=value, dst0=dw)
        hand.do(Opcode.LINEAR, Stage.WEIGHT_GRADIENT, NO_FLAGS, geometry, src0=gradient, dst0=db)
        hand.do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=sgd, src0=dw, dst0=w, aux=v)
        hand.do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=replace(sgd, momentum=0.0), src0=db, dst0=b)
    hand.entry("step", [("x", x)], [("label", label)], [("loss", loss)])
    hidden = hand.tensor("h.predict", (4, 6), Role.ACTIVATION)
    hand.do(Opcode.LINEAR, Stage.FORWARD, relu, first, src0=x, src1=w1, dst0=hidden, bn0=bias1)
    hand.do(Opcode.LINEAR, Stage.FORWARD, Flag.BN_FORWARD, second, src0=hidden, src1=w2, dst0=out, bn0=bias2)
    hand.entry("predict", [("x", x)], outputs=[("y", out)])
    return hand.program(model="linear_step")


def conv_step() -> Program:
    """`step` of conv3x3 - relu - max-pool 2 - linear - cross-entropy, batch 2, with every index and mask and a flatten
    that is only a view."""
    hand = Hand()
    x = hand.tensor("x", (2, 3, 6, 6), Role.INPUT)
    label = hand.tensor("label", (2,), Role.LABEL, Element.INT32)
    loss = hand.tensor("loss", (1,), Role.LOSS, Element.FP32)
    w = hand.tensor("w", (4, 3, 3, 3), Role.WEIGHT, value=_random(3, 4, 3, 3, 3))
    head = hand.tensor("head", (5, 36), Role.WEIGHT, value=_random(4, 5, 36))
    velocity = hand.tensor("w.velocity", (4, 3, 3, 3), Role.STATE, Element.FP32)
    mask = hand.tensor("y.mask", (2, 4, 6, 6), Role.MASK, Element.BIT)
    ptr = hand.tensor("y.ptr", (2, 4, 3, 3), Role.POINTER, Element.PTR2)
    pooled = hand.tensor("pooled", (2, 4, 3, 3), Role.ACTIVATION)
    flat = hand.view("flat", pooled, (2, 36))
    dlogits = hand.tensor("dlogits", (2, 5), Role.FEATURE_GRADIENT)
    dflat = hand.tensor("dflat", (2, 36), Role.FEATURE_GRADIENT)
    dpooled = hand.view("dpooled", dflat, (2, 4, 3, 3))
    dy = hand.tensor("dy", (2, 4, 6, 6), Role.FEATURE_GRADIENT)
    dhead = hand.tensor("dhead", (5, 36), Role.WEIGHT_GRADIENT)
    dw = hand.tensor("dw", (4, 3, 3, 3), Role.WEIGHT_GRADIENT)
    conv, linear = Geometry(2, 3, 4, 6, 6, 6, 6, 3, 3, pads=(1, 1, 1, 1)), Geometry(2, 36, 5)
    ppu = Geometry(2, 4, 4, 6, 6, 6, 6)
    scaled, sgd = Hyper(scale=64.0), Hyper(rate=0.125, momentum=0.5, scale=64.0, nesterov=True)
    hand.do(
        Opcode.CONV,
        Stage.FORWARD,
        Flag.RELU | Flag.MASK_WRITE | Flag.POOL_2 | Flag.POINTER_WRITE,
        conv,
        src0=x,
        src1=w,
        dst0=pooled,
        mask=mask,
        ptr=ptr,
    )
    hand.do(
        Opcode.LINEAR,
        Stage.FORWARD,
        Flag.SOFTMAX_CE,
        linear,
        scaled,
        src0=flat,
        src1=head,
        dst0=dlogits,
        dst1=loss,
        aux=label,
    )
    hand.do(Opcode.LINEAR, Stage.BACKWARD, NO_FLAGS, linear, src0=dlogits, src1=head, dst0=dflat)
    hand.do(Opcode.LINEAR, Stage.WEIGHT_GRADIENT, NO_FLAGS, linear, src0=dlogits, src1=flat, dst0=dhead)
    hand.do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=sgd, src0=dhead, dst0=head)
    back = Flag.POOL_2 | Flag.POINTER_READ | Flag.MASK_READ
    hand.do(Opcode.ELTWISE, Stage.BACKWARD, back, ppu, src0=dpooled, dst0=dy, mask=mask, ptr=ptr)
    hand.do(Opcode.CONV, Stage.WEIGHT_GRADIENT, NO_FLAGS, conv, src0=dy, src1=x, dst0=dw)
    hand.do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=sgd, src0=dw, dst0=w, aux=velocity)
    hand.entry("step", [("x", x)], [("label", label)], [("loss", loss)])
    return hand.program(model="conv_step")


def hosted() -> Program:
    """`predict`: the host normalises x across channels and transposes it, the device adds both and x, with relu."""
    text = """graph(%0 "x0": f32[1,4,3,3], %1 "x1": f32[4,1,1]) {
  %2 = lrn(%0) size=3 alpha=0.5
  %3 = mul(%2, %1)
  %4 = transpose(%0) perm=(0,1,3,2)
  return %3 "y0", %4 "y1"
}
"""
    hand = Hand()
    x = hand.tensor("x", (1, 4, 3, 3), Role.INPUT)
    gain = hand.tensor("gain", (4, 1, 1), Role.WEIGHT, Element.FP32, _random(1, 4, 1, 1))
    a, b = (hand.tensor(name, (1, 4, 3, 3), Role.ACTIVATION) for name in ("a", "b"))
    y = hand.tensor("y", (1, 4, 3, 3), Role.OUTPUT)
    hand.instructions.append(Instruction(Opcode.HOST, function=0))
    hand.do(Opcode.ELTWISE, Stage.FORWARD, Flag.ADD, src0=a, res=b, dst0=a)
    hand.do(Opcode.ELTWISE, Stage.FORWARD, Flag.ADD | Flag.RELU, src0=a, res=x, dst0=y)
    hand.entry("predict", [("x", x)], outputs=[("y", y)])
    made = hand.program()
    # What a call touches its function says.
    lives = {made.tensors[n].storage: (0, end) for n, end in ((a, 3), (b, 2))}
    storages = [
        replace(s, begin=lives[n][0], end=lives[n][1]) if n in lives else s for n, s in enumerate(made.storages)
    ]
    return replace(made, storages=tuple(storages), functions=(Function(text, (x, gain), (a, b)),))


PROGRAMS = {"forward_conv": forward_conv, "linear_step": linear_step, "conv_step": conv_step}
