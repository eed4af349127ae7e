"""The function that runs a plan: buffers are checked, then one call per step reads and writes where the plan says."""

from collections.abc import Mapping
from dataclasses import dataclass

from dlc.graph import Call, Input, Op
from dlc.plan import Plan, results_of
from dlc_backend_c.function import CFunction
from dlc_backend_c.header import CPort
from dlc_backend_c.names import c_comment
from dlc_backend_c.options import Options
from dlc_backend_c.parameters import CParameter
from dlc_backend_c.target import CTarget
from dlc_backend_c.weights import ALIGN, Blob


@dataclass(frozen=True)
class Program:
    """A plan, its functions and weights: what the text is made of."""

    plan: Plan
    options: Options
    prefix: str
    target: CTarget
    functions: Mapping[tuple[str, bool], CFunction]
    """By kernel digest and whether a result overwrites an argument, in order of first use."""
    blob: Blob
    inputs: tuple[CPort, ...]
    outputs: tuple[CPort, ...]
    parameters: tuple[CParameter, ...]
    """Of the function with types; none if there is no such function."""

    @property
    def macro(self) -> str:
        """First part of macros."""
        return self.prefix.upper()

    @property
    def planned(self) -> int:
        """Bytes of the arena that the plan placed values in; scratch memory of kernels begins behind them."""
        return -(-self.plan.regions.get("arena", 0) // ALIGN) * ALIGN

    @property
    def scratch(self) -> int:
        """Bytes that the neediest kernel works in."""
        return max((-(-f.scratch // ALIGN) * ALIGN for f in self.functions.values()), default=0)

    @property
    def asks_for_arena(self) -> bool:
        """Whether the caller has to hold working memory."""
        return self.options.arena == "caller" and self.planned + self.scratch > 0


def main_text(program: Program) -> str:
    """The section that declares the weights and defines the functions of the interface."""
    p, macro = program.prefix, program.macro
    lines = [
        f'#include "{p}.h"',
        *(["#include <string.h>"] if program.plan.kept else []),
        "",
        "#if defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__",
        '#error "the weights are little-endian"',
        "#endif",
        "",
        *_weights_lines(program),
        *_arena_lines(program),
        f"int {p}_run(const void *const *inputs, void *const *outputs, void *arena)",
        "{",
        *_locals(program),
        *_checks(program),
        *_kept(program),
        *(line for step in program.plan.steps for line in _call(program, step)),
        f"    return {macro}_OK;",
        "}",
        *_typed(program),
    ]
    return "\n".join(lines) + "\n"


def _typed(program: Program) -> list[str]:
    """The function with types. Parameters are called by number here: no name of a model is a reason to compile."""
    if not program.parameters:
        return []
    p, arena = program.prefix, program.asks_for_arena
    words = [q.declared(f"p{k}") for k, q in enumerate(program.parameters)] + ["void *arena"] * arena
    numbers = [(q.input, q.output, k) for k, q in enumerate(program.parameters)]
    reads = [f"    inputs[{i}] = p{k};" for i, _, k in numbers if i is not None] or ["    inputs[0] = NULL;"]
    writes = [f"    outputs[{o}] = p{k};" for _, o, k in numbers if o is not None] or ["    outputs[0] = NULL;"]
    return [
        "",
        f"{program.macro}_API int {p}_call({', '.join(words)})",
        "{",
        f"    const void *inputs[{max(1, len(program.inputs))}];",
        f"    void *outputs[{max(1, len(program.outputs))}];",
        *reads,
        *writes,
        f"    return {p}_run(inputs, outputs, {'arena' if arena else 'NULL'});",
        "}",
    ]


def _kept(program: Program) -> list[str]:
    """Copies of the inputs that are read when an output may have been written over them."""
    plan, number = program.plan, {i: k for k, i in enumerate(program.plan.graph.inputs)}
    return [f"    memcpy({_write(program, i)}, inputs[{number[i]}], {i.type.nbytes});" for i in plan.kept]


def _weights_lines(program: Program) -> list[str]:
    p, macro = program.prefix, program.macro
    if not program.blob.size:
        return []
    if program.options.weights != "map":
        hidden = '#if defined(__GNUC__) && defined(__ELF__)\n__attribute__((visibility("hidden")))\n#endif'
        return [hidden, f"extern const unsigned char {p}_weights[];", ""]
    return [
        f"static const unsigned char *{p}_weights;",
        "",
        f"int {p}_set_weights(const void *weights)",
        "{",
        f"    if (weights == NULL || (uintptr_t)weights % {ALIGN}u != 0) {{",
        f"        return {macro}_ERROR_WEIGHTS;",
        "    }",
        f"    {p}_weights = (const unsigned char *)weights;",
        f"    return {macro}_OK;",
        "}",
        "",
    ]


def _arena_lines(program: Program) -> list[str]:
    if not _has_own_arena(program):
        return []
    name, align = f"{program.prefix}_arena", f"{program.macro}_ARENA_ALIGN"
    # C99 cannot align an array: room to move its start is the portable way.
    return [f"static unsigned char {name}[{program.macro}_ARENA_BYTES + {align}];", ""]


def _has_own_arena(program: Program) -> bool:
    return program.options.arena == "static" and program.planned + program.scratch > 0


def _locals(program: Program) -> list[str]:
    p, lines = program.prefix, list[str]()
    if program.blob.size:
        lines.append(f"    const unsigned char *const w = {p}_weights;")
    if _has_own_arena(program):
        lines += [
            f"    unsigned char *const own = {p}_arena + (size_t)(-(uintptr_t){p}_arena % {ALIGN}u);",
            "    unsigned char *const a = arena == NULL ? own : (unsigned char *)arena;",
        ]
    elif program.planned + program.scratch:
        lines.append("    unsigned char *const a = (unsigned char *)arena;")
    else:
        lines.append("    (void)arena;")
    return [*lines, ""]


def _checks(program: Program) -> list[str]:
    """Refuse before anything is written: absent, then misaligned buffers."""
    macro, null, skew = program.macro, ["inputs == NULL", "outputs == NULL"], list[str]()
    for port in (*program.inputs, *program.outputs):
        buffer = f"{port.direction}s[{port.index}]"
        if port.bytes:
            null.append(f"{buffer} == NULL")
        if port.bytes and port.align > 1:
            skew.append(f"(uintptr_t){buffer} % {port.align}u != 0")
    if program.planned + program.scratch:
        null.append("a == NULL")
        skew.append(f"(uintptr_t)a % {ALIGN}u != 0")
    lines = _refuse(null, f"{macro}_ERROR_NULL") + _refuse(skew, f"{macro}_ERROR_ALIGNMENT")
    if program.blob.size and program.options.weights == "map":
        lines += _refuse(["w == NULL"], f"{macro}_ERROR_WEIGHTS")
    return lines


def _refuse(conditions: list[str], result: str) -> list[str]:
    if not conditions:
        return []
    test = "\n        || ".join(conditions)
    return [f"    if ({test}) {{", f"        return {result};", "    }"]


def _call(program: Program, step: Call) -> list[str]:
    function = program.functions[step.body.digest, in_place(program.plan, step)]
    # Void pointers convert to any parameter type, so the types are named once, where the kernel is.
    values = [*(_read(program, x) for x in step.args), *(_write(program, r) for r in results_of(step))]
    if function.scratch:
        values.append(f"a + {program.planned}")
    names = program.plan.graph.origin(step)
    comment = [f"    /* {', '.join(c_comment(n) for n in names)} */"] if names else []
    return [*comment, f"    {function.name}({', '.join(values)});"]


def _read(program: Program, value: Op) -> str:
    if isinstance(value, Input) and value.digest not in program.plan.slots:
        return f"inputs[{program.plan.graph.inputs.index(value)}]"
    if value.digest in program.blob.offsets:
        return f"(const void *)(w + {program.blob.offsets[value.digest]})"
    # What an earlier step wrote is only read here.
    return _write(program, value).replace("(void *)", "(const void *)", 1)


def _write(program: Program, value: Op) -> str:
    output = program.plan.outputs.get(value.digest)
    if output is not None:
        return f"outputs[{output}]"
    slot = program.plan.slots[value.digest]
    assert slot.region == "arena", slot
    return f"(void *)(a + {slot.offset})"


def _overwritten(plan: Plan) -> list[tuple[int, Input]]:
    """(output, input) that the caller may give one buffer for, which the program reads and writes there."""
    return [(i, x) for i, j in plan.graph.aliases if (x := plan.graph.inputs[j]).digest not in plan.slots]


def in_place(plan: Plan, step: Call) -> bool:
    """Whether a result of the step may share bytes with an argument: so the plan says, or the caller may."""
    if any(plan.graph.outputs[i] in results_of(step) and x in step.args for i, x in _overwritten(plan)):
        return True
    read = [s for x in step.args if x.digest not in plan.outputs and (s := plan.slots.get(x.digest))]
    written = [s for r in results_of(step) if r.digest not in plan.outputs and (s := plan.slots.get(r.digest))]
    return any(a.offset < b.offset + b.size and b.offset < a.offset + a.size for a in read for b in written)
