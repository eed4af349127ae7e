"""Losses: how far predictions are from labels, one number per row, their sum, or their mean.

A row is what one label belongs to: scores[N, C, d…] have C classes along `axis`, and N·d… rows. Labels of rows are
integers, or as many probabilities as there are classes. Semantics are those of ONNX SoftmaxCrossEntropyLoss 13 and
NegativeLogLikelihoodLoss 13, and of PyTorch's losses of the same names where ONNX has none.

A label that is no class, and is not the one to ignore, makes the loss NaN: what reads it can tell, and nothing is read
outside a tensor. Its row has no part in the gradient. A mean over nothing is NaN too, its gradient 0.
"""

from dlc.ops.loss.classes import CrossEntropy, NegativeLogLikelihood
from dlc.ops.loss.ctc import Ctc, CtcRows, CtcStep
from dlc.ops.loss.differences import BinaryCrossEntropyWithLogits, Huber, MeanAbsoluteError, MeanSquaredError
from dlc.ops.loss.labels import LabelMask, PickLabel, label_type
from dlc.ops.loss.reduction import REDUCTIONS
from dlc.ops.loss.softmax import LabelCrossEntropy, TargetCrossEntropy

__all__ = [
    "REDUCTIONS",
    "BinaryCrossEntropyWithLogits",
    "CrossEntropy",
    "Ctc",
    "CtcRows",
    "CtcStep",
    "Huber",
    "LabelCrossEntropy",
    "LabelMask",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "NegativeLogLikelihood",
    "PickLabel",
    "TargetCrossEntropy",
    "label_type",
]
