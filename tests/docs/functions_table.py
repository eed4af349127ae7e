"""The table of scalar functions in `docs/kernel-language.md`, from `SCALARS`."""

import re

from dlc.kernel.scalar import SCALARS, Scalar

BEGIN, END = "<!-- functions: written by `pytest tests/docs --update` -->\n", "<!-- end of functions -->\n"
WORDS = frozenset(("and", "or", "not", "select"))
"""Functions that the language has words for, instead of calls."""
_RULES = {"cast": "conversions", "bits": "bits as another type"}
_DOMAINS = {"number": "integers and floats", "float": "floats", "int": "integers", "bool": "`bool`", "any": "all types"}


def table() -> str:
    """A row for each number of arguments and each kind of element types."""
    rows: dict[tuple[int, str], list[str]] = {}
    for s in SCALARS.values():
        if s.name in WORDS:
            continue
        kind = _RULES.get(s.rule, _DOMAINS[s.domain])
        rows.setdefault((s.arity, kind), []).append(_cell(s))
    lines = [f"| {arity} | {kind} | {', '.join(names)} |" for (arity, kind), names in sorted(rows.items())]
    return "\n".join(["| arguments | of | functions |", "|---|---|---|", *lines, ""])


def _cell(s: Scalar) -> str:
    return f"`{s.name}`" + (f" (`{s.infix}`)" if s.infix and s.infix != s.name else "")


def page(text: str) -> str:
    """The page with its table written anew."""
    assert text.count(BEGIN) == text.count(END) == 1
    return re.sub(f"(?<={re.escape(BEGIN)}).*?(?={re.escape(END)})", lambda _: table(), text, flags=re.DOTALL)
