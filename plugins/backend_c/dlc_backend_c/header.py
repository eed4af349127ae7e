"""Text around the code, from templates: the header, the assembler unit of the weights, CMake and pkg-config files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dlc import Port
from dlc.base.allowed import Allowed
from dlc.base.extents import Extent, capacity
from dlc.base.polynomials import Symbol
from dlc.base.types import DTYPES, DType, bool_, i64
from dlc_backend_c.names import c_comment, c_string
from dlc_backend_c.spelling import STORAGE, literal

_CTYPES: Mapping[str, str] = {t.name: "uint8_t" if t is bool_ else STORAGE[t] for t in DTYPES.values()}
"""Types in the interface. Narrow types have none in C99: their bits, in the lowest of a byte if there are less than 8;
booleans are bytes that hold 0 or 1."""


def c_type(dtype: DType) -> str:
    """The type of an element in the interface."""
    return _CTYPES[dtype.name]


@dataclass(frozen=True)
class CPort:
    """One input or output as the header tells it."""

    direction: str
    """input | output."""
    index: int
    name: str
    """Name in the model, unescaped."""
    type: str
    ctype: str
    dims: tuple[int, ...]
    size: int
    """Elements."""
    bytes: int
    align: int
    """Bytes that the buffer's address is a multiple of."""
    allowed: Allowed | None = None
    """What its integers may be; None: anything."""
    labels: tuple[str, ...] = ()
    """Texts that its numbers or the entries along its last dimension stand for."""
    found: tuple[int, int] | None = None
    """Of an output that holds a size: the smallest and largest with which a call has a result."""
    elements: Extent = 0
    """Of a call: a formula where a dimension is open."""
    symbol: Symbol | None = None
    """The size that it holds."""
    consumed: bool = False
    """Whether a call writes over it after its last use."""

    @property
    def macro(self) -> str:
        """The middle of the port's macros: INPUT_0."""
        return f"{self.direction.upper()}_{self.index}"

    @property
    def range(self) -> tuple[str, str] | None:
        """Smallest and largest element as constants in C, where all that lies between is allowed everywhere."""
        whole = self.allowed.whole if self.allowed else None
        match whole.intervals if whole else ():
            case ((low, high),):
                return literal(low, i64), literal(high, i64)
            case _:
                return None


def c_ports(inputs: Sequence[Port], outputs: Sequence[Port]) -> tuple[tuple[CPort, ...], tuple[CPort, ...]]:
    """Both directions."""

    def port(direction: str, k: int, p: Port) -> CPort:
        of = p.type
        ctype = c_type(of.dtype)
        sizes = of.capacity, of.nbytes, of.dtype.itemsize
        s = of.symbol if direction == "output" else None
        found = None if s is None else (s.least, s.most)
        dims = tuple(map(capacity, of.shape))
        return CPort(direction, k, p.name, of.text, ctype, dims, *sizes, p.allowed, p.labels, found, of.size, of.symbol)

    return (
        tuple(port("input", k, p) for k, p in enumerate(inputs)),
        tuple(port("output", k, p) for k, p in enumerate(outputs)),
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # None of the sinks is HTML; each has its own escaper, applied by name where text of the model appears.
        autoescape=False,
    )
    found.filters.update(c_comment=c_comment, c_string=c_string, cmake=_cmake)
    return found


def fill(template: str, values: Mapping[str, object]) -> bytes:
    """A template with values, as ASCII; an unknown name in it is an error."""
    return _environment().get_template(template).render(values).encode("ascii")


def _cmake(text: str) -> str:
    """A quoted argument inside a generator expression."""
    return re.sub(r'([\\"$;#@^>, ])', lambda m: f"\\{m[1]}" if m[1] in '\\"$;#@^ ' else f"$<{_GENERATOR[m[1]]}>", text)


_GENERATOR = {">": "ANGLE-R", ",": "COMMA"}
