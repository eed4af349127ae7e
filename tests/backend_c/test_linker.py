"""The option section: where the linker puts weights and arena."""

import re
from pathlib import Path

import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.manifest import from_bytes, read
from dlc_backend_c.target import target_for

from dlc import Report, Spec
from dlc.base.diagnostics import DlcError
from tests.backend_c.models import plan_of, shell, small_net
from tests.tools import COMPILERS

PLACED = "c{{prefix=net cpu=generic arena=static weights={weights} section=weights:.qspi_flash,arena:.bss.dtcm}}"
CROSS = ("arm-none-eabi-gcc", *target_for("cortex-m4").flags)


def written(spec: str, folder: Path) -> dict[str, object]:
    """The files of a network in a folder; its manifest."""
    artifact = C.from_spec(Spec.parse(spec)).emit(plan_of(small_net()), Report())
    for name, content in artifact.files.items():
        (folder / name).write_bytes(read(content))
    return from_bytes(read(artifact.files["manifest.json"]))


def sections(folder: Path, command: tuple[str, ...], weights: str) -> dict[str, str]:
    """What sections of size above 64 the objects have: name and type."""
    units = ["net.c", "net_weights.c" if weights == "text" else "net_weights.S"]
    shell(*command, "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-c", *units, cwd=folder)
    shown = "".join(shell("readelf", "-SW", p.name, cwd=folder) for p in sorted(folder.glob("*.o")))
    rows = re.findall(r"\] (\.[\w.]+) +(\w+) +\w+ \w+ (\w+)", shown)
    return {name: kind for name, kind, size in rows if int(size, 16) > 64}


@pytest.mark.parametrize("weights", ["text", "incbin"])
@pytest.mark.parametrize("cc", [*COMPILERS, pytest.param(CROSS[0], marks=pytest.mark.needs(CROSS[0]))])
def test_weights_and_arena_lie_in_their_sections(cc: str, weights: str, tmp_path: Path) -> None:
    manifest = written(PLACED.format(weights=weights), tmp_path)
    found = sections(tmp_path, CROSS if cc == CROSS[0] else (cc,), weights)
    assert (found[".qspi_flash"], found[".bss.dtcm"]) == ("PROGBITS", "NOBITS")
    assert ".bss" not in found
    assert not any(name.startswith(".rodata.net") for name in found)
    assert manifest["sections"] == {"weights": ".qspi_flash", "arena": ".bss.dtcm"}
    header = (tmp_path / "net.h").read_text()
    assert '#define NET_WEIGHTS_SECTION ".qspi_flash"\n' in header
    assert '#define NET_ARENA_SECTION ".bss.dtcm"\n' in header


def test_another_compiler_has_a_word_of_its_own(tmp_path: Path) -> None:
    """The macro stands for what the compiler calls it; here for another section of gcc's."""
    written(PLACED.format(weights="text"), tmp_path)
    given = '-DNET_IN_ARENA=__attribute__((section(".bss.mine")))'
    found = sections(tmp_path, (COMPILERS[0], given), "text")
    assert ".bss.mine" in found
    assert ".bss.dtcm" not in found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("section=weights:flash,weights:ram", "weights has 2 sections"),
        ("section=code:flash", "code is none of weights, arena"),
        ("section=arena:.dtcm", "arena=static"),
        ("section=weights:.flash weights=map", "weights=map"),
        ('section="weights:a\\") evil"', "no name of a section"),
        ("section=weights:9a", "no name of a section"),
        ("section=weights:-a", "no name of a section"),
    ],
)
def test_refused(options: str, message: str) -> None:
    with pytest.raises(DlcError, match=re.escape(message)) as found:
        C.from_spec(Spec.parse(f"c{{{options}}}"))
    assert found.value.exit_code == 2


def test_without_the_option_there_is_no_section(tmp_path: Path) -> None:
    assert "sections" not in written("c{prefix=net cpu=generic arena=static weights=text}", tmp_path)
    assert not any("section(" in p.read_text() or "SECTION" in p.read_text() for p in tmp_path.glob("*.[ch]"))
