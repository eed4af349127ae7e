"""A training program of a few lines of NumPy: scores = x · w + b. What trains programs is tested with it."""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import numpy as np

from dlc.api.program import Port, Signature
from dlc.api.training import Classes
from dlc.base.diagnostics import Diagnostic, error
from dlc.base.types import DTYPES, Array, Type
from dlc.training.step.losses import parse_loss


class Linear:
    """Classes by cross-entropy, or numbers by the squared error; SGD with momentum, in 32 bits.

    The loss is computed by dlc's ops on NumPy arrays, the gradient by hand.
    """

    def __init__(
        self,
        batch: int = 4,
        shape: tuple[int, ...] = (1, 2),
        classes: int = 3,
        loss: str = "cross-entropy",
        lr: float = 0.1,
        accumulate: int = 1,
        dtype: str = "f32",
    ) -> None:
        kind = parse_loss(loss)
        self._kind, self._lr, self._accumulate, self._batch = kind, lr, accumulate, batch
        self._is_classes = kind.name == "cross-entropy"
        ignore = getattr(kind, "ignore", None)
        self.classes = Classes(classes, ignore) if self._is_classes else None
        x = Port("x", Type(DTYPES[dtype], (batch, *shape)))
        out = Port("scores", Type(DTYPES["f32"], (batch, classes)))
        of = Type(DTYPES["i64"], (batch,)) if self._is_classes else out.type
        y = Port("y", of, self.classes.allowed if self.classes else None)
        self.signature = Signature((x,), (out,))
        self.arguments = (x, y)
        self.facts: Mapping[str, int | str] = {"loss": loss, "optimizer": "sgd", "accumulate": accumulate}
        rows = int(np.prod(shape))
        self._parameters = {"w": np.zeros((rows, classes), np.float32), "b": np.zeros(classes, np.float32)}
        self._state = {f"{k}.v": np.zeros_like(v) for k, v in self._parameters.items()} | {
            "step": np.zeros((), np.int64)
        }
        self._gradients = {k: np.zeros_like(v) for k, v in self._parameters.items()}
        self.fails_at = 0
        """Step whose loss is not finite."""
        self.on_step: Callable[[], None] = lambda: None
        self._hook: Callable[[Array], None] | None = None
        self.steps_seen: list[int] = []
        """The number of the step that gradients were computed with, of every step."""
        self.reset()

    def reset(self) -> None:
        generator = np.random.default_rng(7)
        for v in self._parameters.values():
            v[...] = generator.standard_normal(v.shape) * 0.1
        for v in self._state.values():
            v[...] = 0

    def _scores(self, x: Array) -> Array:
        flat = x.reshape(len(x), -1).astype(np.float32)
        return flat @ self._parameters["w"] + self._parameters["b"]

    def _checked(self, inputs: Mapping[str, object]) -> tuple[Array, Array]:
        for port in self.arguments:
            array = cast("Array", inputs[port.name])
            assert (array.dtype, array.shape) == (port.type.dtype.numpy, port.type.shape)
            assert array.flags.c_contiguous
        return inputs["x"], inputs["y"]  # pyright: ignore[reportReturnType]

    def _loss(self, scores: Array, y: Array) -> float:
        from dlc.graph import Input, evaluate, make_graph

        inputs = [Input("p", self.signature.outputs[0].type), Input("y", self.arguments[1].type)]
        graph = make_graph(inputs, {"loss": self._kind.value(*inputs)})
        return float(evaluate(graph, {"p": scores, "y": y})["loss"])

    def train_step(self, *args: object, **inputs: object) -> float:
        assert not args
        x, y = self._checked(inputs)
        step = int(self._state["step"]) + 1
        scores = self._scores(x)
        loss = self._loss(scores, y)
        self.steps_seen.append(step - 1)
        if step == self.fails_at:
            raise error("not-finite", "the loss is nan")
        if self._is_classes:
            d = np.exp(scores - scores.max(1, keepdims=True))
            d /= d.sum(1, keepdims=True)
            d[np.arange(len(y)), y] -= 1
        else:
            d = 2 * (scores - y)
        counts = np.ones(len(y), bool)
        if self.classes and self.classes.ignore is not None:
            counts = y != self.classes.ignore
            d[~counts] = 0
        d /= np.float32(counts.sum())
        if (step - 1) % self._accumulate == 0:
            for g in self._gradients.values():
                g[...] = 0
        self._gradients["w"] += x.reshape(len(x), -1).astype(np.float32).T @ d
        self._gradients["b"] += d.sum(0)
        self._state["step"][...] = step
        if step % self._accumulate == 0:
            self._reduce()
            if not all(np.isfinite(g).all() for g in self._gradients.values()):
                raise error("not-finite", "a gradient is nan")
            for name, w in self._parameters.items():
                v = self._state[f"{name}.v"]
                v[...] = np.float32(0.9) * v + self._gradients[name] / np.float32(self._accumulate)
                w -= np.float32(self._lr) * v
        self.on_step()
        return loss

    def evaluate(self, *args: object, **inputs: object) -> dict[str, Array]:
        assert not args
        x, y = self._checked(inputs)
        scores = self._scores(x)
        return {"loss": np.float32(self._loss(scores, y)), "scores": scores}  # pyright: ignore[reportReturnType]

    def __call__(self, *, out: Mapping[str, object] | None = None, **inputs: object) -> dict[str, Array]:
        assert out is None
        return {"scores": self._scores(np.asarray(inputs["x"]))}

    def parameters(self) -> dict[str, Array]:
        return self._parameters

    def state(self) -> dict[str, Array]:
        return self._state

    def gradients(self) -> dict[str, Array]:
        return self._gradients

    def notes(self) -> tuple[Diagnostic, ...]:
        return ()

    def all_reduce(self, hook: Callable[[Array], None] | None) -> None:
        self._hook = hook

    def _reduce(self) -> None:
        if self._hook is None:
            return
        flat = np.concatenate([g.reshape(-1) for g in self._gradients.values()])
        self._hook(flat)
        at = 0
        for g in self._gradients.values():
            g[...] = flat[at : at + g.size].reshape(g.shape)
            at += g.size

    def checkpoint(self) -> bytes:
        held = [*self._parameters.values(), *self._state.values(), *self._gradients.values()]
        return b"linear" + struct.pack("<q", self._parameters["w"].size) + b"".join(v.tobytes() for v in held)

    def restore(self, checkpoint: bytes) -> None:
        held = [*self._parameters.values(), *self._state.values(), *self._gradients.values()]
        head = b"linear" + struct.pack("<q", self._parameters["w"].size)
        if not checkpoint.startswith(head) or len(checkpoint) != len(head) + sum(v.nbytes for v in held):
            raise error("bad-checkpoint", "it is of another program")
        at = len(head)
        for v in held:
            v[...] = np.frombuffer(checkpoint, v.dtype, v.size, at).reshape(v.shape)
            at += v.nbytes

    def save_onnx(self, path: Path | str) -> None:
        Path(path).write_bytes(b"".join(v.tobytes() for v in self._parameters.values()))


def blobs(rows: int, shape: tuple[int, ...] = (1, 2), classes: int = 3, seed: int = 0) -> dict[str, Array]:
    """Points around one centre for each class, and their classes."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, classes, rows)
    centres = np.random.default_rng(99).standard_normal((classes, *shape)) * 3
    return {"x": (centres[y] + generator.standard_normal((rows, *shape))).astype(np.float32), "y": y}


def save(path: Path | str, **arrays: Array) -> None:
    """An .npz."""
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
