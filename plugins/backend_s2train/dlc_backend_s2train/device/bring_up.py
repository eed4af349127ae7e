"""`dlc run` of a `.s2t` file with an entry of the user's choice, a last instruction, a trace, a dump, a device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

from dlc.api.device_run import DeviceRun
from dlc.api.program import Port, Signature
from dlc.api.source import Source
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error
from dlc.base.types import Array
from dlc.files.writing import write_whole
from dlc.runtime.array_program import ArrayProgram
from dlc_backend_s2train.artifact import signature_of
from dlc_backend_s2train.container.files import check
from dlc_backend_s2train.device.compare import compared
from dlc_backend_s2train.device.dump import Dump
from dlc_backend_s2train.device.trace import trace
from dlc_backend_s2train.isa.access import operands_of
from dlc_backend_s2train.program import Entry, Program
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Mode


class Watcher(Protocol):
    """Who looks at a run."""

    def before(self, number: int) -> object:
        """Instruction `number` is about to be executed."""
        ...

    def after(self, number: int) -> object:
        """It was executed."""
        ...

    def finish(self) -> object:
        """The run is over."""
        ...


def bring_up(source: Source, mode: Mode, limit: int, wanted: DeviceRun) -> ArrayProgram:
    """An entry as a function of arrays that does what is wanted on the way; without a choice the first entry.

    What a dump holds and what a device is compared with is added in the order of the device.

    Raises:
        DlcError: as `simulator.loading.load_file`; (USAGE) no such entry, an instruction outside of it.
    """
    found = check(source, limit)
    program = found.program
    entry = _entry(program, wanted.entry)
    end = _end(entry, wanted.until)
    machine = Machine(found, "bit-true" if wanted.dump or wanted.device else mode)
    try:
        signature = signature_of(program, entry)
    except ValueError as problem:
        raise error("bad-s2t", f"{source.name} cannot run: {problem}") from None
    outputs = entry.outputs if wanted.until is None else _results(program, end - 1)
    partial = Entry(entry.name, entry.begin, end, entry.inputs, entry.labels, outputs)
    ports = signature.outputs if wanted.until is None else _ports(program, partial)
    if wanted.trace:
        write_whole(wanted.trace, trace(program, source.name, entry.begin, end))

    def run(*arrays: Array) -> Sequence[Array]:
        given = {port.name: array for port, array in zip(signature.inputs, arrays, strict=True)}
        number = machine.begin(entry.name, given)
        with ExitStack() as stack:
            watchers: list[Watcher] = []
            if wanted.dump:
                watchers.append(Dump(wanted.dump, machine, source.view(), entry.name, number))
            if wanted.device:
                watchers.append(stack.enter_context(compared(wanted.device, machine, number, wanted.tell)))
            for k in range(entry.begin, end):
                for watcher in watchers:
                    watcher.before(k)
                machine.execute(k, number)
                for watcher in watchers:
                    watcher.after(k)
            for watcher in watchers:
                watcher.finish()
        return [machine.read(tensor) for _, tensor in partial.outputs]

    return ArrayProgram(Signature(signature.inputs, ports), run)


def _entry(program: Program, name: str) -> Entry:
    entries = {entry.name: entry for entry in program.entries}
    if not entries:
        raise error("bad-s2t", "the program has no entry that could run")
    if not name:
        return program.entries[0]
    if name not in entries:
        message, help = f"--entry {name}: the program has no such entry", did_you_mean(name, entries, "entries")
        raise error("unknown-entry", message, help=help, exit_code=ExitCode.USAGE)
    return entries[name]


def _end(entry: Entry, until: int | None) -> int:
    if until is None:
        return entry.end
    if not entry.begin <= until < entry.end:
        raise _outside(entry, until)
    return until + 1


def _outside(entry: Entry, until: int) -> DlcError:
    return error(
        "bad-option",
        f"--until {until}: entry {entry.name} has the instructions {entry.begin} to {entry.end - 1}",
        help="give one of these numbers, as dlc show prints them",
        exit_code=ExitCode.USAGE,
    )


def _results(program: Program, number: int) -> tuple[tuple[str, int], ...]:
    """(operand, tensor) of what an instruction writes."""
    operands = operands_of(program, program.instructions[number])
    return tuple((slot, tensor) for slot, (way, tensor) in operands.items() if way.writes)


def _ports(program: Program, entry: Entry) -> tuple[Port, ...]:
    return signature_of(program, Entry(entry.name, entry.begin, entry.end, outputs=entry.outputs)).outputs
