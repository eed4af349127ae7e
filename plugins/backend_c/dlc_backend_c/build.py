"""Sources → library: one object per kernel, compiled at most once per content, then one link.

Results depend on contents only: every tool runs inside a fresh directory on relative names, and directories are mapped
away, so that two builds of one model give the same bytes.
"""

import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from dlc import Artifact, ExitCode, Job, Workshop
from dlc.base.diagnostics import error
from dlc.files.hashing import Content, OwnedFile, content_sha256, content_size
from dlc.runtime.manifest import NAME
from dlc_backend_c import manifest
from dlc_backend_c.options import Options
from dlc_backend_c.sections import Unit, interface, units
from dlc_backend_c.target import target_of
from dlc_backend_c.threads import thread_flags
from dlc_backend_c.toolchain import Toolchain, find_toolchain, run
from dlc_backend_c.weights import IN_MEMORY

_LIBRARY_FLAGS = ("-fPIC", "-fvisibility=hidden", "-ffile-prefix-map=$PWD=.")
"""Position-independent also in static libraries, which end up in shared ones."""
PROCESS_WIDE = ("-ffast-math", "-Ofast", "-funsafe-math-optimizations")
"""Flags with which gcc links what makes the whole process take tiny numbers for zero when the library is loaded."""


def build(artifact: Artifact, options: Options, workshop: Workshop) -> Artifact:
    """The artifact with `libPREFIX.so` or `libPREFIX.a`; raises DlcError (TOOL)."""
    toolchain = find_toolchain(options.cc)
    _check_cpu(toolchain, options)
    prefix = Path(artifact.entry).stem
    flags = (*target_of(options).flags, *thread_flags(options), *options.flags)
    source = manifest.read(artifact.files[f"{prefix}.c"]).decode("ascii")
    found = units(source)
    header = {artifact.entry: interface(manifest.read(artifact.files[artifact.entry]).decode("ascii")).encode("ascii")}
    limit = threading.BoundedSemaphore(options.jobs) if options.jobs else nullcontext()
    jobs = [_job(toolchain, unit, flags, header if unit.name == "main" else {}, limit) for unit in found]
    objects = dict(zip((f"{u.name}.o" for u in found), workshop.cached(jobs), strict=True))
    with tempfile.TemporaryDirectory(prefix="dlc-") as directory:
        place = Path(directory)
        for name, content in objects.items():
            (place / name).write_bytes(content)
        names = [*objects, *_weights_object(toolchain, artifact, prefix, flags, place)]
        link = _link_shared if options.lib == "shared" else _link_static
        library = _taken(link(toolchain, prefix, names, (*thread_flags(options), *options.flags), place))
    name = f"lib{prefix}.{'so' if options.lib == 'shared' else 'a'}"
    files: dict[str, Content] = {**artifact.files, name: library}
    old = manifest.from_bytes(manifest.read(files[NAME]))
    del old["files"]
    files[NAME] = manifest.to_bytes({**old, "library": name, "toolchain": toolchain.identity.splitlines()}, files)
    workshop.report.count("objects", len(objects))
    return replace(artifact, files=files, facts={**artifact.facts, "library_bytes": content_size(library)})


def _check_cpu(toolchain: Toolchain, options: Options) -> None:
    """Raises DlcError (TOOL) when the code is for a processor that the compiler builds nothing for."""
    target = target_of(options)
    name, wanted = target.cpu, target.architectures
    if wanted and toolchain.machine not in ("unknown", *wanted) and toolchain.machine.partition("-")[0] not in wanted:
        raise error(
            "wrong-compiler",
            f"the compiler {toolchain.name} builds for {toolchain.machine}, not for {name} ({wanted[0]})",
            help="for a cross compiler choose c{cpu=generic}, with the flags of the processor: "
            "c{cc=… cpu=generic flags=-mcpu=…}",
            exit_code=ExitCode.TOOL,
        )


def _job(
    toolchain: Toolchain,
    unit: Unit,
    flags: tuple[str, ...],
    headers: dict[str, bytes],
    limit: AbstractContextManager[object],
) -> Job:
    key = (
        ("unit", unit.digest),
        *(("header", f"{name} {content_sha256(content)}") for name, content in headers.items()),
        ("flags", " ".join((*flags, *_LIBRARY_FLAGS))),
        ("toolchain", toolchain.identity),
    )
    return Job("compile", unit.name, key, _compiler(toolchain, unit, flags, headers, limit))


def _compiler(
    toolchain: Toolchain,
    unit: Unit,
    flags: tuple[str, ...],
    headers: dict[str, bytes],
    limit: AbstractContextManager[object],
) -> Callable[[], bytes]:
    def make() -> bytes:
        with limit, tempfile.TemporaryDirectory(prefix="dlc-") as directory:
            place = Path(directory)
            for name, content in headers.items():
                (place / name).write_bytes(content)
            source = f"{unit.name}.c"
            (place / source).write_text(unit.text, encoding="ascii")
            _compile(toolchain, source, "unit.o", flags, place)
            return (place / "unit.o").read_bytes()

    return make


def _compile(toolchain: Toolchain, source: str, result: str, flags: tuple[str, ...], place: Path) -> None:
    library = [flag.replace("$PWD", str(place)) for flag in _LIBRARY_FLAGS]
    run((*toolchain.command, *flags, *library, "-c", source, "-o", result), place, f"compiling {source}")


def _weights_object(
    toolchain: Toolchain, artifact: Artifact, prefix: str, flags: tuple[str, ...], place: Path
) -> list[str]:
    """The object of the weights, if they belong into the library; never through the cache, because it may be huge."""
    suffix = next((s for s in (".S", ".c") if f"{prefix}_weights{s}" in artifact.files), "")
    if not suffix:
        return []
    for name in (f"{prefix}_weights{suffix}", f"{prefix}_weights.bin"):
        content = artifact.files.get(name)
        if isinstance(content, Path):
            (place / name).symlink_to(content.resolve())
        elif content is not None:
            (place / name).write_bytes(content)
    _compile(toolchain, f"{prefix}_weights{suffix}", "weights.o", flags, place)
    return ["weights.o"]


def _link_shared(toolchain: Toolchain, prefix: str, objects: list[str], flags: tuple[str, ...], place: Path) -> Path:
    name = f"lib{prefix}.so"
    # A sanitizer's functions come with the program, not with the library.
    strict = () if any(f.startswith("-fsanitize") for f in flags) else ("-Wl,-z,defs",)
    options = (
        f"-Wl,-soname,{name}",
        "-Wl,-z,relro",
        "-Wl,-z,now",
        "-Wl,-z,noexecstack",
        "-Wl,--build-id=sha1",
        *strict,
    )
    help = (
        f"the compiler builds for {toolchain.machine}: if it links no shared libraries, choose c{{lib=static}}, or "
        "c{lib=none} for the sources only; it was given the option flags, too"
    )
    flags = tuple(f for f in flags if f not in PROCESS_WIDE)
    command = (*toolchain.command, "-shared", "-o", name, *objects, *flags, *options, "-lm")
    run(command, place, f"linking {name}", help)
    return place / name


def _link_static(toolchain: Toolchain, prefix: str, objects: list[str], flags: tuple[str, ...], place: Path) -> Path:
    """One object in which hidden symbols are local, so that libraries of several models link into one program."""
    del flags
    name, whole = f"lib{prefix}.a", f"{prefix}.o"
    doing = f"linking {name}"
    run((toolchain.tool("ld"), "-r", "-o", whole, *objects), place, doing)
    run((toolchain.tool("objcopy"), "--localize-hidden", whole), place, doing)
    run((toolchain.tool("ar"), "rcsD", name, whole), place, doing)
    return place / name


def _taken(path: Path) -> bytes | OwnedFile:
    """The library, out of the directory that is about to go: in memory when it is small."""
    if path.stat().st_size <= IN_MEMORY:
        return path.read_bytes()
    kept = OwnedFile.create(path.name)
    path.replace(kept)
    return kept
