"""Optimizers against torch.optim (and LAMB against the paper's lines), and the texts of their specs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
import torch

from dlc import DlcError
from dlc.base.diagnostics import ExitCode, render
from dlc.base.types import Array, DType, Type, f16, f32, f64, i64
from dlc.graph import Graph, Input, Op, evaluate, evaluate_ops, make_graph
from dlc.ops.pointwise import scalar
from dlc.spec import Configurable
from dlc.training.step.adam import Adam
from dlc.training.step.optimizers import OPTIMIZERS, Optimizer, RmsProp, Sgd, parse_optimizer
from tests.training.torch_optimizers import KINDS, Kind, torch_options

STEPS = 20
SHAPES = ((7, 3), (5,), ())
CHOICES: dict[str, dict[str, tuple[str, ...]]] = {
    "sgd": {"momentum": ("", "0.9"), "dampening": ("", "0.3"), "nesterov": ("", "yes"), "weight-decay": ("", "0.1")},
    "adam": {"betas": ("", "0.5,0.9", "0,0"), "weight-decay": ("", "0.1"), "amsgrad": ("", "yes")},
    "adamw": {"betas": ("", "0.4,0.99"), "weight-decay": ("", "0", "0.2"), "amsgrad": ("", "yes")},
    "adagrad": {"lr-decay": ("", "0.2"), "weight-decay": ("", "0.1"), "initial": ("", "0.5")},
    "rmsprop": {"alpha": ("", "0.3"), "momentum": ("", "0.8"), "centered": ("", "yes"), "weight-decay": ("", "0.1")},
}
"""Option → values, "" for the default; all combinations are tested that torch accepts, with lr and eps in turn."""
PLAIN: tuple[dict[str, str], ...] = (
    {},
    {"lr": "0.05"},
    {"eps": "0.001"},
    {"lr": "0.05", "eps": "0.001"},
    {"lr": "0.05"},
)


@dataclass
class Run:
    """A weight that an optimizer moves, step by step, in the graph interpreter."""

    optimizer: Optimizer
    weight: Array
    dtype: DType

    def __post_init__(self) -> None:
        of = Type(self.dtype, self.weight.shape)
        kept = self.optimizer.state(of)
        self.state = {name: np.full(t.shape, start, t.dtype.numpy) for name, (t, start) in kept.items()}
        self.step = 0
        work = f64 if self.dtype == f64 else f32
        w, g, step = Input("w", of, "weight"), Input("g", of), Input("step", Type(i64, ()), "state")
        state = {name: Input(f"state.{name}", t, "state") for name, (t, _) in kept.items()}
        new, after = self.optimizer.update(w, g, cast("dict[str, Op]", state), step, self.optimizer.rate(step, work))
        assert new.type == of
        assert {name: op.type for name, op in after.items()} == {name: t for name, (t, _) in kept.items()}
        outputs = {"w": new, **{f"state.{name}": op for name, op in after.items()}}
        self.graph: Graph = make_graph((w, g, step, *state.values()), outputs)

    def feed(self, gradient: Array) -> None:
        """One step with this gradient."""
        self.step += 1
        kept = {f"state.{name}": value for name, value in self.state.items()}
        got = evaluate(self.graph, {"w": self.weight, "g": gradient, "step": np.asarray(self.step), **kept})
        self.weight = got["w"]
        self.state = {name: got[f"state.{name}"] for name in self.state}


def combinations(name: str) -> Iterator[str]:
    """Spec texts of all combinations of the optimizer's options that torch accepts."""
    options = CHOICES[name]
    plain = itertools.cycle(PLAIN)
    for values in itertools.product(*options.values()):
        chosen = {key: value for key, value in zip(options, values, strict=True) if value}
        if "nesterov" in chosen and ("momentum" not in chosen or "dampening" in chosen):
            continue
        chosen |= {key: value for key, value in next(plain).items() if key != "eps" or name != "sgd"}
        yield f"{name}{{{' '.join(f'{k}={v}' for k, v in chosen.items())}}}" if chosen else name


def gradients(shape: tuple[int, ...], dtype: DType, steps: int = STEPS) -> list[Array]:
    """The same random gradients for both, from large to tiny."""
    random = np.random.default_rng(11)
    return [(random.standard_normal(shape) * 10.0 ** -(k % 4)).astype(dtype.numpy) for k in range(steps)]


def start(shape: tuple[int, ...], dtype: DType) -> Array:
    return np.asarray(np.random.default_rng(5).standard_normal(shape), dtype.numpy)


def torch_trace(kind: Kind, options: dict[str, Any], weight: Array, given: list[Array]) -> list[Array]:
    """The weight after each step."""
    parameter = torch.nn.Parameter(torch.tensor(weight))
    optimizer = kind([parameter], foreach=False, **options)
    trace: list[Array] = []
    for gradient in given:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        trace.append(parameter.detach().numpy().copy())
    return trace


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize(("dtype", "most"), [(f64, 1e-13), (f32, 1e-5)], ids=["f64", "f32"])
def test_every_combination_of_options_moves_as_torch_does(name: str, dtype: DType, most: float) -> None:
    for k, text in enumerate(combinations(name)):
        shape = SHAPES[k % len(SHAPES)]
        given, weight = gradients(shape, dtype), start(shape, dtype)
        run = Run(parse_optimizer(text), weight, dtype)
        for gradient, want in zip(given, torch_trace(KINDS[name], torch_options(text), weight, given), strict=True):
            run.feed(gradient)
            error = np.abs(run.weight - want).max() / max(np.abs(want).max(), np.abs(weight).max())
            assert error <= most, f"{text}, {dtype}[{shape}], step {run.step}: {error:.2g}"


@pytest.mark.parametrize("name", CHOICES)
def test_defaults_are_those_of_torch(name: str) -> None:
    found = OPTIMIZERS[name]()
    defaults = KINDS[name]([torch.nn.Parameter(torch.zeros(1))]).defaults
    for option in found.options_doc():
        if option.key not in ("schedule", "initial"):
            field = option.key.replace("-", "_")
            assert getattr(found, field) == defaults[field], option.key
    assert set(CHOICES[name]) <= {o.key for o in found.options_doc()}


def test_a_network_learns_the_same(steps: int = STEPS) -> None:
    """Gradients of tanh(x·w)·v against targets, computed from each one's own weights."""
    random = np.random.default_rng(3)
    x, y, v = random.standard_normal((16, 4)), random.standard_normal((16, 2)), random.standard_normal((5, 2))

    def gradient(w: Array) -> Array:
        h = np.tanh(x @ w)
        return x.T @ (((h @ v - y) @ v.T) * (1 - h * h)) / 16

    for name, kind in KINDS.items():
        weight = start((4, 5), f64)
        run = Run(parse_optimizer(f"{name}{{lr=0.05}}"), weight, f64)
        parameter = torch.nn.Parameter(torch.tensor(weight))
        optimizer = kind([parameter], lr=0.05)
        for _ in range(steps):
            run.feed(gradient(run.weight))
            parameter.grad = torch.tensor(gradient(parameter.detach().numpy()))
            optimizer.step()
        np.testing.assert_allclose(run.weight, parameter.detach().numpy(), rtol=1e-10, atol=1e-12, err_msg=name)
        assert np.abs(run.weight - weight).max() > 0.01, name


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "most"), [(f64, 1e-12), (f32, 1e-5)], ids=["f64", "f32"])
def test_lamb_is_the_algorithm_of_the_paper(shape: tuple[int, ...], dtype: DType, most: float) -> None:
    for text in ("lamb", "lamb{lr=0.02 betas=0.5,0.9 eps=0.001 weight-decay=0}", "lamb{lr=0.02 weight-decay=0.3}"):
        for weight in (start(shape, dtype), np.zeros(shape, dtype.numpy)):
            given = gradients(shape, dtype)
            run = Run(parse_optimizer(text), weight, dtype)
            for gradient in given:
                run.feed(gradient)
            precise = weight.astype(np.float64), [g.astype(np.float64) for g in given]
            want = torch_trace(KINDS["lamb"], torch_options(text), *precise)[-1]
            assert np.abs(run.weight - want).max() <= most * np.abs(want).max(), text


@pytest.mark.parametrize("text", ["lamb", "lamb{weight-decay=0}"])
def test_lamb_leaves_a_weight_without_gradient_and_value_alone(text: str) -> None:
    run = Run(parse_optimizer(text), np.zeros(4, np.float32), f32)
    run.feed(np.zeros(4, np.float32))
    assert (run.weight == 0).all()


@pytest.mark.parametrize("beta", [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999])
def test_bias_corrections_are_accurate_in_single_precision(beta: float) -> None:
    step = Input("step", Type(i64, ()))
    first, second = Adam(betas=(beta, 0.0)).corrections(step, f32)
    for t in (*range(1, 101), 1000, 100_000, 2**40):
        got, one = (float(v) for v in evaluate_ops((first, second), {step: np.asarray(t)}))
        want = -np.expm1(t * np.log(beta))
        assert abs(got - want) <= 5e-7 * want, f"step {t}"
        assert one == 1.0


def test_a_hundred_steps_of_adam_stay_with_torch() -> None:
    given, weight = gradients((31,), f32, 100), np.full(31, 3.0, np.float32)
    run = Run(Adam(), weight, f32)
    for gradient, want in zip(given, torch_trace(torch.optim.Adam, {}, weight, given), strict=True):
        run.feed(gradient)
        assert np.abs(run.weight / want - 1).max() <= 1e-6, f"step {run.step}"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_narrow_weights_are_updated_in_single_precision(name: str) -> None:
    weight = start((6,), f16)
    narrow, wide = (Run(OPTIMIZERS[name](), weight.astype(t.numpy), t) for t in (f16, f32))
    gradient = gradients((6,), f16)[0]
    narrow.feed(gradient)
    wide.feed(gradient.astype(np.float32))
    assert (narrow.weight == wide.weight.astype(np.float16)).all()
    assert all((narrow.state[n] == wide.state[n]).all() for n in wide.state)


def test_a_rate_from_outside_is_used_as_it_is() -> None:
    w, g, rate = (Input(n, Type(f32, s)) for n, s in (("w", (3,)), ("g", (3,)), ("rate", ())))
    new, state = Sgd(lr=7.0).update(w, g, {}, scalar(1, i64), rate)
    values: dict[Op, Array] = {
        w: np.ones(3, np.float32),
        g: np.full(3, 2, np.float32),
        rate: np.asarray(0.25, np.float32),
    }
    assert evaluate_ops((new,), values)[0].tolist() == [0.5, 0.5, 0.5]
    assert not state


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_specs_convert_both_ways_and_document_their_options(name: str) -> None:
    default = parse_optimizer(name)
    assert isinstance(default, Configurable)
    assert parse_optimizer(str(default)) == default
    assert all(o.doc and not o.doc.endswith(".") for o in default.options_doc())
    assert parse_optimizer(f"{name}{{schedule=warmup{{steps=9 then=cosine{{steps=7}}}}}}").schedule.name == "warmup"


def test_errors_point_into_the_spec(golden: Callable[[str, str], None]) -> None:
    texts = (
        *("adm{lr=1}", "lion", "adam{lr=fast}", "adam{weight_decay=0.1}", "sgd{momentum=-0.5}", "sgd{nesterov=yes}"),
        *("adam{betas=0.9}", "adam{betas=0.9,1}", "rmsprop{alpha=1.5}", "adam{schedule=cosin{steps=10}}"),
        *("adam{schedule=step{every=0}}", "adam{schedule=warmup{then=warmup{}}}", "adam{lr=1", "sgd,adam"),
    )
    message: list[str] = []
    for text in texts:
        with pytest.raises(DlcError) as caught:
            parse_optimizer(text)
        assert caught.value.exit_code == ExitCode.USAGE
        message += [render(d) for d in caught.value.diagnostics]
    golden("optimizer_errors.txt", "\n\n".join(message))


def test_torch_and_dlc_refuse_the_same() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    refused: list[tuple[str, Kind, dict[str, Any]]] = [
        ("sgd{nesterov=yes}", torch.optim.SGD, {"nesterov": True}),
        ("sgd{momentum=-1}", torch.optim.SGD, {"momentum": -1}),
        ("adam{betas=1,0.9}", torch.optim.Adam, {"betas": (1.0, 0.9)}),
        ("adam{betas=0.9,1}", torch.optim.Adam, {"betas": (0.9, 1.0)}),
        ("adagrad{eps=-1}", torch.optim.Adagrad, {"eps": -1.0}),
        ("rmsprop{lr=-1}", torch.optim.RMSprop, {"lr": -1.0}),
    ]
    for text, kind, options in refused:
        with pytest.raises(DlcError):
            parse_optimizer(text)
        with pytest.raises(ValueError, match=r"nvalid|esterov"):
            kind([parameter], **options)
    assert RmsProp().state(Type(f32, (2,))) == {"square": (Type(f32, (2,)), 0.0)}
