"""Numbers of operands and results, as the standard's schemas have them."""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx

from dlc_frontend_onnx.calls import domain_of
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported


@cache
def _counts(operator: str, domain: str, version: int) -> tuple[int, int, int, int] | None:
    """Least and greatest number of operands and of results that the standard allows, if it knows the operator."""
    try:
        schema: Any = onnx.defs.get_schema(operator, version, domain)
    except onnx.defs.SchemaError:
        return None
    return schema.min_input, schema.max_input, schema.min_output, schema.max_output


def check_counts(proto: onnx.NodeProto, version: int, lenient: bool) -> None:
    """Refuse numbers of operands and results that the standard does not have; too few operands are the rule's concern
    where attributes may stand in their place."""
    found = _counts(proto.op_type, domain_of(proto), version)
    if found is None:
        return
    for what, count, low, high in (
        ("operands", len(proto.input), *found[:2]),
        ("results", len(proto.output), *found[2:]),
    ):
        if lenient and what == "operands" and count < low:
            continue
        if not low <= count <= high:
            wanted = f"{low}" if low == high else f"at least {low}" if count < low else f"at most {high}"
            raise Unsupported(f"it has {what}: {count}, and should have {wanted}", MALFORMED)
