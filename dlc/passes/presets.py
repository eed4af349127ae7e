"""The named pipelines of the core, in spec text. A name inside a pipeline expands in place."""

from collections.abc import Mapping

PIPELINES: Mapping[str, str] = {
    "infer": "expand,fold-constants,simplify,lower,fuse,schedule,plan-memory",
}
