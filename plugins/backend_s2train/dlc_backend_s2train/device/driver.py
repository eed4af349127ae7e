"""The C driver of a program: `NAME_host.h` and `NAME_host.c`, over the five functions of a board.

The text of the driver is `c/host.c.in` and what it names of the files beside it; what is a program's own is put in: its
identity, its entries, the loss scale. Names of models become identifiers, and come to the text in no other way.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from dlc_backend_s2train.codes import Element
from dlc_backend_s2train.device import C_SOURCES
from dlc_backend_s2train.program import LOSS_SCALES, Entry, Program, Tensor
from dlc_backend_s2train.simulator.training import growth_of, identity_of, learns, scale_of

_TYPES: Final = {Element.FP16: "float", Element.FP32: "float", Element.INT32: "int32_t"}
_OWN: Final = ("load", "get", "put", "problem", "host", "function", "fetch", "store")
"""Behind a driver's prefix."""
_SIDES: Final = (("inputs", "in", "const "), ("labels", "label", "const "), ("outputs", "out", ""))


def driver_files(program: Program, content: bytes, file: str, prefix: str) -> Mapping[str, bytes]:
    """The files of the driver of a program whose file has that content and name; none where the file has no registers.

    Args:
        program: What the file holds.
        content: The file.
        file: Its name, for comments.
        prefix: What the driver's files and names begin with.
    """
    if not program.setups:
        return {}
    name = identifier(prefix, ())
    source = (C_SOURCES / "host.c.in").read_text(encoding="utf-8")
    parts = {
        "FILE": _plain(file),
        "NAME": name,
        "TABLES": _tables(program, content),
        "COLUMNS": str(program.target.cores * program.target.columns),
        "CORE_COLUMNS": str(program.target.columns),
        "CHECKED_FILE": (C_SOURCES / "file.c.in").read_text(encoding="utf-8"),
        "INTEGERS": _INTEGERS if _has_integers(program) else "",
        "FUNCTIONS": (C_SOURCES / "functions.c.in").read_text(encoding="utf-8") if program.functions else _NO_FUNCTIONS,
        "STEPPED": _STEPPED if learns(program) else "",
        "ENTRIES": "\n".join(_entry(program, name, number) for number in range(len(program.entries))),
    }
    made = re.sub("@([A-Z_]+)@", lambda m: parts[m[1]].replace("@NAME@", name), source)
    header = f"{name}_host"
    board = (C_SOURCES / "s2t_board.h").read_bytes()
    text = _header(program, name, _plain(file)).replace("@NAME@", name)
    return {f"{header}.h": text.encode(), f"{header}.c": made.encode(), "s2t_board.h": board}


def identifier(text: str, taken: Collection[str]) -> str:
    """A C identifier for a name, other than those taken."""
    made = re.sub("[^A-Za-z0-9_]+", "_", text).strip("_")[:60] or "unnamed"
    made = f"p{made}" if made[0].isdigit() else made
    found, number = made, 2
    while found in taken:
        found, number = f"{made}_{number}", number + 1
    return found


def _plain(text: str) -> str:
    """A name in a comment."""
    return re.sub("[^A-Za-z0-9_., -]", "?", text)


def _tables(program: Program, content: bytes) -> str:
    digest = ", ".join(f"0x{byte:02x}" for byte in identity_of(content))
    return "\n".join(
        [
            f"static const uint8_t IDENTITY[32] = {{{digest}}};",
            f"#define SCALE {scale_of(program)!r}",
            f"static const uint32_t GROWTH = {growth_of(program) if learns(program) else 0};",
            f"static const uint64_t WEIGHTS = {len(program.weights)};",
        ]
    )


def _has_integers(program: Program) -> bool:
    given = [n for e in program.entries for _, n in (*e.inputs, *e.labels)]
    return any(program.tensors[n].element is Element.INT32 for n in given)


def _arguments(program: Program, entry: Entry) -> Iterator[tuple[str, str, int]]:
    """(declaration, identifier, tensor) of what an entry takes and gives, in that order."""
    taken: set[str] = set()
    for side, role, const in _SIDES:
        ports: tuple[tuple[str, int], ...] = getattr(entry, side)
        for name, number in ports:
            found = identifier(f"{role}_{name}", taken)
            taken.add(found)
            yield f"{const}{_TYPES[program.tensors[number].element]} *{found}", found, number


def _names(program: Program) -> list[str]:
    """Identifiers of the entries; those of the driver's own functions are taken."""
    found: list[str] = []
    for entry in program.entries:
        found.append(
            identifier(entry.name, (*found, "load", "get", "put", "problem", "host", "function", "fetch", "store"))
        )
    return found


def _kept(program: Program) -> list[tuple[str, int]]:
    """(identifier, number) of tensors that updates write."""
    found: dict[int, str] = {}
    for i in program.instructions:
        if i.updates:
            for slot in ("dst0", "dst1", "aux"):
                if slot in i.operands and i.operands[slot] not in found:
                    number = i.operands[slot]
                    found[number] = identifier(program.tensors[number].name.upper(), found.values())
    return [(name, number) for number, name in found.items()]


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "1"


def _header(program: Program, name: str, file: str) -> str:
    guard = f"{name}_HOST_H".upper()
    lines = [
        f"/* Host driver of the S2Train program {file}, written by dlc; see docs/s2train-host.md.",
        "",
        "   The caller keeps the file in memory while the driver is used. Every function gives 0 or a status. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        '#include "s2t_board.h"',
        "",
        "#ifndef S2T_STATUS",
        "#define S2T_STATUS",
        "enum {",
        "    S2T_OK, S2T_NO_PROGRAM, S2T_TRUNCATED, S2T_OTHER_PROGRAM, S2T_BOARD, S2T_NOT_LOADED, S2T_NOT_FINITE,",
        "    S2T_NO_FUNCTION",
        "};",
        "#endif",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "typedef struct {",
        "    void *board;",
        "    const uint8_t *file, *tensors, *storages, *geometries, *hypers, *words, *setups;",
        "    size_t size;",
        f"    uint64_t runs[{max(len(program.entries), 1)}]; /* how often each function ran */",
        "    int64_t instruction; /* where the last run failed; -1: before or after the instructions */",
        "    double scale; /* of the loss */",
        "    uint32_t clean; /* steps without overflow at this scale */",
        "    uint8_t setup[12];",
        "    int loaded, is_set_up, overflow; /* overflow: of the last run, updates were left out */",
        f"}} {name}_host;",
        "",
        "/* Check the file and put the weights into the device. */",
        f"int {name}_load({name}_host *host, void *board, const void *file, size_t size);",
        "",
    ]
    for entry, own in zip(program.entries, _names(program), strict=True):
        arguments = [*_arguments(program, entry)]
        shapes = ", ".join(f"{found}[{_shape(program.tensors[number])}]" for _, found, number in arguments)
        declared = "".join(f", {declaration}" for declaration, _, _ in arguments)
        lines += [f"/* {shapes} */" if shapes else "", f"int {name}_{own}({name}_host *host{declared});", ""]
    lines += ["/* What updates change: tensors for get and put. */"]
    lines += [
        f"#define {name.upper()}_TENSOR_{own} {n} /* {_shape(program.tensors[n])} */" for own, n in _kept(program)
    ]
    lines += [
        f"int {name}_get({name}_host *host, uint32_t tensor, float *values);",
        f"int {name}_put({name}_host *host, uint32_t tensor, const float *values);",
        "",
        *(_FUNCTION_LINES if program.functions else ()),
        "/* A status in words. */",
        f"const char *{name}_problem(int status);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _entry(program: Program, name: str, number: int) -> str:
    """The function of an entry; behind the last one, those that read and write what is kept."""
    entry, own = program.entries[number], _names(program)[number]
    arguments = [*_arguments(program, entry)]
    given = len(entry.inputs) + len(entry.labels)
    declared = "".join(f", {declaration}" for declaration, _, _ in arguments)
    lines = [
        f"int {name}_{own}({name}_host *host{declared})",
        "{",
        "    int status = host->loaded ? S2T_OK : S2T_NOT_LOADED;",
    ]
    run = f"    if (!status) status = run(host, {number}, {entry.begin}, {entry.end});"
    for k, (_, found, tensor) in enumerate(arguments):
        kind = "integers" if program.tensors[tensor].element is Element.INT32 else "floats"
        lines += [run] if k == given else []
        verb = "write" if k < given else "read"
        lines.append(f"    if (!status) status = {verb}_{kind}(host, {tensor}, {found});")
    lines += [run] if given == len(arguments) else []
    steps = learns(program) and entry.name == "step"
    if steps:
        loss = next(
            found for (_, found, _), (port, _) in zip(arguments[given:], entry.outputs, strict=True) if port == "loss"
        )
        lines.append(f"    if (!status) status = stepped(host, *{loss});")
    lines += ["    return status;", "}", ""]
    if number == len(program.entries) - 1:
        known = [str(n) for _, n in _kept(program)]
        test = " && ".join(f"tensor != {n}" for n in known) or "1"
        lines += [_KEPT.replace("@TEST@", test).replace("@NAME@", name)]
    return "\n".join(lines)


_FUNCTION_LINES: Final = (
    "/* Functions of the host: dlc host-functions writes NAME_functions.c, which defines the first. */",
    "int @NAME@_function(@NAME@_host *host, uint64_t number);",
    "int @NAME@_fetch(@NAME@_host *host, uint32_t tensor, double *values);",
    "int @NAME@_store(@NAME@_host *host, uint32_t tensor, const double *values);",
    "",
)

_KEPT: Final = """\
int @NAME@_get(@NAME@_host *host, uint32_t tensor, float *values)
{
    if (!host->loaded || (@TEST@))
        return S2T_NOT_LOADED;
    return read_floats(host, tensor, values);
}

int @NAME@_put(@NAME@_host *host, uint32_t tensor, const float *values)
{
    if (!host->loaded || (@TEST@))
        return S2T_NOT_LOADED;
    return write_floats(host, tensor, values);
}
"""

_INTEGERS: Final = """
static int write_integers(@NAME@_host *host, uint64_t number, const int32_t *values)
{
    tensor to = tensor_of(host, number);
    for (uint64_t at = 0; at < to.count; at++) {
        uint8_t bytes[4];
        put(bytes, (uint32_t)values[at], 4);
        if (s2t_write(host->board, S2T_MEMORY, to.address + 4 * at, bytes, 4))
            return told(host, S2T_BOARD, -1);
    }
    return 0;
}
"""

_NO_FUNCTIONS: Final = """\
static int host_function(@NAME@_host *host, uint64_t number)
{
    (void)host;
    (void)number;
    return S2T_NO_FUNCTION;
}
"""

_STEPPED: Final = f"""
/* The loss scale of the next step (Micikevicius et al., ICLR 2018), as dlc train chooses it. */
static int stepped(@NAME@_host *host, float loss)
{{
    if (!isfinite(loss))
        return S2T_NOT_FINITE;
    host->clean = host->overflow ? 0 : host->clean + 1;
    if (GROWTH && host->overflow)
        host->scale = host->scale / 2 < {LOSS_SCALES[0]!r} ? {LOSS_SCALES[0]!r} : host->scale / 2;
    else if (GROWTH && host->clean >= GROWTH) {{
        host->clean = 0;
        host->scale = host->scale * 2 > {LOSS_SCALES[-1]!r} ? {LOSS_SCALES[-1]!r} : host->scale * 2;
    }}
    return 0;
}}
"""
