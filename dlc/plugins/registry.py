"""What is installed, by kind and name. Immutable: built once by `plugins.load_registry` and handed down."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, did_you_mean, error
from dlc.plugins.entry import Entry, Kind, class_of, reason_of
from dlc.plugins.plugin import EXTRAS, pip_install

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.api.families import Family
    from dlc.api.frontend import Frontend, OnnxRules
    from dlc.api.parts import Part, TrainingParts
    from dlc.api.passes import AnyPass
    from dlc.api.source import Source
    from dlc.cache.step_record import StepRecord
    from dlc.graph import Op
    from dlc.placement import Allocator
    from dlc.plugins.plugin import Plugin
    from dlc.spec import Configurable, Spec

T = TypeVar("T")


@dataclass(frozen=True)
class Observer:
    """A plugin's `dlc_step_done`."""

    plugin: str
    """The plugin, for messages: "timer (dlc-timer 1.2)"."""
    call: Callable[..., object]


@dataclass(frozen=True)
class Registry:
    """Tables of what all working plugins offer."""

    plugins: "tuple[Plugin, ...]"
    """Every plugin found, with its state; the core first."""
    tables: Mapping[Kind, Mapping[str, Entry]]
    """Only the kinds that were asked for."""
    problems: tuple[Diagnostic, ...] = ()
    """Warnings and notes about plugins that do not work, or do what they should not."""
    observers: tuple[Observer, ...] = field(default=(), repr=False)
    commands: tuple[Observer, ...] = field(default=(), repr=False)
    """Every plugin's `dlc_commands`."""
    op_packs: str = ""
    """Digest of the op packs that no plugin brings; their ops may occur in any step. "" where there are none."""

    @property
    def frontends(self) -> Mapping[str, Entry]:
        """Readers of model formats."""
        return self.tables["frontends"]

    @property
    def backends(self) -> Mapping[str, Entry]:
        """Writers of programs."""
        return self.tables["backends"]

    @property
    def plugin_backends(self) -> list[str]:
        """Names of the backends that plugins brought: the core's own only calls programs of the user."""
        return [name for name, entry in self.tables.get("backends", {}).items() if entry.package != "dlc"]

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
        """The entry that `spec` names, plainly or as PLUGIN:NAME.

        Raises DlcError (USAGE, or PLUGIN if the plugin of that name does not work or several have the name).
        """
        table = self.tables[kind]
        if entry := self.known(kind, spec.name):
            return entry
        if claimed := [entry.name for entry in table.values() if entry.plain == spec.name]:
            message = f"several plugins offer {spec.name} among the {kind}: choose {' or '.join(claimed)}"
            raise error("name-clash", message, exit_code=ExitCode.PLUGIN)
        for plugin in self.plugins:
            if plugin.name == spec.name and plugin.state != "ok":
                broken = error("plugin", f"plugin {plugin.name} is {plugin.state}: {plugin.reason}")
                raise DlcError(*broken.diagnostics, exit_code=ExitCode.PLUGIN)
        from dlc.spec import fault

        is_missing = kind in ("frontends", "backends") and spec.name in EXTRAS
        help = pip_install(spec.name) if is_missing else did_you_mean(spec.name, table, kind)
        raise fault(_UNKNOWN[kind], f"there is no {_SINGULAR[kind]} {spec.name}", spec.span, help)

    def known(self, kind: Kind, name: str) -> Entry | None:
        """The entry of a name, plain or qualified by its plugin or distribution; None where there is none."""
        table = self.tables[kind]
        if entry := table.get(name):
            return entry
        qualifier, _, plain = name.partition(":")
        owners = {p.name for p in self.plugins if qualifier in (p.name, p.distribution)} if plain else set[str]()
        found = (e for e in table.values() if e.plugin in owners and plain == (e.plain or e.name))
        return next(found, None)

    def frontend(self, spec: "Spec") -> "Frontend":
        """The configured frontend; raises DlcError."""
        from dlc.api.frontend import Frontend

        found: Frontend = self._create("frontends", spec, Frontend)
        found = found.with_frontends(self.frontend)
        return found.with_onnx_rules(self.onnx_rules, self.loaded_ops) if "onnx_rules" in self.tables else found

    def backend(self, spec: "Spec") -> "Backend":
        """The configured backend; raises DlcError."""
        found = self.backend_class(spec).from_spec(spec)
        return found.with_families(self.families) if self.tables.get("schedules") else found

    def backend_class(self, spec: "Spec") -> "type[Backend]":
        """The backend that `spec` names, with the machines of plugins, before it has options; raises DlcError."""
        from dlc.api.backend import Backend

        found = class_of(self.find("backends", spec), Backend)
        machines = {name: entry.target for name, entry in self.tables.get("machines", {}).items()}
        return found.with_machines(machines) if machines else found

    def backend_for(self, source: "Source") -> "Backend | None":
        """The backend, with default options, whose programs are files of this type; None: it is no program's.

        Raises DlcError (USAGE): several backends read this type.
        """
        from dlc.api.backend import Backend

        found: dict[type[Backend], bool] = {}
        for entry in self.backends.values() if source.suffix else ():
            try:
                kind = class_of(entry, Backend)
            except DlcError:
                continue  # a broken plugin must not keep others from reading the file
            if source.suffix in getattr(kind, "suffixes", ()):
                found[kind] = entry.is_first_party
        if any(found.values()):
            found = {kind: ours for kind, ours in found.items() if ours}
        if len(found) > 1:
            message = f"{source.name}: several backends read this format: {', '.join(sorted(k.name for k in found))}"
            help = "give the directory that it was built into: its manifest says which one made it"
            raise error("ambiguous-format", message, help=help, exit_code=ExitCode.USAGE)
        return next(iter(found))() if found else None

    def stage(self, spec: "Spec") -> "AnyPass":
        """The configured pass, with what plugins add to it if it takes any of that; raises DlcError."""
        from dlc.api.passes import Pass

        kind: type[AnyPass] = class_of(self.find("passes", spec), Pass)
        stage = kind.with_parts(self.training_parts).from_spec(spec)
        stage = stage.with_allocators(self.allocators) if self.tables.get("allocators") else stage
        rules = self.tables.get("rules")
        return stage.with_rules(entry.load() for entry in rules.values()) if rules else stage

    @property
    def onnx_rules(self) -> "tuple[OnnxRules, ...]":
        """Modules of import rules for the ONNX frontend, none of them imported yet."""
        from dlc.api.frontend import OnnxRules

        titles = {plugin.name: plugin.title for plugin in self.plugins}
        return tuple(
            OnnxRules(
                domain=entry.name,
                plugin=entry.plugin,
                title=titles[entry.plugin],
                packages=entry.packages,
                load=entry.load,
            )
            for entry in self.tables["onnx_rules"].values()
        )

    @property
    def families(self) -> "tuple[Family, ...]":
        """Families of schedules that plugins add to the core's, none of them imported yet."""
        from dlc.api.families import Family
        from dlc.kernel.schedules.choice import Choice

        return tuple(Family(*part) for part in self._added("schedules", Choice))

    @property
    def allocators(self) -> "tuple[Part[Allocator], ...]":
        """Solvers for offsets, those of plugins first, none of them imported yet."""
        from dlc.api.parts import Part
        from dlc.placement import Allocator

        found = sorted(self.tables.get("allocators", {}).values(), key=lambda e: (e.package == "dlc", e.name))
        return tuple(Part(e.name, e.plugin, e.packages, partial(class_of, e, Allocator)) for e in found)

    @property
    def training_parts(self) -> "TrainingParts":
        """Losses, optimizers and initializers that plugins add to the core's, none of them imported yet."""
        from dlc.api.parts import Part, TrainingParts

        if not any(e.package != "dlc" for kind in _TRAINING for e in self.tables.get(kind, {}).values()):
            return TrainingParts()
        from dlc.training.step.initializers import Drawn
        from dlc.training.step.loss import Loss
        from dlc.training.step.optimizer import Optimizer

        bases: Mapping[Kind, type[Any]] = {"losses": Loss, "optimizers": Optimizer, "initializers": Drawn}
        return TrainingParts(**{kind: tuple(Part(*p) for p in self._added(kind, base)) for kind, base in bases.items()})

    def _added(self, kind: Kind, base: type[T]) -> "Iterator[tuple[str, str, tuple[str, ...], Callable[[], type[T]]]]":
        """The fields of a `Part` for each class that a plugin adds to the core's of a kind."""
        titles = {plugin.name: plugin.title for plugin in self.plugins}
        for entry in self.tables.get(kind, {}).values():
            if entry.package != "dlc":
                yield entry.name, titles[entry.plugin], entry.packages, partial(class_of, entry, base)

    def loaded_ops(self) -> "Mapping[str, type[Op]]":
        """All ops by name, imported; without those of plugins that cannot be, or are no ops."""
        from dlc.graph import Op

        found: dict[str, type[Op]] = {}
        for name, entry in self.tables.get("ops", {}).items():
            with suppress(DlcError):
                found[name] = class_of(entry, Op)
        return found

    @property
    def acting(self) -> tuple[str, ...]:
        """Packages of plugins whose code may act in any step, because their ops or rules may occur there."""
        found = {e.package for kind in ("ops", "rules") if kind in self.tables for e in self.tables[kind].values()}
        return tuple(sorted(found - {"dlc"}))

    def frontend_for(self, source: "Source") -> Entry:
        """The reader of `source`, by its suffix, else by its content; raises DlcError when there is none."""
        from dlc.api.frontend import Frontend

        broken: list[str] = []
        classes: dict[str, type[Frontend]] = {}
        for name, entry in self.frontends.items():
            try:
                classes[name] = class_of(entry, Frontend)
            except DlcError as problem:
                broken += [d.message for d in problem.diagnostics]
        by_suffix = [name for name, kind in classes.items() if source.suffix in kind.suffixes]
        if not by_suffix and "backends" in self.tables and (backend := self.backend_for(source)):
            raise error(
                "built-already",
                f"{source.name} is not a model but a program for {backend.name}",
                help="use dlc run, train, verify or show; dlc build needs the model that it was built from",
                exit_code=ExitCode.USAGE,
            )
        candidates = by_suffix or [name for name, kind in classes.items() if _sniffs(name, kind, source, broken)]
        # A plugin that reads a format of ours too is chosen by --frontend.
        ours = [name for name in candidates if self.frontends[name].is_first_party]
        candidates = ours if len(ours) == 1 else candidates
        if len(candidates) == 1:
            return self.frontends[candidates[0]]
        if candidates:
            message = f"{source.name}: several frontends read this format: {', '.join(sorted(candidates))}"
            raise error("ambiguous-format", message, help="choose one with --frontend", exit_code=ExitCode.USAGE)
        suffixes = sorted({suffix for kind in classes.values() for suffix in kind.suffixes})
        extra = _EXTRAS.get(source.suffix, "")
        if extra and any(p.distribution == EXTRAS[extra] for p in self.plugins):
            help = f"{EXTRAS[extra]} is installed but not used: dlc plugins says why"
        elif extra:
            # Who has no backend either needs both packages, and learns it at once.
            extras = (extra,) if self.plugin_backends else (extra, "c")
            help = f"{source.suffix} needs another package: {pip_install(*extras)}"
        elif suffixes:
            help = f"known formats: {' '.join(suffixes)}"
        else:
            help = f"no frontend is installed: {pip_install(*_EXTRAS.values())}"
        message = f"{source.name}: no installed frontend reads this file"
        raise error("unknown-format", message, notes=tuple(broken), help=help)

    def watcher(self, tell: Callable[[Diagnostic], None], file: str) -> Callable[["StepRecord[Any]"], None]:
        """A function that tells what a step of a build of `file` warns of, and every observer of the step.

        An observer that raises is reported and not called again.
        """
        working = list(self.observers)

        def step_done(event: "StepRecord[Any]") -> None:
            for warning in event.report.warnings_of(file):
                tell(warning)
            for observer in tuple(working):
                try:
                    observer.call(event=event)
                # A viewer's failure must not cost the build.
                except KeyboardInterrupt:
                    raise
                except BaseException as problem:  # noqa: BLE001
                    working.remove(observer)
                    tell(failed_hook(observer.plugin, "dlc_step_done", problem))

        return step_done

    def _create(self, kind: Kind, spec: "Spec", base: type[Any]) -> Any:
        entry = self.find(kind, spec)
        return cast("type[Configurable]", class_of(entry, base)).from_spec(spec)


def _sniffs(name: str, kind: "type[Frontend]", source: "Source", broken: list[str]) -> bool:
    try:
        return kind().sniff(source)
    except DlcError:
        raise  # the file cannot be read
    # One frontend's mistake must not keep others from reading the file.
    except (Exception, SystemExit) as problem:  # noqa: BLE001
        broken.append(f"frontend {name} cannot tell: {reason_of(problem)}")
        return False


def failed_hook(plugin: str, hook: str, problem: BaseException) -> Diagnostic:
    """The warning for a hook that raised and is not called again."""
    message = f"plugin {plugin}: {hook} failed and is not called again: {reason_of(problem)}"
    return Diagnostic("broken-plugin", message, severity="warning")


_TRAINING: tuple[Kind, ...] = ("losses", "optimizers", "initializers")
_EXTRAS: Mapping[str, str] = {".onnx": "onnx", ".kernel": "kernel", ".pt2": "torch"}
"""Suffix → the extra that reads such files: `pip install dlc` alone has none, and says which one is missing."""

_UNKNOWN: Mapping[Kind, str] = {
    "frontends": "unknown-frontend",
    "backends": "unknown-backend",
    "ops": "unknown-op",
    "passes": "unknown-pass",
    "pipelines": "unknown-pipeline",
    "rules": "unknown-rule",
    "onnx_rules": "unknown-import-rules",
    "schedules": "unknown-schedule",
}
"""Codes of messages about names that nothing has."""

_SINGULAR: Mapping[Kind, str] = {
    "frontends": "frontend",
    "backends": "backend",
    "ops": "op",
    "passes": "pass",
    "pipelines": "pipeline",
    "rules": "rule",
    "onnx_rules": "module of import rules",
    "schedules": "family of schedules",
    "optimizers": "optimizer",
    "losses": "loss",
    "initializers": "initializer",
    "machines": "machine",
    "allocators": "allocator",
}
