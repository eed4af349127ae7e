"""The files around the functions of a program: one C source with its kernels, weights, CMake and pkg-config files."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dlc import Signature
from dlc.files.hashing import Content
from dlc.runtime.manifest import signature_json
from dlc_backend_c import manifest
from dlc_backend_c.body import Functions
from dlc_backend_c.byte_order import BIG_ENDIAN
from dlc_backend_c.cmake import cmake_values
from dlc_backend_c.function import prelude
from dlc_backend_c.header import fill
from dlc_backend_c.linker import placed
from dlc_backend_c.names import c_comment
from dlc_backend_c.options import Options
from dlc_backend_c.outline import functions_of
from dlc_backend_c.sections import Section, join, linkage, own_names
from dlc_backend_c.target import CTarget
from dlc_backend_c.threads import pool_lines, thread_flags, thread_values
from dlc_backend_c.weights import Blob, Storage, storage_of
from dlc_backend_c.weights_text import data_type, weights_text

ABI_VERSION = 3
"""Of the generated interface."""


@dataclass(frozen=True)
class Package:
    """What every program has, whatever its functions compute."""

    prefix: str
    options: Options
    target: CTarget
    functions: Functions
    blob: Blob
    arena_bytes: int
    """Working memory of the neediest function."""
    align: int
    """Bytes that arena and weights are aligned to."""
    regions: Mapping[str, int]
    """Bytes of each working memory, the fastest first; nothing where there is only the arena."""
    facts: Mapping[str, int | str]
    """What the planner knows of the model: "model_name", "model_sha256"."""

    @property
    def macro(self) -> str:
        """First part of macros."""
        return self.prefix.upper()

    @property
    def title(self) -> str:
        """What people call the model."""
        return str(self.facts.get("model_name", "")) or self.prefix

    @property
    def memory_parameter(self) -> str:
        """How functions are given working memory."""
        return f"const {self.prefix}_memory *memory" if self.regions else "void *arena"

    @property
    def asks_for_arena(self) -> bool:
        """Whether the caller has to hold working memory."""
        return self.options.arena == "caller" and self.arena_bytes > 0

    @property
    def has_own_arena(self) -> bool:
        """Whether the library holds working memory."""
        return self.options.arena == "static" and self.arena_bytes > 0

    @property
    def needs_weights(self) -> bool:
        """Whether the weights are missing until the user gives them."""
        return self.blob.size > 0 and self.weights == "map"

    @cached_property
    def weights(self) -> Storage:
        """Where the weights live."""
        placed = self.options.weights == "auto" and "weights" in dict(self.options.section)
        return storage_of("incbin" if placed else self.options.weights, self.blob.size)


# ---- parts of the source ---------------------------------------------------------------------------------------------


def includes(package: Package, *system: str, files: bool = False) -> list[str]:
    """The header, those of C, and the order of bytes in which weights are bytes, or files are written (`files`)."""
    lines = [f'#include "{package.prefix}.h"', *(f"#include <{name}>" for name in system), ""]
    as_bytes = package.blob.size > 0 and package.weights != "text"
    if not (as_bytes or files):
        return lines
    remedy = "" if files else ": use c{weights=text}"
    what = "the files that this program reads and writes" if files else "these weights"
    return [*lines, f"#if {BIG_ENDIAN}", f'#error "{what} are little-endian{remedy}"', "#endif", ""]


def memory(package: Package) -> list[str]:
    """Declarations of weights, of an arena of the library's own, and of the threads that loops are shared with."""
    kernels = "".join(f.text for f in package.functions.values())
    pool = pool_lines(package.options, package.prefix, kernels)
    return [*_weights_lines(package), *_arena_lines(package), *pool]


def _weights_lines(package: Package) -> list[str]:
    p, macro = package.prefix, package.macro
    if not package.blob.size:
        return []
    if not package.needs_weights:
        of = data_type(p) if package.weights == "text" else "unsigned char"
        end = "" if package.weights == "text" else "[]"
        hidden = '#if defined(__GNUC__) && defined(__ELF__)\n__attribute__((visibility("hidden")))\n#endif'
        return [hidden, f"extern const {of} {p}_weights{end};", ""]
    return [
        f"static const unsigned char *{p}_weights;",
        "",
        f"int {p}_set_weights(const void *weights)",
        "{",
        f"    if (weights == NULL || (uintptr_t)weights % {package.align}u != 0) {{",
        f"        return {macro}_ERROR_WEIGHTS;",
        "    }",
        f"    {p}_weights = (const unsigned char *)weights;",
        f"    return {macro}_OK;",
        "}",
        "",
    ]


def _arena_lines(package: Package) -> list[str]:
    if not package.has_own_arena:
        return []
    p, macro = package.prefix, package.macro
    sizes = [(n, f"{p}_arena_{n}", f"{macro}_ARENA_{n.upper()}_BYTES") for n, size in package.regions.items() if size]
    found: list[str] = []
    for region, name, size in sizes or [("arena", f"{p}_arena", f"{macro}_ARENA_BYTES")]:
        lines, place = placed(p, region, package.options.section)
        # C99 cannot align an array: room to move its start is the portable way.
        found += [*lines, f"{place}static unsigned char {name}[{size} + {macro}_ARENA_ALIGN];", ""]
    return found


def weights_local(package: Package) -> str:
    """The declaration of `w`, the weights, in a function that reads them."""
    own = f"{package.prefix}_weights"
    text = package.blob.size > 0 and package.weights == "text"
    return f"    const unsigned char *const w = {f'(const unsigned char *)&{own}' if text else own};"


def arena_local(package: Package, given: str) -> list[str]:
    """The declaration of `a`, the arena, in a function that needs it: what the caller gave, or the library's own.

    Of several memories, `a` is an array of pointers to them.
    """
    p = package.prefix
    if package.regions:
        return [
            "    unsigned char *const a[] = {",
            *(f"        {_memory(package, given, name)}," for name in package.regions),
            "    };",
        ]
    if not package.has_own_arena:
        return [f"    unsigned char *const a = (unsigned char *){given};"]
    return [
        f"    unsigned char *const own = {p}_arena + (size_t)(-(uintptr_t){p}_arena % {package.align}u);",
        f"    unsigned char *const a = {given} == NULL ? own : (unsigned char *){given};",
    ]


def _memory(package: Package, given: str, name: str) -> str:
    """A pointer to a memory: what the caller gave, or the library's own; NULL where there is none."""
    own = "NULL"
    if package.has_own_arena and package.regions[name]:
        array = f"{package.prefix}_arena_{name}"
        own = f"{array} + (size_t)(-(uintptr_t){array} % {package.align}u)"
    return f"{given} == NULL ? {own} : (unsigned char *){given}->{name}"


def memory_checks(package: Package) -> tuple[list[str], list[str]]:
    """(conditions under which working memory is absent, conditions under which it is misaligned)."""
    used = [f"a[{k}]" for k, size in enumerate(package.regions.values()) if size] or ["a"] * (package.arena_bytes > 0)
    return [f"{a} == NULL" for a in used], [f"(uintptr_t){a} % {package.align}u != 0" for a in used]


def refuse(conditions: list[str], result: str) -> list[str]:
    """Statements that return an error where one of the conditions holds."""
    if not conditions:
        return []
    test = "\n        || ".join(conditions)
    return [f"    if ({test}) {{", f"        return {result};", "    }"]


# ---- files -----------------------------------------------------------------------------------------------------------


def files_of(package: Package, main: str, headers: Mapping[str, bytes]) -> dict[str, Content]:
    """All files but the manifest.

    Args:
        package: The program.
        main: The section of the source that defines the functions of the interface.
        headers: Those of C and C++, by the ends of their names.
    """
    p, blob, weights = package.prefix, package.blob, package.weights
    values = template_values(package)
    files: dict[str, Content] = {f"{p}{end}": header for end, header in headers.items()}
    files[f"{p}.c"] = _source(package, main)
    if blob.size and weights == "text":
        files[f"{p}_weights.c"] = weights_text(blob, p, *_around_weights(package), f"{p}_weights.c")
    elif blob.size:
        files[f"{p}_weights.bin"] = blob.content
        if weights == "incbin":
            files[f"{p}_weights.S"] = fill("weights.S.j2", values)
    files["CMakeLists.txt"] = fill("CMakeLists.txt.j2", values)
    files[f"{p}Config.cmake"] = fill("Config.cmake.j2", values)
    files[f"{p}.pc"] = fill("model.pc.j2", values)
    return files


def template_values(package: Package) -> dict[str, object]:
    """What every template may use."""
    p, options = package.prefix, package.options
    in_file = package.blob.size > 0 and package.weights != "text"
    return {
        **thread_values(options, p),
        **cmake_values(p, options),
        "title": package.title,
        "version": manifest.versions()["dlc"],
        "plugins": {k: v for k, v in manifest.versions().items() if k != "dlc"},
        "options": manifest.public_options(options),
        "model_sha256": str(package.facts.get("model_sha256", "")),
        "abi": ABI_VERSION,
        "align": package.align,
        "arena_bytes": package.arena_bytes,
        "regions": dict(package.regions),
        "memory_parameter": package.memory_parameter,
        "weights_bytes": package.blob.size,
        "weights_file": f"{p}_weights.bin" if in_file else "",
        "weights_sha256": package.blob.sha256 if in_file else "",
        "mapped": f"{p}_weights.bin" if package.needs_weights else "",
        "set_weights": package.needs_weights,
        "static_arena": options.arena == "static",
        "sections": dict(options.section),
        "asks_for_arena": package.asks_for_arena,
        "sources": _sources(package),
        "assembler": in_file and not package.needs_weights,
        "flags": [f for f in _flags(package) if not f.startswith("-std=")],
    }


def manifest_values(package: Package, signature: Signature, facts: Mapping[str, int | str]) -> dict[str, Any]:
    """What every manifest tells.

    Args:
        package: The program.
        signature: How it is called.
        facts: Its figures.
    """
    model = ("model_name", "model_sha256")
    options = package.options
    threads = {"threads": options.threads, "pool": options.pool} if options.most_threads > 1 else {}
    return {
        "schema": manifest.SCHEMA,
        "target": manifest.public_options(package.options),
        "versions": manifest.versions(),
        "entry": f"{package.prefix}.h",
        "prefix": package.prefix,
        "abi": ABI_VERSION,
        "signature": signature_json(signature),
        "memory": {k: v for k, v in sorted(facts.items()) if k not in model},
        "model": {k: package.facts[k] for k in model if k in package.facts},
        "weights": package.weights if package.blob.size else "none",
        **({"regions": dict(package.regions)} if package.regions else {}),
        **({"sections": dict(package.options.section)} if package.options.section else {}),
        "cpu": list(package.target.flags),
        "machine": package.target.cpu,
        "features": list(package.target.features),
        **threads,
        "kernels": [
            {
                "function": f.name,
                "digest": digest,
                "workspace": f.workspace,
                "stack": f.stack,
                "operations": f.executed.operations,
                "weight": f.executed.weight,
            }
            for (digest, *_), f in package.functions.items()
        ],
    }


def _source(package: Package, main: str) -> bytes:
    functions = {name: text for f in package.functions.values() for name, text in f.definitions.items()}
    used = prelude(package.target, "\n".join((*functions.values(), main)))
    own = (*functions, *(name for text in functions.values() for name in functions_of(text)))
    begin, end = own_names(package.prefix, used, own)
    sections = [
        Section("head", "", _head(package) + begin),
        Section("prelude", "", used),
        *(Section("kernel", name, linkage(name, text)) for name, text in functions.items()),
        Section("main", "", main),
        Section("end", "", end),
    ]
    return join(sections).encode("ascii")


def _head(package: Package) -> str:
    flags = " ".join(_flags(package))
    sources = " ".join(_sources(package))
    text = f"/* {c_comment(package.title)}: generated by dlc. It belongs to whoever ran dlc, as its header says.\n"
    text += f" * Compile it with\n *   cc {c_comment(flags, 2000)} -c {sources}\n */\n"
    return text + _PSABI if package.target.vector_bytes else text


# No function that passes vectors has linkage, so how they are passed is nobody's business.
_PSABI = """\
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
"""


def _flags(package: Package) -> tuple[str, ...]:
    return (*package.target.flags, *thread_flags(package.options), *package.options.flags)


def _around_weights(package: Package) -> tuple[str, str]:
    """(What the file of weights in C begins with, the declaration that they initialise)."""
    p, of = package.prefix, f"const {data_type(package.prefix)}"
    lines, place = placed(p, "weights", package.options.section)
    head = (
        f"/* Weights of {p}, as numbers: right in any order of bytes. */\n"
        "#if defined(__GNUC__)\n"
        f"#define ALIGNED __attribute__((aligned({package.align})))\n"
        "#elif defined(_MSC_VER)\n"
        f"#define ALIGNED __declspec(align({package.align}))\n"
        "#else\n"
        f"#define ALIGNED _Alignas({package.align})\n"
        "#endif\n"
    )
    before = "".join(f"{line}\n" for line in lines) + "#if defined(__GNUC__) && defined(__ELF__)\n"
    before += f'__attribute__((visibility("hidden")))\n#endif\nextern {of} {p}_weights;\n'
    return head, f"{before}{place}ALIGNED {of} {p}_weights ="


def _sources(package: Package) -> list[str]:
    p = package.prefix
    extra = {"incbin": [f"{p}_weights.S"], "text": [f"{p}_weights.c"], "map": []}[package.weights]
    return [f"{p}.c", *(extra if package.blob.size else [])]
