"""The documentation's tables of instructions, files and costs, from the declarations that the code works with."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from dlc_backend_s2train.codes import NO_FLAGS, Flag, Need, Stage
from dlc_backend_s2train.container import record
from dlc_backend_s2train.container.layout import ENTRY, HEADER, SECTIONS, Section
from dlc_backend_s2train.cost.cycles import REGISTER_BEATS, REGISTERS, Assumptions, ppu_latency
from dlc_backend_s2train.cost.operand_traffic import KIND_OF, Kind
from dlc_backend_s2train.frames.layout import LAD_LIMIT, LANES
from dlc_backend_s2train.frames.sizes import BEAT, HEAD, LAD_HEAD, TRAILER, WINDOW
from dlc_backend_s2train.isa import words as v2
from dlc_backend_s2train.isa.access import BACKWARD_DEMANDS, DEMANDS, EXCLUSIONS
from dlc_backend_s2train.isa.instruction_set import INSTRUCTIONS, Form, Opcode, Time, Use, spelled
from dlc_backend_s2train.isa.words import Field, Layout
from dlc_backend_s2train.legalise.rules import RULES
from dlc_backend_s2train.program import Target
from dlc_backend_s2train.v1 import encoding as v1
from dlc_backend_s2train.v1.control_words import CONTROL, TRANSFER
from dlc_backend_s2train.v1.correspondence import SLOTS

_FLAGS: Final = {
    Flag.RELU: "max(y, 0)",
    Flag.MASK_WRITE: "writes y > 0 to `mask`",
    Flag.MASK_READ: "multiplies by the bits of `mask`",
    Flag.ADD: "adds `res`",
    Flag.ADD_SINGLE: "adds `res` times std / scale of `bn1` (of `aux` with `bn_backward_2`): it comes after that norm",
    Flag.BN_FORWARD: "(y - mean) / std * scale + shift with `bn0`",
    Flag.BN_BACKWARD: "`dst0` is the gradient times scale / std of `bn0`",
    Flag.BN_BACKWARD_2: "`dst1` is the gradient times scale / std of `bn1`",
    Flag.POOL_2: "windows of 2 x 2",
    Flag.POOL_4: "windows of 4 x 4",
    Flag.POINTER_WRITE: "writes each maximum's place to `ptr`",
    Flag.POINTER_READ: "puts each gradient at the place in `ptr`",
    Flag.DROPOUT: "multiplies by the bits of `aux`, which a forward writes, over the probability to keep",
    Flag.SOFTMAX_CE: "`dst0` is d loss / d logits for the labels in `aux`, `dst1` the loss; `loss` without: softmax",
    Flag.BN_TRAIN: "normalises by the batch's own mean and variance",
    Flag.PRUNE: "small gradients become 0 or the threshold, by chance",
}

_MOST_VALUES: Final = 8
"""Fields with more values are shown by their range."""


def instruction_tables() -> Mapping[str, str]:
    """Every table as Markdown, by a name for the place where it stands."""
    return {
        "forms": form_table(),
        "flags": flag_table(),
        "version-2-word": field_table(v2.WORD),
        "opcodes": opcode_table(),
        "version-1-header": field_table(v1.HEADER),
        "version-1-operands": operand_table(),
        "ppu-control": field_table(CONTROL),
        "transfer": field_table(TRANSFER),
        "compositions": composition_table(),
    }


def composition_table() -> str:
    """What ops are composed of, as the rules say it."""
    rows = [
        (f"`{op.text_name}`", inspect.cleandoc(rule.__doc__ or "").partition("\n\n")[0]) for op, rule in RULES.items()
    ]
    lines = ["| op | composition |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {' '.join(text.split())} |" for name, text in rows)])


def field_table(layout: Layout) -> str:
    """The fields of a word: where they stand, what their codes mean."""
    rows = [(_place(layout, field, at), f"`{field.name}`", _values(field), field.note) for field, at in layout.places]
    return _table(("byte [bits]" if layout.first == "low" else "bits", "field", "values", "meaning"), rows)


def opcode_table() -> str:
    """Codes of opcodes in words of version 2."""
    rows: list[tuple[str, ...]] = []
    for row in INSTRUCTIONS:
        stages = [stage for form in row.forms for stage in form.stages]
        rows.append((f"0x{row.opcode:02X}", f"`{spelled(row.opcode)}`", row.meaning, _codes(stages)))
    return _table(("code", "opcode", "meaning", "stages"), rows)


def flag_table() -> str:
    """Flags by bit: what they do, what they need and what they exclude."""
    rows = [_flag_row(bit, flag) for bit, flag in enumerate(Flag)]
    return _table(("bit", "flag", "meaning", "needs", "not with"), rows)


def form_table() -> str:
    """Which flags and operands an instruction of each opcode and stage may have."""
    rows: list[tuple[str, ...]] = []
    alike: dict[Form, list[Opcode]] = {}
    for row in INSTRUCTIONS:
        for form in row.forms:
            alike.setdefault(form, []).append(row.opcode)
    for form, opcodes in alike.items():
        stages = "any" if len(form.stages) == len(Stage) else _codes(form.stages)
        # Parts of the unit are declared once for all; some forms lack their flags.
        possible = (use for use in form.uses if not use.flags or use.flags & form.flags)
        operands = "<br>".join(_use(use) for use in possible) or "none"
        rows.append((_codes(opcodes), stages, _codes(form.flags) or "none", operands, _tables_of(form)))
    return _table(("opcode", "stage", "flags", "operands", "geometry, hyper-parameters"), rows)


def operand_table() -> str:
    """Operands of version 1 words in the order of their bits, each with the slot of an instruction that it is."""
    rows: list[tuple[str, ...]] = []
    for word in v1.WORDS:
        slots = SLOTS[word.stage]
        operands = [
            _operand(f"`{name}` = `{slots[name]}`", condition, values) for name, condition, values in v1.operands(word)
        ]
        fields = ", ".join(f"`{field.name}`" for field in v1.header_fields(word))
        most = v1.HEADER.width + v1.TENSOR_BITS * len(operands)
        rows.append((f"`{spelled(word.stage)}`", fields, ", ".join(operands), str(most)))
    return _table(("stage", "header fields", "operands", "most bits"), rows)


def _place(layout: Layout, field: Field, at: int) -> str:
    last = at + field.width - 1
    if layout.first == "high":
        return str(at) if last == at else f"{at}–{last}"
    if field.width % 8 == 0:
        return str(at // 8) if field.width == 8 else f"{at // 8}–{last // 8}"
    return f"{at // 8} [{last % 8}:{at % 8}]"


def _values(field: Field) -> str:
    """`0 = conv, 1 = linear`; reserved codes are those that are not there."""
    if field.values == (False, True):
        return "1 = on"
    named = [(code, value) for code, value in enumerate(field.values) if value is not None]
    if not named:
        return f"0 to {(1 << field.width) - 1}"
    if len(named) > _MOST_VALUES:
        return f"{len(named)} of {1 << field.width}"
    shown = (
        f"{code:0{field.width}b} = {spelled(value) if isinstance(value, Stage) else value}" for code, value in named
    )
    return ", ".join(shown)


def _flag_row(bit: int, flag: Flag) -> tuple[str, ...]:
    demands = [(demand, "") for demand in DEMANDS] + [(demand, " (backward)") for demand in BACKWARD_DEMANDS]
    needs = [f"{_codes(d.any_of, ' or ')}{stage}" for d, stage in demands if flag in d.flags]
    pairs = [pair[:2] for pair in EXCLUSIONS if flag in pair[:2]]
    others = [other for pair in pairs for other in pair if other is not flag]
    return str(bit), f"`{spelled(flag)}`", _FLAGS[flag], ", ".join(needs), _codes(others)


def _use(use: Use) -> str:
    """`src1` read with `bn_train`."""
    conditions = [f"`{spelled(bit)}`" for bits in (use.flags, use.splitting) for bit in bits]
    condition = f" with {(' and ' if use.together else ' or ').join(conditions)}" if conditions else ""
    return f"`{use.slot}` {use.way}{condition}{', optional' if use.optional else ''}"


def _operand(name: str, condition: str, values: Iterable[object]) -> str:
    """`bn_use` = `bn0` (bn 1 or 2)."""
    if not condition:
        return name
    held = " or ".join(str(value) for value in values if value is not True)
    return f"{name} (`{condition}`{f' {held}' if held else ''})"


def _tables_of(form: Form) -> str:
    """Which tables the instruction points into."""
    if form.function:
        return "none; the number of a host function"
    geometry = "none" if form.geometry is Need.NONE else f"geometry {form.geometry}"
    if form.hyper_always:
        return f"{geometry}; hyper-parameters required"
    return geometry + (f"; hyper-parameters with {_codes(form.hyper, ' or ')}" if form.hyper != NO_FLAGS else "")


def _codes(members: Iterable[Enum], joint: str = ", ") -> str:
    return joint.join(f"`{spelled(member)}`" for member in members)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def container_tables() -> Mapping[str, str]:
    """Every table as Markdown, by a name for the place where it stands: `header`, `entry`, `sections`, `section-…`."""
    return {
        "header": _fields(HEADER),
        "entry": _fields(ENTRY),
        "sections": _sections(),
        **{f"section-{s.fourcc.lower()}": _fields(s.record) for s in SECTIONS if s.record},
    }


def _fields(of: record.Record) -> str:
    rows = [(str(of.offsets[_name(f)]), _called(f), _type(f), f.meaning) for f in of.fields]
    return _table(("byte", "field", "type", "meaning"), rows)


def _sections() -> str:
    rows = [(f"`{s.fourcc}`", s.meaning, _content(s), _presence(s)) for s in SECTIONS]
    return _table(("section", "holds", "as", "where"), rows)


def _content(section: Section) -> str:
    """How a section's bytes are divided."""
    if section.record:
        names = ", then the records' names" if section.record.texts else ""
        data = ", then the bytes" if section.fourcc == "WGHT" else ""
        return f"at most {section.record.limit:,} records of {section.record.size} bytes{names}{data}"
    if section.word == 1:
        return "bytes" if section.limit == 1 else f"at most {section.limit:,} bytes"
    return f"at most {section.limit:,} words of {section.word} bytes"


def _presence(section: Section) -> str:
    must = "has to be understood" if section.must else "may be skipped"
    return f"in every file, {must}" if section.needed else f"optional, {must}"


def _name(field: record.Field) -> str:
    return field.name.removeprefix("text:")


def _called(field: record.Field) -> str:
    """The field's name; one of a name's size says so."""
    return f"{_name(field)} size" if field.name.startswith("text:") else field.name


def _type(field: record.Field) -> str:
    return field.type if field.count == 1 else f"{field.type} × {field.count}"


def cost_tables() -> Mapping[str, str]:
    """Every table as Markdown, by a name for the place where it stands."""
    return {"cost-constants": _constants(), "cost-opcodes": _times(), "cost-kinds": _kinds()}


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


def _times() -> str:
    """Where opcodes take time."""
    rows = [(_codes(row.opcode for row in INSTRUCTIONS if row.time is time), time.value) for time in Time]
    return _table(("opcodes", "take"), rows)


def _kinds() -> str:
    rows = [
        (kind.value.replace("_", " "), ", ".join(spelled(r).replace("_", " ") for r, k in KIND_OF.items() if k is kind))
        for kind in Kind
    ]
    return _table(("kind", "tensors of the roles"), rows)
