"""Plan → C: one function per distinct kernel, one function that calls them in order, and the files around them."""

from collections.abc import Mapping
from dataclasses import replace

from dlc import Artifact, Report, Workshop
from dlc.api.plan import Plan
from dlc.api.variants import Variant
from dlc.graph.closed import unlimited
from dlc.kernel.schedules.choice import Choice
from dlc.runtime.manifest import NAME
from dlc_backend_c import manifest
from dlc_backend_c.arena import arena_declaration, arena_of
from dlc_backend_c.body import Body, constants_of, functions_of, unpacked_of
from dlc_backend_c.cxx import model_values
from dlc_backend_c.header import c_ports, fill
from dlc_backend_c.options import Options
from dlc_backend_c.package import Package, files_of, manifest_values, template_values
from dlc_backend_c.parameters import LIMIT, c_parameters, prototype
from dlc_backend_c.program import CProgram, main_text
from dlc_backend_c.ranges import range_errors, range_names
from dlc_backend_c.scheduling import Preferred
from dlc_backend_c.special import special_of
from dlc_backend_c.stack import program_stack
from dlc_backend_c.target import target_of
from dlc_backend_c.weights import write_weights


def emit(
    plan: Plan,
    options: Options,
    report: Report,
    workshop: Workshop | None = None,
    variants: tuple[Variant, ...] = (),
    families: tuple[type[Choice], ...] = (),
) -> Artifact:
    """The program as files, with fast paths for the sizes of variants; `families` of schedules of plugins.

    Raises:
        DlcError: (USAGE) a plan has no places for its values, or variants have other inputs and outputs.
    """
    plans = [plan, *(v.plan for v in variants)]
    constants = {c.digest: c for each in plans for c in constants_of(each)}.values()
    prefix = options.prefix or "model"
    target = target_of(options, families)
    functions = functions_of(plans, target, workshop, Preferred.of(options))
    blob = write_weights(constants, f"{prefix}_weights.bin", workshop, unpacked_of(plans), target.align)
    inputs, outputs = c_ports(plan.signature.inputs, plan.signature.outputs)
    inputs = tuple(replace(p, align=target.align, consumed=True) if p.index in plan.consumed else p for p in inputs)
    read, written = ([f"{p.direction}s[{p.index}]" for p in ports] for ports in (inputs, outputs))
    arena = arena_of(plan, functions, target.align)
    if arena is not None and not arena.limited and options.arena == "static":
        raise unlimited(arena.free, "the library's own memory, arena=static, needs a limit of the size")
    body = Body(plan, functions, blob.offsets, read, written, prefix, None if arena is None else arena.places)
    special = tuple(
        special_of(plan, v, functions, blob.offsets, f"{prefix}_v{k}", target.align) for k, v in enumerate(variants)
    )
    arena_bytes = max(body.arena_bytes, *(s.body.arena_bytes for s in special), 0)
    regions: Mapping[str, int] = plan.own_regions if len(plan.own_regions) > 1 else {}
    package = Package(prefix, options, target, functions, blob, arena_bytes, target.align, regions, plan.facts)
    parameters = c_parameters(plan.signature, inputs, outputs, package.macro)
    program = CProgram(package, body, inputs, outputs, parameters, arena, special)
    report.count("kernels", len(functions))
    report.count("calls", calls := sum(len(each.steps) for p in plans for each in p.plans))
    report.count("weight bytes", blob.size)
    report.count("weight bytes shared", blob.shared)
    header = _header_values(program)
    headers = {".h": fill("model.h.j2", header), ".hpp": fill("model.hpp.j2", model_values(program, header))}
    files = files_of(package, main_text(program), headers)
    facts: dict[str, int | str] = {
        **plan.facts,
        "arena_bytes": arena_bytes,
        "workspace_bytes": max(p.workspace for p in plans),
        "stack_bytes": program_stack(
            [f.stack for f in functions.values()],
            len(inputs) + len(outputs),
            max(len(a.sizes) if a is not None else 0 for a in (arena, *(s.arena for s in special))),
            max(map(_depth, plans)),
        ),
        "weights_bytes": blob.size,
        "kernels": len(functions),
        "calls": calls,
        **({} if arena is None else {"arena_formula": arena.formula, "arena_sizes": arena.names}),
        **({} if arena is None or arena.limited else {"arena_limit": "none"}),
        **({"fast_paths": "; ".join(v.title for v in variants)} if variants else {}),
    }
    profile: dict[str, object] = {"profile": len(plan.steps)} if options.profile else {}
    profile |= {"consumed": list(plan.consumed)} if plan.consumed else {}
    profile |= {"steps": len(plan.steps)} if options.steps else {}
    files[NAME] = manifest.to_bytes({**manifest_values(package, plan.signature, facts), **profile}, files)
    return Artifact(manifest.public_options(options), files, f"{prefix}.h", plan.signature, facts)


def _depth(plan: Plan) -> int:
    """How many graphs lie in one another."""
    return 1 + max(map(_depth, plan.bodies.values()), default=0)


def _header_values(program: CProgram) -> dict[str, object]:
    package, parameters, arena = program.package, program.parameters, program.arena
    memory = [package.memory_parameter] * package.asks_for_arena
    return {
        **template_values(package),
        "inputs": program.inputs,
        "checked": range_errors(range_names(package, program.inputs)),
        "outputs": program.outputs,
        "finds": any(q.found for q in program.outputs),
        "consumed": [f" {p.index}" for p in program.inputs if p.consumed],
        "aliases": program.body.plan.signature.aliases,
        "steps": len(program.body.plan.steps),
        "profiled": package.options.profile,
        "stepped": package.options.steps,
        "parameters": parameters,
        "arena_function": arena_declaration(arena, package.prefix, program.idents) if arena else "",
        "arena_formula": arena.formula if arena else "",
        "arena_unlimited": arena is not None and not arena.limited,
        "prototype": prototype(f"{package.prefix}_call", parameters, after=memory),
        "width": max((len(q.ident) for q in parameters), default=0),
        "most_parameters": LIMIT,
    }
