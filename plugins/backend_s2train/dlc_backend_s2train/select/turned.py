"""Linear layers whose weights the model stores transposed: [out, in], which is how the device has them too.

    mat_mul(x, wᵀ)   →   gemm(x, w) trans_b, and its gradients with it

Exporters write a linear layer without a bias this way. Its gradient by w is that of wᵀ, transposed back.
"""

from __future__ import annotations

from dlc.graph import Cotangent, Op
from dlc.ops.linear import Gemm, MatMul
from dlc.ops.shape import Transpose

_SWAP = (1, 0)


def turned(op: Op) -> Op | None:
    """What an op becomes, its operands having been rewritten already; None: it stays."""
    match op:
        case MatMul(a=a, b=Transpose(x=w, perm=perm)) if perm == _SWAP and len(a.shape) == 2:
            return Gemm(a, w, trans_b=True)
        case Cotangent(of=Gemm() as of, seed=seed, operand=operand, name="mat_mul"):
            found = Cotangent.make(of, seed, operand)
            return found if operand == 0 else Transpose(found, _SWAP)
        case Cotangent(of=Transpose(perm=perm), seed=Transpose(x=x, perm=again)) if perm == again == _SWAP:
            return x
        case _:
            return None
