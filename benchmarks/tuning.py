"""How near the schedules that the estimate chooses are to the fastest ones that `dlc tune` finds.

    python benchmarks/tuning.py [NETWORK|MODEL.onnx…] [--kernels 8] [--candidates 16] [--cache DIR] [--target c]

Of each network the kernels that are estimated to take most time are tuned: candidates are built and timed in turn, with
caches as they are in the program. Prints a line for each kernel whose default takes 1.05 times as long or more, and for
each network and all of them the geometric mean of default over tuned times, over kernels and weighted by their time.
With a cache that has them, built programs are not compiled again: run it once to build and once to measure.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from dlc.api.source import Source
from dlc.api.tuning import Record
from dlc.cache import open_cache
from dlc.config.config import default_config
from dlc.driver.build import compile_source
from dlc.driver.kernel_graphs import before_order, cycles_of, kernel_graphs
from dlc.driver.pipeline import resolve
from dlc.driver.program import session_of
from dlc.plugins.discovery import load_registry
from dlc.spec import Spec
from dlc.tune.kernels import kernels_of
from dlc.tune.place import Failed, Place, Request
from tests.models.zoo import bert, gpt, light, mlp, mobilenet_v2

NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "squeezenet": lambda: light("squeezenet", 0),
    "shufflenet": lambda: light("shufflenet", 0),
    "resnet50": lambda: light("resnet50", 0),
    "mobilenet_v2": mobilenet_v2,
    "bert": bert,
    "gpt": gpt,
    "mlp-64": lambda: mlp(64),
}
_SHOWN = 1.05
"""Times the tuned time: defaults that take more are listed."""


@dataclass(frozen=True)
class Found:
    """A kernel of a network."""

    network: str
    calls: int
    record: Record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"model files, or {', '.join(NETWORKS)}")
    parser.add_argument("--kernels", type=int, default=8, help="of each network, those of most estimated time")
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each kernel, at most")
    parser.add_argument("--cache", type=Path, help="directory that keeps what is compiled")
    parser.add_argument("--target", default="c")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [f for name in chosen.networks for f in tuned(name, chosen, Path(folder))]
    print(f"all: {summary(found)}")


def tuned(name: str, chosen: argparse.Namespace, folder: Path) -> list[Found]:
    """The kernels of a network, with a summary printed."""
    path = Path(name)
    if name in NETWORKS:
        path = folder / f"{name}.onnx"
        path.write_bytes(NETWORKS[name]().SerializeToString())
    source, registry = Source(path), load_registry()
    entry = registry.frontend_for(source)
    frontend = registry.frontend(Spec(entry.name))
    pipeline = resolve(registry, default_config(), chosen.target)
    found: list[Found] = []
    with open_cache(chosen.cache or folder / "cache", "rw") as cache:
        session = session_of(registry, cache, path)
        last, rest = before_order(pipeline)
        build = compile_source(source, frontend, entry.package, pipeline, session, stop_after=last)
        kernels, _ = kernels_of(kernel_graphs(build.steps))
        cycles = cycles_of([k.kernel for k in kernels], pipeline, session)
        kernels.sort(key=lambda k: -cycles[k.digest] * k.calls)
        place, passes = Place(registry, session), Spec.print_pipeline([step.stage.to_spec() for step in rest])
        for kernel in kernels[: chosen.kernels]:
            request = Request(kernel, str(pipeline.backend), passes, chosen.candidates, 0, chosen.seconds)
            result = place.attempt(request)
            if isinstance(result, Failed):
                print(f"{name}: {kernel.digest[:16]}: {result.message}")
                continue
            for schedule in result.wrong:
                print(f"{name}: {kernel.digest[:16]}: OTHER RESULTS with {schedule}")
            found.append(Found(path.stem, kernel.calls, result.record))
    for f in sorted(found, key=lambda f: f.record.ratio):
        r = f.record
        if r.ratio * _SHOWN < 1:
            nodes = " ".join(r.nodes[:2])
            print(
                f"{f.network}: {1 / r.ratio:.2f}x {r.default_ns / 1000:.1f} us -> {r.tuned_ns / 1000:.1f} us "
                f"{r.kernel[:16]} {nodes}: {r.default} -> {r.schedule}"
            )
    print(f"{path.stem}: {summary(found)}", flush=True)
    return found


def summary(found: Sequence[Found]) -> str:
    """Default over tuned times."""
    if not found:
        return "no kernels"
    mean = math.exp(-sum(math.log(f.record.ratio) for f in found) / len(found))
    default = sum(f.record.default_ns * f.calls for f in found)
    whole = default / sum(f.record.tuned_ns * f.calls for f in found)
    near = sum(f.record.ratio >= 1 / 1.1 for f in found)
    return (
        f"{len(found)} kernels, default over tuned: geometric mean {mean:.3f}, of their time {whole:.3f}; "
        f"{near} within 10 %"
    )


if __name__ == "__main__":
    main()
