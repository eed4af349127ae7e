"""`Numpy`: the whole plan as one Python program that needs nothing but NumPy."""

import io
import sys
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from dlc import ArrayProgram, Artifact, Backend, Op, Plan, Reason, Report, option
from dlc.api.plan import results_of
from dlc.graph import evaluate_ops
from dlc.runtime.manifest import read_manifest
from dlc_example import spell

_RANK = 32
"""Dimensions that NumPy 1 takes."""


@dataclass(frozen=True)
class Numpy(Backend):
    """One Python file that needs NumPy only."""

    name = "numpy"
    pipeline = "swish"
    comments: bool = option(True, "say which nodes of the model each step comes from")

    def accepts(self, op: Op) -> bool | Reason:
        """All ops whose tensors NumPy can hold."""
        rank = max(t.rank for t in (*op.types, *(x.type for x in op.operands)))
        return rank <= _RANK or Reason(f"{rank} dimensions; NumPy has {_RANK} at most", "merge dimensions by a reshape")

    def emit(self, plan: Plan, report: Report) -> Artifact:
        """`program.py` and its weights."""
        names: dict[str, str] = {i.digest: f"x{k}" for k, i in enumerate(plan.graph.inputs)}
        weights: dict[str, Any] = {}
        for k, op in enumerate(plan.constants):
            names[op.digest] = f'W["w{k}"]'
            (weights[f"w{k}"],) = evaluate_ops((op,), {})

        def place(op: Op) -> str:
            """The text of a value; that of a call that is no step is its argument with another shape."""
            return names.get(op.digest) or f"np.reshape({place(op.operands[0])}, {op.type.room!r})"

        kernels = spell.kernels_of(plan.calls)
        body: list[str] = []
        for step in plan.calls:
            results = results_of(step)
            for value in results:
                names[value.digest] = f"v{len(names)}"
            if self.comments and (origin := plan.graph.origin(step)):
                body.append(f"    # {', '.join(origin)!a}")
            arguments = ", ".join(map(place, step.args))
            targets = "".join(f"{names[v.digest]}, " for v in results)
            body.append(f"    {targets}= {kernels[step.body.digest][0]}({arguments})")
        report.count("kernels", len(kernels))
        text = self._program(plan, [spell.function(k, name) for name, k in kernels.values()], body, names)
        packed = io.BytesIO()
        np.savez(packed, **weights)
        files = {"program.py": text.encode(), "weights.npz": packed.getvalue()}
        return Artifact(str(self), files, "program.py", plan.signature)

    def _program(self, plan: Plan, functions: list[str], body: list[str], names: dict[str, str]) -> str:
        """The file: prelude, kernels, and the function `run` that calls them."""
        inputs = ", ".join(names[i.digest] for i in plan.graph.inputs)
        outputs = "".join(f"{names[o.digest]}, " for o in plan.graph.outputs)
        inputs_names, outputs_names = [i.name for i in plan.graph.inputs], list(plan.graph.names)
        return "\n\n\n".join(
            [
                Path(__file__).with_name("prelude.py").read_text(encoding="utf-8").rstrip(),
                'W = dict(np.load(Path(__file__).with_name("weights.npz")))',
                *functions,
                "\n".join([f"def run({inputs}):", *body, f"    return ({outputs})"]),
                f'if __name__ == "__main__":\n    main(run, {inputs_names!a}, {outputs_names!a})\n',
            ]
        )

    def load(self, directory: Path) -> ArrayProgram:
        """The program, imported."""
        spec = spec_from_file_location("dlc_example_program", directory / "program.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            spec.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = writes
        return ArrayProgram(read_manifest(directory).signature, module.run)
