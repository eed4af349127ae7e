"""Every way to extend dlc. A hook returns values; it never mutates the compiler.

A plugin is a pip package with an entry point in the group "dlc" that names a module; the module's functions marked with
`dlc.hookimpl` are its hooks. The module should import nothing heavy: return `Lazy(name, "module:Class")` instead of a
class where importing the class takes time.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pluggy import HookimplMarker, HookspecMarker

if TYPE_CHECKING:
    import typer

    from dlc.api.backend import Backend
    from dlc.api.frontend import Frontend
    from dlc.api.passes import AnyPass
    from dlc.api.rules import Rule
    from dlc.api.samples import Samples
    from dlc.base.lazy import Lazy
    from dlc.cache.step_record import StepRecord
    from dlc.graph import Op
    from dlc.kernel.schedules.choice import Choice
    from dlc.placement import Allocator
    from dlc.training.step.initializers import Drawn
    from dlc.training.step.loss import Loss
    from dlc.training.step.optimizer import Optimizer

hookspec = HookspecMarker("dlc")
hookimpl = HookimplMarker("dlc")

T = TypeVar("T", bound=Callable[..., Any])


def stable(hook: T) -> T:
    """Mark a hook that changes only as the changelog announces. The others are experimental: any version may change
    or remove them."""
    hook.__dict__["dlc_stable"] = True
    return hook


def is_stable(hook: Callable[..., Any]) -> bool:
    """Whether a hook has the mark."""
    return bool(hook.__dict__.get("dlc_stable"))


@stable
@hookspec
def dlc_frontends() -> "Iterable[type[Frontend] | Lazy]":
    """Readers of model formats: bytes → Graph."""
    ...


@stable
@hookspec
def dlc_backends() -> "Iterable[type[Backend] | Lazy]":
    """Writers of programs: Graph or Plan → Artifact."""
    ...


@stable
@hookspec
def dlc_ops() -> "Iterable[type[Op] | Lazy]":
    """Ops in addition to the core's. Their code, like that of rules, is part of every step's cache key."""
    ...


@hookspec
def dlc_op_packs() -> Iterable[Path]:
    """Op packs: files `*.ops.yaml` of the plugin's package, or directories of such, that declare ops as data.

    Their ops are like those of `dlc_ops`, and operators of ONNX models that they name are imported.
    """
    ...


@stable
@hookspec
def dlc_passes() -> "Iterable[type[AnyPass] | Lazy]":
    """Passes that pipelines may name."""
    ...


@stable
@hookspec
def dlc_pipelines() -> Mapping[str, str]:
    """Named pipelines, in spec text: {"quick": "expand,lower,order"}."""
    ...


@stable
@hookspec
def dlc_rules() -> "Iterable[Rule | Lazy]":
    """Equations that the pass `simplify` applies after its own: made by `dlc.equation` or `dlc.rule`."""
    ...


@hookspec
def dlc_onnx_rules() -> "Iterable[Lazy]":
    """Import rules for ONNX operators: `Lazy("org.example", "dlc_example.rules")` for each domain and its module.

    The functions of the module, or of all modules of a package, that carry the mark of the ONNX frontend's interface
    for rules are the rules. It is imported when a model has operators of the domain, and its code is part of that
    model's cache keys.
    """
    ...


@hookspec
def dlc_schedules() -> "Iterable[type[Choice] | Lazy]":
    """Families of schedules: ways in which the nests of kernels become loops, for backends that choose among them.

    They are tried before the core's; a family of the core is chosen where it is estimated to take clearly fewer cycles.
    Their code is part of the cache keys of the steps that choose schedules and generate code.
    """
    ...


@hookspec
def dlc_samples() -> "Samples | Lazy":
    """What `dlc plugins test` runs the plugin on: `Lazy("samples", "dlc_example.samples:SAMPLES")`.

    A `dlc.Samples`: instances of its ops, graphs that its passes change, models, kernels. Builds never ask for it.
    """
    ...


@hookspec
def dlc_optimizers() -> "Iterable[type[Optimizer] | Lazy]":
    """Optimizers of training programs: classes derived from `dlc.training.parts.Optimizer`.

    Options of the pass `autodiff` name them, as in --train optimizer=lion{lr=1e-4}. Their code is part of the cache
    keys of the functions that it makes with them; so is that of losses and initializers.
    """
    ...


@hookspec
def dlc_losses() -> "Iterable[type[Loss] | Lazy]":
    """Losses of training programs: classes derived from `dlc.training.parts.Loss`."""
    ...


@hookspec
def dlc_initializers() -> "Iterable[type[Drawn] | Lazy]":
    """Initial values of weights: classes derived from `dlc.training.parts.Drawn`."""
    ...


@hookspec
def dlc_machines() -> Iterable[Path]:
    """Descriptions of processors: files `NAME.toml` of the plugin's package, or directories of such.

    They are what the option `machine` of the C backend reads; its option `cpu` takes the NAME.
    """
    ...


@hookspec
def dlc_allocators() -> "Iterable[type[Allocator] | Lazy]":
    """Solvers for the offsets of buffers: classes derived from `dlc.placement.Allocator`.

    The strategies `exact` and `auto` of the pass `plan-memory` ask one whether buffers fit into so many bytes: the one
    that its option `allocator` names, else the first that can be used. Placements are checked, refutations are
    believed. Their code is part of the cache key of the plans that may ask them.
    """
    ...


@stable
@hookspec
def dlc_step_done(event: "StepRecord[Any]") -> None:
    """Observe a finished step: timers, dumpers and viewers live here."""


@stable
@hookspec
def dlc_commands(app: "typer.Typer") -> None:
    """Add subcommands. For tools around the compiler, never for steps of it."""
