"""The named pipelines of the core, in spec text. A name inside a pipeline expands in place."""

from collections.abc import Mapping

# Composites reach `lower` whole and become one kernel each, with some exceptions. Most of a batch normalisation,
# expanded, is a constant expression that is evaluated when the weights are written, and so is the matrix of a Fourier
# transform. The statistics of one that is trained are read again by its gradient, and by what follows them from batch
# to batch. Connectionist temporal classification is written out in time: that is too much for one kernel, and its
# gradient shares the steps.
_EXPAND = "expand{only=batch_norm,batch_norm_training,ctc,ctc_rows,dft}"
_KERNELS = "lower,bf16,layout,parts,fuse,whole-vectors,winograd,row-blocks,stream,order,rematerialise,plan-memory"
PIPELINES: Mapping[str, str] = {
    "infer": f"integers,fold-constants,simplify,{_EXPAND},fold-constants,{_KERNELS}",
}
