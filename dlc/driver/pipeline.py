"""What a build will run, resolved: target and pipeline text plus configuration → configured stages with origins.

`--print-pipeline` prints exactly this, and the text is stored in the artifact.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from dlc.api.backend import Backend
from dlc.api.passes import AnyPass, ProgramPass, check_chain
from dlc.base.budget import Budget, over_budget
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, quote
from dlc.config.config import Config, Pipeline
from dlc.driver.backend_flags import with_options, with_schedules
from dlc.driver.exec_backend import SCHEME
from dlc.driver.offload import FLAG as MIN_OFFLOAD
from dlc.driver.offload import offload_options
from dlc.plugins.registry import Registry
from dlc.spec import Spec, fault, parse_setting

PARSE, SCHEDULE, EMIT, BUILD = "parse", "schedule-kernels", "emit", "build"
"""Steps around those of the pipeline."""
ACCEPT, ACCEPT_VALUES = "accept", "accept-values"
"""Steps in which a backend is asked."""
GRADIENT, TRAINING = "gradient", "autodiff"
"""Passes that --grad and --train put in front: the only ones that are known by name."""


@dataclass(frozen=True)
class Step:
    """One stage of the pipeline."""

    stage: AnyPass
    """The configured pass."""
    plugin: str
    """Name of the plugin it comes from."""
    package: str
    """Package whose code acts, for the cache key."""
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    """Option key → where its value came from, for options set outside the pipeline's own text."""
    spec: Spec | None = field(default=None, compare=False)
    """What the stage was made from: messages point into its text."""

    @property
    def name(self) -> str:
        """Spec name."""
        return self.stage.name

    @property
    def orders(self) -> bool:
        """Whether it makes a plan of a graph of kernels: the backend states their schedules before."""
        return (self.stage.level_in, self.stage.level_out) == ("kernels", "plan")


@dataclass(frozen=True)
class Function:
    """One function of the program that a build makes."""

    name: str
    """"" of the only one."""
    steps: tuple[Step, ...]
    """What leads from the model to what the backend consumes."""


def with_backend(steps: Iterable[Step], backend: Backend) -> Iterator[Step | str]:
    """The steps of a function in order, and the names of those in which the backend has its say.

    It is asked about ops before anything else is made of them (ACCEPT), states how kernels become loops, and what they
    work in, before they are ordered (SCHEDULE), and is asked about values and kernels before it gets them
    (ACCEPT_VALUES).
    """
    from dlc.api.schedules import states_schedules
    from dlc.driver.legality import asks_about_ops, asks_about_values

    values, states = asks_about_values(backend), states_schedules(backend)
    asks = values or asks_about_ops(backend)
    for step in steps:
        if asks and step.stage.level_out != "ops":
            yield ACCEPT
            asks = False
        if states and step.orders:
            yield SCHEDULE
            states = False
        yield step
    if asks:
        yield ACCEPT
    if values:
        yield ACCEPT_VALUES


@dataclass(frozen=True)
class ResolvedPipeline:
    """A target and the functions that lead to it, each a list of steps."""

    backend: Backend
    backend_package: str
    pipeline: str
    """The pipeline as it was asked for: a name or spec text."""
    origin: str
    """Who chose it: "dlc.toml:9", "--pipeline", "backend c"."""
    steps: tuple[Step, ...]
    specs: Pipeline = ()
    """What the steps were made from: messages point into their text."""
    program: Step | None = None
    """The step in front of the others, of a `ProgramPass`, that makes each function of a program of several."""

    @property
    def whole(self) -> tuple[Step, ...]:
        """All steps, that of a program of several functions among them."""
        return (self.program, *self.steps) if self.program else self.steps

    @property
    def step_names(self) -> list[str]:
        """Names of all steps of a build, as --stop-after, --explain and --dump-ir take them."""
        between = (s if isinstance(s, str) else s.name for s in with_backend(self.whole, self.backend))
        return [PARSE, *between, EMIT, BUILD]

    @property
    def program_pass(self) -> ProgramPass | None:
        """What joins the functions; None where there is only one."""
        return None if self.program is None else cast("ProgramPass", self.program.stage)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """What is compiled, in this order."""
        first, several = self.program, self.program_pass
        if first is None or several is None:
            return (Function("", self.steps),)
        found: list[Function] = []
        for name, stage in several.functions().items():
            steps = (replace(step, stage=step.stage.in_function(name)) for step in self.steps)
            found.append(Function(name, (replace(first, stage=stage), *steps)))
        return tuple(found)

    def check_end(self) -> None:
        """Raises DlcError (USAGE) when the pipeline does not lead to what the backend consumes."""
        check_chain([step.stage for step in self.steps], self.specs, end=self.backend.own_level())

    @property
    def text(self) -> str:
        """The whole pipeline in canonical spec text, every option written out."""
        return Spec.print_pipeline([step.stage.to_spec() for step in self.whole])

    def __str__(self) -> str:
        """What `--print-pipeline` shows."""
        texts = [str(step.stage) for step in self.whole]
        width = max(map(len, texts), default=0)
        lines = [f"pipeline {self.pipeline}  ({self.origin})"]
        if self.program:
            names = ", ".join(function.name for function in self.functions)
            lines.append(f"functions {names}: the pipeline of each has give=FUNCTION")
        for number, (text, step) in enumerate(zip(texts, self.whole, strict=True), 1):
            origins = ", ".join(f"{key} from {origin}" for key, origin in step.origins.items())
            lines.append(f"{number:3} {text:{width}}  {origins}".rstrip())
        return "\n".join([*lines, f"target {self.backend}"])


def resolve_target(registry: Registry, config: Config, target: str, flag: str = "--target") -> tuple[Spec, str]:
    """Spec of the backend that `target` names or spells, and the target's name in the configuration or "".

    `flag` is what messages call it by. Raises DlcError (USAGE).
    """
    named = config.named("target", "backend")
    if target in named:
        return named[target].value, target
    if target.startswith(SCHEME):
        from dlc.driver.exec_backend.backend import target_spec

        return target_spec(target, flag), ""
    if target.startswith(("./", "../", "/")):
        message, help = (
            f"{flag} {quote(target)} is a path, not a backend",
            f"an executable is {quote(SCHEME + target)}",
        )
        raise error("unknown-target", message, help=help, exit_code=ExitCode.USAGE)
    spec = Spec.parse(target, flag)
    if registry.known("backends", spec.name) or not named:
        return spec, ""
    help = did_you_mean(spec.name, [*named, *registry.backends], "targets and backends")
    raise fault("unknown-target", f"there is no target or backend {spec.name}", spec.span, help)


def resolve(
    registry: Registry,
    config: Config,
    target: str,
    *,
    pipeline: str | None = None,
    settings: Sequence[str] = (),
    without: Sequence[str] = (),
    grad: Sequence[str] = (),
    train: str | None = None,
    min_offload: str | None = None,
    schedules: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> ResolvedPipeline:
    """Everything that building for `target` runs. `settings` are `step.key=value`, `without` names of steps.

    `grad` names inputs: the pipeline then starts with the gradients with respect to them. `train` holds options of the
    pass that makes the functions of a training program, which then stands in front. `min_offload` is the text of
    --min-offload, see `dlc.driver.offload`, `schedules` those of --schedule, `options` those of
    --machine, --math and --tune, by these names.

    Raises DlcError (USAGE) with a caret where a name or option is unknown; a setting or name that has no effect is an
    error too.
    """
    backend_spec, target_name = resolve_target(registry, config, target)
    backend = registry.backend(backend_spec)
    if schedules or (options and any(options.values())):
        given = with_options(backend_spec, options or {}, type(backend))
        backend = registry.backend(with_schedules(given, schedules, type(backend)))
    package = registry.find("backends", backend_spec).package
    text, origin, specs = _chosen(config, pipeline, target_name, backend)
    specs = expand_pipeline(specs, qualified_pipelines(registry, config), most=config.budget.passes)
    demands = None if min_offload is None else offload_options(min_offload, backend, specs)
    if demands:
        specs = tuple(demands.applied(spec) for spec in specs)
    if grad:
        specs = (gradient_spec(grad), *specs)
    if train is not None:
        specs = (training_spec(train, backend.training, grad=grad, without=without), *specs)
    steps = resolve_steps(registry, specs, settings=settings, without=without, backend=backend)
    if grad and steps and steps[0].name == GRADIENT:
        steps = (_with_origin(steps[0], ("wrt",), "--grad"), *steps[1:])
    if demands:
        steps = tuple(_with_origin(s, demands.options, MIN_OFFLOAD) if s.name == demands.step else s for s in steps)
    specs = tuple(spec for spec in specs if spec.name not in without)
    check_chain([step.stage for step in steps], specs)
    if train is None:
        return ResolvedPipeline(backend, package, text, origin, steps, specs)
    first = _with_origin(steps[0], (key for key, _ in specs[0].options), "--train")
    found = ResolvedPipeline(backend, package, text, origin, steps[1:], specs[1:], first)
    check_training(found)
    return found


def _with_origin(step: Step, keys: Iterable[str], flag: str) -> Step:
    """The step with the flag that these options come from, unless --set changed them."""
    return replace(step, origins={**dict.fromkeys(keys, flag), **step.origins})


def gradient_spec(wrt: Sequence[str]) -> Spec:
    """The pass that `--grad` puts in front."""
    return Spec(GRADIENT).with_option("wrt", tuple(wrt))


def training_spec(text: str, before: str = "", *, grad: Sequence[str], without: Sequence[str]) -> Spec:
    """The pass that `--train` puts in front, with the options `before` where the text has none of that name.

    Raises:
        DlcError: (USAGE) with a caret, or for what contradicts it.
    """
    if grad:
        raise error(
            "conflict",
            "--grad and --train: a training program has its own gradients",
            help="leave one of the two out",
            exit_code=ExitCode.USAGE,
        )
    if TRAINING in without:
        raise error(
            "conflict",
            f"--without {TRAINING} contradicts --train",
            help="leave one of the two out",
            exit_code=ExitCode.USAGE,
        )
    given = Spec.parse_options(TRAINING, text, "--train") if text or not before else Spec(TRAINING)
    if not before:
        return given
    own = Spec.parse_options(TRAINING, before, "the target's training")
    names = {key for key, _ in given.options}
    return replace(given, options=(*(o for o in own.options if o[0] not in names), *given.options))


def check_training(pipeline: ResolvedPipeline) -> None:
    """Raises DlcError (USAGE): an option would have no effect, the model is differentiated twice, or no backend."""
    backend = pipeline.backend
    _ = pipeline.functions  # refuses what has no effect
    twice = next((step for step in pipeline.steps if step.stage.computes_other), None)
    if twice is not None:
        help = f"leave {twice.name} out of the pipeline, or --train"
        message = f"--train puts {TRAINING} in front of a pipeline that has {twice.name}"
        raise fault("conflict", message, twice.spec.span if twice.spec else None, help)
    if type(backend).emit_training is Backend.emit_training or backend.own_level() != "plan":
        raise error(
            "no-training",
            f"--train: the backend {backend.name} builds no training programs",
            help="build for another target, as --target c",
            exit_code=ExitCode.USAGE,
        )


def resolve_steps(
    registry: Registry,
    specs: Pipeline,
    *,
    settings: Sequence[str] = (),
    without: Sequence[str] = (),
    backend: Backend | None = None,
) -> tuple[Step, ...]:
    """The configured stages of an expanded pipeline, after `--without` and `--set`. Raises DlcError (USAGE).

    What neither the pipeline nor `--set` says is as the backend wants it, if there is one.
    """
    present = {spec.name for spec in specs}
    for name in without:
        if name not in present:
            raise _no_effect("--without", name, present)
    specs = tuple(spec for spec in specs if spec.name not in without)
    origins: list[dict[str, str]] = [{} for _ in specs]
    for text in settings:
        name, key, value, span = parse_setting(text)
        at = [i for i, spec in enumerate(specs) if spec.name == name]
        if not at:
            raise _no_effect("--set", name, present)
        for i in at:
            specs = (*specs[:i], specs[i].with_option(key, value, span), *specs[i + 1 :])
            origins[i][key] = "--set"
    if backend is not None:
        specs = tuple(_suited(spec, backend, origin) for spec, origin in zip(specs, origins, strict=True))
    entries = [registry.find("passes", spec) for spec in specs]
    return tuple(
        Step(registry.stage(spec), entry.plugin, entry.package, origin, spec)
        for spec, entry, origin in zip(specs, entries, origins, strict=True)
    )


def _suited(spec: Spec, backend: Backend, origins: dict[str, str]) -> Spec:
    """The spec with the options that suit a backend, where the user said nothing of them."""
    for key, value in backend.settings().get(spec.name, {}).items():
        if spec.get(key) is None:
            spec, origins[key] = spec.with_option(key, value), _own(backend)
    return spec


def named_pipelines(registry: Registry, config: Config) -> Mapping[str, Pipeline]:
    """Pipelines by name: those of plugins, overridden by the configuration's. Raises DlcError (USAGE)."""
    offered = {name: (str(entry.target), entry.plugin) for name, entry in registry.pipelines.items()}
    named = {name: setting.value for name, setting in config.with_pipelines(offered).named("pipeline").items()}
    for name in named:
        if name in registry.passes:
            raise error(
                "name-clash",
                f"pipeline {name} has the name of a pass",
                help="rename the pipeline",
                exit_code=ExitCode.USAGE,
            )
    return named


def qualified_pipelines(registry: Registry, config: Config) -> Mapping[str, Pipeline]:
    """The same, those of plugins under their qualified names too: what a pipeline's text may name."""
    named = named_pipelines(registry, config)
    offered = {f"{e.plugin}:{e.plain or e.name}": str(e.target) for e in registry.pipelines.values()}
    return {**{name: Spec.parse_pipeline(text, name) for name, text in offered.items()}, **named}


def expand_pipeline(
    specs: Pipeline, named: Mapping[str, Pipeline], inside: tuple[str, ...] = (), most: int = Budget.passes
) -> Pipeline:
    """`specs` with every name of a pipeline replaced by its steps.

    Raises DlcError: (USAGE) for a cycle; (LIMIT) for more than `most` passes, 0 for no limit.
    """
    result: list[Spec] = []
    for spec in specs:
        if spec.name not in named:
            result.append(spec)
            continue
        if spec.options:
            raise fault("bad-option", f"pipeline {spec.name} takes no options", spec.span, "use --set STEP.KEY=VALUE")
        if spec.name in inside:
            cycle = " → ".join([*inside[inside.index(spec.name) :], spec.name])
            raise fault("pipeline-cycle", f"pipeline {spec.name} contains itself: {cycle}", spec.span)
        result += expand_pipeline(named[spec.name], named, (*inside, spec.name), most)
        if most and len(result) > most:
            whole = inside[0] if inside else spec.name
            raise over_budget("passes", f"pipeline {whole} has more than {most:,} passes", most)
    return tuple(result)


def _chosen(config: Config, pipeline: str | None, target_name: str, backend: Backend) -> tuple[str, str, Pipeline]:
    """(text, origin, specs) of the pipeline: the flag's, the target's, or the backend's own."""
    if pipeline is not None:
        return pipeline, "--pipeline", Spec.parse_pipeline(pipeline, "--pipeline")
    if setting := config.settings.get(f"target.{target_name}.pipeline"):
        return Spec.print_pipeline(setting.value), setting.origin, setting.value
    origin = _own(backend)
    text = backend.own_pipeline()
    return text, origin, Spec.parse_pipeline(text, origin)


def _own(backend: Backend) -> str:
    """Who chose a pipeline that is the backend's own."""
    return f"backend {backend.name}"


def _no_effect(flag: str, name: str, present: set[str]) -> DlcError:
    return error(
        "no-effect",
        f"{flag}: the pipeline has no pass {name}",
        help=did_you_mean(name, present, "passes"),
        exit_code=ExitCode.USAGE,
    )
