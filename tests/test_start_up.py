"""What a listing may import, and that public names resolve."""

import subprocess
import sys

import pytest

import dlc

HEAVY = {"numpy", "ml_dtypes", "onnx", "rich", "pydantic", "diskcache", "cffi"}


def modules_after(code: str) -> set[str]:
    """Top-level modules loaded by a fresh interpreter that runs `code`."""
    script = f"{code}\nimport sys\nprint(' '.join({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import dlc",
        "import dlc.config.file, dlc.driver.pipeline",
        "from dlc.plugins.discovery import list_plugins; list_plugins()",
        "from dlc.plugins.discovery import load_registry\n"
        "for e in load_registry(kinds=('passes', 'pipelines')).passes.values(): e.declaration()",
    ],
    ids=["import", "config", "plugins", "list passes"],
)
def test_start_up_imports_nothing_heavy(code: str) -> None:
    assert not modules_after(code) & HEAVY


@pytest.mark.parametrize("name", dlc.__all__)
def test_public_names_resolve(name: str) -> None:
    assert getattr(dlc, name) is not None
    assert name in dir(dlc)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = dlc.absent  # pyright: ignore
