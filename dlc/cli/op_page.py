"""What `dlc ops show` says of an op: from its class, and of ops of packs from their records."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, cast

from dlc.base.diagnostics import escape
from dlc.graph.check_fields import describe, hints
from dlc.graph.op import Op, attr_text

if TYPE_CHECKING:
    from dlc.op_packs.declared import Declared


def op_document(kind: type[Op], plugin: str) -> dict[str, Any]:
    """The page as a JSON object."""
    found: dict[str, Any] = {
        "name": kind.text_name,
        "doc": inspect.getdoc(kind) or "",
        "plugin": plugin,
        "operands": [{"name": n, "type": describe(hints(kind).get(n, Any))} for n in kind.operand_names],
        "attributes": [_attribute(kind, n) for n in kind.attr_names],
        "gradient": "derived" if kind.vjp is Op.vjp else "declared",
    }
    declared: Declared | None = getattr(kind, "declared", None)
    if declared is None:
        found["class"] = f"{_public_module(kind)}.{kind.__qualname__}"
    else:
        found |= {
            "operands": [{"name": n, "type": text} for n, text in declared.texts.operands.items()],
            "attributes": [
                a | {"type": f"{a['type']}{declared.attributes[a['name']].bounds}"} for a in found["attributes"]
            ],
            "require": [c.text for c in declared.require],
            "mathematics": declared.texts.mathematics,
            "gradient": declared.texts.gradient,
            "onnx": list(declared.texts.onnx),
        }
    return found


def _public_module(kind: type[Op]) -> str:
    """The outermost package that exports a class: dlc.ops.linear, not the module in it."""
    words = kind.__module__.split(".")
    names = [".".join(words[:n]) for n in range(1, len(words) + 1)]
    return next(
        n for n in names if n == kind.__module__ or getattr(sys.modules.get(n), kind.__qualname__, None) is kind
    )


def _attribute(kind: type[Op], name: str) -> dict[str, str | None]:
    (field,) = (f for f in fields(cast("Any", kind)) if f.name == name)
    default = None if field.default is MISSING else attr_text(field.default)
    return {"name": name, "type": describe(hints(kind).get(name, Any)), "default": default}


def op_page(document: Mapping[str, Any]) -> str:
    """The page as text."""
    names = ", ".join(o["name"] for o in document["operands"])
    lines = [f"{document['name']}({names})", *(f"    {line}" for line in document["doc"].splitlines())]
    rows = [(o["name"], o["type"]) for o in document["operands"]]
    rows += [
        (a["name"], f"{a['type']}{'' if a['default'] is None else ', by default ' + a['default']}")
        for a in document["attributes"]
    ]
    wide = max((len(name) for name, _ in rows), default=0)
    lines += ["", *(f"{name:{wide}}  {text}" for name, text in rows)] if rows else []
    for key in ("require", "onnx"):
        lines += [f"{key}  {', '.join(document[key])}"] if document.get(key) else []
    if document.get("mathematics"):
        lines += ["", *document["mathematics"].rstrip("\n").splitlines()]
    gradient = document["gradient"]
    if isinstance(gradient, str):
        lines += ["", f"gradient  {gradient}"]
    else:
        lines += ["", *(f"gradient of {name}  {text}" for name, text in gradient.items())]
    if document.get("class"):
        lines.append(f"class     {document['class']}")
    lines.append(f"from plugin {document['plugin']}")
    return "\n".join(map(escape, lines))
