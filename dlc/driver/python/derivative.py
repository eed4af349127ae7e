"""`dlc.grad` and `dlc.value_and_grad`: functions of gradients, by dlc's own differentiation of what was traced.

y = f(x, w), y a scalar   →   value_and_grad(f, wrt="w"):  x, w  ↦  y, dy/dw
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from dlc.base.diagnostics import ExitCode, did_you_mean, error, quote
from dlc.base.wrong_kind import described, wrong_kind
from dlc.driver.python.compiled import Compiled
from dlc.driver.python.function import Function
from dlc.driver.python.inline import function_of_graph, replaced
from dlc.driver.python.kernel import of_python
from dlc.driver.python.place import refused
from dlc.driver.python.traced import Traced, as_traced
from dlc.driver.python.tree import leaves, mapped
from dlc.graph.gradient import gradients
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Input, Splat

Wrt = int | str | Sequence["int | str"]
_DEPTH: ContextVar[int] = ContextVar("depth of differentiation", default=0)


def grad(function: Any, wrt: Wrt = 0, *, of: str = "") -> Function:
    """The function of the gradient of a scalar: of the same arguments, it returns what `wrt` has around the gradients.

    Args:
        function: A function made by `@dlc.kernel`, a Python function on arrays, what `dlc.compile` made of a model, a
            `dlc.Graph`, or what this function returned.
        wrt: The argument to differentiate by, by its place or name; several give a tuple. An argument may be a list,
            tuple or dict of arrays. Floats only.
        of: The output to differentiate, where the function returns a dict; by default its only one.

    Returns:
        A function compiled when it is called: of the same arguments, with gradients in the shapes of what `wrt` has.

    Raises:
        DlcError: there is no such argument; and when it is called: the output is no scalar, an argument has no floats,
            or an op on the way has no gradient.
    """
    both = value_and_grad(function, wrt, of=of)
    call = both.on_traced
    return Function(f"grad_{_name(function)}", lambda bound: call(bound)[1], both.parameters, both.options)


def value_and_grad(function: Any, wrt: Wrt = 0, *, of: str = "") -> Function:
    """The function of a scalar and its gradient, which computes both at once.

    Args:
        function: As for `grad`.
        wrt: As for `grad`.
        of: As for `grad`.

    Returns:
        A function compiled when it is called: of the same arguments, with the pair (value, gradients).

    Raises:
        DlcError: as `grad`.
    """
    f = _function(function)
    names = _arguments(f, wrt)
    if not isinstance(of, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong_kind("of", of, "the name of an output", 'for example of="loss"')

    def call(bound: dict[str, Any]) -> Any:
        with _fresh() as depth:
            by: dict[str, Op] = {}
            inner: list[Input] = []

            def stand_in(path: str, value: Any) -> Traced:
                given = as_traced(value)
                if not given.op.dtype.is_float:
                    raise refused("no-gradient", f"{path} is {given.type.text}: only floats have gradients")
                # An input of its own, so that what the function reads otherwise of the same value does not count.
                inner.append(Input(f"{path} of {depth}", given.type))
                by[inner[-1].digest] = given.op
                return Traced(inner[-1])

            arguments = {n: mapped(v, n, stand_in) if n in names else v for n, v in bound.items()}
            value = _scalar(f, f.on_traced(arguments), of)
            found = gradients((value.op,), (Splat(1.0, value.type),), inner)
            outer = iter(map(Traced, replaced((value.op, *found), by)))
        whole = next(outer)
        taken = {n: mapped(arguments[n], n, lambda _path, _leaf: next(outer)) for n in arguments if n in names}
        single = isinstance(wrt, (int, str))
        return whole, taken[names[0]] if single else tuple(taken[n] for n in names)

    return Function(f"value_and_grad_{_name(function)}", call, f.parameters, f.options)


@contextmanager
def _fresh() -> Generator[int]:
    """A number that no differentiation around this one has."""
    token = _DEPTH.set(_DEPTH.get() + 1)
    try:
        yield _DEPTH.get()
    finally:
        _DEPTH.reset(token)


def _name(function: Any) -> str:
    return getattr(function, "__name__", "model")


def _function(given: Any) -> Function:
    if isinstance(given, Function):
        return given
    if isinstance(given, Compiled):
        return function_of_graph(given.graph, "model", given.options)
    if isinstance(given, Graph):
        return function_of_graph(given, "graph")
    if callable(given) and not isinstance(given, type):
        return of_python(given)
    help = "give a function made by @dlc.kernel, a Python function, a dlc.Graph, or what dlc.compile returns"
    message = f"{described(given)} cannot be differentiated"
    raise error("no-gradient", message, help=help, exit_code=ExitCode.USAGE)


def _arguments(f: Function, wrt: Wrt) -> list[str]:
    """Names of what `wrt` says. Raises DlcError (USAGE)."""
    given: object = wrt  # whatever the annotation promises
    several = list[object](given) if isinstance(given, (list, tuple)) else [given]
    if not several or not all(isinstance(one, (int, str)) and not isinstance(one, bool) for one in several):
        help = 'for example wrt=0, wrt="w" or wrt=("w", "b")'
        raise wrong_kind("wrt", given, "an argument's place or name, or several in a tuple", help)
    return [_argument(f, cast("int | str", one)) for one in several]


def _argument(f: Function, one: int | str) -> str:
    names = f.parameters.names
    if isinstance(one, str):
        if one in names:
            return one
        message, help = f"{f.__name__} has no argument {quote(one)}", did_you_mean(one, names, "arguments")
    elif -len(names) <= one < len(names):
        return names[one]
    else:
        message, help = f"{f.__name__} has no argument {one}: there are {len(names)}", f"they are {', '.join(names)}"
    raise error("no-gradient", message, help=help, exit_code=ExitCode.USAGE)


def _scalar(f: Function, returned: Any, of: str) -> Traced:
    """What is differentiated."""
    found = leaves(returned)
    if of:
        if not isinstance(returned, Mapping) or of not in found:
            raise refused("no-gradient", f"{f.__name__} returns no {quote(of)}", did_you_mean(of, found, "outputs"))
        found = {of: found[of]}
    if len(found) != 1:
        raise refused(
            "no-gradient", f"{f.__name__} returns {len(found)} arrays", "return one, or a dict and say of=NAME"
        )
    (value,) = map(as_traced, found.values())
    if value.shape or not value.op.dtype.is_float:
        help = "differentiate a single float: return its sum or mean, as numpy.mean(y)"
        raise refused("no-gradient", f"{f.__name__} returns {value.type.text}, which is no scalar", help)
    return value
