"""What the header of a training program tells: its memory, its labels, and a prototype of every function."""

from __future__ import annotations

from dlc_backend_c.checkpoint import checkpoint_bytes
from dlc_backend_c.package import template_values
from dlc_backend_c.parameters import LIMIT, prototype
from dlc_backend_c.ranges import range_errors
from dlc_backend_c.training_program import LOSS, STEP, Part, Training


def header_values(training: Training) -> dict[str, object]:
    """The names that `training.h.j2` uses."""
    package, bundle, parts = training.package, training.bundle, training.parts
    label = next(q for q in parts["evaluate"].inputs if q.name == bundle.label)
    types = {g.type.dtype.name for g in bundle.regions["gradients"]}
    step = parts[training.step]
    named = {"train_step": step, "evaluate": parts["evaluate"], "predict": parts["predict"]}
    named |= {"gradients": step} if training.final else {}
    texts = {name: _prototype(training, name, part) for name, part in named.items()}
    texts["train_step"] = f"{_described(training, step)}\n{texts['train_step']}"
    return {
        **template_values(package),
        "facts": bundle.facts,
        "final": training.final,
        "sizes": {region: bundle.size(region) for region in bundle.regions},
        "regions": bundle.regions,
        "gradients_type": types.pop() if len(types) == 1 else "",
        "checkpoint_bytes": checkpoint_bytes(bundle, training.kept),
        "accumulate": bundle.accumulate,
        "step_offset": next((s.offset for s in bundle.regions["state"] if s.name == STEP), None),
        "inputs": parts["predict"].inputs,
        "outputs": parts["predict"].outputs,
        "label": label,
        "checked": range_errors(training.ranges),
        "classes": bundle.classes,
        "loss": next(q for q in step.outputs if q.name == LOSS),
        "prototypes": texts,
        "runs": ["train_step", *(["gradients"] if training.final else []), "evaluate", "predict"],
    }


def _prototype(training: Training, name: str, part: Part) -> str:
    p, macro = training.package.prefix, training.package.macro
    if not part.parameters:
        return f"/* {p}_{name} does not exist: it would have more than {LIMIT} parameters. Use {p}_{name}_run. */"
    return f"{macro}_API {prototype(f'{p}_{name}', part.parameters, before=[f'const {p}_training *t'])};"


def _described(training: Training, step: Part) -> str:
    """What the header says of a step."""
    p, macro, count = training.package.prefix, training.package.macro, training.bundle.accumulate
    lines = ["One training step on one batch. The loss is the loss before the update of the weights."]
    if count > 1:
        lines += [f"Every {count} steps the weights are updated, with the mean of the gradients."]
    lines += [""]
    width = max((len(q.ident) for q in step.parameters), default=0)
    lines += [f"{q.ident.ljust(width)}  {q.description}" for q in step.parameters]
    lines += [""] if step.parameters else []
    if training.final:
        lines += [
            f"{macro}_ERROR_NOT_FINITE: the loss, or a gradient, is infinite or NaN. Weights and the state of the",
            "optimizer have not changed; running statistics and the number of steps have, and may not be finite:",
            f"to continue, load an earlier checkpoint with {p}_load.",
        ]
    else:
        lines += [
            f"{macro}_ERROR_NOT_FINITE: the loss is infinite or NaN. Weights may have changed, because each is",
            f"updated as soon as its gradient is known: to continue, load an earlier checkpoint with {p}_load.",
        ]
    return "\n".join(["/*" + f" {lines[0]}", *(f" * {line}".rstrip() for line in lines[1:]), " */"])
