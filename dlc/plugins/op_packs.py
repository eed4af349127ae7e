"""What op packs offer: ops, and import rules for ONNX. Packs come from plugins, or from paths that the user names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dlc.files.inputs import active
from dlc.op_packs.libraries import check_libraries
from dlc.plugins.entry import Entry, Kind
from dlc.plugins.own_paths import paths_of
from dlc.plugins.plugin import Plugin

if TYPE_CHECKING:
    from dlc.op_packs.load import Pack

PACKS_MODULE: Final = "dlc.op_packs"
"""The module of the packs that the user names: what acts is dlc's own code."""


def named_packs(paths: Iterable[Path]) -> Iterator[tuple[Plugin, Path]]:
    """The packs at paths, each as a plugin of its own. Raises DlcError (PLUGIN): there is none, or it is not sound."""
    if not (paths := tuple(paths)):
        return
    check_libraries()
    from dlc.op_packs.load import pack_files

    for path in paths:
        for file in pack_files(path):
            yield Plugin(str(file), PACKS_MODULE, "op pack", content_digest((file,))[:12]), file


def content_digest(paths: Iterable[Path]) -> str:
    """SHA-256 of the packs at paths; of a path where nothing can be read, of nothing."""
    found = sha256()
    for path in paths:
        files = sorted(p for p in path.iterdir() if p.name.endswith(".ops.yaml")) if path.is_dir() else (path,)
        for file in files:
            content = active().open(file).view() if file.is_file() else b""
            found.update(f"{file.name} {len(content)}\n".encode())
            found.update(content)
    return found.hexdigest()


def plugin_packs(plugin: Plugin, offered: object) -> Iterator[Path]:
    """The files behind what a hook returns. Raises WrongResult: it is no path into the plugin's package."""
    check_libraries()
    from dlc.op_packs.load import pack_files

    for path in paths_of(plugin, "dlc_op_packs", offered):
        yield from pack_files(path)


def pack_entries(plugin: Plugin, file: Path, kinds: Iterable[Kind]) -> Iterator[Entry]:
    """What the pack in a file offers of these kinds. Raises DlcError (PLUGIN): it is not sound."""
    from dlc.op_packs.load import load_pack
    from dlc.op_packs.onnx_rules import pack_rules

    pack: Pack = load_pack(file)
    if "ops" in kinds:
        for kind in pack.classes:
            yield Entry("ops", kind.text_name, plugin.name, plugin.module, kind, plugin.is_own)
    if "onnx_rules" in kinds:
        for rules in pack_rules(pack, plugin.module):
            yield Entry("onnx_rules", rules.name, plugin.name, plugin.module, rules, plugin.is_own)
