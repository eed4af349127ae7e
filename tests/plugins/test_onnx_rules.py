"""Import rules that plugins add to the ONNX frontend: found, kept apart, and named in refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from dlc import DlcError, ExitCode, Report, Source, Spec
from dlc.graph import evaluate
from dlc.plugins.discovery import load_registry
from tests.frontend_onnx.building import model_of
from tests.plugins.example import Machine

Install = Callable[..., None]
X = np.array([[1.0, -2.0, 0.5], [3.0, 0.25, -1.0]], np.float32)

HOOK = """
from dlc import Lazy, hookimpl

@hookimpl
def dlc_onnx_rules():
    return [Lazy(domain, __name__ + SUFFIX) for domain in DOMAINS]
"""
RULES = """
from dlc.ops import elementwise as e
from dlc_frontend_onnx.api import Node, Unsupported, number, onnx

@onnx("Twice", domain="org.acme")
def twice(node):
    '''2 · x.'''
    return e.Add(node.x(), node.x())

@onnx("Twice", since=3, domain="org.acme")
def thrice(node):
    '''Someone's mistake in version 3.'''
    return e.Mul(node.x(), number(3, node.x()))

@onnx("Both", domain="org.acme")
def both(node):
    '''x + y and x - y.'''
    return e.Add(node.x(0), node.x(1)), e.Sub(node.x(0), node.x(1))
"""


def plugin(*domains: str, suffix: str = "", rules: str = RULES) -> str:
    return HOOK.replace("SUFFIX", repr(suffix)).replace("DOMAINS", repr(domains)) + ("" if suffix else rules)


def parsed(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], version: int = 1, options: str = "") -> Any:
    """The graph of a model, read by what is installed."""
    domains = sorted({n.domain for n in nodes} - {""})
    model = model_of(nodes, {"x": X}, outputs, domains=domains)
    for imported in model.opset_import:
        imported.version = version if imported.domain else imported.version
    frontend = load_registry().frontend(Spec.parse(f"onnx{options}"))
    return frontend.parse(Source(data=model.SerializeToString(), label="m.onnx"), Report())


def refused(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], options: str = "") -> DlcError:
    with pytest.raises(DlcError) as caught:
        parsed(nodes, outputs, options=options)
    return caught.value


def acme(op: str, outputs: Sequence[str] = ("y",), domain: str = "org.acme", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["x", "x"] if op == "Both" else ["x"], list(outputs), domain=domain, **attributes)


@pytest.mark.parametrize(("version", "factor"), [(1, 2), (2, 2), (3, 3), (7, 3)])
def test_a_rule_serves_its_versions(version: int, factor: int, install: Install) -> None:
    install("acme", plugin("org.acme"))
    graph = parsed([acme("Twice")], ["y"], version)
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], factor * X)


def test_a_rule_may_give_several_results(install: Install) -> None:
    install("acme", plugin("org.acme"))
    got = evaluate(parsed([acme("Both", ["y", "z"])], ["y", "z"]), {"x": X})
    np.testing.assert_array_equal(got["y"], 2 * X)
    np.testing.assert_array_equal(got["z"], 0 * X)


def test_plugins_may_share_a_domain_and_add_to_ours(install: Install) -> None:
    install("acme", plugin("org.acme"))
    other = RULES.replace("Twice", "Double").replace("Both", "Two")
    install("more", plugin("org.acme", rules=other))
    install("ours", plugin("com.microsoft", rules=other.replace("org.acme", "com.microsoft")))
    nodes = [acme("Twice", ["a"]), acme("Double", ["b"]), acme("Double", ["c"], "com.microsoft"), acme("Gelu", ["d"])]
    nodes[-1].domain = "com.microsoft"
    got = evaluate(parsed(nodes, ["a", "b", "c", "d"]), {"x": X})
    for name in "abc":
        np.testing.assert_array_equal(got[name], 2 * X)


def test_a_package_offers_the_rules_of_all_its_modules(install: Install, tmp_path: Path) -> None:
    install("acme", plugin("org.acme", suffix="_ops"))
    package = tmp_path / "dlc_test_acme_ops"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("from dlc_test_acme_ops.deep.rules import twice\n")
    (package / "deep" / "__init__.py").write_text("")
    (package / "deep" / "rules.py").write_text(RULES)
    np.testing.assert_array_equal(evaluate(parsed([acme("Twice")], ["y"]), {"x": X})["y"], 2 * X)


def test_rules_are_imported_for_models_of_their_domain_only(install: Install) -> None:
    install("acme", plugin("org.acme", suffix="_absent"))
    assert parsed([helper.make_node("Relu", ["x"], ["y"])], ["y"]).outputs
    problem = refused([acme("Twice"), acme("Twice", ["z"])], ["y", "z"])
    assert problem.exit_code is ExitCode.PLUGIN and len(problem.diagnostics) == 1
    assert "plugin acme: org.acme cannot be loaded: ModuleNotFoundError" in str(problem)


WRONG = {
    "another domain": (plugin("org.acme", rules=RULES + RULES.replace("org.acme", "org.b")), "a rule for org.b.Both"),
    "no rules": (plugin("org.acme", rules=""), "has no rule of this domain"),
    "one version twice": (plugin("org.acme", rules=RULES.replace("since=3, ", "")), "two import rules for one version"),
    "no result": (plugin("org.acme", rules=RULES.replace("return e.Add(node.x(), node.x())", "pass")), "returned None"),
    "a number": (plugin("org.acme", rules=RULES.replace("return e.Add(node.x(), ", "return 2, (")), "returned int"),
    "a broken module": (plugin("org.acme", rules="1 / 0\n" + RULES), ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_plugin_is_said_once_with_its_name(name: str, install: Install) -> None:
    code, reason = WRONG[name]
    install("acme", code)
    problem = refused([acme("Twice")], ["y"])
    if name == "a broken module":  # the module of hooks itself: its plugin is skipped as a whole
        assert "no installed package has import rules for the domain org.acme" in str(problem)
        return
    assert problem.exit_code is ExitCode.PLUGIN
    assert "plugin acme (dlc-acme 1.2)" in str(problem) and reason in str(problem)


def test_a_hook_that_returns_something_else_breaks_its_plugin_only(install: Install) -> None:
    install("acme", plugin("org.acme").replace("Lazy(domain, __name__", "(domain"))
    registry = load_registry()
    assert any("dlc_onnx_rules must return dlc.Lazy(domain, module)" in p.message for p in registry.problems)
    assert "onnx" in registry.frontends


def test_two_plugins_with_rules_for_one_operator_are_a_clash_where_it_is_used(install: Install) -> None:
    install("acme", plugin("org.acme"))
    install("other", plugin("org.acme"))
    (found,) = refused([acme("Twice")], ["y"]).diagnostics
    assert found.code == "name-clash" and "org.acme.Twice" in found.message and "acme (dlc-acme 1.2)" in found.message
    assert "other (dlc-other 1.2)" in found.message and 'disable = ["other"]' in found.help
    assert parsed([helper.make_node("Relu", ["x"], ["y"])], ["y"]).outputs


@pytest.mark.parametrize("rules", [RULES.replace("org.acme", "com.microsoft").replace("Twice", "Gelu"), "1 / 0\n", ""])
def test_our_rules_hold_whatever_a_plugin_has_for_our_domain(install: Install, rules: str) -> None:
    install("acme", plugin("com.microsoft", suffix="_rules"))
    install("acme_rules", rules, point="rules")
    ours = parsed([acme("Gelu", domain="com.microsoft")], ["y"])
    assert np.abs(evaluate(ours, {"x": X})["y"] - 2 * X).max() > 0.1


def test_errors_below_a_rule_name_its_plugin(install: Install) -> None:
    install("acme", plugin("org.acme", rules=RULES.replace("return e.Add(node.x(), node.x())", "return [][0]")))
    (found,) = refused([acme("Twice")], ["y"]).diagnostics
    assert any("imported by a rule of the plugin acme (dlc-acme 1.2)" in note for note in found.notes)


def test_an_operator_whose_signature_fits_an_installed_one_says_so(install: Install) -> None:
    """Name, operands, attributes and results count; where one differs, there is no suggestion."""
    install("acme", plugin("org.acme"))
    (found,) = refused([acme("Both", ["y", "z"], "org.copy")], ["y", "z"]).diagnostics
    assert "org.copy.Both" in found.message and "for the domain org.copy" in found.message
    assert "org.acme.Both, which the plugin acme (dlc-acme 1.2) imports" in found.help
    assert found.help.endswith("--set onnx.read-as=org.copy:org.acme")
    (found,) = refused([acme("QuickGelu", domain="org.copy", alpha=1.5)], ["y"]).diagnostics
    assert "com.microsoft.QuickGelu, which the plugin onnx" in found.help
    for node in (
        acme("QuickGelu", domain="org.copy", beta=1.5),
        acme("QuickGelu", ["y", "z"], "org.copy"),
        acme("Add", domain="org.copy"),
    ):
        (found,) = refused([node], ["y"]).diagnostics
        assert "read-as" not in found.help and "import rules for org.copy" in found.help


def test_a_domain_is_read_as_another(install: Install) -> None:
    install("acme", plugin("org.acme"))
    nodes = [
        acme("QuickGelu", ["g"], "org.copy", alpha=1.0),
        acme("Twice", ["t"], "org.other"),
        acme("Neg", ["n"], "o"),
    ]
    options = "{read-as=org.copy:com.microsoft,org.other:org.acme,o:ai.onnx}"
    got = evaluate(parsed(nodes, ["g", "t", "n"], options=options), {"x": X})
    np.testing.assert_allclose(got["g"], X / (1 + np.exp(-X)), rtol=1e-6)
    np.testing.assert_array_equal(got["t"], 3 * X)  # the newest version, of a domain that the model does not import
    np.testing.assert_array_equal(got["n"], -X)
    problem = refused(nodes, ["g"], "{read-as=org.copy:org.absent}")
    assert problem.exit_code is ExitCode.USAGE and "com.microsoft" in str(problem)


def test_an_op_of_that_name_says_how_to_import_it(install: Install) -> None:
    (found,) = refused([acme("Root", domain="org.copy")], ["y"]).diagnostics
    assert "dlc has an op root with as many operands" in found.help
    assert '@onnx("Root", domain="org.copy")' in found.help
    for op in ("RangeMax", "Silu"):  # which takes two operands at least; which there is not
        (found,) = refused([acme(op, domain="org.copy")], ["y"]).diagnostics
        assert "import rules for org.copy" in found.help


def test_the_code_of_rules_is_part_of_the_keys_of_models_of_their_domain(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.site.mkdir()
    machine.add("acme", plugin("org.acme"))
    for name, node in (("own", acme("Twice")), ("other", helper.make_node("Relu", ["x"], ["y"]))):
        model = model_of([node], {"x": X}, ["y"], domains=["org.acme"])
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())

    def built(name: str) -> bool:
        """Whether reading the model was cached; a build that is remembered as a whole looks at all plugins."""
        steps = machine.steps(f"{name}.onnx", "-t", "c{cpu=generic}", "-o", name)
        return next(cached for step, cached in steps.items() if step.startswith("onnx"))

    assert not built("own") and not built("other")
    assert built("own") and built("other")
    source = machine.site / "dlc_acme.py"
    source.write_text(source.read_text().replace("e.Add(node.x(), node.x())", "e.Mul(node.x(), node.x())"))
    assert not built("own"), "the rule has changed"
    assert built("other"), "the rule does not act"
    np.save(tmp_path / "x.npy", X)
    machine.dlc("run", "own", "x.npy", "-o", "y.npz")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], X * X)


@pytest.mark.parametrize(
    ("domain", "remedy"),
    [
        ("com.microsoft.nchwc", "ORT_ENABLE_EXTENDED"),
        ("ai.onnx.contrib", "onnxruntime-extensions"),
        ("org.pytorch.aten", "ATEN_FALLBACK"),
        ("pkg.onnxscript.torch_lib", "function that the exporter left out"),
        ("trt.plugins", "TensorRT"),
        ("org.example", "install a dlc plugin with import rules for org.example"),
    ],
)
def test_domains_that_are_often_met_have_a_remedy_of_their_own(domain: str, remedy: str) -> None:
    (found,) = refused([acme("Unheard", domain=domain)], ["y"]).diagnostics
    assert domain in found.message and remedy in found.help
