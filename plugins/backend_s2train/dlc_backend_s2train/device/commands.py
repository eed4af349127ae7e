"""`dlc asm`, `dlc disasm` and `dlc board`: tools around files and the device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dlc.base.diagnostics import ExitCode, error

Fast = Annotated[bool, typer.Option("--fast", help="Add by numpy's matrix products, not in the order of the device.")]
Text = Annotated[Path, typer.Argument(metavar="FILE.s2a", help="The text of a program, as dlc disasm prints it.")]
File = Annotated[Path, typer.Argument(metavar="FILE.s2t", help="A program for S2Train.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")]
Unchecked = Annotated[bool, typer.Option("--unchecked", help="Write programs too that the verifier finds wrong.")]

Folder = Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="Directory of the sources.")]
Sources = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write the C sources of a board that speaks to this command, and end."),
]


def asm(text: Text, output: Output = None, unchecked: Unchecked = False) -> None:
    """Assemble the text of an S2Train program into a .s2t file.

    dlc asm of what dlc disasm prints gives the same bytes. A program that the verifier finds wrong is not written.

    Example: dlc disasm net.s2t -o net.s2a; dlc asm net.s2a -o again.s2t
    """
    from dlc import Source
    from dlc.files.writing import write_whole
    from dlc_backend_s2train.checks import verified
    from dlc_backend_s2train.container import read
    from dlc_backend_s2train.container.assembly import assembled

    target = output or text.with_suffix(".s2t")
    try:
        source = bytes(Source(text).view()).decode()
    except UnicodeDecodeError as problem:
        message = f"{text} is no text: {problem.reason} at byte {problem.start}"
        raise error("syntax", message, help="give what dlc disasm wrote", exit_code=ExitCode.USAGE) from None
    program, content = assembled(source, str(text))
    if not unchecked:
        verified(read(memoryview(content), str(target)))
    write_whole(target, content)
    typer.echo(f"{target}: {len(program.instructions):,} instructions, {len(content):,} B")


def disasm(file: File, output: Output = None) -> None:
    """Print all of a .s2t file as text for dlc asm, or write it to a file.

    Example: dlc disasm net.s2t | less
    """
    from dlc import Source
    from dlc.files.writing import write_whole
    from dlc_backend_s2train.container.listing import disassembled

    text = disassembled(Source(file).view(), str(file))
    if output:
        write_whole(output, text.encode())
    else:
        typer.echo(text, nl=False)


def host_functions(file: File, output: Folder = None) -> None:
    """Write the functions of the host of a .s2t file as C sources, for its driver: beside the file, or to a directory.

    They are compiled for the target c, in the order of dlc's own sums; without functions nothing is written.

    Example: dlc host-functions out/net.s2t
    """
    from dlc import Source
    from dlc.files.writing import write_whole
    from dlc_backend_s2train.container.files import check
    from dlc_backend_s2train.device.host_sources import host_sources

    found = host_sources(check(Source(file)).program, file.stem)
    for name, content in found.items():
        write_whole((output or file.parent) / name, content, make_directory=True)
        typer.echo(f"{(output or file.parent) / name}")
    if not found:
        typer.echo(f"{file} has no functions of the host")


def board(fast: Fast = False, source: Sources = None) -> None:
    """Simulate an S2Train device on standard input and output, for host drivers and dlc run --device.

    The protocol is described in docs/s2train-host.md. The device ends when its input does.

    Example: dlc run net.s2t --device 'dlc board'
    """
    from dlc.files.writing import write_whole
    from dlc_backend_s2train.device import C_SOURCES
    from dlc_backend_s2train.device.board import Board

    if source is None:
        Board("fast" if fast else "bit-true").serve(sys.stdin.buffer, sys.stdout.buffer)
        return
    for name in ("s2t_board.h", "s2t_simulator.h", "s2t_simulator.c"):
        write_whole(source / name, (C_SOURCES / name).read_bytes(), make_directory=True)
        typer.echo(f"{source / name}")
