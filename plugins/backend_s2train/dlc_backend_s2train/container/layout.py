"""What a `.s2t` file consists of, declared once: writer, reader and documentation derive from these tables.

    header, 64 bytes · table of sections, 40 bytes each · sections, each at a multiple of 64 bytes, zeros between

All numbers are little-endian. A section of records is `count` records and then the text that they name: the names of
the records, UTF-8, one behind the other in the records' order, so that a record only says how long its own are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dlc_backend_s2train.codes import Arena, Element, Role
from dlc_backend_s2train.container.record import RESERVED, Field, Record

MAGIC: Final = b"S2TB"
MAJOR: Final = 1
"""Readers take files of this version only."""
MINOR: Final = 0
"""Readers take every one: newer ones add sections that may be skipped."""
ARCHITECTURE: Final = 1
"""S2Train."""
ALIGN: Final = 64
"""Bytes that every section's offset, and what holds weights, are multiples of."""
MUST_UNDERSTAND: Final = 1
"""Bit 0 of a section's flags: a reader that does not know the section refuses the file."""
FRAMES: Final = 1 << 28
"""Bytes of frames in a file."""
RANK: Final = 8
"""Dimensions of a tensor at most."""
WORD_1: Final = 16
"""Bytes of an instruction of version 1."""
WORD_2: Final = 32
"""The same of version 2."""

HEADER: Final = Record(
    (
        Field("magic", "char", "`S2TB`", 4),
        Field("major", "u16", "version; readers refuse another"),
        Field("minor", "u16", "version; readers take any"),
        Field("header_size", "u32", "64"),
        Field("flags", "u32", "0"),
        Field("architecture", "u32", "1: S2Train"),
        Field("cores", "u8", "cores of the machine"),
        Field("columns", "u8", "columns of a core"),
        Field("rows", "u8", "rows of processing elements in a column"),
        Field("lanes", "u8", "accumulators of a processing element"),
        Field("weight_bytes", "u32", "weight memory of a column"),
        Field("sections", "u32", "entries of the table"),
        Field("table_offset", "u64", "64"),
        Field("file_size", "u64", "bytes of the whole file"),
        Field("table_crc", "u64", "CRC-64/XZ of the table"),
        Field(RESERVED, "u32", "0"),
        Field("header_crc", "u32", "CRC-32C of the 60 bytes before"),
    ),
)
HEADER_CHECKED: Final = HEADER.size - 4
"""Bytes that the header's CRC is of."""

ENTRY: Final = Record(
    (
        Field("fourcc", "char", "name", 4),
        Field("version", "u16", "of the section: 3 of GEOM, 1 of the others"),
        Field("flags", "u16", "bit 0: must be understood; the others 0"),
        Field("offset", "u64", "in the file, a multiple of `alignment`"),
        Field("size", "u64", "bytes"),
        Field("alignment", "u32", "64"),
        Field("count", "u32", "records, words or, of bytes, 1"),
        Field("crc", "u64", "CRC-64/XZ of the section"),
    ),
    limit=64,
)

_IDS = 0xFFFF
"""Operands are 16 bits wide, and 0xFFFF is none."""
_NAMES = 1 << 24


def _spelled(member: Role | Arena) -> str:
    return member.name.lower().replace("_", " ")


TENS: Final = Record(
    (
        Field("text:name", "u32", "bytes of the name"),
        Field("storage", "u32", "number in STOR"),
        Field("offset", "u64", "bytes from the storage's begin"),
        Field("element", "u8", ", ".join(f"{e.code} {e.name.lower()}" for e in Element)),
        Field("role", "u8", ", ".join(f"{r.value} {_spelled(r)}" for r in Role)),
        Field("rank", "u8", "dimensions that count"),
        Field(RESERVED, "u8", "0", 5),
        Field("shape", "u32", "row-major; 0 for dimensions above the rank", RANK),
    ),
    limit=_IDS,
    texts_limit=_NAMES,
)
STOR: Final = Record(
    (
        Field("address", "u64", "bytes"),
        Field("size", "u64", "bytes"),
        Field("begin", "u32", "first instruction that uses it"),
        Field("end", "u32", "one past the last"),
        Field("arena", "u8", ", ".join(f"{a.value} {_spelled(a)}" for a in Arena)),
        Field(RESERVED, "u8", "0", 7),
    ),
    limit=_IDS,
)
GEOM: Final = Record(
    (
        Field("n", "u32", "samples"),
        Field("ci", "u32", "input channels or features"),
        Field("co", "u32", "output channels or features"),
        Field("hi", "u32"),
        Field("wi", "u32"),
        Field("ho", "u32", "of the convolution, before the pool of the post-processing unit"),
        Field("wo", "u32"),
        Field("kh", "u32"),
        Field("kw", "u32"),
        Field("stride", "u32", "down, right", 2),
        Field("pads", "i32", "top, left, bottom, right; negative: left out", 4),
        Field("dilation", "u32", "down, right", 2),
        Field("groups", "u32"),
        Field("pool", "u32", "window, stride, padding; zeros: none", 3),
        Field("channels", "u32", "first input channel and one past the last; zeros: all", 2),
        Field("samples", "u32", "the same of samples", 2),
    ),
    limit=_IDS,
)
HYPR: Final = Record(
    (
        Field("rate", "f64", "learning rate"),
        Field("momentum", "f64"),
        Field("decay", "f64", "weight decay"),
        Field("scale", "f64", "loss scale"),
        Field("threshold", "f64", "of stochastic pruning; 0: none"),
        Field("keep", "f64", "probability that dropout keeps an element"),
        Field("epsilon", "f64", "of a norm in training mode"),
        Field("seed", "u64", "of the random bits"),
        Field("nesterov", "u8", "1: Nesterov's momentum"),
        Field(RESERVED, "u8", "0", 3),
        Field("growth", "u32", "runs without overflow after which the host doubles the loss scale; 0: it is fixed"),
    ),
    limit=_IDS,
)
HOST: Final = Record(
    (Field("text:text", "u32", "bytes of the function's text"),),
    limit=4096,
    texts_limit=1 << 20,
)
HARG: Final = Record(
    (
        Field("function", "u32", "number in HOST; ascending"),
        Field("kind", "u32", "0 it reads, 1 it writes; ascending within a function"),
        Field("tensor", "u32", "number in TENS"),
    ),
    limit=_IDS,
)
ENTR: Final = Record(
    (
        Field("text:name", "u32", "bytes of the name: `step`, `predict`, `evaluate`"),
        Field("begin", "u32", "first instruction"),
        Field("end", "u32", "one past the last"),
    ),
    limit=64,
    texts_limit=1 << 16,
)
BIND: Final = Record(
    (
        Field("text:name", "u32", "bytes of the name in the model"),
        Field("entry", "u32", "number in ENTR; ascending"),
        Field("kind", "u32", "0 input, 1 label, 2 output; ascending within an entry"),
        Field("tensor", "u32", "number in TENS"),
    ),
    limit=_IDS,
    texts_limit=_NAMES,
)
WGHT: Final = Record(
    (
        Field("storage", "u32", "number in STOR; ascending"),
        Field(RESERVED, "u32", "0"),
        Field("offset", "u64", "in the section, 64-byte aligned, in order without gaps but the alignment's"),
        Field("size", "u64", "bytes, those of the storage"),
    ),
    limit=_IDS,
)
META: Final = Record(
    (
        Field("text:key", "u32", "bytes of the key"),
        Field("text:value", "u32", "bytes of its value"),
    ),
    limit=4096,
    texts_limit=_NAMES,
)


NUM1: Final = Record(
    (
        Field("number", "u32", "number of a tensor in words of INS1, below 512"),
        Field("tensor", "u32", "number in TENS"),
        Field("begin", "u32", "first instruction (of INS2) at which the number stands for the tensor"),
        Field("end", "u32", "one past the last"),
    ),
    limit=_IDS,
)


REGS: Final = Record(
    (
        Field("csr", "u32", "of every processing element"),
        Field("norm_config", "u32", "bits 0 to 20 of the control word"),
        Field("pool_config", "u32", "bits 21 to 49"),
        Field("resets", "u16", "a bit for each unit that is reset before"),
        Field("norms", "u16", "bits 0 to 2: mean, 1/std #1, 1/std #2 are loaded"),
    ),
    limit=1 << 18,
)


@dataclass(frozen=True)
class Section:
    """A kind of section."""

    fourcc: str
    meaning: str
    record: Record | None = None
    """None: bytes or words."""
    word: int = 1
    """Bytes of one word, where the section holds words; 1: plain bytes, `count` 1."""
    limit: int = 1
    """Words at most; of plain bytes, bytes, where there is a limit."""
    needed: bool = True
    """Every file has it."""
    must: bool = True
    """Readers have to understand it."""
    version: int = 1
    """Readers refuse others."""


SECTIONS: Final = (
    Section("TENS", "tensors", TENS),
    Section("STOR", "storages", STOR),
    Section("GEOM", "geometries", GEOM, version=3),
    Section("HYPR", "hyper-parameters", HYPR),
    Section("INS1", "words of version 1, for the instructions that it has", None, WORD_1, 1 << 18, needed=False),
    Section("NUM1", "what numbers of tensors in INS1 stand for", NUM1, needed=False),
    Section("INS2", "instructions, words of version 2", None, WORD_2, 1 << 18),
    Section("ENTR", "entries: functions of the program", ENTR),
    Section("BIND", "what the host gives to entries and gets from them", BIND),
    Section("FRAM", "the link stream, as far as it is known before a run", limit=FRAMES, needed=False),
    Section("WGHT", "what storages hold at first: records, then the bytes", WGHT),
    Section("META", "provenance", META),
    Section("HOST", "functions of the host, as text", HOST, needed=False),
    Section("HARG", "tensors that host functions read and write", HARG, needed=False),
    Section("REGS", "registers of the array, for each instruction", REGS, needed=False),
    Section("PERF", "figures of traffic and cycles; readers may skip it", needed=False, must=False),
)
SECTION_OF: Final = {s.fourcc: s for s in SECTIONS}
KINDS: Final = ("inputs", "labels", "outputs")
"""Fields of an entry by `BIND.kind`."""

SIDES: Final = ("reads", "writes")
"""Fields of a host function by `HARG.kind`."""


def aligned(at: int) -> int:
    """`at` or the next multiple of 64."""
    return -(-at // ALIGN) * ALIGN
