"""Values whose offset is given, `plan-memory{fixed=NAME:OFFSET}`: which buffers that are, and why it cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dlc.api.plan import Plan, results_of
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, escape
from dlc.graph.op import Op
from dlc.graph.structure import Input, Item
from dlc.passes.memory_wanted import Wanted
from dlc.placement import Buffer
from dlc.placement.buffers import aligned

FACT: Final = "fixed "
"""What facts of a plan begin with that tell a fixed offset; the name follows."""


def with_fixed(
    plan: Plan, wanted: Wanted, fixed: Sequence[tuple[str, int]], align: int, limit: int | None
) -> tuple[Wanted, Mapping[str, int | str]]:
    """(what is wanted, with the offsets that are given; facts of the plan that tell these).

    A name is that of a node of the model, whose result is meant, or of an input that is copied first. Of a node that
    became several operations, it is the result of the last.

    Raises:
        DlcError: (USAGE) there is no such value, or it has no place of its own; an offset is no multiple of the
            alignment; two offsets are given for one place, or one for two that are needed at the same time; the sizes
            of inputs are open. (LIMIT) A value would end beyond the limit.
    """
    if not fixed:
        return wanted, {}
    if open_ := [i.name for i in plan.graph.inputs if i.type.is_open]:
        raise _wrong(f"offsets depend on the sizes of a call: {', '.join(open_)}", "fix them with --dim NAME=N")
    names: dict[int, str] = {}
    buffers = list(wanted.lives.buffers)
    for name, offset in fixed:
        number = _buffer(plan, wanted, name)
        own = buffers[number]
        if offset % align:
            raise _wrong(
                f"{escape(name)}: {offset} is no multiple of {align}", f"use {offset // align * align} or change align"
            )
        if own.fixed is not None and own.fixed != offset:
            raise _wrong(
                f"{names[number]} at {own.fixed} and {escape(name)} at {offset} have one place: they are one "
                "operation, or one follows the other there",
                "give one of them; with in-place=no, results of operations have places of their own",
            )
        if limit is not None and offset + own.size > limit:
            raise error(
                "memory-limit",
                f"{escape(name)} has {own.size} bytes, fixed at {offset}: it ends at {offset + own.size}, beyond the "
                f"limit of {limit}",
                help="use a lower offset, or a larger limit",
                exit_code=ExitCode.LIMIT,
            )
        buffers[number], names[number] = replace(own, fixed=offset), escape(name)
    _check_apart([buffers[n] for n in names], names, align)
    lives = replace(wanted.lives, buffers=tuple(buffers))
    return replace(wanted, lives=lives), {f"{FACT}{name}": offset for name, offset in fixed}


def named_value(plan: Plan, name: str) -> Op | None:
    """What the last step gives that came from a node of this name, or the input or output that is called so."""
    if found := next((s for s in reversed(plan.steps) if name in plan.graph.origin(s)), None):
        return found
    ends = [*((i.name, i) for i in plan.graph.inputs), *zip(plan.graph.names, plan.graph.outputs, strict=True)]
    return next((op for other, op in ends if other == name), None)


def _buffer(plan: Plan, wanted: Wanted, name: str) -> int:
    """The number of the buffer in which a value lies."""
    op = named_value(plan, name)
    if op is None:
        known = [n for step in plan.steps for n in plan.graph.origin(step)]
        raise _wrong(f"the program has no value {escape(name)}", did_you_mean(name, known, "values"))
    values = results_of(op) if op.runs and not isinstance(op, Item) else (op,)
    placed = {wanted.values[v.digest][0] for v in values if v.digest in wanted.values}
    if len(placed) == 1:
        return placed.pop()
    if placed:
        raise _wrong(f"{escape(name)} gives {len(placed)} values", "only what gives one value can be named")
    kind = "an input" if isinstance(op, Input) else "an output"
    raise _wrong(f"{escape(name)} is {kind} of the program, which lies where the caller has it", "name another value")


def _check_apart(fixed: Sequence[Buffer], names: Mapping[int, str], align: int) -> None:
    """Raise DlcError (USAGE) where two of them share bytes and are needed at the same time."""
    for k, a in enumerate(fixed):
        for b in fixed[:k]:
            assert a.fixed is not None and b.fixed is not None
            start = max(a.fixed, b.fixed)
            end = min(a.fixed + aligned(a.size, align), b.fixed + aligned(b.size, align))
            step = max(a.birth, b.birth)
            if start < end and step < min(a.death, b.death):
                raise _wrong(
                    f"{names[b.id]} and {names[a.id]} share the bytes [{start}, {end}), and step {step} needs both",
                    "move one of them",
                )


def _wrong(what: str, help: str) -> DlcError:
    return error("fixed-offset", f"plan-memory: option fixed: {what}", help=help, exit_code=ExitCode.USAGE)
