"""`Plugin`: an installed plugin and its state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from dlc.base.diagnostics import Diagnostic, nearest
from dlc.plugins import hookspecs
from dlc.version import __version__

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
_LINES: Final = 4
"""Lines of a plugin's output that a note shows."""


def pip_install(*extras: str) -> str:
    """The command that installs `EXTRAS`: quoted, as some shells take brackets for a pattern."""
    return f'pip install "dlc[{",".join(extras)}]"'


State = Literal["ok", "broken", "incompatible", "blocked"]


@dataclass(frozen=True)
class Plugin:
    """One entry point of the group "dlc", and what became of it."""

    name: str
    """Name of the entry point; DISTRIBUTION:NAME where a plugin of this project, or an earlier one, has that name."""
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
    attribute: str = ""
    """The object of the module that holds the hooks; "" for the module itself."""
    output: str = ""
    """What it printed on stdout when it was loaded."""
    unknown_hooks: tuple[str, ...] = ()
    """Its hooks that this version of dlc does not have, and never calls."""
    clashes: tuple[str, ...] = ()
    """In words: what it offers under names that others have, and what selects it."""
    milliseconds: float = field(default=0.0, compare=False)
    """How long importing it and calling its hooks took."""

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

    @property
    def qualifier(self) -> str:
        """What stands before the colon in a qualified name of what it offers: acme in acme:c."""
        return self.distribution if ":" in self.name else self.name

    @property
    def is_broken(self) -> bool:
        """Whether it should work and does not."""
        return self.state in ("broken", "incompatible")

    def problems(self) -> Iterator[Diagnostic]:
        """The warnings and notes for a plugin that does not work, or does what it should not."""
        help = f"update it, or remove it with: pip uninstall {self.distribution}"
        if self.is_broken:
            code = "broken-plugin" if self.state == "broken" else "incompatible-plugin"
            yield Diagnostic(code, f"plugin {self.title} is skipped: {self.reason}", severity="warning", help=help)
        elif self.changes:
            message = f"plugin {self.title} changes {' and '.join(self.changes)} when it is imported; that was set back"
            help = "tell its authors: a plugin changes nothing that others use"
            yield Diagnostic("plugin-side-effect", message, severity="warning", help=help)
        if self.clashes:
            message = f"plugin {self.title} has names that others have too; plain names mean those of dlc's own plugins"
            yield Diagnostic("name-clash", message, severity="warning", notes=self.clashes)
        if self.unknown_hooks:
            names = ", ".join(self.unknown_hooks)
            message = f"plugin {self.title} has hooks that dlc {__version__} does not know and never calls: {names}"
            yield Diagnostic("unknown-hook", message, severity="note", help=self._meant())
        if self.output:
            lines = self.output.splitlines()
            more = (f"and {len(lines) - _LINES} more lines",) if len(lines) > _LINES else ()
            message = f"plugin {self.title} prints on stdout when it is loaded"
            yield Diagnostic("plugin-output", message, severity="note", notes=(*lines[:_LINES], *more))

    def _meant(self) -> str:
        """What to do about unknown hooks."""
        known = [name for name in vars(hookspecs) if name.startswith("dlc_")]
        near = [f"{close} for {name}" for name in self.unknown_hooks if (close := nearest(name, known))]
        return f"a newer dlc may know them; or is {' and '.join(near)} meant?" if near else "a newer dlc may know them"
