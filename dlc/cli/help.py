"""How the help of a command looks: its flags in groups, one layout whatever version of typer parses them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Final

_WIDEST = 100
_NAMES = 30
"""Columns for names of flags; a longer one stands on a line of its own."""

OWN_PANEL: Final = "Options"
"""Of flags that belong to one command."""

EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "ops show": (("dlc ops show softmax", "what it computes, its operands and attributes"),),
    "ops check": (
        ("dlc ops check layers.ops.yaml", "examples, gradients, and a program in C"),
        ("dlc ops check packs --target c --target s2train --all", "every check, of all packs of a directory"),
    ),
    "build": (
        ("dlc build model.onnx -o out", "sources, header, weights and a shared library"),
        ("dlc build model.onnx --dim batch=1 -t 'c{cpu=generic lib=none}'", "portable C99 sources only"),
        ("dlc build model.onnx -o out --html", "out/report.html and out/record.json: layers, kernels, memory, passes"),
        ("dlc build model.onnx --set fuse.max-nests=8 --explain fuse", "change an option, explain one pass"),
        ("dlc build model.onnx --stop-after simplify", "the graph as text on stdout"),
        ("dlc build blur.kernel --grad B --stats", "a kernel's gradient, and its loop iterations"),
    ),
    "run": (
        ("dlc run out", "with random inputs"),
        ("dlc run out image.npy -o result.npz", "input from a file, outputs to a file"),
        ("dlc run model.onnx --time", "build a model, then measure it"),
    ),
    "bench": (
        ("dlc bench model.onnx", "calls and steps, and how near they are to the limits of this machine"),
        ("dlc bench model.onnx --against onnxruntime,openvino", "the same model in other runtimes, in turn"),
        ("dlc bench model.onnx --dim batch=8 --seconds 10 --html bench.html", "longer, with a report of all steps"),
        ("dlc bench model.onnx --record before.json", "for dlc report before.json after.json"),
    ),
    "tune": (
        ("dlc tune model.onnx -o tuned.toml", "a minute of measurements, kept in a file and in the cache"),
        ("dlc tune model.onnx --budget 600 --kernels 10 -o tuned.toml", "longer, the ten kernels that take most time"),
        ("dlc tune --merge here.toml there.toml -o both.toml", "the faster record of each kernel and machine"),
        ("dlc build model.onnx --tune tuned.toml", "a program with the schedules of the file"),
    ),
    "verify": (
        ("dlc verify model.onnx", "against onnxruntime, or numpy where it is not installed"),
        ("dlc verify out x.pb -e y.pb", "against expected outputs"),
        ("dlc verify out --model model.onnx", "a program against the model that it was built from"),
        ("dlc verify model.onnx --reference c{math=ordered}", "against the same model, built for another target"),
        ("dlc verify out/model.s2t", "check the file of a program without running it"),
        ("dlc verify model.onnx --gradients --train loss=mse", "gradients of a loss against finite differences"),
    ),
    "train": (
        ("dlc train out --data train.npz --validation 0.1", "ten epochs, validated with a tenth of the rows"),
        (
            "dlc train out --data x=x.npy --data y=y.npy --epochs 5 --export trained.onnx",
            "the model with its new weights",
        ),
        ("dlc train out --data train.npz --resume --epochs 20", "continue from the checkpoint to epoch 20"),
    ),
    "plan": (
        ("dlc plan model.onnx", "peak memory, lower bound and the overhead over it"),
        ("dlc plan model.onnx --train loss=cross-entropy --html plan.html", "every function of a training program"),
        ("dlc plan model.onnx --strategy exact --limit 256KiB", "the least arena, proven; exit code 4 above the limit"),
        ("dlc plan buffers.csv --strategy auto -o placed.csv", "offsets for lines of id,lower,upper,size"),
        ("dlc plan model.onnx --compare greedy,auto --svg plan.svg", "strategies side by side, drawn for a document"),
        ("dlc plan model.onnx --train loss=cross-entropy --curve", "peak against steps that are executed again"),
        ("dlc plan model.onnx --train loss=cross-entropy --memory 2MiB", "the least extra work for an arena"),
        ("dlc plan step.txt --curve", "tasks without a model: the best order, peak against recomputation"),
    ),
    "report": (
        ("dlc report out", "layers, kernels and memory of a program that was built with --record or --html"),
        ("dlc report out --html report.html --trace trace.json", "a page, and a trace for ui.perfetto.dev"),
        ("dlc report before/record.json after/record.json --html diff.html", "what differs between two builds"),
    ),
    "doctor": (
        ("dlc doctor", "what is installed, and what is missing"),
        ("dlc doctor --measure-machine -o here.toml", "then dlc build model.onnx --machine here.toml"),
    ),
    "debug bisect-passes": (
        ("dlc debug bisect-passes model.onnx", "the pass, and its rule, after which the result is wrong"),
        ("dlc debug bisect-passes model.onnx --check 'python check.py'", "judged by a program of your own"),
    ),
    "debug first-divergence": (
        ("dlc debug first-divergence model.onnx x.npy", "the first wrong tensor on an input of yours"),
    ),
    "debug reduce": (
        ("dlc debug reduce model.onnx -o small.onnx", "as long as dlc verify ends on it as on the whole model"),
        ("dlc debug reduce model.onnx --check 'sh check.sh' --budget 60", "for a minute, judged by your own test"),
    ),
    "debug repro": (("dlc debug repro dlc-crash-1f2e3d4c5b6a.txt --yes", "whether a crash still happens"),),
    "plugins": (("dlc plugins", "every plugin, what it offers, and why one does not work"),),
    "plugins new": (
        ("dlc plugins new pass fuse-swish", "a package in dlc-pass-fuse-swish"),
        ("dlc plugins new backend acme plugins/acme", "a package in a directory of your choice"),
    ),
    "plugins test": (
        ("dlc plugins test fuse-swish", "every check, on all installed targets"),
        ("dlc plugins test acme --level 2", "a backend that says which ops it will have"),
        ("dlc plugins test mlp --only hostile --rounds 10", "ten times as many damaged files, nothing else"),
    ),
    "opt": (
        ("dlc opt graph.dlc -p simplify,fold-constants", "passes on a graph in dlc's own text"),
        ("dlc opt dlc-crash-1f2e3d4c5b6a.dlc", "replay a crash report"),
    ),
    "show": (
        ("dlc show model.onnx", "inputs, outputs, weights and operators of a model"),
        ("dlc show blur.kernel --grad B", "a kernel, its gradient, and its loops"),
        ("dlc show out", "the signature, memory and files of a built program"),
        ("dlc show out/model.s2t", "the instructions of a program in a single file"),
        ("dlc show 3f2a91 --text", "a cached result, by the first digits of its digest"),
    ),
    "explain": (
        ("dlc explain unsupported-op", "what a code means, an example of the message, and how to fix it"),
        ("dlc list errors", "all codes"),
    ),
    "list": (
        ("dlc list passes", "every pass with its options"),
        ("dlc list onnx", "operators that the frontend onnx reads"),
        ("dlc list exec:./chip", "options, ops and memory of an executable backend"),
    ),
}
"""Command → (command line, what it gives)."""


@dataclass(frozen=True)
class Flag:
    """The help of one argument or option."""

    names: str
    """`-o, --output DIR`, or the name of an argument."""
    text: str
    panel: str
    is_argument: bool


def flags_of(command: Any) -> tuple[Flag, ...]:
    """Arguments and options of a click command, in the order of declaration; `--help` is left out."""
    return tuple(_flag(p) for p in command.params if not getattr(p, "hidden", False) and p.name != "help")


def subcommands(command: Any) -> tuple[Any, ...]:
    """What a group has, in the order of declaration."""
    return tuple(getattr(command, "commands", {}).values())


def panels(options: Sequence[Flag]) -> tuple[str, ...]:
    """Groups of flags that several commands share, in the order of declaration."""
    return tuple(dict.fromkeys(f.panel for f in options if f.panel not in ("", OWN_PANEL)))


def usage(command: Any, path: str) -> str:
    """`dlc build [OPTIONS] MODEL`."""
    if subcommands(command):
        return f"{path} COMMAND [OPTIONS]"
    arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
    return " ".join([path, "[OPTIONS]", *arguments])


def help_text(command: Any, path: str, width: int = 0) -> str:
    """What `--help` prints."""
    width = width or min(shutil.get_terminal_size((_WIDEST, 0)).columns, _WIDEST)
    lines = [f"Usage: {usage(command, path)}", "", *_wrapped(cleandoc(command.help or ""), width, "  ")]
    flags = flags_of(command)
    arguments = [f for f in flags if f.is_argument]
    if arguments:
        lines += ["", "Arguments:", *_table([(f.names, f.text) for f in arguments], width)]
    if below := subcommands(command):
        lines += ["", "Commands:", *_table([(c.name, _sentence(c.help)) for c in below], width)]
    options = [f for f in flags if not f.is_argument]
    own = [(f.names, f.text) for f in options if f.panel == OWN_PANEL]
    lines += ["", f"{OWN_PANEL}:", *_table([*own, ("-h, --help", "Show this message.")], width)]
    for panel in panels(options):
        lines += ["", f"{panel}:", *_table([(f.names, f.text) for f in options if f.panel == panel], width)]
    if examples := EXAMPLES.get(path.partition(" ")[2]):
        lines += ["", "Examples:"]
        for line, meaning in examples:
            lines += [f"  {line}", f"      {meaning}"]
    return "\n".join(lines)


def dress(command: Any) -> Any:
    """The command, with this help; and so are those below it."""

    def format_help(ctx: Any, formatter: Any) -> None:
        formatter.write(help_text(command, ctx.command_path) + "\n")

    command.format_help = format_help
    for below in subcommands(command):
        dress(below)
    return command


def _flag(p: Any) -> Flag:
    if p.param_type_name == "argument":
        return Flag(_argument(p), p.help or "", "", True)
    words = [*sorted(p.opts, key=len), *getattr(p, "secondary_opts", ())]
    names = ", ".join(words) + (f" {p.metavar}" if p.metavar else "")
    # Only plain values: click has signs of its own for "none given".
    shown = isinstance(p.default, int | float | str) and p.default not in ("", False)
    text = f"{p.help or ''}" + (f" [default: {p.default}]" if shown else "")
    return Flag(names, text, getattr(p, "rich_help_panel", None) or OWN_PANEL, False)


def _argument(p: Any) -> str:
    """The metavar as it was written; a bare name if there is none."""
    return p.metavar or str(p.name).upper()


def _sentence(text: str | None) -> str:
    return " ".join(cleandoc(text or "").partition("\n\n")[0].split())


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        if lines:
            lines.append("")
        words = " ".join(paragraph.split())
        lines += textwrap.wrap(words, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return lines


def _table(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Names in a column, texts wrapped beside them."""
    short = [len(name) for name, _ in rows if len(name) <= _NAMES]
    wide = max(short, default=_NAMES)
    pad = " " * (wide + 4)
    for name, text in rows:
        lines = textwrap.wrap(text, max(width - len(pad), 24), break_on_hyphens=False) or [""]
        if len(name) > wide:
            yield f"  {name}"
        else:
            yield f"  {name:{wide}}  {lines.pop(0)}".rstrip()
        for line in lines:
            yield pad + line
