"""ONNX's own backend tests, by ONNX's own runner, on compiled C: how many pass, and why the others do not.

    python benchmarks/onnx_suite.py [WORD…]            only tests whose name contains a word; with the reasons
        [--jobs 2] [--target c] [--cache-dir DIR]      the processes, the target, the cache (a new one by default)
        [--json FILE]                                  every test with its outcome, reason and seconds
        [--page docs/onnx-coverage.md]                 the table of the documentation

The tests are those of the installed onnx package, unchanged: inputs stay inputs, and results are compared as the
runner does. `onnx.backend.test.BackendTest` counts a test as passed that raises BackendIsNotSupposedToImplementIt; dlc
never does. A test is of tensors alone if its inputs, outputs and operators are: no strings, sequences,
optional values or encoded images. Bernoulli's six draw from numpy's generator and cannot be matched.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import onnx
from dlc_frontend_onnx.onnx_backend import DlcBackend

from dlc import DlcError
from dlc.driver.program import Compiler

LIMIT: Final = 300.0
"""Seconds that a test may take."""
UNMATCHABLE: Final = "test_bernoulli"
CONTRADICTS: Final = {
    "test_maxunpool_export_with_output_shape": "its indices are of another shape than MaxPool gives them for; dlc does "
    "as onnxruntime and PyTorch (onnx/onnx#2398)",
}
"""Tests that contradict the standard, and how."""
RANDOM: Final = re.compile(r"Bernoulli|Dropout|Random|Multinomial")
"""Operators whose numbers the standard leaves open."""
OTHER: Final = re.compile(r"Sequence|Optional|ImageDecoder|String|RegexFullMatch")
"""What operators are called that work on something else than tensors."""


@dataclass(frozen=True)
class Outcome:
    """How one test went."""

    name: str
    verdict: str
    """pass; unsupported: dlc says what it lacks; random: other random numbers; wrong: another result; crash."""
    reason: str
    seconds: float
    operators: tuple[str, ...]
    """Operators of the model's nodes, as the standard spells them, with their domain unless it is ai.onnx."""
    opset: int
    types: tuple[str, ...]
    """Element types of inputs and outputs."""
    tensors: bool
    """Whether inputs and outputs are tensors without strings."""


@cache
def suite() -> dict[str, Any]:
    """Name → test of the runner, for this processor."""
    from onnx.backend.test.runner import Runner

    os.environ.setdefault("ONNX_MODELS", tempfile.mkdtemp(prefix="onnx-models-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = Runner(Chosen, __name__)
    items: dict[str, Any] = {}
    for tests in runner._test_items.values():
        items |= {name.removesuffix("_cpu"): test for name, test in tests.items() if name.endswith("_cpu")}
    return items


class Chosen(DlcBackend):
    """The backend with this command's target and cache."""

    options: Mapping[str, Any] = {}

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
        return super().prepare(model, device, **{**kwargs, **cls.options})

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def start(target: str, cache_dir: str) -> None:
    """Make a worker ready."""
    warnings.simplefilter("ignore")
    Chosen.options = {"target": target, "compiler": Compiler.open(cache_dir, jobs=1)}


def judge(name: str) -> Outcome:
    """Run one test as unittest would."""
    test = suite()[name]
    case = unittest.TestCase()
    begin = time.perf_counter()
    verdict, reason = "pass", ""
    try:
        test.func(case)
    except DlcError as problem:
        verdict, reason = "unsupported", problem.diagnostics[0].message
    except AssertionError as problem:
        verdict, reason = "wrong", " ".join(str(problem).split())[:200]
    except unittest.SkipTest as problem:
        verdict, reason = "unsupported", str(problem)
    except Exception as problem:  # noqa: BLE001  (a survey must go on)
        verdict, reason = "crash", f"{type(problem).__name__}: {problem}"[:300]
    seconds = time.perf_counter() - begin
    model = next((m for m in test.proto if isinstance(m, onnx.ModelProto)), None)
    if verdict == "wrong" and model is not None and any(RANDOM.search(n.op_type) for n in all_nodes(model.graph)):
        verdict, reason = "random", "it expects the numbers of numpy's generator"
    if verdict == "wrong":
        reason = next((why for test, why in CONTRADICTS.items() if name.startswith(test)), reason)
    return Outcome(name, verdict, reason, seconds, *facts(model))


def facts(model: onnx.ModelProto | None) -> tuple[tuple[str, ...], int, tuple[str, ...], bool]:
    """Operators, operator set, element types, and whether all is tensors without strings."""
    if model is None:
        return (), 0, (), False
    kinds = [i.type for i in (*model.graph.input, *model.graph.output)]
    found = {
        onnx.TensorProto.DataType.Name(k.tensor_type.elem_type).lower() for k in kinds if k.HasField("tensor_type")
    }
    nodes = list(all_nodes(model.graph))
    plain = all(k.HasField("tensor_type") for k in kinds) and "string" not in found
    plain = plain and not any(OTHER.search(n.op_type) and n.op_type != "ReverseSequence" for n in nodes)
    names = sorted({n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}" for n in nodes})
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    return tuple(names), opset, tuple(sorted(found)), plain


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those inside of them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from all_nodes(attribute.g)


def run(names: Sequence[str], jobs: int, target: str, cache_dir: str) -> list[Outcome]:
    """All outcomes, in the order of the names. A test that ends its process is a crash, and the others go on."""
    found: dict[str, Outcome] = {}
    left = list(names)
    while left:
        with ProcessPoolExecutor(jobs, initializer=partial(start, target, cache_dir)) as pool:
            futures = {pool.submit(judge, name): name for name in left}
            suspects: list[str] = []
            for future in as_completed(futures):
                try:
                    found[futures[future]] = future.result()
                except BrokenProcessPool:
                    suspects.append(futures[future])
                if sys.stderr.isatty():
                    print(f"\r{len(found)}/{len(names)}", end="", file=sys.stderr)
        left = [name for name in names if name not in found]
        if suspects:  # one of those that ran then; each alone tells which
            for name in left[: 2 * jobs]:
                with ProcessPoolExecutor(1, initializer=partial(start, target, cache_dir)) as pool:
                    try:
                        found[name] = pool.submit(judge, name).result(LIMIT)
                    except (BrokenProcessPool, TimeoutError) as problem:
                        found[name] = Outcome(name, "crash", type(problem).__name__, LIMIT, (), 0, (), False)
            left = [name for name in names if name not in found]
    return [found[name] for name in names]


def counted(outcomes: Iterable[Outcome]) -> tuple[int, int]:
    """(passed, all) of the tests that can be matched: tensors alone, and not drawn from numpy's generator."""
    chosen = [o for o in outcomes if o.tensors and not o.name.startswith(UNMATCHABLE)]
    return sum(o.verdict == "pass" for o in chosen), len(chosen)


def kind_of(reason: str) -> str:
    """A reason without what is of one test only."""
    return re.sub(r", \d+ (nodes?|tensors?)", "", re.sub(r"\d+(\.\d+)?([eE][-+]?\d+)?", "N", reason))[:110]


def summary(outcomes: Sequence[Outcome], shown: bool) -> str:
    """What the command prints."""
    lines = [f"{o.verdict:12}{o.name}: {o.reason}" for o in outcomes if o.verdict in ("wrong", "crash")]
    if shown:
        lines += [f"{o.verdict:12}{o.name}: {o.reason}" for o in outcomes if o.verdict == "unsupported"]
    reasons = Counter(kind_of(o.reason) for o in outcomes if o.verdict == "unsupported" and o.tensors)
    lines += [f"{count:5}  {reason}" for reason, count in reasons.most_common(60)]
    verdicts = Counter(o.verdict for o in outcomes)
    lines.append(", ".join(f"{v} {n}" for v, n in sorted(verdicts.items())) + f" of {len(outcomes)}")
    passed, every = counted(outcomes)
    lines.append(f"of tensors, and not random: {passed} of {every} pass")
    return "\n".join(lines)


def page(outcomes: Sequence[Outcome], target: str) -> str:
    """The page of the documentation."""
    passed, every = counted(outcomes)
    by_operator: dict[str, list[Outcome]] = defaultdict(list)
    for o in outcomes:
        if o.tensors and not o.name.startswith(UNMATCHABLE):
            for name in o.operators:
                by_operator[name].append(o)
    lines = [
        "# ONNX coverage",
        "",
        f"Which of ONNX's own backend tests pass on compiled C: onnx {onnx.__version__}, its own runner, tests",
        f"unchanged, `--target {target}`. Made by `python benchmarks/onnx_suite.py --page docs/onnx-coverage.md`.",
        "",
        f"**{passed} of {every}** tests of tensors pass that can be matched (Bernoulli draws from numpy's generator).",
        "A row counts the tests whose model has a node of the operator; a reason is that of a test that does not pass.",
        "Models are compiled for the shapes that a test gives, and where values of small inputs decide shapes that dlc",
        "has to know, as the ends of a Range, for these values; `dlc build` wants them as constants of the model.",
        "",
        "| operator | tests | pass | operator sets | element types that pass | reasons of the others |",
        "|---|---:|---:|---|---|---|",
    ]
    for name, tests in sorted(by_operator.items()):
        good = [o for o in tests if o.verdict == "pass"]
        sets = sorted({o.opset for o in tests})
        types = sorted({t for o in good for t in o.types})
        why = reasons_of([o for o in tests if o.verdict != "pass"])
        span = f"{sets[0]}–{sets[-1]}" if len(sets) > 1 else str(sets[0])
        lines.append(f"| {name} | {len(tests)} | {len(good)} | {span} | {', '.join(types)} | {why} |")
    lines += ["", "## Every test that does not pass", "", "| test | reason |", "|---|---|"]
    for o in outcomes:
        if o.verdict != "pass":
            note = "" if o.tensors else " (not of tensors alone)"
            lines.append(f"| {o.name}{note} | {o.verdict}: {cell(o.reason)} |")
    return "\n".join(lines) + "\n"


def reasons_of(tests: Sequence[Outcome]) -> str:
    """The three commonest reasons, each as the first test of its kind has it."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for o in tests:
        kinds[kind_of(o.reason)].append(o.reason)
    common = sorted(kinds.values(), key=len, reverse=True)[:3]
    return "; ".join(f"{cell(texts[0])} ({len(texts)})" for texts in common)


def cell(text: str) -> str:
    """A reason in a table."""
    return re.sub(r", \d+ (nodes?|tensors?)(?=:)", "", " ".join(text.split()))[:110].replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--target", default="c")
    parser.add_argument("--cache-dir", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    names = [n for n in suite() if not asked.words or any(w in n for w in asked.words)]
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dlc-suite-") as scratch:
        outcomes = run(names, asked.jobs, asked.target, asked.cache_dir or scratch)
    print(summary(outcomes, bool(asked.words)))
    print(f"{time.perf_counter() - begin:.0f} s with {asked.jobs} processes")
    if asked.json:
        asked.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n", encoding="utf-8")
    if asked.page:
        asked.page.write_text(page(outcomes, asked.target), encoding="utf-8")
    return 1 if any(o.verdict in ("wrong", "crash") for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
