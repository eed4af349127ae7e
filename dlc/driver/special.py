"""`--specialise`: the model once more for single sizes, whose programs a call of these sizes takes.

--specialise batch=1,8 --specialise seq=128    →    batch=1,seq=128 and batch=8,seq=128
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from dlc.api.backend import Backend
from dlc.api.frontend import Frontend
from dlc.api.variants import sizes_text
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error
from dlc.base.extents import symbols

if TYPE_CHECKING:
    from dlc.driver.pipeline import ResolvedPipeline
    from dlc.graph.graph import Graph

FLAG: Final = "--specialise"
GENERAL: Final = "any"
"""What the steps of the program for all sizes are told apart by."""
MOST: Final = 32
"""Fast paths of a program: each is compiled, and its code is in the library."""


@dataclass(frozen=True)
class Special:
    """The model for some sizes."""

    sizes: Mapping[str, int]
    frontend: Frontend

    @property
    def name(self) -> str:
        """`batch=1,seq=128`."""
        return sizes_text(self.sizes)


def combined(texts: Sequence[str]) -> tuple[dict[str, int], ...]:
    """Every combination of the sizes that texts such as `batch=1,8` list by name.

    Raises:
        DlcError: (USAGE) a text has another form, names a symbol again, or there are too many combinations.
    """
    choices: dict[str, list[int]] = {}
    for text in texts:
        name, middle, listed = text.partition("=")
        sizes = listed.split(",")
        if not middle or not name.strip() or not all(s.strip().isdecimal() and len(s) < 10 for s in sizes):
            raise _bad(f"{FLAG} {text} is not of the form NAME=N,N", f"for example {FLAG} batch=1,8")
        if name.strip() in choices:
            raise _bad(f"{FLAG} names {name.strip()} twice", "list its sizes in one flag, separated by commas")
        choices[name.strip()] = list(dict.fromkeys(map(int, sizes)))
    count = 1
    for sizes in choices.values():
        count *= len(sizes)
    if count > MOST:
        raise _bad(f"{FLAG} asks for {count} fast paths, of at most {MOST}", "name fewer sizes")
    return tuple(dict(zip(choices, each, strict=True)) for each in product(*choices.values())) if choices else ()


def check_pipeline(pipeline: ResolvedPipeline) -> None:
    """Raises DlcError (USAGE): what is built has no fast paths."""
    backend = pipeline.backend
    if pipeline.program_pass is not None:
        raise error(
            "conflict",
            f"{FLAG} and --train: a training program has one size",
            help="leave one of the two out",
            exit_code=ExitCode.USAGE,
        )
    if type(backend).emit_variants is Backend.emit_variants or backend.own_level() != "plan":
        raise error(
            "no-variants",
            f"{FLAG}: the backend {backend.name} builds programs of one size only",
            help="give the sizes with --dim, or build for another target, as --target c",
            exit_code=ExitCode.USAGE,
        )


def check_sizes(graph: Graph, special: Sequence[Special]) -> None:
    """Raises DlcError (USAGE): a size is none that the program is built for."""
    known = {s.name: s for i in graph.inputs for s in symbols(*i.type.shape)}
    for name, size in {(n, k): None for each in special for n, k in each.sizes.items()}:
        symbol = known.get(name)
        if symbol is None:
            help = did_you_mean(name, known, "open dimensions") if known else "the program is built for one size"
            raise _bad(f"{FLAG}: {name} is no dimension that is open", help)
        if not symbol.least <= size <= symbol.most or size % symbol.unit:
            raise _bad(f"{FLAG}: {name}={size} is not one of its sizes, {symbol.sizes}", "name one of these")


def _bad(message: str, help: str) -> DlcError:
    return error("bad-option", message, help=help, exit_code=ExitCode.USAGE)
