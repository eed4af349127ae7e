"""Tensors of a program by their names, which several may share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlc_backend_s2train.isa.access import operands_of
from dlc_backend_s2train.program import Program

if TYPE_CHECKING:
    from dlc.base.diagnostics import DlcError

_LOOKED_AT = 1000
"""Names that a wrong one is compared with, and tensors that are listed: a program may have 65,535."""


def tensor_called(program: Program, name: str, entry: str = "") -> int:
    """The number of the one tensor of that name, in `entry` if that is given.

    Raises:
        DlcError: "unknown-entry", "unknown-tensor"; "ambiguous-tensor" with all that have the name.
    """
    if entry and entry not in (e.name for e in program.entries):
        raise _no_such("entry", entry, [e.name for e in program.entries])
    users = _users(program)
    called = [n for n, tensor in enumerate(program.tensors) if tensor.name == name]
    found = [n for n in called if not entry or entry in users.get(n, ())]
    if not called:
        raise _no_such("tensor", name, [tensor.name for tensor in program.tensors])
    if len(found) == 1:
        return found[0]
    from dlc.base.diagnostics import error, quote  # only errors need it

    message = f"{len(found)} tensors of {f'entry {quote(entry)}' if entry else 'the program'} are called {quote(name)}"
    help = "name the entry, or give a number" if not entry else "give a number"
    notes = tuple(_described(program, n, users) for n in called[:_LOOKED_AT])
    raise error("ambiguous-tensor" if found else "unknown-tensor", message, notes=notes, help=help)


def _users(program: Program) -> dict[int, list[str]]:
    """Tensor → names of the entries that have to do with it."""
    found: dict[int, list[str]] = {}
    for entry in program.entries:
        bound = [n for _, n in (*entry.inputs, *entry.labels, *entry.outputs)]
        for i in program.instructions[entry.begin : entry.end]:
            bound += [tensor for _, tensor in operands_of(program, i).values()]
        for number in dict.fromkeys(bound):
            found.setdefault(number, []).append(entry.name)
    return found


def _described(program: Program, number: int, users: dict[int, list[str]]) -> str:
    tensor = program.tensors[number]
    shape = ", ".join(map(str, tensor.shape))
    where = f"storage {tensor.storage}" + (f" at {tensor.offset:,}" if tensor.offset else "")
    of = ", ".join(users.get(number, ())) or "no entry"
    return f"%{number}: {tensor.element.name.lower()}[{shape}], {where}, of {of}"


def _no_such(what: str, name: str, known: list[str]) -> DlcError:
    from dlc.base.diagnostics import error, nearest, quote  # only errors need it

    close = nearest(name, sorted(set(known))[:_LOOKED_AT])
    help = f"did you mean {close}?" if close else ""
    return error(f"unknown-{what}", f"the program has no {what} {quote(name)}", help=help)
