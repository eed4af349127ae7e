"""`dlc plugins test` fails plugins with seeded faults, each by the right check with what is wrong, and no sound one."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlc import DlcError, error
from dlc.base.diagnostics import ExitCode
from dlc.define import SCALARS
from dlc.verify.kit import backends, frontends, node_tests, refusals
from dlc.verify.kit.check import Case, Check
from dlc.verify.kit.subject import Subject
from dlc.verify.kit.table import CHECKS, cases, level_reached, run
from tests.plugins.packages import make, put, results, site

__all__ = ["site"]


@dataclass(frozen=True)
class Fault:
    """A text of a template, what is put there, the check that has to fail, and what it has to say."""

    kind: str
    old: str
    new: str
    check: str
    says: str


FAULTS: dict[str, Fault] = {
    "imports-numpy": Fault(
        "pass",
        "from dlc import Lazy, hookimpl",
        "import numpy\n\nfrom dlc import Lazy, hookimpl\n\nnumpy.zeros",
        "start-up",
        "imports numpy",
    ),
    "no-versions": Fault(
        "pass",
        "dlc_api = ",
        "other = ",
        "versions",
        "has no dlc_api",
    ),
    "other-name": Fault(
        "pass",
        '    name = "other-name"',
        '    name = "another"',
        "loads",
        "calls itself another",
    ),
    "no-help": Fault(
        "pass",
        '"elements of the largest constant that is replaced"',
        '""',
        "documented",
        "option most .* not",
    ),
    "no-docstring": Fault(
        "pass",
        '"""Multiply by reciprocals: div(x, c)  →  mul(x, 1/c)."""',
        "",
        "documented",
        "docstring",
    ),
    "wrong-pass": Fault(
        "pass",
        "Tensor.of(1 / values",
        "Tensor.of(2 / values",
        "pass-values",
        "differs in 6 of 6 elements",
    ),
    "moody-pass": Fault(
        "pass",
        "            if not np.all(values):",
        "            MOOD.append(0)\n            if len(MOOD) % 2 or not np.all(values):",
        "pass-pure",
        "another result the second time",
    ),
    "idle-pass": Fault(
        "pass",
        "if not np.all(values):",
        "if values is not None:",
        "pass-acts",
        "changes none of the 2 graphs",
    ),
    "wrong-loops": Fault(
        "schedule",
        "nest.index[0], nest.body)",
        "nest.index[0], nest.body + nest.body)",
        "schedule-loops",
        "is not the kernel's",
    ),
    "lost-loops": Fault(
        "schedule",
        "nest.index[0], nest.body)",
        "nest.index[0] * 0, nest.body)",
        "schedule-loops",
        "never written",
    ),
    "crash": Fault(
        "frontend",
        'words[:1] != ["input"]',
        'words[0] != "input"',
        "frontend-hostile",
        "IndexError",
    ),
    "hang": Fault(
        "frontend",
        "        size = 1\n",
        "        size = 1\n        while len(words) == 2:\n            size = 1\n",
        "frontend-hostile",
        "not done after",
    ),
    "greedy": Fault(
        "frontend",
        "        if not 0 < size <= LARGEST:",
        "        if size < 1 or not np.ones(shape, np.int8).size:",
        "frontend-hostile",
        "more than 2 GiB",
    ),
    "misread": Fault(
        "frontend",
        '"scale": Mul, "shift": Add',
        '"scale": Add, "shift": Mul',
        "frontend-reads",
        "y differs from the sample",
    ),
    "fails-with-options": Fault(
        "frontend",
        "shape = (rows or sizes[0], *sizes[1:])",
        "shape = (sizes[0], *sizes[1 + rows :])",
        "frontend-reads",
        r"fails-with-options.rows=4. reads no sample model: chain.* 3 numbers, the last dimension 2",
    ),
    "moody-with-options": Fault(
        "frontend",
        "shape = (rows or sizes[0], *sizes[1:])",
        "LAYERS['seen'] = LAYERS.get('seen', 0) + 1\n        shape = (rows and LAYERS['seen'] or sizes[0], *sizes[1:])",
        "frontend-reads",
        r"chain.* by moody-with-options.rows=4. is read as another graph the second time",
    ),
    "unbuilt": Fault(
        "frontend",
        "    def sniff(",
        "    def companions(self, source):\n        return (Source(source.path.parent),)\n\n    def sniff(",
        "frontend-builds",
        r"chain.* by unbuilt for c.*: AttributeError: 'NoneType' object has no attribute 'parent'",
    ),
    "broken-emit": Fault(
        "backend",
        'report.count("calls", len(lines))',
        "report.count('calls', list(range(6))[len(lines)])",
        "backend-graphs",
        r"broken-emit.* on the random graph of --seed \d+: internal error in emit .*IndexError",
    ),
    "wrong-call": Fault(
        "backend",
        '"sub": ufunc("subtract")',
        '"sub": ufunc("add")',
        "backend-graphs",
        "y. differs in",
    ),
    "wrong-node": Fault(
        "backend",
        '"abs": ufunc("abs")',
        '"abs": ufunc("negative")',
        "backend-node-tests",
        "test_abs: y differs",
    ),
    "mute": Fault(
        "backend",
        'return Reason(f"the library has no',
        'return False and Reason(f"the library has no',
        "backend-legality",
        "without a reason",
    ),
    "no-types": Fault(
        "kernel-backend",
        "def accepts_type(",
        "def accepts_types(",
        "backend-refusals",
        "fails with values of f16: .*KeyError.*no question refuses it",
    ),
    "no-functions": Fault(
        "kernel-backend",
        "def accepts_kernel(",
        "def accepts_kernels(",
        "backend-refusals",
        "fails with a kernel of truncdiv: .*KeyError: 'truncdiv'.*no question refuses it",
    ),
    "type-without-reason": Fault(
        "kernel-backend",
        'return Reason(f"element type',
        'return False and Reason(f"element type',
        "backend-refusals",
        r"accepts_type\(f16\[\]\) refuses without a reason: False",
    ),
    "unasked-shape": Fault(
        "kernel-backend",
        "if type.is_open:",
        "if type.shape and type.shape[0].bit_length() > 20:",
        "backend-refusals",
        r"accepts_type\(f32\[n\(1,4\),3\]\) fails: AttributeError",
    ),
    "crash-before-refusal": Fault(
        "kernel-backend",
        "return not op.body_names or",
        "return bool(c_code.TYPES[op.dtype]) and not op.body_names or",
        "backend-refusals",
        "a model with values of f16 and 19 more, which it refuses, does not end in the refusal: KeyError",
    ),
    "misaligned": Fault(
        "backend",
        "    def emit(",
        "    def regions(self):\n        return {'ram': Region(align=0)}\n\n    def emit(",
        "backend-describes",
        "aligned to 0 bytes",
    ),
    "wrong-rule": Fault(
        "importer",
        "return Relu(Sub(x, number(",
        "return (Sub(x, number(",
        "import-rules",
        "Threshold1.onnx: y differs",
    ),
    "unused-rule": Fault(
        "importer",
        'ModelSample(model("Threshold", ONE, at=0.25), ONE, {"y": np.maximum(X - 0.25, 0)}),',
        "",
        "import-rules",
        "no sample model uses the rule of .*Threshold since version 1",
    ),
    "wrong-example": Fault(
        "op-pack",
        "width: 0.75, y: [[0.25,",
        "width: 0.75, y: [[0.5,",
        "op-pack|plugin",
        "soft_shrink",
    ),
    "wrong-steps": Fault(
        "optimizer",
        "GreaterOrEqual(Mul(old, g)",
        "GreaterOrEqual(Mul(g, g)",
        "optimizer-steps",
        "after step 2 the weight is off by",
    ),
    "idle-steps": Fault(
        "optimizer",
        "Sub(w, Mul(new, rate))",
        "w",
        "optimizer-types",
        "is the same after 3 steps",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_found(name: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    monkeypatch.setattr(frontends, "SECONDS", 0.5)
    monkeypatch.setattr(refusals, "SCALARS", {name: SCALARS[name] for name in ("add", "truncdiv", "exp", "select")})
    changes = [(fault.old, fault.new)]
    if fault.kind == "kernel-backend":
        changes.append(('"-O1"', '"-O0"'))
    if name == "moody-pass":
        changes.append(("\n\n@dataclass", "\nMOOD = []\n\n\n@dataclass"))
    if name == "misaligned":
        changes.append(("Reason, Report", "Reason, Region, Report"))
    make(fault.kind, name, site, *changes)
    found = [r for part in fault.check.split("|") for r in results(name, part) if r.state == "failed"]
    assert found, f"{fault.check} holds"
    assert re.search(fault.says, found[0].text), found[0].text
    assert found[0].help


def test_places_and_environments_of_builds_do_not_matter(site: Path) -> None:
    """A program with the directory of its build in it, and a key with the environment in it."""
    make(
        "backend",
        "leaky",
        site,
        ('text = "\\n".join([*head', 'text = "\\n".join([f"# {Path.cwd()}", *head'),
        ("    def emit(", "    def toolchain(self):\n        return str(Path.cwd())\n\n    def emit("),
    )
    subject = Subject.of("leaky")
    found = {c.check.name: run(subject, c).text for c in cases(subject, ("backend-bytes", "backend-keys"))}
    assert "program.py differs between two builds at byte" in found["backend-bytes"]
    assert re.search(r"build.* ran again for an equal model", found["backend-keys"])


SPLIT = '''
"""Models of two files: a number of floats, and the floats beside it."""
import struct
from dataclasses import dataclass
from pathlib import Path

from dlc import DlcError, Frontend, ModelSample, Samples, Source, error, hookimpl, make_graph
from dlc.base.types import Type, f32
from dlc.graph import Constant, Input, Tensor
from dlc.ops.elementwise import Add

dlc_api = ">=0"

@dataclass(frozen=True)
class Split(Frontend):
    """Models of two files."""

    name = "NAME"
    suffixes = (".NAME",)

    def companions(self, source):
        return () if source.path is None else (Source(source.path.with_suffix(".raw")),)

    def parse(self, source, report):
        count = int(source.view()[0]) if len(source.view()) == 1 else 0
        if count != 2 or source.path is None:
            raise error("bad-split", "the count is not 2")
        data = bytes(self.companions(source)[0].view())
        if CHECK and len(data) != 4 * count:
            raise error("bad-split", f"{len(data)} bytes for {count} floats")
        values = struct.unpack_from(f"<{count}f", data)
        x = Input("x", Type(f32, (count,)))
        return make_graph([x], {"y": Add(x, Constant(Tensor.of(list(values), f32)))})

@hookimpl
def dlc_frontends():
    return [Split]

@hookimpl
def dlc_samples():
    model = Path(__file__).with_name("two.NAME")
    model.write_bytes(bytes([2]))
    model.with_suffix(".raw").write_bytes(struct.pack("<2f", 0.5, -1.0))
    return Samples(models=(ModelSample(Source(model), {"x": [1.0, 2.0]}, {"y": [1.5, 1.0]}),))
'''


@pytest.mark.parametrize(("name", "check"), [("split", "True"), ("trusting", "False")])
def test_the_other_files_of_a_model_are_damaged_too(name: str, check: str, site: Path) -> None:
    text = SPLIT.replace("NAME", name).replace("CHECK", check).lstrip()
    put({f"dlc_frontend_{name}/__init__.py": text}, name, f"dlc-frontend-{name}", site)
    (found,) = results(name, "frontend-hostile")
    if check == "True":
        assert found.state == "ok", found.text
        assert int(found.text.split()[0]) > 100, "both files"
    else:
        assert re.search(r"two\.trusting, two\.raw: an empty file: error: unpack_from requires", found.text), found.text


OPS = '''
"""An op in Python."""
from dlc import Lazy, Op, OpSample, Samples, hookimpl, option
from dlc.base.types import Type, f32
from dlc.define import apply, comp, grid
from dlc.graph import Input
from dlc.ops.elementwise import Mul, Neg, Sigmoid

dlc_api = ">=0"

class Gate(Op):
    """y = sigmoid(x)."""

    x: Op

    def define(self, x):
        i = grid(x.shape)
        return comp(i, 1.0 / (apply("exp", -x[i]) + 1.0))

    def evaluate(self, x):
        import numpy as np
        return VALUE

    def vjp(self, dy):
        y = Sigmoid(self.x)
        return (Mul(dy, GRADIENT),)

@hookimpl
def dlc_ops():
    return [Gate]

@hookimpl
def dlc_samples():
    return Samples(ops=SAMPLES)
'''
RIGHT = {
    "VALUE": "1 / (1 + np.exp(-x))",
    "GRADIENT": "Mul(y, Sigmoid(Neg(self.x)))",
    "SAMPLES": '(OpSample(Gate(Input("x", Type(f32, (2, 3))))),)',
}


@pytest.mark.parametrize(
    ("name", "change", "failing", "message"),
    [
        ("sound", {}, "", ""),
        ("wrong-value", {"VALUE": "1 / (1 + np.exp(x))"}, "op-value", "evaluate and the definition differ in"),
        ("wrong-gradient", {"GRADIENT": "y"}, "op-gradient", "the derivative by x is"),
        ("no-sample", {"SAMPLES": "()"}, "op-kernel", "there is no sample of gate"),
    ],
)
def test_ops_in_python(name: str, change: dict[str, str], failing: str, message: str, site: Path) -> None:
    text = OPS
    for word, code in (RIGHT | change).items():
        text = text.replace(word, code)
    package = f"dlc_ops_{name.replace('-', '_')}"
    put({f"{package}/__init__.py": text.lstrip()}, name, f"dlc-ops-{name}", site)
    found = {r.check: r.text for r in results(name, "gate") if r.state == "failed"}
    assert bool(found) == bool(failing)
    assert not failing or re.search(message, found[failing])


def test_what_cannot_be_imported_is_one_failure(site: Path) -> None:
    put({"dlc_broken_one/__init__.py": "raise RuntimeError('no licence')\n"}, "broken-one", "dlc-broken-one", site)
    (found,) = results("broken-one", "backend-refusals")
    assert results("broken-one")[0].text == found.text, "whatever is asked for"
    assert (found.check, found.state) == ("plugin", "failed")
    assert "RuntimeError: no licence" in found.text


def test_an_unknown_plugin_is_an_error_of_usage() -> None:
    with pytest.raises(DlcError, match="no plugin onyx is installed") as caught:
        Subject.of("onyx")
    assert caught.value.exit_code is ExitCode.USAGE


def test_an_error_is_told_with_what_was_tried_and_what_a_tool_said() -> None:
    def fails(*_: object) -> str:
        problem = error("no-compile", "cc fails", notes=["a.c:1: error: rank", *map(str, range(9))], help="mend it")
        problem.add_note("test_and2d")
        raise problem

    found = run(Subject.of("kernel"), Case(Check("values", "values are right", fails), None, "kernel"))
    assert found.text == "test_and2d: cc fails: a.c:1: error: rank: 0: 1: 2"
    assert (found.state, found.help) == ("failed", "mend it")


def test_the_level_of_a_port_is_the_last_one_that_holds(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_ASKED", 5)
    make("backend", "half-done", site, ('"mul": ufunc("multiply")', '"mul": ufunc("add")'))
    subject = Subject.of("half-done", level=3)
    found = [run(subject, case) for case in cases(subject)]
    assert level_reached(found) == 2
    assert {r.level for r in found} == {0, 1, 2, 3}


def test_checks_have_names_of_their_own_and_say_what_they_ask() -> None:
    kinds: dict[str, set[object]] = {}
    for check in CHECKS:
        assert check.kind not in kinds.setdefault(check.name, set()), check
        kinds[check.name].add(check.kind)
        assert check.asks and not check.asks.endswith("."), check


def test_node_tests_of_claimed_operators_come_first() -> None:
    first = next(iter(node_tests.node_tests(frozenset({"leaky_relu"}), 0)))
    assert first.name.startswith("test_leakyrelu")
    assert first.inputs[0].shape == first.outputs[0].shape


def test_plugins_without_packs_need_no_libraries_of_packs() -> None:
    script = "import sys; sys.modules.update(yaml=None, pydantic=None); import dlc.verify.kit.table"
    subprocess.run([sys.executable, "-c", script], check=True)
