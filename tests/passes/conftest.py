"""Golden tests of passes: a `.dlc` file is a test.

    # RUN: simplify,expand
    # SHOW: missed
    graph(…) { … }
    ----
    graph(…) { … }
    # not fused …

Several such pairs stand in one file, divided by lines of `====`. SHOW names what is printed besides the result:
`origins` of ops, and what the last pass reported: `missed`, `counts`, `notes`. A RUN line that must fail has the
rendered errors behind it. `pytest --update` rewrites what is expected.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlc.api.passes import AnyPass, check_chain
from dlc.api.plan import Plan
from dlc.base.diagnostics import DlcError, render
from dlc.base.report import Report
from dlc.driver.state_text import print_state
from dlc.graph import Call, Constant, If, Item, Loop, Op, Scan, Splat, parse_graph
from dlc.graph.verify import verify
from dlc.plugins.builtin import dlc_ops, dlc_passes
from dlc.spec import Spec

STRUCTURE: dict[str, type[Op]] = {op.text_name: op for op in (Constant, Splat, Call, Item, If, Loop, Scan)}
BETWEEN, ARROW = "\n====\n", "\n----\n"
SHOWN = {"origins", "missed", "counts", "notes"}


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".dlc" and file_path.parent == Path(__file__).parent:
        return Golden.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]
    return None


class Golden(pytest.File):
    """One file of golden tests."""

    def collect(self) -> Iterator[pytest.Item]:
        for k, text in enumerate(self.path.read_text(encoding="utf-8").split(BETWEEN)):
            yield Example.from_parent(self, name=f"{k}", text=text)  # pyright: ignore[reportUnknownMemberType]


class Example(pytest.Item):
    """One pair of input and expected output."""

    def __init__(self, *, text: str, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self.text = text

    def runtest(self) -> None:
        given, _, expected = f"{self.text}\n".partition(ARROW)
        got = transformed(given, f"{self.path.name}:{self.name}")
        if self.config.getoption("--update"):
            whole = self.path.read_text(encoding="utf-8").split(BETWEEN)
            whole[int(self.name)] = f"{given}{ARROW}{got}".strip("\n")
            self.path.write_text(BETWEEN.join(whole).rstrip("\n") + "\n", encoding="utf-8")
            return
        assert got.strip() == expected.strip()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return str(excinfo.getrepr(style="short"))

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.stem}[{self.name}]"


def transformed(given: str, source: str) -> str:
    """The text of the state after the passes that the RUN line names, with what the SHOW line asks for."""
    lines = given.strip().split("\n")
    head = {key: rest.strip() for key, _, rest in (x[2:].partition(":") for x in lines if x.startswith("# "))}
    shown = set(head.get("SHOW", "").split())
    assert shown <= SHOWN, f"unknown word in the SHOW line: {shown - SHOWN}"
    body = "\n".join(x for x in lines if not x.startswith("# "))
    try:
        state, report = run(head["RUN"], body, source)
    except DlcError as refused:
        return "\n".join(render(d) for d in refused.diagnostics)
    return "\n".join([print_state(state, origins="origins" in shown).rstrip("\n"), *message(report, shown)])


def run(pipeline: str, body: str, source: str) -> tuple[object, Report]:
    """The state after a pipeline on a graph in text, verified after every pass, and the last pass's report."""
    specs = Spec.parse_pipeline(pipeline, source)
    classes: dict[str, type[AnyPass]] = {lazy.name: lazy.load() for lazy in dlc_passes()}
    passes = [classes[spec.name].from_spec(spec) for spec in specs]
    state: object = parse_graph(body, {op.text_name: op for op in dlc_ops()} | STRUCTURE, source=source)
    start = "kernels" if specs[0].name in ("layout", "fuse", "order") else "ops"
    check_chain(passes, specs, start)
    report = Report()
    for step in passes:
        report = Report()
        state = step.run(state, report)
        graph = state.graph if isinstance(state, Plan) else state
        assert verify(graph, "ops" if step.level_out == "ops" else "kernels") == ()  # pyright: ignore[reportArgumentType]
    return state, report


def message(report: Report, shown: set[str]) -> list[str]:
    """What a pass reported, as comment lines."""
    out: list[str] = []
    if "counts" in shown:
        out += [f"# {what}: {n}" for what, n in report.counts.items()]
    if "missed" in shown:
        out += [f"# {report.missed_as} {subject}: {reason}" for subject, reason in report.misses]
    if "notes" in shown:
        out += [f"# {note}" for note in report.notes]
    return out
