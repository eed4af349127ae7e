"""`@dlc.kernel`: functions to compile, from Python functions on arrays or from text in the kernel language."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin, overload

from dlc.api.source import Source
from dlc.base.array_types import ArrayType
from dlc.base.diagnostics import ExitCode, Location, did_you_mean, error
from dlc.base.types import DType, Type
from dlc.base.wrong_kind import wrong_kind
from dlc.driver.python.function import Function, Parameters
from dlc.driver.python.inline import function_of_graph
from dlc.driver.python.options import Options

if TYPE_CHECKING:
    from dlc.graph.graph import Graph

_KERNEL: Final = re.compile(r"\s*kernel\s+\w+\s*\(")


@overload
def kernel(function: Callable[..., Any] | str, **options: Any) -> Function: ...
@overload
def kernel(**options: Any) -> Callable[[Callable[..., Any]], Function]: ...


def kernel(function: Any = None, **options: Any) -> Any:
    """Make a function that runs compiled, of a Python function on arrays or of text in the kernel language.

    A Python function is called once for each combination of types, with traced arrays, on which numpy's operators and
    functions build ops. A function whose documentation is a kernel, `kernel f(x: float[8]) -> (y: float[8]) { … }`, is
    that kernel; so is such a text itself.

    Args:
        function: The function or the text; without one, a decorator is returned.
        options: As for `dlc.compile`: target, settings, cache, ….

    Returns:
        The function, compiled when it is called; or the decorator that makes one.

    Raises:
        DlcError: an annotation is no type, or the kernel's text is wrong.
    """
    if unknown := sorted(options.keys() - (known := [f.name for f in fields(Options)])):
        help = did_you_mean(unknown[0], known, "options")
        raise error("unknown-option", f"dlc.kernel has no option {unknown[0]}", help=help, exit_code=ExitCode.USAGE)
    said = Options(**options)
    if function is None:
        return partial(kernel, **options)
    if isinstance(function, Function):
        return function.with_options(said) if options else function
    if isinstance(function, str):
        return of_text(function, "kernel", said)
    if not callable(function) or isinstance(function, type):
        help = "dlc.compile takes models and graphs"
        raise wrong_kind("function", function, "a Python function on arrays, or a text in the kernel language", help)
    text = inspect.getdoc(function) or ""
    if _KERNEL.match(text):
        return of_text(text, function.__name__, said)
    return of_python(function, said)


def of_python(function: Callable[..., Any], options: Options | None = None) -> Function:
    """A Python function, with the types that its annotations declare."""
    name = getattr(function, "__name__", type(function).__name__)
    place = _place(function)
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as problem:
        message = f"the annotations of {name} cannot be read: {problem}"
        raise error("bad-annotation", message, location=place, exit_code=ExitCode.USAGE) from None
    types = _types({p.name: p.annotation for p in signature.parameters.values()}, place)

    def bind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def call(bound: dict[str, Any]) -> Any:
        again = inspect.BoundArguments(signature, bound)  # pyright: ignore[reportArgumentType]
        return function(*again.args, **again.kwargs)

    found = Function(name, call, Parameters(tuple(signature.parameters), bind, types), options)
    found.__doc__, found.__module__ = function.__doc__, getattr(function, "__module__", "")
    return found


def _place(function: Any) -> Location:
    code = getattr(function, "__code__", None)
    return Location(code.co_filename, line=code.co_firstlineno) if code else Location()


def _types(annotations: Mapping[str, Any], place: Location) -> dict[str, Type]:
    """The types that are declared, with the bounds of sizes that stand at any of them."""
    declared: dict[str, ArrayType] = {}
    for name, annotation in annotations.items():
        parts = get_args(annotation)[1:] if get_origin(annotation) is Annotated else (annotation,)
        for part in parts:
            if isinstance(part, (ArrayType, DType)):
                declared[name] = part if isinstance(part, ArrayType) else ArrayType(part, ())
    bounds: dict[str, tuple[int, int, int]] = {}
    try:
        for of in declared.values():
            for size, limits in of.bounds().items():
                if bounds.setdefault(size, limits) != limits:
                    raise ValueError(f"two ranges for the size {size}")
        return {name: Type(of.dtype, of.shape(bounds)) for name, of in declared.items()}
    except ValueError as problem:
        message = f"an annotation: {problem}"
        raise error("bad-annotation", message, location=place, exit_code=ExitCode.USAGE) from None


def of_text(text: str, name: str, options: Options) -> Function:
    """A kernel in the kernel language. Raises DlcError with line and column in the text."""
    from dlc.base.report import Report
    from dlc.plugins.discovery import load_registry
    from dlc.spec import Spec

    source = Source(data=text.encode(), label=f"{name}.kernel")
    graph: Graph = load_registry(kinds=("frontends",)).frontend(Spec("kernel")).graph(source, Report())
    return function_of_graph(graph, name, options)
