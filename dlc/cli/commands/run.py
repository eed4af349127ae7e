"""`dlc run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.options import CacheOptions
from dlc.cli.terminal import Outcome, Terminal, columns, json_number

if TYPE_CHECKING:
    from dlc.api.program import Program
    from dlc.base.types import Array
    from dlc.bench.times import Times

Subject = Annotated[
    str,
    typer.Argument(metavar="DIR|FILE|MODEL", help="A built program, its directory or file, or a model to build first."),
]
Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[INPUT]...", help="FILE.npy, FILE.npz, FILE.pb or NAME=FILE; inputs without a file are random."
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the random inputs. [default: 0]")]
Outputs = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.npz", help="Write the outputs to a file.")
]
Time = Annotated[bool, typer.Option("--time", help="Measure repeated calls: median, 10th and 90th percentile.")]
Calls = Annotated[
    int | None, typer.Option("--calls", metavar="N", min=1, help="Number of calls that --time makes. [default: 50]")
]
_DEVICE = "Programs for a device"
Entry = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Run this function of the program, as step of a training program.",
        show_default=False,
        rich_help_panel=_DEVICE,
    ),
]
Until = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Stop after instruction N, numbered as dlc show does; its results are the outputs.",
        rich_help_panel=_DEVICE,
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="Write the estimated cycles of every unit as a trace for Perfetto or chrome://tracing.",
        rich_help_panel=_DEVICE,
    ),
]
Dump = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write what every instruction reads and writes, and its registers, as .npy and $readmemh hex.",
        rich_help_panel=_DEVICE,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="COMMAND",
        help="Compare with a device after every instruction: a command that speaks the device's protocol.",
        show_default=False,
        rich_help_panel=_DEVICE,
    ),
]
_CALLS = 50
"""That --time makes by default."""


@flags.spelled
def run(
    ctx: typer.Context,
    subject: Subject,
    options: flags.RunOptions,
    cache: CacheOptions,
    inputs: Files = None,
    seed: Seed = 0,
    output: Outputs = None,
    timed: Time = False,
    calls: Calls = None,
    entry: Entry = "",
    until: Until = None,
    trace: Trace = None,
    dump: Dump = None,
    device: Device = "",
    max_memory: flags.MaxMemory = None,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Run a program, or a model that is built first, on files or random inputs."""
    del json
    from dlc.api.device_run import DeviceRun
    from dlc.cli.programs import call, gather_feeds, open_program, tell_random
    from dlc.runtime.feeds import write_arrays

    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    _check(output, timed, calls)
    wanted = DeviceRun(entry, until, trace, dump, device, terminal.log)
    if timed and wanted.flags:
        message = f"{wanted.flags[0]} and --time do not go together: what is looked at is not timed"
        raise error("no-effect", message, help="leave one of them out", exit_code=ExitCode.USAGE)
    choice = options.of(subject)
    with open_program(terminal, choice, cache, max_memory, only_called=True, device_run=wanted) as opened:
        feeds, random = gather_feeds(opened.program, inputs or (), seed)
        tell_random(terminal, random, seed)
        found = call(opened.program, feeds)
        if output:
            write_arrays(output, found)
        rows = [_Row(name, array) for name, array in found.items()]
        text = columns([("output", "type", "min", "mean", "max", "first"), *(row.cells for row in rows)])
        data: dict[str, Any] = {
            "inputs": [{"name": name, "source": "random" if name in random else "file"} for name in feeds],
            "seed": seed,
            "outputs": [row.json() for row in rows],
        }
        for name, path in (("trace", trace), ("dump", dump)):
            if path:
                terminal.log(f"{name}: {path}")
                data[name] = str(path)
        if timed:
            times = _times(opened.program, feeds, found, calls or _CALLS)
            text += f"\n\n{_times_text(times)}"
            data["time"] = times.json()
        return Outcome(text, data)


def _check(output: Path | None, timed: bool, calls: int | None) -> None:
    """What would fail at the end, or would have no effect, is reported at the start."""
    if output and output.suffix != ".npz":
        raise error(
            "unknown-format",
            f"--output {output}: outputs are written to an .npz",
            help=f"--output {output.with_suffix('.npz')}",
            exit_code=ExitCode.USAGE,
        )
    if calls and not timed:
        raise error("no-effect", "--calls has no effect here", help="add --time", exit_code=ExitCode.USAGE)


class _Row:
    """Figures of one output."""

    def __init__(self, name: str, array: Array) -> None:
        import numpy as np

        self.name = name
        self.type = f"{array.dtype}{list(array.shape)}".replace(" ", "")
        self.first = [v.item() for v in array.reshape(-1)[:4]]
        self.figures: tuple[float, float, float] | None = None
        if array.size:
            values = array.astype(np.float64)
            self.figures = float(values.min()), float(values.mean()), float(values.max())

    @property
    def cells(self) -> tuple[str, ...]:
        shown = [f"{x:.6g}" for x in self.figures] if self.figures else ["", "", ""]
        first = ", ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in self.first)
        return escape(self.name), self.type, *shown, first

    def json(self) -> dict[str, Any]:
        figures = dict(zip(("min", "mean", "max"), map(json_number, self.figures or ()), strict=False))
        return {"name": self.name, "type": self.type, **figures, "first": [json_number(v) for v in self.first]}


def _times(program: Program, feeds: dict[str, Array], out: dict[str, Array], calls: int) -> Times:
    """Time calls into the same buffers, after some to warm up."""
    import numpy as np

    from dlc.bench.times import Length, in_turn
    from dlc.cli.programs import call

    buffers = {name: np.empty_like(array) for name, array in out.items()}
    return in_turn({"": lambda: call(program, feeds, buffers)}, Length(calls))[""]


def _times_text(times: Times) -> str:
    return (
        f"median {times.median:.3f} ms, 10th percentile {times.p10:.3f} ms, 90th percentile {times.p90:.3f} ms "
        f"({len(times.seconds)} calls)"
    )
