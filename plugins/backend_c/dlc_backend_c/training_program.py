"""The functions of a training program: each checks what it is given, then runs the body of its plan on the regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dlc.api.training import Bundle, Function, FunctionName, Place, RegionName
from dlc_backend_c.body import Body
from dlc_backend_c.checkpoint import checkpoint_text
from dlc_backend_c.header import CPort
from dlc_backend_c.package import Package, arena_local, includes, memory, refuse, weights_local
from dlc_backend_c.parameters import CParameter
from dlc_backend_c.program import arrays, port_checks
from dlc_backend_c.ranges import LABELS, label_check, range_checks, range_function, range_functions, range_names
from dlc_backend_c.regions import pointers, region_checks
from dlc_backend_c.training_values import initial_lines, not_a_number, not_finite, value_functions

LOSS = "loss"
STEP = "step"
"""Names of an output and of a state, as the functions of a bundle call them."""


@dataclass(frozen=True)
class Part:
    """One function that runs a plan."""

    function: Function
    body: Body
    inputs: tuple[CPort, ...]
    """Arguments of a call."""
    outputs: tuple[CPort, ...]
    """Results of a call."""
    parameters: tuple[CParameter, ...]
    """Of the function with types; none if there is no such function."""

    @property
    def regions(self) -> tuple[RegionName, ...]:
        """Memory that it reads or writes."""
        plan = self.body.plan
        read = {x.digest for step in plan.steps for x in step.operands} | {i.digest for i in plan.kept}
        inputs = zip(plan.graph.inputs, self.function.inputs, strict=True)
        places = (*(p for i, p in inputs if i.digest in read), *self.function.outputs)
        return tuple(dict.fromkeys(p.region for p in places if p is not None))


@dataclass(frozen=True)
class Training:
    """A bundle and the files around it: what the text is made of."""

    package: Package
    bundle: Bundle
    parts: Mapping[FunctionName, Part]
    initial: Mapping[Place, int]
    """Where the weights hold what a place starts with."""

    @property
    def step(self) -> FunctionName:
        """The function that `train_step` is made of, or begins with."""
        return "gradients" if self.final else "step"

    @property
    def final(self) -> bool:
        """Whether all gradients are known before the first weight moves."""
        return "update" in self.parts

    @property
    def regions(self) -> tuple[RegionName, ...]:
        """Memory that there is any of."""
        return tuple(r for r in self.bundle.regions if self.bundle.size(r))

    @cached_property
    def ranges(self) -> Mapping[CPort, str]:
        """Inputs that are checked if that is asked for, and by which function; labels always are, by another."""
        inputs = (q for part in self.parts.values() for q in part.inputs if q.name != self.bundle.label)
        return range_names(self.package, inputs)

    @property
    def kept(self) -> tuple[RegionName, ...]:
        """What a checkpoint holds: sums of gradients too, because a checkpoint may be taken between two updates."""
        return tuple(r for r in self.regions if r != "gradients" or self.bundle.accumulate > 1)


def training_text(training: Training) -> str:
    """The section that declares the weights and defines the functions of the interface."""
    package = training.package
    lines = [
        *includes(package, "string.h", files=True),
        *memory(package),
        *value_functions(package.prefix, training.bundle, _loss(training)),
        *_range_functions(training),
        *_body_functions(training),
        *_init(training),
        *_predict(training),
        *_evaluate(training),
        *(_final(training) if training.final else _immediate(training)),
        *checkpoint_text(package, training.bundle, training.kept),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _range_functions(training: Training) -> list[str]:
    label = _label(training, training.parts["evaluate"])
    labels = range_function(f"{training.package.prefix}_{LABELS}", label) if label else []
    return labels + range_functions(training.package, training.ranges)


def _body_functions(training: Training) -> list[str]:
    """Of graphs that steps hold: functions of the program may hold equal ones."""
    found: dict[str, list[str]] = {}
    for part in training.parts.values():
        found |= part.body.functions_of_bodies
    return [line for lines in found.values() for line in lines]


def _label(training: Training, part: Part) -> CPort | None:
    """The labels among the arguments of a function, where they are classes."""
    return next((q for q in part.inputs if q.name == training.bundle.label and q.allowed), None)


def _loss(training: Training) -> CPort:
    return next(p for p in training.parts[training.step].outputs if p.name == LOSS)


def _init(training: Training) -> list[str]:
    package, bundle = training.package, training.bundle
    return [
        f"int {package.prefix}_init(const {package.prefix}_training *t)",
        "{",
        *refuse(["t == NULL"], f"{package.macro}_ERROR_NULL"),
        *([weights_local(package)] if training.initial else []),
        *pointers(training.regions),
        "",
        *region_checks(package, training.regions, arena=False, weights=bool(training.initial)),
        # Bytes between tensors are part of checkpoints.
        *(f"    memset({r}, 0, {bundle.size(r)});" for r in training.regions),
        *(line for r in training.regions for p in bundle.regions[r] for line in initial_lines(p, training.initial)),
        f"    return {package.macro}_OK;",
        "}",
        "",
    ]


def _predict(training: Training) -> list[str]:
    part = training.parts["predict"]
    return [*_running(training, "predict", part, f"    return {training.package.macro}_OK;"), *_typed(training, part)]


def _evaluate(training: Training) -> list[str]:
    part = training.parts["evaluate"]
    lines = _running(training, "evaluate", part, f"    return {training.package.macro}_OK;")
    return [*lines, *_typed(training, part, "evaluate")]


def _immediate(training: Training) -> list[str]:
    part, p, macro = training.parts["step"], training.package.prefix, training.package.macro
    finite = f"{not_finite(p, _loss(training))} ? {macro}_ERROR_NOT_FINITE : {macro}_OK"
    return [*_running(training, "train_step", part, f"    return {finite};"), *_typed(training, part, "train_step")]


def _final(training: Training) -> list[str]:
    """`gradients`, `update`, and `train_step`, which calls them.

    A loss that is not finite leaves a gradient that is none, so that whoever sums gradients, over calls or over
    programs, finds it there, and none of them updates.
    """
    package, bundle = training.package, training.bundle
    p, macro, part = package.prefix, package.macro, training.parts["gradients"]
    spoilt = not_a_number(next((g for g in bundle.regions["gradients"] if g.type.size), None))
    stop = [
        f"    if ({not_finite(p, _loss(training))}) {{",
        *spoilt,
        f"        return {macro}_ERROR_NOT_FINITE;",
        "    }",
    ]
    update = training.parts["update"]
    return [
        *_running(training, "gradients", part, "\n".join([*stop, f"    return {macro}_OK;"])),
        *_typed(training, part, "gradients"),
        f"int {p}_update(const {p}_training *t)",
        "{",
        *_locals(package, update),
        *region_checks(package, training.regions, arena=True, weights=update.body.reads_weights),
        f"    if (!{p}_gradients_are_finite(gradients)) {{",
        f"        return {macro}_ERROR_NOT_FINITE;",
        "    }",
        *update.body.lines,
        f"    return {macro}_OK;",
        "}",
        "",
        *_whole_step(training),
        *_typed(training, part, "train_step"),
    ]


def _whole_step(training: Training) -> list[str]:
    p, macro, bundle = training.package.prefix, training.package.macro, training.bundle
    step = next((s for s in bundle.regions["state"] if s.name == STEP), None)
    rounds = list[str]()
    if bundle.accumulate > 1:
        assert step is not None, "gradients are counted where they are summed"
        rounds = [
            f"    memcpy(&step, (const unsigned char *)t->state + {step.offset}, sizeof step);",
            f"    if (step % {bundle.accumulate} != 0) {{",
            "        return status;",
            "    }",
        ]
    return [
        f"int {p}_train_step_run(const {p}_training *t, const void *const *inputs, void *const *outputs)",
        "{",
        f"    const int status = {p}_gradients_run(t, inputs, outputs);",
        *(["    int64_t step;"] if rounds else []),
        "",
        f"    if (status != {macro}_OK && status != {macro}_ERROR_NOT_FINITE) {{",
        "        return status;",
        "    }",
        *rounds,
        "    if (t->all_reduce != NULL) {",
        f"        t->all_reduce(t->gradients, {macro}_GRADIENTS_BYTES, t->user);",
        "    }",
        f"    return status == {macro}_OK ? {p}_update(t) : status;",
        "}",
        "",
    ]


def _running(training: Training, name: str, part: Part, end: str) -> list[str]:
    """`PREFIX_NAME_run`: the function with arrays of pointers."""
    package = training.package
    p = package.prefix
    trains = name not in ("predict", "evaluate")
    regions: list[RegionName] = [r for r in training.regions if trains or r in part.regions]
    arguments = port_checks((*part.inputs, *part.outputs))
    label = _label(training, part) if name != "predict" else None
    return [
        f"int {p}_{name}_run(const {p}_training *t, const void *const *inputs, void *const *outputs)",
        "{",
        *_locals(package, part),
        *region_checks(package, regions, arena=True, weights=part.body.reads_weights, arguments=arguments),
        *(label_check(package, label) if label else []),
        *range_checks(package, training.ranges, part.inputs),
        *part.body.lines,
        end,
        "}",
        "",
    ]


def _typed(training: Training, part: Part, name: str = "predict") -> list[str]:
    """The function with types. Parameters are called by number here: no name of a model is a reason to compile."""
    if not part.parameters:
        return []
    p, macro = training.package.prefix, training.package.macro
    words = [f"const {p}_training *t", *(q.declared(f"p{k}") for k, q in enumerate(part.parameters))]
    return [
        f"{macro}_API int {p}_{name}({', '.join(words)})",
        "{",
        *arrays(part.parameters),
        f"    return {p}_{name}_run(t, inputs, outputs);",
        "}",
        "",
    ]


def _locals(package: Package, part: Part) -> list[str]:
    lines = [weights_local(package)] if part.body.reads_weights else []
    if part.body.arena_bytes:
        lines += arena_local(package, "t->arena")
    return [*refuse(["t == NULL"], f"{package.macro}_ERROR_NULL"), *lines, *pointers(part.regions), ""]
