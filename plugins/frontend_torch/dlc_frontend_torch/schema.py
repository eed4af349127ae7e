"""torch.export's JSON schema → `Program`. What is read of it is checked; anything else is an error of the file."""

# pyright: basic
# JSON has no types: what is read is checked.

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dlc.base import types as t
from dlc.base.types import DType, Type
from dlc_frontend_torch.nodes import DTYPES, Node, Parameter, Place, Program, Ref

SCALARS: Final[Mapping[int, DType]] = {
    1: t.u8,
    2: t.i8,
    3: t.i16,
    4: t.i32,
    5: t.i64,
    6: t.f16,
    7: t.f32,
    8: t.f64,
    12: t.bool_,
    13: t.bf16,
}
"""Numbers of element types in the schema."""
NAMES: Final[Mapping[int, str]] = {
    code: name for code, d in SCALARS.items() for name, own in DTYPES.items() if own == d
}

Size = Callable[[str], Any]
"""Gives the dimension that the text of an expression means."""


class Malformed(Exception):
    """The document is not what the schema says."""


def one(value: Any) -> tuple[str, Any]:
    """The name and value of a union."""
    if isinstance(value, dict):
        set_ = [(k, v) for k, v in value.items() if v is not None]
        if len(set_) == 1:
            return set_[0]
    raise Malformed(f"a union has no value: {str(value)[:80]}")


def argument(value: Any) -> Any:  # noqa: PLR0911
    """An argument of a call."""
    kind, found = one(value)
    match kind:
        case "as_none":
            return None
        case "as_tensor" | "as_custom_obj":
            return Ref(str(found["name"]))
        case "as_tensors":
            return [Ref(str(v["name"])) for v in found]
        case "as_optional_tensors":
            return [argument(v) for v in found]
        case "as_optional_tensor":
            return argument(found)
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            return _symbolic(found)
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
            return [_symbolic(v) for v in found]
        case "as_scalar_type":
            return NAMES.get(found, f"number {found}")
        case "as_int" | "as_float" | "as_bool" | "as_string" | "as_ints" | "as_floats" | "as_bools" | "as_strings":
            return found
        case "as_device":
            return str(found.get("type", ""))
        case _:
            return None


def _symbolic(value: Any) -> Any:
    kind, found = one(value)
    return Ref(str(found)) if kind == "as_name" else found


def type_of(meta: Any, size: Size) -> Type | None:
    """The type of a tensor; None where dlc has none such."""
    dtype = SCALARS.get(meta["dtype"])
    return None if dtype is None else Type(dtype, tuple(extent(d, size) for d in meta["sizes"]))


def extent(value: Any, size: Size) -> Any:
    """A dimension."""
    kind, found = one(value)
    return int(found) if kind == "as_int" else size(str(found["expr_str"]))


_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def expression(text: str, symbol: Callable[[str], Any]) -> Any:
    """The value of sympy's text, `2*s0 + 1` or `Mul(Integer(2), Symbol('s0'))`, without running it.

    Raises:
        Malformed: it is no expression of sizes.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Malformed(f"no expression of sizes: {text[:80]}") from None
    return _evaluated(tree, symbol, text)


def _evaluated(node: ast.expr, symbol: Callable[[str], Any], text: str) -> Any:  # noqa: PLR0911
    def of(inner: ast.expr) -> Any:
        return _evaluated(inner, symbol, text)

    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return -of(x)
        case ast.BinOp(left=a, op=ast.Add(), right=b):
            return of(a) + of(b)
        case ast.BinOp(left=a, op=ast.Sub(), right=b):
            return of(a) - of(b)
        case ast.BinOp(left=a, op=ast.Mult(), right=b):
            return of(a) * of(b)
        case ast.BinOp(left=a, op=ast.FloorDiv(), right=b):
            return of(a) // of(b)
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))]):
            return symbol(name)
        case ast.Call(func=ast.Name(id="Integer"), args=[x]):
            return of(x)
        case ast.Call(func=ast.Name(id="FloorDiv"), args=[a, b]):
            return of(a) // of(b)
        case ast.Call(func=ast.Name(id=("Add" | "Mul") as name), args=[first, *rest]):
            total = of(first)
            for other in rest:
                total = total + of(other) if name == "Add" else total * of(other)
            return total
        case _:
            raise Malformed(f"no expression of sizes: {text[:80]}")


_FRAME = re.compile(r'File "([^"]*)", line (\d+), in [^\n]*\n\s*([^\n]*)')


def place_of(stack: str | None, modules: str | None, skip: Callable[[str], bool]) -> Place:
    """Where a node comes from: the innermost line that is not PyTorch's own, and the path of the module."""
    frames = _FRAME.findall(stack or "")
    own = next((f for f in reversed(frames) if not skip(f[0])), frames[-1] if frames else None)
    path = (modules or "").rpartition(";")[2].split(",")[1:2]
    module = path[0] if path else ""
    if own is None:
        return Place(module)
    return Place(module, own[0], int(own[1][:9]), own[2].strip())


_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")


def is_library(file: str) -> bool:
    """Whether a file belongs to PyTorch."""
    return file.startswith("<") or _LIBRARY.search(file) is not None


def program(document: Mapping[str, Any], name: str, size: Size) -> Program:
    """The program of a document.

    Args:
        document: The content of model.json.
        name: What generated names start from.
        size: Gives dimensions for expressions.

    Raises:
        Malformed: it is not what the schema says.
    """
    try:
        return _program(document, name, size)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as problem:
        raise Malformed(f"{type(problem).__name__}: {problem}") from None


def _program(document: Mapping[str, Any], name: str, size: Size) -> Program:
    module = document["graph_module"]
    graph, signature = module["graph"], module["signature"]
    metas = graph["tensor_values"]
    inputs: list[tuple[str, Any]] = []
    parameters: list[Parameter] = []
    missing: list[str] = []
    for spec in signature["input_specs"]:
        kind, found = one(spec)
        match kind:
            case "user_input":
                inputs.append(_user_input(found["arg"], metas, size))
            case "parameter" | "buffer" | "tensor_constant":
                value = found["arg"]["name"]
                of = type_of(metas[value], size)
                if of is None:
                    missing.append(value)
                    continue
                parameters.append(Parameter(value, str(found[f"{kind}_name"]), of, kind == "parameter"))
            case "constant_input":
                inputs.append((str(found["name"]), one(found["value"])[1]))
            case _:
                missing.append(str(found.get("arg", {}).get("name", kind)))
    outputs: list[Any] = []
    changed = 0
    for spec in signature["output_specs"]:
        kind, found = one(spec)
        if kind == "user_output":
            outputs.append(argument(found["arg"]))
        else:
            changed += 1
    notes = [f"{changed} buffers that the program changes keep their values"] if changed else []
    types = {n: of for n, m in metas.items() if (of := type_of(m, lambda _: -1)) is not None}
    nodes = tuple(_node(n) for n in graph["nodes"])
    names = _output_names(module.get("module_call_graph") or [], outputs)
    return Program(
        name, tuple(inputs), tuple(parameters), nodes, tuple(zip(names, outputs, strict=True)), types, tuple(notes)
    )


def _user_input(arg: Any, metas: Mapping[str, Any], size: Size) -> tuple[str, Any]:
    kind, found = one(arg)
    if kind != "as_tensor":
        name = found.get("as_name", "") if isinstance(found, dict) else ""
        return (str(name), "symbol") if name else ("", found)
    of = type_of(metas[found["name"]], size)
    if of is None:
        raise Malformed(f"input {found['name']} has an element type that dlc does not have")
    return str(found["name"]), of


def _node(found: Mapping[str, Any]) -> Node:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for given in found["inputs"]:
        value = argument(given["arg"])
        if given.get("kind") == 2:
            kwargs[str(given["name"])] = value
        else:
            args.append(value)
    results, single = _results(found["outputs"])
    meta = found.get("metadata") or {}
    target = str(found["target"]).removeprefix("torch.ops.")
    name = str(found.get("name") or (results[0] if results else target))
    place = place_of(meta.get("stack_trace"), meta.get("nn_module_stack"), is_library)
    return Node(target, tuple(args), kwargs, results, name, single, place)


def _results(outputs: Sequence[Any]) -> tuple[tuple[str, ...], bool]:
    """Names of results, and whether there is one."""
    names: list[str] = []
    listed = False
    for value in outputs:
        found = argument(value)
        if isinstance(found, list):
            listed = True
            names += [v.name for v in found]
        else:
            names.append(found.name if isinstance(found, Ref) else "")
    return tuple(names), len(names) == 1 and not listed


def _output_names(calls: Sequence[Any], outputs: Sequence[Any]) -> list[str]:
    """Keys of the dictionary that the module returns, else `output`, or `output_0`, `output_1`, …"""
    default = ["output"] if len(outputs) == 1 else [f"output_{k}" for k in range(len(outputs))]
    top = next((c for c in calls if c.get("fqn") == ""), None)
    try:
        spec = json.loads((top or {})["signature"]["out_spec"])[1]
        if spec["type"] == "builtins.dict":
            keys = json.loads(spec["context"])
            leaves = [c["type"] is None for c in spec["children_spec"]]
            if all(leaves) and len(keys) == len(outputs) and all(isinstance(k, str) for k in keys):
                return keys
    except (KeyError, TypeError, ValueError, IndexError):
        pass  # the shape of the result is only for names
    return default
