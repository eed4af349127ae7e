"""A step of training of ResNet-18 for pictures of 32 x 32 as the published compiler schedules it: fused or one operator
an instruction, weights updated at once, every mask and pointer an fp16 of its own."""

from __future__ import annotations

from dataclasses import dataclass

from dlc_backend_s2train.codes import NO_FLAGS, Element, Flag, Role, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper, Program

from tests.backend_s2train.programs import Hand


@dataclass(frozen=True)
class Conv:
    """A convolution with its norm, and what backward needs of it."""

    geometry: Geometry
    x: int
    w: int
    bn: int
    y: int
    mask: int = -1
    """Of the relu behind it."""


class Step:
    """Writes the instructions of one step."""

    def __init__(self, n: int, fused: bool) -> None:
        self.hand, self.n, self.fused, self.names = Hand(), n, fused, 0
        self.pointers = self.flat = -1

    def tensor(self, role: Role, *shape: int) -> int:
        self.names += 1
        return self.hand.tensor(f"t{self.names}", shape, role)

    def like(self, of: int, role: Role = Role.FEATURE_GRADIENT) -> int:
        return self.tensor(role, *self.hand.tensors[of].shape)

    def alone(self, stage: Stage, flags: Flag, x: int, out: int = -1, **operands: int) -> int:
        """The post-processing unit alone."""
        out = self.like(x) if out < 0 else out
        self.hand.do(Opcode.ELTWISE, stage, flags, None, None, src0=x, dst0=out, **operands)
        return out

    def conv(
        self, x: int, co: int, kernel: int, stride: int, relu: bool, res: int = -1, pool: bool = False
    ) -> tuple[Conv, int]:
        """Convolution, norm, sum, relu, pool → (what backward needs, result)."""
        _, ci, height, _ = self.hand.tensors[x].shape
        out, pad = height // stride, kernel // 2
        g = Geometry(self.n, ci, co, height, height, out, out, kernel, kernel, (stride, stride), (pad, pad, pad, pad))
        w, bn = self.tensor(Role.WEIGHT, co, ci, kernel, kernel), self.tensor(Role.NORM, 4, co)
        mask = self.tensor(Role.MASK, self.n, co, out, out) if relu else -1
        # What a fused pool reads is not kept.
        y = mask if self.fused and pool else self.tensor(Role.ACTIVATION, self.n, co, out, out)
        flags, held = Flag.BN_FORWARD, {"bn0": bn}
        if res >= 0:
            flags, held = flags | Flag.ADD, held | {"res": res}
        if relu:
            flags, held = flags | Flag.RELU | Flag.MASK_WRITE, held | {"mask": mask}
        last = y
        if pool:
            self.pointers, last = self.like(y, Role.POINTER), self.tensor(Role.ACTIVATION, self.n, co, 1, 1)
            flags, held = flags | Flag.POOL_4 | Flag.POINTER_WRITE, held | {"ptr": self.pointers}
        if self.fused:
            self.hand.do(Opcode.CONV, Stage.FORWARD, flags, g, None, src0=x, src1=w, dst0=last, **held)
        else:
            self.hand.do(Opcode.CONV, Stage.FORWARD, NO_FLAGS, g, src0=x, src1=w, dst0=y)
            # In place: the counts are of operands, wherever they lie.
            self.alone(Stage.FORWARD, Flag.BN_FORWARD, y, y, bn0=bn)
            if res >= 0:
                self.alone(Stage.FORWARD, Flag.ADD, y, y, res=res)
            if relu:
                self.alone(Stage.FORWARD, Flag.RELU | Flag.MASK_WRITE, y, y, mask=mask)
            if pool:
                self.alone(Stage.FORWARD, Flag.POOL_4 | Flag.POINTER_WRITE, y, last, ptr=self.pointers)
        return Conv(g, x, w, bn, y, mask), last

    def gradient(self, dy: int, x: int, w: int, g: Geometry, opcode: Opcode = Opcode.CONV) -> None:
        """Of the weight, and the update."""
        dw = self.like(w, Role.WEIGHT_GRADIENT)
        self.hand.do(opcode, Stage.WEIGHT_GRADIENT, NO_FLAGS, g, src0=dy, src1=x, dst0=dw)
        self.hand.do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=Hyper(rate=0.1), src0=dw, dst0=w)

    def back(self, dy: int, of: Conv, mask: int = -1, bns: tuple[int, ...] = (), add: int = -1) -> tuple[int, ...]:
        """dx of a convolution, then sum, relu and norms of what lies before it → a gradient for each norm."""
        first = self.like(of.x)
        if not self.fused:
            self.hand.do(Opcode.CONV, Stage.BACKWARD, NO_FLAGS, of.geometry, src0=dy, src1=of.w, dst0=first)
            first = self.alone(Stage.BACKWARD, Flag.ADD, first, res=add) if add >= 0 else first
            first = self.alone(Stage.BACKWARD, Flag.MASK_READ, first, mask=mask) if mask >= 0 else first
            return tuple(self.alone(Stage.BACKWARD, Flag.BN_BACKWARD, first, bn0=bn) for bn in bns) or (first,)
        flags, held = NO_FLAGS, dict[str, int]()
        if add >= 0:
            flags, held = flags | Flag.ADD, held | {"res": add}
        if mask >= 0:
            flags, held = flags | Flag.MASK_READ, held | {"mask": mask}
        if bns:
            flags, held = flags | Flag.BN_BACKWARD, held | {"bn0": bns[0]}
        if len(bns) > 1:
            flags, held = flags | Flag.BN_BACKWARD_2, held | {"bn1": bns[1], "dst1": self.like(of.x)}
        self.hand.do(Opcode.CONV, Stage.BACKWARD, flags, of.geometry, None, src0=dy, src1=of.w, dst0=first, **held)
        return (first, held["dst1"]) if len(bns) > 1 else (first,)


def resnet18_step(n: int, fused: bool) -> Program:
    """The whole step for a batch of `n`."""
    step = Step(n, fused)
    hand = step.hand
    x = step.tensor(Role.INPUT, n, 3, 32, 32)
    stem, y = step.conv(x, 64, 3, 1, True)
    blocks: list[tuple[Conv, Conv, Conv | None]] = []
    for level, co in enumerate((64, 128, 256, 512)):
        for number in range(2):
            stride, begin = (2 if level and not number else 1), y
            one, y = step.conv(begin, co, 3, stride, True)
            down, res = step.conv(begin, co, 1, 2, False) if stride == 2 else (None, begin)
            two, y = step.conv(y, co, 3, 1, True, res, pool=co == 512 and number == 1)
            blocks.append((one, two, down))
    label, loss = hand.tensor("label", (n,), Role.LABEL, Element.INT32), Geometry(n, 512, 10)
    flat, w = step.tensor(Role.ACTIVATION, n, 512), step.tensor(Role.WEIGHT, 10, 512)
    hand.do(Opcode.COPY, src0=y, dst0=flat)
    dlogits = step.tensor(Role.FEATURE_GRADIENT, n, 10)
    if fused:
        hand.do(Opcode.LINEAR, flags=Flag.SOFTMAX_CE, geometry=loss, src0=flat, src1=w, dst0=dlogits, aux=label)
    else:
        logits = step.like(dlogits)
        hand.do(Opcode.LINEAR, geometry=loss, src0=flat, src1=w, dst0=logits)
        hand.do(Opcode.LOSS, flags=Flag.SOFTMAX_CE, src0=logits, dst0=dlogits, aux=label)
    dflat, dy = step.like(flat), step.like(y)
    hand.do(Opcode.LINEAR, Stage.BACKWARD, geometry=loss, src0=dlogits, src1=w, dst0=dflat)
    step.gradient(dlogits, flat, w, loss, Opcode.LINEAR)
    hand.do(Opcode.COPY, src0=dflat, dst0=dy)
    last = blocks[-1][1]
    dy = step.alone(Stage.BACKWARD, Flag.POOL_4 | Flag.POINTER_READ, dy, step.like(last.y), ptr=step.pointers)
    dsum = step.alone(Stage.BACKWARD, Flag.MASK_READ, dy, mask=last.mask)
    gradients: tuple[int, ...] = (step.alone(Stage.BACKWARD, Flag.BN_BACKWARD, dsum, bn0=last.bn),)
    for number in reversed(range(len(blocks))):
        one, two, down = blocks[number]
        step.gradient(gradients[0], two.x, two.w, two.geometry)
        (dmid,) = step.back(gradients[0], two, one.mask, (one.bn,))
        # What goes around the block is the gradient at its sum; its tensor is of no matter to the counts.
        before = blocks[number - 1] if number else None
        mask, bns = (before[1].mask, (before[1].bn,)) if before else (stem.mask, (stem.bn,))
        bns = (*bns, before[2].bn) if before and before[2] else bns
        step.gradient(dmid, one.x, one.w, one.geometry)
        if down:
            step.gradient(gradients[-1], down.x, down.w, down.geometry)
            (straight,) = step.back(dmid, one)
            gradients = step.back(gradients[-1], down, mask, bns, straight)
        else:
            gradients = step.back(dmid, one, mask, bns, step.like(one.x))
    step.gradient(gradients[0], x, stem.w, stem.geometry)
    step.back(gradients[0], stem)
    hand.entry("step", [("x", x)], [("label", label)])
    return hand.program(model="ResNet-18")
