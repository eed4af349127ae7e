"""Quantised models against other runtimes, and against dlc in floating point: one thread each, calls taking turns.

    python benchmarks/integers.py [WORD…] [--rounds 30] [--cpu native] [--nodes] [--prepare DIR] [--json]

Models with random weights are quantised statically by onnxruntime (QDQ, u8 activations, i8 weights per channel, scales
from four random inputs). Prints the medians of dlc and of onnxruntime and OpenVINO, where they are installed, on the
quantised model and on the float model, how many times as fast as the better of them and as its own floats dlc's
integers are, and how far its results differ from theirs. `--prepare` keeps models and programs in a directory, so that
a second run only measures.

With `--nodes` nothing is timed: the model is cut at its quantised tensors, every runtime computes each of them from the
same bytes, and bytes that are not the nearest to the numbers in double precision are counted by operators.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from dlc_backend_c.runtime import Model

from benchmarks.kernels import timed
from benchmarks.peers import build, feeds, peer
from dlc.base.types import Array
from dlc.bench.peers import Unavailable, open_peer
from tests.frontend_onnx.quantising import feeds_of, read, statically_quantised
from tests.models.quantised_steps import GIVEN, Deviation, cut, exact, producers, watched
from tests.models.zoo import bert, light, mobilenet_v2

PEERS = ("onnxruntime", "openvino")
AXES_OF_SCALES = 13
"""Opset from which on a scale may belong to a channel."""


def resnet50() -> onnx.ModelProto:
    """With operators that quantisers know."""
    found = light("resnet50", 1)
    convert: Any = import_module("onnx.version_converter").convert_version
    return found if found.opset_import[0].version >= AXES_OF_SCALES else convert(found, 17)


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "mobilenet_v2": partial(mobilenet_v2, size=224, width=1.0, classes=1000),
    "bert-mini": partial(bert, length=128, hidden=256, layers=4, heads=8, vocabulary=1000, norm="decomposed"),
}


def quantised(name: str, folder: Path) -> tuple[Path, Path]:
    """The float model and the quantised one, written unless they are there."""
    plain, path = folder / f"{name}.onnx", folder / f"{name}-int8.onnx"
    if not path.exists():
        model = MODELS[name]()
        plain.write_bytes(model.SerializeToString())
        types: Any = import_module("onnxruntime.quantization").QuantType
        options = {"per_channel": True, "activation_type": types.QUInt8, "weight_type": types.QInt8}
        statically_quantised("QDQ", **options)(model, path)
    return plain, path


def program(source: Path, cpu: str) -> Model:
    """Built unless it is there."""
    place = source.with_name(f"{source.stem}-{cpu}")
    if not place.exists():
        build(source, place, cpu)
    return Model.load(place)


def measure(name: str, folder: Path, rounds: int, cpu: str) -> dict[str, Any]:
    """One model: quantised, built, compared and timed."""
    plain, path = quantised(name, folder)
    given = feeds(peer(path))
    calls: dict[str, Callable[[], dict[str, Array]]] = {}
    for kind, source in (("float", plain), ("int8", path)):
        calls[kind] = partial(program(source, cpu), given)
        for other in PEERS:
            try:
                calls[f"{kind}_{other}"] = open_peer(other, source, given, 1).run
            except Unavailable as reason:
                print(f"{other}: {reason}")
    got = calls["int8"]()
    peers = [other for other in PEERS if f"int8_{other}" in calls]
    times: dict[str, list[float]] = {kind: [] for kind in calls}
    for _ in range(rounds):
        for kind, call in calls.items():
            times[kind].append(timed(call))
    medians = {kind: statistics.median(t) * 1e3 for kind, t in times.items()}
    return {
        "model": name,
        "milliseconds": medians,
        "over_own_float": medians["float"] / medians["int8"],
        "over_better_peer": min(medians[f"int8_{other}"] for other in peers) / medians["int8"],
        "weight_bytes": max(p.stat().st_size for p in folder.glob(f"{path.stem}-{cpu}/*weights*.bin")),
        "model_weight_bytes": sum(t.ByteSize() for t in read(path).graph.initializer),
        "elements": sum(v.size for v in got.values()),
        "differences": {other: difference(got, calls[f"int8_{other}"]()) for other in peers},
    }


def difference(got: Mapping[str, Array], want: Mapping[str, Array]) -> dict[str, float]:
    """How many elements differ, and by how much of the largest."""
    return {
        "elements": sum(int(np.count_nonzero(got[n] != want[n])) for n in want),
        "relative": max(float(np.max(np.abs(got[n] - want[n])) / np.max(np.abs(want[n]))) for n in want),
    }


def by_nodes(name: str, folder: Path, cpu: str) -> dict[str, Any]:
    """One model cut at its quantised tensors: deviations from exact numbers, by runtime and operators."""
    _, path = quantised(name, folder)
    model = read(path)
    parts, place = cut(model), path.with_name(f"{path.stem}-cut.onnx")
    place.write_bytes(parts.SerializeToString())
    whole = path.with_name(f"{path.stem}-watched.onnx")
    whole.write_bytes(watched(model).SerializeToString())
    names = [port.name for port in parts.graph.output]
    given: dict[str, Array] = feeds_of(model, 11)
    values = {**dict(zip(names, peer(whole).run(names, given), strict=True)), **given}
    given = {port.name: values[port.name.removesuffix(GIVEN)] for port in parts.graph.input}
    numbers, operators = exact(parts, given), producers(model)
    found = {"dlc": program(place, cpu)(given), **dict(_results(place, given))}
    rows: dict[str, dict[str, Deviation]] = {}
    for runtime, bytes_ in found.items():
        groups: dict[str, list[Deviation]] = {}
        for n in names:
            groups.setdefault(operators[n], []).append(Deviation.of(bytes_[n], numbers[n]))
        rows[runtime] = {kind: Deviation.total(group) for kind, group in groups.items()}
    return {"model": name, "tensors": len(names), "deviations": rows}


def _results(path: Path, given: Mapping[str, Array]) -> Iterator[tuple[str, dict[str, Array]]]:
    for other in PEERS:
        try:
            yield other, open_peer(other, path, given, 1).run()
        except Unavailable as reason:
            print(f"{other}: {reason}")


def line(row: Mapping[str, Any]) -> str:
    """One model as text."""
    ms = row["milliseconds"]
    others = "  ".join(
        f"{other} {ms[f'int8_{other}']:7.2f} ms ({d['elements']} of {row['elements']} elements differ, by "
        f"{d['relative']:.1e} of the largest)"
        for other, d in row["differences"].items()
    )
    floats = "  ".join(f"{other} float {ms[f'float_{other}']:7.2f} ms" for other in PEERS if f"float_{other}" in ms)
    return (
        f"{row['model']:14} int8 {ms['int8']:7.2f} ms ({row['over_better_peer']:.2f}x of the better peer)  {others}  "
        f"float {ms['float']:7.2f} ms ({row['over_own_float']:.2f}x)  {floats}  weights {row['weight_bytes']:,} B"
    )


def lines(row: Mapping[str, Any]) -> Iterator[str]:
    """The deviations of one model as text."""
    for runtime, groups in row["deviations"].items():
        found = Deviation.total(list(groups.values()))
        yield f"{row['model']}, {row['tensors']} tensors, {runtime}: {deviation(found)}"
        yield from (f"    {kind or 'an input'}: {deviation(d)}" for kind, d in groups.items() if d.differing)


def deviation(found: Deviation) -> str:
    return (
        f"{found.differing:,} of {found.elements:,} bytes are not the nearest, by at most {found.steps} steps and "
        f"{found.beyond:.1e} of a step from where rounding changes"
    )


@contextmanager
def _folder(kept: Path | None) -> Generator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--nodes", action="store_true")
    parser.add_argument("--prepare", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with _folder(options.prepare) as folder:
        for name in MODELS:
            if options.words and not any(w in name for w in options.words):
                continue
            if options.nodes:
                rows.append(by_nodes(name, folder, options.cpu))
            else:
                rows.append(measure(name, folder, options.rounds, options.cpu))
            if not options.json:
                print(*(lines(rows[-1]) if options.nodes else (line(rows[-1]),)), sep="\n", flush=True)
    if options.json:
        print(json.dumps({"models": rows}, indent=1, default=vars))


if __name__ == "__main__":
    main()
