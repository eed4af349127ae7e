"""Checks of what a backend says of element types and kernels: what it refuses has a reason, what it takes it builds.

Every element type, and a kernel of every scalar function, is asked about. Those that are refused are built for, which
has to end in the diagnostic; those that are not are built and called, all at once, and one by one where that fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dlc.api.backend import Backend
from dlc.base.extents import symbol
from dlc.base.types import DTYPES, Array, DType, Type, bool_, f32, i32, i64
from dlc.graph import Call, Constant, Graph, Input, Op, Tensor, evaluate
from dlc.kernel.expr import Axis, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS, Scalar
from dlc.ops.elementwise import Maximum
from dlc.ops.shape import Transpose
from dlc.spec import Spec
from dlc.verify.kit.answers import answer
from dlc.verify.kit.check import Check, Skipped, Wrong
from dlc.verify.kit.programs import agree, artifact_of, program_of
from dlc.verify.kit.subject import in_words

if TYPE_CHECKING:
    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject

_SHAPE: Final = (2, 3)
_TYPES_HELP: Final = (
    'declare accepts_type: return Reason("element type …", "what there is") for types that emit cannot write'
)
_KERNELS_HELP: Final = (
    "declare accepts_kernel: lacking = kernel.functions - TABLE.keys(), and a Reason that names what is lacking"
)
_ABOVE_ONE: Final = ("acosh",)
"""Functions that are defined there; all others are on (0, 1)."""


@dataclass(frozen=True)
class _Trial:
    """Something that a program has to have: values that compute it, and what it is called."""

    what: str
    """ "values of f64", "a kernel of sinh"."""
    values: tuple[Op, ...]
    help: str
    feeds: Mapping[str, Array]
    """Of its inputs, by name."""


def refuses(subject: Subject, entry: Entry) -> str:
    """That questions about types and kernels have answers, and `emit` builds whatever they let through."""
    backend = subject.registry.backend(Spec(entry.name))
    taken, refused = _types(backend)
    trials = [_of_type(t, backend) for t in taken]
    wrong = [_Trial(f"values of {t}", (Transpose(_input(t), perm=(1, 0)),), "", {}) for t in refused]
    functions, lacking = _functions(backend, frozenset(taken)) if backend.own_level() != "ops" else ([], [])
    for group in (wrong, lacking):
        _is_refused(subject, backend, group)
    built = _build(subject, backend, [t for t in trials if t.values]) + _build(subject, backend, functions)
    what = f"{len(taken)} of {len(DTYPES)} element types"
    if functions or lacking:
        what += f", {len(functions)} of {len(functions) + len(lacking)} functions in kernels"
    return f"{what}; {built} built"


def _types(backend: Backend) -> tuple[list[DType], list[DType]]:
    """Element types of which it has arrays and scalars, and all others; shapes that a call decides are asked about."""
    found: tuple[list[DType], list[DType]] = [], []
    shapes = ((), _SHAPE, (0, 3), (symbol("n", 1, 4), 3))
    for dtype in DTYPES.values():
        asked = [Type(dtype, shape) for shape in shapes]
        answers = [answer(lambda t=t: backend.accepts_type(t), f"accepts_type({t})") for t in asked]
        found[not all(answers[:2])].append(dtype)
    return found


def _input(dtype: DType) -> Input:
    return Input(f"x_{dtype}", Type(dtype, _SHAPE))


def _of_type(dtype: DType, backend: Backend) -> _Trial:
    """Moved and compared values of a type, a constant among them, as far as the backend has the ops."""
    x = _input(dtype)
    constant = Constant(Tensor.of(_numbers(x.type, 1), dtype))
    ops = [op for op in (Transpose(x, perm=(1, 0)), Maximum(x, constant)) if backend.accepts(op) is True]
    return _Trial(f"values of {dtype}", tuple(ops), _TYPES_HELP, {x.name: _numbers(x.type, 0)})


def _functions(backend: Backend, taken: frozenset[DType]) -> tuple[list[_Trial], list[_Trial]]:
    """Calls of kernels of one scalar function each, those that it takes and all others."""
    found: tuple[list[_Trial], list[_Trial]] = [], []
    for scalar in SCALARS.values():
        kernel = _kernel(scalar, taken)
        if kernel is None:
            continue
        inputs = tuple(Input(f"{scalar.name}_{k}", p.type) for k, p in enumerate(kernel.params))
        call = Call(kernel, inputs)
        if backend.accepts(call) is True:
            takes = answer(lambda k=kernel: backend.accepts_kernel(k), f"accepts_kernel of {scalar.name}")
            feeds = {i.name: _argument(scalar, i.type, k) for k, i in enumerate(inputs)}
            found[not takes].append(_Trial(f"a kernel of {scalar.name}", (call,), _KERNELS_HELP, feeds))
    return found


def _kernel(scalar: Scalar, taken: frozenset[DType]) -> Kernel | None:
    """y[i, j] = fn(…) of values of a type that the function has; None where the backend has no such type."""
    choices = {"int": (i32, i64), "bool": (bool_,)}.get(scalar.domain, (f32,))
    dtype = next((t for t in choices if t in taken), None)
    if dtype is None:
        return None
    types = [dtype] * scalar.arity
    result = {"bool": bool_, "cast": scalar.to, "bits": scalar.to}.get(scalar.rule, dtype)
    if scalar.rule == "select":
        types[0] = bool_
    if scalar.rule == "bits":
        # Targets may keep integers of 64 bits in fewer, as long as no value needs them.
        same = [t for t in DTYPES.values() if result and t.bits == result.bits < 64 and t is not result]
        types = [t for t in same if t in taken][:1]
    if result is None or not types or not {*types, result} <= taken:
        return None
    params = tuple(Param("abc"[k], Type(t, _SHAPE)) for k, t in enumerate(types))
    out, index = Param("y", Type(result, _SHAPE)), (Axis("i", 2), Axis("j", 3))
    return Kernel.canonical(params, (out,), (Nest("y", index, index, apply(scalar.name, *(p[index] for p in params))),))


def _numbers(type: Type, first: int) -> Array:
    """Numbers that every type has: 1 and 2 of floats, otherwise 0 and 1."""
    numbers = (np.arange(type.size) + first) % 2 + (1 if type.dtype.is_float else 0)
    return numbers.reshape(type.shape).astype(type.dtype.numpy)


def _argument(scalar: Scalar, type: Type, number: int) -> Array:
    """Numbers in the domain of a function; as divisors of integers, none that is 0."""
    numbers = _numbers(type, number)
    if scalar.rule == "bits" and scalar.to is not None and scalar.to.is_float and type.dtype is not bool_:
        # Bits of numbers that every arithmetic has: some flush the smallest ones to 0.
        return _numbers(Type(scalar.to, type.shape), number).view(type.dtype.numpy)
    if type.dtype.is_float and scalar.name not in _ABOVE_ONE:
        return (numbers / 4).astype(type.dtype.numpy)
    return numbers | numbers.dtype.type(1) if number and type.dtype.is_integer else numbers


def _is_refused(subject: Subject, backend: Backend, trials: Sequence[_Trial]) -> None:
    """Raises Wrong: a model that needs what the backend refuses does not end in its refusal."""
    if not trials:
        return
    what = f"a model with {trials[0].what}" + (f" and {len(trials) - 1} more" if len(trials) > 1 else "")
    try:
        built = artifact_of(subject, _graph(trials), str(backend))
    except Exception as problem:
        message = f"{what}, which it refuses, does not end in the refusal: {in_words(problem.__cause__ or problem)}"
        raise Wrong(
            message, "what comes before emit has to take every type: passes of its pipeline, accepts"
        ) from problem
    if built is not None:
        raise Wrong(f"{what}, which it refuses, is built", "take the refusal back, or keep passes from removing it")


def _graph(trials: Sequence[_Trial]) -> Graph:
    values = [value for trial in trials for value in trial.values]
    inputs = dict.fromkeys(x for value in values for x in value.operands if isinstance(x, Input))
    return Graph(tuple(inputs), tuple(values), tuple(f"y{k}" for k in range(len(values))))


def _build(subject: Subject, backend: Backend, trials: Sequence[_Trial]) -> int:
    """How many are built. Raises Wrong: one is not, which is named."""
    if not trials:
        return 0
    try:
        if _try(subject, backend, trials):
            return len(trials)
    except Skipped:
        raise
    except Exception as problem:
        for trial in trials if len(trials) > 1 else ():
            _build(subject, backend, [trial])
        names = ", ".join(t.what for t in trials[:3])
        text = str(problem) if isinstance(problem, Wrong) else f"it fails with {names}: {_reason(problem)}"
        raise Wrong(f"{text}; no question refuses it", trials[0].help) from problem
    return sum(_try(subject, backend, [trial]) for trial in trials) if len(trials) > 1 else 0


def _reason(problem: Exception) -> str:
    """What the plugin raised, and where."""
    return f"{problem}: {in_words(problem.__cause__)}" if problem.__cause__ else in_words(problem)


def _try(subject: Subject, backend: Backend, trials: Sequence[_Trial]) -> bool:
    """Whether it is built; then its program gives the reference's values. It may be refused for another reason."""
    graph = _graph(trials)
    program: Any = program_of(subject, graph, str(backend))
    if program is None:
        return False
    feeds = {name: array for trial in trials for name, array in trial.feeds.items()}
    want = evaluate(graph, feeds)
    # Its signature may have wider types than the model.
    feeds = {p.name: feeds[p.name].astype(p.type.dtype.numpy) for p in program.signature.inputs}
    want = {p.name: want[p.name].astype(p.type.dtype.numpy) for p in program.signature.outputs}
    agree(f"{backend} with {trials[0].what}", program, feeds, want, backend)
    return True


CHECKS = (Check("backend-refusals", "types and kernels are refused with a reason, or built", refuses, "backends", 3),)
"""In the order of `dlc.verify.kit.backends`: after what its ops compute."""
