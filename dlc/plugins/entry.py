"""One thing that a plugin offers, by kind and name."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

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
    plain: str = ""
    """What the plugin calls it, where another plugin has that name and `name` is qualified, as acme:c; else ""."""

    @property
    def package(self) -> str:
        """Top-level package whose code acts: what `code_digest` takes."""
        return self.module.partition(".")[0]

    @property
    def packages(self) -> tuple[str, ...]:
        """This one, and the one that what it offers lies in, where that is installed: what is not cannot act."""
        where = self.target.target if isinstance(self.target, Lazy) else str(self.target.__module__)
        found = dict.fromkeys((self.package, where.partition(":")[0].partition(".")[0]))
        return tuple(package for package in found if package and is_there(package))

    @property
    def is_first_party(self) -> bool:
        """Whether it is the core's, or of a plugin of this project."""
        return self.is_own or self.package == "dlc"

    @property
    def key(self) -> str:
        """What is unique among the entries of its kind: the name, but several plugins may add to one ONNX domain."""
        return f"{self.name} {self.target.target} {self.plugin}" if self.kind == "onnx_rules" else self.name

    def qualified(self, qualifier: str) -> "Entry":
        """The same under the name QUALIFIER:NAME."""
        return replace(self, name=f"{qualifier}:{self.name}", plain=self.name)

    def load(self) -> Any:
        """The class (imported now if it was lazy), the text or the rule.

        Raises DlcError (PLUGIN), naming the plugin, when it cannot be imported or is not what its hook promised.
        """
        if not isinstance(self.target, Lazy):
            return self._under_its_name(self.target)
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
        wanted = self.plain or self.name
        own: object = getattr(found, "text_name" if self.kind == "ops" else "name", wanted)
        if own != wanted:
            raise self._unusable(f"calls itself {own}; its hook and its class must agree")
        return self._under_its_name(found)

    def _under_its_name(self, found: Any) -> Any:
        return _renamed(found, self.name) if self.plain and isinstance(found, type) else found

    def declaration(self) -> "Declaration":
        """Docstring and options, mostly without importing; of what cannot be loaded, the reason."""
        from dlc.plugins.declared import Declaration, declaration

        if self.package == "dlc":
            return declaration(self.target)
        # A listing shows what works, and says of the rest why it does not.
        found = attempt(lambda: declaration(self.target), self.plugin, ours=self.is_own)
        if found.value is None:
            return Declaration(f"plugin {self.plugin}: cannot be loaded: {reason_of(found.problem)}", ())
        return found.value

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


class WrongResult(TypeError):
    """What a hook returns is not what it should be; the message names the hook."""


def listed(hook: str, offered: object) -> Iterable[object]:
    """What a hook returns, to be iterated. Raises WrongResult: that cannot be done."""
    if not isinstance(offered, Iterable):
        raise WrongResult(f"{hook} must return a list, not {shown(offered)}")
    return cast("Iterable[object]", offered)


def shown(value: object) -> str:
    """A value of a plugin for a message."""
    from reprlib import repr as short

    return short(value)


class HookFault(Exception):
    """A hook failed, or its result is wrong: what is wrong, and where the plugin's code is."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.place = place


def reason_of(problem: BaseException | None) -> str:
    """Type, message and the last place in the code."""
    if problem is None:
        return "it gave nothing"
    if isinstance(problem, HookFault):
        return f"{problem} ({problem.place})" if problem.place else str(problem)
    place, text = place_of(problem), str(problem)
    return f"{type(problem).__name__}" + (f": {text}" if text else "") + (f" ({place})" if place else "")


def place_of(problem: BaseException) -> str:
    """The innermost place in code of others: `FILE:LINE`, or ""."""
    import importlib
    import os
    import traceback

    ours = (os.path.dirname(__file__), os.path.dirname(importlib.__file__), "<frozen ")
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if not f.filename.startswith(ours)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def is_there(package: str) -> bool:
    """Whether a top-level package can be imported, as far as its place tells."""
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except (ImportError, ValueError, AttributeError):
        return False


@cache
def _renamed(found: type[Any], name: str) -> type[Any]:
    """The class under a qualified name: what it makes prints, and is found again, by that name."""
    own = {"name": name, "__doc__": found.__doc__, "__module__": found.__module__, "__qualname__": found.__qualname__}
    make: Any = type(found)
    return make(found.__name__, (found,), own)
