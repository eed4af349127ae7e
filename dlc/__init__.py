"""dlc: a compiler from models to C programs. The names below are the public interface, and what a plugin may import.

Names are resolved on first use, because importing numpy and the graph costs more than a `dlc --help` may take.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc.diagnostics import Diagnostic, DlcError, ExitCode, Location
    from dlc.hookspecs import hookimpl
    from dlc.interfaces import (
        Artifact,
        Backend,
        Frontend,
        Job,
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
    from dlc.report import Report
    from dlc.spec import Bytes, Configurable, Spec, option

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "Backend",
    "Bytes",
    "Configurable",
    "Diagnostic",
    "DlcError",
    "ExitCode",
    "Frontend",
    "Job",
    "Lazy",
    "Location",
    "Port",
    "Program",
    "Reason",
    "Region",
    "Report",
    "Signature",
    "Source",
    "Spec",
    "StepDone",
    "Workshop",
    "__version__",
    "hookimpl",
    "load",
    "option",
]

_EXPORTS = {
    "Artifact": "dlc.interfaces:Artifact",
    "Backend": "dlc.interfaces:Backend",
    "Bytes": "dlc.spec:Bytes",
    "Configurable": "dlc.spec:Configurable",
    "Diagnostic": "dlc.diagnostics:Diagnostic",
    "DlcError": "dlc.diagnostics:DlcError",
    "ExitCode": "dlc.diagnostics:ExitCode",
    "Frontend": "dlc.interfaces:Frontend",
    "Job": "dlc.interfaces:Job",
    "Lazy": "dlc.lazy:Lazy",
    "Location": "dlc.diagnostics:Location",
    "Port": "dlc.interfaces:Port",
    "Program": "dlc.interfaces:Program",
    "Reason": "dlc.interfaces:Reason",
    "Region": "dlc.interfaces:Region",
    "Report": "dlc.report:Report",
    "Signature": "dlc.interfaces:Signature",
    "Source": "dlc.interfaces:Source",
    "Spec": "dlc.spec:Spec",
    "StepDone": "dlc.interfaces:StepDone",
    "Workshop": "dlc.interfaces:Workshop",
    "hookimpl": "dlc.hookspecs:hookimpl",
    "load": "dlc.loading:load",
    "option": "dlc.spec:option",
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
