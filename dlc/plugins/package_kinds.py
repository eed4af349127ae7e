"""`KINDS`: the kinds of packages that `dlc plugins new` writes, and what is different about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dlc.plugins.entry import Kind
from dlc.version import __version__

_TOOLS: Final = ("onnx>=1.21", "pytest>=8.2", "ruff>=0.9")


@dataclass(frozen=True)
class Template:
    """What is different about one kind."""

    prefix: str
    """Of the distribution: dlc-PREFIX-NAME."""
    offers: Kind | None
    """What its hook gives under the plugin's name; None where names are derived."""
    summary: str
    main_file: str
    """With {module}."""
    main_holds: str
    change: str
    """How to go on from the template."""
    try_it: str
    """Commands that show it at work, with {name}."""
    dependencies: tuple[str, ...]
    test_dependencies: tuple[str, ...]
    kit_options: str = ""
    """Of the mark of the kit's tests."""
    further: tuple[tuple[str, str], ...] = ()
    """(file of the package, what it holds) of those that few kinds have."""


def _own(*names: str) -> tuple[str, ...]:
    """Packages of dlc's versions that plugins made by this one work with."""
    return tuple(f"{name}{dlc_api()}" for name in names)


def dlc_api() -> str:
    """Versions of dlc that a plugin made by this one works with: ">=0.1,<0.2"."""
    major, minor = (int(part) for part in __version__.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}"


_C: Final = 'targets=["c{cpu=generic flags=-O0}"]'
_EXPLAINED: Final = ("explanations/messages.md", "what the codes of its messages mean, for `dlc explain CODE`")
KINDS: Final[Mapping[str, Template]] = {
    "frontend": Template(
        "frontend",
        "frontends",
        "A model format",
        "{module}.py",
        "the frontend: bytes to a graph",
        "Replace the format by yours. Ops are in `dlc.ops.elementwise`, `dlc.ops.linear` and so on; `make_graph`\n"
        "makes a graph of them. Report everything that is wrong with a file at once, each with its place; check sizes\n"
        "before anything is allocated. Give `samples.py` a model with every feature, and what it has to give.",
        "dlc list {name}            # the layers that it reads",
        _own("dlc"),
        (*_own("dlc-backend-c"), *_TOOLS),
        further=(_EXPLAINED,),
    ),
    "backend": Template(
        "backend",
        "backends",
        "A target",
        "{module}.py",
        "the backend: a graph of ops to a program",
        "Go in this order, each step of use by itself; `dlc plugins test NAME --level N` tests up to step N.\n\n"
        "1. `regions` and options: the target's memories. `dlc plan` works.\n"
        "2. `accepts`: which ops the target has, and why not the others. Coverage of models is known.\n"
        "3. `CALLS`, `emit` and `load`: calls of the vendor's library, and a simulator that runs programs here.\n"
        '4. Code of your own, with `consumes = "plan"`: kernels as loops, in order, with memory offsets. Bytes and\n'
        "   cache keys depend on the model alone.\n"
        "5. `schedules`, `profiler` and `tuner`: estimates, measured steps, tuned schedules.",
        "dlc list backends",
        (*_own("dlc"), "numpy>=1.26"),
        (*_own("dlc-frontend-onnx"), *_TOOLS),
    ),
    "kernel-backend": Template(
        "backend",
        "backends",
        "A target",
        "{module}.py",
        "the backend: a plan of kernels, in order and with places in memory, to a program",
        "A kernel is loops over elements: a target that has these runs every op of dlc.\n\n"
        "1. `FUNCTIONS` and `TYPES` in `c_code.py`: which scalar functions and element types the target has. A model\n"
        "   that needs others is refused by `accepts_kernel` and `accepts_type` before `emit` is called.\n"
        "2. `cc`, `FLAGS` and `load`: its compiler, and a simulator that runs programs here.\n"
        "3. `regions`: its memories with their sizes. `c_code.py` writes loops as they stand; `loops` and schedules\n"
        "   (docs/schedules.md) make them fit its caches and vectors.",
        "dlc list backends",
        (*_own("dlc"), "numpy>=1.26"),
        (*_own("dlc-frontend-onnx"), *_TOOLS),
        further=(("c_code.py", "kernels as functions in C"), _EXPLAINED),
    ),
    "op-pack": Template(
        "ops",
        None,
        "Ops as data",
        "{module}.ops.yaml",
        "the ops: what they compute, their ONNX operators, examples",
        "An op is a record: operands with types, attributes, and a formula (`define`) or a composition of other ops\n"
        "(`compose`). Give each an example or two. `dlc ops check FILE` checks a file without installing anything.",
        "dlc list ops               # has the ops of the pack\ndlc ops check {package}/{module}.ops.yaml --target none",
        tuple(f"dlc[packs]{dlc_api()}" if d.startswith("dlc>") else d for d in _own("dlc")),
        (*_own("dlc-backend-c", "dlc-frontend-onnx"), *_TOOLS),
        f", {_C}",
    ),
    "pass": Template(
        "pass",
        "passes",
        "A rewrite of graphs",
        "{module}.py",
        "the pass: a graph to an equal graph",
        "Match ops with `match`, return the ops that replace them. Say what was done by `report.applies`, and what\n"
        "was not, and why, by `report.missed`: `--explain {name}` prints it. Give `samples.py` a graph for each\n"
        "pattern.",
        "dlc list passes            # has {name}, with its options\n"
        "dlc build model.onnx -p {name},infer --explain {name}",
        (*_own("dlc"), "numpy>=1.26"),
        _TOOLS,
    ),
    "schedule": Template(
        "schedule",
        "schedules",
        "A way in which kernels become loops",
        "{module}.py",
        "the schedule: nests of a kernel to loops",
        "`apply` gets nests with flat subscripts and the numbers of the machine, and returns statements or raises\n"
        "`Unfit` with the reason. The fewest estimated cycles win: `--schedule KERNEL={name}` chooses it whatever the\n"
        "estimate says. Give `samples.py` a kernel of each form that it is for.",
        "dlc list schedules         # has {name}, with its options",
        _own("dlc"),
        ("numpy>=1.26", *_TOOLS),
    ),
    "optimizer": Template(
        "optimizer",
        "optimizers",
        "An optimizer of training programs",
        "{module}.py",
        "the optimizer: a weight, its gradient and a state to the new weight and state",
        "`_kept` names what is kept of each weight, `_step` builds the update of ops. Fields are the options of the\n"
        "optimizer. Give `samples.py` a few steps by another implementation, such as the paper's.",
        "dlc list optimizers        # has {name}, with its options\n"
        "dlc build model.onnx --train 'optimizer={name}{{lr=0.01}}'",
        (*_own("dlc"), "numpy>=1.26"),
        (*_own("dlc-backend-c"), *_TOOLS),
        f", {_C}",
    ),
    "importer": Template(
        "importer",
        None,
        "Import rules for ONNX operators",
        "{module}.py",
        "the rules: a node of a model to an op",
        "A rule reads operands and attributes from its node and returns an op, or one for each output. `Unsupported`\n"
        "refuses a node with the reason. Rename the domain in `__init__.py`, `{module}.py` and `samples.py`; give\n"
        "`samples.py` a model with each operator and version.",
        "dlc list onnx              # has the operators of the domain",
        _own("dlc", "dlc-frontend-onnx"),
        (*_own("dlc-backend-c"), *_TOOLS),
    ),
}
"""Kinds of plugins that there are templates for."""
