"""The commands as a static table: `dlc --help` is printed from it, and only the command that runs is imported."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One row of the first screen."""

    name: str
    summary: str
    target: str
    """"module:attribute" below `dlc.cli.commands`, of a function or of a typer.Typer with subcommands."""
    panel: str
    parts: tuple[str, ...] = ()
    """Names of subcommands."""


COMMANDS = (
    Command("build", "Compile a model: sources, header, weights and library.", "build:build", "Compile"),
    Command("run", "Run a program or model on files or random inputs; time it.", "run:run", "Compile"),
    Command("bench", "Measure a program: per call, per step, against other runtimes.", "bench:bench", "Compile"),
    Command("tune", "Measure schedules of a program's kernels, for --tune.", "tune:tune", "Compile"),
    Command("verify", "Compare a program's outputs with a reference.", "verify:verify", "Compile"),
    Command("train", "Train a program that was built with --train.", "train:train", "Compile"),
    Command("plan", "Plan a program's memory: peak, lower bound, a drawing.", "plan:plan", "Understand"),
    Command("report", "Show the record of a build, or what differs between two.", "report:report", "Understand"),
    Command("opt", "Run a pipeline on a graph in dlc's own text.", "opt:opt", "Understand"),
    Command("show", "Show a model, a program, or anything the cache holds.", "show:show", "Understand"),
    Command(
        "debug",
        "Find where a wrong result or a failure comes from.",
        "debug:app",
        "Understand",
        ("bisect-passes", "first-divergence", "reduce", "repro"),
    ),
    Command("explain", "Explain the code of a message, such as unsupported-op.", "explain:explain", "Understand"),
    Command("list", "List passes, ops, frontends, backends or pipelines.", "list:list_", "Understand"),
    Command(
        "ops", "Show an op; check op packs: values, gradients, programs.", "ops:app", "Understand", ("show", "check")
    ),
    Command(
        "cache",
        "Inspect and clean the cache, and carry it to other machines.",
        "cache:app",
        "Maintain",
        ("stats", "why", "verify", "trim", "clear", "export", "import", "keygen", "sign", "audit"),
    ),
    Command("trust", "Trust a directory's configuration to run programs.", "trust:trust", "Maintain"),
    Command("plugins", "List installed plugins; make and test plugins.", "plugins:app", "Maintain", ("new", "test")),
    Command("doctor", "Check this machine: compilers, plugins, cache.", "doctor:doctor", "Maintain"),
)

_OPTIONS = (
    ("--version", "Print the version and exit."),
    ("--install-completion SHELL", "Install completion for bash, zsh, fish, powershell or pwsh."),
    ("--show-completion SHELL", "Print the completion script of a shell."),
    ("-h, --help", "Show this message; dlc COMMAND --help shows a command's flags."),
)


def schema_name(arguments: Sequence[str]) -> str:
    """The word of the JSON schema for a command line: `build`, `cache-stats`; `error` if it names no command."""
    words = [a for a in arguments if not a.startswith("-")]
    for command in COMMANDS:
        if words[:1] == [command.name]:
            part = next((w for w in words[1:] if w in command.parts), "")
            return f"{command.name}-{part}" if part else command.name
    return "error"


def first_screen() -> str:
    """What `dlc --help` prints."""
    width = max(len(c.name) for c in COMMANDS)
    lines = ["Usage: dlc [OPTIONS] COMMAND [ARGS]...", "", "  Compile models to plain C, with every result cached."]
    for panel in dict.fromkeys(c.panel for c in COMMANDS):
        lines += ["", f"{panel}:"]
        lines += [f"  {c.name:{width}}  {c.summary}" for c in COMMANDS if c.panel == panel]
    lines += ["", "Plugins add commands of their own; dlc plugins names them."]
    wide = max(len(flag) for flag, _ in _OPTIONS)
    lines += ["", "Options:", *(f"  {flag:{wide}}  {text}" for flag, text in _OPTIONS)]
    lines += [
        "",
        "Every command takes --json. Exit codes: 0 ok, 1 model, 2 usage, 3 mismatch, 4 limit, 5 tool, 6 plugin,",
    ]
    return "\n".join([*lines, "7 required cache result missing, 70 bug in dlc, 130 interrupted."])
