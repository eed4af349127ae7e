"""Training steps of residual networks as tasks with costs: the cases whose peaks documentation and tests compare.

ResNet-18 for 32 x 32 pixels is the S2Train case: a stem of 3 x 3, blocks [2, 2, 2, 2] of two 3 x 3 convolutions,
shortcuts of 1 x 1 and stride 2, max-pool of 4 x 4, a linear layer. ResNet-50 is the network for 224 x 224 pixels.
Elements take two bytes. Counted are feature maps, their gradients and gradients of weights. Weights take no bytes here,
but are storages that updates overwrite, so a forward task that reads one cannot run again after its update. ReLU's
gradient reads the mask from the saved result. Costs are FLOPs: two per multiply-add, one per element and operation of
anything else.

With fixed statistics, convolution, batch norm, addition and ReLU are one task. With those of the batch, a convolution
writes its result before normalisation; another task normalises, adds and applies ReLU; what reads a gradient by the
result of a batch norm reads the saved input of it too, and applies the gradient of the normalisation as it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dlc.placement import Task
from dlc.placement.task_text import TaskGraph

HALF = 2
"""Bytes of an element."""

Gradients = Literal["fused", "tiles", "whole"]
"""Where a weight's gradient goes: into the weight at once, or first to a storage for all or a tile of it."""


@dataclass(frozen=True)
class Conv:
    """A convolution, batch norm and ReLU; or a linear layer, of one pixel per image."""

    name: str
    kernel: int
    inputs: int
    """Channels."""
    outputs: int
    pixels: int
    """Of the result, all images together."""
    x: int = -1
    """Storage of the input."""
    c: int = -1
    """Storage of the result before normalisation; -1 if it isn't kept."""

    @property
    def flops(self) -> int:
        """Of the forward task; those of the gradients by input and weight are as many each."""
        return 2 * self.inputs * self.outputs * self.kernel**2 * self.pixels

    @property
    def elements(self) -> int:
        """Of the result."""
        return self.outputs * self.pixels


@dataclass
class Step:
    """A training step, written down task by task."""

    batch_statistics: bool = False
    gradients: Gradients = "fused"
    tile: int = 288 << 10
    """Bytes of a tile of a weight's gradient."""
    names: list[str] = field(default_factory=list[str])
    tasks: list[Task] = field(default_factory=list[Task])
    sizes: list[int] = field(default_factory=list[int])
    costs: list[int] = field(default_factory=list[int])
    weights: dict[str, int] = field(default_factory=dict[str, int])

    def storage(self, size: int) -> int:
        """A new storage of some bytes."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def weight(self, name: str) -> int:
        """The storage of a layer's weight."""
        if name not in self.weights:
            self.weights[name] = self.storage(0)
        return self.weights[name]

    def add(self, name: str, reads: Sequence[int], writes: Sequence[int], cost: int, over: int = -1) -> None:
        """A task whose first result may lie over the storage `over`."""
        known = tuple(dict.fromkeys(storage for storage in reads if storage >= 0))
        self.names.append(name)
        self.tasks.append(Task(known, tuple(writes), inplace=((over, writes[0]),) if over >= 0 else ()))
        self.costs.append(cost)

    def forward(
        self, conv: Conv, x: int, side: int = -1, over: bool = False, pool: Sequence[int] = ()
    ) -> tuple[Conv, int]:
        """A layer with the addition of `side`, which it may lie over; its results are `pool`, or one storage."""
        weight = self.weight(conv.name)
        if not self.batch_statistics:
            results = pool or (self.storage(HALF * conv.elements),)
            self.add(f"F_{conv.name}", (x, side, weight), results, conv.flops, side if over else -1)
            return Conv(conv.name, conv.kernel, conv.inputs, conv.outputs, conv.pixels, x), results[0]
        c = self.storage(HALF * conv.elements)
        self.add(f"F_{conv.name}", (x, weight), (c,), conv.flops)
        made = Conv(conv.name, conv.kernel, conv.inputs, conv.outputs, conv.pixels, x, c)
        if conv.name.endswith("d"):  # a shortcut is normalised where it is added
            return made, c
        results = pool or (self.storage(HALF * conv.elements),)
        self.add(f"N_{conv.name}", (c, side), results, 4 * conv.elements, -1)
        return made, results[0]

    def gradient(self, conv: Conv, g: int, elements: int, side: int = -1, mask: int = -1) -> int:
        """The gradient by a layer's input: added to `side`, in its place, where the mask of the input's ReLU is set."""
        found = self.storage(HALF * elements)
        reads = (g, conv.c, side, mask, self.weight(conv.name))
        self.add(f"B_{conv.name}", reads, (found,), conv.flops, side)
        return found

    def update(self, conv: Conv, g: int) -> None:
        """The gradient by a layer's weight, and the update of the weight."""
        weight = self.weight(conv.name)
        if self.gradients == "fused":
            self.add(f"WG_{conv.name}", (conv.x, g, conv.c, weight), (weight,), conv.flops)
            return
        total = HALF * conv.inputs * conv.outputs * conv.kernel**2
        rows = conv.outputs
        most = max(1, rows * self.tile // total) if self.gradients == "tiles" else rows
        for start in range(0, rows, most):
            part = min(most, rows - start)
            tile = self.storage(total * part // rows)
            name = f"{conv.name}.{start // most}" if most < rows else conv.name
            self.add(f"WG_{name}", (conv.x, g, conv.c), (tile,), conv.flops * part // rows)
            self.add(f"WU_{name}", (tile, weight), (weight,), total * part // rows)

    def block(
        self, convs: Sequence[Conv], shortcut: Conv | None, x: int, pool: Sequence[int] = ()
    ) -> tuple[Block, int]:
        """Forward of a residual block."""
        made: list[Conv] = []
        y = x
        for conv in convs[:-1]:
            done, y = self.forward(conv, y)
            made.append(done)
        side = x
        if shortcut:
            shortcut, side = self.forward(shortcut, x)
        over = shortcut is not None and not self.batch_statistics
        last, out = self.forward(convs[-1], y, side, over, pool)
        return Block((*made, last), shortcut), out

    def backward(self, block: Block, g: int, elements: int) -> int:
        """Backward of a residual block: from the gradient by its result, masked already, to the one by its input."""
        side = g
        for conv in reversed(block.convs[1:]):
            below = self.gradient(conv, g, self.sizes[conv.x] // HALF, mask=conv.x)
            self.update(conv, g)
            g = below
        if block.shortcut:
            outer = side
            side = self.gradient(block.shortcut, outer, elements)
            self.update(block.shortcut, outer)
        first = block.convs[0]
        found = self.gradient(first, g, elements, side, first.x)
        self.update(first, g)
        return found

    def graph(self) -> TaskGraph:
        """All of it."""
        return TaskGraph(tuple(self.names), tuple(self.tasks), tuple(self.sizes), tuple(self.costs))


@dataclass(frozen=True)
class Block:
    """The layers of a residual block, as the forward pass left them."""

    convs: tuple[Conv, ...]
    shortcut: Conv | None


def resnet18(
    batch: int = 4, *, batch_statistics: bool = False, gradients: Gradients = "fused", tile: int = 288 << 10
) -> TaskGraph:
    """The S2Train case."""
    step = Step(batch_statistics, gradients, tile)
    image = step.storage(HALF * batch * 3 * 32 * 32)
    step.add("input", (), (image,), 0)
    stem, y = step.forward(Conv("c0", 3, 3, 64, batch * 1024), image)
    blocks: list[tuple[Block, int]] = []
    channels, side, pixels = 64, 32, batch * 1024
    pool: tuple[int, ...] = ()
    for k in range(1, 9):
        wide = channels * 2 if k in (3, 5, 7) else channels
        side //= 2 if wide > channels else 1
        pixels = batch * side * side
        convs = (Conv(f"c{k}a", 3, channels, wide, pixels), Conv(f"c{k}b", 3, wide, wide, pixels))
        shortcut = Conv(f"c{k}d", 1, channels, wide, pixels) if wide > channels else None
        elements = step.sizes[y] // HALF
        if k == 8:
            pool = (step.storage(HALF * 512 * batch), step.storage(512 * batch // 8), step.storage(512 * batch // 2))
        block, y = step.block(convs, shortcut, y, pool)
        blocks.append((block, elements))
        channels = wide
    logits = step.storage(HALF * 10 * batch)
    fc = Conv("fc", 1, 512, 10, batch, y)
    step.add("F_fc", (y, step.weight("fc")), (logits,), fc.flops)  # with softmax, loss and their gradient
    g = step.gradient(fc, logits, 512 * batch)
    step.update(fc, logits)
    masked = step.storage(HALF * 512 * pixels)
    step.add("B_pool", (g, *pool[1:]), (masked,), 512 * pixels)
    for block, elements in reversed(blocks):
        masked = step.backward(block, masked, elements)
    step.update(stem, masked)
    return step.graph()


def resnet50(batch: int = 32, *, gradients: Gradients = "fused") -> TaskGraph:
    """ResNet-50 for 224 x 224 pixels, fixed statistics."""
    step = Step(gradients=gradients)
    image = step.storage(HALF * batch * 3 * 224 * 224)
    step.add("input", (), (image,), 0)
    stem, first = step.forward(Conv("c0", 7, 3, 64, batch * 112 * 112), image)
    pixels = batch * 56 * 56
    y, index = step.storage(HALF * 64 * pixels), step.storage(64 * pixels // 2)
    step.add("pool0", (first,), (y, index), 9 * 64 * pixels)
    blocks: list[tuple[Block, int]] = []
    channels, side = 64, 56
    for stage, count in enumerate((3, 4, 6, 3)):
        narrow = 64 << stage
        for k in range(count):
            before, side = batch * side * side, side // 2 if stage and not k else side
            pixels = batch * side * side
            name = f"{stage}_{k}"
            convs = (
                Conv(f"{name}a", 1, channels, narrow, before),
                Conv(f"{name}b", 3, narrow, narrow, pixels),
                Conv(f"{name}c", 1, narrow, 4 * narrow, pixels),
            )
            shortcut = None if k else Conv(f"{name}d", 1, channels, 4 * narrow, pixels)
            elements = step.sizes[y] // HALF
            block, y = step.block(convs, shortcut, y)
            blocks.append((block, elements))
            channels = 4 * narrow
    pooled, logits = step.storage(HALF * 2048 * batch), step.storage(HALF * 1000 * batch)
    step.add("gap", (y,), (pooled,), 2048 * pixels)
    fc = Conv("fc", 1, 2048, 1000, batch, pooled)
    step.add("fc", (pooled, step.weight("fc")), (logits,), fc.flops)
    g = step.gradient(fc, logits, 2048 * batch)
    step.update(fc, logits)
    masked = step.storage(HALF * 2048 * pixels)
    step.add("B_gap", (g, y), (masked,), 2048 * pixels)
    for block, elements in reversed(blocks):
        masked = step.backward(block, masked, elements)
    found = step.storage(step.sizes[first])
    step.add("B_pool0", (masked, index, first), (found,), step.sizes[first] // HALF)
    step.update(stem, found)
    return step.graph()
