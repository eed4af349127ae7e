"""C programs that train through a host driver and the simulated board, and the same steps by dlc."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dlc_backend_s2train.device import C_SOURCES

import dlc
from tests.tools import SANITIZE

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "@NAME@_host.h"
#include "s2t_simulator.h"

static void *whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) exit(90);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(*size ? *size : 1);
    if (!data || fread(data, 1, *size, file) != *size) exit(91);
    fclose(file);
    return data;
}

/* program, floats of all steps, labels of all steps, steps, command of the device -> stdout: losses, tensors */
int main(int count, char **arguments)
{
    size_t size, floats, labels;
    if (count < 6) return 92;
    void *file = whole(arguments[1], &size);
    float *x = whole(arguments[2], &floats);
    int32_t *y = whole(arguments[3], &labels);
    int steps = atoi(arguments[4]);
    void *board = s2t_open(arguments[5]);
    @NAME@_host host;
    static float values[@MOST@];
    float loss;
    int status = board ? @NAME@_load(&host, board, file, size) : 93;
    for (int k = 0; k < steps && !status; k++) {
        status = @NAME@_step(&host, x + k * @X@, y + k * @Y@, &loss);
        fwrite(&loss, 4, 1, stdout);
    }
    @GETS@
    if (status)
        fprintf(stderr, "instruction %d: %s: %s\\n", (int)host.instruction, @NAME@_problem(status),
                board ? s2t_problem(board) : "");
    else if (!s2t_time(board))
        status = 94;
    s2t_close(board);
    free(file);
    free(x);
    free(y);
    return status;
}
"""
FLAGS = ("-std=c99", "-O0", "-g", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-pedantic")
SERVE = (
    "from dlc_backend_s2train.device.board import Board; import sys; Board().serve(sys.stdin.buffer, sys.stdout.buffer)"
)
BOARD = f"{sys.executable} -c '{SERVE}'"
"""What `dlc board` does, without the command line around it."""


def compiled(place: Path, program: Path, x: int, y: int, compiler: str, sanitize: Sequence[str] = SANITIZE) -> Path:
    """The C program of a training program's directory: `x` floats and `y` labels a step."""
    (header,) = program.glob("*_host.h")
    name, text = header.name.removesuffix("_host.h"), header.read_text()
    kept = kept_tensors(program)
    gets = [f"if (!status && !(status = {name}_get(&host, {n}, values)))" for n, _ in kept.values()]
    writes = [f"fwrite(values, 4, {count}, stdout);" for _, count in kept.values()]
    main = MAIN.replace("@NAME@", name).replace("@MOST@", str(max(c for _, c in kept.values())))
    main = main.replace("@X@", str(x)).replace("@Y@", str(y))
    main = main.replace("@GETS@", "\n    ".join(f"{g}\n        {w}" for g, w in zip(gets, writes, strict=True)))
    assert f"int {name}_load(" in text
    (place / "main.c").write_text(main)
    sources = [place / "main.c", program / f"{name}_host.c", C_SOURCES / "s2t_simulator.c"]
    made = place / f"train_{compiler}"
    folders = [f"-I{program}", f"-I{C_SOURCES}"]
    # The test's own main converts sizes as it likes.
    objects: list[Path] = []
    for source in sources:
        flags = [f for f in FLAGS if f != "-Wconversion" or source.name != "main.c"]
        objects.append(place / f"{source.stem}_{compiler}.o")
        subprocess.run([compiler, *flags, *sanitize, *folders, "-c", source, "-o", objects[-1]], check=True)
    subprocess.run([compiler, *sanitize, *objects, "-lm", "-o", made], check=True)
    return made


def kept_tensors(program: Path) -> Mapping[str, tuple[int, int]]:
    """Name in the header → number and elements of tensors that updates write."""
    (header,) = program.glob("*_host.h")
    found = re.findall(r"#define \w+?_TENSOR_(\w+) (\d+) /\* ([0-9 x]+) \*/", header.read_text())
    return {name: (int(n), int(np.prod([int(d) for d in shape.split(" x ")]))) for name, n, shape in found}


def driven(made: Path, file: Path, data: Sequence[tuple[Any, Any]], board: str = BOARD) -> tuple[bytes, str, int]:
    """Losses and tensors after steps on batches, messages, exit status."""
    place = made.parent
    (place / "x.bin").write_bytes(b"".join(np.asarray(x, np.float32).tobytes() for x, _ in data))
    (place / "y.bin").write_bytes(b"".join(np.asarray(y, np.int32).tobytes() for _, y in data))
    line = [made, file, place / "x.bin", place / "y.bin", str(len(data)), board]
    done = subprocess.run(line, capture_output=True, check=False)
    return done.stdout, done.stderr.decode(), done.returncode


def simulated(program: Path, data: Sequence[tuple[Any, Any]]) -> tuple[bytes, list[float]]:
    """The same by `dlc.load`, which is what `dlc train` calls; and the loss scales before and after each step."""
    trained: Any = dlc.load(program)
    losses: list[float] = []
    scales = [trained.scale.scale]
    for x, y in data:
        losses.append(trained.train_step(x, y))
        scales.append(trained.scale.scale)
    tensors = [trained.machine.read(number) for number, _ in kept_tensors(program).values()]
    held = b"".join(t.astype(np.float32).tobytes() for t in tensors)
    return struct.pack(f"<{len(losses)}f", *losses) + held, scales


CALL = """
#include <stdio.h>
#include <stdlib.h>
#include "h_host.h"
#include "s2t_simulator.h"

/* program, command of the device; x on stdin -> y on stdout */
int main(int count, char **arguments)
{
    static unsigned char file[65536];
    float x[36], y[36];
    FILE *stream = count > 2 ? fopen(arguments[1], "rb") : 0;
    if (!stream || fread(x, 4, 36, stdin) != 36) return 92;
    size_t size = fread(file, 1, sizeof file, stream);
    fclose(stream);
    void *board = s2t_open(arguments[2]);
    h_host host;
    int status = board ? h_load(&host, board, file, size) : 93;
    if (!status) status = h_predict(&host, x, y);
    if (!status) fwrite(y, 4, 36, stdout);
    s2t_close(board);
    return status;
}
"""


def called(place: Path, file: Path, sources: Sequence[Path], x: Any, compiler: str) -> bytes:
    """The output of the program `h` made of the driver and the sources of its functions."""
    (place / "call.c").write_text(CALL)
    folders = [f"-I{file.parent}", f"-I{C_SOURCES}"]
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", *SANITIZE, *folders]
    units = [place / "call.c", C_SOURCES / "s2t_simulator.c", *sources]
    subprocess.run([compiler, *flags, *units, "-lm", "-o", place / "call"], check=True)
    line = [place / "call", file, BOARD]
    return subprocess.run(line, input=np.asarray(x, np.float32).tobytes(), capture_output=True, check=True).stdout
