"""What the tests of selection share: small models, what they become as lines of text, and as programs that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.defaults import NAMED
from dlc_backend_s2train.emit import program_of
from dlc_backend_s2train.instruction import S2Instruction
from dlc_backend_s2train.program import Program, Storage
from dlc_backend_s2train.select.s2_select import S2Select
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Mode

from dlc import Report
from dlc.api.plan import Plan
from dlc.base.types import Array, Type, f32
from dlc.graph import Constant, Graph, Input, Item, Op, Tensor
from dlc.graph.gradient import sweep
from dlc.ops.elementwise import Add, Relu
from dlc.ops.linear import Conv, Gemm
from dlc.ops.normalize import BatchNorm
from dlc.ops.pool import MaxPool
from dlc.ops.shape import Reshape
from dlc.passes.autodiff import Autodiff
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from dlc.spec import Spec
from tests.backend_s2train.machines import machine_of

SGD = "sgd{lr=0.25 momentum=0.5}"


@dataclass
class Model:
    """A model that grows; its weights are named constants that fp16 holds, and every op is the origin of itself."""

    seed: int = 0
    inputs: list[Input] = field(default_factory=list[Input])
    names: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    weights: dict[str, Array] = field(default_factory=dict[str, Array])

    def x(self, *shape: int, name: str = "x") -> Input:
        self.inputs.append(Input(name, Type(f32, shape)))
        return self.inputs[-1]

    def weight(self, name: str, *shape: int, scale: float = 0.5) -> Constant:
        values = np.random.default_rng([self.seed, len(self.weights)]).standard_normal(shape) * scale
        return self.constant(name, values)

    def constant(self, name: str, values: Any) -> Constant:
        held = np.asarray(values).astype(np.float16).astype(np.float32)
        self.weights[name] = held
        return Constant(Tensor.of(held), name)

    def note(self, op: Op, kind: str) -> Op:
        count = sum(name[0].startswith(kind) for name in self.names.values())
        self.names[op.digest] = (f"{kind}{count + 1}",)
        return op

    def name(self, kind: str) -> str:
        return f"{kind}{sum(name[0].startswith(kind) for name in self.names.values()) + 1}"

    def conv(self, x: Op, co: int, kernel: int = 3, stride: int = 1, bias: bool = False) -> Op:
        name, pad = self.name("conv"), kernel // 2
        w = self.weight(f"{name}.w", co, x.shape[1], kernel, kernel)
        b = self.weight(f"{name}.b", co) if bias else None
        return self.note(Conv(x, w, b, stride=(stride, stride), pads=(pad,) * 4), "conv")

    def norm(self, x: Op) -> Op:
        name, c = self.name("norm"), x.shape[1]
        rng = np.random.default_rng([self.seed, 7, len(self.weights)])
        ranges = {"scale": (0.5, 1.5), "shift": (-0.5, 0.5), "mean": (-0.5, 0.5), "var": (0.5, 2.0)}
        scale, shift, mean, var = [self.constant(f"{name}.{k}", rng.uniform(*s, c)) for k, s in ranges.items()]
        return self.note(BatchNorm(x, scale, shift, mean, var), "norm")

    def linear(self, x: Op, co: int, bias: bool = True) -> Op:
        name = self.name("linear")
        w = self.weight(f"{name}.w", co, x.shape[1])
        return self.note(Gemm(x, w, self.weight(f"{name}.b", co) if bias else None, trans_b=True), "linear")

    def relu(self, x: Op) -> Op:
        return self.note(Relu(x), "relu")

    def add(self, a: Op, b: Op) -> Op:
        return self.note(Add(a, b), "add")

    def pool(self, x: Op, k: int) -> Op:
        return self.note(MaxPool(x, window=(k, k), stride=(k, k)), "pool")

    def flat(self, x: Op) -> Op:
        return Reshape(x, to=(x.shape[0], x.type.size // x.shape[0]))

    def graph(self, *outputs: Op, names: Sequence[str] = ("scores",)) -> Graph:
        return Graph(tuple(self.inputs), outputs, tuple(names), origins=self.names)


def training(
    graph: Graph, optimizer: str = SGD, more: str = "wrt=!norms stored-norms=yes", loss: str = "cross-entropy"
) -> Graph:
    """The graph of a training step, gradients named as the plugin's pipeline wants them."""
    text = f"autodiff{{loss={loss} optimizer={optimizer} {more} named={','.join(NAMED)}}}"
    return Autodiff.from_spec(Spec.parse(text, "test")).run(graph, Report())


def select(graph: Graph, report: Report | None = None, **options: Any) -> Graph:
    """The graph of instructions; what none computes is refused unless `fallback` says otherwise."""
    chosen: dict[str, Any] = {"fallback": "none", **options}
    return S2Select(**chosen).run(graph, report or Report())


def instructions(graph: Graph) -> list[S2Instruction]:
    """All of them, operands first."""
    return [op for op in graph.ops if isinstance(op, S2Instruction)]


def listing(graph: Graph) -> str:
    """A graph of instructions, one a line: what it does (what it reads) → what it writes."""
    names: dict[Op, str] = {i: i.name for i in graph.inputs}
    lines: list[str] = []
    for op in graph.ops:
        match op:
            case S2Instruction():
                lines.append(_line(op, names))
            case Item(of=of, index=k):
                names[op] = f"{names[of].split()[0]}.{k}"
            case Constant():
                names[op] = op.name or f"constant{list(op.shape)}"
            case _:
                pass
    ends = [f"{name} = {names[op]}" for name, op in zip(graph.names, graph.outputs, strict=True)]
    return "\n".join([*lines, f"return {', '.join(ends)}"])


def _line(op: S2Instruction, names: dict[Op, str]) -> str:
    names[op] = name = f"%{sum(n.startswith('%') and '.' not in n for n in names.values())}"
    reads = [
        f"{slot}={names[x]}{f'+{offset}' if offset else ''}"
        for x, (slot, _, offset) in zip(op.args, op.reads, strict=True)
    ]
    writes = [f"{slot} {element}{list(shape)}" for slot, element, shape, _, _ in op.writes]
    flags = f" [{', '.join(op.flags)}]" if op.flags else ""
    return f"{name} = {op.opcode} {op.stage}{flags} ({', '.join(reads)}) -> {', '.join(writes)}"


def planned(graph: Graph) -> Plan:
    """The plan of a graph of instructions."""
    return PlanMemory().run(Order().run(graph, Report()), Report())


def program(graph: Graph) -> Program:
    """The program of a graph of instructions; its own checks find nothing."""
    found = program_of({"step": planned(graph)})
    assert [p.message for p in verify(found)] == []
    return found


def simulated(graph: Graph, inputs: Mapping[str, Array], mode: Mode = "fast") -> dict[str, Array]:
    """What the program of a graph of instructions gives; every read is of what was written in the same run."""
    return machine_of(program(graph), mode, checked=True).run("step", inputs)


def backward(graph: Graph) -> Graph:
    """The gradients of all weights of products, and of the data, for seeds that are inputs."""
    seeds = [Input(f"dy{k}", op.type) for k, op in enumerate(graph.outputs)]
    weights = [x for op in graph.ops if isinstance(op, Conv | Gemm) for x in op.operands[1:] if isinstance(x, Constant)]
    wrt = [*graph.inputs, *dict.fromkeys(weights)]
    known: dict[Op, Op] = {w: Input(w.name, w.type, "weight", w.tensor) for w in wrt if isinstance(w, Constant)}
    moved = graph.substitute(known)
    targets = [known.get(w, w) for w in wrt]
    found = sweep(moved.outputs, seeds, targets, moved.origins, named=frozenset(NAMED))
    names = [f"d {w.name}" for w in wrt]
    kept = [(n, g) for n, g in zip(names, found.gradients, strict=True) if g.operands]
    gradients, names = [g for _, g in kept], [n for n, _ in kept]
    inputs = (*graph.inputs, *seeds, *(i for i in known.values() if isinstance(i, Input)))
    outputs = (*found.outputs, *gradients)
    # One value may be the gradient of several; the device gives it once.
    return Graph(inputs, outputs, (*graph.names, *names), origins=found.origins)


def fed(graph: Graph, data: dict[str, Array], seed: int = 0) -> dict[str, Array]:
    """Values of all inputs of a graph, weights among them."""
    values = dict(data)
    for i in graph.inputs:
        if i.role == "weight" and i.initial is not None:
            values[i.name] = i.initial.array()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        elif i.name not in values:
            values[i.name] = np.random.default_rng([seed, len(values)]).integers(-1, 2, i.shape).astype(np.float32)
    return values


def unshared(program: Program) -> Program:
    """The program with a place of its own for everything, so that what it kept can be read when it has run."""
    storages: list[Storage] = []
    address = 0
    for s in program.storages:
        storages.append(replace(s, address=address, begin=0, end=len(program.instructions)))
        address += -(-s.size // 64) * 64
    return replace(program, storages=tuple(storages))


def masks(machine: Machine) -> list[Array]:
    """The decisions of relu in the order of computation, of an `unshared` program that has run.

    Near 0 the device may decide otherwise than fp64 does: what compares gradients takes the device's decisions.
    """
    forward = [i for i in machine.program.instructions if i.stage is Stage.FORWARD and "mask" in i.operands]
    return [machine.read(i.operands["mask"]) for i in forward]
