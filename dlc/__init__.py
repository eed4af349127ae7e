"""dlc: a compiler from models to C programs. The names below are the public interface, and what a plugin may import.

Names are resolved on first use, because importing numpy and the graph costs more than a `dlc --help` may take.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dlc.version import __version__

if TYPE_CHECKING:
    from dlc.api.artifact import (
        Artifact,
        Description,
        Job,
        Workshop,
    )
    from dlc.api.backend import Backend, Reason, Region
    from dlc.api.frontend import Frontend
    from dlc.api.passes import Pass
    from dlc.api.plan import Plan
    from dlc.api.program import Port, Program, Signature
    from dlc.api.rules import Rule, equation, rule
    from dlc.api.samples import ModelSample, OpSample, Samples, StepsSample
    from dlc.api.source import Source
    from dlc.base.array_types import ArrayType
    from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, error
    from dlc.base.lazy import Lazy
    from dlc.base.level import Level
    from dlc.base.report import Report
    from dlc.base.types import DType, Type, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
    from dlc.cache.step_record import StepRecord
    from dlc.driver.program import build
    from dlc.driver.python import nn
    from dlc.driver.python.compiled import BuildReport, Compiled
    from dlc.driver.python.compiling import compile  # noqa: A004
    from dlc.driver.python.derivative import grad, value_and_grad
    from dlc.driver.python.function import Function
    from dlc.driver.python.kernel import kernel
    from dlc.graph import Graph, Op, make_graph
    from dlc.graph.gradient import gradients
    from dlc.plugins.hookspecs import hookimpl
    from dlc.runtime.array_program import ArrayProgram
    from dlc.runtime.loading import load
    from dlc.spec import Bytes, Configurable, Spec, option

__all__ = [
    "ArrayProgram",
    "ArrayType",
    "Artifact",
    "Backend",
    "BuildReport",
    "Bytes",
    "Compiled",
    "Configurable",
    "DType",
    "Description",
    "Diagnostic",
    "DlcError",
    "ExitCode",
    "Frontend",
    "Function",
    "Graph",
    "Job",
    "Lazy",
    "Level",
    "Location",
    "ModelSample",
    "Op",
    "OpSample",
    "Pass",
    "Plan",
    "Port",
    "Program",
    "Reason",
    "Region",
    "Report",
    "Rule",
    "Samples",
    "Signature",
    "Source",
    "Spec",
    "StepRecord",
    "StepsSample",
    "Type",
    "Workshop",
    "__version__",
    "bf16",
    "bool_",
    "build",
    "compile",
    "equation",
    "error",
    "f16",
    "f32",
    "f64",
    "grad",
    "gradients",
    "hookimpl",
    "i8",
    "i16",
    "i32",
    "i64",
    "kernel",
    "load",
    "make_graph",
    "nn",
    "option",
    "rule",
    "u8",
    "u16",
    "u32",
    "u64",
    "value_and_grad",
]

STABLE = frozenset(
    {
        "Artifact",
        "Backend",
        "Bytes",
        "Configurable",
        "DType",
        "Diagnostic",
        "DlcError",
        "ExitCode",
        "Frontend",
        "Graph",
        "Lazy",
        "Level",
        "Location",
        "Op",
        "Pass",
        "Plan",
        "Port",
        "Program",
        "Report",
        "Rule",
        "Signature",
        "Source",
        "Spec",
        "StepRecord",
        "Type",
        "__version__",
        "build",
        "equation",
        "error",
        "hookimpl",
        "load",
        "make_graph",
        "option",
        "rule",
    }
)
"""Public names that change only as the changelog announces; the others are experimental."""

_EXPORTS = {
    "ArrayProgram": "dlc.runtime.array_program:ArrayProgram",
    "ArrayType": "dlc.base.array_types:ArrayType",
    "Artifact": "dlc.api.artifact:Artifact",
    "Backend": "dlc.api.backend:Backend",
    "BuildReport": "dlc.driver.python.compiled:BuildReport",
    "Bytes": "dlc.spec:Bytes",
    "Compiled": "dlc.driver.python.compiled:Compiled",
    "Configurable": "dlc.spec:Configurable",
    "DType": "dlc.base.types:DType",
    "Description": "dlc.api.artifact:Description",
    "Diagnostic": "dlc.base.diagnostics:Diagnostic",
    "DlcError": "dlc.base.diagnostics:DlcError",
    "ExitCode": "dlc.base.diagnostics:ExitCode",
    "Frontend": "dlc.api.frontend:Frontend",
    "Function": "dlc.driver.python.function:Function",
    "Graph": "dlc.graph:Graph",
    "Job": "dlc.api.artifact:Job",
    "Lazy": "dlc.base.lazy:Lazy",
    "Level": "dlc.base.level:Level",
    "Location": "dlc.base.diagnostics:Location",
    "ModelSample": "dlc.api.samples:ModelSample",
    "Op": "dlc.graph:Op",
    "OpSample": "dlc.api.samples:OpSample",
    "Pass": "dlc.api.passes:Pass",
    "Plan": "dlc.api.plan:Plan",
    "Port": "dlc.api.program:Port",
    "Program": "dlc.api.program:Program",
    "Reason": "dlc.api.backend:Reason",
    "Region": "dlc.api.backend:Region",
    "Report": "dlc.base.report:Report",
    "Rule": "dlc.api.rules:Rule",
    "Samples": "dlc.api.samples:Samples",
    "Signature": "dlc.api.program:Signature",
    "Source": "dlc.api.source:Source",
    "Spec": "dlc.spec:Spec",
    "StepRecord": "dlc.cache.step_record:StepRecord",
    "StepsSample": "dlc.api.samples:StepsSample",
    "Type": "dlc.base.types:Type",
    "Workshop": "dlc.api.artifact:Workshop",
    "bf16": "dlc.base.types:bf16",
    "bool_": "dlc.base.types:bool_",
    "build": "dlc.driver.program:build",
    "compile": "dlc.driver.python.compiling:compile",
    "equation": "dlc.api.rules:equation",
    "error": "dlc.base.diagnostics:error",
    "f16": "dlc.base.types:f16",
    "f32": "dlc.base.types:f32",
    "f64": "dlc.base.types:f64",
    "grad": "dlc.driver.python.derivative:grad",
    "gradients": "dlc.graph.gradient:gradients",
    "hookimpl": "dlc.plugins.hookspecs:hookimpl",
    "i16": "dlc.base.types:i16",
    "i32": "dlc.base.types:i32",
    "i64": "dlc.base.types:i64",
    "i8": "dlc.base.types:i8",
    "kernel": "dlc.driver.python.kernel:kernel",
    "load": "dlc.runtime.loading:load",
    "make_graph": "dlc.graph:make_graph",
    "nn": "dlc.driver.python.nn:",
    "option": "dlc.spec:option",
    "rule": "dlc.api.rules:rule",
    "u16": "dlc.base.types:u16",
    "u32": "dlc.base.types:u32",
    "u64": "dlc.base.types:u64",
    "u8": "dlc.base.types:u8",
    "value_and_grad": "dlc.driver.python.derivative:value_and_grad",
}
"""Public name → "module:attribute", or "module:" of a module; extend it together with `__all__` and the
imports for type checkers above."""


def __getattr__(name: str) -> object:
    """Import the module behind a public name."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'dlc' has no attribute {name!r}")
    module, _, attribute = _EXPORTS[name].partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
