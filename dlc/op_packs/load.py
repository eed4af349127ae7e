"""Files of op packs, loaded: each record becomes an op like one that is declared in Python.

    *.ops.yaml  →  records, checked  →  classes

Nothing of a file is executed. Every example is tried for its types, so that what a record contradicts is found before
it is used; `dlc.verify.op_packs` holds values and gradients against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, error
from dlc.graph import Input, Op, toposort
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.define import ShapeError
from dlc.kernel.expr import SIZE, Expr, loads
from dlc.op_packs.compose import Signature
from dlc.op_packs.declared import Declared, PackOp, Texts, op_class
from dlc.op_packs.dims import REST, OperandType
from dlc.op_packs.document import Document, Path_, read_document
from dlc.op_packs.examples import BadExample, Example, read_example
from dlc.op_packs.instance import Definition
from dlc.op_packs.record import Read, RecordReader, signature_of
from dlc.op_packs.schema import OpRecord, PackRecord, validated
from dlc.op_packs.statements import Statement
from dlc.ops.every import every_op

SUFFIX: Final = ".ops.yaml"


@dataclass(frozen=True)
class LoadedOp:
    """An op of a pack, with what its record says beside the class."""

    kind: type[PackOp]
    examples: tuple[Example, ...]
    read: Read


@dataclass(frozen=True)
class Pack:
    """A file, loaded."""

    document: Document
    record: PackRecord
    ops: tuple[LoadedOp, ...]
    helpers: tuple[type[Op], ...] = field(repr=False)
    """Ops of single statements that ops of several are composed of."""

    @property
    def name(self) -> str:
        """Prefix of its ops."""
        return self.record.pack

    @property
    def classes(self) -> tuple[type[Op], ...]:
        """All ops."""
        return (*(op.kind for op in self.ops), *self.helpers)


def pack_files(path: Path) -> tuple[Path, ...]:
    """The file itself, or the `*.ops.yaml` files of a directory, by name. Raises DlcError: there are none."""
    if path.is_dir():
        found = tuple(sorted(p for p in path.iterdir() if p.name.endswith(SUFFIX) and p.is_file()))
        if not found:
            message = f"{path} holds no op pack"
            raise error("op-pack", message, help=f"name its files *{SUFFIX}", exit_code=ExitCode.PLUGIN)
        return found
    if not path.is_file():
        message = f"there is no op pack {path}"
        raise error("op-pack", message, help=f"give a file *{SUFFIX}, or a directory", exit_code=ExitCode.PLUGIN)
    return (path,)


def load_pack(file: Path) -> Pack:
    """The pack of a file. Raises DlcError (PLUGIN) with everything that is wrong, each with line and column."""
    return pack_of(read_document(file))


def pack_of(document: Document) -> Pack:
    """`load_pack` of what is read already."""
    return _Loader(document, validated(document)).pack()


class _Loader:
    def __init__(self, document: Document, record: PackRecord) -> None:
        self.document, self.record = document, record
        self.problems: list[Diagnostic] = []
        self.ops: dict[str, type[Op]] = dict(every_op())
        self.helpers: list[type[Op]] = []

    def pack(self) -> Pack:
        self._version()
        reads = self._reads()
        self._raise()
        loaded = [self._loaded(read) for read in self._ordered(reads)]
        self._raise()
        by_name = {one.read.name: one for one in loaded if one}
        return Pack(self.document, self.record, tuple(by_name[r.name] for r in reads), tuple(self.helpers))

    def _raise(self) -> None:
        if self.problems:
            raise DlcError(*dict.fromkeys(self.problems), exit_code=ExitCode.PLUGIN)

    def _fail(self, message: str, path: Path_, help: str = "", *, key: bool = False) -> None:
        self.problems.append(self.document.problem(message, path, help, key=key))

    def _version(self) -> None:
        if not self.record.requires:
            return
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        from dlc.version import __version__

        try:
            wanted = SpecifierSet(self.record.requires)
        except InvalidSpecifier:
            self._fail(f"{self.record.requires!r} is not a range of versions", ("requires",), "write >=0.1,<0.3")
            return
        if not wanted.contains(__version__, prereleases=True):
            self._fail(f"the pack needs dlc {wanted}, this is {__version__}", ("requires",), "install another version")

    def _reads(self) -> list[Read]:
        records = {f"{self.record.pack}_{r.op}": r for r in self.record.ops}
        signatures = {n: Signature(k.operand_names, k.attr_names) for n, k in self.ops.items()}
        signatures |= {name: signature_of(r) for name, r in records.items()}
        out: list[Read] = []
        seen: set[str] = set()
        for k, record in enumerate(self.record.ops):
            name, path = f"{self.record.pack}_{record.op}", ("ops", k)
            if name in seen or name in self.ops:
                where = "the pack has it already" if name in seen else "it is an op of dlc"
                self._fail(f"the op {name} exists: {where}", (*path, "op"), "choose another name")
            seen.add(name)
            reader = RecordReader(self.document, record, name, path, signatures)
            found = reader.read()
            self.problems += reader.problems
            if found:
                out.append(found)
        self._operators()
        return out

    def _operators(self) -> None:
        """That no operator of ONNX is read as two ops."""
        seen: dict[tuple[str, str, int], str] = {}
        for k, record in enumerate(self.record.ops):
            for j, onnx in enumerate(record.onnx):
                key = (onnx.domain, onnx.name, onnx.since)
                if key in seen:
                    message = f"{onnx.domain}.{onnx.name} of version {onnx.since} is read as {seen[key]} already"
                    self._fail(message, ("ops", k, "onnx", j), "an operator has one op for each version")
                seen[key] = record.op

    def _ordered(self, reads: Sequence[Read]) -> list[Read]:
        """Each after those that it is composed of."""
        by_name = {r.name: r for r in reads}
        done: dict[str, Read] = {}
        for read in reads:
            stack, below = [(read.name, iter(sorted(read.calls)))], {read.name}
            while stack:
                name, rest = stack[-1]
                following = next((n for n in rest if n in by_name and n not in done), None)
                if following is None:
                    stack.pop()
                    below.discard(name)
                    done.setdefault(name, by_name[name])
                elif following in below:
                    names = [n for n, _ in stack]
                    way = " → ".join([*names[names.index(following) :], following])
                    path = (*by_name[following].path, "compose")
                    self._fail(f"compositions go in a circle: {way}", path, "define one of them by statements")
                    self._raise()
                else:
                    stack.append((following, iter(sorted(by_name[following].calls))))
                    below.add(following)
        return list(done.values())

    def _loaded(self, read: Read) -> LoadedOp | None:
        declared = Declared(
            read.name,
            read.record.doc,
            read.operands,
            read.attributes,
            read.record.result,
            read.require,
            composition=read.composition,
            gradient=read.gradient,
            ops=self.ops,
            texts=_texts(read.record),
        )
        if len(read.statements) == 1:
            declared = replace(declared, definition=_definition(read, read.statements[0], read.operands))
        elif read.statements:
            declared = replace(declared, parts=tuple(self._parts(read)))
        kind = op_class(declared)
        assert issubclass(kind, PackOp)
        self.ops[read.name] = kind
        examples = [self._example(read, kind, k, e) for k, e in enumerate(read.record.examples)]
        return LoadedOp(kind, tuple(e for e in examples if e), read)

    def _parts(self, read: Read) -> Iterable[tuple[str, type[Op]]]:
        """An op for each statement."""
        known = dict(read.operands)
        for s in read.statements:
            operands = _needed(s, known)
            name = f"{read.name}_{s.target}"
            definition = _definition(read, s, operands)
            attributes = {n: a for n, a in read.attributes.items() if n in definition.attributes}
            doc = f"{s.target} of {read.name}: {read.record.doc}"
            texts = Texts(dict.fromkeys(operands, f"as in {read.name}"), read.record.define or "")
            kind = op_class(
                Declared(name, doc, operands, attributes, s.target, definition.require, definition, texts=texts)
            )
            if name in self.ops:
                self._fail(f"the op {name} exists, and is {s.target} of {read.name}", read.path, "rename one of them")
            self.ops[name] = kind
            self.helpers.append(kind)
            yield s.target, kind
            known[s.target] = OperandType(("any",), tuple(p if p == REST else f"{s.target}.{p}" for p in s.places))

    def _example(self, read: Read, kind: type[PackOp], k: int, record: Mapping[str, Any]) -> Example | None:
        path: Path_ = (*read.path, "examples", k)
        try:
            found = read_example(record, kind.declared)
        except BadExample as problem:
            self._fail(str(problem), (*path, problem.key) if problem.key else path, problem.help)
            return None
        op = self._attempt(lambda: found.op(kind), f"{read.name} does not accept the example", path)
        if op is None:
            return None
        if op.shape != found.result.shape:
            result = read.record.result
            message = f"{result} of the example has the shape {list(found.result.shape)}, the op gives {op.type.text}"
            self._fail(message, (*path, result), "shapes follow from the mathematics")
        whole = () if op.expansion is None else (op.expansion,)
        for part in (op, *toposort(whole)):
            if part.of_pack and part.expansion is None:
                for wrong in kernel_problems(part.kernel):
                    message = f"{part.text_name} on the example: {wrong.message}"
                    self._fail(message, (*read.path, "define" if read.statements else "compose"), "add a condition")
        if read.statements and read.composition is not None:
            self._alternative(op, read)
        if read.gradient is not None and op.dtype.is_float:
            seed = Input(f"d{read.record.result}", op.type)
            self._attempt(lambda: op.vjp(seed), f"{read.name} on the example", (*read.path, "gradient"))
        return found

    def _alternative(self, op: Op, read: Read) -> None:
        """That the composition beside a definition has its type."""
        path = (*read.path, "compose")
        other = self._attempt(op.as_ops, f"the composition of {read.name} on the example", path)
        if other is not None and other.type != op.type:
            message = f"the composition gives {other.type.text}, the definition {op.type.text}"
            self._fail(message, path, "both say the same")

    def _attempt(self, make: Callable[[], Any], what: str, path: Path_) -> Any:
        try:
            return make()
        except (ShapeError, ValueError) as problem:
            self._fail(f"{what}: {problem}".replace(SIZE, ""), path)
        # A composition hands attributes of any value to any op of the core, which checks what it needs.
        except Exception as problem:  # noqa: BLE001
            self._fail(f"{what}: {type(problem).__name__}: {problem}", path, "check the attributes that it hands on")
        return None


def _texts(record: OpRecord) -> Texts:
    onnx = tuple(f"{o.domain}.{o.name} version {o.since} and later" for o in record.onnx)
    return Texts(record.operands, record.define or record.compose or "", record.gradient, onnx)


def _definition(read: Read, s: Statement, operands: Mapping[str, OperandType]) -> Definition:
    used = {n.removeprefix(SIZE) for n in s.reads()}
    numbers = tuple(n for n, a in read.attributes.items() if a.is_number)
    dims = {d for kind in operands.values() for d in kind.names}
    known = {*numbers, *dims}
    require = tuple(c for c in read.require if _symbols(c.value) <= known)
    used |= {n for c in require for n in _symbols(c.value)}
    attributes = tuple(n for n in numbers if n in used or len(read.statements) == 1)
    return Definition(operands, attributes, require, s)


def _symbols(e: Expr) -> set[str]:
    return {x.param.removeprefix(SIZE) for x in loads(e)}


def _needed(s: Statement, known: Mapping[str, OperandType]) -> dict[str, OperandType]:
    """The operands of one statement: what it reads, and what has the dimensions that it uses."""
    reads = s.reads()
    found = {n: kind for n, kind in known.items() if n in reads}
    for dim in (n.removeprefix(SIZE) for n in sorted(reads) if n.startswith(SIZE)):
        if not any(dim in kind.names for kind in found.values()):
            having = {n: kind for n, kind in known.items() if dim in kind.names}
            found |= dict(list(having.items())[:1])
    ordered = sorted(found, key=lambda n: found[n].optional)
    return {n: found[n] for n in ordered}
