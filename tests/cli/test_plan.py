"""`dlc plan`: its figures are those of the plans, and its picture those of any target."""

import json
import re
import xml.etree.ElementTree
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from dlc_backend_s2train.container import read

from dlc.api.function_names import LEARNING
from dlc.api.plan import Plan, Slot
from dlc.base.diagnostics import ExitCode
from dlc.base.report import Report
from dlc.cache.step_record import StepRecord
from dlc.cli.functions import by_function
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Terminal
from dlc.cli.workspace import Workspace
from dlc.html.memory import HEIGHT, WIDTH, memory
from dlc.html.plan import figures, plan_html, plan_svg, view_of
from dlc.passes.plan_memory import PlanMemory
from dlc.passes.rematerialise import Rematerialise
from dlc.record.build import memory_of
from tests.cli.conftest import MODELS, Dlc
from tests.cli.models import EVIL, evil, small
from tests.cli.test_program_files import perceptron
from tests.conftest import Golden


@pytest.fixture(autouse=True)
def models() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("net.onnx").write_bytes(perceptron().SerializeToString())
    Path("tinyvit.onnx").write_bytes((MODELS / "tinyvit" / "model.onnx").read_bytes())
    Path("digits.onnx").write_bytes((MODELS / "mnist_cntk" / "model.onnx").read_bytes())


def plans_of(model: str, target: str, train: str | None = None, pipeline: str | None = None) -> Mapping[str, Plan]:
    """The plan of every function."""
    space = Workspace.open(Terminal(quiet=True), CacheOptions("off"))
    prepared = space.prepare(BuildOptions(model, target, pipeline, train=train))
    steps: list[StepRecord[Any]] = []
    with space.cache() as cache:
        space.compile(prepared, cache, stop_after="plan-memory", on_step=steps.append)
    return {name: own[-1].handle.value for name, own in by_function(steps).items()}


S2TRAIN = ("--target", "s2train")
TRAIN = ("--train", "loss=cross-entropy")
TARGETS = {
    "C": ("digits.onnx", "c", None),
    "C, training": ("net.onnx", "c", "loss=cross-entropy,optimizer=adam"),
    "C, immediate": ("net.onnx", "c", "loss=cross-entropy,updates=immediate"),
    "S2Train": ("net.onnx", "s2train", None),
    "S2Train, training": ("net.onnx", "s2train", "loss=cross-entropy"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_the_picture_of_every_function(name: str) -> None:
    """The line of live bytes touches the bound, which the planner found by other means."""
    model, target, train = TARGETS[name]
    plans = plans_of(model, target, train)
    assert (len(plans) > 1) == (train is not None)
    for function, plan in plans.items():
        passes = {v.role for v in memory_of(plan).values} & {"forward", "backward"}
        assert passes == ({"forward", "backward"} if function in LEARNING and plan.slots else set()), function
    drawn = [memory(plan) for plan in plans.values() if plan.slots]
    assert any(picture.rectangles for picture in drawn)
    for picture in drawn:
        points = [tuple(map(float, p.split(","))) for p in picture.curve.split()]
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert (points[0][0], points[-1][0]) == (0, WIDTH)
        # Addresses are multiples of 64 bytes, so up to 63 bytes a value that is alive may be none's.
        spare = 64 * len(picture.rectangles) * HEIGHT / max(picture.arena, 1)
        assert picture.bound_y - 0.1 <= min(y for _, y in points) <= picture.bound_y + spare + 0.1
        for r in picture.rectangles:
            assert 0 < r.width <= WIDTH + 0.01
            assert -0.01 <= r.x <= r.x + r.width <= WIDTH + 0.01
            assert -0.01 <= r.y <= r.y + r.height <= HEIGHT + 0.01


def test_values_that_live_at_once_do_not_overlap_in_the_picture() -> None:
    """Unless one takes the other's place: then they share a step only, the last of one and the first of the other."""
    for plan in plans_of("net.onnx", "s2train", "loss=cross-entropy").values():
        drawn, step = memory(plan).rectangles, WIDTH / len(plan.steps)
        for k, a in enumerate(drawn):
            for b in drawn[:k]:
                high = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
                wide = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
                assert high < 0.01 or wide <= step + 0.01


def test_an_input_that_is_kept_is_drawn() -> None:
    plan = plans_of("small.onnx", "c")[""]
    (x,) = plan.graph.inputs
    kept = Plan(plan.graph, plan.steps, {**plan.slots, x.digest: Slot("arena", 0, x.type.nbytes)}, {"arena": 64})
    drawn = [r for r in memory(kept).rectangles if r.title.startswith("input x")]
    assert [(r.x, r.height) for r in drawn] == [(0, x.type.nbytes * HEIGHT / 64)]


@pytest.mark.parametrize(
    "line",
    [("digits.onnx",), ("net.onnx", *S2TRAIN), ("net.onnx", *S2TRAIN, *TRAIN)],
    ids=["c", "s2train", "s2train training"],
)
def test_what_is_reported_is_what_a_build_does(dlc: Dlc, line: tuple[str, ...]) -> None:
    planned = dlc("plan", *line, "--json").document
    built = dlc("build", *line, "-o", "out", "--json").document
    function = planned["functions"][0]
    assert built["memory"]["arena"] == function["peak_bytes"] >= function["bound_bytes"] > 0
    assert built["memory"]["bound"] == function["bound_bytes"]
    assert function["unshared_bytes"] >= function["peak_bytes"] - 64 * function["steps"]
    # The plan was there already.
    assert [s["cached"] for s in built["steps"] if s["step"].startswith("plan-memory")] == [True] * len(
        planned["functions"]
    )


LOSS = "loss=cross-entropy,optimizer=adam"


@pytest.mark.parametrize("cpu", ["generic", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    ("model", "train"),
    [("digits.onnx", ()), ("tinyvit.onnx", ()), ("net.onnx", ("--train", LOSS)), ("digits.onnx", ("--train", LOSS))],
    ids=["convolutions", "attention", "perceptron, training", "convolutions, training"],
)
def test_there_is_one_total_of_memory(dlc: Dlc, model: str, train: tuple[str, ...], cpu: str) -> None:
    """What a plan tells is what the build, its header, its manifest and its report tell, whatever vectors there are."""
    line = (model, *train, "--target", f"c{{cpu={cpu} lib=none prefix=net}}")
    planned = dlc("plan", *line, "--json").document["functions"]
    built = dlc("build", *line, "-o", "out", "--html", "--json").document["memory"]
    peak = max(f["peak_bytes"] for f in planned)
    assert built["arena_bytes"] == peak >= max(f["bound_bytes"] for f in planned)
    assert built["workspace_bytes"] == max(f["workspace_bytes"] for f in planned) < peak
    assert json.loads(Path("out/manifest.json").read_text())["memory"]["arena_bytes"] == peak
    assert re.findall(r"#define NET_ARENA_BYTES (\d+)", Path("out/net.h").read_text()) == [str(peak)]
    row = f'<tr><th scope="row">arena bytes</th><td class="c w">{peak:,}</td></tr>'
    assert row in Path("out/report.html").read_text()
    for f in planned:
        assert built.get(f"{f['function']}_arena_bytes", peak) == f["peak_bytes"]
    # Loops for vectors copy what they would otherwise read out of its order.
    copies = cpu != "generic" and (model == "tinyvit.onnx" or (model == "digits.onnx" and bool(train)))
    assert built["workspace_bytes"] > 0 or not copies


def test_a_target_without_vectors_packs_nothing(dlc: Dlc) -> None:
    """No weight is padded: what the program holds are the model's parameters, each from a multiple of 64 bytes."""
    line = ("build", "digits.onnx", "-o", "out", "--json", "--target")
    scalar, vectors = (
        dlc(*line, f"c{{cpu={cpu} lib=none}}").document["memory"]["weights_bytes"] for cpu in ("generic", "x86-64-v3")
    )
    wide = ("--set", "layout.panel=16", "--set", "layout.pad=yes")
    asked = dlc(*line, "c{cpu=generic lib=none}", *wide).document["memory"]["weights_bytes"]
    assert (scalar, vectors, asked) == (24_064, 30_976, 30_976)


def test_workspaces_are_drawn(dlc: Dlc) -> None:
    plan = plans_of("tinyvit.onnx", "c{cpu=x86-64-v3}")[""]
    drawn = [r for r in memory(plan).rectangles if ": workspace, " in r.title]
    assert len(drawn) == len(plan.workspaces) > 0
    assert {round(r.width, 6) for r in drawn} == {round(WIDTH / len(plan.steps), 6)}


def test_what_is_printed(dlc: Dlc, golden: Golden) -> None:
    target = ("--target", "c{cpu=x86-64-v3}")
    for name, line in {
        "digits": ("digits.onnx",),
        "training": ("net.onnx", "--train", "loss=cross-entropy"),
        "compare": ("digits.onnx", "--compare", "none,greedy,search"),
    }.items():
        text = dlc("plan", *line, *target, "-q").transcript()
        golden(f"plan/{name}.txt", re.sub(r"\b\d\.\d{3}  ", "<s>    ", text))
    ran = dlc("plan", "net.onnx", *S2TRAIN, *TRAIN, "--html", "plan.html")
    assert ran.out.endswith("html: plan.html\n")
    assert {line.split()[0] for line in ran.out.splitlines()[1:4]} == {"step", "predict", "evaluate"}
    page = Path("plan.html").read_text(encoding="utf-8")
    assert page.count("<svg") == sum(
        1 for p in plans_of("net.onnx", "s2train", "loss=cross-entropy").values() if p.slots
    )
    assert {p.name for p in Path().iterdir()} == {
        "dlc.toml", "small.onnx", "net.onnx", "digits.onnx", "tinyvit.onnx", "plan.html"
    }  # fmt: skip


def test_a_pipeline_without_a_plan(dlc: Dlc, golden: Golden) -> None:
    ran = dlc("plan", "small.onnx", "-p", "expand,lower")
    golden("plan/no_plan.txt", ran.transcript())
    assert ran.code == ExitCode.USAGE


@pytest.mark.parametrize("place", ["small.onnx", "absent/plan.html", "."])
def test_places_that_will_not_do(dlc: Dlc, place: str) -> None:
    before = Path("small.onnx").read_bytes()
    ran = dlc("plan", "small.onnx", "--html", place)
    assert ran.code == ExitCode.USAGE
    assert ran.err.startswith("error[cannot-write]: ")
    assert Path("small.onnx").read_bytes() == before


class Elements(HTMLParser):
    """The names of all elements."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)


@pytest.mark.parametrize("name", [EVIL, "<script>alert(1)</script>", "</title></svg><b onclick='x'>", "{{ 7 * 7 }}"])
def test_names_stay_text(name: str) -> None:
    made = evil()
    made.graph.node[0].name = name
    Path("evil.onnx").write_bytes(made.SerializeToString())
    plans = plans_of("evil.onnx", "c", pipeline="lower,order,plan-memory")
    views = [view_of(plans[""], name, "greedy", 0.0)]
    for page in (plan_html(name, name, views), drawing := plan_svg(name, views)):
        parser = Elements()
        parser.feed(page)
        assert not parser.names & {"script", "b", "iframe", "img"}
        assert "49" not in page.split("<style>")[0]
    assert xml.etree.ElementTree.fromstring(drawing).tag.endswith("}svg")
    assert figures(plans[""])["steps"] == 2


def test_strategies_side_by_side(dlc: Dlc) -> None:
    ran = dlc(
        "plan", "net.onnx", *TRAIN, "--compare", "none, search,none", "--html", "a.html", "--svg", "a.svg", "--json"
    )
    found = ran.document["compare"]
    names = [f["function"] for f in ran.document["functions"]]
    assert [(c["function"], c["strategy"]) for c in found] == [(f, s) for f in names for s in ("none", "search")]
    searched = {c["function"]: c for c in found if c["strategy"] == "search"}
    for f in ran.document["functions"]:
        c = searched[f["function"]]
        assert (c["arena_bytes"], c["bound_bytes"]) == (f["peak_bytes"], f["bound_bytes"])
        assert c["optimal"]
        assert (c["gap_percent"], c["seconds"] >= 0) == (0, True)
    drawn = sum(c["arena_bytes"] > 0 for c in found)
    assert Path("a.html").read_text(encoding="utf-8").count("<svg") == drawn
    assert len(xml.etree.ElementTree.parse("a.svg").findall("{http://www.w3.org/2000/svg}svg")) == drawn


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--compare", "greedy,best"), "error[bad-option]: --compare: there is no strategy best"),
        (("--compare", "greedy,"), "no strategy without a name"),
        (("--compare", "greedy", "--limit", "1KiB"), "error[no-effect]: --limit: --compare makes"),
        (("--compare", "greedy", "--strategy", "search"), "error[no-effect]: --strategy"),
        (("--svg", "net.onnx"), "error[cannot-write]"),
    ],
)
def test_comparisons_that_mean_nothing(dlc: Dlc, flags: tuple[str, ...], said: str) -> None:
    ran = dlc("plan", "net.onnx", *flags)
    assert ran.code == ExitCode.USAGE
    assert said in ran.err


def test_the_published_count_of_a_step(dlc: Dlc) -> None:
    """An option of the target adds a count; the plan is the same."""
    plain = dlc("plan", "net.onnx", *S2TRAIN, *TRAIN, "-q").out
    ran = dlc("plan", "net.onnx", "--target", "s2train{lifetimes=published}", *TRAIN, "-q")
    assert ran.code == ExitCode.OK
    assert ran.out.startswith(plain.rstrip())
    assert "\nstep in the published count: peak " in ran.out
    assert "overhead 0.00 %\nthat count: " in ran.out
    found = dlc("plan", "net.onnx", "--target", "s2train{lifetimes=published}", *TRAIN, "--json").document["facts"]
    assert found["published_peak"] == found["published_bound"] > 0
    inference = dlc("plan", "net.onnx", "--target", "s2train{lifetimes=published}", "-q").out
    assert "\nthe program in the published count: " in inference


def test_a_build_tells_the_published_count(dlc: Dlc) -> None:
    plain, text = (
        dlc("build", "net.onnx", "--target", target, *TRAIN, "-o", out, "-q").out
        for target, out in (("s2train", "a"), ("s2train{lifetimes=published}", "b"))
    )
    assert "published count" not in plain
    assert "\nstep in the published count: peak " in text
    one, other = (read(memoryview(Path(out, "net.s2t").read_bytes()), out) for out in "ab")
    assert replace(one, meta={}) == replace(other, meta={})


@pytest.mark.parametrize("cpu", ["generic", "x86-64-v3", "x86-64-v4"])
def test_steps_are_executed_again_within_a_budget_or_a_size(dlc: Dlc, cpu: str) -> None:
    """On machines whose kernels work in memory of different sizes, so that searches end differently."""
    target = ("--target", f"c{{cpu={cpu}}}")
    line = ("plan", "digits.onnx", *target, *TRAIN, "--json")
    plain = dlc(*line).document["functions"][0]
    curve = dlc(*line, "--curve").document
    assert curve["function"] == plain["function"] == "gradients" and curve["operations"] == plain["steps"]
    peaks = [row["arena_bytes"] for row in curve["schedules"]]
    assert peaks == sorted(peaks, reverse=True) and peaks[0] == plain["peak_bytes"] > peaks[-1]
    for row in curve["schedules"]:  # what a larger budget does for less, a smaller one does too
        within = [r["peak_bytes"] for r in curve["schedules"] if r["extra_percent"] <= row["budget_percent"]]
        assert row["peak_bytes"] == min(within)
    last = curve["schedules"][-1]
    assert last["proven"] and last["repeated_steps"] > 0 and 0 < last["extra_percent"] <= 50
    for flags in (("--budget", "50%"), ("--memory", str(peaks[-1]), "--states", "5000")):
        found = dlc(*line, *flags).document["functions"][0]
        assert found["peak_bytes"] == peaks[-1] and found["steps"] == plain["steps"] + last["repeated_steps"]
    ran = dlc("plan", "digits.onnx", "--memory", "1KiB")
    assert ran.code == ExitCode.LIMIT and "in use there: " in ran.err and "31360 bytes without extra work" in ran.err
    head, names, *rows = dlc("plan", "digits.onnx", *target, *TRAIN, "--curve", "-q").out.splitlines()
    assert head == f"gradients: {plain['steps']} operations" and names.split()[:3] == ["budget", "extra", "work"]
    assert len(rows) == len(peaks) and f"{peaks[-1]:,} B  optimal" in rows[-1]


@pytest.mark.parametrize(
    ("flags", "code", "status"),
    [
        (("--memory", "2 cows"), "bad-option", ExitCode.USAGE),
        (("--memory", "1KiB", "--budget", "5"), "no-effect", ExitCode.USAGE),
        (("--states", "7"), "no-effect", ExitCode.USAGE),
        (("--curve", "--html", "a.html"), "no-effect", ExitCode.USAGE),
        (("--curve", "--svg", "a.svg"), "no-effect", ExitCode.USAGE),
        (("--curve", "--compare", "greedy"), "no-effect", ExitCode.USAGE),
        (("--curve", "-p", "infer", "--without", "rematerialise"), "no-effect", ExitCode.USAGE),
        (("--budget", "5", "-p", "infer", "--without", "rematerialise"), "no-effect", ExitCode.USAGE),
    ],
)
def test_what_executing_again_cannot_do_is_said(dlc: Dlc, flags: tuple[str, ...], code: str, status: int) -> None:
    ran = dlc("plan", "small.onnx", *flags)
    assert ran.code == status and f"error[{code}]" in ran.err and ran.out == ""


def test_what_is_computed_again_is_hatched(dlc: Dlc) -> None:
    steps: list[StepRecord[Any]] = []
    space = Workspace.open(Terminal(quiet=True), CacheOptions("off"))
    prepared = space.prepare(BuildOptions("digits.onnx", "c{cpu=generic}", train="loss=cross-entropy"))
    with space.cache() as cache:
        space.compile(prepared, cache, stop_after="order", on_step=steps.append)
    ordered: Plan = by_function(steps)["gradients"][-1].handle.value
    again = Rematerialise(budget=10.0).run(ordered, Report())
    for plan, repeated in ((PlanMemory().run(ordered, Report()), 0), (PlanMemory().run(again, Report()), 1)):
        drawing = memory(plan)
        hatched = [r for r in drawing.rectangles if r.stripes]
        assert bool(hatched) == repeated and len(hatched) <= int(plan.facts.get("repeated_steps", 0))
        assert [role for role, _, striped in drawing.key if striped] == ["computed again"] * repeated
        view = view_of(plan, "gradients", "", 0.0)
        assert ('class="swatch hatched"' in plan_html("digits", "c", [view])) == repeated
        assert plan_svg("digits", [view]).count('class="stripes"') == len(hatched) + repeated
