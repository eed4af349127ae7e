"""What a model is: an immutable graph of ops, where an op instance is its own node, value and pattern."""

from dlc.graph.branch import If
from dlc.graph.constants import compute_ops, read_constants
from dlc.graph.evaluate import evaluate
from dlc.graph.gradient import Cotangent
from dlc.graph.graph import Graph, make_graph
from dlc.graph.loops import Loop, Scan
from dlc.graph.op import Op
from dlc.graph.structure import Again, Call, Constant, Copy, Input, Item, Splat
from dlc.graph.tensor import FileData, LazyData, MemoryData, Tensor
from dlc.graph.text import parse_graph, print_graph
from dlc.graph.verify import verify
from dlc.graph.walk import evaluate_ops, toposort

__all__ = [
    "Again",
    "Call",
    "Constant",
    "Copy",
    "Cotangent",
    "FileData",
    "Graph",
    "If",
    "Input",
    "Item",
    "LazyData",
    "Loop",
    "MemoryData",
    "Op",
    "Scan",
    "Splat",
    "Tensor",
    "compute_ops",
    "evaluate",
    "evaluate_ops",
    "make_graph",
    "parse_graph",
    "print_graph",
    "read_constants",
    "toposort",
    "verify",
]
