"""dlc: a compiler from models to C programs. The names below are the public interface, and what a plugin may import.

Names are resolved on first use, because importing numpy and the graph costs more than a `dlc --help` may take.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc.diagnostics import Diagnostic, DlcError, ExitCode, Location
    from dlc.report import Report

__version__ = "0.1.0"

__all__ = [
    "Diagnostic",
    "DlcError",
    "ExitCode",
    "Location",
    "Report",
    "__version__",
]

_EXPORTS = {
    "Diagnostic": "dlc.diagnostics:Diagnostic",
    "DlcError": "dlc.diagnostics:DlcError",
    "ExitCode": "dlc.diagnostics:ExitCode",
    "Location": "dlc.diagnostics:Location",
    "Report": "dlc.report:Report",
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
