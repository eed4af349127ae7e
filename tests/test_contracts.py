"""What all that is selected by name owes: documentation, options that print and parse, defaults that work."""

import inspect
from collections.abc import Iterator

import pytest

from dlc.plugins import hookspecs
from dlc.plugins.discovery import KINDS, list_plugins, load_registry
from dlc.plugins.entry import Entry, Kind
from dlc.plugins.registry import Registry
from dlc.spec import Spec
from dlc.verify.kit.contract import BASES, converts, documented

OWN = ("dlc-frontend-onnx", "dlc-frontend-kernel", "dlc-frontend-torch", "dlc-backend-c", "dlc-backend-s2train")


def registry() -> Registry:
    """What comes with dlc, whatever else is installed."""
    return load_registry(disable=[p.name for p in list_plugins() if p.distribution not in OWN])


def configurables() -> Iterator[tuple[Kind, Entry]]:
    found = registry()
    return ((kind, entry) for kind in BASES for entry in found.tables[kind].values())


ALL = [pytest.param(kind, entry, id=entry.name) for kind, entry in configurables()]


@pytest.mark.parametrize(("kind", "entry"), ALL)
def test_what_a_spec_selects_is_documented(kind: Kind, entry: Entry) -> None:
    assert issubclass(entry.load(), BASES[kind])
    assert documented(entry)


# A sum of losses without losses is refused.
@pytest.mark.parametrize(("kind", "entry"), [p for p in ALL if p.id != "sum"])
def test_specs_and_instances_convert_both_ways(kind: Kind, entry: Entry) -> None:
    assert converts(entry).startswith(entry.name)


def test_nothing_that_comes_with_dlc_is_broken() -> None:
    found = registry()
    assert not found.problems
    for kind in KINDS:
        for entry in found.tables[kind].values():
            assert entry.load() is not None


def test_pipelines_lead_to_plans() -> None:
    from dlc.api.passes import check_chain

    found = registry()
    for entry in found.pipelines.values():
        assert check_chain([found.stage(spec) for spec in Spec.parse_pipeline(str(entry.target))]) == "plan"


@pytest.mark.parametrize("entry", registry().ops.values(), ids=lambda e: e.name)
def test_ops_are_documented_by_what_they_compute(entry: Entry) -> None:
    doc = inspect.getdoc(entry.load()) or ""
    assert doc.partition("\n")[0], "the first line says what it computes"


@pytest.mark.parametrize("name", [name for name in vars(hookspecs) if name.startswith("dlc_")])
def test_hooks_are_documented(name: str) -> None:
    assert inspect.getdoc(getattr(hookspecs, name))
