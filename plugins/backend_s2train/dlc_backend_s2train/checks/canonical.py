"""A program says each thing in one way: what changes nothing has one legal value, and what is said twice says the same.

    a convolution whose geometry names a pool that it does not have   →   refused
    a word of version 1 that is not its instruction's                 →   refused

So a changed bit is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import chain
from typing import Final

from dlc.base.diagnostics import Diagnostic, DlcError
from dlc_backend_s2train.checks.problems import problem, tensor_title, title
from dlc_backend_s2train.codes import Flag, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode, spelled
from dlc_backend_s2train.program import Geometry, Hyper, Instruction, Program, Target
from dlc_backend_s2train.v1 import encoding as v1
from dlc_backend_s2train.v1.correspondence import SLOTS, Holders, layer_of, layers_of, misread, obstacles, restored

_EVERY_CORE: Final = 0xFF
_PRODUCTS: Final = (Opcode.CONV, Opcode.LINEAR)
_POOL_READS: Final = frozenset(("n", "ci", "co", "hi", "wi", "ho", "wo", "pool", "samples"))
_UPDATE: Final = frozenset(("rate", "decay", "scale"))


def canonical_problems(program: Program) -> Iterator[Diagnostic]:
    """Fields that nothing reads and that are not what they are in every other program."""
    for f in fields(Target):
        if (has := getattr(program.target, f.name)) != (should := getattr(Target(), f.name)):
            what = f.name.replace("_", " ")
            yield problem("bad-target", f"the program is for a machine with {has} {what}; S2Train has {should}")
    tables = (("geometry", len(program.geometries)), ("hyper", len(program.hypers)))
    for name, count in tables:
        used = {getattr(i, name) for i in program.instructions}
        for number in sorted({*range(count)} - used):
            what = "geometry" if name == "geometry" else "record of hyper-parameters"
            yield problem("not-canonical", f"{what} {number} is named by no instruction")
    for number, i in enumerate(program.instructions):
        for message in chain(_word(i), _geometry(program, i), _hyper(program, i)):
            yield problem("not-canonical", f"{title(number, i)}: {message}")


def _word(i: Instruction) -> Iterator[str]:
    """Bits of the word itself."""
    if i.cores != _EVERY_CORE:
        yield f"its mask of cores is 0x{i.cores:02x}; every program runs on all of them, 0x{_EVERY_CORE:02x}"
    for end, partial in ((Splitting.FIRST, Splitting.ACCUMULATE_IN), (Splitting.LAST, Splitting.ACCUMULATE_OUT)):
        if (end in i.splitting) == (partial in i.splitting):
            word, other = str(end.name).lower(), str(partial.name).lower()
            yield f"it is {'' if end in i.splitting else 'not '}marked {word}, which stands where {other} does not"


# ---- geometry ----
def _geometry(program: Program, i: Instruction) -> Iterator[str]:
    if i.geometry is None:
        return
    g = program.geometries[i.geometry]
    if i.opcode in _PRODUCTS:
        yield from _product(g, i)
        return
    plain = Geometry(g.n, g.ci, g.co)
    if i.opcode is Opcode.POOL:
        unread = (f.name for f in fields(g) if f.name not in _POOL_READS)
        yield from (_unread(name, g, plain) for name in unread if getattr(g, name) != getattr(plain, name))
        if (g.ho, g.wo) == (1, 1) and g.pool[1] != g.pool[0]:
            yield f"the stride of its only window is {g.pool[1]}; it should be the window, {g.pool[0]}"
        yield from _ranges(g)
        return
    slot = "dst0" if i.stage is Stage.BACKWARD else "src0"
    shape = program.tensors[i.operands[slot]].shape if slot in i.operands else ()
    n, channels, *places = (*shape, 1, 1)[: max(len(shape), 2)]
    height, width = (*places, 1, 1)[:2]
    seen = replace(Geometry(n, channels, channels, height, width, height, width), samples=g.samples)
    if g != seen:
        yield from (_unread(f.name, g, seen) for f in fields(g) if getattr(g, f.name) != getattr(seen, f.name))
    yield from _ranges(g)


def _product(g: Geometry, i: Instruction) -> Iterator[str]:
    if g.pool != (0, 0, 0):
        yield f"its geometry has a pool of {g.pool[0]}, stride {g.pool[1]}, pad {g.pool[2]}; the array pools nothing"
    if i.opcode is Opcode.LINEAR and (g.stride, g.dilation) != ((1, 1), (1, 1)):
        yield f"a linear layer has a stride of {list(g.stride)} and a dilation of {list(g.dilation)}, not of 1"
    top, left, bottom, right = g.pads
    for axis, extent, before, behind, count, stride, kernel, dilation in (
        ("rows", g.hi, top, bottom, g.ho, g.stride[0], g.kh, g.dilation[0]),
        ("columns", g.wi, left, right, g.wo, g.stride[1], g.kw, g.dilation[1]),
    ):
        if kernel == 1 and dilation != 1:
            yield f"a kernel of one has a dilation of {dilation} along {axis}"
        if min(before, behind) < -extent:
            yield f"pads of {before} and {behind} {axis} leave out more than there are, {extent}"
        over = extent + before + behind - ((count - 1) * stride + (kernel - 1) * dilation + 1)
        if over >= stride:
            yield f"pads of {before} and {behind} {axis} end {over} behind the last window; {stride - 1} are the most"
    yield from _ranges(g)
    count = g.co if i.stage is Stage.BACKWARD else g.ci
    if g.channels == (0, count):
        yield f"it names all of {count} channels, which zeros stand for"


def _ranges(g: Geometry) -> Iterator[str]:
    if g.samples == (0, g.n):
        yield f"it names all of {g.n} samples, which zeros stand for"


def _unread(name: str, g: Geometry, plain: Geometry) -> str:
    return f"its geometry has {name} {getattr(g, name)}, which it does not read; it should be {getattr(plain, name)}"


# ---- hyper-parameters ----
def _hyper(program: Program, i: Instruction) -> Iterator[str]:
    if i.hyper is None:
        return
    h = program.hypers[i.hyper]
    reads = _reads(i, h)
    if not reads:
        yield "it names hyper-parameters and reads none"
    for f in fields(Hyper):
        if f.name not in reads and getattr(h, f.name) != f.default:
            yield f"its {f.name} is {getattr(h, f.name)}, which it does not read; it should be {f.default}"


def _reads(i: Instruction, h: Hyper) -> frozenset[str]:
    """The hyper-parameters that an instruction, or the host behind it, reads."""
    found: set[str] = set()
    if i.updates:
        found |= _UPDATE | ({"momentum"} if "aux" in i.operands or h.nesterov else set())
        found |= {"nesterov"} if h.momentum else set()
    if Flag.PRUNE in i.flags:
        found |= {"threshold", "seed", "scale"}
    if Flag.SOFTMAX_CE in i.flags or i.opcode is Opcode.LOSS:
        found |= {"scale", "growth"}
    if Flag.DROPOUT in i.flags:
        found |= {"keep", "seed"} if i.stage is Stage.FORWARD else {"keep"}
    if i.stage is Stage.FORWARD and "bn1" in i.operands:
        found |= {"epsilon"}
    if i.stage is Stage.FORWARD and Flag.BN_TRAIN in i.flags:
        found |= {"epsilon"} | ({"momentum"} if "bn1" in i.operands else set())
    return frozenset(found)


_CODE: Final = "bad-word"


def word_problems(program: Program) -> Iterator[Diagnostic]:
    """Where a file's words, read through its numbering, are not its instructions; nothing where it has no words."""
    if not program.legacy:
        if program.numbering:
            yield problem(
                _CODE, f"{len(program.numbering)} tensors have numbers for words of version 1; there are none"
            )
        return
    layers = layers_of(program)
    every = ((n, layer_of(program, i, layers)) for n, i in enumerate(program.instructions))
    instructions = [(number, layer) for number, layer in every if layer is not None]
    if len(instructions) != len(program.legacy):
        count = f"{len(program.legacy)} words of version 1 for {len(instructions)} instructions that it has"
        yield problem(_CODE, f"there are {count}")
        return
    holders = Holders(program.numbering)
    for one, other in holders.clashes():
        names = f"{tensor_title(program, one.tensor)} and {tensor_title(program, other.tensor)}"
        yield problem(_CODE, f"number {one.number} stands for {names} at instruction {other.begin}")
    for (number, layer), data in zip(instructions, program.legacy, strict=True):
        head = f"{title(number, program.instructions[number])}: its word of version 1"
        yield from (problem(_CODE, f"{head} {message}") for message in _wrong(program, number, layer, data, holders))


def _wrong(program: Program, number: int, layer: Opcode, data: bytes, holders: Holders) -> Iterator[str]:
    instruction = program.instructions[number]
    if reason := "; ".join(obstacles(program, instruction)):
        yield f"cannot say it: {reason}"
        return
    try:
        word = v1.decode(data)
    except DlcError as refused:
        yield f"is none: {refused.diagnostics[0].message}"
        return
    tensors: dict[str, int] = {}
    for name, written in v1.tensors_of(word).items():
        held = holders.at(number, written)
        if held is None:
            yield f"names {name} {written}, which stands for no tensor here"
            return
        tensors[name] = held
    for said in misread(word, program, instruction, layer):
        yield f"says {said}"
    found = restored(word, instruction, tensors)
    if found.operands != instruction.operands:
        yield from _operands(program, instruction, word, tensors)
    for name in ("opcode", "stage", "flags", "splitting"):
        if (one := getattr(found, name)) != (other := getattr(instruction, name)):
            yield f"says {name} {spelled(one)}; the instruction has {spelled(other)}"


def _operands(program: Program, instruction: Instruction, word: v1.Word, tensors: dict[str, int]) -> Iterator[str]:
    """Which operands differ."""
    slots = SLOTS[word.stage]
    other = False
    for name, tensor in tensors.items():
        wanted = instruction.operands.get(slots[name])
        if wanted != tensor:
            other = True
            expected = "nothing" if wanted is None else tensor_title(program, wanted)
            yield f"has {tensor_title(program, tensor)} as {name}; the instruction has {expected} as {slots[name]}"
    if not other:
        missing = [s for s in instruction.operands if s in slots.values() and s not in (slots[n] for n in tensors)]
        yield f"leaves out {', '.join(missing)}"
