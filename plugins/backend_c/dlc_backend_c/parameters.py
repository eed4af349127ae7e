"""The function with a parameter for every tensor: inputs in order, then outputs that are not inputs, then the arena.

A tensor that is an input and an output of one name, which `Signature.aliases` pairs, is one parameter: it is read
before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.api.program import Signature
from dlc_backend_c.header import CPort
from dlc_backend_c.names import parameter

LIMIT = 127
"""Parameters that every compiler of C99 takes (5.2.4.1); a program with more has no such function."""


@dataclass(frozen=True)
class CParameter:
    """One parameter."""

    ident: str
    """Unique among all of them, no keyword, and no macro of the header."""
    port: CPort
    """Of an in/out tensor, its input."""
    input: int | None
    """Number of the input that it is."""
    output: int | None
    """Number of the output that it is."""

    @property
    def written(self) -> bool:
        """Whether a call may write to it."""
        return self.output is not None or self.port.consumed

    def declared(self, ident: str) -> str:
        """`const float *B`: a tensor that is only read is const."""
        return f"{'' if self.written else 'const '}{self.port.ctype} *{ident}"

    @property
    def text(self) -> str:
        """With its own name."""
        return self.declared(self.ident)

    @property
    def description(self) -> str:
        """What the header says of it."""
        if self.input is not None and self.output is not None:
            return f"input {self.input} and output {self.output}: {self.port.type}, read before it is written"
        after = ", overwritten after its last use" if self.port.consumed else ""
        return f"{self.port.direction} {self.port.index}: {self.port.type}{after}"


def c_parameters(
    signature: Signature, inputs: Sequence[CPort], outputs: Sequence[CPort], macro: str, taken: Sequence[str] = ()
) -> tuple[CParameter, ...]:
    """The parameters of a program's ports; none if there are more than `LIMIT` with one more for memory.

    Args:
        signature: What is in and out.
        inputs: Its inputs.
        outputs: Its outputs.
        macro: First part of the header's macros.
        taken: Names that no parameter gets.
    """
    both = {j: i for i, j in signature.aliases if signature.outputs[i].name == signature.inputs[j].name}
    ports = [(p, k, both.get(k)) for k, p in enumerate(inputs)]
    found: list[tuple[CPort, int | None, int | None]] = [*ports]
    found += [(p, None, k) for k, p in enumerate(outputs) if k not in both.values()]
    if len(found) >= LIMIT:
        return ()
    names: list[str] = []
    for port, _, _ in found:
        names.append(parameter(port.name, (*taken, *names), macro))
    return tuple(CParameter(name, *rest) for name, rest in zip(names, found, strict=True))


def prototype(
    name: str, parameters: Sequence[CParameter], before: Sequence[str] = (), after: Sequence[str] = ()
) -> str:
    """`int NAME(const float *B, float *A)`, on several lines if there are many; with parameters before and after."""
    words = [*before, *(p.text for p in parameters), *after]
    # How long the names are must not show in the lines: the header has the same tokens whatever the names.
    between = ", " if len(words) <= ON_A_LINE else ",\n    "
    return f"int {name}({'' if len(words) <= ON_A_LINE else f'{chr(10)}    '}{between.join(words)})"


ON_A_LINE = 4
"""Parameters of a function that is declared on one line."""
