"""What a build for the accelerator does by default. Imports nothing: hooks read it at every start."""

from typing import Final

NAMED: Final = (
    *("conv", "gemm", "mat_mul", "transpose", "add", "batch_norm", "batch_norm_training", "relu", "dropout"),
    *("mul", "concat", "pick", "conv_transpose", "clip", "leaky_relu", "hard_sigmoid", "layer_norm"),
    *("max_pool", "average_pool", "global_average_pool", "global_max_pool", "reduce_mean", "label_cross_entropy"),
)
"""Ops whose gradients selection wants named."""
REST: Final = "s2-decompose,order,rematerialise,plan-memory"
PLACED: Final = f"s2-select,{REST}"
"""From a graph of ops to a plan."""
WORDED: Final = "s2-select{update=apart masks=yes}"
"""Selection of what words of version 1 say."""
_OPTIONS: Final = ("optimizer=sgd{lr=0.01 momentum=0.9}", "wrt=!norms", "stored-norms=yes")
TRAINING: Final = ",".join((*_OPTIONS, "updates=immediate", f"named={','.join(NAMED)}"))
"""Norms stay as they are, as on the device; each gradient is used as soon as it is known."""
STEP: Final = f"autodiff{{{' '.join(_OPTIONS)} named={','.join(NAMED)}}}"
"""The same as a pass: one step as the whole program."""

LIMIT: Final = 8 << 30
"""Bytes of memory that a program may take in the simulator unless the user raises it."""

SUFFIX: Final = ".s2t"
"""Of a program's file."""
