"""Quantised models and models of 16 and 4 bits: what onnxruntime's quantisers and the converters write."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.zoo.entry import HALF, Entry, Feeds, export, quiet
from benchmarks.zoo.text import encoder


def convnet(path: Path, *, opset: int = 17, dtype: str = "float32", new: bool = False) -> Feeds:
    """Convolutions of all kinds, additions, averages, and a dense layer."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # the new exporter folds a norm of bfloat16 into weights of float32, which is no valid model
            norm = nn.Identity() if dtype == "bfloat16" else nn.BatchNorm2d(16)
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), norm, nn.ReLU6())
            self.deep, self.point = nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Conv2d(16, 16, 1)
            self.gate, self.head = nn.Conv2d(16, 16, 1), nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            a = self.stem(x)
            b = self.point(torch.relu(self.deep(a))) + a
            b = b * torch.sigmoid(self.gate(b.mean((2, 3), keepdim=True)))
            c = torch.cat([nn.functional.max_pool2d(b, 2), nn.functional.avg_pool2d(a, 2)], 1)
            return self.head(c.mean((2, 3)))

    x = torch.randn(2, 3, 24, 24, dtype=getattr(torch, dtype))
    net = Net().to(getattr(torch, dtype))
    if dtype == "bfloat16":
        net.eval()
        export(net, (x,), path, names=("x",), opset=opset, new=new, arrays=False)
        return {"x": x.float().numpy().astype(import_module("ml_dtypes").bfloat16)}
    return export(net, (x,), path, names=("x",), opset=opset, new=new)


def prepared(path: Path) -> None:
    """With shapes, as the quantisers ask for."""
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load(path)), path)


def static(path: Path, *, form: str, activations: str, weights: str, per_channel: bool, what: str) -> Feeds:
    """`quantize_static` over a convnet or an encoder."""
    tools: Any = import_module("onnxruntime.quantization")
    plain = path.with_suffix(".float.onnx")
    feeds = (
        convnet(plain)
        if what == "convnet"
        else encoder(plain, family="Bert", arguments={"intermediate_size": 64}, opset=17, new=False)
    )
    prepared(plain)

    class Reader(tools.CalibrationDataReader):
        def __init__(self) -> None:
            random = np.random.default_rng(1)
            self.rows = iter(
                [
                    feeds,
                    *(
                        {
                            k: v if v.dtype.kind == "i" else random.standard_normal(v.shape, np.float32)
                            for k, v in feeds.items()
                        }
                        for _ in range(3)
                    ),
                ]
            )

        def get_next(self) -> Feeds | None:
            return next(self.rows, None)

    with quiet():
        tools.quantize_static(
            str(plain),
            str(path),
            Reader(),
            quant_format=getattr(tools.QuantFormat, form),
            per_channel=per_channel,
            activation_type=getattr(tools.QuantType, activations),
            weight_type=getattr(tools.QuantType, weights),
        )
    plain.unlink()
    return feeds


def dynamic(path: Path, *, what: str, weights: str) -> Feeds:
    """`quantize_dynamic`."""
    tools: Any = import_module("onnxruntime.quantization")
    plain = path.with_suffix(".float.onnx")
    if what == "lstm":
        from benchmarks.zoo.layers import seq2seq

        feeds = seq2seq(plain, kind="LSTM", opset=14, new=False)
    elif what == "convnet":
        feeds = convnet(plain)
    else:
        feeds = encoder(plain, family="Bert", arguments={"intermediate_size": 64}, opset=17, new=False)
    prepared(plain)
    with quiet():
        tools.quantize_dynamic(str(plain), str(path), weight_type=getattr(tools.QuantType, weights))
    plain.unlink()
    return feeds


def blocks(path: Path, *, form: str) -> Feeds:
    """Weights of 4 bits in blocks of 32, as MatMulNBits or as DequantizeLinear."""
    tools: Any = import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    form_type = import_module("onnxruntime.quantization.quant_utils").QuantFormat
    plain = path.with_suffix(".float.onnx")
    feeds = encoder(plain, family="Bert", arguments={"intermediate_size": 64}, opset=21, new=True)
    with quiet():
        found = tools.MatMulNBitsQuantizer(
            onnx.load(plain), block_size=32, is_symmetric=False, quant_format=form_type[form]
        )
        found.process()
    found.model.save_model_to_file(str(path), False)
    plain.unlink()
    return feeds


def halved(path: Path, *, what: str, keep_io: bool) -> Feeds:
    """`convert_float_to_float16` of onnxconverter-common."""
    convert = import_module("onnxconverter_common.float16").convert_float_to_float16
    feeds = (
        convnet(path)
        if what == "convnet"
        else encoder(path, family="Bert", arguments={"intermediate_size": 64}, opset=17, new=False)
    )
    with quiet():
        onnx.save(convert(onnx.load(path), keep_io_types=keep_io), path)
    return {k: v.astype(np.float16) if v.dtype == np.float32 and not keep_io else v for k, v in feeds.items()}


def entries() -> Iterator[Entry]:
    """All of them."""
    forms = (
        ("qdq-u8s8", "QDQ", "QUInt8", "QInt8", True, "convnet"),
        ("qdq-s8s8", "QDQ", "QInt8", "QInt8", False, "convnet"),
        ("qdq-s16s8", "QDQ", "QInt16", "QInt8", False, "convnet"),
        ("qdq-bert", "QDQ", "QUInt8", "QInt8", True, "bert"),
        ("qdq-u16u8", "QDQ", "QUInt16", "QUInt8", False, "bert"),
        ("qdq-int4", "QDQ", "QUInt8", "QInt4", False, "convnet"),
        ("qoperator-u8u8", "QOperator", "QUInt8", "QUInt8", False, "convnet"),
        ("qoperator-s8s8", "QOperator", "QInt8", "QInt8", True, "convnet"),
        ("qoperator-bert", "QOperator", "QUInt8", "QInt8", False, "bert"),
    )
    for name, form, activations, weights, per_channel, what in forms:
        make = partial(static, form=form, activations=activations, weights=weights, per_channel=per_channel, what=what)
        yield Entry(name, "quantised", make, 2e-2, oracle="plain onnxruntime")
    for what, weights in (("bert", "QInt8"), ("bert", "QUInt8"), ("lstm", "QInt8"), ("convnet", "QUInt8")):
        yield Entry(
            f"dynamic-{what}-{weights.lower()}", "quantised", partial(dynamic, what=what, weights=weights), 2e-2
        )
    yield Entry("int4-nbits", "4 bits", partial(blocks, form="QOperator"), 2e-2)
    yield Entry("int4-qdq", "4 bits", partial(blocks, form="QDQ"), 1e-3)
    for what in ("convnet", "bert"):
        for keep in (False, True):
            yield Entry(
                f"half-{what}{'-io' if keep else ''}", "16 bits", partial(halved, what=what, keep_io=keep), HALF
            )
    yield Entry("half-torch-old", "16 bits", partial(convnet, dtype="float16"), HALF)
    yield Entry("half-torch-new", "16 bits", partial(convnet, dtype="float16", opset=18, new=True), HALF)
    yield Entry(
        "bfloat16-torch-new",
        "16 bits",
        partial(convnet, dtype="bfloat16", opset=22, new=True),
        5e-2,
        oracle="reference",
    )
