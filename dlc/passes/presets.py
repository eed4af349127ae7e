"""The named pipelines of the core, in spec text. A name inside a pipeline expands in place."""

from collections.abc import Mapping

# Composites reach `lower` whole and become one kernel each. Batch normalisation is the exception: expanded, most of it
# is a constant expression that is evaluated when the weights are written.
PIPELINES: Mapping[str, str] = {
    "infer": "fold-constants,simplify,expand{only=batch_norm},fold-constants,lower,layout,fuse,schedule,plan-memory",
}
