"""Sample instances of every op: what the generated tests run over. An op without a sample fails the suite."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from dlc.base.types import DType, Type, bool_, f32, f64, i8, i32, i64, u8
from dlc.graph import Input, Op, toposort
from dlc.ops import checked as ck
from dlc.ops import deform as de
from dlc.ops import elementwise as e
from dlc.ops import fourier as fo
from dlc.ops import index as ix
from dlc.ops import linear as ln
from dlc.ops import loss as ls
from dlc.ops import ngrams as ng
from dlc.ops import normalize as nm
from dlc.ops import order as od
from dlc.ops import packed as pk
from dlc.ops import pool as pl
from dlc.ops import random as ra
from dlc.ops import reduce as rd
from dlc.ops import roi_pool as rp
from dlc.ops import sample as sa
from dlc.ops import shape as sh
from dlc.ops import sizes as sz
from dlc.ops import standardize as st
from dlc.ops import trees as tr

_number = count()


def x(*shape: int, dtype: DType = f32, name: str = "") -> Input:
    """A fresh input; the name tells `feed` which values the op can take."""
    return Input(f"{name}{next(_number)}", Type(dtype, shape))


BINARY = (e.Add, e.Sub, e.Mul, e.Minimum, e.Maximum, e.Equal, e.Less, e.LessOrEqual, e.Greater, e.GreaterOrEqual)
UNARY = (
    *(e.Neg, e.Abs, e.Sign, e.Exp, e.Reciprocal, e.Relu, e.LeakyRelu, e.Sigmoid, e.Tanh, e.Erf, e.Floor, e.Ceil),
    *(e.Round, e.Sin, e.Cos, e.Tan, e.Atan, e.Sinh, e.Cosh, e.Asinh, e.Softplus, e.Softsign, e.Elu, e.Selu, e.Celu),
    *(e.HardSigmoid, e.HardSwish, e.Mish, e.ThresholdedRelu, e.Gelu, e.IsNan, e.IsInf),
)
REDUCTIONS = (
    *(rd.ReduceSum, rd.ReduceProd, rd.ReduceMax, rd.ReduceMin, rd.ReduceL1, rd.ReduceSumSquare),
    *(rd.ReduceMean, rd.ReduceL2, rd.ReduceLogSumExp),
)


def samples() -> Iterator[Op]:
    """Several instances of every op class, small enough to interpret point by point."""
    yield from elementwise()
    yield from reductions()
    yield from contractions()
    yield from windows()
    yield from normalisations()
    yield from movements()
    yield from indexing()
    yield from losses()
    yield from sampling()
    yield from random()


def elementwise() -> Iterator[Op]:
    for binary in BINARY:
        yield binary(x(2, 3, 4), x(3, 1))
        yield binary(x(4, dtype=i32), x(2, 1, dtype=i32))
    yield e.Div(x(2, 3), x(3, name="positive"))
    yield e.Div(x(2, 3, dtype=i32), x(3, dtype=i32, name="positive"))
    yield e.Pow(x(2, 3, name="positive"), x(3))
    yield e.Mod(x(2, 3, dtype=i64), x(3, dtype=i64, name="positive"))
    yield e.Mod(x(2, 3), x(3, name="positive"), fmod=True)
    for logic in (e.And, e.Or, e.Xor):
        yield logic(x(2, 3, dtype=bool_), x(3, dtype=bool_))
    for bits in (e.BitAnd, e.BitOr, e.BitXor, e.ShiftLeft, e.ShiftRight):
        yield bits(x(2, 3, dtype=i32), x(3, dtype=i32))
        yield bits(x(2, 3, dtype=u8), x(3, dtype=u8, name="positive"))
    yield e.BitNot(x(3, dtype=i64))
    yield e.BitNot(x(3, dtype=u8))
    for size in ((f64, i64), (i64, f64), (u8, bool_), (bool_, u8)):
        yield e.BitCast(x(5, dtype=size[0]), to=size[1])
    for unary in UNARY:
        yield unary(x(3, 4))
    for positive in (e.Log, e.Sqrt, e.Root):
        yield positive(x(3, 4, name="positive"))
    for small in (e.Asin, e.Acos, e.Atanh):
        yield small(x(3, 4, name="unit"))
    yield e.Root(x(3, 4, name="positive"), degree=3)
    yield e.Acosh(x(3, name="above"))
    yield e.Relu(x(5, dtype=i32))
    yield e.Gelu(x(3, 4, dtype=f64), approximate="tanh")
    yield e.Not(x(3, dtype=bool_))
    yield e.Clip(x(7), low=-0.5, high=0.25)
    yield e.Clip(x(7, dtype=i32), low=-1)
    yield e.PRelu(x(2, 3, 4), x(3, 1))
    yield e.Where(x(3, 1, dtype=bool_), x(2, 1, 4), x(3, 4))
    for to in (f64, i32, u8, bool_):
        yield e.Cast(x(5, name="positive"), to)


def reductions() -> Iterator[Op]:
    for reduction in REDUCTIONS:
        yield reduction(x(2, 3, 4), axes=(1,))
        yield reduction(x(2, 3, 4), axes=(0, 2), keep=True)
        yield reduction(x(2, 1, 4), axes=(0, 1, 2))
    yield rd.ReduceSum(x(2, 0), axes=(1,))
    yield rd.ReduceSum(x(2, 3, dtype=i64), axes=())
    yield rd.ReduceLogSum(x(2, 3, name="positive"), axes=(1,))
    for arg in (rd.ArgMax, rd.ArgMin):
        yield arg(x(3, 4), axis=1)
        yield arg(x(3, 4, dtype=i32), axis=0, keep=False, last=True)
    yield rd.IndexOf(x(3, 4, dtype=i32), x(3, 1, dtype=i32), axis=1)
    for flags in ((False, False), (True, False), (False, True), (True, True)):
        yield rd.CumSum(x(2, 5), axis=1, exclusive=flags[0], reverse=flags[1])
        yield rd.CumProd(x(3, 4), axis=0, exclusive=flags[0], reverse=flags[1])
    yield rd.CumSum(x(4, 2, dtype=i32), axis=0, exclusive=True)


def contractions() -> Iterator[Op]:
    yield ln.MatMul(x(3, 4), x(4, 5))
    yield ln.MatMul(x(2, 1, 3, 4), x(3, 4, 5))
    yield ln.MatMul(x(4), x(2, 4, 5))
    yield ln.MatMul(x(2, 3, 4), x(4))
    yield ln.Gemm(x(3, 4), x(4, 5))
    yield ln.Gemm(x(4, 3), x(5, 4), x(5), alpha=0.5, beta=2.0, trans_a=True, trans_b=True)
    yield ln.Einsum((x(2, 3, 4), x(4, 5)), equation="...ik,kj->...ij")
    yield ln.Einsum((x(2, 3), x(3), x(2)), equation="ij,j,i")
    yield ln.Conv(x(2, 3, 7, 6), x(4, 3, 3, 2))
    yield ln.Conv(x(1, 4, 7, 7), x(6, 2, 3, 3), x(6), stride=(2, 1), pads=(1, 0, 2, 1), dilation=(1, 2), group=2)
    yield ln.Conv(x(2, 4, 9), x(4, 1, 3), pads=(1, 1), group=4)
    yield ln.Conv(x(1, 2, 3, 4, 5), x(3, 2, 2, 2, 2))
    yield ln.ConvInteger(x(1, 3, 6, 5, dtype=u8), x(4, 3, 3, 2, dtype=i8), stride=(2, 1), pads=(1, 0, 1, 1))
    yield ln.ConvInteger(x(1, 4, 7, dtype=i8), x(4, 1, 3, dtype=u8), dilation=(2,), group=4)
    yield ln.MatMulInteger(x(2, 3, 5, dtype=u8), x(5, 4, dtype=i8))
    yield ln.ConvTranspose(x(2, 3, 4, 3), x(3, 2, 3, 3))
    yield ln.ConvTranspose(
        x(1, 4, 3, 4),
        x(4, 3, 3, 2),
        x(6),
        stride=(2, 3),
        pads=(1, 0, 0, 1),
        dilation=(2, 1),
        output_pad=(1, 0),
        group=2,
    )
    yield ln.Col2Im(x(2, 12, 16), image=(5, 6), block=(2, 3))
    yield ln.Col2Im(x(1, 8, 6), (5, 6), (2, 2), stride=(2, 3), pads=(1, 0, 1, 0), dilation=(1, 2))
    yield ln.Col2Im(x(1, 3, 5), image=(7,), block=(3,))
    yield ln.OtherRows(x(2, 4, 3), x(2, 1, 1, dtype=i64, name="label"))
    yield ln.Det(x(2, 1, 1))
    yield ln.Det(x(2, 2))
    yield ln.Det(x(2, 3, 3))
    yield ln.Det(x(2, 5, 5))
    yield ln.Det(x(4, 4))


def windows() -> Iterator[Op]:
    for pool in (pl.MaxPool, pl.SumPool, pl.AveragePool):
        yield pool(x(2, 3, 7, 6), window=(3, 2))
        yield pool(x(1, 2, 8, 7), window=(3, 3), stride=(2, 2), pads=(1, 0, 1, 1))
        yield pool(x(1, 2, 8), window=(3,), stride=(2,), dilation=(2,), pads=(2, 1), ceil=True)
    yield pl.AveragePool(x(1, 2, 8, 7), window=(3, 3), stride=(2, 3), pads=(1, 1, 1, 1), ceil=True, count_pad=True)
    yield pl.AveragePool(x(1, 2, 5, 5), window=(2, 2), pads=(1, 1, 0, 0), count_pad=True)
    yield pl.PoolSize((5,), (3,), (2,), (1,), (1,), (0,), (0,), (3,), f32)
    yield pl.MaxPlace(x(1, 2, 8, 7, dtype=i32), x(1, 2, 7, 3, dtype=i32), (3, 3), (1, 2), (1, 0, 0, 1), (1, 1))
    yield pl.MaxPlace(x(1, 1, 5), x(1, 1, 4), (2,))
    yield pl.Unpool(x(1, 2, 3, 3), x(1, 2, 3, 3, dtype=i64, name="tap"), (1, 2, 7, 7), (3, 2), (2, 3), (1, 0, 0, 1))
    yield pl.Unpool(x(2, 1, 5), x(2, 1, 5, dtype=i64, name="tap"), (2, 1, 8), (2,), dilation=(3,))
    yield pl.Unpool(x(1, 2, 3, 3), x(1, 2, 3, 3, dtype=i64, name="tap"), (1, 2, 5, 6), (2, 2), (2, 2), (0, 0, 1, 0))
    yield pl.Unpool(x(1, 2, 3, 3), x(1, 2, 3, 3, dtype=i64, name="tap"), (1, 2, 5, 8), (2, 3), (2, 3), (1, 1, 0, 0))
    yield pl.TapIndex(x(1, 2, 3, 2, dtype=i64, name="tap"), (1, 2, 7, 7), (3, 4), (2, 3), (1, 0, 0, 1))
    yield pl.TapIndex(x(2, 1, 3, dtype=i64, name="tap"), (2, 1, 9), (2,), dilation=(3,), columns=True)
    yield pl.GlobalAveragePool(x(2, 3, 4, 5))
    yield pl.GlobalMaxPool(x(2, 3, 4, 5))


def normalisations() -> Iterator[Op]:
    yield nm.BatchNorm(x(2, 3, 4, 4), x(3), x(3), x(3), x(3, name="positive"), epsilon=1e-3)
    yield nm.CentredScale(x(2, 3, 4, 4), x(3), x(3), x(3))
    yield nm.CentredSum(x(2, 3, 4, 4), x(3), x(2, 3, 4, 4))
    yield nm.CentredSum(x(4, 2), x(2))
    yield nm.BatchNormTraining(x(2, 3, 4, 4), x(3), x(3), epsilon=1e-3)
    yield nm.BatchNormTraining(x(5, 2), x(2), x(2))
    yield st.SquaredDifference(x(2, 3), x(2, 1))
    yield st.Standardized(x(2, 3), x(2, 1), x(2, 1))
    yield st.StandardizedScale(x(2, 3), x(2, 1), x(2, 1), x(3))
    yield nm.LayerNorm(x(2, 3, 4), x(4), x(4))
    yield nm.LayerNorm(x(2, 3, 4), x(1), axis=1)
    yield nm.LayerNorm(x(2, 3, 4), x(3, 4), axis=1)
    yield nm.RmsNorm(x(2, 3, 4), x(4))
    yield nm.RmsNorm(x(2, 3, 4), x(1), axis=1)
    yield nm.InstanceNorm(x(2, 3, 5), x(3), x(3))
    yield nm.GroupNorm(x(2, 4, 5), x(4), x(4), groups=2)
    yield nm.GroupNorm(x(2, 6, 2, 2), x(6), x(6), groups=3)
    yield nm.Lrn(x(1, 6, 2, 2), size=4, alpha=0.5)
    yield nm.Softmax(x(2, 3, 4), axis=1)
    yield nm.LogSoftmax(x(2, 3))


def movements() -> Iterator[Op]:
    yield sz.Sizes((3, 0, 5))
    yield sz.Size(12, to=f32)
    yield pk.Packed(x(4, 2), x(4, dtype=bool_), x(4, dtype=i64, name="places"), x(dtype=i64), size=4)
    yield ck.Checked(x(2, 3), x(dtype=i64, name="label"), name="n", high=1 << 40)
    yield ck.FirstRows(x(5, 3), x(dtype=i64, name="index"), size=4)
    yield ck.FirstRows(x(2, 3), x(dtype=i64, name="index"), size=2, axis=1)
    yield sz.Count(4, start=-2, step=3)
    yield sz.Count(3, start=7, step=-2, to=i32)
    yield sh.Reshape(x(2, 3, 4), to=(2, 12))
    yield sh.Reshape(x(6, 4), to=(3, 1, 8))
    yield sh.Reshape(x(2, 3, 1, 10), to=(1, 3, 2, 2, 5))
    yield sh.Reshape(x(0, 3), to=(3, 0, 7))
    yield sh.Reshape(x(1, 1), to=())
    yield sh.Transpose(x(2, 3, 4), perm=(2, 0, 1))
    yield sh.Concat((x(2, 3), x(2, 1), x(2, 2)), axis=1)
    yield sh.Slice(x(5, 6, 2), starts=(3, 0, 1), sizes=(4, 2, 1), steps=(-1, 3, 1))
    yield sh.Slice(x(5, 3), starts=(1, 0), sizes=(2, 0))
    yield sh.Pad(x(2, 3), pads=(1, 0, 0, 2), value=1.5)
    yield sh.Pad(x(4, 5, dtype=i32), pads=(-1, 2, 1, -3), value=7)
    for mode in ("edge", "reflect", "wrap"):
        yield sh.Pad(x(4, 5), pads=(2, 1, 0, 3), mode=mode)
    yield sh.Expand(x(3, 1), to=(2, 3, 4))
    yield sh.Tile(x(2, 3), repeats=(2, 3))
    yield sh.DepthToSpace(x(2, 8, 2, 3), block=2)
    yield sh.DepthToSpace(x(1, 8, 2, 3), block=2, mode="CRD")
    yield sh.SpaceToDepth(x(2, 2, 4, 6), block=2)
    yield sh.SpaceToDepth(x(1, 3, 4, 2), block=2, mode="CRD")


def indexing() -> Iterator[Op]:
    yield ix.Gather(x(4, 3), x(2, 2, dtype=i64, name="index"), axis=0)
    yield ix.Pick(x(4, 3), x(2, 2, dtype=i64, name="index"), axis=0)
    yield ix.Gather(x(2, 4, 3), x(dtype=i32, name="index"), axis=1)
    yield ix.GatherElements(x(4, 3), x(2, 3, dtype=i64, name="index"), axis=0)
    yield ix.GatherNd(x(4, 4, 3), x(5, 2, dtype=i64, name="index"))
    yield ix.GatherNd(x(2, 4, 3), x(2, 2, 1, dtype=i64, name="index"), batch=1)
    yield ix.OneHot(x(3, dtype=i64, name="index"), x(2), depth=4, axis=1)
    yield ix.Trilu(x(2, 3, 4), k=1)
    yield ix.Trilu(x(4, 3), k=1, by=x(1, dtype=i64, name="index"))
    yield ix.Trilu(x(4, 3, dtype=i32), upper=False, k=-1)
    yield ix.Overwrite(x(2, 4, 3), x(2, 2, 3), x(2, dtype=i64, name="label"))
    yield ix.Overwrite(x(2, 3, 5), x(2, 3, 2), x(2, dtype=i64, name="label"), axis=2, circular=True)
    yield ix.ScatterNd(x(4, 3), x(2, 1, dtype=i64, name="permutation"), x(2, 3))
    yield ix.ScatterNd(x(4, 3), x(5, 1, dtype=i64, name="index"), x(5, 3), reduce="add")
    yield ix.ScatterElements(x(4, 3), x(2, 3, dtype=i64, name="permutation"), x(2, 3))
    yield ix.ScatterElements(x(4, 3), x(4, 3, dtype=i64, name="index"), x(4, 3), axis=1, reduce="max")
    for strides in (1, 3):
        yield ng.NgramCounts(x(2, 6, dtype=i64, name="label"), x(4, 2, dtype=i64, name="label"), strides=strides)
    yield ng.NgramCounts(x(1, 5, dtype=i32, name="label"), x(3, 1, dtype=i32, name="label"))
    tables = [x(7, dtype=i64, name="label") for _ in range(4)]
    yield tr.TreeStep(x(3, 4), x(3, 2, dtype=i64, name="label"), tables[0], x(7), *tables[1:])
    yield od.Rank(x(3, 5), axis=1)
    yield od.Rank(x(5, 2, dtype=i32), axis=0, largest=False)
    yield od.Placed(x(4, 3, dtype=i64, name="permutation"), count=3)
    yield od.FirstOf(x(3, 5), axis=1, count=2)
    yield od.FirstOf(x(5, 2, dtype=i32), axis=0, count=5, largest=False)


def sampling() -> Iterator[Op]:
    for mode in ("nearest", "linear", "cubic"):
        yield sa.SampleAt(x(2, 3, 4, 5), x(2, 3, 2), mode=mode)
        yield sa.SampleAt(x(2, 2, 4), x(3, 2, 1), x(3, dtype=i64, name="label"), mode=mode, padding="border")
        for padding in ("reflection", "mirror"):
            yield sa.SampleAt(x(1, 2, 4, 3), x(1, 3, 2), mode=mode, padding=padding)
        for beyond in ("zeros", "border", "reflection"):
            for aligned in (False, True):
                yield sa.GridSample(x(1, 2, 4, 3), x(1, 2, 2, 2), mode=mode, padding=beyond, aligned=aligned)
    yield sa.SampleAt(x(2, 3, 4, 5), x(2, 3, 2), padding="near", reduce="max")
    yield fo.DftMatrix(6, (6, 4), (1, 2), False, False, f32)
    yield fo.DftMatrix(5, (3, 5), (2, 1), True, True, f64)
    yield fo.Dft(x(2, 5, 1), axis=1, length=5)
    yield fo.Dft(x(2, 6, 3, 1), axis=1, length=6, half=True)
    yield fo.Dft(x(2, 5, 3, 2), axis=2, length=4, inverse=True)
    for length in (6, 7):
        yield fo.Dft(x(2, 5, 2), axis=1, length=length, inverse=True, half=True)
    yield fo.Frames(x(2, 9, 2), x(4), length=4, step=2)
    yield fo.Frames(x(1, 5, 1), length=3)
    yield sa.GridSample(x(1, 2, 3, 4, 2), x(1, 2, 3, 2, 3))
    yield sa.GridPlaces(x(1, 2, 2), extents=(4, 3))
    yield sa.GridPlaces(x(1, 2, 2), extents=(4, 3), padding="mirror", aligned=True)
    for half in (False, True):
        yield de.RoiPlaces(x(3, 4), bins=(2, 3), samples=2, scale=0.5, half=half)
        for kind in ("avg", "max"):
            yield de.RoiAlign(
                *(x(2, 2, 6, 5), x(3, 4, name="positive"), x(3, dtype=i64, name="label")),
                bins=(2, 3),
                samples=2,
                half=half,
                mode=kind,
            )
    for rows in (False, True):
        yield rp.RoiRanges(x(3, 5), extent=4, bins=3, rows=rows, scale=1.5)
    yield rp.RangeMax(x(2, 3, 4, 5), x(3, 2, 2, dtype=i64, name="range"), x(3, dtype=i64, name="label"))
    yield rp.RangeMax(x(2, 2, 3, 4), x(2, 3, 2, dtype=i64, name="range"), axis=3)
    yield rp.NonEmpty(x(2, 3, 2, 3), x(2, 2, 2, dtype=i64, name="label"), x(2, 3, 2, dtype=i64, name="label"))
    yield rp.RoiItems(x(3, 5))
    yield rp.MaxRoiPool(x(2, 2, 6, 5), x(3, 5, name="positive"), bins=(2, 3))
    yield de.DeformPlaces(x(2, 16, 3, 2), groups=2, window=(2, 2), stride=(1, 2), pads=(1, 0), dilation=(1, 1))
    yield de.DeformConv(x(1, 2, 4, 4), x(5, 2, 2, 2), x(1, 8, 3, 3), x(5))
    yield de.DeformConv(
        *(x(1, 4, 4, 5), x(2, 2, 2, 3), x(1, 24, 4, 2), x(2), x(1, 12, 4, 2)),
        stride=(1, 2),
        pads=(1, 0, 0, 1),
        group=2,
        offset_group=2,
    )


def random() -> Iterator[Op]:
    seed, step = Input("seed", Type(i64, ())), Input("step", Type(i64, ()))
    yield ra.RandomUniform(seed, Type(f32, (2, 3, 4)), step, stream=1)
    yield ra.RandomUniform(seed, Type(f64, (7,)))
    yield ra.RandomNormal(seed, Type(f32, (3, 4)), step)
    yield ra.Dropout(x(3, 4), seed, step, ratio=0.25)
    yield ra.Dropout(x(2, 3, 5), seed, ratio=0.9, stream=3)
    yield ra.Dropout(x(2, 3), seed, ratio=0.0)
    yield ra.DropoutMask(seed, (3, 4), step, ratio=0.25)
    yield ra.DropoutMask(seed, (4,), ratio=0.0)


def losses() -> Iterator[Op]:
    def labels(*shape: int, dtype: DType = i64) -> Input:
        return x(*shape, dtype=dtype, name="label")

    yield ls.LabelMask(labels(2, 3), classes=4)
    yield ls.LabelMask(labels(2, 3, dtype=u8), classes=4, axis=2, ignore_index=1)
    yield ls.PickLabel(x(3, 4), labels(3))
    yield ls.PickLabel(x(2, 3, 4), labels(2, 3, dtype=i32), axis=-1, ignore_index=2)
    for s in (0.0, 0.1):
        yield ls.LabelCrossEntropy(x(2, 4, 3), labels(2, 3), ignore_index=1, label_smoothing=s)
        yield ls.LabelCrossEntropy(x(2, 3, 4), labels(2, 3), axis=2, label_smoothing=s)
        yield ls.CrossEntropy(x(5, 4), labels(5), ignore_index=3, label_smoothing=s)
        yield ls.CrossEntropy(x(5, 4), labels(5), x(4, name="positive"), ignore_index=3, label_smoothing=s)
        yield ls.CrossEntropy(x(3, 4), x(3, 4, name="positive"), x(4, name="positive"), label_smoothing=s)
    yield ls.TargetCrossEntropy(x(2, 3, 4), x(2, 3, 4, name="positive"))
    yield ls.CrossEntropy(x(2, 4, 3), labels(2, 3), reduction="none")
    yield ls.CrossEntropy(x(2, 3, 4), labels(2, 3, dtype=i32), x(4, name="positive"), axis=-1, reduction="sum")
    yield ls.NegativeLogLikelihood(x(4, 4), labels(4))
    yield ls.NegativeLogLikelihood(x(2, 4, 3), labels(2, 3), x(4, name="positive"), ignore_index=0)
    yield ls.NegativeLogLikelihood(x(2, 4, 3), labels(2, 3), reduction="none")
    for difference in (ls.MeanSquaredError, ls.MeanAbsoluteError, ls.Huber, ls.BinaryCrossEntropyWithLogits):
        yield difference(x(2, 3, 4), x(2, 3, 4))
        yield difference(x(5), x(5), reduction="none")
    for back in (False, True):
        yield ls.CtcStep(x(2, 1, 5), x(2, 1, 5, dtype=bool_), back=back)
    yield ls.CtcStep(x(3, 1, 1), x(3, 1, 1, dtype=bool_))
    yield ls.CtcRows(x(2, 3, 4), labels(2, 2))
    yield ls.Ctc(x(3, 2, 4), labels(3, 1, dtype=i32), blank=3, zero_infinity=True)
    yield ls.Huber(x(3, 4), x(3, 4), delta=0.5, reduction="sum")
    yield ls.BinaryCrossEntropyWithLogits(x(3, 4), x(3, 4, name="positive"), x(4, name="positive"), reduction="sum")


def feed(op: Op, seed: int = 0) -> dict[str, Any]:
    """Values that the op can take, by its inputs' names."""
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for i in toposort((op,)):
        if not isinstance(i, Input):
            continue
        word, kind = i.name.rstrip("0123456789"), i.dtype.numpy
        if word == "index":
            value = rng.integers(-3, 3, i.shape)
        elif word == "label":
            value = rng.integers(0, 4, i.shape)
        elif word == "range":
            value = rng.integers(0, 2, i.shape) + np.array([0, 2])
        elif word == "tap":
            value = rng.integers(0, 7, i.shape)
        elif word == "permutation":
            columns = [rng.permutation(4)[: i.shape[0]] for _ in range(i.shape[1])]
            value = np.stack(columns, 1) if columns else np.zeros(i.shape)
        elif word == "places":
            value = rng.permutation(i.shape[0])
        elif i.dtype is bool_:
            value = rng.integers(0, 2, i.shape)
        elif word == "unit":
            value = rng.uniform(-0.9, 0.9, i.shape)
        elif word in ("positive", "above"):
            value = rng.uniform(1, 4, i.shape)
        else:
            value = rng.standard_normal(i.shape) * (1 if i.dtype.is_float else 10)
        out[i.name] = np.asarray(value).astype(kind)
    return out
