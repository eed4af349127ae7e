"""`model.c` is one file whose sections can be compiled apart: kernels are static in it, hidden where they are units.

    /*=== kernel dlc_k_0123456789abcdef ===*/

Text of a model cannot look like that line, because escaped text never begins one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from dlc_backend_c.helpers import macros, names, needed

LINKAGE = "DLC_LOCAL"
"""Macro before every kernel: `static` in one file, hidden visibility in separate objects."""

PUSH = "#pragma GCC push_options\n"
"""Options that hold to the end of the file only."""
_MARK = re.compile(r"^/\*=== (\w+)(?: (\w+))? ===\*/\n", re.MULTILINE)
_STATIC = f"#define {LINKAGE} static\n"
_HIDDEN = (
    f'#if defined(__GNUC__) && defined(__ELF__)\n#define {LINKAGE} __attribute__((visibility("hidden")))\n'
    f"#else\n#define {LINKAGE}\n#endif\n"
)


@dataclass(frozen=True)
class Section:
    """A part of `model.c`: head, prelude, kernel, main or end."""

    kind: str
    name: str
    """Of a kernel's function."""
    text: str


@dataclass(frozen=True)
class Unit:
    """A translation unit."""

    name: str
    """Of its file, without the extension."""
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return sha256(self.text.encode()).hexdigest()


def own_names(prefix: str, prelude: str, kernels: Iterable[str]) -> tuple[str, str]:
    """(lines for the head, section for the end) of a file that may stand beside others of its kind in one unit.

    Helpers and kernels are named after what they are, so that objects can be shared between models. Where two files are
    read as one, each has to mean its own: they may be for two processors, or of two versions of dlc.
    """
    own = (*names(prelude), *kernels)
    end = [f"#undef {name}\n" for name in (*own, *macros(prelude), LINKAGE)]
    if PUSH in prelude:
        end.append("#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC pop_options\n#endif\n")
    return "".join(f"#define {name} {prefix}_{name}\n" for name in own), "".join(end)


def linkage(name: str, text: str) -> str:
    """A kernel's definition with the linkage macro before its own function, behind those of its loops."""
    lines = text.strip().split("\n")
    at = max(k for k, line in enumerate(lines) if f"void {name}(" in line and not line.startswith((" ", "static ")))
    return "\n".join([*lines[:at], f"{LINKAGE} {lines[at]}", *lines[at + 1 :]]) + "\n"


def join(sections: Iterable[Section]) -> str:
    """The file."""
    out: list[str] = []
    for s in sections:
        out.append(f"/*=== {s.kind}{f' {s.name}' if s.name else ''} ===*/\n")
        out.append(s.text if s.text.endswith("\n") or not s.text else s.text + "\n")
        if s.kind == "head":
            out.append(_STATIC)
        out.append("\n")
    return "".join(out)


def split(text: str) -> list[Section]:
    """The inverse of `join`, up to what lies between sections."""
    marks = list(_MARK.finditer(text))
    ends = [m.start() for m in marks[1:]] + [len(text)]
    return [Section(m[1], m[2] or "", text[m.end() : end].rstrip() + "\n") for m, end in zip(marks, ends, strict=True)]


def units(text: str) -> tuple[Unit, ...]:
    """`model.c` as one unit per kernel and, last, one that calls them. A kernel's unit is the same in every model.

    Comments of the last unit are left out: they name nodes of the model, and no name may be a reason to compile.
    """
    sections = split(text)
    prelude = "".join(s.text for s in sections if s.kind == "prelude")
    kernels = [s for s in sections if s.kind == "kernel"]
    main = _without_comments("".join(s.text for s in sections if s.kind == "main"))
    declared = "".join(f"{_prototype(s)}\n" for s in kernels)
    found = [Unit(s.name, f"{_HIDDEN}{needed(prelude, s.text)}\n{_prototype(s)}\n{s.text}") for s in kernels]
    return (*found, Unit("main", f"{_HIDDEN}{needed(prelude, main)}\n{declared}\n{main}"))


def interface(header: str) -> str:
    """The part of `model.h` that `model.c` itself depends on: neither names, nor digests of weights, nor comments.

    What is left out are the macros of ports and weights and prototypes whose parameters are called like ports.
    """
    kept = _NAMES.sub("", header)  # first, because a string may look like a comment
    kept = _TYPED.sub("", kept)
    return re.sub(r"\n{2,}", "\n", _without_comments(kept))


_NAMES = re.compile(r'^#define \w+_(?:NAME|FILE|SHA256) ".*"\n', re.MULTILINE)
_TYPED = re.compile(r"^\w+_API int \w+_(?:call|train_step|gradients|evaluate|predict)\([^;]*\);\n", re.MULTILINE)
_COMMENT = re.compile(r"[ \t]*/\*.*?\*/([ \t]*\n)?", re.DOTALL)


def _without_comments(text: str) -> str:
    """The text with every comment gone; one that has lines for itself takes them along."""
    return _COMMENT.sub(lambda m: "\n" if m[1] and not _alone(m) else "", text)


def _alone(found: re.Match[str]) -> bool:
    return found.start() == 0 or found.string[found.start() - 1] == "\n"


def _prototype(section: Section) -> str:
    """The declaration of a kernel's function: its text up to the body."""
    start = section.text.index(f"{section.name}(")
    end = section.text.index(")", start)
    return f"{LINKAGE} void {section.text[start : end + 1]};"
