"""The arena of dlc beside the memory that other runtimes take for the values of the same network.

    python benchmarks/peer_arenas.py [WORD…] [--tvm PYTHON] [--tflite PYTHON]

TVM and TFLite have environments of their own: `arena_of_tvm.py` and `arena_of_tflite.py` say what has to be in them.

The networks are those of `planned_models.py`. onnxruntime's release builds report no size of their plans (memory
patterns), and a limit of its arena does not hold for these. So it is measured: how much the resident memory of a
process rises at most above what it is before, in a run after two others, without an arena that keeps memory. Weights,
inputs and outputs are there before, as they lie outside of dlc's arena; what kernels work in is counted in both. What
is measured may be a tenth too little, as small blocks reuse memory that the process has. dlc plans for
`c{cpu=generic}` and for `c`, whose kernels work in more memory where the processor has vectors. The exit status is 1
where an arena of dlc is larger by more than that tenth, or the generic one larger than a plan of TVM or TFLite. A dash
stands where a peer does not read the network, or too little was measured. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
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

PRECISION = 0.1
LEAST = 1 << 20
"""Bytes below which a figure means nothing: such values may all lie in memory that the process has."""
_MMAP_THRESHOLD = -3
_KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
TARGETS = ("c{cpu=generic lib=none}", "c{lib=none}")


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--tvm", metavar="PYTHON", help="a Python with apache-tvm")
    parser.add_argument("--tflite", metavar="PYTHON", help="a Python with onnx2tf, tensorflow and ai-edge-litert")
    parser.add_argument("--measure", help="a network: for the processes that are measured")
    arguments = parser.parse_args()
    if arguments.measure:
        print(_risen(MODELS[arguments.measure]().SerializeToString()))
        return
    planners = {name: path for name in ("tvm", "tflite") if (path := getattr(arguments, name))}
    larger = 0
    print(f"{'':>16}", *(f"{name:>14}" for name in ("onnxruntime", *planners, "dlc, generic", "dlc, this CPU")))
    for name, make in MODELS.items():
        if not any(word in name for word in arguments.words or [""]):
            continue
        model = make()
        risen = measured(name)
        plans = [planned(model, peer, python) for peer, python in planners.items()]
        own = [arena(model, target) for target in TARGETS]
        larger += any(size and risen and size > risen * (1 + PRECISION) for size in own)
        larger += any(own[0] and plan and own[0] > plan for plan in plans)
        print(f"{name:>16}", *(f"{size:>14,}" if size is not None else f"{'—':>14}" for size in (risen, *plans, *own)))
        sys.stdout.flush()
    sys.exit(larger > 0)


def planned(model: onnx.ModelProto, peer: str, python: str) -> int | None:
    """Bytes that the planner of a peer takes; None, with the reason on standard error, where it reads no such model."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "model.onnx")
        path.write_bytes(model.SerializeToString())
        script = Path(__file__).with_name(f"arena_of_{peer}.py")
        command = [python, str(script), str(path)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            print(f"{peer}: {lines[-1][:100] if lines else 'no message'}", file=sys.stderr)
        return None if done.returncode else int(done.stdout.split()[-1])


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


def measured(name: str) -> int | None:
    """Bytes of onnxruntime, measured in a process of its own; None where it does not run the network, or too little."""
    done = subprocess.run([sys.executable, __file__, "--measure", name], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 and int(done.stdout) >= LEAST else None


def _risen(model: bytes) -> int:
    ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 16)  # what is freed goes back at once
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    held = []
    for port in session.get_inputs():
        held.append(np.ones([d if isinstance(d, int) else 1 for d in port.shape], _KINDS[port.type]))
        binding.bind_cpu_input(port.name, held[-1])
    for port in session.get_outputs():
        held.append(np.ones([d if isinstance(d, int) else 1 for d in port.shape], _KINDS[port.type]))
        array = held[-1]
        binding.bind_output(port.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for _ in range(2):
        session.run_with_iobinding(binding)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the most resident memory is counted anew
    session.run_with_iobinding(binding)
    return _status("VmHWM") - before


def _status(name: str) -> int:
    """A figure of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
