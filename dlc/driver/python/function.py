"""`Function`: a Python function on arrays, traced into a graph for the types it is called with, compiled and called.

@dlc.kernel
def f(x: dlc.f32["n=1..64", 8], w: dlc.f32[8]):      f(x, w)   →   trace once, compile once, call
    return np.tanh(x @ w)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from dlc.base.types import Type, dtype_of_numpy
from dlc.driver.python.building import program_of_graph
from dlc.driver.python.options import Options
from dlc.driver.python.place import refused
from dlc.driver.python.traced import Traced, as_traced, is_array
from dlc.driver.python.tree import leaves, mapped, shape_of
from dlc.graph.graph import Graph, make_graph
from dlc.graph.structure import Input
from dlc.runtime.calling import as_array
from dlc.runtime.dlpack import is_foreign

if TYPE_CHECKING:
    from dlc.api.program import Signature
    from dlc.driver.python.compiled import BuildReport, Compiled

_RESULT: Final = "result"
"""What the only result of a function is called in its program."""


@dataclass(frozen=True)
class Parameters:
    """What a function takes."""

    names: tuple[str, ...]
    bind: Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]
    """Arguments by name; raises TypeError."""
    types: Mapping[str, Type] = field(default_factory=dict[str, Type])
    """Those that are declared."""


@dataclass(frozen=True)
class _Special:
    """The program for arguments of some types."""

    compiled: Compiled
    result: Any
    """What the function returns, with the names of outputs as leaves, and values that are none as they are."""


@dataclass(frozen=True)
class _Output:
    name: str


class Function:
    """A function that runs compiled. It is called as the Python function is, with arrays of numpy or `__dlpack__`.

    There is one program for each combination of element types and shapes of the arguments, and of the values of those
    that are no arrays; where annotations declare types, one program takes all sizes that they allow. Called on traced
    arrays, inside of another such function, it becomes a part of that. Threads may call it at the same time; while one
    compiles, those that need the same function wait.
    """

    def __init__(
        self, name: str, call: Callable[[dict[str, Any]], Any], parameters: Parameters, options: Options | None = None
    ) -> None:
        self.__name__ = name
        self.parameters = parameters
        self.options = options or Options()
        self.on_traced = call
        """The function itself, on traced arrays by parameter."""
        self._programs: dict[Hashable, _Special] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<dlc function {self.__name__}({', '.join(self.parameters.names)})>"

    def with_options(self, options: Options) -> Function:
        """The same function, compiled in another way."""
        return Function(self.__name__, self.on_traced, self.parameters, options)

    @property
    def compiled(self) -> tuple[Compiled, ...]:
        """The programs that there are by now."""
        return tuple(special.compiled for special in self._programs.values())

    @property
    def signature(self) -> Signature:
        """Inputs and outputs of the program that was made last. Raises DlcError: there is none yet."""
        return self._last.signature

    @property
    def report(self) -> BuildReport:
        """How the program that was made last was built. Raises DlcError: there is none yet."""
        return self._last.report

    @property
    def _last(self) -> Compiled:
        if not self._programs:
            help = "call it, or declare the types of all parameters and use dlc.compile"
            raise refused("no-program", f"{self.__name__} has not been compiled yet: no call told its types", help)
        return self.compiled[-1]

    def compile_annotated(self) -> None:
        """Compile now, where the types of all parameters are declared."""
        names = self.parameters.names
        if names and set(names) == set(self.parameters.types):
            self._program({name: Traced(Input(name, of)) for name, of in self.parameters.types.items()})

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The ops that the function is for arguments like these; annotated parameters may be left out."""
        bound = dict(self.parameters.types) if not args and not kwargs else self._bound(args, kwargs)
        return self._traced(self._specified(bound)[0])[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, its arrays as numpy arrays over the program's results.

        Args:
            args: As the function's.
            kwargs: As the function's; and `out`, if the function has no parameter of this name: a buffer to write the
                result into, or several by the names of the signature's outputs.

        Raises:
            DlcError: arguments do not fit the function or its annotations; it cannot be traced (at its line); it
                cannot be compiled.
        """
        out = kwargs.pop("out", None) if "out" not in self.parameters.names else None
        bound = self._bound(args, kwargs)
        if any(isinstance(v, Traced) for v in leaves(bound).values()):
            if out is not None:
                raise refused("wrong-argument", "out: a traced function makes new arrays")
            return self.on_traced(bound)
        arrays = self._arrays(bound)
        special = self._program(arrays)
        reads = special.compiled.reads
        given = {path: v for path, v in leaves(arrays).items() if path in reads and is_array(v)}
        buffers = None if out is None else _buffers(out)
        got = special.compiled(given, out=buffers)
        return mapped(special.result, "", lambda _, v: got[v.name] if isinstance(v, _Output) else v)

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.parameters.bind(args, kwargs)
        except TypeError as problem:
            names = ", ".join(self.parameters.names)
            raise refused("wrong-argument", f"{self.__name__}: {problem}", f"its parameters: {names}") from None

    def _arrays(self, bound: dict[str, Any]) -> dict[str, Any]:
        """Arguments with all that are arrays as numpy arrays, in place."""
        declared = self.parameters.types

        def of(path: str, value: Any) -> Any:
            if is_array(value) or is_foreign(value) or hasattr(value, "__array_interface__"):
                return as_array("input", path, value)
            if path in declared:  # Python's numbers have no type of their own
                return as_array("input", path, value).astype(declared[path].dtype.numpy)
            return value

        return {name: mapped(value, name, of) for name, value in bound.items()}

    def _specified(self, bound: dict[str, Any]) -> tuple[dict[str, Any], Hashable]:
        """Arguments with a `Type` for each array, and what tells their program from others."""
        key: list[Hashable] = [shape_of(bound)]

        def of(path: str, value: Any) -> Any:
            found = value
            if path in self.parameters.types:
                found = self.parameters.types[path]
            elif is_array(value):
                dtype = dtype_of_numpy(value.dtype)
                if dtype is None:
                    raise refused("wrong-argument", f"input {path}: dlc has no elements of type {value.dtype}")
                found = Type(dtype, value.shape)
            elif isinstance(value, Traced):
                found = value.type
            key.append(str(found) if isinstance(found, Type) else (type(found).__name__, _hashable(path, found)))
            return found

        return {name: mapped(value, name, of) for name, value in bound.items()}, tuple(key)

    def _program(self, bound: dict[str, Any]) -> _Special:
        types, key = self._specified(bound)
        found = self._programs.get(key)
        if found is None:
            with self._lock:
                found = self._programs.get(key)
                if found is None:
                    graph, result = self._traced(types)
                    found = _Special(program_of_graph(graph, self.__name__, self.options), result)
                    self._programs[key] = found
        return found

    def _traced(self, types: dict[str, Any]) -> tuple[Graph, Any]:
        """The graph of the function, and what it returns with the outputs' names as leaves."""
        inputs: dict[str, Input] = {}

        def of(path: str, value: Any) -> Any:
            if not isinstance(value, Type):
                return value
            inputs[path] = Input(path, value)
            return Traced(inputs[path])

        returned = self.on_traced({name: mapped(value, name, of) for name, value in types.items()})
        outputs: dict[str, Any] = {}

        def name(path: str, value: Any) -> Any:
            if value is None or isinstance(value, (str, bytes)):
                return value
            outputs[path] = as_traced(value).op
            return _Output(path)

        result = mapped(returned, "" if isinstance(returned, Mapping) else _RESULT, name)
        if not outputs:
            raise refused("no-result", f"{self.__name__} returns no array", "return what it computes")
        return make_graph(tuple(inputs.values()), outputs), result


def _buffers(out: Any) -> Mapping[str, object]:
    """Buffers by the name of the output; one alone is that of the only one."""
    return cast("Mapping[str, object]", out) if isinstance(out, Mapping) else {_RESULT: out}


def _hashable(path: str, value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        help = "pass an array, a number, a text, or lists and dicts of these"
        raise refused("wrong-argument", f"{path}: {type(value).__name__} is no argument to compile for", help) from None
    return value
