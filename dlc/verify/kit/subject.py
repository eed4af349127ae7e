"""`Subject`: the plugin that is tested, what it is tested on, and what builds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error
from dlc.base.types import Array, bool_
from dlc.plugins.discovery import KINDS, list_plugins, load_registry, samples_of
from dlc.plugins.entry import Entry, Kind
from dlc.plugins.registry import Registry
from dlc.spec import Spec

if TYPE_CHECKING:
    from dlc.api.samples import OpSample, Samples
    from dlc.driver.program import Compiler
    from dlc.graph.op import Op
    from dlc.plugins.plugin import Plugin

MOST = 4
"""Level of a port of a backend up to which a plugin is tested unless somebody says otherwise."""


@dataclass(frozen=True)
class Subject:
    """A plugin under test."""

    plugin: Plugin
    registry: Registry
    """All installed plugins: what is tested meets them in a user's environment, too."""
    targets: tuple[str, ...] = ()
    """Backends with options that ops of the plugin are built for; (): all installed ones."""
    level: int = MOST
    """Of backends: the level of a port up to which they are tested."""
    seed: int = 0
    """Of all that is drawn."""
    rounds: int = 1
    """How many times as many graphs, mutations and node tests as usual."""
    kept: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What checks share, by names of their choice."""

    @classmethod
    def of(cls, name: str, targets: Sequence[str] = (), level: int = MOST, seed: int = 0, rounds: int = 1) -> Subject:
        """An installed plugin by the name of its entry point, or of its package.

        Raises:
            DlcError: (USAGE) there is no such plugin.
        """
        found = {p.name: p for p in list_plugins()}
        chosen = found.get(name) or next((p for p in found.values() if p.distribution == name), None)
        if chosen is None:
            help = did_you_mean(name, found, "installed plugins") if found else "no plugin is installed"
            raise error("unknown-plugin", f"no plugin {name} is installed", help=help, exit_code=ExitCode.USAGE)
        registry = load_registry()
        loaded = next(p for p in registry.plugins if p.name == chosen.name)
        return cls(loaded, registry, tuple(targets), level, seed, rounds)

    def entries(self, kind: Kind) -> tuple[Entry, ...]:
        """What the plugin offers of one kind."""
        return tuple(e for e in self.registry.tables[kind].values() if e.plugin == self.plugin.name)

    @property
    def everything(self) -> tuple[Entry, ...]:
        """All that the plugin offers."""
        return tuple(e for kind in KINDS for e in self.entries(kind))

    @cached_property
    def samples(self) -> Samples:
        """What the plugin brings to be tested on. Raises DlcError."""
        return samples_of(self.plugin)

    @cached_property
    def compiler(self) -> Compiler:
        """All installed plugins, without a cache: nothing that is tested comes from another build."""
        from dlc.cache import open_cache
        from dlc.driver.program import Compiler

        return Compiler(self.registry, open_cache(None, "off"))

    @property
    def classes(self) -> dict[str, type[Op]]:
        """All installed ops by name, those of graphs themselves included: what a graph's text may name."""
        from dlc.driver.state_text import op_classes

        return dict(op_classes(self.registry))

    @cached_property
    def all_targets(self) -> tuple[str, ...]:
        """Specs of the backends that programs are built for: by default those that plugins brought."""
        return self.targets or tuple(self.registry.plugin_backends)

    def specs(self, entry: Entry) -> tuple[Spec, ...]:
        """An entry with its defaults, and with the options that the samples name."""
        others = [Spec.parse(text) for text in self.samples.specs]
        return (Spec(entry.name), *(s for s in others if s.name == entry.name))


def feed(sample: OpSample, seed: int) -> dict[str, Array]:
    """Values for the inputs of a sample: those that it states, drawn ones for the others."""
    from dlc.graph import Input, toposort

    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for i in (op for op in toposort((sample.op,)) if isinstance(op, Input)):
        drawn = (
            rng.standard_normal(i.shape) if i.dtype.is_float else rng.integers(0, 2 if i.dtype is bool_ else 4, i.shape)
        )
        found[i.name] = np.asarray(sample.feeds.get(i.name, drawn)).astype(i.dtype.numpy)
        if found[i.name].shape != i.shape:
            raise error("plugin", f"sample {sample.op!r}: {i.name} is fed {found[i.name].shape}, it is {i.type}")
    return found


def in_words(problem: BaseException) -> str:
    """An exception in a line: what a DlcError says, and of another one its type and place too."""
    from dlc.plugins.entry import reason_of

    if isinstance(problem, DlcError):
        return "; ".join(d.message for d in problem.diagnostics)
    return " ".join(reason_of(problem).split())
