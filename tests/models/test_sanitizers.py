"""Generated sources as a user compiles them: every warning an error, both sanitizers, no library of ours."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest

from dlc.api.program import Signature
from dlc.runtime.manifest import read_manifest
from tests.models.building import Bench, assert_close, reference
from tests.models.writing import Array
from tests.models.zoo import bert, gpt, light, mobilenet_v2
from tests.tools import COMPILERS, SANITIZE, SANITIZING

# `native` may use vector extensions of the compilers; `generic` is the language and nothing else.
STRICT: Mapping[str, tuple[str, ...]] = {
    "generic": ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"),
    "x86-64-v3": ("-std=c99", "-Wall", "-Wextra", "-Werror", "-march=x86-64-v3"),
}
# Not optimised, or clang takes longer to instrument one network than all others take to run.
CHECKED = ("-O0", "-g0", *SANITIZE)


def shared(name: str) -> onnx.ModelProto:
    """One of the models that the tests bring along."""
    return onnx.load_from_string((Path(__file__).parent.parent / "data" / "models" / name / "model.onnx").read_bytes())


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "shufflenet": lambda: light("shufflenet", seed=2),
    "mobilenet": lambda: mobilenet_v2(size=64),
    "bert": lambda: bert(layers=1, norm="decomposed"),
    "gpt": lambda: gpt(layers=1, past=3, length=5),
    # Its kernels work in memory of the arena where there are vectors.
    "tinyvit": lambda: shared("tinyvit"),
}
# Every buffer has its exact size, so that the sanitizer sees one byte too many; the arena starts as rubbish.
DRIVER = """
#define _POSIX_C_SOURCE 200112L
#include "{prefix}.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *{prefix}_buffer(size_t bytes)
{{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes))
        abort();
    memset(p, 0xff, bytes);
    return p;
}}

/* Reads {prefix}_in_K.bin, runs twice, writes {prefix}_out_K.bin. */
int {prefix}_drive(void)
{{
    static const size_t in_bytes[] = {{ {in_bytes} }}, out_bytes[] = {{ {out_bytes} }};
    enum {{ INS = sizeof in_bytes / sizeof *in_bytes, OUTS = sizeof out_bytes / sizeof *out_bytes }};
    void *in[INS], *out[OUTS], *arena = {prefix}_buffer({macro}_ARENA_BYTES);
    const void *read_only[INS];
    char name[64];
    int k, status = 0;
    for (k = 0; k < INS; k++) {{
        FILE *file;
        sprintf(name, "{prefix}_in_%d.bin", k);
        file = fopen(name, "rb");
        read_only[k] = in[k] = {prefix}_buffer(in_bytes[k]);
        if (!file || fread(in[k], 1, in_bytes[k], file) != in_bytes[k] || fclose(file))
            abort();
    }}
    for (k = 0; k < OUTS; k++)
        out[k] = {prefix}_buffer(out_bytes[k]);
    status |= {prefix}_run(read_only, out, arena);
    status |= {prefix}_run(read_only, out, arena);
    for (k = 0; k < OUTS; k++) {{
        FILE *file;
        sprintf(name, "{prefix}_out_%d.bin", k);
        file = fopen(name, "wb");
        if (!file || fwrite(out[k], 1, out_bytes[k], file) != out_bytes[k] || fclose(file))
            abort();
        free(out[k]);
    }}
    for (k = 0; k < INS; k++)
        free(in[k]);
    free(arena);
    return status;
}}
"""
THREADS = """
#define _POSIX_C_SOURCE 200112L
#include "{prefix}.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {{ THREADS = 2, ROUNDS = 5 }};
static float first[THREADS][{macro}_OUTPUT_0_SIZE];

static void *work(void *number)
{{
    int self = *(int *)number, k;
    float *in = malloc({macro}_INPUT_0_BYTES), *out = malloc({macro}_OUTPUT_0_BYTES);
    void *arena = NULL;
    long wrong = 0;
    if (!in || !out || posix_memalign(&arena, {macro}_ARENA_ALIGN, {macro}_ARENA_BYTES))
        abort();
    for (k = 0; k < {macro}_INPUT_0_SIZE; k++)
        in[k] = (float)((k * (self + 3)) % 17) / 17.0f;
    for (k = 0; k < ROUNDS; k++) {{
        const void *read_only[1];
        void *written[1];
        read_only[0] = in;
        written[0] = out;
        wrong |= {prefix}_run(read_only, written, arena);
        if (first[self][0] == 0)
            memcpy(first[self], out, sizeof first[self]);
        wrong |= memcmp(first[self], out, sizeof first[self]) != 0;
    }}
    free(in);
    free(out);
    free(arena);
    return wrong ? (void *)first : NULL;
}}

/* Each number's work alone, then all at once: the same bits. */
int main(void)
{{
    pthread_t threads[THREADS];
    int numbers[THREADS], k, wrong = 0;
    for (k = 0; k < THREADS; k++) {{
        numbers[k] = k;
        wrong |= work(&numbers[k]) != NULL;
    }}
    for (k = 0; k < THREADS; k++)
        if (pthread_create(&threads[k], NULL, work, &numbers[k]))
            abort();
    for (k = 0; k < THREADS; k++) {{
        void *result;
        pthread_join(threads[k], &result);
        wrong |= result != NULL;
    }}
    return wrong || !memcmp(first[0], first[1], sizeof first[0]);
}}
"""


@dataclass(frozen=True)
class Sources:
    """Generated sources of one model in a directory of their own."""

    directory: Path
    model: Path
    prefix: str

    @property
    def signature(self) -> Signature:
        return read_manifest(self.directory).signature

    def write(self, template: str, name: str) -> None:
        """A driver beside the sources."""
        macro = self.prefix.upper()
        signature = self.signature
        text = template.format(
            prefix=self.prefix,
            macro=macro,
            in_bytes=", ".join(f"{macro}_INPUT_{k}_BYTES" for k in range(len(signature.inputs))),
            out_bytes=", ".join(f"{macro}_OUTPUT_{k}_BYTES" for k in range(len(signature.outputs))),
        )
        (self.directory / name).write_text(text)

    @property
    def files(self) -> tuple[str, str]:
        return f"{self.prefix}.c", f"{self.prefix}_weights.S"


def sources(
    bench: Bench, model: onnx.ModelProto, directory: Path, cpu: str, prefix: str = "model", *flags: str
) -> Sources:
    """Built for `cpu`, after whose name options of the target may follow, with a driver beside them."""
    built = bench.compile(model, directory, *flags, target=f"c{{cpu={cpu} lib=none prefix={prefix}}}")
    found = Sources(built.directory, built.source, prefix)
    found.write(DRIVER, f"{prefix}_drive.c")
    return found


def shell(*command: str, cwd: Path) -> str:
    """Run a command that must succeed and say nothing on stderr."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, f"{' '.join(command)}: {done.returncode}\n{done.stderr[-4000:]}"
    return done.stdout


def feeds_of(signature: Signature, seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {
        port.name: np.asarray(
            generator.standard_normal(port.type.shape)
            if port.type.dtype.is_float
            else generator.integers(0, 2, port.type.shape),
            port.type.dtype.numpy,
        )
        for port in signature.inputs
    }


def run_and_compare(program: str, directory: Path, *parts: Sources) -> None:
    """Feed a driver through files and hold its outputs against onnxruntime's."""
    given = {part.prefix: feeds_of(part.signature, seed) for seed, part in enumerate(parts)}
    for part in parts:
        for k, array in enumerate(given[part.prefix].values()):
            array.tofile(directory / f"{part.prefix}_in_{k}.bin")
    shell(program, cwd=directory)
    for part in parts:
        got = {
            port.name: np.fromfile(directory / f"{part.prefix}_out_{k}.bin", port.type.dtype.numpy).reshape(
                port.type.shape
            )
            for k, port in enumerate(part.signature.outputs)
        }
        assert_close(got, reference(part.model, given[part.prefix]))


ONCE = {"shufflenet": "x86-64-v3", "mobilenet": "generic"}
"""Networks of many convolutions take longest: one processor each, and both have convolutions of every kind."""
CASES = [(name, cpu) for name in MODELS for cpu in STRICT if ONCE.get(name, cpu) == cpu]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture(scope="module")
def cpu(case: tuple[str, str]) -> str:
    return case[1]


@pytest.fixture(scope="module")
def generated(case: tuple[str, str], bench: Bench) -> Generator[Sources]:
    name, cpu = case
    with TemporaryDirectory(prefix="dlc-sanitizers-") as directory:
        found = sources(bench, MODELS[name](), Path(directory), cpu)
        (found.directory / "main.c").write_text("int model_drive(void);\nint main(void) { return model_drive(); }\n")
        yield found


@pytest.mark.parametrize("cc", COMPILERS)
def test_no_warning_from_an_optimising_compiler(cc: str, cpu: str, generated: Sources) -> None:
    shell(cc, *STRICT[cpu], "-O2", "-c", "model.c", "-o", f"model_{cc}.o", cwd=generated.directory)


@pytest.mark.parametrize("cc", SANITIZING)
def test_no_warning_and_no_fault_under_the_sanitizers(cc: str, cpu: str, generated: Sources) -> None:
    command = (cc, *STRICT[cpu], *CHECKED, *generated.files, "model_drive.c", "main.c", "-lm", "-o", f"program_{cc}")
    shell(*command, cwd=generated.directory)
    run_and_compare(f"./program_{cc}", generated.directory, generated)


def test_nothing_writable_belongs_to_the_program(generated: Sources, cpu: str) -> None:
    shell("gcc", *STRICT[cpu], "-O0", "-c", "model.c", "-o", "model.o", cwd=generated.directory)
    symbols = [line.split()[-2:] for line in shell("nm", "model.o", cwd=generated.directory).splitlines()]
    assert ["T", "model_run"] in symbols
    assert [name for kind, name in symbols if kind in "bBdDcC"] == []


@pytest.mark.parametrize("cc", SANITIZING)
def test_two_models_in_one_program(cc: str, bench: Bench, place: Path) -> None:
    first = sources(bench, bert(layers=1), place / "first", "generic", "first")
    second = sources(bench, gpt(layers=1), place / "second", "generic", "second")
    together = place / "together"
    together.mkdir()
    for part in (first, second):
        for file in part.directory.iterdir():
            (together / file.name).write_bytes(file.read_bytes())
    (together / "main.c").write_text(
        "int first_drive(void), second_drive(void);\nint main(void) { return first_drive() | second_drive(); }\n"
    )
    files = (*first.files, *second.files, "first_drive.c", "second_drive.c", "main.c")
    shell(cc, *STRICT["generic"], *CHECKED, *files, "-lm", "-o", "program", cwd=together)
    run_and_compare("./program", together, first, second)


@pytest.mark.parametrize("cc", SANITIZING)
def test_two_threads_with_an_arena_each(cc: str, bench: Bench, place: Path) -> None:
    found = sources(bench, mobilenet_v2(size=64), place, "x86-64-v3")
    found.write(THREADS, "threads.c")
    command = (cc, *STRICT["x86-64-v3"], *CHECKED, "-pthread", *found.files, "threads.c", "-lm", "-o", "program")
    shell(*command, cwd=found.directory)
    shell("./program", cwd=found.directory)
