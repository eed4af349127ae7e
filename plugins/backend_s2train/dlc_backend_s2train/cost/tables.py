"""The documentation's tables of the cost model, from what the model counts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_backend_s2train.codes import Opcode
from dlc_backend_s2train.cost.counts import KIND_OF, Kind
from dlc_backend_s2train.cost.cycles import REGISTER_BEATS, REGISTERS, Assumptions, ppu_latency
from dlc_backend_s2train.cost.estimate import POSTED
from dlc_backend_s2train.cost.traffic import ARRAY, UNMOVED
from dlc_backend_s2train.frames.layout import LAD_LIMIT, LANES
from dlc_backend_s2train.frames.sizes import BEAT, HEAD, LAD_HEAD, TRAILER, WINDOW
from dlc_backend_s2train.isa.forms import spelled
from dlc_backend_s2train.program import Target


def tables() -> Mapping[str, str]:
    """Every table as Markdown, by a name for the place where it stands."""
    return {"cost-constants": _constants(), "cost-opcodes": _opcodes(), "cost-kinds": _kinds()}


def _constants() -> str:
    target, chosen = Target(), Assumptions()
    rows = [
        ("a beat of the link, one a cycle and direction", f"{BEAT} bytes"),
        ("a frame besides its LAD rows", f"{HEAD} + {TRAILER} bytes"),
        ("a LAD row besides its data", f"{LAD_HEAD} bytes"),
        ("elements of a LAD at most", f"{LAD_LIMIT:,}"),
        ("feature memory of a unit's frame at most", f"{LANES} x {WINDOW:,} bytes"),
        ("weight memory of a column", f"{target.weight_bytes:,} bytes"),
        ("setting up a column", f"{REGISTERS} registers of {REGISTER_BEATS} cycles"),
        ("a tile's way through the PPU", f"{ppu_latency(target)} cycles"),
        ("a sum that leaves the array", f"{chosen.partial_bytes} bytes"),
        ("part of the elements that are not zero", f"{max(chosen.density):g}"),
        ("buffers", "double" if chosen.overlapped else "single"),
    ]
    return _table(("what", "is taken as"), rows)


def _opcodes() -> str:
    """Where opcodes take time."""
    rows: list[tuple[str, ...]] = []
    for names, where in (
        (ARRAY, "frames and other operands over the link, the array, the PPU's latency"),
        (POSTED, "operands over the link, the PPU alone"),
        (UNMOVED, "nothing: what they move counts with the instructions that use it"),
    ):
        rows.append((_codes(names), where))
    others = [o for o in Opcode if o not in (*ARRAY, *POSTED, *UNMOVED)]
    rows.append((_codes(others), "operands over the link, if there are any"))
    return _table(("opcodes", "take"), rows)


def _kinds() -> str:
    rows = [
        (kind.value.replace("_", " "), ", ".join(spelled(r).replace("_", " ") for r, k in KIND_OF.items() if k is kind))
        for kind in Kind
    ]
    return _table(("kind", "tensors of the roles"), rows)


def _codes(opcodes: Sequence[Opcode]) -> str:
    return ", ".join(f"`{spelled(opcode)}`" for opcode in opcodes)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)) + "\n"
