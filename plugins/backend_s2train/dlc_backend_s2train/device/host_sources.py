"""Functions of the host in C, for the driver of a program: `dlc host-functions`.

Each function's graph is compiled for the target `c`, by whichever plugin has it, in the order of dlc's own sums;
`NAME_functions.c` fetches operands from the device, calls it, and stores results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dlc.driver.graph_source import Given
from dlc.driver.prepare import Prepared, resolved
from dlc.driver.program import Compiler
from dlc.driver.python.options import Options
from dlc.graph import Graph
from dlc_backend_s2train.device.driver import identifier
from dlc_backend_s2train.host_functions import compiled
from dlc_backend_s2train.program import Function, Program

_TYPES: Final = {
    "f16": "uint16_t",
    "f32": "float",
    "f64": "double",
    "bool": "uint8_t",
    **{f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)},
}
"""How values of a type lie in the buffers of a C program."""


def host_sources(program: Program, prefix: str) -> Mapping[str, bytes]:
    """The C sources of a program's functions by name of their files; none where it has none.

    Raises:
        DlcError: the target c is not installed, or refuses an op.
    """
    if not program.functions:
        return {}
    name = identifier(prefix, ())
    files: dict[str, bytes] = {}
    lines = ["/* Functions of the host, written by dlc: compile with the driver. */", f'#include "{name}_host.h"', ""]
    cases: list[str] = []
    options = Options(cache="off")
    compiler = Compiler.open(options.cache_dir, "off")
    try:
        for number, function in enumerate(program.functions):
            own, graph = f"{name}_f{number}", compiled(function.text).graph
            files |= _compiled(compiler, graph, own)
            lines.append(f'#include "{own}.h"')
            cases += _case(program, function, graph, number, own)
    finally:
        compiler.cache.close()
    lines += [
        *_ROOM,
        _FUNCTION.replace("@NAME@", name),
        *cases,
        "    default: return S2T_NO_FUNCTION;",
        "    }",
        "}",
        "",
    ]
    most = max(program.tensors[t].count for f in program.functions for t in (*f.reads, *f.writes))
    text = "\n".join(lines).replace("@NAME@", name).replace("@MOST@", str(most))
    return {**files, f"{name}_functions.c": text.encode()}


def _compiled(compiler: Compiler, graph: Graph, prefix: str) -> Mapping[str, bytes]:
    """Source and header of a graph."""
    options = Options(target=f"c{{prefix={prefix} lib=none weights=text cpu=generic math=ordered}}", cache="off")
    frontend, source = Given.of(graph, prefix)
    choice = options.choice(compiler.registry)
    pipeline = resolved(compiler.registry, compiler.config, frontend, choice.target or "c", choice)
    artifact = compiler.build(Prepared(source, frontend, "dlc", pipeline)).last.value
    return {n: bytes(artifact.files[n]) for n in artifact.files if n.endswith((".c", ".h"))}


def _case(program: Program, function: Function, graph: Graph, number: int, own: str) -> Iterator[str]:
    """The lines of one function: fetch, call, store."""
    given = [(t, i.type, f"x{k}") for k, (t, i) in enumerate(zip(function.reads, graph.inputs, strict=True))]
    made = [(t, o.type, f"y{k}") for k, (t, o) in enumerate(zip(function.writes, graph.outputs, strict=True))]
    yield f"    case {number}: {{"
    for tensor, type, buffer in (*given, *made):
        yield f"        static {_TYPES[type.dtype.name]} {buffer}[{max(program.tensors[tensor].count, 1)}];"
    upper = own.upper()
    align = f"{upper}_ARENA_ALIGN"
    yield f"        static unsigned char arena[{upper}_ARENA_BYTES + {align}];"
    yield f"        unsigned char *start = arena + ({align} - (uintptr_t)arena % {align});"
    yield f"        const void *const given[] = {{{', '.join(b for _, _, b in given) or '0'}}};"
    yield f"        void *const made[] = {{{', '.join(b for _, _, b in made)}}};"
    for tensor, type, buffer in given:
        yield f"        if ((status = {'@NAME@'}_fetch(host, {tensor}, values))) return status;"
        yield f"        for (size_t k = 0; k < {program.tensors[tensor].count}; k++)"
        yield f"            {buffer}[k] = ({_TYPES[type.dtype.name]})values[k];"
    yield f"        if ({own}_run(given, made, start)) return S2T_NO_FUNCTION;"
    for tensor, _, buffer in made:
        yield f"        for (size_t k = 0; k < {program.tensors[tensor].count}; k++)"
        yield f"            values[k] = (double){buffer}[k];"
        yield f"        if ((status = {'@NAME@'}_store(host, {tensor}, values))) return status;"
    yield "        return 0;"
    yield "    }"


_ROOM: Final = ("", "static double values[@MOST@];", "")
_FUNCTION: Final = """\
int @NAME@_function(@NAME@_host *host, uint64_t number)
{
    int status;
    switch (number) {"""
