"""What the memory planner of TFLite (LiteRT) takes for the values of an ONNX model, in bytes.

    PYTHON benchmarks/arena_of_tflite.py MODEL.onnx       with onnx2tf, tensorflow and ai-edge-litert for PYTHON

onnx2tf converts the model; its kernels run without delegates. The interpreter reports no arena, so the figure is that
of the addresses of its values: from the first byte of any to the last. Inputs and results are left out where they are
at an end of it, as they lie outside of dlc's arena; what kernels work in is counted as far as it is a tensor.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

SAMPLES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""What onnx2tf would fetch for models with pictures as inputs, and only uses to quantise."""


def main() -> None:
    """See above."""
    model = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as directory:
        np.save(Path(directory, SAMPLES), np.zeros((20, 128, 128, 3), np.float32))
        converter = [str(Path(sys.executable).with_name("onnx2tf")), "-i", str(model), "-o", "made", "-n"]
        subprocess.run(converter, cwd=directory, check=True, capture_output=True)
        print(arena(next(Path(directory, "made").glob("*_float32.tflite"))))


def arena(path: Path) -> int:
    """Bytes from the first to the last value that a TFLite model computes on its way."""
    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), experimental_op_resolver_type=kernels, num_threads=1)
    interpreter.allocate_tensors()
    ends = {port["index"] for port in (*interpreter.get_input_details(), *interpreter.get_output_details())}
    constants = _mapped(path)
    begins, behind = [], []
    for tensor in interpreter.get_tensor_details():
        try:
            view = interpreter.tensor(tensor["index"])()
        except ValueError:  # it has no memory: fused away, or a constant of a kernel
            continue
        address = view.__array_interface__["data"][0]
        if tensor["index"] not in ends and not any(begin <= address < end for begin, end in constants):
            begins.append(address)
            behind.append(address + view.nbytes)
    return max(behind) - min(begins)


def _mapped(path: Path) -> list[tuple[int, int]]:
    """The addresses at which this process has the file, where the weights are."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split()
        if name == str(path):
            begin, end = span.split("-")
            found.append((int(begin, 16), int(end, 16)))
    if not found:
        sys.exit("the interpreter does not map the file: weights cannot be told from values")
    return found


if __name__ == "__main__":
    main()
