"""`dlc show` of a checkpoint of `dlc train`."""

from __future__ import annotations

from pathlib import Path

from dlc.base.diagnostics import escape
from dlc.cli.terminal import Outcome, columns, json_number, size
from dlc.cli.trained import figures_text
from dlc.training.loop.checkpoint import read_checkpoint


def show_checkpoint(path: Path) -> Outcome:
    """How far a run came, and what it needs to go on. Raises DlcError (USAGE): the file is damaged."""
    found = read_checkpoint(path)
    state, identity = found.state, found.identity
    at = f"{state.epoch} epochs" + (f" and {state.step} steps of the next" if state.step else "")
    rows = [("checkpoint", f"{escape(str(path))}, {size(path.stat().st_size)}"), ("done", at)]
    if state.history:
        rows.append(("last", f"epoch {state.history[-1].number}: {figures_text(state.history[-1])}"))
    if state.best:
        rows.append(("best", f"epoch {state.best}: {figures_text(state.history[state.best - 1])}"))
    order = "in a new order every epoch" if identity.get("shuffle") else "in the order of the files"
    rows.append(
        (
            "data",
            f"{identity.get('rows')} rows in batches of {identity.get('batch')}, {order}, seed {identity.get('seed')}",
        )
    )
    if identity.get("validation_rows"):
        rows.append(("validation", f"{identity['validation_rows']} rows"))
    held = ", ".join(f"{name} {size(len(part))}" for name, part in found.parts.items())
    rows.append(("holds", held))
    data = {
        "kind": "checkpoint",
        "file": str(path),
        "epochs": [{**e.json(), "loss": json_number(e.loss)} for e in state.history],
        "step": state.step,
        "best": state.best,
        "settings": dict(identity),
        "parts": {name: len(part) for name, part in found.parts.items()},
    }
    return Outcome(columns(rows), data)
