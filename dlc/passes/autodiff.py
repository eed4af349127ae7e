"""autodiff: a model becomes a training step.

    y = f(x), w constant   →   loss, w' = step(x, labels, w)      w and w' share their memory

Weights are the named constants of the model, such as the initializers of an ONNX file, so this pass has to come before
fold-constants, which drops the names. The weights become inputs that carry their initial values; constants that are not
trained stay constants and have no gradient. A step takes the inputs of the model, the labels, the weights, the
optimizer's state WEIGHT.NAME, and `step`, the number of steps so far. It returns `loss`, then the new weights and
states under the names of the old ones.

To compile the step, the pipeline for inference follows: `autodiff{loss=cross-entropy optimizer=adam},infer`. With
`give` the pass makes another function of a training program: `predict` and `evaluate`, which compute the model as at
inference and take the weights and the running statistics as inputs; `gradients`, which returns WEIGHT.gradient; or
`update`, which takes it. `dlc build --train` makes one program of these functions. To differentiate with respect to any
input, without a loss and an optimizer, use the pass `gradient`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from dlc.api.function_names import FUNCTIONS, IGNORED, LEARNING, FunctionName
from dlc.api.parts import TrainingParts
from dlc.api.passes import Level, ProgramPass
from dlc.base.diagnostics import ExitCode, error
from dlc.base.report import Report
from dlc.graph.closed import check_closed
from dlc.graph.graph import Graph
from dlc.spec import Spec, option
from dlc.training.step.config import TrainingConfig
from dlc.training.step.functions import training_function
from dlc.training.step.initial import begun
from dlc.training.step.initializers import Initializer, parse_initializer
from dlc.training.step.losses import parse_loss
from dlc.training.step.optimizer import tell_numbers
from dlc.training.step.optimizers import parse_optimizer
from dlc.training.step.trained import prediction_of
from dlc.training.step.weights import ALL, NORMS, frozen

if TYPE_CHECKING:
    from dlc.api.plan import Plan
    from dlc.api.training import Bundle


@dataclass(frozen=True)
class Autodiff(ProgramPass):
    """Make a training step of a model: y = f(x), w constant  →  loss, w' of x, labels and w."""

    name: ClassVar[str] = "autodiff"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "ops"
    computes_other: ClassVar[bool] = True
    parts: ClassVar[TrainingParts] = TrainingParts()
    """What plugins add to losses, optimizers and initializers."""
    loss: Spec = option(
        Spec("cross-entropy"),
        "loss function: cross-entropy, nll, mse, l1, huber, bce, ctc or sum",
    )
    optimizer: Spec = option(
        Spec("sgd"), "optimizer, with learning rate and schedule: sgd, adam, adamw, adagrad, rmsprop or lamb"
    )
    wrt: tuple[str, ...] = option(("weights",), "weights to train: patterns of names; !pattern excludes weights")
    of: str = option("", "output that the loss reads; by default the first float output")
    label: str = option("y", "name of the input for the labels")
    clip: float = option(0.0, "maximum norm of all gradients together; 0: no limit", low=0)
    accumulate: int = option(
        1, "number of steps over which gradients are averaged for one update of the weights", low=1
    )
    outputs: bool = option(False, "also return the outputs of the model")
    stored_norms: bool = option(False, "use the stored statistics in batch normalisations, as at inference")
    momentum: float | None = option(
        None, "part of the running statistics that a step keeps; by default as in each layer", low=0, high=1
    )
    init: Spec = option(
        Spec("stored"),
        "initial values of trained weights of rank 2 or more: stored, xavier-uniform, xavier-normal, kaiming-uniform, "
        "kaiming-normal, uniform, normal, constant or zeros",
    )
    seed: int = option(0, "seed of the random initial values", low=0, high=(1 << 63) - 1)
    named: tuple[str, ...] = option(
        (), "ops whose gradients stay single ops, as conv,relu, for a target with instructions for them"
    )
    updates: Literal["final", "immediate"] = option(
        "final", "for --train: update weights after all gradients are computed, or each as soon as its gradient is"
    )
    give: Literal["step", "predict", "evaluate", "gradients", "update"] = option(
        "step", "function of a training program to make; --train makes all"
    )

    @classmethod
    def with_parts(cls, parts: TrainingParts) -> type[Self]:
        """See `Pass`."""
        if not parts:
            return cls
        own = {"parts": parts, "__doc__": cls.__doc__, "__module__": cls.__module__}
        return cast("type[Self]", type(cls.__name__, (cls,), own))

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of the loss, optimizer and initializer that the function depends on, where they are a plugin's."""
        parts = {"loss": self.parts.losses, "optimizer": self.parts.optimizers, "init": self.parts.initializers}
        used = [(getattr(self, key).name, offered) for key, offered in parts.items() if key not in IGNORED[self.give]]
        return tuple(p for name, offered in used for part in offered if part.name == name for p in part.packages)

    def compares(self) -> frozenset[str] | None:
        """See `Pass`. Random numbers begin with names, and patterns and `of` choose by them."""
        own = {f.name: f.default for f in fields(self)}
        if self.of or self.wrt != own["wrt"] or self.init != own["init"]:
            return None
        return frozenset((ALL, NORMS))

    def __post_init__(self) -> None:
        """Refuse an unknown loss, optimizer or initializer before any model is read."""
        self.training()
        self.initializer()

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph of the step.

        Raises:
            DlcError: no weights, unknown names, labels that do not fit, or ops that have no gradient (all of them).
        """
        check_closed(state, self.name)
        at = prediction_of(state.names, [op.type for op in state.outputs], self.of)
        state, weights = begun(state, at, self.wrt, self.initializer(), self.seed)
        config = self.training()
        step = training_function(self.give, state, at, weights, config)
        if self.give in ("step", "update"):
            tell_numbers(config.optimizer, {w.dtype for w in weights.values()}, report)
        report.count("trained tensors", len(weights))
        report.count("trained elements", sum(w.type.size for w in weights.values()))
        if still := frozen(weights, (state.outputs[at],)):
            report.count("frozen", len(still))
        report.missed_as = "scattered"
        for node, reason in step.scattered:
            report.missed(node, f"its gradient adds into memory at computed indices: {reason}")
        if step.idle:
            report.note(f"gradient zero everywhere: {', '.join(step.idle)}")
        if self.clip and self.give == "step":
            report.note("clip needs the norm of all gradients, so that no weight is updated before all are known")
        if step.norms and (step.norms.replaced or step.norms.fixed):
            report.note(step.norms.summary)
        return step.graph

    def functions(self) -> Mapping[str, Autodiff]:
        """See `ProgramPass`. The function that differentiates, which may be refused, comes first."""
        for key, why in (
            ("give", "a training program has all functions"),
            ("outputs", "evaluate and predict give outputs"),
        ):
            if getattr(self, key) != getattr(type(self), key):
                raise error("no-effect", f"--train: {key}: {why}", help="leave it out", exit_code=ExitCode.USAGE)
        names = sorted(FUNCTIONS[self.updates], key=lambda name: name not in LEARNING)
        return {name: replace(self, **self._defaults(name), give=name) for name in names}

    def joined(
        self,
        plans: Mapping[str, Plan],
        made: Callable[[str], Graph],
        template: Callable[[Iterable[str]], tuple[str, bytes]],
    ) -> Bundle:
        """See `ProgramPass`. The template leaves out the values of the parameters and of the running statistics."""
        from dlc.training.step.bundling import make_bundle

        settings = self.training()
        facts = {"loss": str(self.loss), "optimizer": str(self.optimizer), "updates": self.updates}
        names = [i.name for i in made("predict").inputs if i.role in ("weight", "state")]
        ordered: dict[FunctionName, Plan] = {name: plans[name] for name in FUNCTIONS[self.updates]}
        return make_bundle(ordered, settings, self.of, template(names), facts)

    def to_spec(self) -> Spec:
        """Every option; of a function but `step`, which reads all, without those that it does not depend on."""
        spec = super().to_spec()
        if self.give == "step":
            return spec
        plain = {
            name.replace("_", "-") for name, value in self._defaults(self.give).items() if getattr(self, name) == value
        }
        return replace(spec, options=tuple(o for o in spec.options if o[0] not in plain), spans=())

    def _defaults(self, function: FunctionName) -> dict[str, Any]:
        """The options that a function does not depend on, at their defaults."""
        return {f.name: f.default for f in fields(self) if f.name in IGNORED[function]}

    def training(self) -> TrainingConfig:
        """What a step does. Raises DlcError (USAGE): there is no such loss or optimizer, or it has no such option."""
        loss = parse_loss(self.loss, more=self.parts.losses)
        optimizer = parse_optimizer(self.optimizer, more=self.parts.optimizers)
        settings = self.label, self.clip, self.accumulate, self.outputs, self.stored_norms, self.momentum, self.named
        return TrainingConfig(loss, optimizer, *settings)

    def initializer(self) -> Initializer:
        """What weights begin with. Raises DlcError (USAGE): there is none of that name, or it has no such option."""
        return parse_initializer(self.init, more=self.parts.initializers)
