"""The messages between dlc and a backend that is an executable, declared once.

A message is a JSON object with the fields of a class below, named as they are. docs/exec-backends.md is the guide, and
docs/exec-backend.schema.json the JSON Schema that `dlc.driver.exec_backend.schema` makes of this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from dlc.driver.exec_backend.form import part

VERSION: Final = 1
"""Of the protocol. It grows when a message changes its meaning; fields may be added to requests without that."""

Method = Literal["describe", "legalise", "emit"]
OptionValue = bool | int | float | str


# ---- what dlc writes ----
@dataclass(frozen=True)
class TensorType:
    """Element type and shape of a tensor."""

    element: str = part("element type, as f32, i64, u8 or bool")
    shape: tuple[int, ...] = part("sizes of its dimensions, the outermost first; [] is a scalar")


@dataclass(frozen=True)
class OpInfo:
    """An op that dlc asks about."""

    op: str = part("name of the op, as gemm, conv or relu; call is a kernel of the user")
    operands: Mapping[str, TensorType | tuple[TensorType, ...] | None] = part("operand by name; null: it is left out")
    attributes: Mapping[str, Any] = part("attribute by name")
    results: tuple[TensorType, ...] = part("what it computes")
    nodes: tuple[str, ...] = part("nodes of the model that it comes from")


@dataclass(frozen=True)
class Const:
    """A literal of an expression; its type is that of what it is combined with."""

    const: bool | int | float | str = part('the value; "inf", "-inf" and "nan" where JSON has no number')


@dataclass(frozen=True)
class Axis:
    """The value of a loop variable."""

    axis: str = part("name of an axis of the nest")


@dataclass(frozen=True)
class Load:
    """An element of a tensor of the kernel."""

    load: str = part("name of a tensor of the kernel")
    index: tuple[Expression, ...] = part("a subscript for each dimension")


@dataclass(frozen=True)
class Apply:
    """A scalar function of arguments."""

    apply: str = part("name of the function, as add, mul, max, exp or select: docs/kernel-language.md has all")
    arguments: tuple[Expression, ...] = part("its arguments")


Expression = Const | Axis | Load | Apply


@dataclass(frozen=True)
class NestAxis:
    """A loop: 0, 1, …, extent - 1."""

    name: str = part("what expressions call it")
    extent: int = part("number of iterations")


@dataclass(frozen=True)
class Nest:
    """For all axes, where the guard holds: out[index] (reduce)= body."""

    out: str = part("name of the tensor that is written")
    index: tuple[Expression, ...] = part("where it is written: a subscript for each dimension")
    axes: tuple[NestAxis, ...] = part("the loops, the outermost first; any order gives the same up to rounding")
    body: Expression = part("the value")
    reduce: Literal["add", "mul", "max", "min"] | None = part("how values for one element combine; null: there is one")
    where: Expression | None = part("points where it is false do nothing; null: there is no guard")


@dataclass(frozen=True)
class KernelTensor:
    """A tensor of a kernel."""

    name: str = part("what nests call it")
    element: str = part("element type")
    shape: tuple[int, ...] = part("sizes of its dimensions")


@dataclass(frozen=True)
class Kernel:
    """Nests that run in order over tensors.

    Results and locals begin with the identity of the reduction that writes them first: 0 where nothing reduces.
    """

    text: str = part("the kernel as dlc writes it, to be read by people")
    parameters: tuple[KernelTensor, ...] = part("arguments of a call, in order")
    results: tuple[KernelTensor, ...] = part("results of a call, in order")
    locals: tuple[KernelTensor, ...] = part("tensors that exist during a call only")
    nests: tuple[Nest, ...] = part("what is computed, in order")


@dataclass(frozen=True)
class Value:
    """A tensor of the program. Its number is its place in the list.

    An input that has a region is copied there before the first step.
    """

    element: str = part("element type")
    shape: tuple[int, ...] = part("sizes of its dimensions")
    region: str | None = part("memory that a plan puts it into; null: the caller's buffer, a constant, or no plan")
    offset: int | None = part("where it begins in the region, in bytes")
    view: int | None = part("number of the value whose bytes it is, under another shape; null: it is no view")


@dataclass(frozen=True)
class Port:
    """An input or output of the program."""

    name: str = part("its name in the model: any text")
    value: int = part("number of the value")


@dataclass(frozen=True)
class ConstantData:
    """Where a constant lies in the file of weights: its elements in row-major order, little-endian."""

    value: int = part("number of the value")
    offset: int = part("first byte, a multiple of 64")
    bytes: int = part("number of bytes; an element of less than 8 bits has a byte of its own")


@dataclass(frozen=True)
class Step:
    """One operation of the program."""

    op: str = part("name of the op; call: a kernel is called")
    kernel: int | None = part("of a call, the number of the kernel; null otherwise")
    operands: Mapping[str, int | tuple[int, ...] | None] = part("numbers of values, by operand; of a call, args: [...]")
    attributes: Mapping[str, Any] = part("attributes of an op, by name")
    results: tuple[int, ...] = part("numbers of the values that it computes")
    nodes: tuple[str, ...] = part("nodes of the model that it comes from")


@dataclass(frozen=True)
class Program:
    """A model in order of computation."""

    title: str = part("name of the model's file without its suffix")
    inputs: tuple[Port, ...] = part("what a call takes")
    outputs: tuple[Port, ...] = part("what a call gives")
    values: tuple[Value, ...] = part("all tensors; inputs, constants, outputs and steps refer to them by number")
    constants: tuple[ConstantData, ...] = part("weights, in the file of weights")
    kernels: tuple[Kernel, ...] = part("kernels that steps call, each once")
    steps: tuple[Step, ...] = part("what to do, in this order")
    aliases: tuple[tuple[int, int], ...] = part("[output, input] pairs that may share a buffer")
    regions: Mapping[str, int] = part("bytes of memory that a plan needs, by region")


@dataclass(frozen=True)
class DescribeRequest:
    """The first question: what the executable is."""

    protocols: tuple[int, ...] = part("versions of the protocol that dlc speaks")
    dlc: str = part("version of dlc")


@dataclass(frozen=True)
class LegaliseRequest:
    """Which of these ops can be built. dlc asks for each kind of op once, before it makes kernels of ops."""

    options: Mapping[str, OptionValue] = part("every option that the executable declares, with its value")
    ops: tuple[OpInfo, ...] = part("the ops; those that depend on constants only are computed by dlc and left out")


@dataclass(frozen=True)
class EmitRequest:
    """Write the program's files."""

    options: Mapping[str, OptionValue] = part("every option that the executable declares, with its value")
    weights: str = part("file with the constants, relative to the current directory; it may be empty")
    output: str = part("existing, empty directory for the files, relative to the current directory")
    program: Program = part("what to build")


@dataclass(frozen=True)
class Request:
    """What dlc writes: one line. An executable ignores fields that it does not know."""

    protocol: int = part("version of the protocol; of describe, the highest that dlc speaks")
    id: int = part("number of the request; the answer repeats it")
    method: Method = part("what is asked")
    params: DescribeRequest | LegaliseRequest | EmitRequest = part("the question, by method")


# ---- what the executable answers ----
@dataclass(frozen=True)
class OptionInfo:
    """An option of the backend, which users set by `--target exec:PATH{NAME=VALUE}`."""

    name: str = part("its name: lower-case letters, digits and -")
    type: Literal["integer", "number", "boolean", "string"] = part("what its values are")
    default: OptionValue = part("value where the user says nothing")
    doc: str = part("what it does, in a phrase")
    choices: tuple[str, ...] = part("of a string, the values that are allowed; empty: any", ())
    low: float | None = part("of a number, the least value", None)
    high: float | None = part("of a number, the greatest value", None)


@dataclass(frozen=True)
class MemoryInfo:
    """A memory region that plans may use."""

    name: str = part("its name; plans put values into the region arena")
    align: int = part("bytes that offsets are multiples of: a power of two from 8 to 65536", 64)
    limit: int | None = part("bytes that there are; null: no limit", None)


@dataclass(frozen=True)
class Description:
    """Answer to describe."""

    protocol: int = part("version of the protocol that it speaks: one of those in the question")
    name: str = part("name of the backend, for messages")
    version: str = part("its version; part of cache keys")
    consumes: Literal["ops", "plan"] = part(
        "what emit gets: named ops, or kernels as loops with an order and places in memory", "plan"
    )
    pipeline: str | None = part("passes that prepare the model; null: those that suit what it consumes", None)
    options: tuple[OptionInfo, ...] = part("options that it has", ())
    ops: tuple[str, ...] | None = part("names of all ops that it takes; null: any", None)
    elements: tuple[str, ...] | None = part(
        "all element types that it takes, of every value and inside kernels; null: any", None
    )
    functions: tuple[str, ...] | None = part("all scalar functions that it takes in kernels; null: any", None)
    legalises: bool = part("whether it answers legalise; if not, ops and elements decide alone", default=False)
    memory: tuple[MemoryInfo, ...] = part("memory of the target; empty: one region arena, aligned to 64", ())
    depends: tuple[str, ...] = part(
        "further files that decide what it does, relative to the executable: part of cache keys", ()
    )


@dataclass(frozen=True)
class Refusal:
    """An op that cannot be built."""

    op: int = part("its place in the list of the question, from 0")
    reason: str = part("what is not supported, with the numbers")
    help: str = part("what would make it legal", "")


@dataclass(frozen=True)
class Legality:
    """Answer to legalise."""

    refused: tuple[Refusal, ...] = part("the ops that cannot be built; all others can")


@dataclass(frozen=True)
class Emitted:
    """Answer to emit: what is in the output directory is the program."""

    entry: str = part("the file that stands for the whole, relative to the output directory, with /")
    facts: Mapping[str, int | str] = part("figures for the manifest and the report, by name", {})


@dataclass(frozen=True)
class Failure:
    """Why a request cannot be answered."""

    message: str = part("what is wrong, in a sentence")
    kind: Literal["model", "options", "limit", "protocol", "internal"] = part(
        "whose fault it is: exit code 1, 2, 4, 6 or 6 of dlc", "model"
    )
    help: str = part("what the user can do", "")


@dataclass(frozen=True)
class Response:
    """What the executable writes: one line, then it exits with status 0. Fields that dlc does not know are errors."""

    id: int = part("that of the request")
    result: Description | Legality | Emitted | None = part("the answer, by method; null where there is an error", None)
    error: Failure | None = part("why there is no answer", None)
