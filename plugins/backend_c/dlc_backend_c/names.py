"""The only way for text of a model to reach generated files: escaped comments, escaped strings, filtered identifiers.

A model is hostile input: a tensor may be named `*/ __attribute__((constructor)) …`. What these functions return is
printable ASCII on one line that leaves the tokens around it as they were.
"""

import re
from collections.abc import Iterable

_COMMENT_LIMIT = 120
"""Characters of one name that a comment shows; a hostile name can be megabytes long."""

_IDENTIFIER_LIMIT = 48
"""Characters of an identifier: C99 promises 31 significant ones for external names, linkers keep far more."""

_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const consteval
constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast
else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq linux unix i386 main errno arena
"""
_RESERVED = frozenset(_WORDS.split())
"""Keywords of C and C++ and names that mean something in the generated files."""

_SYSTEM_LIBRARIES = frozenset(
    ("c", "m", "dl", "rt", "pthread", "gcc", "gcc_s", "util", "crypt", "resolv", "stdc", "asan", "ubsan", "tsan", "z")
)
"""A model of one of these names would become a library that linkers take for the system's."""


def c_comment(text: str, limit: int = _COMMENT_LIMIT) -> str:
    """`text` for the inside of a block comment of C, C++, CMake's `#` lines, or assembler.

    No comment can begin or end in it, no line can be continued, no trigraph can form, and nothing can reorder the text
    around it. Equal results mean equal beginnings: backslashes are escaped too.
    """
    shown = _escaped(text[:limit])
    return f"{shown}... ({len(text) - limit} more characters)" if len(text) > limit else shown


def _escaped(text: str) -> str:
    out: list[str] = []
    last = ""
    for character in text:
        # `*/` and `/*` delimit comments; `??/` is a backslash to compilers that know trigraphs.
        pair = (character in "*/" and last in ("*", "/")) or (character == "?" and last == "?")
        if character == "\\":
            shown = "\\\\"
        elif " " <= character <= "~" and not pair:
            shown = character
        else:
            shown = f"\\u{{{ord(character):x}}}"
        out.append(shown)
        last = character if shown == character else ""
    return "".join(out)


def c_string(text: str) -> str:
    """A string literal of C, C++ and JSON-free assembler with the UTF-8 bytes of `text`, quotes included.

    Octal escapes have a fixed width, so that a digit behind one cannot become a part of it.
    """
    out: list[str] = []
    for byte in text.encode("utf-8", "surrogatepass"):
        character = chr(byte)
        plain = " " <= character <= "~" and character not in '"\\?%'
        out.append(character if plain else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def identifier(text: str, fallback: str, taken: Iterable[str] = ()) -> str:
    """An identifier of C and C++ that reminds of `text`, is not reserved, and is not among `taken`."""
    word = re.sub(r"[^A-Za-z0-9]+", "_", text[: 4 * _IDENTIFIER_LIMIT]).strip("_")[:_IDENTIFIER_LIMIT].rstrip("_")
    if not word or word[0].isdigit():
        word = f"{fallback}_{word}".rstrip("_")
    if word in _RESERVED:
        word += "_"
    return _unique(word, taken)


def parameter(text: str, taken: Iterable[str], macro: str) -> str:
    """The name of a parameter that reminds of `text`, is not among `taken`, and is no macro.

    What is written in capitals only may be a macro of any header, but for single letters, which tensors like to have;
    those of the program's own header begin with `macro` and an underscore. They get an underscore at the end.
    """
    word = identifier(text, "x")
    return _unique(f"{word}_" if reserved(word) or word.startswith(f"{macro}_") else word, taken)


def reserved(word: str) -> bool:
    """Whether a word cannot be a name in a user's source: a keyword, or what may be a macro of some header."""
    return (len(word) > 1 and word.upper() == word) or word in _MACROS or word in _RESERVED


_MACROS = frozenset(("I", "complex", "imaginary", "noreturn", "stdin", "stdout", "stderr"))
"""Macros of the standard library that do not look like macros."""


def _unique(word: str, taken: Iterable[str]) -> str:
    used = set(taken)
    candidate, k = word, 1
    while candidate in used:
        k += 1
        candidate = f"{word}_{k}"
    return candidate


def default_prefix(model: str) -> str:
    """The prefix of a model's functions and files, from the model's name."""
    found = identifier(model, "model")
    return f"{found.rstrip('_')}_model" if found in _SYSTEM_LIBRARIES or found.endswith("_") else found


def prefix_problem(prefix: str) -> str:
    """Why a prefix that the user wrote cannot be used, or ""."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix) or len(prefix) > _IDENTIFIER_LIMIT:
        return f"a prefix is a C identifier of at most {_IDENTIFIER_LIMIT} characters that begins with a letter"
    if prefix in _SYSTEM_LIBRARIES or prefix in _RESERVED:
        return f"{prefix} is reserved"
    return ""
