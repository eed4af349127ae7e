"""`dlc list exec:PATH`: what an executable backend says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlc.base.diagnostics import escape, quote
from dlc.cli.listing import Listing
from dlc.cli.terminal import columns

if TYPE_CHECKING:
    from dlc.driver.exec_backend import protocol


def described(target: str) -> Listing:
    """Its description in words and, as the only item, in JSON. Raises DlcError (USAGE, PLUGIN)."""
    from dlc.driver.exec_backend import protocol as p
    from dlc.driver.exec_backend.backend import Exec, target_spec
    from dlc.driver.exec_backend.form import to_json

    backend = Exec.from_spec(target_spec(target, "dlc list"))
    found = backend.description()

    def names(known: tuple[str, ...] | None) -> str:
        return "any" if known is None else ", ".join(known) or "none"

    rows = [
        ("executable", str(backend.program())),
        ("emit gets", {"ops": "named ops", "plan": "a plan of kernels"}[found.consumes]),
        ("pipeline", backend.own_pipeline()),
        ("ops", names(found.ops) + ("; it is asked about each" if found.legalises else "")),
        ("elements", names(found.elements)),
        ("functions", names(found.functions)),
        *(("memory", _memory(m)) for m in found.memory or (p.MemoryInfo("arena"),)),
        *(("depends on", quote(name)) for name in found.depends),
    ]
    lines = [f"{found.name} {found.version}, protocol {found.protocol}", ""]
    lines += [columns([(escape(key), escape(text)) for key, text in rows])]
    if found.options:
        options = [(f"{o.name}={_text(o.default)}", o.doc, f"({_allowed(o)})") for o in found.options]
        lines += ["", "options", columns([tuple(map(escape, ("", *row))) for row in options])]
    item = {"target": target, **to_json(found), "pipeline": backend.own_pipeline()}
    return Listing("\n".join(lines), (item,), ())


def _memory(m: protocol.MemoryInfo) -> str:
    limit = "no limit" if m.limit is None else f"{m.limit:,} bytes"
    return f"{m.name}: {limit}, offsets are multiples of {m.align}"


def _allowed(o: protocol.OptionInfo) -> str:
    """Its type, and the values that it may have."""
    bounds = [f"{word} {value:g}" for word, value in (("from", o.low), ("to", o.high)) if value is not None]
    return " | ".join(o.choices) or " ".join([o.type, *bounds])


def _text(value: protocol.OptionValue) -> str:
    """A value as a target is written."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
