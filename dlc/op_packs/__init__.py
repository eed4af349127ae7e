"""Op packs: ops that a `*.ops.yaml` file declares, with their mathematics, instead of Python code."""
