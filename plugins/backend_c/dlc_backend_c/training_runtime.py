"""`TrainingModel`: a training program called with arrays; its memory is numpy's, seen by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dlc import Port, Signature
from dlc.api.training import Classes
from dlc.base.diagnostics import Diagnostic
from dlc.base.types import DTYPES, Array, Type
from dlc.files.writing import write_whole
from dlc.runtime.manifest import port_of_json
from dlc.training.step.refusals import no_gradients, no_template, not_finite
from dlc_backend_c.library import Library, aligned, succeed
from dlc_backend_c.training_errors import bad_checkpoint, mixed_gradients, no_checkpoint

_NOT_FINITE, _CHECKPOINT = 5, 6
"""What the functions return."""
_GRADIENT = ".gradient"


@dataclass
class _Hook:
    """What is called with all gradients, and how that ended."""

    call: Callable[[Array], None]
    callback: Any = None
    """For C."""
    failure: BaseException | None = None


@dataclass(frozen=True, eq=False)
class TrainingModel:
    """A compiled model that learns; see `dlc.api.training_program.TrainingProgram`."""

    signature: Signature
    """Of a prediction."""
    facts: Mapping[str, int | str]
    classes: Classes | None
    _library: Library = field(repr=False)
    _step: Signature = field(repr=False)
    _evaluate: Signature = field(repr=False)
    _regions: Mapping[str, Array] = field(repr=False)
    """Bytes, aligned."""
    _hooks: list[_Hook] = field(default_factory=list[_Hook], repr=False)
    """The one that is set, if any."""
    _own: threading.local = field(default_factory=threading.local, repr=False)

    @classmethod
    def of(cls, library: Library) -> TrainingModel:
        """The program of a library, with the values that it was built with."""
        training = library.manifest["training"]
        functions, found = training["functions"], training["classes"]
        step = functions["gradients" if "gradients" in functions else "step"]
        classes = Classes(int(found["count"]), found["ignore"]) if found else None
        regions = {name: aligned(int(region["bytes"])) for name, region in training["regions"].items()}
        memory = {k: v for k, v in library.manifest["memory"].items() if k.endswith("_bytes")}
        facts = {**training["facts"], "accumulate": int(training["accumulate"]), **memory}
        signatures = _signature(step), _signature(functions["evaluate"])
        model = cls(library.signature, facts, classes, library, *signatures, regions)
        for region in regions:
            model._views(region)
        model.reset()
        return model

    @property
    def arguments(self) -> tuple[Port, ...]:
        """What a step takes: the model's inputs, then the labels."""
        return self._step.inputs

    def __call__(self, *args: object, out: Mapping[str, object] | None = None, **inputs: object) -> dict[str, Array]:
        """The model's outputs by name, with the parameters as they are; arguments as of any program."""
        code, _, written = self._call("predict", self.signature, args, out, inputs)
        succeed(code)
        return _named(self.signature, written)

    def train_step(self, *args: object, **inputs: object) -> float:
        """One step on one batch; its loss, before the weights moved.

        An exception that the hook of `all_reduce` raises comes out here; no weight has changed then.
        """
        hook = self._hooks[0] if self._hooks else None
        self._memory().all_reduce = self._library.ffi.NULL if hook is None else hook.callback
        code, _, written = self._call("train_step", self._step, args, None, inputs)
        loss = float(_named(self._step, written)["loss"])
        if hook is not None and hook.failure is not None:
            failure, hook.failure = hook.failure, None
            raise failure
        self._check(code, loss)
        return loss

    def notes(self) -> tuple[Diagnostic, ...]:
        """None: gradients that are not finite are errors of the step."""
        return ()

    def evaluate(self, *args: object, **inputs: object) -> dict[str, Array]:
        """`loss`, which may be infinite or NaN, and the model's outputs on one batch, as at inference."""
        code, _, written = self._call("evaluate", self._evaluate, args, None, inputs)
        self._check(code, 0.0)
        return _named(self._evaluate, written)

    def parameters(self) -> dict[str, Array]:
        """Weights and running statistics by name: views of the program's own memory; to write is to set."""
        return self._views("parameters")

    def state(self) -> dict[str, Array]:
        """The optimizer's state and `step`, by name: views."""
        return self._views("state")

    def gradients(self) -> dict[str, Array]:
        """The last gradients by name of their weight: views; none where updates are immediate."""
        return {name.removesuffix(_GRADIENT): view for name, view in self._views("gradients").items()}

    def reset(self) -> None:
        """Start again from the values that the program was built with."""
        succeed(self._library.function("init")(self._memory()))

    def all_reduce(self, hook: Callable[[Array], None] | None) -> None:
        """Have `hook` called with all gradients as one flat array, in place, between backward and update.

        Elements between two tensors belong to none of them.

        Raises:
            DlcError: updates are immediate, or gradients have several types.
        """
        self._hooks.clear()
        if hook is None:
            return
        if not self._views("gradients"):
            raise no_gradients()
        types = {view.dtype for view in self._views("gradients").values()}
        if len(types) > 1:
            raise mixed_gradients(types)
        flat = self._regions["gradients"].view(types.pop())
        found = _Hook(hook)

        def call(gradients: Any, size: int, user: Any) -> None:
            del gradients, size, user
            try:
                found.call(flat)
            except BaseException as problem:  # noqa: BLE001 - nothing passes through C; it is raised behind the call
                found.failure = problem
                flat[:] = np.nan  # nothing is updated from these

        found.callback = self._library.ffi.callback("void(void *, size_t, void *)", call)
        self._hooks.append(found)

    def checkpoint(self) -> bytes:
        """Parameters and state, with sums of gradients where several steps make an update."""
        content = bytearray(int(self.facts["checkpoint_bytes"]))
        succeed(self._library.function("save")(self._memory(), self._library.ffi.from_buffer(content)))
        return bytes(content)

    def restore(self, checkpoint: bytes) -> None:
        """What `checkpoint` gave; raises DlcError (`bad-checkpoint`) for anything else, and then nothing changes."""
        try:
            given = memoryview(checkpoint).cast("B")
        except TypeError:  # no bytes, or some with gaps between them
            raise no_checkpoint(type(checkpoint).__name__) from None
        code = self._library.function("load")(self._memory(), self._library.ffi.from_buffer(given), len(given))
        if code == _CHECKPOINT:
            raise bad_checkpoint(bytes(given), self.checkpoint())
        succeed(code)

    def save_onnx(self, path: Path | str) -> None:
        """Write the model with the parameters as they are now, in the format it came in; raises DlcError."""
        from dlc.runtime.export import filled

        name = str(self._library.manifest["training"]["template"])
        if not name:
            raise no_template()
        template = self._library.file(name)
        write_whole(Path(path), filled(Path(name).suffix, template, self.parameters()))

    def _call(
        self,
        name: str,
        signature: Signature,
        args: tuple[object, ...],
        out: Mapping[str, object] | None,
        inputs: Mapping[str, object],
    ) -> tuple[int, list[Array], list[Array]]:
        function, memory = self._library.function(f"{name}_run"), self._memory()
        return self._library.call(lambda i, o, _: function(memory, i, o), signature, args, out, inputs)

    def _check(self, code: int, loss: float) -> None:
        if code == _NOT_FINITE:
            raise not_finite(loss, updates=str(self.facts.get("updates", "")))
        succeed(code)

    def _memory(self) -> Any:
        """This thread's struct: the regions of all, an arena of its own."""
        memory = getattr(self._own, "memory", None)
        if memory is None:
            size = int(self.facts["arena_bytes"])
            arena = self._own.arena = aligned(size) if size else None
            pointers = {name: self._library.pointer(r if r.size else None) for name, r in self._regions.items()}
            memory = self._library.ffi.new("training *", {**pointers, "arena": self._library.pointer(arena)})
            self._own.memory = memory
        return memory

    def _views(self, region: str) -> dict[str, Array]:
        tensors = self._library.manifest["training"]["regions"][region]["tensors"]
        memory = self._regions[region]
        found: dict[str, Array] = {}
        for t in tensors:
            of, start = _type(t), int(t["offset"])
            found[str(t["name"])] = memory[start : start + of.nbytes].view(of.dtype.numpy).reshape(of.shape)
        return found


def _type(tensor: Mapping[str, Any]) -> Type:
    return Type(DTYPES[tensor["dtype"]], tuple(int(n) for n in tensor["shape"]))


def _signature(signature: Mapping[str, Any]) -> Signature:
    inputs, outputs = (tuple(map(port_of_json, signature[key])) for key in ("inputs", "outputs"))
    return Signature(inputs, outputs)


def _named(signature: Signature, written: list[Array]) -> dict[str, Array]:
    return dict(zip((p.name for p in signature.outputs), written, strict=True))
