"""Which values of a model are its parameters: initializers, and what repeats one under a name of its own.

    w2 = Identity(w1), w1 an initializer   →   parameters w1 and w2, which begin with equal values

Exporters write initializers of equal values once: in a fresh network the scales of all batch normalisations are
Identities of one, and each of them has to be trained on its own. Whether a model ties two layers on purpose, or its
weights are only equal as yet, the file does not tell; so names can be given that stay tied.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import onnx

from dlc_frontend_onnx.calls import domain_of

_FLOATS: Final = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)


def repeated(graph: onnx.GraphProto, tied: Sequence[str] = ()) -> dict[str, str]:
    """Result of an Identity → the float initializer that it repeats, by way of other Identities too.

    Args:
        graph: The model's main graph; branches and functions have no parameters.
        tied: Patterns (`*`, `?`, `[abc]`) of results that are left out: they stay the value they repeat.
    """
    roots = {t.name: t.name for t in graph.initializer if t.data_type in _FLOATS}
    before = {
        n.output[0]: n.input[0]
        for n in graph.node
        if n.op_type == "Identity" and not domain_of(n) and len(n.input) == len(n.output) == 1 and n.output[0]
    }
    for result in before:
        name, chain = result, dict[str, None]()
        while name in before and name not in roots and name not in chain:
            chain[name] = None
            name = before[name]
        roots |= dict.fromkeys(chain, roots.get(name, ""))
    found = {name: roots[name] for name in before if roots[name]}
    return {n: root for n, root in found.items() if not any(fnmatchcase(n, pattern) for pattern in tied)}
