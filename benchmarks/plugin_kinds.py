"""Each kind of plugin that `dlc plugins new` makes, in a fresh environment: installed and tested.

    python benchmarks/plugin_kinds.py [KIND…]         kinds of plugins; all of them by default
        [--keep DIR]                                  where packages and environments stay

For each kind: `dlc plugins new`, a new virtual environment with the wheels of this checkout and the package with its
extra `test`, then `dlc plugins test`, the package's own tests, ruff, and pyright in strict mode. Needs an index of
packages.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dlc.plugins.scaffold import KINDS

ROOT = Path(__file__).parents[1]
OWN = (ROOT, *(ROOT / "plugins" / name for name in ("frontend_onnx", "backend_c")))
"""What packages depend on, of this checkout."""


def run(command: Sequence[str | Path], cwd: Path) -> tuple[bool, str]:
    """Whether a command succeeds, and what it prints."""
    # An environment is fresh if nothing of this one is on its path.
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "DLC_"))}
    line = [str(c) for c in command]
    done = subprocess.run(line, cwd=cwd, env=plain, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def must(command: Sequence[str | Path], cwd: Path) -> str:
    """What a command prints that has to succeed."""
    ok, text = run(command, cwd)
    if not ok:
        sys.exit(f"{' '.join(map(str, command))}:\n{text}")
    return text


def tried(kind: str, top: Path, wheels: Sequence[Path]) -> bool:
    """One kind; prints a line for each step."""
    name, place = f"my-{kind}", top / kind
    place.mkdir(parents=True)
    start = time.perf_counter()
    must([sys.executable, "-m", "venv", place / "venv"], place)
    python = place / "venv" / "bin" / "python"
    must([python, "-m", "pip", "install", "-q", *wheels], place)
    must([python, "-m", "dlc", "plugins", "new", kind, name, "package"], place)
    package = place / "package"
    must([python, "-m", "pip", "install", "-q", "--find-links", top / "wheels", "-e", ".[test]", "pyright"], package)
    print(f"{kind:14} installed in {time.perf_counter() - start:.0f} s", flush=True)
    ok, text = run([python, "-m", "dlc", "plugins", "test", name, "--json"], place)
    found = json.loads(text[text.index("{") :])
    if "checks" not in found:
        print(text)
        return False
    print(
        f"{kind:14} plugins test: {len(found['checks'])} checks, {found['failed']} failed, {found['skipped']} skipped"
    )
    for check in found["checks"]:
        if check["state"] != "ok":
            print(f"{kind:14}   {check['check']} {check['state']}: {check['text']}")
    settings = {"include": ["."], "exclude": ["venv"], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (place / "pyrightconfig.json").write_text(json.dumps(settings | {"include": [package.name]}))
    for what, command in {
        "pytest": [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        "ruff": [python, "-m", "ruff", "check", "."],
        "format": [python, "-m", "ruff", "format", "--check", "."],
        "pyright": [python, "-m", "pyright", "-p", place / "pyrightconfig.json", "--pythonpath", python],
    }.items():
        fine, text = run(command, package)
        print(f"{kind:14} {what}: {(text.strip().splitlines() or [''])[-1]}", flush=True)
        if not fine:
            print(text)
        ok = ok and fine
    return ok


def main() -> None:
    """All kinds, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    if unknown := set(given.kinds) - set(KINDS):
        parser.error(f"no kinds of plugins: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory() as temporary:
        top = (given.keep or Path(temporary)).resolve()
        (top / "wheels").mkdir(parents=True)
        for project in OWN:
            must([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", top / "wheels", project], top)
        wheels = sorted((top / "wheels").glob("*.whl"))
        failed = [kind for kind in given.kinds or KINDS if not tried(kind, top, wheels)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
