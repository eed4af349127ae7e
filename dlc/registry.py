"""What is installed, by kind and name. Immutable: built once by `plugins.load_registry` and handed down."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from dlc.diagnostics import Diagnostic, DlcError, ExitCode, did_you_mean, error
from dlc.lazy import Lazy

if TYPE_CHECKING:
    from dlc.declared import Declaration
    from dlc.interfaces import Backend, Frontend, Source, StepDone
    from dlc.plugins import Plugin
    from dlc.spec import Configurable, Spec

Kind = Literal["frontends", "backends", "ops", "passes", "pipelines", "rules"]


@dataclass(frozen=True)
class Entry:
    """One thing a plugin offers."""

    kind: Kind
    name: str
    """How a spec selects it."""
    plugin: str
    """Name of the plugin."""
    module: str
    """The plugin's module."""
    target: Any
    """A class or Lazy; the text of a pipeline; a rule."""

    @property
    def package(self) -> str:
        """Top-level package whose code acts: what `code_digest` takes."""
        return self.module.partition(".")[0]

    def load(self) -> Any:
        """The class (imported now if it was lazy), the text or the rule."""
        return self.target.load() if isinstance(self.target, Lazy) else self.target

    def declaration(self) -> "Declaration":
        """Docstring and options, mostly without importing."""
        from dlc.declared import declaration

        return declaration(self.target)


@dataclass(frozen=True)
class Registry:
    """Tables of what all working plugins offer."""

    plugins: "tuple[Plugin, ...]"
    """Every plugin found, with its state; the core first."""
    tables: Mapping[Kind, Mapping[str, Entry]]
    """Only the kinds that were asked for."""
    problems: tuple[Diagnostic, ...] = ()
    """One warning per plugin that does not work."""
    observers: tuple[Callable[..., object], ...] = field(default=(), repr=False)
    commands: tuple[Callable[..., object], ...] = field(default=(), repr=False)

    @property
    def frontends(self) -> Mapping[str, Entry]:
        """Readers of model formats."""
        return self.tables["frontends"]

    @property
    def backends(self) -> Mapping[str, Entry]:
        """Writers of programs."""
        return self.tables["backends"]

    @property
    def ops(self) -> Mapping[str, Entry]:
        """Ops, the core's among them."""
        return self.tables["ops"]

    @property
    def passes(self) -> Mapping[str, Entry]:
        """Passes, the core's among them."""
        return self.tables["passes"]

    @property
    def pipelines(self) -> Mapping[str, Entry]:
        """Named pipelines; `target` is spec text."""
        return self.tables["pipelines"]

    @property
    def rules(self) -> Mapping[str, Entry]:
        """Rules added to simplify."""
        return self.tables["rules"]

    def find(self, kind: Kind, spec: "Spec") -> Entry:
        """The entry that `spec` names; raises DlcError (USAGE, or PLUGIN if the plugin of that name does not work)."""
        table = self.tables[kind]
        if entry := table.get(spec.name):
            return entry
        for plugin in self.plugins:
            if plugin.name == spec.name and plugin.state != "ok":
                broken = error("plugin", f"plugin {plugin.name} is {plugin.state}: {plugin.reason}")
                raise DlcError(*broken.diagnostics, exit_code=ExitCode.PLUGIN)
        from dlc.spec import fault

        help = did_you_mean(spec.name, table, kind)
        raise fault(f"unknown-{kind.removesuffix('s')}", f"there is no {_SINGULAR[kind]} {spec.name}", spec.span, help)

    def frontend(self, spec: "Spec") -> "Frontend":
        """The configured frontend; raises DlcError."""
        from dlc.interfaces import Frontend

        return self._create("frontends", spec, Frontend)

    def backend(self, spec: "Spec") -> "Backend":
        """The configured backend; raises DlcError."""
        from dlc.interfaces import Backend

        return self._create("backends", spec, Backend)

    def stage(self, spec: "Spec") -> Any:
        """The configured pass; raises DlcError."""
        from dlc.spec import Configurable

        return self._create("passes", spec, Configurable)

    def frontend_for(self, source: "Source") -> Entry:
        """The reader of `source`, by its suffix, else by its content; raises DlcError when there is none."""
        classes: dict[str, type[Frontend]] = {name: entry.load() for name, entry in self.frontends.items()}
        by_suffix = [name for name, kind in classes.items() if source.suffix in kind.suffixes]
        candidates = by_suffix or [name for name, kind in classes.items() if kind().sniff(source)]
        if len(candidates) == 1:
            return self.frontends[candidates[0]]
        if candidates:
            message = f"{source.name}: several frontends read this format: {', '.join(sorted(candidates))}"
            raise error("ambiguous-format", message, help="choose one with --frontend", exit_code=ExitCode.USAGE)
        suffixes = sorted({suffix for kind in classes.values() for suffix in kind.suffixes})
        help = (
            f"known formats: {' '.join(suffixes)}" if suffixes else "install a frontend: pip install dlc-frontend-onnx"
        )
        raise error("unknown-format", f"{source.name}: no installed frontend reads this file", help=help)

    def step_done(self, event: "StepDone") -> None:
        """Tell every observer."""
        for observer in self.observers:
            observer(event=event)

    def _create(self, kind: Kind, spec: "Spec", base: type[Any]) -> Any:
        entry = self.find(kind, spec)
        found: object = entry.load()
        if not (isinstance(found, type) and issubclass(found, base)):
            raise error(
                "plugin",
                f"plugin {entry.plugin}: {entry.name} is not a {base.__name__}",
                exit_code=ExitCode.PLUGIN,
            )
        return cast("type[Configurable]", found).from_spec(spec)


_SINGULAR: Mapping[Kind, str] = {
    "frontends": "frontend",
    "backends": "backend",
    "ops": "op",
    "passes": "pass",
    "pipelines": "pipeline",
    "rules": "rule",
}
