"""Ops that hold graphs as C: a function for each graph, and a branch or a loop around its call.

    static void model_body_0123…(const void *const *inputs, void *const *outputs, …)

A body finds its operands and results as the whole program does. Carried values alternate between two places: where an
iteration wrote, the next one reads. Rows of scanned values are read and written where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.api.region_memory import RegionMemory
from dlc.base.types import Type
from dlc.graph import If, Loop, Op, Scan

ZEROS = "zeros"
"""Instead of the address of a carried value that begins with zeros, which lie nowhere."""
PARAMETERS = "const void *const *inputs, void *const *outputs, unsigned char *a, const unsigned char *w"


@dataclass(frozen=True)
class RegionCall:
    """Where an op that holds graphs finds everything, as C expressions."""

    step: Op
    read: Sequence[str]
    """Of each operand a `const void *`."""
    written: Sequence[str]
    """Of each result a `void *`."""
    memory: RegionMemory
    work: str
    """The op's workspace, an `unsigned char *`."""
    weights: str
    functions: Sequence[str]
    """Of each body."""

    def lines(self) -> list[str]:
        """The statements, a block of their own."""
        match self.step:
            case If():
                found = self._branch()
            case Scan():
                found = self._scan(self.step)
            case Loop():
                found = self._loop(self.step)
            case _:
                raise AssertionError(self.step)
        return ["    {", *(f"        {line}" for line in found), "    }"]

    def _call(self, body: int = 0) -> str:
        return f"{self.functions[body]}(in, out, {self.work}, {self.weights});"

    def _branch(self) -> list[str]:
        condition, *captured = self.read
        return [
            _array("const void *const in[]", captured),
            _array("void *const out[]", self.written),
            "",
            f"if (*(const unsigned char *){condition} != 0) {{",
            f"    {self._call(0)}",
            "} else {",
            f"    {self._call(1)}",
            "}",
        ]

    def _scan(self, step: Scan) -> list[str]:
        count, rows = len(step.carried), len(step.body.outputs) - len(step.carried)
        # The last iteration writes the result.
        first = self.written if step.steps % 2 else [self._second(k) for k in range(count)]
        places = [self._begins(step, k, first[k]) for k in range(count)]
        read = [place if given == ZEROS else given for place, given in zip(places, self.read, strict=False)]
        if not step.steps:
            places = list(self.written[:count])
        lines = [
            "int64_t t;",
            _array("const void *in[]", ["&t", *read, *self.read[count:]]),
            _array("void *out[]", [*first[:count], *self.written[count : count + rows]]),
            "",
            *(self._begun(k, c, places[k]) for k, c in enumerate(step.carried) if places[k] and _bytes(c)),
            f"for (t = 0; t < {step.steps}; t++) {{",
        ]
        for k, x in enumerate(step.scanned, count):
            if nbytes := _row_bytes(x.type):
                lines.append(f"    in[{k + 1}] = {_row('const ', self.read[k], 't', nbytes)};")
        lines += [
            f"    out[{k}] = {_row('', self.written[k], 't', nbytes)};"
            for k in range(count, count + rows)
            if (nbytes := _row_bytes(step.types[k]))
        ]
        for k, c in enumerate(step.carried):
            if step.stored and _bytes(c):
                place, last = self.written[count + rows + k], f"t + 1 == {step.steps}"
                lines.append(f"    in[{k + 1}] = {_row('const ', place, 't', _bytes(c))};")
                lines.append(f"    out[{k}] = {last} ? {self.written[k]} : {_row('', place, '(t + 1)', _bytes(c))};")
        lines.append(f"    {self._call()}")
        if not step.stored:
            lines += self._handed_on(step.carried, 0)
        return [*lines, "}"]

    def _begun(self, k: int, carried: Op, place: str) -> str:
        """What a carried value begins with, in a place."""
        if self.read[k] == ZEROS:
            return f"memset({place}, 0, {_bytes(carried)}u);"
        return f"memcpy({place}, {self.read[k]}, {_bytes(carried)}u);"

    def _begins(self, step: Scan, k: int, out: str) -> str:
        """Where a carried value is put before the first iteration, which writes to `out`; "" where it stays."""
        if step.stored:
            return self.written[len(step.body.outputs) + k]
        other = self._second(k) if out == self.written[k] else self.written[k]
        return other if self.read[k] == ZEROS else ""

    def _loop(self, step: Loop) -> list[str]:
        rest = list(self.read)
        count = [] if step.count is None else [f"const int64_t n = *(const int64_t *){rest.pop(0)};"]
        again = "1" if step.condition is None else f"*(const unsigned char *){rest.pop(0)}"
        begun = [f"memset({self._second(k)}, 0, {_bytes(c)}u);" for k, c in enumerate(step.carried) if rest[k] == ZEROS]
        rest[: len(step.carried)] = [
            self._second(k) if given == ZEROS else given for k, given in enumerate(rest[: len(step.carried)])
        ]
        ends = [f"if (in[{k + 1}] != {self.written[k]}) {{" for k in range(len(step.carried))]
        return [
            *count,
            f"unsigned char again = {again};",
            "int64_t t = 0;",
            _array("const void *in[]", ["&t", *rest]),
            _array("void *out[]", ["&again", *self.written]),
            "",
            *begun,
            f"while (again != 0{' && t < n' if count else ''}) {{",
            f"    {self._call()}",
            *self._handed_on(step.carried, 1),
            "    t++;",
            "}",
            *(
                line
                for k, (end, c) in enumerate(zip(ends, step.carried, strict=True))
                if _bytes(c)
                for line in (end, f"    memcpy({self.written[k]}, in[{k + 1}], {_bytes(c)}u);", "}")
            ),
        ]

    def _handed_on(self, carried: Sequence[Op], first: int) -> list[str]:
        """What was written is read next, and the other place is written."""
        lines: list[str] = []
        for k, c in enumerate(carried):
            if _bytes(c):
                at, result = first + k, self.written[k]
                lines.append(f"    in[{k + 1}] = out[{at}];")
                lines.append(f"    out[{at}] = out[{at}] == {result} ? {self._second(k)} : {result};")
        return lines

    def _second(self, k: int) -> str:
        """The other place of a carried value; none where it has no elements, as there may be no memory."""
        if k >= len(self.memory.seconds):
            return self.written[k]
        if not self.step.types[k].nbytes:
            return "(void *)0"
        return f"(void *)({self.work} + {self.memory.seconds[k]})"


def _bytes(op: Op) -> int:
    return op.type.nbytes


def _row_bytes(type: Type) -> int:
    return Type(type.dtype, type.shape[1:]).nbytes


def _row(const: str, place: str, number: str, nbytes: int) -> str:
    return f"({const}void *)(({const}unsigned char *){place} + (size_t){number} * {nbytes}u)"


def _array(declared: str, values: Sequence[str]) -> str:
    return f"{declared} = {{{', '.join(values) or 'NULL'}}};"
