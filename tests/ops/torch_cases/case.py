"""A gradient that is compared with PyTorch: one ONNX node, what it reads, and the same value in torch's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from dlc_frontend_onnx.frontend import Onnx
from onnx import TensorProto, helper, numpy_helper

from dlc import Report, Source, gradients
from dlc.graph import Graph, Input, Op, evaluate

Array = Any
"""A numpy array."""
Tensor = Any
"""A tensor of torch, whose own types are too loose for strict checking."""
RNG: Final = np.random.default_rng(20)
INF, NAN = np.inf, np.nan
NEWEST_FORMAT: Final = 10
"""Version of the file format that every supported release of the onnx package reads."""


@dataclass(frozen=True)
class Case:
    """One node at one point."""

    op: str
    """Operator of the standard domain."""
    what: str
    """The point, in words."""
    inputs: tuple[Array | None, ...]
    """What the node reads; None for an optional operand that is absent. An array that is given twice is one value."""
    same: Callable[..., Any]
    """The same result, or results, from tensors of all inputs."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    opset: int = 22
    fixed: tuple[int, ...] = ()
    """Inputs that are constants of the model: shapes, and values that are not differentiated."""
    chosen: Mapping[int, Array] = field(default_factory=dict[int, Array])
    """Gradients by input where dlc's convention is not torch's, for cotangents of 1."""
    outputs: int = 1
    rtol: float = 1e-9
    atol: float = 1e-12

    def __str__(self) -> str:
        return f"{self.op}: {self.what}"


def normal(*shape: int) -> Array:
    """Numbers without order or sign in common."""
    return np.asarray(RNG.standard_normal(shape))


def positive(*shape: int) -> Array:
    """Numbers from 0.2 to 2."""
    return np.asarray(RNG.uniform(0.2, 2.0, shape))


def f(*values: float) -> Array:
    """A vector of double precision."""
    return np.array(values, np.float64)


def i(*values: int) -> Array:
    """A vector of integers."""
    return np.array(values, np.int64)


def names(case: Case) -> list[str]:
    """A name for each input: one for one array, however often it is read; "" where there is none."""
    seen: dict[int, str] = {}
    return ["" if a is None else seen.setdefault(id(a), f"x{k}") for k, a in enumerate(case.inputs)]


def imported(case: Case) -> Graph:
    """The graph that the frontend makes of a model with the one node."""
    given = {n: (k, a) for k, (n, a) in enumerate(zip(names(case), case.inputs, strict=True)) if a is not None}
    stored = [numpy_helper.from_array(a, n) for n, (k, a) in given.items() if k in case.fixed]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, (k, a) in given.items()
        if k not in case.fixed
    ]
    results = [f"y{k}" for k in range(case.outputs)]
    node = helper.make_node(case.op, names(case), results, **case.attributes)
    outputs = [helper.make_tensor_value_info(r, TensorProto.UNDEFINED, None) for r in results]
    graph = helper.make_graph([node], "g", infos, outputs, stored)
    opset = helper.make_opsetid("", case.opset)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=NEWEST_FORMAT)
    return Onnx().parse(Source(data=model.SerializeToString(), label=f"{case.op}.onnx"), Report())


def asked(case: Case) -> dict[str, Array]:
    """The inputs that are differentiated, by name: those of floating point that are no constants."""
    found = zip(names(case), case.inputs, strict=True)
    return {n: a for k, (n, a) in enumerate(found) if a is not None and a.dtype.kind == "f" and k not in case.fixed}


def by_dlc(case: Case, seeds: Sequence[Array]) -> tuple[list[Array], dict[str, Array]]:
    """Results, and gradients by name, for cotangents of the results of floating point."""
    graph = imported(case)
    floats = [y for y in graph.outputs if y.dtype.is_float]
    given = [Input(f"seed{k}", y.type) for k, y in enumerate(floats)]
    wrt: list[Op] = [x for x in graph.inputs if x.name in asked(case)]
    found = gradients(floats, given, wrt)
    labels = [x.name for x in graph.inputs if x.name in asked(case)]
    whole = Graph((*graph.inputs, *given), (*graph.outputs, *found), (*graph.names, *(f"d{n}" for n in labels)), (), {})
    feeds = {n: a for n, a in zip(names(case), case.inputs, strict=True) if a is not None}
    values = evaluate(whole, {**feeds, **{s.name: a for s, a in zip(given, seeds, strict=True)}})
    return [values[n] for n in graph.names], {n: values[f"d{n}"] for n in labels}


def by_torch(case: Case, seeds: Sequence[Array]) -> tuple[list[Array], dict[str, Array]]:
    """The same from PyTorch's autograd; gradients of what the results do not depend on are zeros."""
    wrt = asked(case)
    made: dict[str, Tensor] = {}
    for name, array in zip(names(case), case.inputs, strict=True):
        if array is not None and name not in made:
            made[name] = torch.tensor(array).requires_grad_(name in wrt)
    found: Tensor = case.same(*(made.get(n) for n in names(case)))
    results: list[Tensor] = [found] if isinstance(found, torch.Tensor) else list(found)
    pairs = list(zip((y for y in results if y.is_floating_point()), map(torch.tensor, seeds), strict=True))
    total = sum(torch.vdot(y.flatten(), s.flatten()) for y, s in pairs if y.requires_grad)
    asking = [made[n] for n in wrt]
    grads: Tensor = torch.autograd.grad(total, asking, allow_unused=True) if isinstance(total, torch.Tensor) else ()
    whole: Tensor = grads or [None] * len(wrt)
    zeros = {n: np.zeros(a.shape) for n, a in wrt.items()}
    gradients = {n: zeros[n] if g is None else g.numpy() for n, g in zip(wrt, whole, strict=True)}
    return [y.detach().numpy() for y in results], gradients
