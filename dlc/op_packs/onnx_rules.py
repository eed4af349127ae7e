"""Import rules for the ONNX operators that a pack names, in the form in which plugins' modules have them.

The ONNX frontend is a plugin; what is used here of it is the node that it hands to rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from dlc.base.lazy import Lazy
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.op_packs.declared import REQUIRED
from dlc.op_packs.load import LoadedOp, Pack
from dlc.op_packs.schema import OnnxRecord

_READERS: Final[Mapping[str, str]] = {"bool": "flag", "text": "text"}
"""Kinds of attributes that a node reads under another name."""


@dataclass(frozen=True)
class PackRules(Lazy):
    """The rules of one domain: there is nothing left to import."""

    module: ModuleType = field(default_factory=lambda: ModuleType(""), compare=False)

    @property
    def is_loaded(self) -> bool:
        """They are made with the pack."""
        return True

    def load(self) -> ModuleType:
        """The module."""
        return self.module


def pack_rules(pack: Pack, package: str) -> tuple[PackRules, ...]:
    """The rules of a pack, which belongs to a package, by domain."""
    modules: dict[str, ModuleType] = {}
    for op in pack.ops:
        for onnx in op.read.record.onnx:
            module = modules.setdefault(onnx.domain, ModuleType(f"{package}.{pack.name}", pack.record.doc))
            rule: Any = _rule(op, onnx)
            rule.__module__, rule.__doc__ = module.__name__, op.read.record.doc
            rule.onnx_rules = [(onnx.name, onnx.since, onnx.domain)]
            setattr(module, f"{onnx.name}_{onnx.since}", rule)
    return tuple(PackRules(domain, module.__name__, module) for domain, module in modules.items())


def _rule(op: LoadedOp, onnx: OnnxRecord) -> Callable[[Any], Op]:
    """The function from a node to an op."""
    declared = op.kind.declared
    names = tuple(declared.operands) if onnx.operands is None else tuple(onnx.operands)

    def rule(node: Any) -> Op:
        if len(node.inputs) > len(names):
            raise ShapeError(f"{onnx.name} has {len(node.inputs)} operands; {', '.join(names)} are known")
        operands = {n: node.optional(k) if declared.operands[n].optional else node.x(k) for k, n in enumerate(names)}
        attributes: dict[str, Any] = {}
        for name, attribute in declared.attributes.items():
            key = onnx.rename.get(name, name)
            if node.has(key):
                kind = attribute.record.type
                attributes[name] = getattr(node, _READERS.get(kind, kind))(key)
            elif name in onnx.default:
                attributes[name] = attribute.checked(onnx.default[name])
            elif attribute.default is REQUIRED:
                raise ShapeError(f"the attribute {key} is missing")
        node.ignore(*onnx.ignore)
        return op.kind(**operands, **attributes)

    return rule
