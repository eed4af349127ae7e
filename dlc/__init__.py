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
    from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, error
    from dlc.base.lazy import Lazy
    from dlc.base.level import Level
    from dlc.base.report import Report
    from dlc.base.types import DType, Type
    from dlc.cache.step_record import StepRecord
    from dlc.driver.program import build
    from dlc.graph import Graph, Op, make_graph
    from dlc.graph.gradient import gradients
    from dlc.plugins.hookspecs import hookimpl
    from dlc.runtime.array_program import ArrayProgram
    from dlc.runtime.loading import load
    from dlc.spec import Bytes, Configurable, Spec, option

__all__ = [
    "ArrayProgram",
    "Artifact",
    "Backend",
    "Bytes",
    "Configurable",
    "DType",
    "Description",
    "Diagnostic",
    "DlcError",
    "ExitCode",
    "Frontend",
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
    "build",
    "equation",
    "error",
    "gradients",
    "hookimpl",
    "load",
    "make_graph",
    "option",
    "rule",
]

_EXPORTS = {
    "ArrayProgram": "dlc.runtime.array_program:ArrayProgram",
    "Artifact": "dlc.api.artifact:Artifact",
    "Backend": "dlc.api.backend:Backend",
    "Bytes": "dlc.spec:Bytes",
    "Configurable": "dlc.spec:Configurable",
    "DType": "dlc.base.types:DType",
    "Description": "dlc.api.artifact:Description",
    "Diagnostic": "dlc.base.diagnostics:Diagnostic",
    "DlcError": "dlc.base.diagnostics:DlcError",
    "ExitCode": "dlc.base.diagnostics:ExitCode",
    "Frontend": "dlc.api.frontend:Frontend",
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
    "build": "dlc.driver.program:build",
    "equation": "dlc.api.rules:equation",
    "error": "dlc.base.diagnostics:error",
    "gradients": "dlc.graph.gradient:gradients",
    "hookimpl": "dlc.plugins.hookspecs:hookimpl",
    "load": "dlc.runtime.loading:load",
    "make_graph": "dlc.graph:make_graph",
    "option": "dlc.spec:option",
    "rule": "dlc.api.rules:rule",
}
"""Public name → "module:attribute"; extend it together with `__all__` and the imports for type checkers above."""


def __getattr__(name: str) -> object:
    """Import the module behind a public name."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'dlc' has no attribute {name!r}")
    module, _, attribute = _EXPORTS[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
