"""Training programs from C: a harness without heap learns what PyTorch learns, and every refusal is tried."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from dlc_backend_c.backend import C
from dlc_backend_c.target import target_for

from dlc import Report, Spec
from dlc.base.types import Array
from dlc.runtime.install import install
from tests.backend_c.bundles import bundle_of
from tests.backend_c.models import Bench, shell
from tests.backend_c.test_abi import FORBIDDEN, defined
from tests.tools import COMPILERS, CXX_COMPILERS, SANITIZE, SANITIZING
from tests.training.nets import NETS, module_of, torch_step

PROGRAM = Path(__file__).parent / "programs" / "train.c"
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wshadow")
CHECKED = ("-DHEAP", "-O1", "-g", *SANITIZE)
MAPPED = """
    static unsigned char room[NET_WEIGHTS_BYTES + NET_ARENA_ALIGN];
    unsigned char *const weights = room + (size_t)(-(uintptr_t)room % NET_ARENA_ALIGN);
    FILE *const file = fopen(NET_WEIGHTS_FILE, "rb");
    CHECK(net_init(&t) == NET_ERROR_WEIGHTS);
    CHECK(file && fread(weights, 1, NET_WEIGHTS_BYTES, file) == NET_WEIGHTS_BYTES && fclose(file) == 0);
    CHECK(net_set_weights(weights) == NET_OK);
"""
STEPS = 12
FUNCTIONS = {f"net_{n}{run}" for n in ("train_step", "evaluate", "predict") for run in ("", "_run")}
INTERFACE = FUNCTIONS | {f"net_{n}" for n in ("init", "save", "load")}
FINAL = INTERFACE | {"net_gradients", "net_gradients_run", "net_update"}
ADAM = "optimizer=adam{lr=0.01}"


def literal(values: Array) -> str:
    words = [f"{v:.9g}" if values.dtype.kind == "f" else str(v) for v in values.ravel().tolist()]
    return ", ".join(
        f"{w}f" if "." in w else f"{w}.0f" if values.dtype.kind == "f" and "e" not in w else w for w in words
    )


def write_data(place: Path, name: str) -> None:
    batches = NETS[name].batches(STEPS)
    xs, ys = (", ".join(f"{{{literal(b[k])}}}" for b in batches) for k in (0, 1))
    text = f"#define STEPS {STEPS}\nstatic const float data_x[STEPS][NET_INPUT_0_SIZE] = {{{xs}}};\n"
    (place / "data.h").write_text(text + f"static const int64_t data_y[STEPS][NET_LABEL_SIZE] = {{{ys}}};\n")


def emitted(place: Path, name: str, options: str, spec: str) -> None:
    """Sources of a training program, and of the harness that trains it."""
    net = NETS[name]
    bundle = bundle_of(net.graph(module_of(net)), options)
    install(C.from_spec(Spec.parse(f"c{{prefix=net lib=none {spec}}}")).emit_training(bundle, Report()), place)
    write_data(place, name)
    setup = MAPPED if "weights=map" in spec else ""
    (place / "main.c").write_text(PROGRAM.read_text().replace("SETUP", setup))


def trained(place: Path, cc: str, spec: str, flags: Sequence[str]) -> Array:
    """What the harness prints: the loss of each step, then the outputs for the first batch."""
    own = ("-DOWN_ARENA",) if "arena=static" in spec else ()
    sources = [p.name for p in (place / "net_weights.S", place / "net_weights.c") if p.exists()]
    shell(cc, *STRICT, *own, *flags, "main.c", "net.c", *sources, "-o", "run", "-lm", cwd=place)
    return np.array(shell("./run", cwd=place).split(), np.float32)


def learnt(name: str) -> Array:
    """The same of PyTorch."""
    net = NETS[name]
    module, batches = module_of(net), net.batches(STEPS)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    losses = [torch_step(module, optimizer, x, y) for x, y in batches]
    with torch.no_grad():
        scores = module(torch.from_numpy(batches[0][0])).numpy()  # pyright: ignore[reportUnknownMemberType]
    return np.array([*losses, *scores.ravel()], np.float32)


@pytest.mark.parametrize(
    ("cc", "updates", "spec"),
    [
        ("gcc", "final", "cpu=generic"),
        *[(cc, "immediate", "weights=text arena=static cpu=generic") for cc in COMPILERS[1:]],
        ("gcc", "immediate", "weights=map cpu=generic math=ordered"),
        *[(cc, "final", "cpu=native") for cc in COMPILERS[1:]],
    ],
)
@pytest.mark.uses("clang")
def test_a_program_without_heap_learns_what_pytorch_learns(cc: str, updates: str, spec: str, tmp_path: Path) -> None:
    emitted(tmp_path, "mlp", f"{ADAM} updates={updates}", spec)
    own = ("-DOWN_ARENA",) if "arena=static" in spec else ()
    native = [f for f in target_for("native" if "native" in spec else "generic").flags if f.startswith("-m")]
    for other in {*COMPILERS} - {cc}:
        shell(other, *STRICT, *native, *own, "-fsyntax-only", "main.c", "net.c", cwd=tmp_path)
    got = trained(tmp_path, cc, spec, ("-O1", *native))
    np.testing.assert_allclose(got, learnt("mlp"), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("cc", SANITIZING)
@pytest.mark.parametrize("options", [ADAM, f"{ADAM} updates=immediate"])
def test_sanitizers_find_nothing(cc: str, options: str, tmp_path: Path) -> None:
    emitted(tmp_path, "conv", options, "cpu=generic")
    got = trained(tmp_path, cc, "cpu=generic", CHECKED)
    np.testing.assert_allclose(got, learnt("conv"), rtol=2e-5, atol=2e-6)


def test_steps_that_are_summed_are_clean_too(tmp_path: Path) -> None:
    emitted(tmp_path, "conv", f"{ADAM} accumulate=3 clip=0.5", "cpu=generic arena=static weights=text")
    got = trained(tmp_path, "gcc", "arena=static", CHECKED)
    assert np.isfinite(got).all() and got[0] == pytest.approx(learnt("conv")[0])


@pytest.mark.parametrize("updates", ["final", "immediate"])
@pytest.mark.uses(*CXX_COMPILERS)
def test_the_header_is_one_of_cxx(updates: str, tmp_path: Path) -> None:
    emitted(tmp_path, "mlp", f"updates={updates}", "cpu=generic")
    (tmp_path / "use.cpp").write_text(
        '#include "net.h"\n#include "net.h"\nint main() { return net_init(nullptr) - NET_ERROR_NULL; }\n'
    )
    shell("gcc", "-std=c99", "-O0", "-Wno-psabi", "-c", "net.c", "net_weights.S", cwd=tmp_path)
    for cxx in CXX_COMPILERS:
        strict = ("-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fno-exceptions", "-fno-rtti")
        shell(cxx, *strict, "-c", "use.cpp", cwd=tmp_path)
        shell("gcc", "use.o", "net.o", "net_weights.o", "-o", "use", "-lm", cwd=tmp_path)
        shell("./use", cwd=tmp_path)


@pytest.mark.parametrize("updates", ["final", "immediate"])
@pytest.mark.parametrize(("lib", "spec"), [("shared", ""), ("static", "weights=map arena=static"), ("none", "")])
def test_nothing_but_the_interface_is_seen_and_no_heap_is_used(
    updates: str, lib: str, spec: str, bench: Bench, tmp_path: Path
) -> None:
    backend = C.from_spec(Spec.parse(f"c{{prefix=net lib={lib} {spec}}}"))
    net = NETS["conv"]
    artifact = backend.emit_training(bundle_of(net.graph(module_of(net)), f"{ADAM} updates={updates}"), Report())
    install(backend.build(artifact, bench), tmp_path)
    if lib == "none":
        shell("cc", "-std=c99", "-O0", "-Wno-psabi", "-c", "net.c", cwd=tmp_path)
    file, options = {"shared": ("libnet.so", ["--dynamic"]), "static": ("libnet.a", []), "none": ("net.o", [])}[lib]
    wanted = {*(FINAL if updates == "final" else INTERFACE), *(["net_set_weights"] if "map" in spec else [])}
    assert {name for _, name in defined(file, tmp_path, *options)} == wanted
    undefined = shell("nm", *options, "--undefined-only", file, cwd=tmp_path)
    assert not FORBIDDEN.search(undefined), undefined
    if lib == "none":  # no variable that a call could leave something in
        assert not re.findall(r" [bBdD] ", shell("nm", file, cwd=tmp_path))
