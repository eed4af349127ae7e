"""The arena of dlc beside the least one with which onnxruntime runs the same network.

    python benchmarks/peer_arenas.py [WORD…]

The networks are those of `planned_models.py`. onnxruntime's release builds report no size of their plans (memory
patterns), so it is found by bisection: its CPU allocator is an arena of one piece with a limit, and the least limit is
searched, from 64 KiB on and to 1 %, with which two runs succeed, the second of them by the memory pattern of the first.
Weights, inputs and outputs lie outside of it, as they do in dlc; what kernels work in is counted in both. A network
that runs within 64 KiB although one of its values takes more is not bound by the limit, and has no figure. dlc plans
for `c{cpu=generic}` and for `c`, whose kernels work in more memory where the processor has vectors. The exit status is
1 where an arena of dlc is larger by more than the 1 %.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from planned_models import MODELS

from dlc.base.diagnostics import DlcError
from dlc.cli.functions import plan_of
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Terminal
from dlc.cli.workspace import Workspace

PRECISION = 0.01
LEAST = 1 << 16
"""Bytes below which nothing is searched."""
TARGETS = ("c{cpu=generic lib=none}", "c{lib=none}")


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    larger = 0
    print(f"{'':>16} {'onnxruntime':>14} {'dlc, generic':>14} {'dlc, this CPU':>14}")
    for name, make in MODELS.items():
        if not any(word in name for word in arguments.words or [""]):
            continue
        model = make()
        own = [arena(model, target) for target in TARGETS]
        theirs = least(model.SerializeToString())
        theirs = None if theirs == LEAST and any(size is not None and size > LEAST for size in own) else theirs
        larger += any(size and theirs and size > theirs * (1 + PRECISION) for size in own)
        shown = (f"{size:>14,}" if size is not None else f"{'—':>14}" for size in (theirs, *own))
        print(f"{name:>16} {' '.join(shown)}", flush=True)
    sys.exit(larger > 0)


def arena(model: onnx.ModelProto, target: str) -> int | None:
    """Bytes of dlc's arena; None where it does not compile the network."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "model.onnx")
        path.write_bytes(model.SerializeToString())
        space = Workspace.open(Terminal(quiet=True), CacheOptions("off"))
        steps: list[Any] = []
        try:
            with space.cache() as cache:
                prepared = space.prepare(BuildOptions(str(path), target))
                space.compile(prepared, cache, stop_after="plan-memory", on_step=steps.append)
            return plan_of(steps).memory
        except DlcError as problem:
            print(problem.diagnostics[0].message[:100], file=sys.stderr)
            return None


def least(model: bytes) -> int | None:
    """Bytes of the smallest arena found in which onnxruntime runs a network; None where it does not at all."""
    low, high = LEAST, 1 << 34
    if not runs(model, high):
        return None
    if runs(model, low):
        return low
    while high - low > PRECISION * low:
        # Sizes of networks differ by powers of ten, so the first steps halve the number of digits.
        middle = int((low * high) ** 0.5) if high > 2 * low else (low + high) // 2
        low, high = (low, middle) if runs(model, middle) else (middle, high)
    return high


def runs(model: bytes, most: int) -> bool:
    """Whether two runs succeed with an arena of so many bytes, in a process of its own: allocators are global."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # onnxruntime tells of each allocation that fails
        _run(model, most)
        code = 0
    except Exception as problem:  # noqa: BLE001  # whatever it is, it did not run
        if most >= 1 << 34:
            print(type(problem).__name__, str(problem)[:200], flush=True)
    finally:
        os._exit(code)


def _run(model: bytes, most: int) -> None:
    ort.set_default_logger_severity(4)
    place: Any = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    piece = min(most, 1 << 30)
    ort.create_and_register_allocator(place, ort.OrtArenaCfg(most, 1, piece, -1))
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    for i in session.get_inputs():
        binding.bind_cpu_input(i.name, np.zeros([d if isinstance(d, int) else 1 for d in i.shape], kinds[i.type]))
    held = []
    for o in session.get_outputs():
        held.append(np.empty([d if isinstance(d, int) else 1 for d in o.shape], kinds[o.type]))
        binding.bind_output(o.name, "cpu", 0, held[-1].dtype, held[-1].shape, held[-1].ctypes.data)
    for _ in range(2):
        session.run_with_iobinding(binding)


if __name__ == "__main__":
    main()
