"""dlc as an `onnx.backend.base.Backend`: models in memory to compiled C, for whatever drives backends in this way.

    import dlc_frontend_onnx.onnx_backend as backend
    backend.prepare(model).run([x, y])
    onnx.backend.test.runner.Runner(backend.DlcBackend, __name__)      ONNX's own tests

A model whose inputs have open dimensions is compiled when it is run, for the shapes that it is given then. So is one in
which the values of small inputs decide shapes or branches that dlc has to know: for these values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from dlc import DlcError, Source
from dlc.base.diagnostics import error
from dlc.driver.program import Compiler

if TYPE_CHECKING:
    from dlc import Program
    from dlc.base.types import Array


@lru_cache(maxsize=1)
def compiler() -> Compiler:
    """What models are compiled with: all installed plugins and the user's cache."""
    return Compiler.open()


_SHAPE_ELEMENTS: Final = 64
"""Of an input whose values may decide shapes."""
_ROWS: Final = frozenset((onnx.TensorProto.BOOL, onnx.TensorProto.INT32, onnx.TensorProto.INT64))
_NUMBERS: Final = _ROWS | {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE}


@dataclass
class DlcRep(BackendRep):
    """A model that is ready to run."""

    model: onnx.ModelProto
    compiler: Compiler
    target: str
    _programs: dict[Any, Program] = field(default_factory=dict[Any, "Program"])

    @property
    def inputs(self) -> Sequence[onnx.ValueInfoProto]:
        """Inputs that have no initializer."""
        stored = {t.name for t in self.model.graph.initializer}
        return [i for i in self.model.graph.input if i.name not in stored]

    @property
    def fixed(self) -> bool:
        """Whether the model states the shapes of all inputs, or has inputs that are no tensors: what is wrong with
        these is reported before anything runs."""
        if any(i.type.WhichOneof("value") != "tensor_type" for i in self.inputs):
            return True
        shapes = [i.type.tensor_type.shape for i in self.inputs]
        known = all(i.type.tensor_type.HasField("shape") for i in self.inputs)
        return known and all(d.HasField("dim_value") for shape in shapes for d in shape.dim)

    @property
    def deciding(self) -> tuple[str, ...]:
        """Inputs whose values may decide shapes: numbers, and rows of integers or truth values."""
        kinds = ((i.name, i.type.tensor_type) for i in self.inputs if i.type.WhichOneof("value") == "tensor_type")
        types = {0: _NUMBERS, 1: _ROWS}
        return tuple(name for name, of in kinds if of.elem_type in types.get(len(of.shape.dim), ()))

    def program_for(self, given: Mapping[str, Array]) -> Program:
        """The program for inputs of these shapes; where dlc cannot build it, one for the values that may decide shapes.

        Raises:
            DlcError: the first one's, where the second does not help.
        """
        try:
            return self.program(list(given.values()))
        except DlcError as problem:
            values = {n: given[n] for n in self.deciding if given[n].size <= _SHAPE_ELEMENTS}
            if not values:
                raise
            key = tuple((n, a.shape, a.tobytes() if n in values else b"") for n, a in given.items())
            if key not in self._programs:
                fixed = with_values(self.model, values)
                shapes = {n: a.shape for n, a in given.items() if n not in values}
                source = Source(data=fixed.SerializeToString(), label="model.onnx")
                try:
                    self._programs[key] = self.compiler.program(source, self.target, shapes=shapes)
                except DlcError:
                    raise problem from None
            return self._programs[key]

    def program(self, arrays: Sequence[Array] = ()) -> Program:
        """The program for inputs of these shapes; raises DlcError. Shapes that the model states need no arrays."""
        key = () if self.fixed else tuple(a.shape for a in arrays)
        if key not in self._programs:
            shapes = dict(zip((i.name for i in self.inputs), key, strict=True)) if key else {}
            source = Source(data=self.model.SerializeToString(), label="model.onnx")
            self._programs[key] = self.compiler.program(source, self.target, shapes=shapes)
        return self._programs[key]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, in the model's order.

        Args:
            inputs: Arrays in the order of the model's inputs, or by their names.
            kwargs: Nothing that dlc knows.

        Raises:
            DlcError: the model cannot be built for these inputs, or they do not fit it.
        """
        del kwargs
        names = [i.name for i in self.inputs]
        by_name: Any = inputs if hasattr(inputs, "keys") else dict(zip(names, inputs, strict=False))
        given = {name: by_name[name] for name in names if name in by_name}
        if len(given) != len(names):
            raise error("bad-inputs", f"the model has {len(names)} inputs, {len(given)} are given")
        arrays: list[Array] = [np.asarray(given[name]) for name in names]
        known = dict(zip(names, arrays, strict=True))
        program: Any = self.program_for(known)
        taken = {p.name for p in program.signature.inputs}
        found = program({name: array for name, array in known.items() if name in taken or name not in self.deciding})
        return tuple(found[o.name] for o in self.model.graph.output)


def with_values(model: onnx.ModelProto, values: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with values in place of some of its inputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = [i for i in made.graph.input if i.name not in values]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in values.items())
    return made


class DlcBackend(Backend):
    """The interface that ONNX asks for."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> DlcRep:
        """The model, compiled if it states all shapes. Raises DlcError where dlc cannot build it.

        Args:
            model: The model.
            device: "CPU".
            kwargs: `target`, the backend and its options ("c"); `compiler`, a `Compiler`. Others are ignored: ONNX's
                runner passes tolerances on.
        """
        rep = DlcRep(model, kwargs.get("compiler") or compiler(), str(kwargs.get("target", "c")))
        if not cls.supports_device(device):
            raise error("no-device", f"dlc runs on CPU, not on {device}")
        try:
            if rep.fixed:
                rep.program()
        except DlcError:
            if not rep.deciding:  # else values that a run gives may decide what is missing
                raise
        return rep

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """One run of a model; see `prepare` and `DlcRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """One run of a model of one node, whose result types are inferred or given as (dtype, shape)."""
        arrays = [np.asarray(x) for x in inputs]
        named = [name for name in node.input if name]
        infos = [_info(name, a.dtype, a.shape) for name, a in zip(named, arrays, strict=True)]
        given = [_info(n, np.dtype(t), s) for n, (t, s) in zip(node.output, outputs_info or (), strict=False)]
        outputs = given or [onnx.ValueInfoProto(name=name) for name in node.output if name]
        opset = onnx.helper.make_opsetid(node.domain, int(kwargs.pop("opset_version", onnx.defs.onnx_opset_version())))
        graph = onnx.helper.make_graph([node], "node", infos, outputs)
        return cls.run_model(onnx.helper.make_model(graph, opset_imports=[opset]), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether programs run there."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Always true: what dlc cannot build is an error with the reason, not a test that nobody ran."""
        del model, device, kwargs
        return True


def _info(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), shape)


prepare = DlcBackend.prepare
run_model = DlcBackend.run_model
run_node = DlcBackend.run_node
supports_device = DlcBackend.supports_device
is_compatible = DlcBackend.is_compatible
__all__ = ["DlcBackend", "DlcError", "DlcRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]
