"""A plan, or those of a training program, as an artifact with its `.s2t` file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import dlc
import dlc_backend_s2train
from dlc import Artifact, DlcError, Report, Type
from dlc.api.plan import Plan
from dlc.api.program import Port, Signature
from dlc.api.training import Bundle
from dlc.base.allowed import Allowed
from dlc.base.diagnostics import ExitCode, error
from dlc.base.types import DType, f32, i64
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Arena, Element
from dlc_backend_s2train.container import write
from dlc_backend_s2train.cost.figures import cost_facts
from dlc_backend_s2train.defaults import SUFFIX
from dlc_backend_s2train.device.driver import driver_files
from dlc_backend_s2train.device.registers import with_setups
from dlc_backend_s2train.emit import ALIGN, program_of
from dlc_backend_s2train.instruction import S2Host, S2Instruction
from dlc_backend_s2train.program import Entry, Program
from dlc_backend_s2train.select.coverage import coverage_facts
from dlc_backend_s2train.v1.legalize import with_words, word_facts
from dlc_backend_s2train.v1.published_plan import published_facts

_LONGEST = 64


class Options(Protocol):
    """What a target's options say of the file; its `str` is the target as it is written in the file."""

    @property
    def prefix(self) -> str: ...
    @property
    def emit_(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def lifetimes(self) -> str: ...


def file_title(title: str) -> str:
    """A file's name for a model's title: letters, digits, _ and -."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", title).strip("_")[:_LONGEST] or "model"


def artifact_of(plan: Plan, options: Options, report: Report) -> Artifact:
    """The file of a plan, with the entry `step` if it takes labels, else `predict`.

    Raises:
        DlcError: (USAGE) the plan has steps that are no instructions, or no places for its values.
    """
    trains = any(i.role == "label" for i in plan.graph.inputs)
    planned = {**plan.facts, **_coverage(plan)}
    program = _program({"step" if trains else "predict": plan}, options, report, planned)
    name = f"{options.prefix or 'model'}{SUFFIX}"
    signature = signature_of(program, program.entries[0])
    facts = {**planned, **memory_of(program), **_costs(program, program.entries[0], options, report)}
    content = write(program)
    files = {name: content, **driver_files(program, content, name, options.prefix or "model")}
    return Artifact(str(options), files, name, signature, facts)


def training_artifact(bundle: Bundle, options: Options, report: Report) -> Artifact:
    """The file of a training program: entries `predict`, `evaluate` and `step`, and the model's template beside it.

    Raises:
        DlcError: (USAGE) as `artifact_of`; updates are to wait for all gradients.
    """
    if "step" not in bundle.functions:
        raise _refused("weights are updated within a step", "leave updates=final out of --train")
    plans = {name: function.plan for name, function in bundle.functions.items()}
    prefix, (suffix, template) = options.prefix or "model", bundle.template
    meta = {"label": bundle.label, "template": f"{prefix}_template{suffix}" if template else ""}
    if bundle.classes is not None:
        meta |= {"classes": str(bundle.classes.count)}
        meta |= {} if bundle.classes.ignore is None else {"ignore": str(bundle.classes.ignore)}
    meta |= {key: str(value) for key, value in bundle.facts.items()}
    known = {**plans["step"].facts, **_coverage(plans["step"])}
    program = _program(plans, options, report, known, meta)
    content = write(program)
    files: dict[str, bytes] = {f"{prefix}{SUFFIX}": content}
    files |= driver_files(program, content, f"{prefix}{SUFFIX}", prefix)
    if template:
        files[meta["template"]] = template
    entry = next(e for e in program.entries if e.name == "predict")
    step = next(e for e in program.entries if e.name == "step")
    facts = {**known, **memory_of(program), **_costs(program, step, options, report)}
    return Artifact(str(options), files, f"{prefix}{SUFFIX}", signature_of(program, entry), facts)


def published_of(plans: Mapping[str, Plan]) -> dict[str, int | str]:
    """Memory of plans by the names of their functions, in the published count.

    Raises:
        DlcError: (USAGE) as `artifact_of`.
    """
    for plan in plans.values():
        _check(plan)
    return published_facts(program_of({name or "the program": plan for name, plan in plans.items()}))


def _program(
    plans: Mapping[str, Plan],
    options: Options,
    report: Report,
    facts: Mapping[str, int | str],
    more: Mapping[str, str] | None = None,
) -> Program:
    """The program of plans, checked by who shares nothing with those that made it."""
    for plan in plans.values():
        _check(plan)
    made = program_of(plans)
    try:
        made = with_setups(made)
    except DlcError as problem:
        report.note(f"the file has no registers of the array: {problem.diagnostics[0].message}")
    made = with_words(made) if options.isa == "v1" else made
    more = {**(more or {}), **_ranges(plans)}
    meta = {"dlc": dlc.__version__, "dlc-backend-s2train": dlc_backend_s2train.__version__, "target": str(options)}
    program = replace(made, meta=meta | {k: str(v) for k, v in sorted(facts.items())} | more)
    if problems := verify(program):
        raise AssertionError(f"the program does not pass its own checks: {problems[0].message}")
    if options.emit_ == "frames":
        program = _with_frames(program, report)
    report.count("instructions", len(program.instructions))
    report.count("tensors", len(program.tensors))
    return program


def _with_frames(program: Program, report: Report) -> Program:
    """The program with its link stream, which is decoded again."""
    from dlc_backend_s2train.checks.frames import frame_problems  # few builds ask for frames
    from dlc_backend_s2train.frames.stream import stored_frames

    found = replace(program, frames=stored_frames(program, report))
    if problems := list(frame_problems(found)):
        raise AssertionError(f"the frames do not pass their own checks: {problems[0].message}")
    return found


def _coverage(plan: Plan) -> dict[str, int | str]:
    """What the accelerator does of a plan; nothing of one that is refused."""
    _check(plan)
    return coverage_facts(plan.graph, plan.steps)


def _costs(program: Program, entry: Entry, options: Options, report: Report) -> dict[str, int | str]:
    """Words of version 1, memory in the published count if that is asked for, and the cost of an entry, if it can
    be estimated: the program does not depend on it."""
    facts = {**word_facts(program), **(published_facts(program) if options.lifetimes == "published" else {})}
    try:
        return {**cost_facts(program, entry), **facts}
    except DlcError as problem:
        report.note(f"no cost is estimated: {problem.diagnostics[0].message}")
        return facts


def memory_of(program: Program) -> dict[str, int]:
    """Bytes by what lies there: weights and states; the plan's arena."""
    planned = [s for s in program.storages if s.arena not in (Arena.HOST, Arena.WEIGHTS)]
    extent = max((s.address + s.size for s in planned), default=0) - min((s.address for s in planned), default=0)
    weights = sum(s.size for s in program.storages if s.arena is Arena.WEIGHTS)
    frames = {"frames_bytes": len(program.frames)} if program.frames else {}
    return {"arena_bytes": -(-extent // ALIGN) * ALIGN, "weights_bytes": weights, **frames}


def signature_of(program: Program, entry: Entry) -> Signature:
    """How an entry is called: floats as f32, labels as i64; weights stay in the device.

    Raises:
        ValueError: the program's meta data make no sense of what inputs may be.
    """
    allowed = ranges_of(program)

    def typed(tensor: int) -> Type:
        view = program.tensors[tensor]
        dtype: DType = i64 if view.element is Element.INT32 else f32
        return Type(dtype, view.shape)

    def taken(name: str, tensor: int) -> Port:
        of = typed(tensor)
        if name in allowed and not allowed[name].fits(of):
            raise ValueError(f"{of} cannot be restricted to {allowed[name].text}")
        return Port(name, of, allowed.get(name))

    # An output may have the name of an input, as that of the labels.
    given = tuple(taken(name, tensor) for name, tensor in (*entry.inputs, *entry.labels))
    return Signature(given, tuple(Port(name, typed(tensor)) for name, tensor in entry.outputs))


def _ranges(plans: Mapping[str, Plan]) -> dict[str, str]:
    """What inputs may be, by name, as the program's meta data tell it."""
    found = {i.name: i.allowed for plan in plans.values() for i in plan.graph.inputs if i.allowed}
    return {"ranges": json.dumps(found, sort_keys=True)} if found else {}


def ranges_of(program: Program) -> dict[str, Allowed]:
    """The inverse; raises ValueError where the meta data hold something else."""
    try:
        return {name: Allowed.parse(text) for name, text in json.loads(program.meta.get("ranges", "{}")).items()}
    except (TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(str(problem)) from None


def _check(plan: Plan) -> None:
    if any(not isinstance(step, S2Instruction | S2Host) for step in plan.steps) or not plan.steps:
        raise _refused("the pipeline leaves steps that are no instructions", "put s2-select before order")
    if any(digest not in plan.slots and digest not in plan.outputs for digest in plan.values):
        raise _refused("the plan has no places for its values", "end the pipeline with plan-memory")


def _refused(message: str, help: str) -> DlcError:
    return error("not-planned", f"s2train: {message}", help=help, exit_code=ExitCode.USAGE)
