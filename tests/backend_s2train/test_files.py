"""A built program as a whole: the facts on its cost, its pages, and files that could not run as they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_s2train.backend import S2Train
from dlc_backend_s2train.build_lines import CostModel
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.cost.cycles import Assumptions
from dlc_backend_s2train.cost.estimate import estimate
from dlc_backend_s2train.cost.figures import cost_facts
from dlc_backend_s2train.program import Program
from dlc_backend_s2train.simulator.loading import load_file
from dlc_backend_s2train.simulator.training import SimulatedTraining

import dlc
from dlc import Artifact, DlcError, Signature, Source
from dlc.cli.frame import run
from dlc.runtime.array_program import ArrayProgram
from tests.backend_s2train.programs import conv_step
from tests.cli.models import EVIL
from tests.cli.test_program_files import FEATURES, ROWS, X, perceptron
from tests.test_start_up import modules_after


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with net.onnx and the program `out` that was built of it, with pages; the cache beside it has it."""
    directory = tmp_path_factory.mktemp("s2train")
    (directory / "net.onnx").write_bytes(perceptron().SerializeToString())
    assert run(line(directory, "--html")) == 0
    return directory


def line(directory: Path, *flags: str) -> list[str]:
    """The command that builds it."""
    places = ["-o", str(directory / "out"), "--cache-dir", str(directory / "cache")]
    return [
        "build",
        str(directory / "net.onnx"),
        "--target",
        "s2train",
        "--train",
        "loss=cross-entropy",
        *places,
        "-q",
        *flags,
    ]


@pytest.fixture
def program(built: Path) -> Program:
    return read(Source(built / "out" / "net.s2t").view(), "net.s2t")


def source(program: Program, **meta: str) -> Source:
    """The program's file with other facts in it."""
    return Source(data=write(replace(program, meta={**program.meta, **meta})), label="p.s2t")


def test_facts_are_sums_over_the_step(program: Program) -> None:
    entry = next(e for e in program.entries if e.name == "step")
    facts = cost_facts(program, entry)
    costs = estimate(program, None, entry.begin, entry.end)
    serial = estimate(program, Assumptions(CostModel.SERIAL), entry.begin, entry.end)
    assert facts["instructions"] == len(costs) == entry.end - entry.begin
    assert facts["link_in_bytes"] == sum(c.traffic.inward for c in costs)
    assert facts["link_out_bytes"] == sum(c.traffic.outward for c in costs)
    assert facts["cycles_parallel"] == sum(c.times.total for c in costs)
    assert facts["cycles_serial"] == sum(c.times.total for c in serial)
    # The array of the specification: 8 cores of 8 columns with 4 rows of 16 lanes, or 256 products a cycle.
    assert facts["use_serial_percent"] == f"{100 * sum(c.macs for c in costs) / (256 * facts['cycles_serial']):.3g}"  # type: ignore[operator]
    assert facts["steps"] == sum(c.steps for c in costs)
    hidden, last = 16 * 8, 4 * 16
    # Forward, weight gradients, and dx of the second layer; the gradients of the biases are sums over rows.
    assert facts["macs"] == ROWS * (2 * hidden + 3 * last + 16 + 4)


def test_the_build_tells_them(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And tells them again when everything comes from the cache."""
    said: list[str] = []
    for _ in range(3):
        capsys.readouterr()
        assert run(line(built)) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]
    lines = said[0].splitlines()
    assert lines[1].startswith("peak memory of a training step ")
    assert "arena " in lines[1] and "(lower bound " in lines[1] and lines[1].endswith(", overhead 0.00 %)")
    message = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert " over the link " in message["step"]
    assert "parallel" in message["cycles"] and "serial" in message["cycles"] and "array steps" in message["cycles"]
    assert " without fusion (features and all gradients " in message["traffic of operands"]


def test_a_repeated_build_imports_no_arrays(built: Path) -> None:
    assert run(line(built)) == 0
    imported = modules_after(
        f"from dlc.cli.frame import run\nimport os, sys\nassert run({line(built)!r}) == 0\nprint()"
    )
    assert not imported & {"numpy", "onnx", "jinja2"}


def test_nothing_is_said_of_nothing() -> None:
    assert S2Train().summary({}) == ()


class Page(HTMLParser):
    """Elements that are open, all names, and what refers to other places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_and_its_pages(built: Path) -> None:
    report = Page((built / "out" / "report.html").read_text(encoding="utf-8"))
    pages = {link for link in report.links if not link.startswith("#")}
    assert pages == {"timeline.html", "memory.html"}
    assert report.open == []
    for name in pages:
        page = Page((built / "out" / name).read_text(encoding="utf-8"))
        assert ("svg" in page.names, page.links, page.open) == (True, [], [])


def test_names_stay_text_in_pages() -> None:
    program = conv_step()
    tensors = tuple(replace(t, name=f"</title><script>{EVIL}") for t in program.tensors)
    content = write(replace(program, tensors=tensors))
    pages = S2Train().pages(Artifact("s2train", {"p.s2t": content}, "p.s2t", Signature((), ())))
    assert pages.keys() == {"timeline.html", "memory.html"}
    for text in pages.values():
        page = Page(text)
        assert ("script" in page.names, page.open) == (False, [])
        assert "\u202e" not in text


def test_the_checkpoint_of_the_directory_fits_the_file(built: Path) -> None:
    """They are one program."""
    one, other = dlc.load(built / "out"), load_file(Source(built / "out" / "net.s2t"), "fast")
    assert isinstance(one, SimulatedTraining) and isinstance(other, SimulatedTraining)
    one.train_step(x=X, y=np.arange(ROWS) % 4)
    before = other(x=X)["scores"]
    other.restore(one.checkpoint())
    after = other(x=X)["scores"]
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(after, one(x=X)["scores"])
    assert one.facts == other.facts


def test_the_device_adds_in_its_own_order(built: Path) -> None:
    """The option `simulate` is the backend's, whichever way the file came in."""
    found = S2Train(simulate="bit-true").load_file(Source(built / "out" / "net.s2t"))
    assert isinstance(found, SimulatedTraining) and found.machine.mode == "bit-true"
    assert load_file(Source(built / "out" / "net.s2t"), "fast").machine.mode == "fast"  # type: ignore[union-attr]


def test_a_file_without_its_template(program: Program) -> None:
    found = load_file(source(program), "fast")
    assert isinstance(found, SimulatedTraining)
    with pytest.raises(DlcError, match="the model cannot be exported"):
        found.save_onnx("model.onnx")


@pytest.mark.parametrize("name", ["../net.onnx", "/etc/hostname", "..", ".", ""])
def test_a_template_is_a_neighbour(program: Program, tmp_path: Path, name: str) -> None:
    """A file names what lies beside it and nothing else."""
    (tmp_path / "net.onnx").write_bytes(b"outside")
    (tmp_path / "inside").mkdir()
    path = tmp_path / "inside" / "p.s2t"
    path.write_bytes(write(replace(program, meta={**program.meta, "template": name})))
    found = load_file(Source(path), "fast")
    assert isinstance(found, SimulatedTraining) and found.template == ("", b"")


HOSTILE: Mapping[str, tuple[Callable[[Program], Program], str]] = {
    "classes": (lambda p: replace(p, meta={**p.meta, "classes": "ten"}), "numbers of classes that are no numbers"),
    "ignore": (lambda p: replace(p, meta={**p.meta, "ignore": "1.5"}), "numbers of classes that are no numbers"),
    "ranges": (lambda p: replace(p, meta={**p.meta, "ranges": "[1]"}), "do not tell what its inputs may be"),
    "no_range": (lambda p: replace(p, meta={**p.meta, "ranges": '{"y": "label 9..0"}'}), "do not tell what its inputs"),
    "box": (lambda p: replace(p, meta={**p.meta, "ranges": '{"y": "label [0:99]0..1"}'}), "cannot be restricted to"),
    "entries": (lambda p: replace(p, entries=()), "no entry that could be called"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_files_that_cannot_run(program: Program, name: str) -> None:
    change, reason = HOSTILE[name]
    with pytest.raises(DlcError, match=reason) as refused:
        load_file(Source(data=write(change(program)), label="p.s2t"), "fast")
    assert [str(d.location) for d in refused.value.diagnostics] == ["p.s2t"]


@pytest.mark.parametrize("label", [-1, 4, 2**40])
def test_a_label_that_is_no_class(built: Path, label: int) -> None:
    """The directory and the file tell the same range, and the device is as it was."""
    for found in (dlc.load(built / "out"), load_file(Source(built / "out" / "net.s2t"), "fast")):
        assert isinstance(found, SimulatedTraining)
        before, labels = found.checkpoint(), np.arange(ROWS) % 4
        labels[1] = label
        for call in (found.train_step, found.evaluate):
            with pytest.raises(DlcError, match=rf'"y": {label} at \[1\] is not a valid label: labels are 0 to 3'):
                call(x=X, y=labels)
        assert found.checkpoint() == before


def test_a_step_that_tells_no_loss_is_none(program: Program) -> None:
    """Three entries of the right names are not enough to learn."""
    entries = tuple(replace(e, outputs=tuple(o for o in e.outputs if o[0] != "loss")) for e in program.entries)
    found = load_file(Source(data=write(replace(program, entries=entries)), label="p.s2t"), "fast")
    assert isinstance(found, ArrayProgram)


def test_labels_of_a_file_that_does_not_tell_its_classes(program: Program) -> None:
    meta = {k: v for k, v in program.meta.items() if k != "classes"}
    found = load_file(Source(data=write(replace(program, meta=meta)), label="p.s2t"), "fast")
    assert isinstance(found, SimulatedTraining) and found.classes is None
    assert np.isfinite(found.train_step(x=np.zeros((ROWS, FEATURES), np.float32), y=np.zeros(ROWS, np.int64)))
