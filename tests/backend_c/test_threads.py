"""Programs for several threads: the same bits for every number of them and whoever runs them, and nothing undefined."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.function import c_function
from dlc_backend_c.options import AUTO_THREADS
from dlc_backend_c.target import X86_64_V3, target_of
from dlc_backend_c.training_runtime import TrainingModel

import dlc.kernel.schedules.parallel
from dlc import DlcError, Spec
from dlc.kernel.cook_toom import cook_toom
from dlc.kernel.schedules.winograd_estimate import block_size
from dlc.kernel.text import parse_kernel
from dlc.runtime.manifest import read_manifest
from tests.backend_c.bundles import bundle_of, trainer
from tests.backend_c.models import Bench as Objects
from tests.backend_c.models import shell
from tests.models.building import Bench, Built, random_inputs
from tests.models.writing import Writer
from tests.models.zoo import bert, light, mlp
from tests.tools import COMPILERS, SANITIZE, SANITIZE_THREADS, SANITIZING, THREAD_SANITIZING
from tests.training.nets import NETS, module_of

Maker = Callable[[], onnx.ModelProto]
PROGRAM = Path(__file__).parent / "programs" / "threads.c"
PLACES = PROGRAM.with_name("places.c")
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wno-psabi")
MOST = 8
POOLS = ("own", "openmp", "caller")
MACHINE = 'vector-bytes = 32\nl2 = "256KiB"\n'
"""The operands of `product` do not fit its cache, and are copied part by part: each thread has its own."""


@pytest.fixture(scope="module", autouse=True)
def eager() -> Generator[None]:
    """Loops are shared although they are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dlc.kernel.schedules.parallel, "REGION", 50.0)
        yield


@pytest.fixture(scope="module")
def folder() -> Generator[Path]:
    with TemporaryDirectory(prefix="dlc-threads-") as place:
        yield Path(place)


@pytest.fixture(scope="module")
def builds(folder: Path) -> Bench:
    """With a cache of its own: what is shared here would not be elsewhere."""
    return Bench(folder / "cache")


def convolutions(batch: int | str = 1) -> onnx.ModelProto:
    """Convolutions, a product of two activations, whose operands are copied in panels, and sums along rows."""
    w = Writer(3)
    same: Mapping[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    x = w.op("Relu", w.op("Conv", "x", w.weight(16, 3, 3, 3, fan_in=27), w.normal(16), **same))
    x = w.op("Tanh", w.op("Conv", x, w.weight(40, 16, 3, 3, fan_in=144), w.normal(40), **same))
    rows = w.op("Reshape", x, w.constant([0, 40, 144]))
    squares = w.op("Flatten", w.op("MatMul", rows, w.op("Transpose", rows, perm=[0, 2, 1])))
    pooled = w.op("Flatten", w.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    x = w.op("MatMul", w.op("Concat", pooled, squares, axis=1), w.weight(3040, 40, fan_in=3040))
    y = w.op("LogSoftmax", x, axis=-1)
    return w.model("convolutions", {"x": (np.float32, (batch, 3, 12, 12))}, {y: (np.float32, (batch, 40))})


def product() -> onnx.ModelProto:
    """Both operands are copied, so that each thread works in a part of the arena."""
    w = Writer(0)
    ports = {"a": (np.float32, (128, 512)), "b": (np.float32, (512, 512))}
    return w.model("product", ports, {w.op("MatMul", "a", "b"): (np.float32, (128, 512))})


MODELS: Mapping[str, tuple[Maker, Sequence[str]]] = {
    "convolutions": (convolutions, ()),
    "product": (product, ()),
    "mlp": (lambda: mlp(batch=4), ()),
    "bert": (lambda: bert(layers=1, norm="decomposed"), ()),
    "sizes": (lambda: convolutions("batch"), ("--dim", "batch=1..6")),
}


NOT_OPTIMISED = ("bert", "sizes")
"""Of these the text is tried; what compilers make of such loops is looked at in the others."""


def reverse(program: Any) -> Any:
    """A `parallel_for` that takes numbers from the last to the first, given to a program; it must be kept."""
    library = program._library

    @library.ffi.callback("void(void *, void (*)(void *, size_t), size_t, void *)")
    def backwards(context: Any, body: Any, count: int, user: Any) -> None:
        del user
        backwards_calls.append(count)
        for k in reversed(range(count)):
            body(context, k)

    backwards_calls: list[int] = []
    library.function("set_parallel_for")(backwards, library.ffi.NULL)
    return backwards, backwards_calls


def built(builds: Bench, folder: Path, name: str, target: str) -> Built:
    make, flags = MODELS[name]
    machine = folder / "small.toml"
    machine.write_text(MACHINE)
    spec = f"c{{machine={machine} {target}}}"
    return builds.compile(make(), folder / name / target.replace(" ", "-"), *flags, target=spec)


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        *(("convolutions", pool) for pool in POOLS),
        ("product", "own"),
        ("product", "caller"),
        ("bert", "own"),
        ("sizes", "own"),
    ],
)
def test_equal_bits(name: str, pool: str, builds: Bench, folder: Path) -> None:
    level = "flags=-O0" if name in NOT_OPTIMISED else ""
    alone = built(builds, folder, name, f"threads=1 {level}").program
    found = built(builds, folder, name, f"threads={MOST} pool={pool} {level}")
    assert "dlc_parallel(dlc_" in next(found.directory.glob("*.c")).read_text()
    assert read_manifest(found.directory).data["threads"] == str(MOST)
    program: Any = found.program
    open_ = name == "sizes"
    given = (
        [{"x": np.random.default_rng(n).standard_normal((n, 3, 12, 12), np.float32)} for n in (1, 5, 6)]
        if open_
        else [random_inputs(alone)]
    )

    def check() -> None:
        for feeds in given:
            arrays: dict[str, Any] = dict(feeds)
            want, got = alone(**arrays), program(**arrays)
            assert all(np.array_equal(got[k], want[k]) for k in want)

    check()
    if pool == "own":
        for threads in (1, 2, 3, MOST, 100):
            assert program._library.function("threads_start")(threads) == min(threads, MOST)
            check()
        program._library.function("threads_stop")()
        check()
    elif pool == "caller":
        kept, calls = reverse(program)
        check()
        assert kept and calls and max(calls) <= MOST


def test_what_threads_work_in_is_there_once_for_each() -> None:
    kernel = parse_kernel(
        "kernel(f32[256,300], f32[512,300]) -> (f32[256,512]) {\n k<300: r0[i,j] += p0[i,k]*p1[j,k]\n}"
    )
    of = [replace(X86_64_V3, threads=n) for n in (1, MOST)]
    one, many = (c_function(kernel, "f", t, schedule="tiles{columns=1 panels=yes}").workspace for t in of)
    assert 0 < MOST * one == many


def test_training_steps(folder: Path) -> None:
    net = NETS["conv"]
    found: dict[int, TrainingModel] = {}
    for threads in (1, MOST):
        spec = f"c{{prefix=net threads={threads} flags=-O0}}"
        place = folder / f"training-{threads}"
        place.mkdir()
        bundle = bundle_of(net.graph(module_of(net)), "optimizer=adam{lr=0.01}", backend=C.from_spec(Spec.parse(spec)))
        found[threads] = trainer(bundle, place, Objects(), spec)
    losses = {n: [m.train_step(x, y) for x, y in net.batches(4)] for n, m in found.items()}
    assert losses[1] == losses[MOST]
    one, many = ({k: v.tobytes() for k, v in m.parameters().items()} for m in found.values())
    assert one == many


@pytest.fixture(scope="module")
def sources(builds: Bench, folder: Path) -> Callable[[str], Path]:
    def write(pool: str, threads: str = str(MOST)) -> Path:
        return built(
            builds, folder, "convolutions", f"threads={threads} pool={pool} lib=none weights=text prefix=net"
        ).directory

    return write


def run(place: Path, cc: str, pool: str, *flags: str, main: Path = PROGRAM) -> None:
    own = {"own": ("-pthread",), "openmp": ("-fopenmp",), "caller": ("-pthread",)}[pool]
    macro = f"-DPOOL={pool.upper()}"
    program = f"{main.stem}-{cc}-{'-'.join(f.strip('-').partition('=')[0] for f in flags)}"
    command = (cc, *STRICT, "-O0", *own, *flags, macro, str(main), "net.c", "net_weights.c", "-I.", "-lm")
    shell(*command, "-o", program, cwd=place)
    assert not shell(f"./{program}", cwd=place)


@pytest.mark.parametrize("pool", ["own", "caller"])
@pytest.mark.parametrize("cc", SANITIZING)
def test_memory_and_behaviour(cc: str, pool: str, sources: Callable[[str], Path]) -> None:
    run(sources(pool), cc, pool, *SANITIZE)


@pytest.mark.parametrize("pool", ["own", "caller"])
def test_children(pool: str, sources: Callable[[str], Path]) -> None:
    """Not under a sanitizer: they look for the threads of the parent."""
    run(sources(pool), COMPILERS[0], pool, "-DFORK")


@pytest.mark.parametrize("pool", ["own", "caller"])
@pytest.mark.parametrize("cc", THREAD_SANITIZING)
def test_races(cc: str, pool: str, sources: Callable[[str], Path]) -> None:
    run(sources(pool), cc, pool, *SANITIZE_THREADS, "-g")


@pytest.mark.parametrize("cc", THREAD_SANITIZING[:1])
def test_systems_without_affinity(cc: str, sources: Callable[[str], Path]) -> None:
    """They use all threads, here more than there are processors."""
    run(sources("own"), cc, "own", *SANITIZE_THREADS, "-g", "-DNET_NO_AFFINITY")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_threads_stay_off_the_processor_of_their_caller(sources: Callable[[str], Path]) -> None:
    """Unless the process is restricted, or somebody has pinned them."""
    run(sources("own"), COMPILERS[0], "own", main=PLACES)


@pytest.mark.parametrize("cc", THREAD_SANITIZING[:1])
def test_compilers_without_atomics(cc: str, sources: Callable[[str], Path]) -> None:
    run(sources("own"), cc, "own", *SANITIZE_THREADS, "-DNET_NO_ATOMICS")


@pytest.mark.parametrize("cc", COMPILERS[:1])
def test_openmp(cc: str, sources: Callable[[str], Path]) -> None:
    run(sources("openmp"), cc, "openmp")


@pytest.mark.parametrize("cc", COMPILERS)
def test_openmp_is_not_needed(cc: str, sources: Callable[[str], Path]) -> None:
    place = sources("openmp")
    shell(cc, *STRICT, "-c", "net.c", "-o", "net.o", cwd=place)


def test_as_many_as_the_process_may_use(sources: Callable[..., Path], builds: Bench, folder: Path) -> None:
    place = sources("own", "auto")
    assert f"#define NET_THREADS {AUTO_THREADS}\n" in (place / "net.h").read_text()
    shell(COMPILERS[0], *STRICT, "-O0", "-c", "net.c", "-o", "net.o", cwd=place)
    program: Any = built(builds, folder, "mlp", "threads=auto").program
    start = program._library.function("threads_start")
    assert start(0) == min(AUTO_THREADS, len(os.sched_getaffinity(0)))
    assert start(AUTO_THREADS) == AUTO_THREADS
    program._library.function("threads_stop")()


@pytest.mark.parametrize(
    ("spec", "found", "parts"),
    [
        ("threads=4", 2, 2),
        ("threads=auto", 2, 2),
        ("threads=4", 8, 4),
        ("threads=4", 1, 2),
        ("threads=2", 1, 2),
        ("threads=4 cpu=x86-64-v3", 2, 4),
    ],
)
def test_loops_are_cut_for_threads_that_work_at_a_time(
    spec: str, found: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this machine: of another one nobody knows how many processors it has."""
    monkeypatch.setattr("dlc_backend_c.target.cores", lambda: found)
    options = C.from_spec(Spec.parse(f"c{{{spec}}}"))
    target = target_of(options)
    assert (target.machine.parallelism, target.machine.threads) == (parts, options.most_threads)
    few, many = (replace(target.machine, threads=8, cores=n) for n in (2, 8))
    tiles = cook_toom(4, 3)
    assert block_size(49, 64, 256, tiles, few) > block_size(49, 64, 256, tiles, many)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.uses("clang")
def test_programs_with_nothing_to_share(pool: str, builds: Bench, folder: Path) -> None:
    """They have the same interface."""
    w = Writer(0)
    model = w.model("tiny", {"x": (np.float32, (2,))}, {w.op("Neg", "x"): (np.float32, (2,))})
    target = f"c{{threads=2 pool={pool} lib=none prefix=net}}"
    place = builds.compile(model, folder / f"tiny-{pool}", target=target).directory
    assert "dlc_parallel" not in (place / "net.c").read_text()
    for cc in COMPILERS:
        shell(cc, *STRICT, "-c", "net.c", "-o", "net.o", cwd=place)


def test_programs_of_one_unit(builds: Bench, folder: Path, sources: Callable[[str], Path]) -> None:
    """Two programs with the same kernels in one file: each has threads of its own."""
    first = sources("own")
    other = built(builds, folder, "convolutions", "threads=3 lib=none weights=text prefix=other").directory
    main = "int main(void)\n{\n    net_threads_stop();\n    other_threads_stop();\n    return 0;\n}\n"
    (folder / "both.c").write_text(f'#include "{first}/net.c"\n#include "{other}/other.c"\n{main}')
    weights = [str(first / "net_weights.c"), str(other / "other_weights.c")]
    shell(
        "gcc",
        *STRICT,
        "-O0",
        f"-I{first}",
        f"-I{other}",
        "both.c",
        *weights,
        "-pthread",
        "-lm",
        "-o",
        "both",
        cwd=folder,
    )
    shell("./both", cwd=folder)


@pytest.mark.parametrize("threads", ["0", "257", "many", "-1", "1.5"])
def test_numbers_of_threads_that_there_are_not(threads: str) -> None:
    with pytest.raises(DlcError) as caught:
        C.from_spec(Spec.parse(f"c{{threads={threads}}}"))
    message = f"c: option threads: {threads} is neither auto nor a number from 1 to 256"
    assert caught.value.diagnostics[0].message == message


def test_large_networks_are_shared_by_themselves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the estimate as it is."""
    monkeypatch.undo()
    monkeypatch.setattr(dlc.kernel.schedules.parallel, "REGION", 12_000.0)
    found = Bench(folder / "other").compile(light("squeezenet"), folder / "light", target="c{threads=2 lib=none}")
    assert next(found.directory.glob("*.c")).read_text().count("dlc_parallel(dlc_") > 10
