"""Graphs of single products of the array in all stages, and what they are in fp64 by PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.decompose.blocks import assembled
from dlc_backend_s2train.decompose.s2_decompose import S2Decompose
from dlc_backend_s2train.emit import program_of
from dlc_backend_s2train.instruction import S2Instruction, geometry_of, geometry_values
from dlc_backend_s2train.program import Geometry, Program
from dlc_backend_s2train.simulator.operands import Mode

from dlc import Report
from dlc.base.types import Array, Type, f16
from dlc.graph import Constant, Graph, Input, Item, Op, Tensor
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from tests.backend_s2train.machines import machine_of

F: Any = torch.nn.functional
Doubles = dict[str, Array]


def square(kernel: int, stride: int = 1, dilation: int = 1, size: int = 16, pad: int | None = None) -> Geometry:
    """A convolution with equal sizes along both axes: 2 samples, 3 to 4 channels; padded by half the kernel."""
    return rectangular((kernel, kernel), (stride, stride), (dilation, dilation), size, pad)


def rectangular(
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    size: int = 16,
    pad: int | None = None,
    groups: int = 1,
) -> Geometry:
    """A convolution of `size` x `size`."""
    spans = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    top, left = (span // 2 if pad is None else pad for span in spans)
    ho, wo = ((size + 2 * p - span - 1) // s + 1 for p, span, s in zip((top, left), spans, stride, strict=True))
    pads = (top, left, top, left)
    return Geometry(2, 3 * groups, 4 * groups, size, size, ho, wo, *kernel, stride, pads, dilation, groups)


def operands(g: Geometry, seed: int = 0, integers: bool = False) -> Doubles:
    """x, w and dy in fp16; integers from -4 to 4, of which all sums are exact, or normally distributed."""
    rng = np.random.default_rng(seed)
    shapes = {
        "x": (g.n, g.ci, g.hi, g.wi),
        "w": (g.co, g.ci // g.groups, g.kh, g.kw),
        "dy": (g.n, g.co, g.ho, g.wo),
    }
    made = {k: rng.integers(-4, 5, v) if integers else rng.standard_normal(v) for k, v in shapes.items()}
    return {k: v.astype(np.float16).astype(np.float64) for k, v in made.items()}


def three(g: Geometry, w: Array) -> Graph:
    """y, dx and dw of a constant weight, as one instruction each; x and dy are inputs."""
    x, dy = Input("x", Type(f16, (g.n, g.ci, g.hi, g.wi))), Input("dy", Type(f16, (g.n, g.co, g.ho, g.wo)))
    weight = Constant(Tensor.of(w.astype(np.float16)), "w")
    made = {
        "y": instruction("forward", g, {"src0": x, "src1": weight}, dy.shape, "activation"),
        "dx": instruction("backward", g, {"src0": dy, "src1": weight}, x.shape, "feature_gradient"),
        "dw": instruction("weight_gradient", g, {"src0": dy, "src1": x}, weight.shape, "weight_gradient"),
    }
    return Graph((x, dy), tuple(made.values()), tuple(made), origins={op.digest: ("conv",) for op in made.values()})


def instruction(
    stage: str, g: Geometry, read: Mapping[str, Op], shape: tuple[int, ...], role: str, **more: Any
) -> S2Instruction:
    """A convolution whose result is fp16."""
    return S2Instruction(
        tuple(read.values()),
        opcode="conv",
        stage=stage,
        geometry=geometry_values(g),
        reads=tuple((slot, x.shape, 0) for slot, x in read.items()),
        writes=(("dst0", "fp16", shape, role, 0),),
        results=(Type(f16, shape),),
        **more,
    )


def exact(g: Geometry, given: Doubles) -> Doubles:
    """y, dx and dw of a convolution by PyTorch in fp64."""
    x, w = (torch.tensor(given[k]).requires_grad_() for k in ("x", "w"))
    y = convolved(x, w, g)
    dx, dw = torch.autograd.grad(y, (x, w), torch.tensor(given["dy"]))
    return {"y": y.detach().numpy(), "dx": dx.numpy(), "dw": dw.numpy()}


def convolved(x: torch.Tensor, w: torch.Tensor, g: Geometry) -> Any:
    """The convolution of a geometry; negative pads crop."""
    top, left, bottom, right = g.pads
    framed = F.pad(x, [max(pad, 0) for pad in (left, right, top, bottom)])
    framed = framed[:, :, max(-top, 0) : framed.shape[2] + min(bottom, 0)]
    framed = framed[:, :, :, max(-left, 0) : framed.shape[3] + min(right, 0)]
    return F.conv2d(framed, w, stride=g.stride, dilation=g.dilation, groups=g.groups)[:, :, : g.ho, : g.wo]


def evaluated(graph: Graph, given: Doubles) -> Doubles:
    """What convolutions without stages of the unit behind the array give, in fp64 throughout: PyTorch for each one."""
    values: dict[str, Array] = {}
    for op in graph.ops:
        match op:
            case Input(name=name):
                values[op.digest] = given[name]
            case Constant(tensor=tensor):
                values[op.digest] = tensor.array().astype(np.float64)
            case S2Instruction():
                values[op.digest] = _product(
                    op, {r[0]: values[x.digest] for r, x in zip(op.reads, op.args, strict=True)}
                )
            case Item() | _:
                raise AssertionError(f"{op} is no product")
    return {name: values[op.digest] for name, op in zip(graph.names, graph.outputs, strict=True)}


def _product(op: S2Instruction, read: Mapping[str, Array]) -> Array:
    g = geometry_of(op.geometry)
    assert g is not None and op.opcode == "conv" and not op.flags
    first, second = (torch.tensor(read[slot]) for slot in ("src0", "src1"))
    if op.stage == "forward":
        result = convolved(first, second, g)
    else:
        # Linear in each operand, so the value of the one that the gradient is of does not matter.
        x = torch.zeros(g.n, g.ci, g.hi, g.wi, dtype=torch.float64)
        w = torch.zeros(g.co, g.ci // g.groups, g.kh, g.kw, dtype=torch.float64)
        of = x if op.stage == "backward" else w
        x, w = (of.requires_grad_(), second) if op.stage == "backward" else (second, of.requires_grad_())
        (result,) = torch.autograd.grad(convolved(x, w, g), of, first)
    return result.numpy() + (read["aux"] if "accumulate_in" in op.splitting else 0)


def program(graph: Graph) -> Program:
    """The program of a graph of instructions; its own checks find nothing."""
    plan = PlanMemory().run(Order().run(graph, Report()), Report())
    found = program_of({"step": plan})
    assert [p.message for p in verify(found)] == []
    return found


def simulated(graph: Graph, given: Mapping[str, Array], mode: Mode = "fast") -> dict[str, Array]:
    """What the program of a graph gives, and what its weights and states are then, by name."""
    found = program(graph)
    machine = machine_of(found, mode, checked=True)
    made = machine.run("step", given)
    stored = {i.name for i in graph.inputs if i.role in ("weight", "state")}
    return made | {name: machine.read(name) for name in sorted(stored)}


def integers(seed: int, *shape: int, dtype: Any = np.float16) -> Array:
    """From -3 to 3, of which fp32 holds all sums."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def both(graph: Graph, given: Mapping[str, Array]) -> tuple[Graph, dict[str, Array], dict[str, Array]]:
    """The decomposed graph; what it gives and what the whole one gives."""
    made = S2Decompose().run(graph, Report())
    assert made is not graph
    return made, assembled(simulated(made, given)), simulated(graph, given)


def same(one: Mapping[str, Array], other: Mapping[str, Array]) -> None:
    """Fail unless both are equal, bit for bit, and something."""
    assert one.keys() == other.keys()
    for name, value in other.items():
        assert np.isfinite(value).all() and value.any(), name
        np.testing.assert_array_equal(one[name], value, err_msg=name)


def x_of(g: Geometry) -> Input:
    """The data of a product."""
    return Input("x", Type(f16, (g.n, g.ci, g.hi, g.wi)))
