"""The function that runs one plan: buffers are checked, then the plan's body reads and writes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dlc_backend_c.arena import Arena, arena_offsets, bytes_function, places_function
from dlc_backend_c.body import Body
from dlc_backend_c.header import CPort
from dlc_backend_c.package import Package, arena_local, includes, memory, memory_checks, refuse, weights_local
from dlc_backend_c.parameters import CParameter
from dlc_backend_c.ranges import range_checks, range_functions, range_name, range_names, size_checks
from dlc_backend_c.special import Special
from dlc_backend_c.steps import step_by_step

MOST_OPERATIONS: Final = 512
"""Of a plan that stays one function."""
OPERATIONS: Final = 256
"""Of each function of a longer plan."""

_BUFFERS: Final = "const void *const *inputs, void *const *outputs"
_TIMER: Final = {"timer": "double (*timer)(void)", "seconds": "double *seconds"}
"""What `profile` gets beside: names, and how they are declared."""


@dataclass(frozen=True)
class CProgram:
    """A plan and the files around it: what the text is made of."""

    package: Package
    body: Body
    inputs: tuple[CPort, ...]
    outputs: tuple[CPort, ...]
    parameters: tuple[CParameter, ...]
    """Of the function with types; none if there is no such function."""
    arena: Arena | None = None
    """Of a program whose need of memory depends on the sizes of a call."""
    special: tuple[Special, ...] = ()
    """Fast paths for single sizes, in the order in which a call looks for its own."""

    @property
    def reads_weights(self) -> bool:
        """Whether a step of any function reads the weights."""
        return self.body.reads_weights or any(s.body.reads_weights for s in self.special)

    @property
    def idents(self) -> Mapping[int, str]:
        """Number of an input → its name as a parameter."""
        return {q.input: q.ident for q in self.parameters if q.input is not None}


def main_text(program: CProgram) -> str:
    """The section that declares the weights and defines the functions of the interface."""
    package = program.package
    ranges = range_names(package, program.inputs)
    functions, statements = _divided(program, program.body, program.arena, f"{package.prefix}_run")
    buffers, in_range = _checks(program), range_checks(package, ranges, program.inputs)
    checks = [*buffers, *in_range]
    taken = [line for s in program.special for line in _taken(program, s)]
    copies = any(body.copies for body in (program.body, *(s.body for s in program.special)))
    lines = [
        *includes(package, *(["string.h"] if copies else [])),
        *memory(package),
        *range_functions(package, ranges),
        *(line for lines in program.body.functions_of_bodies.values() for line in lines),
        *(line for s in program.special for line in _fast_path(program, s)),
        *_arena_functions(program, ranges),
        *functions,
        f"int {package.prefix}_run({_BUFFERS}, {package.memory_parameter})",
        *_entry(program, [*checks, *taken], statements),
        *_profile(program, checks),
        *_step(program, [*buffers, *_at_first(in_range)]),
        *_typed(program),
    ]
    return "\n".join(lines) + "\n"


def _entry(program: CProgram, checks: list[str], statements: list[str]) -> list[str]:
    """The body of a function that runs the plan on buffers."""
    package = program.package
    return [
        "{",
        *_locals(program),
        *checks,
        *([] if program.arena is None else arena_offsets(program.arena, package.prefix)),
        *statements,
        *size_checks(package, program.outputs),
        f"    return {package.macro}_OK;",
        "}",
    ]


def _at_first(checks: list[str]) -> list[str]:
    """Checks of what buffers hold, by the first step of a call alone: later ones may find them written over."""
    return ["    if (step == 0u) {", *(f"    {line}" for line in checks), "    }"] if checks else []


def _profile(program: CProgram, checks: list[str]) -> list[str]:
    """The function that also tells how long each step takes, if there is to be one; it takes no fast path."""
    package = program.package
    if not package.options.profile:
        return []
    name = f"{package.prefix}_profile"
    functions, statements = _divided(program, program.body, program.arena, name, timed=True)
    null = refuse(["timer == NULL", "seconds == NULL"], f"{package.macro}_ERROR_NULL")
    return [
        "",
        *functions,
        f"int {name}({_BUFFERS}, {package.memory_parameter}, {', '.join(_TIMER.values())})",
        *_entry(program, [*null, *checks], statements),
    ]


def _step(program: CProgram, checks: list[str]) -> list[str]:
    """The function that runs one step of a call, if there is to be one; it takes no fast path."""
    package = program.package
    if not package.options.steps:
        return []
    name, count = f"{package.prefix}_step", len(program.body.plan.steps)
    functions, statements = step_by_step(program.body, _parts_know(program, program.arena), name)
    range_ = refuse([f"step >= {package.macro}_STEPS"], f"{package.macro}_ERROR_STEP")
    last = size_checks(package, program.outputs)
    if last:
        statements += [f"    if (step + 1u < {count}u) {{", f"        return {package.macro}_OK;", "    }"]
    return [
        "",
        *functions,
        f"int {name}({_BUFFERS}, {package.memory_parameter}, unsigned step)",
        *_entry(program, [*range_, *checks], statements),
    ]


def _known(program: CProgram) -> list[str]:
    """Declarations of what every function that runs a plan, or a part of one, needs of `run`."""
    known = ["const void *const *inputs", "void *const *outputs"]
    a = "unsigned char *const *a" if program.package.regions else "unsigned char *a"
    known += [a] * (program.package.arena_bytes > 0)
    return known + ["const unsigned char *w"] * program.reads_weights


def _parts_know(program: CProgram, arena: Arena | None) -> list[str]:
    """The same of functions that run a part of a plan at the sizes of a call."""
    known = _known(program)
    known[3:3] = ["const size_t *o"] * (arena is not None)
    return known


def _names(declared: list[str]) -> list[str]:
    return [k.rpartition("*")[2] for k in declared]


def _taken(program: CProgram, special: Special) -> list[str]:
    """The statement that takes a fast path where a call has its sizes."""
    given = ", ".join(_names(_known(program)))
    return [f"    if ({special.condition}) {{", f"        return {special.name}({given});", "    }"]


def _fast_path(program: CProgram, special: Special) -> list[str]:
    """The function that runs a plan for single sizes, and those that it calls."""
    functions, statements = _divided(program, special.body, special.arena, f"{special.name}_run")
    known, arena = _known(program), special.arena
    return [
        *(line for lines in special.body.functions_of_bodies.values() for line in lines),
        *([] if arena is None else places_function(arena, special.name)),
        *functions,
        f"static int {special.name}({', '.join(known)})",
        "{",
        *([] if arena is None else [f"    size_t o[{len(arena.sizes)}];"]),
        *(f"    (void){n};" for n in _names(known)),
        *([] if arena is None else arena_offsets(arena, special.name, special.inputs)),
        *statements,
        *size_checks(program.package, special.outputs),
        f"    return {program.package.macro}_OK;",
        "}",
        "",
    ]


def _divided(
    program: CProgram, body: Body, arena: Arena | None, prefix: str, *, timed: bool = False
) -> tuple[list[str], list[str]]:
    """(functions, the statements of `run`): many operations are put in functions of their own, one after another.

    The time that compilers take to allocate registers grows with the square of the calls in a function. `timed`: the
    seconds of each step are told.
    """
    operations = _timed(body) if timed else body.operations
    if len(operations) <= MOST_OPERATIONS:
        return [], [line for lines in operations for line in lines]
    apart = f"{program.package.macro}_APART"
    known = _parts_know(program, arena)
    names = [*_names(known), *(_TIMER if timed else ())]
    known += _TIMER.values() if timed else ()
    # A function that is called once would be put back where it is called.
    lines = [
        "#if defined(__GNUC__)",
        f"#define {apart} __attribute__((noinline))",
        "#else",
        f"#define {apart}",
        "#endif",
    ]
    calls: list[str] = []
    for first in range(0, len(operations), OPERATIONS):
        name = f"{prefix}_{len(calls)}"
        calls.append(f"    {name}({', '.join(names)});")
        lines += [f"static {apart} void {name}({', '.join(known)})", "{", *(f"    (void){n};" for n in names)]
        lines += [line for operation in operations[first : first + OPERATIONS] for line in operation] + ["}", ""]
    return lines, calls


def _timed(body: Body) -> list[list[str]]:
    """The operations, with the timer read before and after each step."""
    copies = len(body.operations) - len(body.plan.steps)
    return [
        *body.operations[:copies],
        *(
            ["    {", "    const double begin = timer();", *lines, f"    seconds[{k}] = timer() - begin;", "    }"]
            for k, lines in enumerate(body.operations[copies:])
        ),
    ]


def _typed(program: CProgram) -> list[str]:
    """The function with types. Parameters are called by number here: no name of a model is a reason to compile."""
    if not program.parameters:
        return []
    p, arena = program.package.prefix, program.package.asks_for_arena
    name = _memory_name(program)
    words = [q.declared(f"p{k}") for k, q in enumerate(program.parameters)]
    words += [program.package.memory_parameter] * arena
    return [
        "",
        f"{program.package.macro}_API int {p}_call({', '.join(words)})",
        "{",
        *arrays(program.parameters),
        f"    return {p}_run(inputs, outputs, {name if arena else 'NULL'});",
        "}",
    ]


def arrays(parameters: tuple[CParameter, ...]) -> list[str]:
    """The arrays `inputs` and `outputs`, from parameters that are called by number."""
    numbers = [(q.input, q.output, k) for k, q in enumerate(parameters)]
    reads = [f"    inputs[{i}] = p{k};" for i, _, k in numbers if i is not None]
    writes = [f"    outputs[{o}] = p{k};" for _, o, k in numbers if o is not None]
    return [
        f"    const void *inputs[{max(1, len(reads))}];",
        f"    void *outputs[{max(1, len(writes))}];",
        *(reads or ["    inputs[0] = NULL;"]),
        *(writes or ["    outputs[0] = NULL;"]),
    ]


def _arena_functions(program: CProgram, ranges: Mapping[CPort, str]) -> list[str]:
    """What tells how much memory a call of some sizes needs, and where values lie then."""
    arena, package = program.arena, program.package
    if arena is None:
        return []
    checks = [range_name(ranges, program.inputs[k]) for k in arena.inputs.values()]
    names = {k: f"s{n}" for n, k in enumerate(arena.inputs.values())}
    special = [
        (" && ".join(f"{names[k]} == {size}" for k, size in s.sizes.items()), s.needs(names), s.arena)
        for s in program.special
        if all(k in names for k in s.sizes)
    ]
    return [
        *places_function(arena, package.prefix),
        *bytes_function(arena, package.prefix, package.macro, checks, special),
    ]


def _locals(program: CProgram) -> list[str]:
    package = program.package
    weights = [weights_local(package)] if program.reads_weights else []
    offsets = [] if program.arena is None else [f"    size_t o[{len(program.arena.sizes)}];"]
    name = _memory_name(program)
    arena = arena_local(package, name) if package.arena_bytes else [f"    (void){name};"]
    return [*weights, *offsets, *arena, ""]


def _memory_name(program: CProgram) -> str:
    return program.package.memory_parameter.rpartition("*")[2]


def _checks(program: CProgram) -> list[str]:
    """Refuse before anything is written: absent, then misaligned buffers."""
    macro = program.package.macro
    null, skew = port_checks((*program.inputs, *program.outputs))
    no_memory, skew_memory = memory_checks(program.package)
    null, skew = [*null, *no_memory], [*skew, *skew_memory]
    lines = refuse(["inputs == NULL", "outputs == NULL", *null], f"{macro}_ERROR_NULL")
    lines += refuse(skew, f"{macro}_ERROR_ALIGNMENT")
    return lines + refuse(
        ["w == NULL"] * (program.package.needs_weights and program.reads_weights), f"{macro}_ERROR_WEIGHTS"
    )


def port_checks(ports: tuple[CPort, ...]) -> tuple[list[str], list[str]]:
    """(conditions under which a buffer is absent, conditions under which one is misaligned)."""
    null, skew = list[str](), list[str]()
    for port in ports:
        buffer = f"{port.direction}s[{port.index}]"
        if port.bytes:
            null.append(f"{buffer} == NULL")
        if port.bytes and port.align > 1:
            skew.append(f"(uintptr_t){buffer} % {port.align}u != 0")
    return null, skew
