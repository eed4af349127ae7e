"""What `dlc.compile` and `@dlc.kernel` are told beside the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlc.driver.arguments import check, target_text
from dlc.driver.program import choice_of

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.base.cache_settings import CacheMode
    from dlc.driver.prepare import Choice
    from dlc.plugins.registry import Registry
    from dlc.spec import Spec


@dataclass(frozen=True)
class Options:
    """How models become programs; each field as the argument of `dlc.compile`."""

    target: str | Spec | Backend = "c"
    dims: Mapping[str, int | str] = field(default_factory=dict[str, "int | str"])
    shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict[str, Sequence["int | str"]])
    specialise: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    settings: Sequence[str] = ()
    pipeline: str | None = None
    without: Sequence[str] = ()
    frontend: str = ""
    lenient: bool = False
    machine: str | Path = ""
    math: str = ""
    tune: str | Path = ""
    output: str | Path | None = None
    ops: Sequence[str | Path] = ()
    jobs: int = 0
    cache: CacheMode = "rw"
    cache_dir: str | Path | None = None
    cache_levels: Sequence[str] = ()
    trusted_keys: Sequence[str] = ()
    signing_key: str | Path | None = None
    cache_key: str = ""

    def __post_init__(self) -> None:
        """Raises DlcError (USAGE): an option is of the wrong kind."""
        check(**vars(self))

    def choice(self, registry: Registry) -> Choice:
        """The same as flags would say it. Raises DlcError (USAGE): the target is a backend that is not installed."""
        target = target_text(self.target, registry)
        said = choice_of(target, self.settings, dims=self.dims, shapes=self.shapes, specialise=self.specialise)
        return replace(
            said,
            pipeline=self.pipeline,
            without=tuple(self.without),
            frontend=self.frontend,
            lenient=self.lenient,
            machine=str(self.machine),
            math=self.math,
            tune=str(self.tune),
        )
