"""Matrix products and convolutions. With a bias they are compositions, so that the contraction stays pure."""

from dlc.ops.linear.convolution import Col2Im, Conv, ConvTranspose
from dlc.ops.linear.determinant import Det, OtherRows
from dlc.ops.linear.integers import ConvInteger, MatMulInteger
from dlc.ops.linear.products import MAX_FACTORS, Einsum, Gemm, MatMul

__all__ = [
    "MAX_FACTORS",
    "Col2Im",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "Det",
    "Einsum",
    "Gemm",
    "MatMul",
    "MatMulInteger",
    "OtherRows",
]
