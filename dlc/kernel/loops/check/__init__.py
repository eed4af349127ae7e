"""Checks loops against the kernel that they were made of. It shares no code with schedules.

A program is run on random operands in an arithmetic in which mistakes do not cancel (`residues`), and compared with the
kernel's own definition in the same arithmetic (`reference`), where sums have no order and no rounding. What is found:

* loops that are no program: names, scopes, types, lanes (`verify`);
* an access outside of a tensor, a read of an element of a buffer or result that nobody wrote before, a variable without
  a value, an element of a result that is never written: for every iteration of every loop, at the sizes that are tried;
* a result that is not the kernel's, since a term of a sum is missing, doubled or another, an operand is displaced,
  stores overwrite each other, statements are in the wrong order: an element that is wrong as a formula over operands is
  found with a probability of about 1 - degree/2^26, and most mistakes make many elements wrong. A term that is missing
  from a maximum shows where it is the largest only, and a number that is compared where it decides, so there is a run
  in which all of them show (`terms`). What conditions choose, and maxima of integers, take several runs (`draws`): of
  a long one of integers a term may still be missed;
* a loop marked parallel with iterations that touch what another one writes, or share a variable, or need what another
  iteration left in a buffer of their own: for every pair of iterations;
* a buffer that gets a value that is not below the number it is said to be.

What is not looked at: rounding, so conversions between floating-point types do nothing; NaN, but for what `isnan` asks;
overflow of floating point; prefetches, but for their places. Where an infinity, as of a maximum of nothing, reaches an
element of the loops or the kernel alone, it is found. Functions such as exp are random ones, so equal arguments are
needed for equal values: loops that rewrite exp(a+b) as exp(a)*exp(b) would be refused. So would loops that take a term
of a maximum twice.

Programs that compute more than `MOST` values in a loop are run in part (`run`). For them the first two statements are
checked everywhere, but for reads of buffers in iterations that are left out: they need a write before them in any of
these. Values are compared where they were computed: in the first, some middle and the last iterations of each long loop
over elements, with whole sums; and where the kernel's own definition takes more than `MOST_POINTS`, in some of these.
Kernels with open sizes are checked at the largest and the least sizes, and at two between; where nobody limits one, at
some of the least. Those that compare elements of one tensor are run once at the largest, and at four between,
which are rather small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dlc.base.extents import value
from dlc.base.types import Array
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check.accesses import path_to, store_at
from dlc.kernel.loops.check.modular import differ
from dlc.kernel.loops.check.operands import draws, operands, room, runs_of_terms, sizes_to_check
from dlc.kernel.loops.check.order import Order, literals_of
from dlc.kernel.loops.check.reference import reference
from dlc.kernel.loops.check.residues import Field, Unknowable
from dlc.kernel.loops.check.run import CheckedMachine
from dlc.kernel.loops.check.sampling import shared_variables
from dlc.kernel.loops.check.terms import Terms, sorts
from dlc.kernel.loops.memory import LoopFault
from dlc.kernel.loops.print import print_head, sizes_of
from dlc.kernel.loops.program import For, LoopProgram, Stmt, walk_stmts
from dlc.kernel.loops.verify import verify_loops
from dlc.kernel.nest import Param

MOST: Final = 1 << 21
"""Values of one loop that are all computed."""
MOST_POINTS: Final = 1 << 22
"""Points of the nests of a kernel that are all compared."""
_TERMS: Final = ": a term of a maximum or minimum is missing, another, or taken twice, or another number is compared"
"""What is known of a finding that the true order did not show."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with loops.

    Attributes:
        problem: What.
        path: Heads of the loops and conditions around the statement, outermost first, as `print_loops` has them.
        statement: The statement; "" where no statement is at fault.
        values: Of axes and variables, where it happened.
        sizes: Of the call, for a kernel with open sizes.
    """

    problem: str
    path: tuple[str, ...] = ()
    statement: str = ""
    values: Mapping[str, int] = field(default_factory=dict[str, int])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    def __str__(self) -> str:
        at = ", ".join(f"{name}={n}" for name, n in self.values.items())
        of = ", ".join(f"{name}={n}" for name, n in self.sizes.items())
        where = " ".join([*self.path, self.statement]) + (f" with {at}" if at else "")
        return self.problem + (f", in {where}" if self.statement else "") + (f" (sizes: {of})" if of else "")


def check_loops(kernel: Kernel, program: LoopProgram, seed: int = 0, most: int = MOST) -> tuple[Finding, ...]:
    """What is wrong with the loops of a kernel; nothing if they do what it says.

    Args:
        kernel: With the names that the program uses.
        program: Its loops.
        seed: Of the operands.
        most: Values of one loop that are all computed.
    """
    if fault := verify_loops(program):
        return (Finding(fault.problem, fault.path, fault.statement),)
    if found := _interface(kernel, program) or _shared(program):
        return found
    rng, literals, sorting = np.random.default_rng(seed), literals_of(kernel), sorts(kernel)
    numbers, terms = Field(Order(literals)), Field(Terms(literals, sorts=sorting))
    runs = [*((numbers, draw) for draw in range(draws(kernel, program, most)))]
    runs += [(terms, 0)] * runs_of_terms(kernel, program, most)
    for k, sizes in enumerate(sizes_to_check(kernel, rng)):
        once = sorting and sizes and k == 0  # loops that sort run element by element: the largest sizes take minutes
        for arithmetic, draw in runs[:1] if once else runs:
            if found := _checked(kernel, program, arithmetic, operands(kernel, sizes, rng, draw), sizes, most):
                return tuple(replace(f, problem=f.problem + _TERMS) for f in found) if arithmetic is terms else found
    return ()


def _shared(program: LoopProgram) -> tuple[Finding, ...]:
    """Variables that iterations marked parallel share, in loops that never run too."""
    return tuple(
        _finding(program, f"iterations marked parallel share the variable {name}", path_to(program.body, k), {}, {})
        for k, s in enumerate(walk_stmts(program.body))
        if isinstance(s, For) and s.parallel
        for name in shared_variables(s)
    )


def _interface(kernel: Kernel, program: LoopProgram) -> tuple[Finding, ...]:
    """Parameters and results that are not the kernel's."""
    found: list[Finding] = []
    for what, own, wanted in (
        ("parameter", program.params, kernel.params),
        ("result", program.results, kernel.results),
    ):
        if [p.name for p in own] != [p.name for p in wanted]:
            names = (", ".join(p.name for p in ps) for ps in (own, wanted))
            found.append(Finding(f"{what}s of the loops are {next(names)}, of the kernel {next(names)}"))
            continue
        for p, w in zip(own, wanted, strict=True):
            if p.storage != w.dtype or p.type.shape != w.type.shape:
                found.append(Finding(f"{what} {p.name} is {p.storage} of {p.type} in loops, {w.type} in the kernel"))
    return tuple(found)


def _checked(
    kernel: Kernel,
    program: LoopProgram,
    numbers: Field,
    args: Mapping[str, Array],
    sizes: Mapping[str, int],
    most: int,
) -> tuple[Finding, ...]:
    flat = {name: np.ravel(a) for name, a in args.items()}
    for whole in (False, True):
        machine = CheckedMachine(program, numbers, flat, sizes, whole, most)
        try:
            machine.start(program.body)
        except LoopFault as fault:
            return (_fault(program, fault, sizes),)
        except Unknowable:
            assert not whole, "every value is known when all iterations are run"
            continue
        masks = {r.name: _meant(r, sizes) for r in program.results}
        if found := _missing(program, machine, masks, sizes):
            return found
        known = {name: mask & machine.known(name).reshape(mask.shape) for name, mask in masks.items()}
        if whole or all(known[name].any() or not masks[name].any() for name in masks):
            return _compared(kernel, program, machine, args, known, sizes)
    raise AssertionError("all iterations were run")


def _meant(r: Param, sizes: Mapping[str, int]) -> Array:
    """The elements of a result that have a meaning at some sizes."""
    mask = np.ones(room(r.type, sizes), bool)
    if not r.type.is_open:
        return mask
    if r.type.dense:
        mask[value(r.type.size, sizes) :] = False
        return mask
    for d, extent in enumerate(r.type.shape):
        mask[(slice(None),) * d + (slice(value(extent, sizes), None),)] = False
    return mask


def _fault(program: LoopProgram, fault: LoopFault, sizes: Mapping[str, int]) -> Finding:
    return _finding(program, str(fault), fault.path, fault.values, sizes)


def _finding(
    program: LoopProgram, problem: str, path: tuple[Stmt, ...], values: Mapping[str, int], sizes: Mapping[str, int]
) -> Finding:
    extents = sizes_of(program)
    heads = [print_head(s, extents) for s in path]
    axes = {s.axis.name for s in path if isinstance(s, For)}
    own = {name: n for name, n in values.items() if name in axes}
    return Finding(problem, tuple(heads[:-1]), heads[-1] if heads else "", own, sizes)


def _missing(
    program: LoopProgram, machine: CheckedMachine, masks: Mapping[str, Array], sizes: Mapping[str, int]
) -> tuple[Finding, ...]:
    """Elements of results that no statement writes."""
    found: list[Finding] = []
    for r in program.results:
        missing = masks[r.name] & ~machine.memory.written[r.name].reshape(room(r.type, sizes))
        if missing.any():
            first = _subscripts(missing)
            problem = f"{r.name}{first} is never written, nor are {int(missing.sum()) - 1:,} more of {missing.size:,}"
            found.append(Finding(problem, sizes=sizes))
    return tuple(found)


def _compared(
    kernel: Kernel,
    program: LoopProgram,
    machine: CheckedMachine,
    args: Mapping[str, Array],
    known: Mapping[str, Array],
    sizes: Mapping[str, int],
) -> tuple[Finding, ...]:
    """Elements that are not the kernel's."""
    found: list[Finding] = []
    expected = reference(kernel, machine.marks.field, args, sizes, known, MOST_POINTS)
    for r in program.results:
        got, want = machine.memory.tensors[r.name].reshape(room(r.type, sizes)), expected[r.name]
        wrong = known[r.name] & (differ(got, want) if got.dtype.kind == "f" else got != want)
        if not wrong.any():
            continue
        element = int(np.flatnonzero(wrong.ravel())[0])
        problem = f"{r.name}{_subscripts(wrong)} is not the kernel's, nor are {int(wrong.sum()) - 1:,} more"
        path = path_to(program.body, machine.writer_of(r.name, element))
        access = store_at(program.body, path, machine.deciding)
        values = machine.axes_at(access, element) if access is not None else dict[str, int]()
        found.append(_finding(program, problem, path, values, sizes))
    return tuple(found)


def _subscripts(mask: Array) -> str:
    """Of the first element of a mask."""
    where = np.unravel_index(int(np.flatnonzero(mask.ravel())[0]), mask.shape)
    return f"[{','.join(str(int(i)) for i in where)}]"
