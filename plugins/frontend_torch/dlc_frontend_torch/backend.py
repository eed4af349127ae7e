"""The backend `dlc` of torch.compile.

    torch.compile(model, backend="dlc")
    torch.compile(model, backend="dlc", options={"target": "c{threads=4}", "settings": ["fuse.max-arguments=16"]})

AOTAutograd makes graphs of core ATen operators of the forward and the backward pass; each becomes a program of dlc
whose inputs and outputs are the tensors' own memory. What dlc has no rule for runs in eager PyTorch between programs.
"""

# pyright: basic
# PyTorch's own types are partly unknown.

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func  # pyright: ignore[reportPrivateImportUsage]
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc_frontend_torch.fx import target_of
from dlc_frontend_torch.graphs import Compiled, refused_nodes
from dlc_frontend_torch.rules import rule_of
from dlc_frontend_torch.unsupported import Unsupported

Function = Callable[..., Any]
SMALLEST: Final = 2
"""Operators of a part of a graph that becomes a program of its own."""


@dataclass(frozen=True)
class Options:
    """What `options` of torch.compile may say."""

    target: str = "c"
    settings: tuple[str, ...] = ()
    cache_dir: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """Checked options. Raises DlcError: an option is unknown."""
        known = {"target", "settings", "cache_dir"}
        for name in given or {}:
            if name not in known:
                message = f"torch.compile's backend dlc has no option {name}"
                help = f"options: {', '.join(sorted(known))}"
                raise error("bad-option", message, help=help, exit_code=ExitCode.USAGE)
        found = dict(given or {})
        settings = found.get("settings", ())
        return cls(str(found.get("target", "c")), tuple(settings), found.get("cache_dir"))


def dlc(module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Function:
    """The backend: a graph of torch.compile → a function on its inputs."""
    compiler = partial(_compiler, options=Options.of(options))
    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=decompositions())(
        module, example_inputs
    )


@cache
def decompositions() -> Mapping[Any, Function]:
    """PyTorch's decompositions to core operators, without those of operators that dlc has a rule for."""
    return {op: how for op, how in core_aten_decompositions().items() if rule_of(target_of(op)) is None}


def _compiler(module: GraphModule, example_inputs: Sequence[Any], *, options: Options) -> Function:
    del example_inputs
    return make_boxed_func(function_of(module, options))


def function_of(module: GraphModule, options: Options) -> Function:
    """A graph as a function: one program, one for each combination of sizes, or programs and eager PyTorch."""
    if _is_symbolic(module):
        return BySizes(module, options)
    refused = refused_nodes(module)
    if not refused:
        try:
            return Compiled.of(module, options.target, options.settings, options.cache_dir)
        except DlcError as problem:
            if problem.exit_code not in (ExitCode.MODEL, ExitCode.LIMIT):
                raise
            _warn(f"a graph of {len(module.graph.nodes)} nodes runs in eager PyTorch: {problem.diagnostics[0].message}")
            return module.forward
    reasons = dict.fromkeys(refused.values())
    shown = "; ".join(list(reasons)[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
    _warn(f"{len(refused)} of {len(module.graph.nodes)} nodes run in eager PyTorch: {shown}")
    return _partitioned(module, frozenset(refused), options)


def _warn(what: str) -> None:
    warnings.warn(f"torch.compile(backend='dlc'): {what}", stacklevel=2)


def _is_symbolic(module: GraphModule) -> bool:
    return any(
        isinstance(value, torch.SymInt)
        for node in module.graph.nodes
        if node.op == "placeholder"
        for value in _sizes(node.meta.get("val"))
    )


def _sizes(value: Any) -> Sequence[Any]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)


class BySizes:
    """A graph with symbolic sizes: traced again, and compiled, for each combination of sizes that it is called with."""

    def __init__(self, module: GraphModule, options: Options) -> None:
        """`module` takes numbers and tensors."""
        self._module, self._options = module, options
        self._known: dict[Any, Function] = {}

    def __call__(self, *args: Any) -> Any:
        """What the graph gives."""
        key = tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args)
        if key not in self._known:
            self._known[key] = self._traced(args)
        return self._known[key](*[a for a in args if isinstance(a, torch.Tensor)])

    def _traced(self, args: Sequence[Any]) -> Function:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]

        def run(*given: Any) -> Any:
            rest = iter(given)
            return self._module(*[next(rest) if isinstance(a, torch.Tensor) else a for a in args])

        # Beside the call that is running: fake tensors of the same sizes, no values are computed.
        with torch.no_grad():
            fixed = make_fx(run, tracing_mode="fake")(*tensors)
        return function_of(fixed, self._options)


class _Supported(OperatorSupportBase):
    """Whether dlc has imported a node."""

    def __init__(self, refused: frozenset[str]) -> None:
        """`refused` are names of nodes that stay with PyTorch."""
        self._refused = refused

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        """See the base class."""
        del submodules
        return node.op == "call_function" and node.name not in self._refused


class _Part(torch.nn.Module):
    """A program in the place of a part of a graph."""

    def __init__(self, function: Function) -> None:
        """`function` gives a tuple."""
        super().__init__()
        self._function = function

    def forward(self, *args: Any) -> Any:
        """The part's results; the only one by itself."""
        found = self._function(*args)
        return found[0] if len(found) == 1 else found


def _partitioned(module: GraphModule, refused: frozenset[str], options: Options) -> Function:
    partitioner = CapabilityBasedPartitioner(module, _Supported(refused), allows_single_node_partition=True)
    parts = [p for p in partitioner.propose_partitions() if len(p.nodes) >= SMALLEST]
    whole = partitioner.fuse_partitions(parts)
    for name, part in list(whole.named_children()):
        if not isinstance(part, GraphModule):
            continue
        try:
            if not refused_nodes(part):
                compiled = Compiled.of(part, options.target, options.settings, options.cache_dir)
                setattr(whole, name, _Part(compiled))
        except (DlcError, Unsupported) as problem:
            _warn(f"a part of a graph runs in eager PyTorch: {str(problem).splitlines()[0]}")
    return whole.forward
