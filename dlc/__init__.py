"""dlc: a compiler from models to C programs. The names below are the public interface, and what a plugin may import.

Names are resolved on first use, because importing numpy and the graph costs more than a `dlc --help` may take.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc.backend import Backend
    from dlc.diagnostics import Diagnostic, DlcError, ExitCode, Location, error
    from dlc.frontend import Frontend
    from dlc.graph import Graph, Op, make_graph
    from dlc.graph.gradient import gradients
    from dlc.hookspecs import hookimpl
    from dlc.interfaces import (
        Artifact,
        Description,
        Job,
        Level,
        Port,
        Program,
        Reason,
        Region,
        Signature,
        Source,
        StepDone,
        Workshop,
    )
    from dlc.lazy import Lazy
    from dlc.loading import load
    from dlc.passes.base import Pass
    from dlc.passes.rules.rule import Rule, equation, rule
    from dlc.plan import Plan
    from dlc.program import ArrayProgram
    from dlc.report import Report
    from dlc.spec import Bytes, Configurable, Spec, option
    from dlc.types import DType, Type

__version__ = "0.1.0"

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
    "Op",
    "Pass",
    "Plan",
    "Port",
    "Program",
    "Reason",
    "Region",
    "Report",
    "Rule",
    "Signature",
    "Source",
    "Spec",
    "StepDone",
    "Type",
    "Workshop",
    "__version__",
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
    "ArrayProgram": "dlc.program:ArrayProgram",
    "Artifact": "dlc.interfaces:Artifact",
    "Backend": "dlc.backend:Backend",
    "Bytes": "dlc.spec:Bytes",
    "Configurable": "dlc.spec:Configurable",
    "DType": "dlc.types:DType",
    "Description": "dlc.interfaces:Description",
    "Diagnostic": "dlc.diagnostics:Diagnostic",
    "DlcError": "dlc.diagnostics:DlcError",
    "ExitCode": "dlc.diagnostics:ExitCode",
    "Frontend": "dlc.frontend:Frontend",
    "Graph": "dlc.graph:Graph",
    "Job": "dlc.interfaces:Job",
    "Lazy": "dlc.lazy:Lazy",
    "Level": "dlc.interfaces:Level",
    "Location": "dlc.diagnostics:Location",
    "Op": "dlc.graph:Op",
    "Pass": "dlc.passes.base:Pass",
    "Plan": "dlc.plan:Plan",
    "Port": "dlc.interfaces:Port",
    "Program": "dlc.interfaces:Program",
    "Reason": "dlc.interfaces:Reason",
    "Region": "dlc.interfaces:Region",
    "Report": "dlc.report:Report",
    "Rule": "dlc.passes.rules.rule:Rule",
    "Signature": "dlc.interfaces:Signature",
    "Source": "dlc.interfaces:Source",
    "Spec": "dlc.spec:Spec",
    "StepDone": "dlc.interfaces:StepDone",
    "Type": "dlc.types:Type",
    "Workshop": "dlc.interfaces:Workshop",
    "equation": "dlc.passes.rules.rule:equation",
    "error": "dlc.diagnostics:error",
    "gradients": "dlc.graph.gradient:gradients",
    "hookimpl": "dlc.hookspecs:hookimpl",
    "load": "dlc.loading:load",
    "make_graph": "dlc.graph:make_graph",
    "option": "dlc.spec:option",
    "rule": "dlc.passes.rules.rule:rule",
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
