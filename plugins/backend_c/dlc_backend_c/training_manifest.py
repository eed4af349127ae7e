"""The section "training" of a manifest: all that a runtime has to know of regions, functions and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc import Port
from dlc.api.training import Bundle, Place
from dlc.runtime.manifest import port_json
from dlc_backend_c.training_program import Part, Training


def template_name(prefix: str, bundle: Bundle) -> str:
    """The file that holds the model without the values of its parameters, or ""."""
    suffix, content = bundle.template
    return f"{prefix}_template{suffix}" if content else ""


def training_json(training: Training) -> dict[str, Any]:
    """The section; names are the model's own, JSON escapes them."""
    bundle, package = training.bundle, training.package
    classes = bundle.classes
    return {
        "regions": {
            region: {"bytes": bundle.size(region), "tensors": [_place(p) for p in places]}
            for region, places in bundle.regions.items()
        },
        "functions": {
            name: {"inputs": _ports(part, "inputs"), "outputs": _ports(part, "outputs")}
            for name, part in training.parts.items()
        },
        "label": bundle.label,
        "classes": None if classes is None else {"count": classes.count, "ignore": classes.ignore},
        "accumulate": bundle.accumulate,
        "facts": dict(sorted(bundle.facts.items())),
        "template": template_name(package.prefix, bundle),
    }


def _place(place: Place) -> dict[str, object]:
    shape = list(place.type.shape)
    found: dict[str, object] = {"name": place.name, "dtype": place.type.dtype.name, "shape": shape}
    return {**found, "offset": place.offset, **({"trained": True} if place.trained else {})}


def _ports(part: Part, direction: str) -> list[dict[str, object]]:
    function, signature = part.function, part.body.plan.signature
    ports: Sequence[Port] = getattr(signature, direction)
    places: Sequence[Place | None] = getattr(function, direction)
    return [port_json(p) for p, place in zip(ports, places, strict=True) if place is None]
