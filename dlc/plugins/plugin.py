"""`Plugin`: an installed plugin and its state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from dlc.base.diagnostics import Diagnostic

EXTRAS: Final[Mapping[str, str]] = {
    "onnx": "dlc-frontend-onnx",
    "kernel": "dlc-frontend-kernel",
    "torch": "dlc-frontend-torch",
    "c": "dlc-backend-c",
    "s2train": "dlc-backend-s2train",
}
"""Name of a frontend or backend of this project → its distribution, which the extra of that name of dlc installs."""
RELEASED_WITH_CORE: Final = frozenset({"dlc", *EXTRAS.values()})
"""Distributions of this project, released together: what goes wrong in them is reported to it."""


def pip_install(*extras: str) -> str:
    """The command that installs `EXTRAS`: quoted, as some shells take brackets for a pattern."""
    return f'pip install "dlc[{",".join(extras)}]"'


State = Literal["ok", "broken", "incompatible", "blocked"]


@dataclass(frozen=True)
class Plugin:
    """One entry point of the group "dlc", and what became of it."""

    name: str
    """Name of the entry point; unique."""
    module: str
    """Module that holds the hooks."""
    distribution: str
    """What pip calls it."""
    version: str
    state: State = "ok"
    reason: str = ""
    """Why it is not ok."""
    changes: tuple[str, ...] = ()
    """What it changed of the interpreter when it was imported; it was set back."""

    @property
    def title(self) -> str:
        """How messages call it: "timer (dlc-timer 1.2)"."""
        return f"{self.name} ({self.distribution} {self.version})"

    @property
    def package(self) -> str:
        """Top-level package of its code."""
        return self.module.partition(".")[0]

    @property
    def is_own(self) -> bool:
        """Whether it is released together with dlc."""
        return self.distribution in RELEASED_WITH_CORE

    def problem(self) -> Diagnostic | None:
        """The warning for a plugin that does not work, or does what it should not."""
        if self.state == "ok" and self.changes:
            message = f"plugin {self.title} changes {' and '.join(self.changes)} when it is imported; that was set back"
            help = "tell its authors: a plugin changes nothing that others use"
            return Diagnostic("plugin-side-effect", message, severity="warning", help=help)
        if self.state not in ("broken", "incompatible"):
            return None
        return Diagnostic(
            "broken-plugin" if self.state == "broken" else "incompatible-plugin",
            f"plugin {self.title} is skipped: {self.reason}",
            severity="warning",
            help=f"update it, or remove it with: pip uninstall {self.distribution}",
        )
