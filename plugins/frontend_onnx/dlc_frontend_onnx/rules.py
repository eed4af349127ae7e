"""Import rules: one function per ONNX operator and range of versions, marked where it is written, found here.

    @onnx("Conv", since=1)
    def conv(node: Node) -> Op: ...

A rule serves all versions from `since` up to the next rule of the same operator. It reads operands and attributes from
its `Node` and returns the op, or a tuple with one op per output.

Modules of rules are offered by the hook `dlc_onnx_rules`, ours like those of any plugin, and imported when a model has
operators of their domain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar, cast

from dlc import DlcError, ExitCode
from dlc.api.frontend import OnnxRules
from dlc.base.diagnostics import error
from dlc.graph import Op
from dlc.version import __version__
from dlc_frontend_onnx.domains import OFFERS, STANDARD

if TYPE_CHECKING:
    from dlc_frontend_onnx.node import Node

Result = Op | Sequence[Op | None]
Function = Callable[["Node"], Result]
F = TypeVar("F", bound=Callable[..., Result])

OLDEST: Final = 6
"""Oldest version of the ONNX operator set that is read: before, shapes and types were attributes of another form."""
OWN: Final = "onnx"
"""Our plugin's name."""


@dataclass(frozen=True)
class ImportRule:
    """How nodes of one operator are imported."""

    operator: str
    since: int
    domain: str
    function: Function
    plugin: str = OWN
    """Name of the plugin that it comes from."""

    @property
    def as_written(self) -> bool:
        """Whether `as_written` marks its function."""
        return bool(getattr(self.function, "onnx_as_written", False))


def onnx(*operators: str, since: int = 1, domain: str = "") -> Callable[[F], F]:
    """Mark a function as the rule of these operators from version `since` of the operator set `domain` on."""

    def mark(function: F) -> F:
        marks: list[tuple[str, int, str]] = getattr(function, "onnx_rules", [])
        function.onnx_rules = [*marks, *((name, since, domain) for name in operators)]  # type: ignore[attr-defined]
        return function

    return mark


def as_written(function: F) -> F:
    """Mark a rule whose ops stay as they are: its nodes hold other operators, or the standard says where they round.

    All other nodes are computed as one: of operands of narrow floats in f32, with results that are rounded once.
    """
    function.onnx_as_written = True  # type: ignore[attr-defined]
    return function


def plain(domain: str) -> str:
    """A domain as models and rules call it: the standard one is ""."""
    return "" if domain == STANDARD else domain


class RuleTable:
    """The rules of all modules that are offered; those of a domain are imported when they are asked for."""

    def __init__(self, offers: Iterable[OnnxRules]) -> None:
        """`offers` may be of several plugins for one domain."""
        self.offers: Final = tuple(offers)
        self._domains: dict[str, Mapping[str, tuple[ImportRule, ...]]] = {}
        self._unusable: dict[tuple[str, str], DlcError] = {}
        """(domain, operator) → what is wrong with its rules; "" stands for operators that have none."""

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """Every domain that has rules, the standard one as ""."""
        return tuple(dict.fromkeys(plain(offer.domain) for offer in self.offers))

    def packages(self, domains: Collection[str]) -> tuple[str, ...]:
        """Top-level packages of the rules of these domains."""
        return tuple(sorted({p for o in self.offers if plain(o.domain) in domains for p in o.packages}))

    def title(self, plugin: str) -> str:
        """How messages call a plugin that offers rules."""
        return next(offer.title for offer in self.offers if offer.plugin == plugin)

    def of(self, domain: str) -> Mapping[str, tuple[ImportRule, ...]]:
        """Operator → its rules, newest first: those of this project, else those of other plugins.

        Without those of plugins with something wrong; `find` raises what is wrong for an operator that then has no
        rule. So a plugin cannot keep models from being read that need nothing of it.
        """
        if domain not in self._domains:
            found: dict[str, list[ImportRule]] = {}
            for offer in sorted(self.offers, key=lambda o: o.plugin != OWN):
                if plain(offer.domain) == domain:
                    for rule in self._sound_rules(offer):
                        rules = found.setdefault(rule.operator, [])
                        if not rules or rules[0].plugin != OWN or rule.plugin == OWN:
                            rules.append(rule)
            for name, rules in found.items():
                try:
                    self._check(rules)
                except DlcError as problem:
                    self._unusable[domain, name] = problem
            self._domains[domain] = {
                name: tuple(sorted(r, key=lambda r: -r.since))
                for name, r in found.items()
                if (domain, name) not in self._unusable
            }
        return self._domains[domain]

    def find(self, domain: str, operator: str, version: int) -> ImportRule | None:
        """The rule for an operator in a version of its domain, or None.

        Raises:
            DlcError: (PLUGIN) there is none, and a module cannot be imported, has no rules of the domain or rules of
                another one, or two rules are of one operator: of two plugins, or of one version.
        """
        found = next((r for r in self.of(domain).get(operator, ()) if r.since <= version), None)
        problem = self._unusable.get((domain, operator)) or self._unusable.get((domain, ""))
        if found is None and problem is not None:
            raise problem
        return found

    def _sound_rules(self, offer: OnnxRules) -> list[ImportRule]:
        """The rules of an offer; none where something is wrong, which is kept for `find`."""
        try:
            return list(self._rules(offer))
        except DlcError as problem:
            if offer.plugin == OWN:
                raise
            self._unusable.setdefault((plain(offer.domain), ""), problem)
            return []

    def all(self) -> Iterator[tuple[str, str, tuple[ImportRule, ...]]]:
        """(domain, operator, its rules) of everything, in order."""
        for domain in sorted(self.domains):
            for operator, rules in sorted(self.of(domain).items()):
                yield domain, operator, rules

    def support(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """(domain, operator, first version of each rule) of everything: the table that `dlc list onnx` shows."""
        return [(domain, name, tuple(sorted(r.since for r in rules))) for domain, name, rules in self.all()]

    def _rules(self, offer: OnnxRules) -> Iterator[ImportRule]:
        """The rules of an offer, of its domain."""
        wanted = plain(offer.domain)
        offered = {plain(o.domain) for o in self.offers if o.plugin == offer.plugin}
        rules = list(_loaded(offer))
        stray = sorted({f"{rule.domain or STANDARD}.{rule.operator}" for rule in rules if rule.domain not in offered})
        if stray:
            reason = f"its module for the domain {offer.domain} has a rule for {stray[0]}"
            raise _wrong(offer, reason, "offer each domain by a Lazy of its own in dlc_onnx_rules")
        own = [rule for rule in rules if rule.domain == wanted]
        if not own:
            help = f'mark its rules with @onnx("Operator", domain="{offer.domain}")'
            raise _wrong(offer, f"its module for the domain {offer.domain} has no rule of this domain", help)
        yield from own

    def _check(self, rules: Sequence[ImportRule]) -> None:
        """That the rules of one operator are of one plugin and different versions."""
        first = rules[0]
        name = f"{first.domain or STANDARD}.{first.operator}"
        for other in rules[1:]:
            if other.plugin != first.plugin:
                titles = f"{self.title(first.plugin)} and {self.title(other.plugin)}"
                help = f'disable one of them in dlc.toml: [plugins] disable = ["{other.plugin}"]'
                message = f"two plugins have import rules for {name}: {titles}"
                raise error("name-clash", message, help=help, exit_code=ExitCode.PLUGIN)
        if len({rule.since for rule in rules}) < len(rules):
            message = f"plugin {self.title(first.plugin)} has two import rules for one version of {name}"
            raise error("plugin", message, help="mark them with different `since`", exit_code=ExitCode.PLUGIN)


def _loaded(offer: OnnxRules) -> Iterator[ImportRule]:
    """Every rule of a module, or of all modules of a package."""
    module = offer.load()
    modules = [module]
    for found in walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
        try:
            modules.append(import_module(found.name))
        # Third-party code may raise anything; models without operators of this domain never come here.
        except (Exception, SystemExit) as problem:
            if offer.plugin == OWN:
                raise
            raise _wrong(offer, f"{found.name} cannot be loaded: {type(problem).__name__}: {problem}") from problem
    for function, marks in (pair for m in modules for pair in _marked(m)):
        for operator, since, domain in marks:
            yield ImportRule(operator, since, plain(domain), function, offer.plugin)


def _marked(module: ModuleType) -> Iterator[tuple[Function, list[tuple[str, int, str]]]]:
    """The functions that a module itself defines, not those that it imports, with what they are marked as."""
    for value in vars(module).values():
        if callable(value) and getattr(value, "__module__", "") == module.__name__:
            yield cast("Function", value), getattr(value, "onnx_rules", [])


def _wrong(offer: OnnxRules, reason: str, help: str = "") -> DlcError:
    help = help or f'update it, or disable it in dlc.toml: [plugins] disable = ["{offer.plugin}"]'
    return error("plugin", f"plugin {offer.title}: {reason}", help=help, exit_code=ExitCode.PLUGIN)


@cache
def own_rules() -> RuleTable:
    """Our rules alone: what is read where no registry says what else is installed."""
    title = f"{OWN} (dlc-frontend-onnx {__version__})"
    return RuleTable(OnnxRules(lazy.name, OWN, title, ("dlc_frontend_onnx",), lazy.load) for lazy in OFFERS)
