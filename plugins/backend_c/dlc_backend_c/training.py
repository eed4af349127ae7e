"""Bundle → C: the functions of a training program in one library, with kernels and weights that they share."""

from __future__ import annotations

from collections.abc import Sequence

from dlc import Artifact, ExitCode, Port, Report, Signature, Workshop
from dlc.api.training import Bundle, Function, FunctionName, Place
from dlc.base.diagnostics import error
from dlc.graph import Constant, Tensor
from dlc.kernel.schedules.choice import Choice
from dlc.runtime.manifest import NAME
from dlc_backend_c import manifest
from dlc_backend_c.body import Body, Functions, constants_of, functions_of, unpacked_of
from dlc_backend_c.checkpoint import checkpoint_bytes
from dlc_backend_c.cxx import training_values
from dlc_backend_c.header import c_ports, fill
from dlc_backend_c.options import Options
from dlc_backend_c.package import Package, files_of, manifest_values
from dlc_backend_c.parameters import c_parameters
from dlc_backend_c.scheduling import Preferred
from dlc_backend_c.target import target_of
from dlc_backend_c.training_header import header_values
from dlc_backend_c.training_manifest import template_name, training_json
from dlc_backend_c.training_program import Part, Training, training_text
from dlc_backend_c.training_values import constant_value
from dlc_backend_c.weights import ALIGN, Blob, write_weights


def emit_training(
    bundle: Bundle,
    options: Options,
    report: Report,
    workshop: Workshop | None = None,
    families: tuple[type[Choice], ...] = (),
) -> Artifact:
    """The program as files, with `families` of schedules of plugins.

    Raises:
        DlcError: (USAGE) a plan has no places for its values.
    """
    one = "give one memory, whose size is a limit, as memory=ram:256KiB; dlc plan shows what several would hold"
    for name, given, what, help in (
        ("profile", options.profile, "tell how long their steps take", "leave it out"),
        ("steps", options.steps, "run step by step", "leave it out"),
        ("inputs", options.inputs == "consumed", "write over their inputs", "leave it out"),
        ("memory", len(options.working) > 1, "work in several memories", one),
    ):
        if given:
            raise error(
                "no-effect",
                f"c{{{name}=…}}: training programs do not {what}",
                help=help,
                exit_code=ExitCode.USAGE,
            )
    plans = [f.plan for f in bundle.functions.values()]
    initial = {p: Constant(p.initial) for r in bundle.regions.values() for p in r if isinstance(p.initial, Tensor)}
    # One value for all elements, as biases have, is a loop and no bytes.
    initial = {p: c for p, c in initial.items() if constant_value(p.initial) is None}
    constants = {c.digest: c for plan in plans for c in constants_of(plan)} | {c.digest: c for c in initial.values()}
    prefix = options.prefix or "model"
    target = target_of(options, families)
    functions = functions_of(plans, target, workshop, Preferred.of(options))
    blob = write_weights(constants.values(), f"{prefix}_weights.bin", workshop, unpacked_of(plans))
    parts: dict[FunctionName, Part] = {name: _part(f, functions, blob, prefix) for name, f in bundle.functions.items()}
    needs = [p.body.arena_bytes for p in parts.values()]
    package = Package(
        prefix, options, target, functions, blob, max(needs), ALIGN, {}, bundle.functions["predict"].plan.facts
    )
    training = Training(package, bundle, parts, {p: blob.offsets[c.digest] for p, c in initial.items()})
    facts = _facts(training)
    report.count("kernels", len(functions))
    report.count("calls", sum(len(each.steps) for plan in plans for each in plan.plans))
    report.count("weight bytes", blob.size)
    report.count("weight bytes shared", blob.shared)
    header = header_values(training)
    headers = {".h": fill("training.h.j2", header), ".hpp": fill("training.hpp.j2", training_values(training, header))}
    files = files_of(package, training_text(training), headers)
    if bundle.template[1]:
        files[template_name(prefix, bundle)] = bundle.template[1]
    signature = _signature(parts["predict"])
    values = {**manifest_values(package, signature, facts), "training": training_json(training)}
    files[NAME] = manifest.to_bytes(values, files)
    return Artifact(manifest.public_options(options), files, f"{prefix}.h", signature, facts)


def _part(function: Function, functions: Functions, blob: Blob, prefix: str) -> Part:
    signature = function.plan.signature
    _check(function)
    given = _arguments(signature.inputs, function.inputs)
    made = _arguments(signature.outputs, function.outputs)
    inputs, outputs = c_ports(given, made)
    read, written = iter(f"inputs[{k}]" for k in range(len(given))), iter(f"outputs[{k}]" for k in range(len(made)))
    body = Body(
        function.plan,
        functions,
        blob.offsets,
        [f"(const void *)({p.region} + {p.offset})" if p else next(read) for p in function.inputs],
        [f"(void *)({p.region} + {p.offset})" if p else next(written) for p in function.outputs],
        prefix,
    )
    parameters = c_parameters(Signature(given, made), inputs, outputs, prefix.upper(), taken=("t",))
    return Part(function, body, inputs, outputs, parameters)


def _check(function: Function) -> None:
    """What a plan may not expect to share memory does not: whoever makes a bundle pairs these."""
    pairs = set(function.plan.signature.aliases)
    for i, out in enumerate(function.outputs):
        for j, into in enumerate(function.inputs):
            shares = out is not None and into is not None and out.region == into.region and _overlap(out, into)
            assert not shares or (i, j) in pairs, f"output {i} lies over input {j}, which the plan does not know"


def _overlap(a: Place, b: Place) -> bool:
    return a.offset < b.offset + b.type.nbytes and b.offset < a.offset + a.type.nbytes


def _arguments(ports: Sequence[Port], places: Sequence[Place | None]) -> tuple[Port, ...]:
    """What a call gives or gets: all that has no place in a region."""
    return tuple(p for p, place in zip(ports, places, strict=True) if place is None)


def _signature(part: Part) -> Signature:
    plan, function = part.body.plan.signature, part.function
    return Signature(_arguments(plan.inputs, function.inputs), _arguments(plan.outputs, function.outputs))


def _facts(training: Training) -> dict[str, int | str]:
    """Figures of the whole program, and of the memory of each function."""
    package, bundle = training.package, training.bundle
    model = {k: v for k, v in package.facts.items() if k in ("model_name", "model_sha256")}
    of_function: dict[FunctionName, int] = {name: part.body.arena_bytes for name, part in training.parts.items()}
    return {
        **model,
        "parameters_bytes": bundle.size("parameters"),
        "state_bytes": bundle.size("state"),
        "gradients_bytes": bundle.size("gradients"),
        "arena_bytes": package.arena_bytes,
        **{f"{name}_arena_bytes": size for name, size in of_function.items()},
        "workspace_bytes": max(part.body.plan.workspace for part in training.parts.values()),
        "checkpoint_bytes": checkpoint_bytes(bundle, training.kept),
        "weights_bytes": package.blob.size,
        "kernels": len(package.functions),
        "calls": sum(len(plan.steps) for part in training.parts.values() for plan in part.body.plan.plans),
    }
