"""Whose failure an exception is: a plugin's, when its code raised it or ran the step, and otherwise dlc's own.

    step of a plugin                     →  that plugin, wherever below it the exception came up
    else the innermost frame of
      · a plugin's code                  →  that plugin: a hook, an op's definition, a loader
      · a method of a plugin's class     →  that plugin: what dlc derives from an op's definition, for example

The traceback tells more than wrappers around every call into a plugin could: it also knows calls that nobody wrapped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from dlc.plugins.plugin import Plugin


def owner_of(problem: BaseException, package: str = "") -> Plugin | None:
    """The plugin of a third party that a failure belongs to; None: it is dlc's own.

    Args:
        problem: What was raised.
        package: Top-level package of the step that was running, "" outside of steps.
    """
    from dlc.plugins.discovery import list_plugins

    plugins = list_plugins()
    ours = {"", "dlc", *(p.package for p in plugins if p.is_own)}  # whatever an entry point of somebody else says
    others = {p.package: p for p in plugins if p.package not in ours}
    if package in others:
        return others[package]
    owners = (others.get(name) for frame in _frames(problem) for name in _packages(frame))
    return next((owner for owner in owners if owner is not None), None)


def origin_of(problem: BaseException, state: object) -> tuple[str, ...]:
    """Nodes of the model behind the op that a step worked on when it failed; () when that is not known.

    Args:
        problem: What was raised.
        state: What the step was given.
    """
    from dlc.graph.graph import Graph
    from dlc.graph.op import Op

    graph = getattr(state, "graph", state)
    if not isinstance(graph, Graph):
        return ()
    for frame in _frames(problem):
        for name in ("self", "op"):
            found = frame.f_locals.get(name)
            # An op that is being made has no digest yet.
            if isinstance(found, Op) and "digest" in vars(found) and (origin := graph.origin(found)):
                return origin
    return ()


def _frames(problem: BaseException) -> Iterator[FrameType]:
    """Innermost first."""
    from traceback import walk_tb  # with what it imports, start-up would pay for it

    return (frame for frame, _ in reversed(list(walk_tb(problem.__traceback__))))


def _packages(frame: FrameType) -> Iterator[str]:
    """Top-level packages of a frame's code and of the class that its method belongs to."""
    yield str(frame.f_globals.get("__name__", "")).partition(".")[0]
    for name in ("self", "cls"):
        receiver: Any = frame.f_locals.get(name)
        if receiver is not None:
            kind = receiver if isinstance(receiver, type) else type(receiver)
            yield str(kind.__module__).partition(".")[0]
