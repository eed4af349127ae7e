"""Some cases go the way of a user: `dlc build`, then the installed program is called, or learns for one step."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dlc.base.diagnostics import DlcError, ExitCode
from dlc.cli.frame import run
from dlc.graph import evaluate
from dlc.runtime.loading import load
from tests.fuzz.build import Call, Program
from tests.fuzz.case import Case
from tests.fuzz.model import Array
from tests.fuzz.rounding import differing


def commanded(program: Program) -> str:
    """What differs when the commands do what the case says; "" where nothing does."""
    with TemporaryDirectory(prefix="fuzz-") as folder:
        place = Path(folder)
        (place / "model.onnx").write_bytes(program.case.model.bytes)
        output = io.StringIO()
        command = ["build", str(place / "model.onnx"), "-o", str(place / "out"), "--cache-dir", str(place / "cache")]
        with redirect_stdout(output), redirect_stderr(io.StringIO()):
            code = run([*command, "--json", *flags_of(program.case)])
        if code != ExitCode.OK:
            said = json.loads(output.getvalue())["diagnostics"]
            return f"dlc build ends with {code}: {said[0]['message'] if said else ''}"
        loaded = load(place / "out")
        return next((problem for call in program.calls if (problem := _differs(program, call, loaded))), "")


def _differs(program: Program, call: Call, loaded: Any) -> str:
    try:
        got = _outputs(program, call, loaded)
    except DlcError as problem:
        wanted = evaluate(call.graph, call.feeds).values()
        finite = all(np.isfinite(v).all() for v in wanted if v.dtype.kind == "f")
        return "" if program.case.kind == "train" and not finite else f"the program refuses: {problem}"
    bad, _ = differing(call.graph, call.feeds, got)
    return f"{', '.join(bad)} differ" if bad else ""


def flags_of(case: Case) -> list[str]:
    """The case's choices as flags of `dlc build`."""
    flags = [f for name in case.without for f in ("--without", name)]
    flags += ["--set", f"onnx.unroll={case.unroll}"]
    flags += [f for name, sizes in case.model.ranges.items() if sizes for f in ("--dim", f"{name}={sizes}")]
    flags += [f for text in case.settings for f in ("--set", text)]
    match case.kind:
        case "gradient" if names := [n for n, v in case.model.inputs.items() if v.dtype.kind == "f"]:
            flags += ["--grad", ",".join(names)]
        case "train":
            flags += ["--train", case.train]
        case _:
            pass
    return flags


def _outputs(program: Program, call: Call, built: Any) -> dict[str, Array]:
    """Values by the names that the reference has for them."""
    ports = built.arguments if program.case.kind == "train" else built.signature.inputs
    feeds = {p.name: call.feeds[p.name] for p in ports if p.name in call.feeds}  # arrays tell sizes
    if program.case.kind != "train":
        return built(feeds)
    loss = built.train_step(**feeds)
    return {"loss": np.asarray(loss, np.float32), **built.parameters(), **built.state()}
