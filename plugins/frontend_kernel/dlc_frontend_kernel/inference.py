"""Element types of expressions: literals and indices adapt, everything else must agree; conversions are explicit."""

from __future__ import annotations

from collections.abc import Callable

from dlc.base.types import DType, bool_
from dlc.kernel.scalar import SCALARS
from dlc_frontend_kernel.expressions import COMPARISONS
from dlc_frontend_kernel.syntax import Call, Group, Index, Node, Number, Operation, Reduction, Ref
from dlc_frontend_kernel.tokens import KernelTokens

LOGIC = frozenset({"and", "or", "not"})


class Types:
    """The types of the nodes of one statement.

    Args:
        tokens: For errors.
        dtype_of: The type of a tensor that is read.
    """

    def __init__(self, tokens: KernelTokens, dtype_of: Callable[[Ref], DType]) -> None:
        self._tokens, self._dtype_of = tokens, dtype_of
        self._known: dict[Node, DType | None] = {}
        self._operands: dict[Node, DType | None] = {}

    def operands(self, node: Node) -> DType | None:
        """The common type of what a comparison compares or a function takes; None when all of it adapts."""
        self.of(node)
        return self._operands.get(node)

    def of(self, node: Node) -> DType | None:
        """The type of a node; None when it is made of literals and indices, which adapt.

        Raises DlcError where types differ.
        """
        chain: list[Operation] = []
        # Long sums lean to the left: this is a loop so that their length is no depth.
        while node not in self._known and isinstance(node, Operation) and len(node.args) == 2:
            chain.append(node)
            node = node.args[0]
        if node not in self._known:
            self._known[node] = self._of(node)
        found = self._known[node]
        for op in reversed(chain):
            found = self._infix(op, found, self.of(op.args[1]))
            self._known[op] = found
        return found

    def _of(self, node: Node) -> DType | None:
        match node:
            case Ref():
                return self._dtype_of(node)
            case Group(inner, _) | Reduction(_, _, inner, _):
                found = self.of(inner)
                if isinstance(node, Reduction) and found is bool_:
                    raise self._fault("a comparison cannot be combined over an index", node)
                return found
            case Operation("not", (x,), _):
                self._logical(node, self.of(x))
                return bool_
            case Operation(_, args, _):
                return self._numeric(node, self.of(args[0]))
            case Call(fn, args, _):
                return self._call(node, fn, [self.of(a) for a in args])
            case Number() | Index():
                return None

    def _infix(self, node: Operation, a: DType | None, b: DType | None) -> DType | None:
        if node.op in LOGIC:
            self._logical(node, a)
            self._logical(node, b)
            return bool_
        found = self._common(node, f"'{node.op}'", a, b)
        self._operands[node] = found
        return bool_ if node.op in COMPARISONS else self._numeric(node, found)

    def _call(self, node: Call, fn: str, args: list[DType | None]) -> DType | None:
        scalar = SCALARS[fn]
        if scalar.rule == "cast":
            return scalar.to
        if scalar.rule == "bits" and scalar.to is not None:
            if args[0] is None or args[0].itemsize != scalar.to.itemsize:
                raise self._fault(f"{fn} of {args[0] or 'a number'}", node, f"it takes {scalar.to.itemsize * 8} bits")
            return scalar.to
        if scalar.rule == "select":
            self._logical(node, args[0])
            return self._common(node, fn, args[1], args[2])
        found: DType | None = None
        for a in args:
            found = self._common(node, fn, found, a)
        self._operands[node] = found
        if found is not None:
            self.check_domain(node, fn, found)
        return bool_ if scalar.rule == "bool" else found

    def check_domain(self, node: Call, fn: str, dtype: DType) -> None:
        """Refuse a function of a type that it is not defined for."""
        domain = SCALARS[fn].domain
        fits = {
            "any": True,
            "number": dtype is not bool_,
            "float": dtype.is_float,
            "int": dtype.is_integer,
            "bool": dtype is bool_,
        }
        if not fits[domain]:
            words = {"number": "numbers", "float": "floating point", "int": "whole numbers", "bool": "comparisons"}
            help = f"convert the argument: {fn}(f32(…))" if domain == "float" else ""
            raise self._fault(f"{fn} is defined for {words.get(domain, domain)}, not {dtype}", node, help)

    def _common(self, node: Node, what: str, a: DType | None, b: DType | None) -> DType | None:
        if a is not None and b is not None and a != b:
            raise self._fault(f"{what} of {a} and {b}", node, f"convert one of them: {a}(…) or {b}(…)")
        return b if a is None else a

    def _numeric(self, node: Operation, found: DType | None) -> DType | None:
        if found is bool_:
            op = "-" if node.op == "neg" else node.op
            raise self._fault(f"'{op}' of a comparison", node, "choose numbers by it: select(condition, 1, 0)")
        return found

    def _logical(self, node: Operation | Call, found: DType | None) -> None:
        if found is not bool_:
            what = f"'{node.op}'" if isinstance(node, Operation) else f"the condition of {node.fn}"
            message = f"{what} takes comparisons, found {found or 'a number'}"
            raise self._fault(message, node, "compare it: … != 0")

    def _fault(self, message: str, node: Node, help: str = "") -> Exception:
        return self._tokens.fault("type", message, node.at, help)
