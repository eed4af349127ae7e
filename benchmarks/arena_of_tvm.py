"""What TVM's memory planner takes for the values of an ONNX model, in bytes.

    PYTHON benchmarks/arena_of_tvm.py MODEL.onnx          with apache-tvm and onnx installed for PYTHON

Relax plans shared storages (`StaticPlanBlockMemory`) after fusion: the figure is the sum of their sizes. Weights,
inputs and results of the function lie outside of them, as they lie outside of dlc's arena.
"""

import sys

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx


def main() -> None:
    """See above."""
    passes = relax.transform
    lowering = (
        passes.LegalizeOps(),
        passes.AnnotateTIROpPattern(),
        passes.FoldConstant(),
        passes.FuseOps(),
        passes.FuseTIR(),
        passes.DeadCodeElimination(),
        passes.ToNonDataflow(),
        passes.RemovePurityChecking(),
        passes.CallTIRRewrite(),
        passes.StaticPlanBlockMemory(),
    )
    with tvm.target.Target("llvm"):
        module = tvm.transform.Sequential(lowering)(from_onnx(onnx.load(sys.argv[1])))
    sizes: list[int] = []

    def visit(node: object) -> None:
        if isinstance(node, relax.Call) and getattr(node.op, "name", "") == "relax.memory.alloc_storage":
            sizes.append(int(node.args[0].values[0]))

    relax.analysis.post_order_visit(module["main"], visit)
    print(sum(sizes))


if __name__ == "__main__":
    main()
