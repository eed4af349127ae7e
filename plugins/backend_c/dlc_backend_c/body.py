"""What runs a plan: one call per step reads and writes where the plan says; every generated function has one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dlc import ExitCode, Workshop
from dlc.api.places import Places
from dlc.api.plan import Plan, Slot, is_zeros, results_of
from dlc.base.diagnostics import error
from dlc.graph import Call, Copy, Input, Loop, Op, Scan
from dlc_backend_c.alike import alike
from dlc_backend_c.control import PARAMETERS, ZEROS, RegionCall
from dlc_backend_c.function import CFunction, Wanted, c_functions
from dlc_backend_c.names import c_comment
from dlc_backend_c.scheduling import NONE, PREFIX, Preferred, check_given, suffix_of
from dlc_backend_c.target import CTarget
from dlc_backend_c.weights import unpacked_key

Form = tuple[str, bool, bool, tuple[int, ...]]
"""Kernel digest, whether a result overwrites an argument, whether it lies beside others, which arguments are packed."""
Functions = Mapping[Form, CFunction]
"""In order of first use."""


@dataclass(frozen=True)
class Body:
    """A plan, and the C text of where its inputs and outputs are.

    The text around it declares `a`, the arena, and `w`, the weights, both of `unsigned char`; where values lie in
    several memories, `a` is an array of pointers to them.
    """

    plan: Plan
    functions: Functions
    """Of this plan, perhaps among others."""
    offsets: Mapping[str, int]
    """Digest of a constant → its place in the weights."""
    inputs: Sequence[str]
    """For each input an expression of type `const void *`."""
    outputs: Sequence[str]
    """For each output an expression of type `void *`."""
    prefix: str = "model"
    """What names of functions begin with."""
    places: Places | None = None
    """Buffers whose offsets are in `o`, of `size_t`; None: they are numbers, those of the plan."""

    @property
    def arena_bytes(self) -> int:
        """Bytes of working memory, as the plan has it: of values, and of kernels."""
        return self.plan.memory

    @cached_property
    def reads_weights(self) -> bool:
        """Whether a step reads `w`."""
        steps = (step for plan in self.plan.plans for step in plan.steps)
        return any(x.digest in self.offsets and x.type.capacity for step in steps for x in step.operands)

    @property
    def copies(self) -> bool:
        """Whether memory is copied: by `memcpy`."""
        return bool(self.plan.kept or self.plan.bodies or any(isinstance(step, Copy) for step in self.plan.steps))

    @cached_property
    def functions_of_bodies(self) -> Mapping[str, list[str]]:
        """Name → lines of the functions that run graphs which steps hold; what a function calls comes before it."""
        found: dict[str, list[str]] = {}
        for plan in self.plan.bodies.values():
            read, written = ([f"{d}[{k}]" for k in range(n)] for d, n in _ports(plan))
            body = Body(plan, self.functions, self.offsets, read, written, self.prefix)
            found |= body.functions_of_bodies
            unused = [f"    (void){name};" for name in ("inputs", "outputs", "a", "w")]
            name = self._name(plan)
            found[name] = [f"static void {name}({PARAMETERS})", "{", *unused, *body.lines, "}", ""]
        return found

    def _name(self, plan: Plan) -> str:
        return f"{self.prefix}_body_{plan.digest[:16]}"

    @cached_property
    def operations(self) -> list[list[str]]:
        """Statements: copies of the inputs that are read when an output may have been written over them, then calls."""
        kept = [f"    memcpy({self._write(i)}, {self._given[i.digest]}, {i.type.nbytes});" for i in self.plan.kept]
        return [kept] * bool(kept) + [self._call(k) for k in range(len(self.plan.steps))]

    @property
    def lines(self) -> list[str]:
        """The statements one after another."""
        return [line for lines in self.operations for line in lines]

    @cached_property
    def _given(self) -> Mapping[str, str]:
        """Digest of an input → its text."""
        return {i.digest: text for i, text in zip(self.plan.graph.inputs, self.inputs, strict=True)}

    def _function(self, step: Call) -> CFunction:
        return self.functions[form_of(self.plan, step)]

    def _call(self, number: int) -> list[str]:
        step = self.plan.steps[number]
        names = self.plan.graph.origin(step)
        comment = [f"    /* {', '.join(c_comment(n) for n in names)} */"] if names else []
        return [*comment, *(self._kernel(step) if isinstance(step, Call) else self._region(step))]

    def _region(self, step: Op) -> list[str]:
        slot = self.plan.workspaces.get(step.digest)
        return RegionCall(
            step,
            self._given_to(step),
            [self._write(v) for v in results_of(step)],
            self.plan.memory_of(step),
            f"({self._work(step)})" if slot and slot.size else "(unsigned char *)0",
            "w" if self.reads_weights else "(const unsigned char *)0",
            [self._name(self.plan.bodies[body.digest]) for body in step.bodies],
        ).lines()

    def _given_to(self, step: Op) -> list[str]:
        """Operands of a step that holds graphs; what lies nowhere is zeros that a loop begins with."""
        first = sum(x is not None for x in (step.count, step.condition)) if isinstance(step, Loop) else 0
        begins = range(first, first + len(step.carried)) if isinstance(step, Loop | Scan) else range(0)
        return [
            ZEROS if k in begins and is_zeros(x) and x.type.size else self._read(x, whole=True)
            for k, x in enumerate(step.operands)
        ]

    def _kernel(self, step: Call) -> list[str]:
        if isinstance(step, Copy):
            return [f"    memcpy({self._write(step)}, {self._read(step.args[0])}, {step.type.nbytes});"]
        function = self._function(step)
        # Void pointers convert to any parameter type, so the types are named once, where the kernel is.
        read, written = step.operands, results_of(step)

        def argument(k: int, further: int) -> str:
            if k < len(read):
                return self._read(read[k], further)
            if k < len(read) + len(written):
                return self._write(written[k - len(read)], further)
            # Room for floats and integers, whatever a part of a function takes it for.
            return f"(void *)({self._work(step, further)})"

        return [
            f"    {c.name}({', '.join([*(argument(k, n) for k, n in c.arguments), *map(str, c.numbers)])});"
            for c in function.calls
        ]

    def _read(self, value: Op, further: int = 0, whole: bool = False) -> str:
        """A pointer to a value that is read, some bytes further on; `whole`: with no constant packed."""
        value = self.plan.given(value)
        if isinstance(value, Input) and value.digest not in self.plan.slots:
            return _moved("const ", self._given[value.digest], further)
        if not value.type.capacity and value.digest not in self.plan.outputs:
            return "(const void *)0"
        if value.digest in self.offsets:
            key = unpacked_key(value) if whole and value.type.dtype.per_byte > 1 else value.digest
            return f"(const void *)(w + {self.offsets[key] + further})"
        # What an earlier step wrote is only read here.
        return self._write(value, further).replace("(void *)", "(const void *)", 1)

    def _write(self, value: Op, further: int = 0) -> str:
        """A pointer to a value that is written, some bytes further on."""
        output = self.plan.outputs.get(value.digest)
        if output is not None:
            return _moved("", self.outputs[output], further)
        # What has no elements takes no memory, of which there may be none at all.
        if not value.type.capacity:
            return "(void *)0"
        slot = self.plan.slots[value.digest]
        number = None if self.places is None else self.places.values[value.digest]
        return f"(void *)({self._at(number, slot, further)})"

    def _work(self, step: Op, further: int = 0) -> str:
        """Where a step works."""
        number = None if self.places is None else self.places.workspaces[step.digest]
        return self._at(number, self.plan.workspaces[step.digest], further)

    def _at(self, buffer: int | None, slot: Slot, further: int) -> str:
        """Some bytes behind the beginning of a buffer, or of a slot that has no number, in its memory."""
        regions = list(self.plan.own_regions)
        if slot.region in regions:
            memory = "a" if len(regions) == 1 else f"a[{regions.index(slot.region)}]"
        else:
            memory = f"(unsigned char *){self.inputs[int(slot.region.partition(':')[2])]}"
        if buffer is None:
            return f"{memory} + {slot.offset + further}"
        return f"{memory} + o[{buffer}]" + f" + {further}" * (further > 0)


def _moved(const: str, pointer: str, further: int) -> str:
    return f"({const}void *)(({const}unsigned char *){pointer} + {further})" if further else pointer


def _ports(plan: Plan) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("inputs", len(plan.graph.inputs)), ("outputs", len(plan.graph.outputs))


def constants_of(plan: Plan) -> list[Op]:
    """What the plan reads of the weights, and the plans inside it; raises DlcError (USAGE) when one has no places."""
    return list(dict.fromkeys(op for each in plan.plans for op in _own_constants(each)))


def unpacked_of(plans: Sequence[Plan]) -> list[Op]:
    """Constants of less than 8 bits that steps with graphs read: inside of these they are values like others."""
    found = dict.fromkeys(
        x
        for plan in plans
        for each in plan.plans
        for step in each.steps
        for x in step.operands
        if not isinstance(step, Call) and x.type.dtype.per_byte > 1
    )
    constants = {c.digest for plan in plans for c in constants_of(plan)}
    return [x for x in found if x.digest in constants]


def _own_constants(plan: Plan) -> list[Op]:
    placed = set(plan.slots) | set(plan.outputs)
    missing = [v for step in plan.steps for v in results_of(step) if v.digest not in placed]
    if missing:
        raise error(
            "no-places",
            f"{len(missing)} of {len(plan.values)} values have no place in memory",
            help="end the pipeline with plan-memory",
            exit_code=ExitCode.USAGE,
        )
    computed = {v.digest for step in plan.steps for v in results_of(step)}
    assert all(o.digest in computed for o in plan.graph.outputs), "schedule makes every output a result of a call"
    assert len(plan.outputs) == len(plan.graph.outputs), "schedule makes outputs distinct"
    # A view of an intermediate value is no step, yet no constant either: it has a place.
    return [c for c in plan.constants if c.digest not in plan.slots]


def functions_of(
    plans: Sequence[Plan], target: CTarget, workshop: Workshop | None = None, preferred: Preferred = NONE
) -> Functions:
    """One function per distinct kernel, named after its content so that objects can be shared between models.

    Kernels that differ in a few numbers share theirs.

    Raises DlcError (USAGE) when a function works in memory that its plan has no place for, and where a schedule is
    given for a kernel that no plan has.
    """
    plans = [each for plan in plans for each in plan.plans]
    kernels = {form_of(plan, step): step.body for plan in plans for step in _called(plan)}
    check_given(kernels.values(), preferred.given)
    digests = {digest for digest, *_ in kernels}
    length = 16 if len({digest[:16] for digest in digests}) == len(digests) else 32
    # Where a result overwrites an argument element by element, nobody may promise that buffers are disjoint.
    wanted: list[Wanted] = []
    for (digest, shares, beside, packed), kernel in kernels.items():
        # Others are chosen again, to the same effect: a plan may have been made for another machine.
        schedule = preferred.schedule(kernel, target)
        name = f"{PREFIX}{digest[:length]}{'_over' * shares}{'_beside' * beside}{_suffix(packed)}{suffix_of(schedule)}"
        wanted.append(Wanted(kernel, name, not shares, packed, schedule, beside))
    functions = dict(zip(kernels, c_functions(wanted, target, workshop), strict=True))
    for plan in plans:
        _check_workspaces(plan, functions)
    return alike(functions)


def _called(plan: Plan) -> list[Call]:
    """The steps that call a function of a kernel; bytes are copied by `memcpy`."""
    return [step for step in plan.calls if not isinstance(step, Copy)]


def _suffix(packed: tuple[int, ...]) -> str:
    return f"_packed{'_'.join(map(str, packed))}" if packed else ""


def form_of(plan: Plan, step: Call) -> Form:
    """Which function a step calls: constants of less than 8 bits are packed, other values are not."""
    narrow = [k for k, x in enumerate(step.operands) if x.type.dtype.per_byte > 1]
    constants = {c.digest for c in _own_constants(plan)} if narrow else ()
    packed = tuple(k for k in narrow if step.operands[k].digest in constants)
    beside = any(v.digest in plan.beside for v in results_of(step))
    return step.body.digest, in_place(plan, step), beside, packed


def _check_workspaces(plan: Plan, functions: Functions) -> None:
    for step in _called(plan):
        function, slot = functions[form_of(plan, step)], plan.workspaces.get(step.digest)
        if function.workspace > (slot.size if slot else 0):
            planned = slot.size if slot else 0
            raise error(
                "no-places",
                f"{function.name} needs a workspace of {function.workspace} bytes, the plan has {planned}",
                help="plan again for this target: order and plan-memory need the workspaces of its kernels",
                exit_code=ExitCode.USAGE,
            )


def in_place(plan: Plan, step: Call) -> bool:
    """Whether a result of the step may share bytes with an argument: so the plan says, or the caller may."""
    read = {plan.given(x) for x in step.args}
    if any(plan.graph.outputs[i] in results_of(step) and x in read for i, x in _overwritten(plan)):
        return True
    # Parts of one memory share it: their elements are others, but a compiler is given one pointer for both.
    taken = [s for x in step.args if x.digest not in plan.outputs and (s := plan.slots.get(x.digest))]
    written = [s for r in results_of(step) if r.digest not in plan.outputs and (s := plan.slots.get(r.digest))]
    return any(
        a.region == b.region and a.offset < b.offset + b.size and b.offset < a.offset + a.size
        for a in taken
        for b in written
    )


def _overwritten(plan: Plan) -> list[tuple[int, Input]]:
    """(output, input) that the caller may give one buffer for, which the program reads and writes there."""
    return [(i, x) for i, j in plan.graph.aliases if (x := plan.graph.inputs[j]).digest not in plan.slots]
