"""What reading packs needs beside dlc: an extra, since most installations read none."""

from __future__ import annotations

from importlib.util import find_spec

from dlc.base.diagnostics import ExitCode, error


def check_libraries() -> None:
    """Raise DlcError (TOOL) if a library is missing; to be called before anything that reads packs is imported."""
    if missing := [name for name, module in (("pydantic", "pydantic"), ("PyYAML", "yaml")) if not find_spec(module)]:
        raise error(
            "missing-library",
            f"op packs need {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            help='pip install "dlc[packs]"',
            exit_code=ExitCode.TOOL,
        )
