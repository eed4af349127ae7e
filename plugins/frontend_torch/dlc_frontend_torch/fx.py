"""A graph of torch.fx → `Program`: what torch.compile and AOTAutograd give."""

# pyright: basic
# PyTorch's own types are partly unknown.

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from dlc.base.types import Type
from dlc_frontend_torch.nodes import DTYPES, Node, Parameter, Place, Program, Ref
from dlc_frontend_torch.schema import is_library, place_of
from dlc_frontend_torch.unsupported import Unsupported

TORCH_DTYPES: Final[Mapping[str, torch.dtype]] = {name: getattr(torch, name) for name in DTYPES}
NAME_OF: Final[Mapping[torch.dtype, str]] = {of: name for name, of in TORCH_DTYPES.items()}
TORCH_OF: Final = {DTYPES[name]: of for name, of in TORCH_DTYPES.items()}
"""dlc's element type → PyTorch's."""


def type_of(value: Any) -> Type | None:
    """The type of a tensor; None for anything else, and for element types and places that dlc does not have."""
    if not isinstance(value, torch.Tensor) or value.dtype not in NAME_OF or value.device.type not in ("cpu", "meta"):
        return None
    if value.layout != torch.strided or not all(isinstance(d, int) for d in value.shape):
        return None
    return Type(DTYPES[NAME_OF[value.dtype]], tuple(value.shape))


def target_of(target: Any) -> str:
    """ "aten.add.Tensor" for torch.ops.aten.add.Tensor."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target._schema.name.partition('::')[2]}.{target._overloadname}"
    module, name = getattr(target, "__module__", "") or "", getattr(target, "__name__", str(target))
    if target is operator.getitem:
        return "_operator.getitem"
    return f"{module.partition('.')[0]}.{name}"


def plain(arg: Any) -> Any:
    """An argument, without objects of PyTorch."""
    match arg:
        case FxNode():
            return Ref(arg.name)
        case list() | tuple():
            return [plain(a) for a in arg]
        case dict():
            return {k: plain(v) for k, v in arg.items()}
        case slice():
            raise Unsupported("a slice as an argument")
        case torch.dtype():
            return NAME_OF.get(arg, str(arg))
        case torch.device():
            return arg.type
        case torch.memory_format() | torch.layout():
            return None
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            raise Unsupported("a size that is not known")
        case _:
            return arg


def node_of(node: FxNode) -> Node:
    """A call."""
    meta = node.meta
    stack = meta.get("nn_module_stack") or {}
    modules = list(stack.values())
    path = modules[-1][0] if modules and isinstance(modules[-1], tuple) else ""
    path = str(path).replace("L['self'].", "").removeprefix("L__self__.").replace("_modules.", "")
    found = place_of(node.stack_trace, None, is_library)
    place = Place(path if path not in ("L['self']", "L__self__") else "", found.file, found.line, found.code)
    kwargs = {str(k): plain(v) for k, v in node.kwargs.items()}
    return Node(
        target_of(node.target), tuple(plain(a) for a in node.args), kwargs, (node.name,), node.name, True, place
    )


def values_of(nodes: Sequence[FxNode]) -> dict[str, Type]:
    """What PyTorch says of the values."""
    return {n.name: of for n in nodes if (of := type_of(n.meta.get("val"))) is not None}


def program_of(module: GraphModule, name: str, value: Callable[[FxNode], Any]) -> Program:
    """The program of a graph whose placeholders and attributes are inputs.

    Args:
        module: A functional graph of ATen's operators.
        name: What generated names start from.
        value: Gives the tensor of a `get_attr` node.
    """
    inputs: list[tuple[str, Any]] = []
    nodes: list[Node] = []
    outputs: list[Any] = []
    types: dict[str, Type] = {}
    parameters: list[Parameter] = []
    for node in module.graph.nodes:
        of = type_of(node.meta.get("val"))
        if of is not None:
            types[node.name] = of
        match node.op:
            case "placeholder":
                inputs.append((node.name, of))
            case "get_attr":
                if (known := type_of(value(node))) is not None:
                    parameters.append(Parameter(node.name, node.name, known, trained=False))
            case "call_function":
                nodes.append(node_of(node))
            case "output":
                found = node.args[0]  # one value of a part of a graph stands by itself
                outputs = list(found) if isinstance(found, (list, tuple)) else [found]
            case _:
                raise Unsupported(f"a node of kind {node.op}")
    named = tuple((f"out{k}", plain(v)) for k, v in enumerate(outputs))
    return Program(name, tuple(inputs), tuple(parameters), tuple(nodes), named, types)
