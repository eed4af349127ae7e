"""`examples/ci`: the shell of the GitHub action and of the GitLab jobs runs; a second machine hits everything."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dlc.cache.signing import write_key
from tests.cli.models import small

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "examples/ci/github/action.yml"
WORKFLOW = ROOT / "examples/ci/github/workflow.yml"
GITLAB = ROOT / "examples/ci/gitlab.yml"
BUILD = "dlc build model.onnx -o build/model"
QUICKLY = "-t 'c{lib=none}' -q"


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def sh(script: str, place: Path, shell: list[str], variables: Mapping[str, str]) -> str:
    """What a script prints, in a home and with a PATH as of a fresh machine; it must succeed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DLC_", "XDG_"))}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**kept, "HOME": str(place / "home"), "PATH": path, "NO_COLOR": "1", "CI": "true", **variables}
    command = [*shell, script]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Runner:
    """As much of GitHub's runner as the action needs: inputs, conditions on them, and GITHUB_ENV."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        (place / "model.onnx").write_bytes(small().SerializeToString())
        (place / "env").write_text("")
        self.variables: dict[str, str] = {}

    def run(self, script: str, own: Mapping[str, str] = {}) -> str:
        variables = {**self.variables, "GITHUB_ENV": str(self.place / "env"), **own}
        text = sh(script, self.place, ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"], variables)
        lines = (self.place / "env").read_text().splitlines()
        self.variables |= dict(line.split("=", 1) for line in lines)
        return text

    def action(self, **given: str) -> str:
        action = read(ACTION)
        inputs = {name: str(given.pop(name, about.get("default", ""))) for name, about in action["inputs"].items()}
        assert not given
        values = {f"inputs.{name}": value for name, value in inputs.items()} | {"runner.temp": str(self.place / "tmp")}
        text = ""
        for step in action["runs"]["steps"]:
            name, value = re.fullmatch(r"([\w.-]+) == '(\w+)'", step["if"]).groups()  # pyright: ignore
            if values[name] == value and "run" in step:
                assert "${{" not in step["run"], "an input in a script would be a command"
                own = {k: re.sub(r"\$\{\{ (.*?) \}\}", lambda m: values[m[1]], v) for k, v in step["env"].items()}
                text += self.run(step["run"], own)
        return text


def test_the_github_action(tmp_path: Path) -> None:
    keys = {"trusted-keys": write_key(tmp_path / "key")}
    secret = {"signing-key": (tmp_path / "key").read_text()}
    main = Runner(tmp_path / "main")
    assert main.action(do="restore", **keys, **secret) == "", "there is no bundle yet"
    main.run(f"{BUILD} {QUICKLY}")
    main.action(do="save")
    request = Runner(tmp_path / "request")
    shutil.copy(main.place / "dlc.dlccache", request.place)
    assert "are new" in request.action(do="restore", **keys)
    request.run(f"{BUILD} {QUICKLY} --cache require")
    # What the request builds is used by it, and not by main.
    request.run(f"{BUILD} {QUICKLY} --without fuse && {BUILD} {QUICKLY} --without fuse --cache require")
    request.action(do="save")
    shutil.copy(request.place / "dlc.dlccache", main.place)
    assert "signed by a key that is not trusted" in main.action(do="restore", **keys, **secret)


def test_the_github_action_without_keys(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    runner = Runner(tmp_path / "a/b")
    (runner.place / "dlc.dlccache").write_bytes(b"damaged")
    assert "::warning::" in runner.action(do="restore")
    assert list(runner.variables) == ["DLC_CACHE_DIR"]


def test_the_workflow_uses_the_action_as_it_is() -> None:
    inputs = read(ACTION)["inputs"]
    steps = read(WORKFLOW)["jobs"]["build"]["steps"]
    uses = [step["with"] for step in steps if step.get("uses") == "./.github/dlc-cache"]
    assert [use["do"] for use in uses] == ["restore", "save"]
    assert all(set(use) <= set(inputs) for use in uses)
    assert BUILD in [step.get("run") for step in steps]


def test_the_gitlab_jobs(tmp_path: Path) -> None:
    file = read(GITLAB)
    hidden, job = file[".dlc-cache"], file["build"]
    public = write_key(tmp_path / "key")
    script = "\n".join([*hidden["before_script"], *job["script"]]) + f" {QUICKLY}"
    for place in ("main", "request"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "model.onnx").write_bytes(small().SerializeToString())
    own = {"CI_PROJECT_DIR": str(tmp_path / "main"), "DLC_CACHE_SIGNING_KEY": str(tmp_path / "key")}
    for place, policy in (("main", job["rules"][0]["variables"]["DLC_CACHE_POLICY"]), ("request", None)):
        given = {**hidden["variables"], **({"DLC_CACHE_POLICY": policy} if policy else {})}
        own["CI_PROJECT_DIR"] = str(tmp_path / place)
        variables = {name: value.replace("$CI_PROJECT_DIR", own["CI_PROJECT_DIR"]) for name, value in given.items()}
        variables |= {**own, "DLC_CACHE_TRUSTED_KEYS": public}
        shell = ["sh", "-e", "-c"]
        sh(script if policy else f"{script} --cache require", tmp_path / place, shell, variables)
        sh("\n".join(hidden["after_script"]), tmp_path / place, shell, variables)
        if policy:
            shutil.copy(tmp_path / place / "dlc.dlccache", tmp_path / "request")
            del own["DLC_CACHE_SIGNING_KEY"]
    assert not (tmp_path / "request/home/.cache").exists()
