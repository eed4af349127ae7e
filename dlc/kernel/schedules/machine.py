"""What a schedule needs to know of a machine: numbers only, no names of processors or languages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Sizes that decide tiles and blocks."""

    vector_bytes: int = 0
    """Bytes of a vector register; 0: no vectors, scalar loops only."""
    registers: int = 16
    """Number of vector registers; without vectors, of those that hold floats."""
    l1: int = 32 << 10
    """Bytes of first-level data cache."""
    l2: int = 512 << 10
    """Bytes of second-level cache per core."""
    ordered: bool = False
    """Whether sums keep the order that their nests tell: axes as they stand, each term added to what is stored."""
    l2_rate: float = 32.0
    """Bytes that a core reads from its second-level cache in a cycle."""
    memory_rate: float = 6.0
    """Bytes that a core reads from beyond in a cycle."""
    operations: float = 2.0
    """Arithmetic operations of vectors, or of scalars, that a core starts in a cycle."""
    loads: float = 2.0
    """Vectors that it loads in a cycle; it stores one."""
    latency: float = 4.0
    """Cycles from an operand of a sum to its result."""
    threads: int = 1
    """Threads that share the iterations of loops, at most."""
    cores: int = 0
    """Processors that these run on; 0: as many as threads."""
    general: int = 0
    """Registers that hold sums of integers and their operands, on machines without vectors; 0: as many as floats."""
    words: bool = False
    """Whether there is an instruction for dot products of four bytes in these registers."""
    stack: int = 64 << 10
    """Bytes that the buffers of a function may take on its stack, together."""
    past: int = 0
    """Bytes of a result from which on it is stored past the caches; 0: the machine has no such stores."""

    pairs: int = 0
    """Operations that add dot products of two bf16 to a vector of sums, rounding as it may; 0: that is not allowed."""

    reciprocals: bool = False
    """Whether what is divided by one number may be multiplied by its reciprocal, which rounds twice."""

    digits: bool = False
    """Whether factors may be taken apart into digits of bytes, of which vectors have dot products."""

    @property
    def parallelism(self) -> int:
        """Threads that work at the same time: parts that loops are cut into."""
        return min(self.threads, self.cores or self.threads)

    def lanes(self, itemsize: int) -> int:
        """Elements of a vector, at least 1."""
        return max(1, self.vector_bytes // itemsize)


LEAST_LANES = 4
"""Elements of a vector at least."""
PANEL = 16
"""Columns of a panel: a line of cache in single precision, and whole vectors whatever their size."""
WIDE_PANEL = 2 * PANEL
"""The same of packed constants that one row is multiplied by: of what the row becomes less is read for each of them."""
SCALAR_PANEL = 4
"""The same on machines without vectors: columns of a tile of scalars."""
WORDS_PANEL = 2
"""The same where such a machine multiplies bytes by words: two rows and two columns are all that its registers hold."""
WORD_BITS = 32
"""Bits of a word of packed elements, of which each is a lane."""
STACK_BYTES = 8 << 10
"""Buffers up to this size lie on the stack, as long as all of a function fit what the machine allows."""
