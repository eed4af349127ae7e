"""Golden tests of passes: a `.dlc` file is a test.

    # RUN: simplify,expand
    graph(…) { … }
    ----
    graph(…) { … }

Several such pairs stand in one file, divided by lines of `====`. `pytest --update` rewrites what is expected.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlc.builtin import dlc_ops, dlc_passes
from dlc.graph import Call, Constant, Item, Op, Splat, parse_graph, print_graph, verify
from dlc.passes.base import AnyPass, check_chain, run_passes
from dlc.report import Report
from dlc.spec import Spec

STRUCTURE: dict[str, type[Op]] = {op.text_name: op for op in (Constant, Splat, Call, Item)}
BETWEEN, ARROW = "\n====\n", "\n----\n"


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".dlc":
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
    """The text of the graph after the passes that the RUN line names."""
    head, _, body = given.strip().partition("\n")
    specs = Spec.parse_pipeline(head.removeprefix("# RUN:"), source)
    classes: dict[str, type[AnyPass]] = {lazy.name: lazy.load() for lazy in dlc_passes()}
    passes = [classes[spec.name].from_spec(spec) for spec in specs]
    check_chain(passes, specs)
    graph = parse_graph(body, {op.text_name: op for op in dlc_ops()} | STRUCTURE, source=source)
    result = run_passes(passes, graph, Report())
    assert verify(result) == ()
    return print_graph(result)
