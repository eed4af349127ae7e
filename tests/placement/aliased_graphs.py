"""Random graphs full of aliasing, compiled twice: with a plan that shares memory, and with one that shares none.

    graph → parts or not, fused or not, order drawn → plan-memory{…} drawn ┐
                                                    → plan-memory{none}    ┴→ one C program: same bits of every output,
                                                                              inputs untouched

Views, results in place, concatenations that hold their operands, chains of them that grow, parts of them, kernels with
several readers, several outputs, outputs over inputs, several memories, copies between them, inputs that are consumed.
Working memory is filled with garbage before each call. Many graphs are compiled as one file.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlc_backend_c.backend import C
from dlc_backend_c.manifest import read

from dlc import Report, Spec
from dlc.api.plan import Plan
from dlc.base.types import Type, f32
from dlc.graph import Graph, Input, Op, make_graph
from dlc.graph.structure import Item
from dlc.ops.elementwise import Add, Mul, Neg, Relu
from dlc.ops.shape import Concat, Reshape, Slice, Transpose
from dlc.passes.fuse import Fuse
from dlc.passes.lower import Lower
from dlc.passes.order import Order
from dlc.passes.parts import Parts
from dlc.passes.plan_memory import PlanMemory

SHAPES = ((4, 6), (24,), (2, 12), (8, 3), (2, 3, 4))
"""Of 24 elements each; concatenations have twice as many."""
MOST = 400
"""Elements of a value."""
MAIN = """
#include <stdio.h>
#include <string.h>

static unsigned seed = 1;
static void fill(float *x, int n)
{
    for (int k = 0; k < n; ++k) {
        seed = seed * 1664525u + 1013904223u;
        x[k] = (float)(int)(seed >> 20) / 256 - 8;
    }
}

int main(void)
{
    int bad = 0;
"""


def drawn_graph(seed: int) -> Graph:
    """Eight to forty operations on one to three inputs, some of whose buffers an output may share."""
    draw = random.Random(seed)
    inputs = [Input(f"x{k}", Type(f32, draw.choice(SHAPES))) for k in range(draw.randint(1, 3))]
    values: list[Op] = list(inputs)
    for _ in range(draw.randint(8, 40)):
        values.append(_op(draw, values))
    computed = [v for v in values[len(inputs) :] if v not in inputs]
    like = [v for v in computed if v.type in [x.type for x in inputs]]
    more = draw.sample(like, min(len(like), draw.randint(0, 2)))
    last = dict.fromkeys([values[-1], *more, *draw.sample(computed, min(len(computed), draw.randint(0, 3)))])
    outputs = {f"y{k}": op for k, op in enumerate(last)}
    aliases: dict[int, int] = {}
    for j, x in enumerate(inputs):
        same = [i for i, op in enumerate(last) if op.type == x.type and i not in aliases]
        if same and draw.random() < 0.5:
            aliases[draw.choice(same)] = j
    graph = make_graph(inputs, outputs)
    return replace(graph, aliases=tuple(sorted(aliases.items())))


def _op(draw: random.Random, values: Sequence[Op]) -> Op:
    x = draw.choice(values[-8:])
    shape = x.type.shape
    size = x.type.size
    match draw.randrange(10):
        case 0:
            return Reshape(
                x,
                draw.choice(
                    [s for s in ((size,), (2, size // 2), (size // 2, 2), (1, size)) if s != shape and size % s[0] == 0]
                ),
            )
        case 1 if len(shape) > 1:
            axes = list(range(len(shape)))
            draw.shuffle(axes)
            return Transpose(x, tuple(axes))
        case 2 if 2 * size <= MOST:
            others = [v for v in values if v.type == x.type]
            count = draw.randint(2, min(4, MOST // size))
            return Concat(tuple(draw.choice(others) for _ in range(count)), draw.randrange(len(shape)))
        case 8 | 9:
            return _grown(draw, x, values)
        case 3 | 4:
            axis = draw.randrange(len(shape))
            if shape[axis] > 1:
                part = shape[axis] // 2
                if 2 * size // shape[axis] * part >= 8:
                    starts = [0] * len(shape)
                    starts[axis] = draw.randint(0, shape[axis] - part)
                    return Slice(x, tuple(starts), tuple(part if d == axis else n for d, n in enumerate(shape)))
            return Neg(x)
        case 5 | 6:
            others = [v for v in values if v.type == x.type]
            return draw.choice((Add, Mul))(Relu(x), draw.choice(others))
        case _:
            return draw.choice((Relu, Neg))(x)


def _grown(draw: random.Random, x: Op, values: Sequence[Op]) -> Op:
    """A value with something computed of it, or another that is as long but for one axis, behind or before it."""
    shape = x.type.shape
    axis = draw.randrange(len(shape))
    like = [
        v
        for v in values
        if len(v.type.shape) == len(shape)
        and all(m == n for d, (m, n) in enumerate(zip(v.type.shape, shape, strict=True)) if d != axis)
        and v.type.size + x.type.size <= MOST
    ]
    if not like:
        return Neg(x)
    other = draw.choice(like[-6:])
    pair = (x, draw.choice((Relu, Neg))(other) if draw.random() < 0.7 else other)
    return Concat(pair if draw.random() < 0.7 else pair[::-1], axis)


def drawn_order(plan: Plan, draw: random.Random) -> Plan:
    """The steps in any order that their operands allow."""
    left, done, steps = list(plan.steps), set[str](), list[Op]()
    needs = {s.digest: _needs(s, {t.digest for t in plan.steps}) for s in plan.steps}
    while left:
        ready = [s for s in left if needs[s.digest] <= done]
        step = draw.choice(ready)
        left.remove(step)
        steps.append(step)
        done.add(step.digest)
    return replace(plan, steps=tuple(steps))


def _needs(step: Op, steps: set[str]) -> set[str]:
    """Steps that one reads, be it through views."""
    found, pending = set[str](), list(step.operands)
    while pending:
        op = pending.pop()
        op = op.of if isinstance(op, Item) else op
        if op.digest in steps:
            found.add(op.digest)
        else:
            pending += op.operands
    return found


@dataclass(frozen=True)
class Pair:
    """A graph by two plans."""

    seed: int
    plain: Plan
    shared: Plan


def planned(seed: int) -> Pair:
    """The plans of a graph, in orders of their own where concatenations hold their operands in one of them."""
    draw = random.Random(seed + 1)
    kernels = Lower().run(drawn_graph(seed), Report())
    joined = Parts(bytes=1, peak=False).run(kernels, Report()) if draw.random() < 0.7 else kernels
    if draw.random() < 0.5:
        kernels, joined = (Fuse().run(graph, Report()) for graph in (kernels, joined))
    ordered = Order().run(joined, Report())
    if draw.random() < 0.7 and not kernels.aliases:  # what overwrites an input waits for its readers
        ordered = drawn_order(ordered, draw)
    plain = PlanMemory(strategy="none", in_place=False).run(Order().run(kernels, Report()), Report())
    strategy = draw.choice(("greedy", "best-fit", "search"))
    shared = PlanMemory(strategy=strategy, align=draw.choice((4, 8, 64))).run(ordered, Report())
    kind = draw.random()
    if kind < 0.2:
        shared = PlanMemory(strategy=strategy, inputs="consumed").run(ordered, Report())
    elif kind < 0.4:
        regions = (("fast", max(shared.memory // draw.randint(2, 5), 64)), ("slow", 1 << 20))
        costs = (("slow", draw.choice((4.0, 16.0, 100.0))),)
        shared = PlanMemory(strategy="greedy", regions=regions, costs=costs).run(ordered, Report())
    return Pair(seed, plain, shared)


def with_copies(seed: int) -> Pair:
    """The plans of a graph without reuse, and in two or three memories, with copies between these if that pays."""
    draw = random.Random(seed + 2)
    kernels = Lower().run(drawn_graph(seed), Report())
    if draw.random() < 0.2:
        kernels = Parts(bytes=1, peak=False).run(kernels, Report())
    if draw.random() < 0.3:
        kernels = Fuse().run(kernels, Report())
    ordered = Order().run(kernels, Report())
    if not kernels.aliases:
        ordered = drawn_order(ordered, draw)
    plain = PlanMemory(strategy="none", in_place=False).run(ordered, Report())
    align = draw.choice((4, 64))
    size = PlanMemory(align=align).run(ordered, Report()).memory
    regions = [("fast", max(size // draw.choice((2, 3)), align)), ("slow", 1 << 20)]
    costs = [("slow", draw.choice((4.0, 16.0, 100.0)))]
    if draw.random() < 0.3:
        regions.insert(1, ("middle", regions[0][1]))
        costs.insert(0, ("middle", 2.0))
    several = PlanMemory(strategy="greedy", regions=tuple(regions), costs=tuple(costs), align=align)
    return Pair(seed, plain, several.run(ordered, Report()))


def failures(pairs: Sequence[Pair], place: Path, compiler: Sequence[str] = ("gcc", "-O0")) -> list[int]:
    """The seeds of the graphs whose two programs differ in a bit of an output, or write over an input.

    Raises:
        AssertionError: The file cannot be compiled, or its program ends with an error.
    """
    texts, mains = list[str](), list[str]()
    for k, pair in enumerate(pairs):
        for prefix, plan in ((f"p{k}", pair.plain), (f"s{k}", pair.shared)):
            sizes = ",".join(f"{name}:{max(size, 1)}" for name, size in plan.own_regions.items())
            memory = f"memory={sizes}" if len(plan.own_regions) > 1 else ""
            memory += " inputs=consumed" if plan.consumed else ""
            backend = C.from_spec(Spec.parse(f"c{{cpu=generic lib=none weights=text prefix={prefix} {memory}}}"))
            files = backend.emit(plan, Report()).files
            for name in (f"{prefix}.h", f"{prefix}.c", f"{prefix}_weights.c"):
                if name in files:
                    (place / name).write_bytes(read(files[name]))
            texts += [f'#include "{n}"' for n in (f"{prefix}.c", f"{prefix}_weights.c") if n in files]
        mains.append(_main(k, pair))
    (place / "main.c").write_text("\n".join([*texts, MAIN, *mains, "    return bad;", "}"]))
    for command in ([*compiler, "-std=c11", "-w", "main.c", "-o", "main", "-lm"], ["./main"]):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        assert command[0] != compiler[0] or done.returncode == 0, done.stderr[:2000]
    assert done.returncode in (0, 1), f"exit code {done.returncode}: {done.stderr[:2000]}"
    return [pairs[int(line)].seed for line in done.stdout.split()]


def _main(k: int, pair: Pair) -> str:
    """The block that calls both programs of a graph; the call that shares memory may also share buffers of inputs."""
    graph = pair.plain.graph
    reads = [i.type.size for i in graph.inputs]
    writes = [o.type.size for o in graph.outputs]
    over = dict(graph.aliases)
    arrays = [f"static _Alignas(64) float x{j}[{n}], z{j}[{n}];" for j, n in enumerate(reads)]
    arrays += [f"static float p{i}[{n}], s{i}[{n}];" for i, n in enumerate(writes)]
    outs = [f"z{over[i]}" if i in over else f"s{i}" for i in range(len(writes))]
    regions = pair.shared.own_regions
    memory = [f"static _Alignas(64) unsigned char m{r}[{max(n, 1)}];" for r, n in enumerate(regions.values())]
    memory += [f"memset(m{r}, 0xA5, sizeof m{r});" for r in range(len(regions))]
    given = "m0" if regions else "NULL"
    if len(regions) > 1:
        memory.append(f"const s{k}_memory m = {{{', '.join(f'm{r}' for r in range(len(regions)))}}};")
        given = "&m"
    tests = [f"memcmp(p{i}, {outs[i]}, sizeof p{i})" for i in range(len(writes))]
    tests += [
        f"memcmp(x{j}, z{j}, sizeof x{j})"
        for j in range(len(reads))
        if j not in (*over.values(), *pair.shared.consumed)
    ]
    lines: list[Any] = [
        *arrays,
        f"static _Alignas(64) unsigned char arena[{max(pair.plain.memory, 1)}];",
        *memory,
        "memset(arena, 0x5A, sizeof arena);",
        *(f"fill(x{j}, {n}); memcpy(z{j}, x{j}, sizeof x{j});" for j, n in enumerate(reads)),
        f"const void *a[] = {{{', '.join(f'x{j}' for j in range(len(reads)))}}};",
        f"const void *b[] = {{{', '.join(f'z{j}' for j in range(len(reads)))}}};",
        f"void *c[] = {{{', '.join(f'p{i}' for i in range(len(writes)))}}};",
        f"void *d[] = {{{', '.join(outs)}}};",
        f'if (p{k}_run(a, c, arena) || s{k}_run(b, d, {given}) || {" || ".join(tests)}) {{ bad = 1; puts("{k}"); }}',
    ]
    return "\n".join(["    {", *(f"        {line}" for line in lines), "    }"])
