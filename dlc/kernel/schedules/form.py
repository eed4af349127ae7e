"""The form of a kernel that schedules are applied to: rewrites of whole nests, which come before groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlc.kernel.kernel import Kernel
from dlc.kernel.literals import fold_literals
from dlc.kernel.loops.program import Let
from dlc.kernel.schedules.beside_rows import beside_rows
from dlc.kernel.schedules.columns_innermost import columns_innermost
from dlc.kernel.schedules.converted_factors import converted_factors
from dlc.kernel.schedules.empty import without_empty
from dlc.kernel.schedules.extents import limited
from dlc.kernel.schedules.held_values import with_held_values
from dlc.kernel.schedules.invariant import without_invariant_axes
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.needed import only_needed
from dlc.kernel.schedules.outer_factors import with_outer_factors_first
from dlc.kernel.schedules.polyphase import split_phases
from dlc.kernel.schedules.powers import roots_for_powers
from dlc.kernel.schedules.products import ordered_products
from dlc.kernel.schedules.reciprocals import with_reciprocals
from dlc.kernel.schedules.repeated import without_repeated
from dlc.kernel.schedules.row_terms import with_row_terms
from dlc.kernel.schedules.shared_values import with_shared_values
from dlc.kernel.schedules.split import split_blocks, split_groups
from dlc.kernel.schedules.terms_together import terms_together
from dlc.kernel.schedules.vanishing import without_vanishing
from dlc.kernel.schedules.widen import widened
from dlc.kernel.simplify import simplify_nest
from dlc.kernel.take_apart import take_apart


@dataclass(frozen=True)
class Form:
    """A kernel in the form that schedules are applied to.

    Attributes:
        whole: The kernel with the parameters and results of its program.
        kernel: An equal one, of the nests that become loops.
        sizes: What computes the sizes of a call first.
        alone: Tensors whose sums stay by themselves.
        converted: Tensors that hold converted factors.
        machine: What it runs on.
    """

    whole: Kernel
    kernel: Kernel
    sizes: Sequence[Let]
    alone: frozenset[str]
    converted: frozenset[str]
    machine: Machine


def form_of(kernel: Kernel, machine: Machine) -> Form:
    """An equal kernel whose nests suit the machine."""
    kernel = widened(fold_literals(without_empty(kernel)))
    kernel = only_needed(replace(kernel, nests=tuple(take_apart(simplify_nest(n)) for n in kernel.nests)))
    kernel = terms_together(without_repeated(kernel), machine)
    kernel = with_held_values(only_needed(without_vanishing(kernel, machine)))
    kernel = with_row_terms(with_shared_values(kernel), machine)
    whole = kernel
    kernel = with_reciprocals(ordered_products(roots_for_powers(kernel, machine), machine), machine)
    kernel = beside_rows(with_outer_factors_first(kernel, machine), machine)
    kernel = fold_literals(kernel)  # factors that are literals stand together now
    kernel, converted = converted_factors(kernel, machine)
    kernel = split_phases(split_groups(split_blocks(without_invariant_axes(kernel))), machine)
    kernel, alone = columns_innermost(kernel, machine)
    kernel, sizes = limited(kernel)
    return Form(whole, kernel, sizes, alone, converted, machine)
