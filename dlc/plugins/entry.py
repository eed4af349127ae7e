"""One thing that a plugin offers, by kind and name."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.lazy import Lazy
from dlc.plugins.guard import attempt

if TYPE_CHECKING:
    from dlc.plugins.declared import Declaration

T = TypeVar("T")

Kind = Literal[
    "frontends",
    "backends",
    "ops",
    "passes",
    "pipelines",
    "rules",
    "onnx_rules",
    "schedules",
    "optimizers",
    "losses",
    "initializers",
    "machines",
    "allocators",
]


@dataclass(frozen=True)
class Entry:
    """One thing a plugin offers."""

    kind: Kind
    name: str
    """How a spec selects it; of ONNX import rules, their domain."""
    plugin: str
    """Name of the plugin."""
    module: str
    """The plugin's module."""
    target: Any
    """A class or Lazy; the text of a pipeline; a rule; the Lazy of a module of ONNX import rules; a machine's file."""
    is_own: bool = False
    """Whether the plugin is released together with dlc."""

    @property
    def package(self) -> str:
        """Top-level package whose code acts: what `code_digest` takes."""
        return self.module.partition(".")[0]

    @property
    def packages(self) -> tuple[str, ...]:
        """This one, and the one that what it offers lies in, where that is installed: what is not cannot act."""
        from importlib.util import find_spec

        where = self.target.target if isinstance(self.target, Lazy) else str(self.target.__module__)
        found = dict.fromkeys((self.package, where.partition(":")[0].partition(".")[0]))
        return tuple(package for package in found if find_spec(package))

    @property
    def key(self) -> str:
        """What is unique among the entries of its kind: the name, but several plugins may add to one ONNX domain."""
        return f"{self.name} {self.target.target}" if self.kind == "onnx_rules" else self.name

    def load(self) -> Any:
        """The class (imported now if it was lazy), the text or the rule.

        Raises DlcError (PLUGIN), naming the plugin, when it cannot be imported or is not what its hook promised.
        """
        if not isinstance(self.target, Lazy):
            return self.target
        if self.package == "dlc":
            found = self.target.load()  # what it raises is our own bug, not a plugin's
        else:
            # Third-party code may raise anything; the reason is shown, and what else is installed still works.
            outcome = attempt(self.target.load, self.plugin, ours=self.is_own or self.target.is_loaded)
            found = outcome.value
            if outcome.problem:
                raise self._unusable(f"cannot be loaded: {reason_of(outcome.problem)}") from outcome.problem
        if self.kind == "onnx_rules":
            return found
        own: object = getattr(found, "text_name" if self.kind == "ops" else "name", self.name)
        if own != self.name:
            raise self._unusable(f"calls itself {own}; its hook and its class must agree")
        return found

    def declaration(self) -> "Declaration":
        """Docstring and options, mostly without importing; of what cannot be loaded, the reason."""
        from dlc.plugins.declared import Declaration, declaration

        try:
            return declaration(self.target)
        except (Exception, SystemExit) as problem:
            if self.package == "dlc":
                raise
            # A listing shows what works, and says of the rest why it does not.
            return Declaration(f"plugin {self.plugin}: cannot be loaded: {reason_of(problem)}", ())

    def _unusable(self, reason: str) -> DlcError:
        return error(
            "plugin",
            f"plugin {self.plugin}: {self.name} {reason}",
            help=f'update the plugin, or disable it in dlc.toml: [plugins] disable = ["{self.plugin}"]',
            exit_code=ExitCode.PLUGIN,
        )


def class_of(entry: Entry, base: type[T]) -> type[T]:
    """The class that an entry offers, which derives from `base`; raises DlcError (PLUGIN)."""
    found: object = entry.load()
    if not (isinstance(found, type) and issubclass(found, base)):
        raise error(
            "plugin",
            f"plugin {entry.plugin}: {entry.name} is not derived from {base.__name__}",
            exit_code=ExitCode.PLUGIN,
        )
    return found


def reason_of(problem: BaseException | None) -> str:
    """Type, message and the last place in the code."""
    import traceback

    if problem is None:
        return "it gave nothing"
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(problem).__name__}: {problem}{place}"
