"""One case for every import rule: node, operands, versions, and who says what is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from building import Oracle, reference, runtime

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def i(*values: int) -> Any:
    return np.array(values, np.int64)


@dataclass
class Case:
    """One node, its operands (constant ones by position in `fixed`), and the versions to try."""

    op: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    fixed: tuple[int, ...] = ()
    opsets: tuple[int, ...] = (13, 21)
    outputs: int = 1
    oracle: Oracle = reference
    """onnxruntime where the reference deviates from the specification; a comment at the case says how."""

    def __str__(self) -> str:
        return f"{self.op}-{'-'.join(f'{k}_{v}' for k, v in self.attributes.items() if not hasattr(v, 'name'))}"


IMAGE = f(2, 4, 7, 6)
TIES = np.array([[1, 3, 3, 0, 3], [2, 2, -1, 5, 2]], np.float32)
ROI = np.array([0, 0, -0.1, 0.2, 1, 1, 0.7, 1.3], np.float32)
TWICE = np.array([1, 1, 2, 2], np.float32)
PYTORCH = {"coordinate_transformation_mode": "pytorch_half_pixel"}
ALIGNED = {"coordinate_transformation_mode": "align_corners"}
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5}
FLOOR = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
TWO = f(1, 1, 2, 2)
UNPOOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
COL2IM = {"strides": [2, 3], "pads": [1, 0, 1, 3], "dilations": [1, 2]}
BICUBIC = {"mode": "bicubic", "align_corners": 1}
REFLECTED = {"mode": "cubic", "padding_mode": "reflection", "align_corners": 1}
REGIONS = np.array([[0.5, 1, 4, 5.5], [-2, -3, 9, 4], [3, 3, 3.2, 9]], np.float32)
BOXES = np.array([[0, 0.5, 1, 4, 5.5], [1, 2, 3, 9, 4], [1, 3, 3, 2, 9], [0, 8, 8, 9, 9]], np.float32)
BINS = {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
DEFORMED = {"offset_group": 2, "strides": [2, 1], "pads": [1, 0, 0, 0]}
MEL = (np.array(8), np.array(64), np.array(8192), np.float32(20), np.float32(4000))
TOKENS = RNG.integers(0, 3, (3, 9))
GRAMS = {
    "ngram_counts": [0, 2, 8],
    "ngram_indexes": [1, 0, 4, 2, 3, 6],
    "pool_int64s": [0, 2, 0, 1, 1, 1, 2, 0, 0, 1, 2],
    "weights": [0.5, 1.5, 2.0, 3.0, 0.25, 1.0, 7.0],
    "min_gram_length": 1,
    "max_gram_length": 3,
    "max_skip_count": 1,
}
LEFT, RIGHT = {"direction": "LEFT"}, {"direction": "RIGHT"}
ANTIALIAS = {"mode": "linear", "antialias": 1}
SMALLER = {"mode": "nearest", "keep_aspect_ratio_policy": "not_larger"}


def broadcast_to_channels(model: onnx.ModelProto, outputs: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
    """PRelu of version 6, which neither oracle implements: a list of slopes is one for each channel."""
    del model, outputs
    x, slope = feeds.values()
    return [np.where(x < 0, x * slope[:, None], x)]


CASES = [
    *(
        Case("CenterCropPad", (f(4, 5, 3), i(*sizes)), {"axes": axes} if axes else {}, (1,), (18,))
        for sizes, axes in (((2, 8, 3), None), ((5, 4), [0, 1]), ((7, 1), [-1, 1]), ((9,), [1]))
    ),
    *(
        Case("AffineGrid", (f(2, n - 2, n - 1), i(2, 3, *sizes)), {"align_corners": a}, (1,), (20,))
        for n, sizes in ((4, (3, 5)), (5, (2, 3, 4)), (4, (1, 2)))
        for a in (0, 1)
    ),
    Case("Sum", (f(2, 3), f(3), f(2, 1)), opsets=(8, 13)),
    Case("Mean", (f(2, 3), f(3)), opsets=(8, 13)),
    Case("Max", (f(2, 3), f(3), f(1)), opsets=(8, 13)),
    Case("Min", (f(2, 3), f(3)), opsets=(8, 13)),
    Case("Mod", (i(5, -5, 7), i(3, 3, -4))),
    Case("Mod", (f(4), f(4)), {"fmod": 1}),
    Case("Pow", (np.abs(f(2, 3)), f(3)), opsets=(7, 13)),
    Case("Pow", (f(2, 3), np.array(2.0, np.float32)), fixed=(1,), opsets=(7, 13)),
    Case("Pow", (f(2, 3), i(3))),
    Case("Div", (i(7, -7, 9), i(2, 2, -4))),
    Case("BitShift", (np.array([7, -7, 64, -1], np.int8), np.array([2, 1, 9, -3], np.int8)), LEFT, opsets=(28,)),
    Case("BitShift", (i(7, -7, 1 << 40, -1), i(2, 1, 64, -3)), RIGHT, opsets=(28,)),
    Case("BitShift", (np.array([7, 255, 64], np.uint8), np.array([2], np.uint8)), RIGHT, opsets=(11, 18)),
    Case("BitCast", (f(2, 3),), {"to": onnx.TensorProto.UINT32}, opsets=(26,)),
    Case("BitCast", (i(-5, 1 << 62),), {"to": onnx.TensorProto.DOUBLE}, opsets=(26,)),
    Case("LeakyRelu", (f(5),), {"alpha": 0.2}),
    Case("Elu", (f(5),), {"alpha": 0.5}, opsets=(7, 13)),
    Case("Celu", (f(5),), {"alpha": 0.5}),
    Case("Selu", (f(5),), {}),
    Case("HardSigmoid", (f(5),), {"alpha": 0.3}),
    Case("ThresholdedRelu", (f(5),), {"alpha": 0.3}),
    Case("Shrink", (f(9),), {"lambd": 0.4, "bias": 0.1}),
    Case("Shrink", (np.arange(-4, 5, dtype=np.int8),), {"lambd": 1.5, "bias": 0.5}),
    Case("PRelu", (f(2, 3, 4), f(3, 1))),
    Case("Gelu", (f(9),), {}, opsets=(20,)),
    Case("Gelu", (f(9),), {"approximate": "tanh"}, opsets=(20,)),
    Case("Clip", (f(9),), {"min": -0.5, "max": 0.5}, opsets=(7,)),
    Case("Clip", (f(9), np.float32(-0.5), np.float32(0.5)), fixed=(1, 2), opsets=(11, 13)),
    Case("Clip", (f(9), np.float32(-0.5)), opsets=(13,)),
    Case("Cast", (f(4),), {"to": 7}, opsets=(9, 13, 19)),
    Case("Cast", (i(0, 2),), {"to": 9}),
    Case("IsInf", (np.array([np.inf, -np.inf, 1], np.float32),), {"detect_negative": 0}),
    Case("Where", (f(2, 3) > 0, f(2, 1), f(3)), opsets=(9, 16)),
    Case("ReduceSum", (f(2, 3, 4),), {"axes": [-1, 0], "keepdims": 0}, opsets=(7, 11)),
    Case("ReduceSum", (f(2, 3, 4), i(-1, 0)), {"keepdims": 0}, fixed=(1,)),
    Case("ReduceSum", (f(2, 3), i()), {"noop_with_empty_axes": 1}, fixed=(1,)),
    Case("ReduceMean", (f(2, 3, 4), i(1)), fixed=(1,), opsets=(18,)),
    Case("ArgMax", (f(3, 4),), {"axis": -1, "keepdims": 0}, opsets=(7, 13)),
    Case("ArgMin", (i(3, 1, 1),), {"select_last_index": 1}),
    Case("CumSum", (f(3, 4), np.array(-1)), {"reverse": 1, "exclusive": 1}, fixed=(1,)),
    Case("CumSum", (f(3, 4, 2), np.array(-2, np.int32)), {"reverse": 1}),
    Case("CumProd", (f(3, 4), np.array(1)), {"reverse": 1, "exclusive": 1}, fixed=(1,), opsets=(26,)),
    Case("CumProd", (f(3, 4), np.array(0)), opsets=(26,)),
    Case("MatMul", (f(2, 3, 4), f(4, 5)), opsets=(9, 13)),
    Case("Gemm", (f(4, 3), f(5, 4), f(5)), {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, opsets=(7, 13)),
    Case("Gemm", (f(3, 4), f(4, 5)), opsets=(11, 13)),
    Case("Einsum", (f(2, 3, 4), f(2, 4, 5)), {"equation": "bij, bjk -> bik"}),
    Case("Det", (f(2, 3, 3),), opsets=(11, 22)),
    Case("Det", (f(6, 6),), opsets=(22,)),
    Case("Conv", (IMAGE, f(6, 2, 3, 3), f(6)), {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}, opsets=(7, 11)),
    Case("Conv", (IMAGE, f(3, 4, 3, 2)), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("Conv", (IMAGE, f(3, 4, 3, 2)), {"auto_pad": "SAME_LOWER", "dilations": [1, 2]}),
    Case("ConvTranspose", (IMAGE, f(4, 3, 3, 3), f(3)), {"strides": [2, 2], "pads": [1, 1, 0, 1]}),
    Case("MaxPool", (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}, opsets=(8, 12)),
    Case("MaxPool", (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    Case("MaxPool", (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, outputs=2),
    Case("MaxPool", (f(1, 2, 6, 7),), {"kernel_shape": [3, 3], "storage_order": 1, "dilations": [2, 1]}, outputs=2),
    Case("MaxUnpool", (f(1, 1, 2, 2), i(5, 7, 13, 15).reshape(1, 1, 2, 2)), UNPOOL, opsets=(11, 22)),
    # The reference of ONNX up to 1.23 takes indices for those of a smaller shape, which it pads.
    Case("MaxUnpool", (TWO, i(5, 7, 13, 15).reshape(1, 1, 2, 2), i(1, 1, 5, 6)), UNPOOL, fixed=(2,), oracle=runtime),
    Case("Col2Im", (f(2, 12, 16), i(5, 6), i(2, 3)), fixed=(1, 2), opsets=(18,)),
    Case("Col2Im", (f(1, 8, 9), i(5, 6), i(2, 2)), COL2IM, fixed=(1, 2), opsets=(18,)),
    Case("TensorScatter", (f(2, 5, 3), f(2, 2, 3), i(0, 3)), opsets=(24,)),
    Case("TensorScatter", (f(2, 2, 5, 3), f(2, 2, 3, 3), i(4, 1)), {"mode": "circular"}, opsets=(24,)),
    Case("TensorScatter", (f(2, 5), f(2, 2)), {"axis": 1}, opsets=(24,)),
    # The first window is larger than the data.
    Case("MaxPool", (f(1, 2, 1, 2),), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}, oracle=runtime),
    Case("AveragePool", (f(1, 2, 1, 2),), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}, oracle=runtime),
    Case("AveragePool", (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, opsets=(7, 11, 19)),
    Case("AveragePool", (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    Case("GlobalAveragePool", (IMAGE,)),
    Case("GlobalMaxPool", (IMAGE,)),
    Case("LpNormalization", (f(3, 4),), {"axis": 1, "p": 2}),
    Case("BatchNormalization", (IMAGE, f(4), f(4), f(4), np.abs(f(4))), {"epsilon": 1e-3}, opsets=(14, 15)),
    # The reference normalises by the batch before version 14, although a node with one output is in test mode.
    Case("BatchNormalization", (IMAGE, f(4), f(4), f(4), np.abs(f(4))), opsets=(7, 9), oracle=runtime),
    Case("InstanceNormalization", (IMAGE, f(4), f(4))),
    Case("LayerNormalization", (f(2, 3, 4), f(4), f(4)), {"axis": -1}, opsets=(17,), outputs=3),
    Case("LayerNormalization", (f(2, 3, 4), f(3, 4)), {"axis": 1}, opsets=(17,)),
    Case("GroupNormalization", (IMAGE, f(4), f(4)), {"num_groups": 2}, opsets=(21,)),
    # The reference sums over as many channels as there are items in the batch and leaves the others alone.
    Case("LRN", (IMAGE,), {"size": 3, "alpha": 0.2}, oracle=runtime),
    Case("LRN", (f(5, 5, 3, 2),), {"size": 4}),
    # The reference applies version 13, one axis, to all versions; before, all dimensions from the axis on are one.
    Case("Softmax", (f(2, 3, 4),), {"axis": 1}, opsets=(7, 11), oracle=runtime),
    Case("Softmax", (f(2, 3, 4),), opsets=(7, 11), oracle=runtime),
    Case("LogSoftmax", (f(2, 3, 4),), {"axis": -2}, opsets=(11,), oracle=runtime),
    Case("Hardmax", (f(2, 3, 4),), opsets=(11,), oracle=runtime),
    Case("Softmax", (f(2, 3, 4),), {"axis": 1}),
    Case("Softmax", (f(2, 3, 4),)),
    Case("LogSoftmax", (f(2, 3),), {"axis": -1}),
    Case("Hardmax", (f(2, 3),), {"axis": -1}),
    Case("Reshape", (f(2, 3, 4), i(0, -1)), fixed=(1,), opsets=(7, 13)),
    Case("Flatten", (f(2, 3, 4),), {"axis": 2}, opsets=(9, 13)),
    Case("Flatten", (f(2, 3, 4),), {"axis": -1}),
    Case("Squeeze", (f(1, 3, 1),), {"axes": [0]}, opsets=(7, 11)),
    Case("Squeeze", (f(1, 3, 1), i(-1)), fixed=(1,)),
    Case("Squeeze", (f(1, 3, 1),)),
    Case("Unsqueeze", (f(3),), {"axes": [0, 2]}, opsets=(7, 11)),
    Case("Unsqueeze", (f(3), i(-1, 0)), fixed=(1,)),
    Case("Transpose", (f(2, 3, 4),), {"perm": [1, 2, 0]}),
    Case("Transpose", (f(2, 3, 4),)),
    Case("Concat", (f(2, 3), f(2, 1)), {"axis": -1}),
    Case("Split", (f(2, 6),), {"axis": 1, "split": [1, 2, 3]}, opsets=(7, 11), outputs=3),
    Case("Split", (f(2, 6), i(4, 2)), {"axis": -1}, fixed=(1,), outputs=2),
    Case("Split", (f(7, 2),), {"num_outputs": 3}, opsets=(18,), outputs=3),
    Case("Slice", (f(5, 6),), {"starts": [1, -2], "ends": [100, 6], "axes": [0, 1]}, opsets=(7, 9)),
    Case("Slice", (f(5, 6), i(4, 1), i(-100, 5), i(0, 1), i(-2, 2)), fixed=(1, 2, 3, 4), opsets=(10, 13)),
    Case("Slice", (f(5, 6), i(0), i(0)), fixed=(1, 2)),
    # The reference slices as Python does, where a start before the dimension is before element 0, not at it.
    Case("Slice", (f(5, 6), i(-7, -9), i(-9, -1), i(0, 1), i(-2, -1)), fixed=(1, 2, 3, 4), oracle=runtime),
    Case("Pad", (f(2, 3),), {"pads": [0, 1, 2, 0], "value": 1.5}, opsets=(7,)),
    Case("Pad", (f(3, 4), i(0, 1, 2, 0), np.float32(2)), fixed=(1, 2)),
    Case("Pad", (f(3, 4), i(1, 1, 2, 0)), {"mode": "reflect"}, fixed=(1,)),
    Case("Pad", (f(3, 4), i(1, 2), np.float32(0), i(-1)), fixed=(1, 2, 3), opsets=(18,)),
    Case("Expand", (f(3, 1), i(2, 1, 4)), fixed=(1,)),
    Case("Tile", (f(2, 3), i(2, 2)), fixed=(1,)),
    Case("DepthToSpace", (f(1, 8, 2, 3),), {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", (f(1, 2, 4, 6),), {"blocksize": 2}),
    Case("Shape", (f(2, 3),)),
    Case("Shape", (f(2, 3, 4),), {"start": 1, "end": -1}, opsets=(15,)),
    Case("Size", (f(2, 3),)),
    Case("Range", (np.array(1), np.array(9), np.array(3)), fixed=(0, 1, 2)),
    Case("Identity", (f(2),)),
    Case("Gather", (f(5, 3), i(0, -1)), {"axis": 0}),
    Case("GatherElements", (f(3, 3), np.array([[0, -1, 2]])), {"axis": 0}),
    Case("GatherND", (f(2, 3, 4), np.array([[0, 1], [1, 2]]))),
    Case("ScatterND", (f(4, 3), np.array([[1], [3]]), f(2, 3))),
    Case("ScatterElements", (f(3, 3), np.array([[1, 0, 2]]), f(1, 3)), {"axis": 0}),
    Case("OneHot", (i(0, 3, -1), np.array(4), f(2)), {"axis": -1}, fixed=(1,)),
    Case("TopK", (f(3, 7),), {"k": 2, "axis": 1}, opsets=(7,), oracle=runtime, outputs=2),
    Case("TopK", (TIES, i(3)), fixed=(1,), opsets=(10, 11, 24), oracle=runtime, outputs=2),
    Case("TopK", (TIES, i(2)), {"axis": 0, "largest": 0}, fixed=(1,), oracle=runtime, outputs=2),
    Case("TopK", (TIES.astype(np.int64), i(4)), {"sorted": 1}, fixed=(1,), outputs=2),
    Case("ReverseSequence", (f(4, 3, 2), i(1, 4, 2)), opsets=(10,)),
    Case("ReverseSequence", (f(3, 4), i(1, 4, 2)), {"batch_axis": 0, "time_axis": 1}, opsets=(10,)),
    Case("Trilu", (f(4, 4), np.array(1)), {"upper": 0}, fixed=(1,), opsets=(14,)),
    Case("Trilu", (f(2, 4, 5), np.array(-1)), opsets=(14,)),
    Case("NonZero", (i(0, 2, 0, 3),), fixed=(0,)),
    Case("Compress", (f(4, 2), np.array([True, False, True, False])), {"axis": 0}, fixed=(1,)),
    Case("Resize", (f(1, 1, 3, 4), f(0), np.array([1, 1, 2, 1.5], np.float32)), {"mode": "linear"}, fixed=(1, 2)),
    Case("Resize", (IMAGE, f(0), f(0), i(2, 4, 5, 13)), {"mode": "cubic"}, fixed=(1, 2, 3)),
    Case("Resize", (IMAGE, f(0), f(0), i(2, 4, 14, 3)), {"mode": "cubic", **PYTORCH}, fixed=(1, 2, 3), oracle=runtime),
    Case("Resize", (IMAGE, f(0), f(0), i(2, 4, 3, 9)), {"mode": "linear", **ALIGNED}, fixed=(1, 2, 3), oracle=runtime),
    Case("Resize", (IMAGE, f(0), f(0), i(2, 4, 3, 4)), ANTIALIAS, fixed=(1, 2, 3), opsets=(18,)),
    Case("Resize", (IMAGE, f(0), f(0), i(5, 5)), {"axes": [3, 2], "mode": "linear"}, fixed=(1, 2, 3), opsets=(18,)),
    Case("Resize", (IMAGE, f(0), f(0), i(9, 9)), {"axes": [2, 3], **SMALLER}, fixed=(1, 2, 3), opsets=(18,)),
    Case("Resize", (IMAGE, ROI, f(0), i(2, 4, 5, 5)), {"mode": "linear", **CROP}, fixed=(1, 2, 3)),
    Case("Resize", (IMAGE, f(0), TWICE), FLOOR, fixed=(1, 2), opsets=(11, 13, 19)),
    # The reference does not know the names of version 16.
    Case("GridSample", (f(2, 3, 4, 5), f(2, 3, 2, 2)), BICUBIC, opsets=(16,), oracle=runtime),
    Case("GridSample", (f(2, 3, 4, 5), f(2, 3, 2, 2)), {"padding_mode": "reflection"}, opsets=(20, 22)),
    Case("GridSample", (f(1, 2, 4, 5), f(1, 3, 2, 2) * 3), REFLECTED, opsets=(20,)),
    Case("GridSample", (f(1, 2, 3, 4, 5), f(1, 2, 3, 2, 3)), {"padding_mode": "border"}, opsets=(20,)),
    Case("GridSample", (f(1, 2, 4, 5), f(1, 3, 2, 2) * 2), {"mode": "nearest"}, opsets=(20,)),
    Case("RoiAlign", (IMAGE, REGIONS, i(0, 1, 1)), {**BINS, "spatial_scale": 0.5}, opsets=(16, 22)),
    Case("RoiAlign", (IMAGE, REGIONS, i(0, 1, 1)), {**BINS, "mode": "max"}, opsets=(16,)),
    # The reference has no version before coordinates were chosen by an attribute.
    Case("RoiAlign", (IMAGE, REGIONS, i(0, 1, 1)), BINS, opsets=(10,), oracle=runtime),
    # The reference does not implement it.
    Case("MaxRoiPool", (IMAGE, BOXES), {"pooled_shape": [2, 3], "spatial_scale": 0.5}, opsets=(13,), oracle=runtime),
    Case("MaxRoiPool", (IMAGE, BOXES), {"pooled_shape": [3, 2]}, opsets=(13,), oracle=runtime),
    Case("DeformConv", (IMAGE, f(4, 2, 3, 2), f(2, 12, 5, 5)), {"group": 2}, opsets=(19, 22)),
    Case("DeformConv", (IMAGE, f(3, 4, 3, 2), f(2, 24, 3, 5), f(3), f(2, 12, 3, 5)), DEFORMED, opsets=(19,)),
    Case("DFT", (f(2, 7, 3, 1),), opsets=(17,)),
    Case("DFT", (f(2, 7, 3, 2), np.array(9)), {"axis": 2, "inverse": 1}, fixed=(1,), opsets=(17,)),
    Case("DFT", (f(2, 8, 1), np.array(6), np.array(-2)), {"onesided": 1}, fixed=(1, 2), opsets=(20,)),
    Case("DFT", (f(2, 5, 2),), {"onesided": 1, "inverse": 1}, opsets=(20,)),
    Case("DFT", (f(5, 2, 2), np.array(7), np.array(0)), {"onesided": 1, "inverse": 1}, fixed=(1, 2), opsets=(20,)),
    Case("STFT", (f(2, 32, 1), np.array(6), f(10)), fixed=(1,), opsets=(17,)),
    Case("STFT", (f(2, 32, 2), np.array(6), f(8), np.array(8)), {"onesided": 0}, fixed=(1, 3), opsets=(17,)),
    Case("MelWeightMatrix", MEL, fixed=(0, 1, 2, 3, 4), opsets=(17,)),
    Case("HannWindow", (np.array(9),), fixed=(0,), opsets=(17,)),
    Case("BlackmanWindow", (np.array(9),), {"periodic": 0}, fixed=(0,), opsets=(17,)),
    Case("HammingWindow", (np.array(8),), {"output_datatype": 11}, fixed=(0,), opsets=(17,)),
    Case("TfIdfVectorizer", (TOKENS,), {**GRAMS, "mode": "TF"}, opsets=(9,)),
    Case("TfIdfVectorizer", (TOKENS.astype(np.int32),), {**GRAMS, "mode": "IDF", "max_skip_count": 2}, opsets=(9,)),
    Case("TfIdfVectorizer", (TOKENS[0],), {**GRAMS, "mode": "TFIDF", "min_gram_length": 2}, opsets=(9,)),
    Case("Upsample", (IMAGE, TWICE), {"mode": "nearest"}, fixed=(1,), opsets=(9,)),
    Case("Upsample", (IMAGE,), {"mode": "linear", "scales": [1.0, 1.0, 2.0, 2.0]}, opsets=(7,), oracle=runtime),
    Case("PRelu", (f(2, 3, 4), f(3)), opsets=(6,), oracle=broadcast_to_channels),
    Case("QuantizeLinear", (f(2, 3), np.float32(0.05), np.uint8(7))),
    Case("QuantizeLinear", (f(2, 3), np.float32(1e-4), np.int16(7)), opsets=(21,)),
    Case("QuantizeLinear", (f(2, 7), f(2, 3) ** 2, np.int8(f(2, 3))), {"axis": 1, "block_size": 3}, opsets=(21,)),
    Case("DequantizeLinear", (np.int8(f(2, 4) * 9), f(1, 4)), {"axis": 0, "block_size": 2}, opsets=(21,)),
    # The reference implements DequantizeLinear from version 19 on.
    Case(
        "DequantizeLinear",
        (np.arange(6, dtype=np.uint8), np.float32(0.5), np.uint8(3)),
        opsets=(10, 13),
        oracle=runtime,
    ),
    Case("DequantizeLinear", (np.arange(6, dtype=np.uint8), np.float32(0.5), np.uint8(3)), opsets=(19, 21)),
    Case("DynamicQuantizeLinear", (f(2, 3),), outputs=3),
    # The reference divides the scale of zeros by 255, its comment and onnxruntime do not.
    Case("DynamicQuantizeLinear", (np.zeros((2, 3), np.float32),), outputs=3, oracle=runtime),
    Case("MatMulInteger", (np.arange(6, dtype=np.uint8).reshape(2, 3), np.ones((3, 2), np.uint8), np.uint8(2))),
]
