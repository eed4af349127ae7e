"""Plan → C: one function per distinct kernel, one function that calls them in order, and the files around them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlc import Artifact, ExitCode, Report, Signature
from dlc.diagnostics import error
from dlc.kernel.nest import Kernel
from dlc.plan import Plan, results_of
from dlc_backend_c import manifest
from dlc_backend_c.function import CFunction, c_function, prelude
from dlc_backend_c.header import c_ports, fill
from dlc_backend_c.manifest import Content
from dlc_backend_c.names import c_comment
from dlc_backend_c.program import Program, in_place, main_text
from dlc_backend_c.sections import Section, join, linkage
from dlc_backend_c.target import CTarget, target_for
from dlc_backend_c.weights import ALIGN, weights_text, write_weights

if TYPE_CHECKING:
    from dlc_backend_c.backend import C

ABI_VERSION = 1
"""Of the generated interface."""


def emit(plan: Plan, options: "C", report: Report) -> Artifact:
    """The program as files; raises DlcError (USAGE) when the plan has no places for its values."""
    _check(plan)
    prefix = options.prefix or "model"
    target = target_for(options.cpu)
    # A view of an intermediate value is no step, yet no constant either: it has a place.
    constants = [c for c in plan.constants if c.digest not in plan.slots]
    blob = write_weights(constants, f"{prefix}_weights.bin")
    program = Program(
        plan,
        options,
        prefix,
        target,
        _functions(plan, target),
        blob,
        *c_ports(plan.signature.inputs, plan.signature.outputs),
    )
    report.count("kernels", len(program.functions))
    report.count("calls", len(plan.steps))
    report.count("weight bytes", blob.size)
    report.count("weight bytes shared", blob.shared)
    files = _files(program)
    facts: dict[str, int | str] = {
        **plan.facts,
        "arena_bytes": program.planned + program.scratch,
        "scratch_bytes": program.scratch,
        "weights_bytes": blob.size,
        "kernels": len(program.functions),
        "calls": len(plan.steps),
    }
    files[manifest.NAME] = manifest.to_bytes(_manifest(program, plan.signature, facts), files)
    return Artifact(manifest.public_options(options), files, f"{prefix}.h", plan.signature, facts)


def _check(plan: Plan) -> None:
    placed = set(plan.slots) | set(plan.outputs)
    missing = [v for step in plan.steps for v in results_of(step) if v.digest not in placed]
    if missing:
        raise error(
            "no-places",
            f"{len(missing)} of {len(plan.values)} values have no place in memory",
            help="end the pipeline with plan-memory",
            exit_code=ExitCode.USAGE,
        )
    computed = {v.digest for step in plan.steps for v in results_of(step)}
    assert all(o.digest in computed for o in plan.graph.outputs), "lower makes every output a result of a call"
    assert len(plan.outputs) == len(plan.graph.outputs), "lower makes outputs distinct"


def _functions(plan: Plan, target: CTarget) -> dict[tuple[str, bool], CFunction]:
    """One function per distinct kernel, named after its content so that objects can be shared between models."""
    kernels = {(step.body.digest, in_place(plan, step)): step.body for step in plan.steps}
    digests = {digest for digest, _ in kernels}
    length = 16 if len({digest[:16] for digest in digests}) == len(digests) else 32
    return {
        (digest, shares): _function(kernel, f"dlc_k_{digest[:length]}", shares, target)
        for (digest, shares), kernel in kernels.items()
    }


def _function(kernel: Kernel, name: str, shares: bool, target: CTarget) -> CFunction:
    if not shares:
        return c_function(kernel, name, target)
    # Where a result overwrites an argument element by element, the promise that buffers are disjoint must go.
    found = c_function(kernel, f"{name}_over", target)
    return replace(found, text=found.text.replace("*restrict ", "*"))


# ---- model.c --------------------------------------------------------------------------------------------------------


def _source(program: Program) -> bytes:
    sections = [
        Section("head", "", _head(program)),
        Section("prelude", "", prelude(program.target)),
        *(Section("kernel", f.name, linkage(f.text)) for f in program.functions.values()),
        Section("main", "", main_text(program)),
    ]
    return join(sections).encode("ascii")


def _head(program: Program) -> str:
    flags = " ".join((*program.target.flags, *program.options.flags))
    sources = " ".join(_sources(program))
    text = f"/* {c_comment(_title(program))}: compile with\n *   cc {c_comment(flags, 2000)} -c {sources}\n */\n"
    return text + _PSABI if program.target.vector_bytes else text


# No function that passes vectors has linkage, so how they are passed is nobody's business.
_PSABI = """\
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
"""


def _title(program: Program) -> str:
    return str(program.plan.facts.get("model_name", "")) or program.prefix


# ---- the files around it --------------------------------------------------------------------------------------------


def _files(program: Program) -> dict[str, Content]:
    p, blob, weights = program.prefix, program.blob, program.options.weights
    values = _template_values(program)
    files: dict[str, Content] = {f"{p}.h": fill("model.h.j2", values), f"{p}.c": _source(program)}
    if blob.size and weights == "text":
        files[f"{p}_weights.c"] = weights_text(blob, _array_head(program), f"{p}_weights.c")
    elif blob.size:
        files[f"{p}_weights.bin"] = blob.content
        if weights == "incbin":
            files[f"{p}_weights.S"] = fill("weights.S.j2", values)
    files["CMakeLists.txt"] = fill("CMakeLists.txt.j2", values)
    files[f"{p}.pc"] = fill("model.pc.j2", values)
    return files


def _array_head(program: Program) -> str:
    p, size = program.prefix, program.blob.size
    return (
        f"/* Weights of {p}, little-endian. */\n"
        "#if defined(__GNUC__)\n"
        f"#define ALIGNED __attribute__((aligned({ALIGN})))\n"
        "#elif defined(_MSC_VER)\n"
        f"#define ALIGNED __declspec(align({ALIGN}))\n"
        "#else\n"
        f"#define ALIGNED _Alignas({ALIGN})\n"
        "#endif\n"
        "#if defined(__GNUC__) && defined(__ELF__)\n"
        '__attribute__((visibility("hidden")))\n'
        "#endif\n"
        f"extern const unsigned char {p}_weights[{size}];\n"
        f"ALIGNED const unsigned char {p}_weights[{size}] = {{\n"
    )


def _sources(program: Program) -> list[str]:
    p = program.prefix
    extra = {"incbin": [f"{p}_weights.S"], "text": [f"{p}_weights.c"], "map": []}[program.options.weights]
    return [f"{p}.c", *(extra if program.blob.size else [])]


def _template_values(program: Program) -> dict[str, object]:
    p, options, plan = program.prefix, program.options, program.plan
    in_file = program.blob.size > 0 and options.weights != "text"
    mapped = in_file and options.weights == "map"
    return {
        "p": p,
        "P": program.macro,
        "title": _title(program),
        "version": manifest.versions()["dlc"],
        "plugins": {k: v for k, v in manifest.versions().items() if k != "dlc"},
        "options": manifest.public_options(options),
        "model_sha256": str(plan.facts.get("model_sha256", "")),
        "abi": ABI_VERSION,
        "align": ALIGN,
        "arena_bytes": program.planned + program.scratch,
        "weights_bytes": program.blob.size,
        "weights_file": f"{p}_weights.bin" if in_file else "",
        "weights_sha256": program.blob.sha256 if in_file else "",
        "mapped": f"{p}_weights.bin" if mapped else "",
        "set_weights": mapped,
        "static_arena": options.arena == "static",
        "inputs": program.inputs,
        "outputs": program.outputs,
        "sources": _sources(program),
        "assembler": in_file and not mapped,
        "flags": [f for f in (*program.target.flags, *options.flags) if not f.startswith("-std=")],
    }


def _manifest(program: Program, signature: Signature, facts: Mapping[str, int | str]) -> dict[str, Any]:
    plan = program.plan
    return {
        "schema": manifest.SCHEMA,
        "target": manifest.public_options(program.options),
        "versions": manifest.versions(),
        "entry": f"{program.prefix}.h",
        "prefix": program.prefix,
        "abi": ABI_VERSION,
        "signature": manifest.describe(signature),
        "memory": {k: v for k, v in sorted(facts.items()) if k not in ("model_name", "model_sha256")},
        "model": {k: plan.facts[k] for k in ("model_name", "model_sha256") if k in plan.facts},
        "weights": program.options.weights if program.blob.size else "none",
        "cpu": list(program.target.flags),
        "kernels": [
            {"function": f.name, "digest": digest, "scratch": f.scratch} for (digest, _), f in program.functions.items()
        ],
    }
