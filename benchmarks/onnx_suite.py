"""The ONNX backend node tests through the frontend and the graph interpreter: how many pass, are refused, or are wrong.

    python benchmarks/onnx_suite.py [WORD…]      only tests whose name contains a word; prints what is refused and why

Tests with data other than tensors count as unsupported. Tolerances are each test's own. Of random values only type and
shape are compared: the standard names no generator, and the expected ones are those of numpy's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from dlc_frontend_onnx.frontend import Onnx
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.loader import load_model_tests

from dlc import DlcError, Report, Source
from dlc.graph import evaluate
from dlc.ops.random import Dropout, DropoutMask, RandomUniform


def cases() -> Iterator[Any]:
    """Every node test, and the tests of simple and converted models."""
    yield from collect_testcases(None)
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        yield from load_model_tests(kind=kind)


def data_of(case: Any) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    if case.model is not None:
        return case.model, case.data_sets
    from pathlib import Path

    root = Path(case.model_dir)
    sets: list[tuple[list[Any], list[Any]]] = []
    for folder in sorted(root.glob("test_data_set_*")):
        both: list[list[Any]] = []
        for word in ("input", "output"):
            files = sorted(folder.glob(f"{word}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
            tensors: list[Any] = []
            for file in files:
                proto = onnx.TensorProto()
                proto.ParseFromString(file.read_bytes())
                tensors.append(onnx.numpy_helper.to_array(proto))
            both.append(tensors)
        sets.append((both[0], both[1]))
    model = onnx.ModelProto()
    model.ParseFromString((root / "model.onnx").read_bytes())
    return model, sets


def fixed(model: onnx.ModelProto, inputs: list[Any]) -> tuple[str, ...]:
    """Shapes of the inputs, for those that the model leaves open."""
    stored = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in stored]
    return tuple(
        f"{name}:{'x'.join(map(str, np.shape(value))) or 'scalar'}" for name, value in zip(names, inputs, strict=False)
    )


def constants(model: onnx.ModelProto, inputs: list[Any]) -> onnx.ModelProto:
    """The model with integers, scalars and short lists as initializers, as exporters write shapes, axes and scales."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.input[:]
    for info, value in zip(model.graph.input, inputs, strict=False):
        array = np.asarray(value)
        if array.ndim <= 1 and (array.dtype.kind in "iub" or array.size <= 8):
            copy.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
        else:
            copy.graph.input.append(info)
    return copy


def run(model: onnx.ModelProto, inputs: list[Any], expected: list[Any], rtol: float, atol: float) -> str:
    """ "" when right, else what differs; raises DlcError when the model is refused."""
    source = Source(data=model.SerializeToString(), label="test.onnx")
    stored = {t.name for t in model.graph.initializer}
    graph = Onnx(input=fixed(model, inputs)).parse(source, Report())
    names = [i.name for i in model.graph.input if i.name not in stored]
    got = evaluate(graph, {n: np.asarray(v) for n, v in zip(names, inputs, strict=False) if n in names})
    for name, want in zip(graph.names, expected, strict=True):
        have, want = got[name], np.asarray(want)
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"{name} is {have.dtype}{have.shape}, not {want.dtype}{want.shape}"
        if any(isinstance(op, (Dropout, DropoutMask, RandomUniform)) for op in graph.ops):
            continue
        if not np.allclose(have, want, rtol=rtol, atol=atol, equal_nan=have.dtype.kind == "f"):
            return f"{name} differs by up to {np.abs(have.astype(float) - want.astype(float)).max():.3g}"
    return ""


def judge(case: Any) -> tuple[str, str]:
    """("pass" | "unsupported" | "wrong" | "crash", details)."""
    try:
        model, sets = data_of(case)
    except (ValueError, TypeError, OSError) as e:
        return "unsupported", f"data: {e}"
    try:
        for inputs, outputs in sets:
            if not all(isinstance(v, (np.ndarray, np.generic)) for v in (*inputs, *outputs)):
                return "unsupported", "data that is not tensors"
            try:
                wrong = run(model, inputs, outputs, case.rtol, case.atol)
            except DlcError as e:
                if not any("computed from the model's inputs" in d.message for d in e.diagnostics):
                    raise
                frozen = constants(model, inputs)
                kept = {i.name for i in frozen.graph.input}
                names = [i.name for i in model.graph.input]
                left = [v for n, v in zip(names, inputs, strict=False) if n in kept]
                wrong = run(frozen, left, outputs, case.rtol, case.atol)
            if wrong:
                return "wrong", wrong
    except DlcError as e:
        return "unsupported", e.diagnostics[0].message
    except Exception as e:  # noqa: BLE001  (a survey must go on; anything else than a DlcError is counted as a crash)
        return "crash", f"{type(e).__name__}: {e}"
    return "pass", ""


def main(words: list[str]) -> int:
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for case in cases():
        if words and not any(w in case.name for w in words):
            continue
        verdict, details = judge(case)
        counts[verdict] += 1
        if verdict in ("wrong", "crash"):
            print(f"{verdict:12} {case.name}: {details}")
        elif verdict == "unsupported":
            reasons[details] += 1
            if words:
                print(f"{verdict:12} {case.name}: {details}")
    for reason, count in reasons.most_common():
        print(f"{count:5} unsupported: {reason}")
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())), f"of {counts.total()}")
    return 1 if counts["wrong"] or counts["crash"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
