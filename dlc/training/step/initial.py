"""The weights of a model, begun anew: `init=kaiming-uniform seed=1` of the pass `autodiff`.

    w of rank 2 or more    →   what the initializer draws; but not what has one dimension only, such as a bias [1, c, 1]
    a vector               →   what is stored; where nothing is, ones for what multiplies or scales, else zeros

For models that come without weights, inputs become weights where patterns name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from dlc.base.diagnostics import quote
from dlc.graph import Constant, Graph, Input, Op, toposort
from dlc.ops.elementwise import Cast, Mul
from dlc.ops.normalize import BatchNorm, BatchNormTraining, GroupNorm, InstanceNorm, LayerNorm, RmsNorm
from dlc.ops.shape import Expand, Reshape, Transpose
from dlc.training.step.fans import Fans, fans
from dlc.training.step.initializers import Drawn, Initializer, initial_value
from dlc.training.step.weights import chosen, refused


def begun(
    model: Graph, prediction: int, patterns: Sequence[str], initializer: Initializer, seed: int
) -> tuple[Graph, Mapping[str, Op]]:
    """A model whose weights begin as the initializer says, and those that patterns choose, by name.

    Args:
        model: A graph of ops, at the level of the pass `autodiff`.
        prediction: Index of the output whose parameters are meant.
        patterns, initializer, seed: See `weights.chosen`, `initialised`.

    Raises:
        DlcError: (USAGE) a pattern fits nothing, nothing is chosen, or no input is left for data.
    """
    if isinstance(initializer, Drawn):
        model = with_weights(model, patterns)
    return initialised(model, chosen(patterns, (model.outputs[prediction],)), initializer, seed)


def with_weights(model: Graph, patterns: Sequence[str]) -> Graph:
    """The model whose float inputs are weights where patterns choose them, as in `weights.chosen`.

    Raises:
        DlcError: (USAGE) no input is left for data.
    """
    positive = [p for p in patterns if not p.startswith("!")]
    negative = [p.removeprefix("!") for p in patterns if p.startswith("!")]

    def fits(i: Input) -> bool:
        some, none = (any(fnmatchcase(i.name, p) for p in of) for of in (positive, negative))
        return i.role == "data" and i.dtype.is_float and some and not none

    new: dict[Op, Op] = {i: Input(i.name, i.type, "weight", i.initial) for i in model.inputs if fits(i)}
    if new and all(i in new or i.role != "data" for i in model.inputs):
        raise refused(
            f"all inputs of the model would be weights: {', '.join(quote(i.name) for i in model.inputs if i in new)}",
            "use a narrower pattern: wrt=W*",
        )
    return _replaced(model, new) if new else model


def initialised(
    model: Graph, weights: Mapping[str, Op], initializer: Initializer, seed: int
) -> tuple[Graph, Mapping[str, Op]]:
    """The model with other values in its weights (see the module), and those weights.

    Args:
        model: A graph of ops, at the level of the pass `autodiff`.
        weights: Constants with names, or inputs with the role of weights, by name; float.
        initializer: Gives the values.
        seed: Of the random numbers, not negative.
    """
    if not isinstance(initializer, Drawn):
        return model, weights
    known = fans(weights, model.outputs)
    scales = _scales(weights, model.outputs)
    new: dict[str, Op] = {}
    for name, op in weights.items():
        if (found := known.get(name)) is not None and _drawn(op.shape, found):
            tensor = initial_value(name, op.type, found, initializer, seed)
            new[name] = Constant(tensor, name) if isinstance(op, Constant) else Input(name, op.type, "weight", tensor)
        elif isinstance(op, Input) and op.initial is None:
            new[name] = Input(name, op.type, "weight", 1.0 if name in scales else 0.0)
        else:
            new[name] = op
    return _replaced(model, {op: new[name] for name, op in weights.items()}), new


def _drawn(shape: Sequence[int], of: Fans) -> bool:
    return of.product or sum(extent > 1 for extent in shape) > 1


def _scales(weights: Mapping[str, Op], outputs: Sequence[Op]) -> set[str]:
    """Names of weights that multiply, or that normalisations scale by."""
    views = {op.digest: name for name, op in weights.items()}
    found: set[str] = set()
    for op in toposort(outputs):
        match op:
            case Reshape() | Cast() | Transpose() | Expand():
                if op.x.digest in views:
                    views[op.digest] = views[op.x.digest]
            case Mul():
                found.update(views[x.digest] for x in op.operands if x.digest in views)
            case BatchNorm() | BatchNormTraining() | LayerNorm() | RmsNorm() | InstanceNorm() | GroupNorm():
                found.update(views[x.digest] for x in (op.scale,) if x.digest in views)
            case _:
                pass
    return found


def _replaced(model: Graph, new: Mapping[Op, Op]) -> Graph:
    moved = model.substitute(new)
    inputs = tuple(new.get(i, i) for i in model.inputs)
    return replace(moved, inputs=tuple(i for i in inputs if isinstance(i, Input)))
