"""`Onnx`: a model file → Graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import onnx
from google.protobuf.message import DecodeError

from dlc import Bytes, DlcError, ExitCode, Frontend, Location, Report, Source, option
from dlc.base.diagnostics import NODES_SHOWN, error
from dlc.base.extents import symbols
from dlc.graph import Constant, Graph, Input, Op
from dlc.graph.graph import with_live_origins
from dlc.graph.walk import toposort
from dlc.kernel.define import ShapeError
from dlc_frontend_onnx.budget import Budget
from dlc_frontend_onnx.calls import calls, check_calls, functions_of, versions_of
from dlc_frontend_onnx.declared import declared, float_types
from dlc_frontend_onnx.domains import MICROSOFT, STANDARD
from dlc_frontend_onnx.found_sizes import with_found_sizes
from dlc_frontend_onnx.frame import Frame, Scope
from dlc_frontend_onnx.importer import Importer
from dlc_frontend_onnx.inputs import Binding
from dlc_frontend_onnx.kernels import DOMAIN, READER, Find, Kernels
from dlc_frontend_onnx.names import check_names
from dlc_frontend_onnx.order import ordered
from dlc_frontend_onnx.parameters import repeated
from dlc_frontend_onnx.refusals import Refusals
from dlc_frontend_onnx.remedies import Ops, Remedies, no_ops
from dlc_frontend_onnx.rules import OLDEST, RuleTable, own_rules, plain
from dlc_frontend_onnx.sequences import Resolved, kind_of
from dlc_frontend_onnx.template import filled, template
from dlc_frontend_onnx.tensors import Storage, check_size, external_file
from dlc_frontend_onnx.texts import Texts
from dlc_frontend_onnx.unsupported import Unsupported
from dlc_frontend_onnx.wire import Place, WireError, strip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlc.api.frontend import OnnxRules
    from dlc.base.types import Array, Type

_LFS: Final = b"version https://git-lfs"
"""What Git LFS leaves in the place of a file that was not fetched begins with this."""


@dataclass(frozen=True)
class Onnx(Frontend):
    """Models in the ONNX format: operator sets 6 and later, external data, functions, control flow."""

    name: ClassVar[str] = "onnx"
    suffixes: ClassVar[tuple[str, ...]] = (".onnx",)
    libraries: ClassVar[tuple[str, ...]] = ("onnx", "protobuf")

    find: ClassVar[Find | None] = None
    """The way to other frontends, which the registry lends: a part of the instance that is no option."""
    rules: ClassVar[RuleTable | None] = None
    """The import rules that the registry knows of, lent in the same way; None: our own."""
    ops: ClassVar[Ops] = staticmethod(no_ops)
    """Gives every installed op by name."""
    dims: tuple[str, ...] = option((), "sizes of the model's symbolic dimensions: batch:1,seq:128")
    input: tuple[str, ...] = option((), "shapes of inputs: x:1x3x224x224")
    tied: tuple[str, ...] = option((), "weights that stay tied to an equal weight: patterns of names")
    lenient: bool = option(False, "read what exporters write against the standard, where that has one sensible reading")
    read_as: tuple[str, ...] = option(
        (), "domains whose operators are read as those of another, where they have no rule: org.example:com.microsoft"
    )
    max_tensor_bytes: Bytes = option(4 << 30, "largest tensor that is accepted", low=1)
    max_nodes: int = option(
        Budget.nodes, "maximum number of nodes, including those of iterations, branches and functions", low=1
    )
    max_operands: int = option(Budget.operands, "maximum number of operands or results of a node", low=1)
    max_steps: int = option(
        Budget.steps, "maximum number of iterations of a loop, or of steps of a recurrent layer", low=1
    )

    unroll: int = option(
        512, "maximum number of nodes of a loop of known length that is unrolled; larger loops stay loops", low=0
    )

    def sniff(self, source: Source) -> bool:
        """Whether the content starts like a serialised ModelProto: a version, then known fields."""
        try:
            head = source.part(0, 2)
        except DlcError:
            return False
        return len(head) == 2 and head[0] == 0x08 and 0 < head[1] < 0x80

    def companions(self, source: Source) -> tuple[Source, ...]:
        """The files with external data, in order of their names."""
        model, _ = read_model(source)
        names: set[str] = set()
        for t in model.graph.initializer:
            if t.data_location == onnx.TensorProto.EXTERNAL:
                entries = {e.key: e.value for e in t.external_data}
                names.add(external_file(source, entries.get("location", ""), t.name)[1])
        return tuple(Source((source.path or Path()).parent / name) for name in sorted(names))

    def with_frontends(self, find: Find) -> Onnx:
        """The frontend for models that hold kernels too."""
        new = copy(self)
        object.__setattr__(new, "find", find)
        return new

    def with_onnx_rules(self, rules: Sequence[OnnxRules], ops: Ops) -> Onnx:
        """The frontend with the import rules of all plugins."""
        new = copy(self)
        object.__setattr__(new, "rules", RuleTable(rules))
        object.__setattr__(new, "ops", ops)
        return new

    @property
    def table(self) -> RuleTable:
        """The import rules."""
        return self.rules or own_rules()

    def packages(self, source: Source) -> tuple[str, ...]:
        """The packages whose rules read the model's operators, and the one that reads its kernels, if it has any."""
        model, _ = read_model(source)
        domains = _domains(model)
        if self.lenient:
            domains.add(MICROSOFT)
        domains |= {other for domain, other in self._read_as().items() if domain in domains}
        own = __name__.partition(".")[0]
        packages = tuple(p for p in self.table.packages(domains) if p != own)
        if self.find is None or DOMAIN not in domains:
            return packages
        try:
            return (*packages, type(self.find(READER)).__module__.partition(".")[0])
        except DlcError:
            return packages  # reading the model tells of it, with the node

    def _read_as(self) -> dict[str, str]:
        """Domain → the one as which it is read. Raises DlcError (USAGE): no pair, or no domain with rules."""
        found: dict[str, str] = {}
        for text in self.read_as:
            domain, _, other = text.partition(":")
            if not domain or plain(other) not in self.table.domains:
                message = f"onnx.read-as: {text} is not a domain and one with import rules"
                known = ", ".join(domain or STANDARD for domain in self.table.domains)
                help = f"write org.example:com.microsoft; domains with rules: {known}"
                raise error("bad-option", message, help=help, exit_code=ExitCode.USAGE)
            found[plain(domain)] = plain(other)
        return found

    def supported(self) -> Iterable[tuple[str, str]]:
        """(operator, operator sets) of all that has a rule; functions of the standard are read beside them."""
        for domain, operator, since in self.table.support():
            name, oldest = (f"{domain}.{operator}", 1) if domain else (operator, OLDEST)
            yield name, f"version {max(since[0], oldest)} and later"
        yield f"{DOMAIN}.*", "any name; the attribute kernel is kernel text"

    def parse(self, source: Source, report: Report) -> Graph:
        """The model's graph. Raises DlcError: not a model, malformed, too large, or with everything unsupported.

        An outermost dimension of which nothing is said may have any size. Where the model cannot be read so, that no
        size was given is the error, or one of the errors.
        """
        read = read_model(source)
        _check_header(read[0], source)
        binding = Binding.of(self.dims, self.input, free=True)
        try:
            return self._parse(source, read, report, binding)
        except DlcError:
            if not binding.freed:
                raise
        return self._parse(source, read, report, Binding.of(self.dims, self.input))

    def _parse(
        self, source: Source, read: tuple[onnx.ModelProto, list[Place | None]], report: Report, binding: Binding
    ) -> Graph:
        model, places = read
        budget = Budget(self.max_nodes, self.max_operands, self.max_steps)
        budget.check("nodes", len(model.graph.node), "the model has", Location(source.name))
        refusals = Refusals(source.name)
        inputs = binding.inputs(model.graph, refusals, self.max_tensor_bytes, guess=True)
        if binding.freed and refusals.open is not None:  # other dimensions need a size anyway
            raise refusals.open
        scope: Scope = {**inputs}
        texts = Texts()
        scope |= dict(_initializers(model, source, places, self.max_tensor_bytes, refusals, texts))
        versions = versions_of(model.opset_import)
        functions = functions_of(model)
        check_calls(model.graph.node, functions, source.name, budget)
        kernels = Kernels(source.name, self.find)
        own = frozenset(repeated(model.graph, self.tied))
        importer = Importer(source.name, versions, functions, self.max_tensor_bytes, budget, refusals, kernels, own)
        importer.lenient, importer.unroll, importer.texts = self.lenient, self.unroll, texts
        importer.taken = names_of(model.graph, inputs.values())
        importer.rules, importer.remedies, importer.read_as = self.table, Remedies(self.ops), self._read_as()
        for domain in sorted(_domains(model)):
            self.table.of(domain)  # plugins whose rules cannot be used are told here, once
        importer.guesses |= {i.digest for name, i in inputs.items() if i is not None and name in binding.guessed}
        importer.types = float_types(model.graph)
        importer.declared = declared(model.graph, binding.numbers)
        wanted = [o.name for o in model.graph.output]
        nodes = ordered(model.graph.node, scope, wanted, refusals)
        importer.run(nodes, Frame(scope, versions))
        outputs = _outputs(wanted, scope, refusals, self.max_tensor_bytes, importer.guesses)
        refusals.check()
        if binding.freed:  # what was made for the largest size of a dimension that has none
            for of in (t for op in toposort(outputs) for t in op.types):
                check_size(of, self.max_tensor_bytes, "a value", Location(source.name))
        report.missed_as = "read leniently"
        for subject, reading in importer.quirks:
            report.missed(subject, reading)
        report.count("nodes", len(nodes))
        if len(nodes) < len(model.graph.node):
            report.count("nodes without effect", len(model.graph.node) - len(nodes))
        given = tuple(i for i in inputs.values() if i is not None)
        labels = {name: found for name, op in zip(wanted, outputs, strict=True) if (found := texts.labels(op))}
        results = with_found_sizes(outputs, importer.counts)
        graph = Graph(given, results, tuple(wanted), (), importer.origins, labels=labels)
        if restricted := importer.assumed.restricted():
            graph = replace(graph.substitute(restricted), inputs=tuple(restricted.get(i, i) for i in given))
        return with_live_origins(graph)

    def template(self, source: Source, names: Collection[str]) -> bytes:
        """The model without the values of these parameters; with the data that it keeps in other files, 2 GiB at most.

        Inputs and outputs stay as they are; shapes that were given for the build are not written into the model.
        """
        model, places = read_model(source)
        inputs: dict[str, Type] = {}
        if not {i.name for i in model.graph.input}.isdisjoint(set(names) - {t.name for t in model.graph.initializer}):
            refusals = Refusals(source.name)
            found = Binding.of(self.dims, self.input).inputs(model.graph, refusals, self.max_tensor_bytes)
            refusals.check()
            inputs = {name: i.type for name, i in found.items() if i is not None}
        storage = Storage(source, source.view(), self.max_tensor_bytes)
        return template(model, places, storage, names, inputs, self.tied)

    def filled(self, template: bytes, values: Mapping[str, Array]) -> bytes:
        """The model with these values of its parameters."""
        return filled(template, values)


def names_of(graph: onnx.GraphProto, inputs: Iterable[Input | None]) -> set[str]:
    """The names of what a program takes and gives, those of sizes among them."""
    taken = {v.name for v in (*graph.input, *graph.output)}
    return taken | {s.name for i in inputs if i is not None for s in symbols(*i.type.shape)}


def read_model(source: Source) -> tuple[onnx.ModelProto, list[Place | None]]:
    """The model without large data, and where that data is; raises DlcError when the content is no model."""
    view = source.view()
    size = len(view)
    help = "check that the file was downloaded completely, and that it is an ONNX model"
    if not size:
        raise error("not-a-model", f"{source.name} is empty (0 bytes)", location=Location(source.name), help=help)
    if bytes(view[: len(_LFS)]) == _LFS:
        message = f"{source.name} ({size} bytes) is a pointer of Git LFS, not the model"
        raise error("not-a-model", message, location=Location(source.name), help="fetch the file: git lfs pull")
    try:
        stripped = strip(view)
    except WireError as e:
        place = Location(source.name, byte=e.byte)
        message = f"{source.name} ({size} bytes) is not an ONNX model, or is truncated: {e} at byte {e.byte}"
        raise error("not-a-model", message, location=place, help=help) from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(stripped.skeleton)
    except (DecodeError, ValueError, RecursionError) as e:
        message = f"{source.name} ({size} bytes) is not an ONNX model: {e}"
        raise error("not-a-model", message, location=Location(source.name), help=help) from None
    if not model.HasField("graph") or not model.ir_version:
        message = f"{source.name} ({size} bytes) is not an ONNX model: it has no graph or no version"
        raise error("not-a-model", message, location=Location(source.name), help=help)
    check_names(model, source.name)
    return model, stripped.places


def _check_header(model: onnx.ModelProto, source: Source) -> None:
    at = Location(source.name)
    if model.ir_version > onnx.IR_VERSION:
        message = f"the model's format is version {model.ir_version}; onnx {onnx.__version__} knows {onnx.IR_VERSION}"
        raise error("too-new", message, location=at, help="install a newer onnx package, or export for an older one")
    newest, version = onnx.defs.onnx_opset_version(), versions_of(model.opset_import).get("", OLDEST)
    if version > newest:
        message = f"the model uses operator set {version}; onnx {onnx.__version__} knows {newest}"
        raise error("too-new", message, location=at, help="install a newer onnx package, or export for an older set")
    if version < OLDEST and (changed := sorted({n.op_type for n in _all_nodes(model) if not _as_later(n, version)})):
        message = (
            f"the model uses operator set {version}, in which {', '.join(changed[:NODES_SHOWN])} differ from {OLDEST}"
        )
        help = f"convert it: onnx.version_converter.convert_version(model, {OLDEST + 6})"
        raise error("too-old", message, location=at, help=help)


def _all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of a model, those of branches and functions among them."""
    waiting = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    while waiting:
        node = waiting.pop()
        waiting += (n for a in node.attribute for g in (a.g, *a.graphs) for n in g.node)
        yield node


def _domains(model: onnx.ModelProto) -> set[str]:
    """Domains of a model's operators."""
    nodes = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    return {domain for domain, _, _ in calls(nodes)}


def _as_later(node: onnx.NodeProto, version: int) -> bool:
    """Whether an operator of an early operator set is still the same in the oldest one that is read."""
    try:
        early, oldest = (onnx.defs.get_schema(node.op_type, v, "").since_version for v in (version, OLDEST))
    except onnx.defs.SchemaError:
        return False
    return not node.domain and early == oldest


def _initializers(
    model: onnx.ModelProto,
    source: Source,
    places: Sequence[Place | None],
    limit: int,
    refusals: Refusals,
    texts: Texts,
) -> Iterator[tuple[str, Op | None]]:
    storage = Storage(source, source.view(), limit)
    seen: set[str] = set()
    for proto, place in zip(model.graph.initializer, places, strict=True):
        if proto.name in seen:
            refusals.fail("duplicate", f"two initializers are named {proto.name}", proto.name)
            continue
        seen.add(proto.name)
        try:
            is_text = proto.data_type == onnx.TensorProto.STRING
            yield (
                proto.name,
                texts.constant(proto) if is_text else Constant(storage.tensor(proto, place), proto.name),
            )
        except DlcError as e:
            refusals.caught(e, proto.name)
            yield proto.name, None
        except Unsupported as e:
            refusals.refuse("initializer", proto.name, e)
            yield proto.name, None
        except ShapeError as e:
            refusals.fail("shape", str(e), proto.name)
            yield proto.name, None
    for sparse in model.graph.sparse_initializer:
        refusals.refuse("initializer", sparse.values.name, Unsupported("it is sparse", "store it as a dense tensor"))
        yield sparse.values.name, None


def _outputs(wanted: Sequence[str], scope: Scope, refusals: Refusals, limit: int, guesses: Collection[str]) -> list[Op]:
    if not wanted:
        refusals.fail("no-outputs", "the model has no outputs")
    if len(set(wanted)) < len(wanted):
        double = next(w for w in wanted if list(wanted).count(w) > 1)
        refusals.fail("duplicate", f"two outputs are named {double}")
    for name in wanted:
        if name not in scope or (scope[name] is None and not refusals.found):
            refusals.fail("undefined", f"output {name} is not computed by any node", name)
    found = [(name, op) for name in wanted if (op := scope.get(name)) is not None]
    for name, op in found:
        if isinstance(op, Resolved):
            refusals.refuse("output", name, Unsupported(f"it is {kind_of(op)}", "return its tensors one by one"))
    found = [(name, op) for name, op in found if not isinstance(op, Resolved) and op.digest not in guesses]
    for name, op in found:  # one value repeated has any size while it is read, but an output is written out
        try:
            check_size(op.type, limit, f"output {name}", Location(refusals.source, node=name))
        except DlcError as e:
            refusals.caught(e, name)
    return [op for _, op in found]
