"""Configuration that the pages show is valid: every block, every target and pipeline in it, every step with options."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from dlc_backend_c.machine_file import read

from dlc.base.diagnostics import DlcError
from dlc.config.config import KEYS
from dlc.config.file import load_config
from dlc.driver.pipeline import resolve
from dlc.plugins.discovery import load_registry
from dlc.plugins.entry import Kind
from dlc.spec import Configurable, Spec
from tests.docs.blocks import PAGES, ROOT, Block, blocks

TOML = [block for page in PAGES for block in blocks(page) if block.kind == "toml"]
_KINDS: tuple[Kind, ...] = ("frontends", "backends", "passes")
_NAME = re.compile(r"(?<![\w-])[a-z][a-z0-9-]*\{")


@pytest.mark.parametrize("block", TOML, ids=str)
def test_a_block_is_a_file_that_commands_use_or_part_of_one(block: Block) -> None:
    assert block.file or block.mark.startswith("from: "), (
        f"{block}: nothing tests it; put `<!-- file: dlc.toml -->` above"
    )


@pytest.mark.parametrize("block", [b for b in TOML if b.file not in ("", "dlc.toml", "pyproject.toml")], ids=str)
def test_other_files_describe_machines(block: Block, tmp_path: Path) -> None:
    path = tmp_path / block.file
    path.write_text(block.text, encoding="utf-8")
    assert read(path).description


@pytest.mark.parametrize("block", [b for b in TOML if b.file == "dlc.toml"], ids=str)
def test_every_target_and_pipeline_of_a_block_can_be_used(block: Block, tmp_path: Path) -> None:
    (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    config = load_config(tmp_path, tmp_path / block.file, trusts=lambda _file, _text: True)
    for name, setting in config.named("target", "backend").items():
        if setting.value.name == "exec":  # the executable is compiled where the page's commands run
            assert REGISTRY.backend(setting.value)
            continue
        resolve(REGISTRY, config, name).check_end()
    for name in config.named("pipeline"):
        resolve(REGISTRY, config, "c", pipeline=name)


def specs(text: str) -> Iterator[str]:
    """Every `name{…}` with balanced braces; a `…` in it stands for options that are left out."""
    for found in _NAME.finditer(text):
        depth, at = 1, found.end()
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        if not depth and "\n" not in text[found.start() : at]:
            yield text[found.start() : at].replace("\\|", "|")


def shown(page: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of code in prose, scripts and configuration; what commands print is compared when they run."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        if block.kind in ("sh", "bash", "toml"):
            yield str(block), block.text
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", prose):
        yield page.name, code


def classes(spec: str) -> list[type[Configurable]]:
    """What the name of a spec stands for."""
    name = spec.partition("{")[0]
    return [REGISTRY.tables[kind][name].load() for kind in _KINDS if name in REGISTRY.tables[kind]]


def known(spec: str) -> bool:
    """Whether it is one of a step, frontend or backend, written out whole."""
    return not re.search("…|KEY|option=", spec) and bool(classes(spec))


def helps() -> Iterator[tuple[str, str]]:
    """(place, text) of what the command line says."""
    for path in sorted((ROOT / "dlc" / "cli").rglob("*.py")):
        yield str(path.relative_to(ROOT)), "\n".join(re.findall(r'"(.*)"', path.read_text(encoding="utf-8")))


REGISTRY = load_registry()
SOURCES = (*(pair for page in PAGES for pair in shown(page)), *((f"key {d.key}", d.doc) for d in KEYS), *helps())
TEXTS = sorted({(spec, place) for place, text in SOURCES for spec in specs(text) if known(spec)})


@pytest.mark.parametrize(("text", "place"), TEXTS)
def test_options_in_a_text_exist(text: str, place: str) -> None:
    problems: list[str] = []
    for kind in classes(text):
        try:
            kind.from_spec(Spec.parse(text))
            return
        except DlcError as problem:
            problems.append(str(problem))
    raise AssertionError(f"{place}: {text}: {problems}")


def test_there_are_texts() -> None:
    assert {"c{cpu=generic}", "fuse{max-nests=4}", "s2train{isa=v1}"} <= {spec for spec, _ in TEXTS}
