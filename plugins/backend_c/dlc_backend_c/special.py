"""Fast paths: functions for single sizes that the function for all sizes calls, once the sizes of a call are checked.

if (*(const int64_t *)inputs[1] == 1) {
    return m_v0(inputs, outputs, a, w);
}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlc import ExitCode
from dlc.api.plan import Plan
from dlc.api.variants import Variant
from dlc.base.diagnostics import error
from dlc_backend_c.arena import Arena, arena_of
from dlc_backend_c.body import Body, Functions
from dlc_backend_c.header import CPort, c_ports


@dataclass(frozen=True)
class Special:
    """One fast path."""

    name: str
    """Of its function."""
    sizes: Mapping[int, int]
    """Number of the input of the program that holds a size → what that is here."""
    inputs: tuple[int, ...]
    """For each input of the variant, the number of that of the program."""
    body: Body
    outputs: tuple[CPort, ...]
    """Sizes that a call finds among them, by their numbers in the program."""
    arena: Arena | None

    @property
    def condition(self) -> str:
        """Whether a call has its sizes."""
        return " && ".join(f"*(const int64_t *)inputs[{k}] == {size}" for k, size in self.sizes.items())

    def needs(self, names: Mapping[int, str]) -> str:
        """Bytes that a call needs; `names` are those of sizes by the number of their input."""
        if self.arena is None:
            return f"{self.body.arena_bytes}u"
        sizes = (names[self.inputs[k]] for k in self.arena.inputs.values())
        return f"{self.name}_places({', '.join(sizes)}, o)"


def special_of(
    general: Plan, variant: Variant, functions: Functions, offsets: Mapping[str, int], prefix: str, align: int
) -> Special:
    """The fast path of a variant; its arena is aligned to so many bytes.

    Raises:
        DlcError: (USAGE, `no-variants`) its inputs and outputs are not those of the program.
    """
    signature, own = general.signature, variant.plan.signature
    given = {p.name: k for k, p in enumerate(signature.inputs)}
    made = {p.name: k for k, p in enumerate(signature.outputs)}
    same = all(p.name in given for p in own.inputs) and [p.name for p in own.outputs] == list(made)
    if not same or any(n not in given for n in variant.sizes):
        raise error(
            "no-variants",
            f"the program of {variant.title} has other inputs and outputs than the one of all sizes",
            help="leave these sizes out of --specialise",
            exit_code=ExitCode.USAGE,
        )
    inputs = tuple(given[p.name] for p in own.inputs)
    arena = arena_of(variant.plan, functions, align)
    body = Body(
        variant.plan,
        functions,
        offsets,
        [f"inputs[{k}]" for k in inputs],
        [f"outputs[{k}]" for k in range(len(own.outputs))],
        prefix,
        None if arena is None else arena.places,
    )
    sizes = {given[n]: k for n, k in variant.sizes.items()}
    return Special(prefix, sizes, inputs, body, c_ports(own.inputs, own.outputs)[1], arena)
