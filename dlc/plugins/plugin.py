"""`Plugin`: an installed plugin and its state."""

from dataclasses import dataclass
from typing import Final, Literal

from dlc.base.diagnostics import Diagnostic

RELEASED_WITH_CORE: Final = frozenset(
    {"dlc", "dlc-backend-c", "dlc-backend-s2train", "dlc-frontend-kernel", "dlc-frontend-onnx", "dlc-frontend-torch"}
)
"""Distributions of this project, released together: what goes wrong in them is reported to it."""

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
