"""Discovery, isolation and name clashes."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlc.base.code_digest import code_digest
from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode
from dlc.cache import Key
from dlc.cache.step_record import Handle, StepRecord
from dlc.graph.op import Op
from dlc.ops.every import every_op
from dlc.plugins.builtin import dlc_passes
from dlc.plugins.discovery import RESERVED, list_plugins, load_registry
from dlc.plugins.entry import Kind
from dlc.plugins.plugin import Plugin
from dlc.plugins.registry import Registry
from dlc.spec import Spec

Install = Callable[..., None]
KINDS: tuple[Kind, ...] = ("passes", "pipelines", "backends")

GOOD = """
from dataclasses import dataclass
from dlc import Pass, hookimpl, option

@dataclass(frozen=True)
class Count(Pass):
    '''Count things.'''
    name = "NAME-count"
    start: int = option(0, "first number")
    def run(self, state, report):
        return state

@hookimpl
def dlc_passes():
    return [Count]

@hookimpl
def dlc_pipelines():
    return {"NAME-all": "NAME-count{start=3}"}

seen = []

@hookimpl
def dlc_step_done(event):
    seen.append(event.spec)
"""

HOOK = "from dlc import hookimpl\n@hookimpl\n"
BROKEN = {
    "import": ("import absent_module\n", "ModuleNotFoundError: No module named 'absent_module'"),
    "syntax": ("def (:\n", "SyntaxError"),
    "exit": ("raise SystemExit(3)\n", "SystemExit: 3"),
    "unknown argument": (HOOK + "def dlc_passes(graph):\n    return []\n", "graph"),
    "failing hook": (HOOK + "def dlc_passes():\n    return 1 / 0\n", "ZeroDivisionError"),
    "not classes": (HOOK + "def dlc_backends():\n    return [3]\n", "must return classes"),
    "no list": (HOOK + "def dlc_backends():\n    return 3\n", "dlc_backends must return a list, not 3"),
    "no spec": (HOOK + "def dlc_pipelines():\n    return {'a b': 'fuse'}\n", "cannot be a name"),
    "no name": (HOOK + "def dlc_passes():\n    return [int]\n", "int has no name"),
    "bad pipelines": (HOOK + "def dlc_pipelines():\n    return {'a': 3}\n", "spec text"),
}


def by_name(registry: Registry) -> dict[str, Plugin]:
    return {plugin.name: plugin for plugin in registry.plugins}


def test_plugins_are_listed_without_running_them(install: Install) -> None:
    install("loud", "raise RuntimeError('imported')\n")
    install("other", "raise RuntimeError('imported')\n")
    found = {plugin.name: plugin for plugin in list_plugins(["other"])}
    assert found["loud"] == Plugin("loud", "dlc_test_loud", "dlc-loud", "1.2")
    assert found["other"].state == "blocked"
    assert "dlc_test_loud" not in sys.modules


def test_a_plugin_adds_passes_pipelines_and_observers(install: Install) -> None:
    install("good", GOOD.replace("NAME", "good"))
    registry = load_registry(kinds=KINDS)
    entry = registry.passes["good-count"]
    assert (entry.plugin, entry.package) == ("good", "dlc_test_good")
    assert entry.declaration().summary == "Count things."
    assert [doc.key for doc in entry.declaration().options] == ["start"]
    assert registry.pipelines["good-all"].target == "good-count{start=3}"
    assert str(registry.stage(Spec.parse("good-count{start=2}"))) == "good-count{start=2}"
    output: list[Diagnostic] = []
    registry.watcher(output.append, "net.onnx")(StepRecord(Key.of(step="fuse"), Handle("graph", "b", dict)))
    assert not output
    assert sys.modules["dlc_test_good"].seen == ["fuse"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_named_and_skipped(name: str, install: Install) -> None:
    code, reason = BROKEN[name]
    install("broken", code)
    install("good", GOOD.replace("NAME", "good"))
    registry = load_registry(kinds=KINDS)
    assert by_name(registry)["broken"].state == "broken"
    assert "good-count" in registry.passes
    (problem,) = [p for p in registry.problems if "plugin broken" in p.message]
    assert "dlc-broken 1.2" in problem.message
    assert reason in problem.message
    assert problem.severity == "warning"
    assert problem.help.endswith("pip uninstall dlc-broken")


def concrete(of: type[Op]) -> list[type[Op]]:
    """The classes of ops below one that are no bases alone."""
    return [c for s in of.__subclasses__() for c in ([] if s.is_abstract else [s]) + concrete(s)]


OF_GRAPHS = {c.text_name for c in concrete(Op) if c.__module__.startswith("dlc.graph.")}
RESERVED_OPS = sorted(OF_GRAPHS - set(every_op()))


@pytest.mark.parametrize("name", RESERVED_OPS)
def test_no_plugin_offers_an_op_under_the_name_of_one_of_graphs(name: str, install: Install) -> None:
    assert set(RESERVED_OPS) == RESERVED
    code = f"from dlc import Lazy, hookimpl\n@hookimpl\ndef dlc_ops():\n    return [Lazy({name!r}, 'm:C')]\n"
    install("taker", code)
    registry = load_registry(kinds=("ops",))
    assert f"{name} is an op of graphs themselves" in by_name(registry)["taker"].reason


@pytest.mark.parametrize("name", sorted(OF_GRAPHS & set(every_op())))
def test_what_graphs_make_and_the_core_offers_is_the_cores(name: str, install: Install) -> None:
    install("taker", f"from dlc import Lazy, hookimpl\n@hookimpl\ndef dlc_ops():\n    return [Lazy({name!r}, 'm:C')]\n")
    registry = load_registry(kinds=("ops",))
    assert f"its op {name} has the name of one of core" in by_name(registry)["taker"].reason
    assert registry.ops[name].target is every_op()[name]


def test_a_partly_broken_plugin_adds_nothing(install: Install) -> None:
    install("half", GOOD.replace("NAME", "half") + "\n@hookimpl\ndef dlc_backends():\n    raise OSError('no SDK')\n")
    registry = load_registry(kinds=KINDS)
    assert "half-count" not in registry.passes
    assert "no SDK" in by_name(registry)["half"].reason


def test_a_disabled_plugin_is_not_imported(install: Install) -> None:
    install("off", "raise RuntimeError\n")
    registry = load_registry(["off"], kinds=KINDS)
    assert by_name(registry)["off"].state == "blocked"
    assert registry.problems == ()


def test_an_incompatible_plugin_says_what_it_needs(install: Install) -> None:
    install("future", "dlc_api = '>=99'\n")
    plugin = by_name(load_registry(kinds=KINDS))["future"]
    assert (plugin.state, plugin.reason) == ("incompatible", "it needs dlc >=99")


def test_using_what_a_broken_plugin_would_offer_says_why(install: Install) -> None:
    install("chip", "import absent_module\n")
    with pytest.raises(DlcError, match="absent_module") as caught:
        load_registry(kinds=KINDS).backend(Spec.parse("chip{}"))
    assert caught.value.exit_code == ExitCode.PLUGIN


def test_a_hook_of_a_newer_dlc_is_noted(install: Install) -> None:
    install("next", GOOD.replace("NAME", "next") + "\n@hookimpl\ndef dlc_pases(graph):\n    return []\n")
    registry = load_registry(kinds=KINDS)
    assert by_name(registry)["next"].state == "ok" and "next-count" in registry.passes
    (problem,) = [p for p in registry.problems if "next" in p.message]
    assert (problem.code, problem.severity) == ("unknown-hook", "note")
    assert "dlc_passes for dlc_pases" in problem.help


def test_of_a_clash_both_plugins_work(install: Install) -> None:
    install("one", GOOD.replace("NAME", "same"))
    install("two", GOOD.replace("NAME", "same"))
    registry = load_registry(kinds=KINDS)
    assert {"one:same-count", "two:same-count"} <= set(registry.passes)
    (problem,) = [p for p in registry.problems if "plugin two" in p.message]
    assert problem.code == "name-clash" and any("same-count is of one (dlc-one 1.2) too" in n for n in problem.notes)
    for name in ("two:same-count", "dlc-two:same-count"):
        assert str(registry.stage(Spec.parse(f"{name}{{start=2}}"))) == "two:same-count{start=2}"
    with pytest.raises(DlcError, match="choose one:same-count or two:same-count") as caught:
        registry.stage(Spec.parse("same-count"))
    assert caught.value.exit_code == ExitCode.PLUGIN
    assert "same-count" in load_registry(["two"], kinds=KINDS).passes


def test_two_distributions_share_the_name_of_an_entry_point(install: Install) -> None:
    install("first", "", distribution="dlc-a", point="same")
    install("second", GOOD.replace("NAME", "mine"), distribution="dlc-b", point="same")
    assert {p.name for p in list_plugins()} >= {"same", "dlc-b:same"}
    assert load_registry(kinds=KINDS).passes["mine-count"].plugin == "dlc-b:same"


def test_what_is_not_importable_has_a_digest_too() -> None:
    digests = [code_digest(name) for name in ("gone_package", "another_gone_package", "", "sys")]
    assert len(set(digests)) == len(digests)


def test_unknown_names_suggest_the_nearest(install: Install) -> None:
    install("good", GOOD.replace("NAME", "good"))
    with pytest.raises(DlcError, match="there is no pass good-cont") as caught:
        load_registry(kinds=KINDS).stage(Spec.parse("good-cont"))
    assert "did you mean good-count?" in str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE


def test_the_core_is_a_plugin_too() -> None:
    registry = load_registry()
    core = registry.plugins[0]
    assert (core.name, core.distribution, core.state) == ("core", "dlc", "ok")
    assert "infer" in registry.pipelines


@pytest.mark.parametrize("name", [lazy.name for lazy in dlc_passes()])
def test_listings_show_what_the_class_declares(name: str) -> None:
    """The documentation read from the source equals the one of the imported class."""
    entry = load_registry(kinds=("passes",)).passes[name]
    kind = entry.load()
    assert kind.name == name
    assert entry.declaration().options == kind.options_doc()
    assert entry.declaration().summary


def test_code_digests_depend_on_content_not_on_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests: list[str] = []
    for place, name, text in (("a", "x.py", "1"), ("b", "x.py", "1"), ("c", "x.py", "2"), ("d", "y.py", "1")):
        package = tmp_path / place / "dlc_digest_probe"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / name).write_text(text)
        (package / "__pycache__").mkdir()
        (package / "__pycache__" / "x.pyc").write_text(place)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [str(tmp_path / place), *sys.path])
            code_digest.cache_clear()
            digests.append(code_digest("dlc_digest_probe"))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    code_digest.cache_clear()
