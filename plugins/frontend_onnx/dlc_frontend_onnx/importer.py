"""NodeProtos → ops: one scope of values, node by node in topological order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
import onnx

from dlc.base.diagnostics import DlcError, Location
from dlc.base.extents import Undecided, is_open, symbol
from dlc.base.polynomials import Symbol
from dlc.base.types import Type
from dlc.graph import Constant, Input, Op, Splat
from dlc.graph.precise import computed_once
from dlc.graph.walk import toposort
from dlc.kernel.define import ShapeError
from dlc.ops.shape_values import ShapeValues
from dlc_frontend_onnx.assumed import Assumed
from dlc_frontend_onnx.budget import Budget
from dlc_frontend_onnx.calls import Key, domain_of, key_of, versions_of
from dlc_frontend_onnx.constants import Constants
from dlc_frontend_onnx.counts import check_counts
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.frame import Frame, Scope, attributes_of, check_result, remember, results_of
from dlc_frontend_onnx.functions import Body, body_of, has_body, without_inputs
from dlc_frontend_onnx.kernels import DOMAIN, Kernels
from dlc_frontend_onnx.node import Array, Node
from dlc_frontend_onnx.order import between, node_names
from dlc_frontend_onnx.refusals import Refusals
from dlc_frontend_onnx.regions import Around
from dlc_frontend_onnx.remedies import Remedies
from dlc_frontend_onnx.rules import OWN, ImportRule, RuleTable, own_rules
from dlc_frontend_onnx.sequences import Resolved, kind_of
from dlc_frontend_onnx.tensors import check_size, memory_tensor
from dlc_frontend_onnx.texts import Texts
from dlc_frontend_onnx.unsupported import MALFORMED, Conclusive, Unsupported

MAX_DEPTH = 24
"""Functions and branches inside each other; deeper nesting is a mistake or an attack."""
MAX_ORDER = 4
"""Gradients of gradients; each order more than doubles the ops, and takes the ones before it again."""
MAX_SHOWN = 8
"""Operands whose types a message shows."""

_SOME_SIZES: Final = (
    "shapes may be right for some of the sizes only: --dim NAME=64..512/8 gives multiples of 8, "
    "--dim NAME=OTHER says that two sizes are equal"
)

T = TypeVar("T")


@dataclass
class Importer:
    """Imports the nodes of one model."""

    source: str
    versions: Mapping[str, int]
    """Version of the operator set by domain."""
    functions: Mapping[Key, onnx.FunctionProto]
    """The model's own functions."""
    limit: int
    """Bytes that one tensor may take."""
    budget: Budget
    refusals: Refusals
    kernels: Kernels
    own: Collection[str] = frozenset()
    """Results that repeat a parameter and are parameters themselves."""
    rules: RuleTable = field(default_factory=own_rules)
    remedies: Remedies = field(default_factory=Remedies)
    read_as: Mapping[str, str] = field(default_factory=dict[str, str])
    """Domain → the domain as whose operators its own are read."""
    constants: Constants = field(default_factory=Constants)
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    declared: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])
    """Shapes that the model declares for values of its main graph."""
    assumed: Assumed = field(default_factory=Assumed)
    texts: Texts = field(default_factory=Texts)
    lenient: bool = False
    """Whether what exporters write against the standard is read where there is one sensible reading."""
    quirks: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(operator and node, how it was read)."""
    taken: set[str] = field(default_factory=set[str])
    """Names that no size may have."""
    found: dict[str, int] = field(default_factory=dict[str, int])
    """Digest of a mask → the dimension of what it keeps."""
    imported: int = 0
    """Nodes so far, those in branches and iterations and those imported again for derivatives among them."""
    guesses: set[str] = field(default_factory=set[str])
    """Digests of ops that stand for what is not known, and of what follows from them: inputs with open dimensions, and
    results of refused nodes. Nothing is built of them; they are there to find all that is unsupported at once."""
    types: Mapping[str, Type] = field(default_factory=dict[str, "Type"])
    """Declared types of values in floating point."""
    order: int = 0
    """Derivatives that are being read, one inside the other."""
    unroll: int = 512
    """See `Values.unroll`."""
    bodies: int = 0
    """Bodies of loops that were read so far."""
    frames: list[Frame] = field(default_factory=list["Frame"])
    counts: dict[Symbol, Op] = field(default_factory=dict[Symbol, Op])
    """What is computed for sizes that depend on data."""

    def __post_init__(self) -> None:
        self.shapes = ShapeValues(self.constants.value)

    # ---- Values: what rules ask
    def value(self, op: Op) -> Array | None:
        """The value of a small op that is constant, or follows from dimensions that are numbers, else None."""
        found = self.constants.value(op)
        if found is None and (numbers := self.shapes.numbers(op)) is not None and not is_open(numbers):
            return np.array(numbers, op.dtype.numpy).reshape(op.shape)
        return found

    def extents(self, op: Op) -> tuple[int, ...] | None:
        """The elements of a small integer value that follow from sizes of dimensions, else None."""
        return self.shapes.numbers(op)

    def found_size(self, name: str, mask: Op) -> int:
        """See `Values.found_size`."""
        if mask.digest not in self.found:
            self.found[mask.digest] = symbol(self.size_name(name), 0, mask.type.capacity)
        return self.found[mask.digest]

    def size_name(self, name: str) -> str:
        """See `Values.size_name`."""
        plain = re.sub(r"\W", "_", f"{name}_size", flags=re.ASCII)
        plain = f"n{plain}" if plain[0].isdigit() else plain
        while plain in self.taken:
            plain += "_"
        self.taken.add(plain)
        return plain

    def quirk(self, node: Node, what: str, reading: str) -> None:
        """See `Values.quirk`."""
        if self.lenient:
            self.quirks.append((f"{node.proto.op_type} {node.name}", f"{what}: read {reading}"))
        else:
            help = f"--lenient reads it {reading}"
            self.refusals.refuse(node.proto.op_type, node.name, Unsupported(what, help))

    def assume(self, op: Op, choices: Sequence[Sequence[int]]) -> None:
        """See `Values.assume`."""
        self.assumed.add(op, choices)

    def subgraph(self, graph: onnx.GraphProto, node: Node, operands: Sequence[Op] = ()) -> tuple[Op | None, ...]:
        """The outputs of a branch or of one iteration, which sees the values around its node."""
        around = self.frames[-1]
        scope = dict(around.scope)
        for t in graph.initializer:
            scope[t.name] = Constant(memory_tensor(t))
        scope |= {i.name: x for i, x in zip(graph.input, operands, strict=True)}
        self._check_depth()
        prefix = "" if around.origin else f"{node.name}/"
        self.run(graph.node, replace(around, scope=scope, prefix=prefix))
        missing = [o.name for o in graph.output if o.name not in scope]
        if missing:
            raise Unsupported(f"its result {missing[0]} is not computed", MALFORMED)
        return tuple(scope[o.name] for o in graph.output)

    def attempt(self, make: Callable[[], T], node: Node) -> tuple[T | None, Refusals]:
        """See `Values.attempt`."""
        around, frames, quirks = self.refusals, len(self.frames), len(self.quirks)
        self.refusals = trial = Refusals(self.source)
        found: T | None = None
        try:
            found = make()
        except Conclusive:
            raise
        except Unsupported as e:
            trial.refuse(node.proto.op_type, node.name, e)
        except ShapeError as e:
            trial.fail("shape", f"{node.proto.op_type}: {e}", node.name)
        finally:
            self.refusals = around
            del self.frames[frames:]
        if found is None or trial.found:
            del self.quirks[quirks:]
        return found, trial

    def report(self, refusals: Refusals) -> None:
        """See `Values.report`."""
        self.refusals.add(refusals)

    def around(self) -> Around:
        """See `Values.around`."""
        values = [op for op in self.frames[-1].scope.values() if op is not None]
        return Around(values, self.constants.is_constant, self.origins)

    def fresh(self) -> str:
        """See `Values.fresh`."""
        self.bodies += 1
        return f"body {self.bodies}"

    def named(self, name: str, instead: Mapping[str, Op] = MappingProxyType({})) -> Op | None:
        """The value of this name where the node stands, computed with others `instead` of their own; None if refused.

        What depends on those others is imported anew: two equal constants are one op, so that no replacement of ops
        could tell one name's uses from the other's.
        """
        frame = self.frames[-1]
        for asked in (name, *instead):
            if asked not in frame.scope:
                raise Unsupported(f"it names {asked}, which nothing before it computes", MALFORMED)
        if frame.scope[name] is None:
            return None
        again = between(frame.nodes, instead, name)
        self._count(again)
        if self.order == MAX_ORDER:
            raise Unsupported(f"a derivative of an order above {MAX_ORDER}", "differentiate less often")
        self.order += 1
        inner = replace(frame, scope={**frame.scope, **instead})
        self.frames.append(inner)
        for proto in again:
            self._one(proto, frame.origin or frame.prefix + (proto.name or proto.op_type), inner)
            inner.scope.update(instead)
        self.frames.pop()
        self.order -= 1
        return inner.scope[name]

    # ---- nodes
    def run(self, nodes: Sequence[onnx.NodeProto], frame: Frame) -> None:
        """Import nodes, given in topological order, into the frame's scope."""
        self._count(nodes)
        self.frames.append(replace(frame, nodes=(*frame.nodes, *nodes)))
        for name, proto in zip(node_names(nodes), nodes, strict=True):
            self._one(proto, frame.origin or frame.prefix + name, frame)
        self.frames.pop()

    def _count(self, nodes: Sequence[onnx.NodeProto]) -> None:
        self.imported += len(nodes)
        self.budget.check("nodes", self.imported, "with its iterations, branches and derivatives the model has")

    def _one(self, proto: onnx.NodeProto, name: str, frame: Frame) -> None:
        scope, outermost = frame.scope, not frame.prefix and not frame.origin
        inputs = tuple(scope.get(i) if i else None for i in proto.input)
        guessed = any(x is not None and x.digest in self.guesses for x in inputs)
        taken = len(self.taken)
        results = self._results(proto, name, frame, inputs, guessed)
        if len(self.taken) > taken:  # sizes got names
            made = toposort(tuple(op for op in results if op is not None))
            self.counts |= {s: count for op in made for s, count in op.defines().items()}
        for k, output in enumerate(proto.output):
            if output:
                found = results[k] if k < len(results) else None
                scope[output] = self._guess(output) if found is None and outermost and self.refusals.found else found
        if guessed:
            self.guesses |= {op.digest for op in results if op is not None}
        for op in results:
            if op is not None:
                remember(self.origins, op, inputs, name)

    def _results(
        self, proto: onnx.NodeProto, name: str, frame: Frame, inputs: tuple[Op | None, ...], guessed: bool
    ) -> Sequence[Op | None]:
        """The results of a node, or none and what is wrong with it among the refusals; of sizes that are guesses
        nothing is told but what is unsupported whatever they are."""
        operator = f"{domain_of(proto)}.{proto.op_type}".lstrip(".")
        try:
            return self._made(proto, name, frame, inputs)
        except Unsupported as e:
            self.refusals.refuse(operator, name, e)
        except DlcError as e:
            if not guessed:
                self.refusals.caught(e, name)
        except Undecided as e:
            if not guessed:
                help = "give one size, or a range of sizes that decides it: --dim NAME=LOW..HIGH"
                self.refusals.refuse(operator, name, Unsupported(str(e), help))
        except (ShapeError, TypeError, ValueError, OverflowError, IndexError, ZeroDivisionError) as e:
            # A rule and the ops check what they know about; figures that no exporter writes end here, as the
            # model's fault all the same.
            types = [kind_of(x) for x in inputs if x is not None]
            shown = ", ".join(types[:MAX_SHOWN]) + (", …" if len(types) > MAX_SHOWN else "")
            if not guessed:
                open_sizes = any(t.is_open for x in inputs if x is not None for t in x.types)
                notes = (*self._by(proto, frame), *[_SOME_SIZES] * open_sizes)
                self.refusals.fail("shape", f"{operator}({shown}): {e}", name, notes=notes)
        return ()

    def _made(
        self, proto: onnx.NodeProto, name: str, frame: Frame, inputs: tuple[Op | None, ...]
    ) -> Sequence[Op | None]:
        operator = f"{domain_of(proto)}.{proto.op_type}".lstrip(".")
        if unknown := [i for i in proto.input if i and i not in frame.scope]:
            self.refusals.fail("undefined", f"{operator} reads {unknown[0]}, which nothing defines", name)
            return ()
        refused = any(i and x is None for i, x in zip(proto.input, inputs, strict=True))
        version = frame.versions.get(domain_of(proto), 1)
        self.budget.check("operands", max(len(proto.input), len(proto.output)), f"{operator} has")
        if key_of(proto) not in self.functions:
            check_counts(proto, version, self.lenient)
        declared = () if frame.prefix or frame.origin else tuple(map(self.declared.get, proto.output))
        node = Node(proto, name, version, inputs, self, attributes_of(proto, frame.attributes), declared)
        made = () if refused and self._known(node) else self._import(node, refused)
        self._check(node, made)
        if key_of(proto) not in self.functions:  # its own nodes were followed
            self.texts.follow(proto.op_type, inputs, made)
        if node.gives_texts and made and made[0] is not None:
            self.texts.values.add(made[0].digest)
        return self._own(proto, made) if not frame.prefix and not frame.origin else made

    def _by(self, proto: onnx.NodeProto, frame: Frame) -> tuple[str, ...]:
        """Who imports a node, if not we: an error there may be one of that rule."""
        domain = domain_of(proto)
        rule = self.rules.find(domain, proto.op_type, frame.versions.get(domain, 1))
        if rule is None or rule.plugin == OWN:
            return ()
        return (f"imported by a rule of the plugin {self.rules.title(rule.plugin)}",)

    def _guess(self, name: str) -> Op | None:
        """What stands for the result of a refused node; None where the model does not declare its type."""
        if (declared := self.types.get(name)) is None:
            return None
        stand_in = Input(name, declared)
        self.guesses.add(stand_in.digest)
        return stand_in

    def _own(self, proto: onnx.NodeProto, results: Sequence[Op | None]) -> Sequence[Op | None]:
        """The results of a node of the main graph; one that repeats a parameter under a name of its own."""
        match results:
            case (Constant(tensor=tensor),) if proto.output[0] in self.own:
                return (Constant(tensor, proto.output[0]),)
            case _:
                return results

    def _known(self, node: Node) -> bool:
        proto, domain = node.proto, domain_of(node.proto)
        if domain == DOMAIN or key_of(proto) in self.functions or self._rule(node) is not None:
            return True
        return has_body(domain, proto.op_type, node.version)

    def _import(self, node: Node, refused: bool) -> Sequence[Op | None]:
        proto, domain = node.proto, domain_of(node.proto)
        if (function := self.functions.get(key_of(proto))) is not None:
            versions = versions_of(function.opset_import)
            return self._call(node, Body(function, versions, {a.name: a for a in function.attribute_proto}))
        if domain == DOMAIN:
            return self.kernels.read(node)
        rule = self._rule(node)
        if rule is None and not domain and self.lenient:
            rule = self.rules.find(MICROSOFT, proto.op_type, 1)
            if rule is not None:
                node.quirk("the standard has no such operator", f"as {MICROSOFT}.{proto.op_type}")
        if rule is None:
            body = None if refused else body_of(node)
            if body is None:
                raise self.remedies.no_rule(node, self.rules, self.versions)
            # Functions differ with the types of their operands.
            made = self._call(node, body)
            return self._computed_once(node, made, lambda again: self._call(again, body_of(again) or body))
        result = rule.function(node)
        if rule.plugin != OWN:
            check_result(result, rule, self.rules.title(rule.plugin))
        ignored = sorted(set(node.attributes) - node.seen)
        if ignored:
            node.quirk(f"attribute {', '.join(ignored)} is not understood", "without it")
        made = (result,) if isinstance(result, Op) else result
        return made if rule.as_written else self._computed_once(node, made, rule.function)

    def _computed_once(
        self, node: Node, made: Sequence[Op | None], rule: Callable[[Node], Op | Sequence[Op | None]]
    ) -> Sequence[Op | None]:
        """The results of one operator, `made` by a rule, without values of narrow floats being rounded inside of it."""

        def again(operands: Sequence[Op | None]) -> Sequence[Op | None]:
            quirks = len(self.quirks)
            found = rule(replace(node, inputs=tuple(operands), seen=set()))
            del self.quirks[quirks:]
            return (found,) if isinstance(found, Op) else found

        return computed_once(made, node.inputs, again)

    def _rule(self, node: Node) -> ImportRule | None:
        """The rule for a node: of its own domain, or of the one as which the user reads that."""
        domain, operator = domain_of(node.proto), node.proto.op_type
        found = self.rules.find(domain, operator, node.version)
        if found is None and domain in self.read_as:
            other = self.read_as[domain]
            newest = max((r.since for r in self.rules.of(other).get(operator, ())), default=1)
            found = self.rules.find(other, operator, self.versions.get(other, newest))
        return found

    def _call(self, node: Node, body: Body) -> Sequence[Op | None]:
        """A function's nodes, with its formal names bound to the node's operands."""
        function = body.function
        if len(node.inputs) > len(function.input):
            raise Unsupported(f"{len(node.inputs)} operands for a function with {len(function.input)}", MALFORMED)
        scope: Scope = {}
        for k, formal in enumerate(function.input):
            scope[formal] = node.inputs[k] if k < len(node.inputs) else None
        absent = {f for k, f in enumerate(function.input) if k >= len(node.inputs) or not node.proto.input[k]}
        nodes = [without_inputs(n, absent) for n in function.node]
        self._check_depth()
        versions = {**self.versions, **body.versions}
        self.run(nodes, Frame(scope, versions, origin=node.name, attributes={**body.defaults, **node.attributes}))
        return results_of(scope, function.output[: node.outputs], node)

    def _check_depth(self) -> None:
        if len(self.frames) > MAX_DEPTH:
            raise Unsupported(f"functions or branches nest deeper than {MAX_DEPTH}", "inline them before exporting")

    def _check(self, node: Node, results: Sequence[Op | None]) -> None:
        """Refuse a node whose results are too large or fewer than are used."""
        for output, op in zip(node.proto.output, results, strict=False):
            if op is not None and output and not isinstance(op, (Splat, Constant, Input, Resolved)):
                check_size(op.type, self.limit, f"value {output}", Location(self.source, node=node.name))
        if results and any(node.wants(k) for k in range(len(results), node.outputs)):
            raise Unsupported(f"output {len(results)} is used", "remove its consumers before exporting")
