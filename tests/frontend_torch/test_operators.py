"""Every rule against PyTorch itself: one call, evaluated by the reference, beside the same call in eager PyTorch."""

# pyright: basic
# PyTorch's own types are partly unknown.

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from dlc_frontend_torch.fx import target_of, type_of
from dlc_frontend_torch.importer import Importer
from dlc_frontend_torch.nodes import Node, Ref
from dlc_frontend_torch.unsupported import Refusals

from dlc.graph import Graph, Input, Op, evaluate

A = torch.ops.aten
T = torch.Tensor


def f(*shape: int) -> T:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


def i(high: int, *shape: int) -> T:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high + sum(shape)))


X, Y, P = f(3, 4), f(3, 4), f(3, 4).abs() + 0.1
IMG, B = f(2, 4, 6, 6), torch.tensor([[True, False, True, True]]).expand(3, 4)
UNARY = [
    "exp",
    "tanh",
    "sigmoid",
    "erf",
    "sin",
    "cos",
    "tan",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "relu",
    "neg",
    "abs",
    "sign",
    "square",
    "floor",
    "ceil",
    "round",
    "silu",
    "mish",
    "hardswish",
    "log_sigmoid",
    "hardsigmoid",
    "selu",
    "relu6",
    "expm1",
    "exp2",
    "gelu",
    "elu",
    "celu",
    "leaky_relu",
    "hardtanh",
    "softplus",
    "isnan",
    "t",
]
POSITIVE = ["log", "sqrt", "rsqrt", "log1p", "log2", "log10", "reciprocal", "acosh"]
BINARY = ["maximum", "minimum", "logical_and", "logical_or", "logical_xor"]
COMPARED = ["eq", "ne", "lt", "le", "gt", "ge"]

CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    **{name: (getattr(A, name).default, (X,), {}) for name in UNARY},
    **{name: (getattr(A, name).default, (P + (1 if name == "acosh" else 0),), {}) for name in POSITIVE},
    **{name: (getattr(A, name).default, (X, Y), {}) for name in BINARY},
    **{name: (getattr(A, name).Tensor, (X, Y.round()), {}) for name in COMPARED},
    "add": (A.add.Tensor, (X, Y), {"alpha": 2}),
    "add of types": (A.add.Tensor, (i(9, 3, 4), X), {}),
    "add of a number": (A.add.Tensor, (i(9, 3, 4), 1.5), {}),
    "rsub": (A.rsub.Scalar, (X, 1), {}),
    "div": (A.div.Tensor, (i(9, 4), i(5, 4) + 1), {}),
    "div floor": (A.div.Tensor_mode, (i(9, 4) - 4, i(5, 4) + 1), {"rounding_mode": "floor"}),
    "div trunc": (A.div.Tensor_mode, (X, P), {"rounding_mode": "trunc"}),
    "remainder": (A.remainder.Scalar, (X, 0.7), {}),
    "fmod": (A.fmod.Scalar, (X, 0.7), {}),
    "pow": (A.pow.Tensor_Scalar, (P, 2.5), {}),
    "pow 3": (A.pow.Tensor_Scalar, (X, 3), {}),
    "pow of 2": (A.pow.Scalar, (2.0, X), {}),
    "where": (A.where.self, (B, X, Y), {}),
    "masked_fill": (A.masked_fill.Scalar, (X, B, -3.0), {}),
    "clamp": (A.clamp.default, (X, -0.5, 0.5), {}),
    "clamp of tensors": (A.clamp.Tensor, (X, Y, None), {}),
    "bitwise": (A.bitwise_and.Tensor, (i(9, 4), i(5, 4)), {}),
    "to": (A._to_copy.default, (X,), {"dtype": torch.float64}),
    "to int": (A._to_copy.default, (X * 3,), {"dtype": torch.int64}),
    "gelu tanh": (A.gelu.default, (X,), {"approximate": "tanh"}),
    "softplus beta": (A.softplus.default, (X, 2.0), {}),
    "glu": (A.glu.default, (X, 1), {}),
    "prelu": (A._prelu_kernel.default, (X, f(1, 4)), {}),
    "lerp": (A.lerp.Scalar, (X, Y, 0.3), {}),
    "addcmul": (A.addcmul.default, (X, Y, P), {"value": 0.5}),
    "full": (A.full.default, ([2, 3], 4), {"dtype": torch.float32}),
    "arange": (A.arange.start_step, (1, 9, 3), {}),
    "arange of floats": (A.arange.default, (2.5,), {}),
    "eye": (A.eye.default, (3,), {}),
    "new_full": (A.new_full.default, (X, [2], 3), {}),
    "view": (A.view.default, (X, [2, -1]), {}),
    "squeeze": (A.squeeze.dims, (f(1, 3, 1), [0, 2]), {}),
    "permute": (A.permute.default, (IMG, [0, -1, 1, 2]), {}),
    "expand": (A.expand.default, (f(3, 1), [2, -1, 4]), {}),
    "repeat": (A.repeat.default, (X, [2, 1, 2]), {}),
    "repeat_interleave": (A.repeat_interleave.self_int, (X, 3, 1), {}),
    "cat": (A.cat.default, ([X, Y, i(3, 3, 4)], -1), {}),
    "stack": (A.stack.default, ([X, Y], 1), {}),
    "split": (A.split.Tensor, (X, 3, 1), {}),
    "split sizes": (A.split_with_sizes.default, (X, [1, 3], 1), {}),
    "chunk": (A.chunk.default, (f(7, 2), 3), {}),
    "unbind": (A.unbind.int, (X, -1), {}),
    "select": (A.select.int, (X, 1, -1), {}),
    "slice": (A.slice.Tensor, (IMG, 2, 1, -1, 2), {}),
    "slice beyond": (A.slice.Tensor, (X, 0, -9, 9223372036854775807), {}),
    "flip": (A.flip.default, (X, [0, 1]), {}),
    "roll": (A.roll.default, (X, [1, -1], [0, 1]), {}),
    "pad": (A.constant_pad_nd.default, (X, [1, -1, 0, 2], 3.0), {}),
    "reflection_pad": (A.reflection_pad2d.default, (IMG, [1, 2, 0, 1]), {}),
    "replication_pad": (A.replication_pad1d.default, (f(2, 3, 4), [2, 1]), {}),
    "pixel_shuffle": (A.pixel_shuffle.default, (IMG, 2), {}),
    "pixel_unshuffle": (A.pixel_unshuffle.default, (IMG, 2), {}),
    "embedding": (A.embedding.default, (X, i(3, 2, 2)), {}),
    "index": (A.index.Tensor, (IMG, [None, i(4, 3), i(6, 3)]), {}),
    "index apart": (A.index.Tensor, (IMG, [i(2, 3), None, i(6, 3)]), {}),
    "index_select": (A.index_select.default, (X, 1, i(4, 3)), {}),
    "gather": (A.gather.default, (X, 1, i(4, 3, 2)), {}),
    "index_put": (A.index_put.default, (X, [i(3, 5)], f(5, 4), True), {}),
    "index_put inside": (
        A.index_put.default,
        (IMG, [None, None, torch.tensor([[1], [4]]), i(6, 3)], f(2, 4, 2, 3), True),
        {},
    ),
    "index_put mask": (A.index_put.default, (X, [X > 0], torch.tensor(2.0)), {}),
    "scatter_add": (A.scatter_add.default, (X, 1, i(4, 3, 4), Y), {}),
    "scatter value": (A.scatter.value, (X, 1, torch.tensor([[0], [1], [3]]), 7.0), {}),
    "tril": (A.tril.default, (f(4, 5), 1), {}),
    "triu": (A.triu.default, (torch.ones(3, 3, dtype=torch.bool),), {}),
    "select_scatter": (A.select_scatter.default, (X, f(3), 1, 2), {}),
    "slice_scatter": (A.slice_scatter.default, (X, f(3, 2), 1, 1, 3), {}),
    "slice_scatter step": (A.slice_scatter.default, (X, f(3, 2), 1, 0, 4, 2), {}),
    "topk": (A.topk.default, (X, 2), {}),
    "sort": (A.sort.default, (X, 1, True), {}),
    "sum": (A.sum.dim_IntList, (X, [1], True), {}),
    "sum of integers": (A.sum.default, (i(9, 3).int(),), {}),
    "mean": (A.mean.dim, (IMG, [-1, -2]), {}),
    "amax": (A.amax.default, (X, [0]), {}),
    "max": (A.max.dim, (X, 1), {}),
    "argmin": (A.argmin.default, (X, 1, True), {}),
    "argmax": (A.argmax.default, (X,), {}),
    "any": (A.any.dim, (X > 1, 1), {}),
    "all": (A.all.default, (X > -9,), {}),
    "var": (A.var.correction, (X, [1]), {"correction": 1}),
    "var_mean": (A.var_mean.correction, (X, [1]), {"correction": 0, "keepdim": True}),
    "std": (A.std.correction, (X, [0]), {}),
    "logsumexp": (A.logsumexp.default, (X, [1]), {}),
    "norm": (A.linalg_vector_norm.default, (X, 2, [1]), {}),
    "norm 3": (A.linalg_vector_norm.default, (X, 3.0, [1]), {}),
    "cumsum": (A.cumsum.default, (X, 1), {}),
    "prod": (A.prod.dim_int, (X, 1), {}),
    "linear": (A.linear.default, (f(2, 3, 4), f(5, 4), f(5)), {}),
    "addmm": (A.addmm.default, (f(5), X, f(4, 5)), {"beta": 0.5, "alpha": 2}),
    "baddbmm": (A.baddbmm.default, (f(2, 3, 5), f(2, 3, 4), f(2, 4, 5)), {}),
    "matmul": (A.matmul.default, (f(2, 3, 4), f(4)), {}),
    "einsum": (A.einsum.default, ("bij,kj->bik", [f(2, 3, 4), f(5, 4)]), {}),
    "convolution": (A.convolution.default, (IMG, f(6, 2, 3, 3), f(6), [2, 1], [1, 0], [1, 2], False, [0, 0], 2), {}),
    "convolution transposed": (A.convolution.default, (IMG, f(4, 2, 3, 3), f(2), [2], [1], [1], True, [1], 1), {}),
    "conv1d same": (A.conv1d.padding, (f(2, 3, 7), f(4, 3, 4), None, [1], "same"), {}),
    "batch_norm": (A.batch_norm.default, (IMG, f(4), f(4), f(4), P[0], False, 0.1, 1e-3, False), {}),
    "batch_norm trained": (
        A._native_batch_norm_legit_functional.default,
        (IMG, f(4), f(4), f(4), P[0], True, 0.1, 1e-3),
        {},
    ),
    "layer_norm": (A.layer_norm.default, (X, [4], f(4), None, 1e-3), {}),
    "native_layer_norm": (A.native_layer_norm.default, (X, [4], f(4), f(4), 1e-3), {}),
    "group_norm": (A.native_group_norm.default, (IMG, f(4), f(4), 2, 4, 36, 2, 1e-3), {}),
    "rms_norm": (A.rms_norm.default, (X, [4], f(4), 1e-3), {}),
    "softmax": (A._softmax.default, (X, 1, False), {}),
    "log_softmax": (A.log_softmax.int, (X, -1), {}),
    "cross_entropy": (A.cross_entropy_loss.default, (X, torch.tensor([1, -100, 3]), None, 1, -100, 0.1), {}),
    "nll_loss": (A.nll_loss_forward.default, (X, torch.tensor([1, -100, 3]), None, 1, -100), {}),
    "mse_loss": (A.mse_loss.default, (X, Y, 2), {}),
    "smooth_l1_loss": (A.smooth_l1_loss.default, (X, Y, 1, 0.5), {}),
    "bce": (A.binary_cross_entropy.default, (torch.sigmoid(X), torch.sigmoid(Y)), {}),
    "bce with logits": (A.binary_cross_entropy_with_logits.default, (X, torch.sigmoid(Y), None, None, 0), {}),
    "attention": (A.scaled_dot_product_attention.default, (f(2, 5, 4), f(2, 5, 4), f(2, 5, 4), None, 0.0, True), {}),
    "attention mask": (A.scaled_dot_product_attention.default, (f(1, 3, 4), f(1, 3, 4), f(1, 3, 4), f(3, 3)), {}),
    "max_pool2d": (A.max_pool2d_with_indices.default, (IMG, [3, 2], [2, 2], [1, 1], [1, 1], True), {}),
    "avg_pool2d": (A.avg_pool2d.default, (IMG, [3, 3], [2, 2], [1, 1], False, False), {}),
    "avg_pool1d": (A.avg_pool1d.default, (f(2, 3, 7), [2]), {}),
    "adaptive": (A._adaptive_avg_pool2d.default, (IMG, [4, 3]), {}),
    "nearest": (A.upsample_nearest2d.default, (IMG, [12, 9]), {}),
    "bilinear": (A.upsample_bilinear2d.default, (IMG, [9, 12], False), {}),
    "bilinear aligned": (A.upsample_bilinear2d.default, (IMG, [9, 12], True), {}),
    "convolution_backward": (
        A.convolution_backward.default,
        (f(2, 6, 3, 4), IMG, f(6, 2, 3, 3), [6], [2, 1], [1, 0], [1, 1], False, [0, 0], 2, [True, True, True]),
        {},
    ),
    "max_pool2d_backward": (
        A.max_pool2d_with_indices_backward.default,
        (f(2, 4, 3, 3), IMG, [2, 2], [2, 2], [0, 0], [1, 1], False, A.max_pool2d_with_indices.default(IMG, [2, 2])[1]),
        {},
    ),
    "avg_pool2d_backward": (
        A.avg_pool2d_backward.default,
        (f(2, 4, 3, 3), IMG, [2, 2], [2, 2], [0, 0], False, True, None),
        {},
    ),
    "adaptive_backward": (A._adaptive_avg_pool2d_backward.default, (f(2, 4, 3, 2), IMG), {}),
    "nearest_backward": (A.upsample_nearest2d_backward.default, (f(2, 4, 12, 12), [12, 12], [2, 4, 6, 6]), {}),
    "bilinear_backward": (A.upsample_bilinear2d_backward.default, (f(2, 4, 9, 12), [9, 12], [2, 4, 6, 6], False), {}),
    "layer_norm_backward": (
        A.native_layer_norm_backward.default,
        (Y, X, [4], *A.native_layer_norm.default(X, [4], f(4), f(4), 1e-3)[1:], f(4), f(4), [True, True, True]),
        {},
    ),
    "group_norm_backward": (
        A.native_group_norm_backward.default,
        (
            f(2, 4, 6, 6),
            IMG,
            *A.native_group_norm.default(IMG, f(4), f(4), 2, 4, 36, 2, 1e-3)[1:],
            f(4),
            2,
            4,
            36,
            2,
            [True] * 3,
        ),
        {},
    ),
    "batch_norm_backward": (
        A.native_batch_norm_backward.default,
        (f(2, 4, 6, 6), IMG, f(4), f(4), P[0], f(4), P[0], False, 1e-3, [True, True, True]),
        {},
    ),
    "softmax_backward": (A._softmax_backward_data.default, (Y, torch.softmax(X, 1), 1, torch.float32), {}),
    "log_softmax_backward": (A._log_softmax_backward_data.default, (Y, torch.log_softmax(X, 1), 1, torch.float32), {}),
    "threshold_backward": (A.threshold_backward.default, (Y, X, 0), {}),
    "gelu_backward": (A.gelu_backward.default, (Y, X), {"approximate": "tanh"}),
    "silu_backward": (A.silu_backward.default, (Y, X), {}),
    "elu_backward": (A.elu_backward.default, (Y, 1.0, 1.0, 1.0, False, X), {}),
    "leaky_relu_backward": (A.leaky_relu_backward.default, (Y, X, 0.1, False), {}),
    "hardtanh_backward": (A.hardtanh_backward.default, (Y, X, -0.5, 0.5), {}),
    "embedding_backward": (A.embedding_dense_backward.default, (f(5, 4), i(3, 5), 3, 1, False), {}),
    "lstm": (
        A.lstm.input,
        (f(3, 2, 4), [f(1, 2, 5), f(1, 2, 5)], [f(20, 4), f(20, 5), f(20), f(20)], True, 1, 0.0, False, False, False),
        {},
    ),
    "gru": (
        A.gru.input,
        (
            f(2, 3, 4),
            f(2, 2, 5),
            [f(15, 4), f(15, 5), f(15, 4) * 0.5, f(15, 5) * 0.5],
            False,
            1,
            0.0,
            False,
            True,
            True,
        ),
        {},
    ),
    "rnn": (
        A.rnn_tanh.input,
        (f(3, 2, 4), f(1, 2, 5), [f(5, 4), f(5, 5), f(5), f(5)], True, 1, 0.0, False, False, False),
        {},
    ),
}


def imported(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
    """The values of one call by the importer, and the feeds of its inputs."""
    values: dict[str, Any] = {}
    feeds: dict[str, Any] = {}

    def plain(arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            name = f"x{len(values)}"
            of = type_of(arg)
            assert of is not None
            values[name], feeds[name] = Input(name, of), arg.numpy()
            return Ref(name)
        if isinstance(arg, (list, tuple)):
            return [plain(a) for a in arg]
        return str(arg).removeprefix("torch.") if isinstance(arg, torch.dtype) else arg

    node = Node(target_of(op), tuple(map(plain, args)), {k: plain(v) for k, v in kwargs.items()}, ("y",), "y")
    importer = Importer(Refusals("test"), values)
    importer.run([node])
    importer.refusals.check()
    return importer.values["y"], feeds


@pytest.mark.parametrize("name", CASES)
def test_rules_compute_what_pytorch_computes(name: str) -> None:
    op, args, kwargs = CASES[name]
    found, feeds = imported(op, args, kwargs)
    expected = op(*args, **kwargs)
    listed = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    results = list(found) if isinstance(found, (list, tuple)) else [found]
    assert len(results) >= len(listed)
    pairs = [(r, e) for r, e in zip(results, listed, strict=False) if isinstance(e, torch.Tensor)]
    assert pairs
    outputs = {f"y{k}": r for k, (r, _) in enumerate(pairs) if isinstance(r, Op)}
    assert len(outputs) == len(pairs)
    graph = Graph(tuple(i for i in _inputs(outputs) if i.name in feeds), tuple(outputs.values()), tuple(outputs))
    values = evaluate(graph, feeds)
    for (_, e), y, value in zip(pairs, graph.outputs, values.values(), strict=True):
        assert type_of(e) == y.type or not e.numel()
        np.testing.assert_allclose(value, e.numpy(), rtol=2e-5, atol=2e-5)


def _inputs(outputs: dict[str, Op]) -> list[Input]:
    return [op for op in Graph((), tuple(outputs.values()), tuple(outputs)).ops if isinstance(op, Input)]


REFUSED: dict[str, Callable[[], Any]] = {
    "bernoulli": lambda: imported(A.bernoulli.default, (P.clamp(max=1),), {}),
    "dropout": lambda: imported(A.native_dropout.default, (X, 0.5, True), {}),
    "no rule": lambda: imported(A.linalg_svd.default, (X,), {}),
    "mask": lambda: imported(A.index.Tensor, (X, [X > 0]), {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused(name: str) -> None:
    from dlc import DlcError

    with pytest.raises(DlcError) as caught:
        REFUSED[name]()
    assert caught.value.diagnostics[0].code == "unsupported-op"
    assert caught.value.diagnostics[0].help
