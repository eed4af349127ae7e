"""Libraries: right numbers from every compiler and option, only the interface exported, equal bytes each time."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.sections import join, split, units
from dlc_backend_c.toolchain import fingerprint

from dlc import DlcError, ExitCode, Report, Spec
from dlc.base.diagnostics import render
from dlc.base.types import Type, f32
from dlc.graph import Call, Input, evaluate, make_graph
from dlc.kernel.text import parse_kernel
from dlc.ops.elementwise import Exp, Relu
from dlc.runtime.install import install
from tests.backend_c.conftest import Compile
from tests.backend_c.models import Array, Bench, content, numbers, plan_of, shell, small_net, sums
from tests.tools import COMPILERS, SANITIZE, SANITIZING

OPTIONS = ["", "cpu=generic", "weights=text", "weights=map", "arena=static", "prefix=net jobs=1 flags=-O1,-g"]
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror")

DRIVER = """\
#include "PREFIX.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    float x[MACRO_INPUT_0_SIZE], p[MACRO_OUTPUT_0_SIZE], f[MACRO_OUTPUT_1_SIZE];
    unsigned char *room = malloc(MACRO_ARENA_BYTES + 64);
    unsigned char *arena = room + (64 - (size_t)room % 64) % 64;
    const void *inputs[] = {x};
    void *outputs[] = {p, f};
    size_t k;
    for (k = 0; k < MACRO_INPUT_0_SIZE; k++)
        x[k] = (float)((double)(k % 13) / 8 - 0.5);
    memset(arena, 0xa5, MACRO_ARENA_BYTES);
    if (PREFIX_call(x, p, f, arena) != MACRO_OK || PREFIX_run(inputs, outputs, arena) != MACRO_OK)
        return 1;
    outputs[1] = NULL;
    if (PREFIX_run(inputs, outputs, arena) != MACRO_ERROR_NULL || PREFIX_run(NULL, outputs, arena) != MACRO_ERROR_NULL)
        return 2;
    outputs[1] = (char *)f + 1;
    if (PREFIX_run(inputs, outputs, arena) != MACRO_ERROR_ALIGNMENT)
        return 3;
    if (PREFIX_call(x, p, f, arena + 4) != MACRO_ERROR_ALIGNMENT || PREFIX_call(x, p, f, NULL) != MACRO_ERROR_NULL)
        return 4;
    for (k = 0; k < MACRO_OUTPUT_0_SIZE; k++)
        printf("%.9g\\n", (double)p[k]);
    free(room);
    return 0;
}
"""
EXAMPLE = ((np.arange(192) % 13) / 8 - 0.5).astype(np.float32).reshape(1, 3, 8, 8)


def driver(prefix: str) -> str:
    return DRIVER.replace("PREFIX", prefix).replace("MACRO", prefix.upper())


def printed(text: str) -> Array:
    return np.array(text.split(), np.float32)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("options", OPTIONS)
def test_numbers_are_those_of_the_reference(cc: str, options: str, compile_model: Compile, tmp_path: Path) -> None:
    graph = small_net()
    compile_model(graph, f"c{{cc={cc} {options}}}", tmp_path)
    x = numbers(1, 3, 8, 8, seed=3)
    got = C().load(tmp_path)(x=x)
    for name, want in evaluate(graph, {"x": x}).items():
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "nest",
    ["i0<40: r0[i0] = p0[i0]*2.0 if i0 % 3 == 0", "i0<20: r0[i0] = p0[i0]*2.0", "i0<40: r0[i0] = p0[i0]*p0[39-i0]"],
)
def test_a_step_that_may_not_work_in_place_does_not(nest: str, compile_model: Compile, tmp_path: Path) -> None:
    """Parts that a nest leaves out become zero, and what it reads elsewhere must still be there."""
    kernel = parse_kernel(f"kernel(p0: f32[40]) -> (r0: f32[40]) {{ {nest} }}")
    x = Input("x", Type(f32, (40,)))
    graph = make_graph((x,), {"y": Relu(Call(kernel, (Exp(x),)))})
    compile_model(graph, "c{}", tmp_path)
    feeds = {"x": numbers(40)}
    np.testing.assert_allclose(C().load(tmp_path)(feeds)["y"], evaluate(graph, feeds)["y"], rtol=1e-5)


@pytest.mark.parametrize("arena", ["caller", "static"])
def test_kernels_work_in_the_planned_arena(arena: str, compile_model: Compile, tmp_path: Path) -> None:
    nests = "i0<4000 i1<9: t0[i0] += p0[i1]*p0[i0]\n i0<4000 i1<9: r0[i0] += t0[i1]*p0[i0]"
    kernel = parse_kernel(f"kernel(p0: f32[4000]) -> (r0: f32[4000]) local(t0: f32[4000]) {{ {nests} }}")
    x = Input("x", Type(f32, (4000,)))
    graph = make_graph((x,), {"y": Call(kernel, (Exp(x),))})
    facts = compile_model(graph, f"c{{arena={arena}}}", tmp_path).facts
    assert facts["arena"] == facts["bound"] == facts["arena_bytes"] == 32000 and facts["workspace_bytes"] == 16000
    feeds = {"x": numbers(4000)}
    np.testing.assert_allclose(C().load(tmp_path)(feeds)["y"], evaluate(graph, feeds)["y"], rtol=1e-4)


@pytest.mark.parametrize("cc", SANITIZING)
@pytest.mark.parametrize("cpu", ["native", "generic"])
def test_sources_alone_make_a_clean_program(cc: str, cpu: str, tmp_path: Path) -> None:
    """One command, every warning an error, both sanitizers, no library of ours."""
    graph = small_net()
    install(C.from_spec(Spec.parse(f"c{{cpu={cpu} lib=none}}")).emit(plan_of(graph), Report()), tmp_path)
    (tmp_path / "main.c").write_text(driver("model"))
    # Without the flags that the file's head asks for, gcc notes how it would pass vectors to others.
    strict = (*STRICT, "-pedantic") if cpu == "generic" else (*STRICT, "-Wno-psabi")
    check = ("-O1", *SANITIZE, "-fno-omit-frame-pointer")
    shell(cc, *strict, *check, "main.c", "model.c", "model_weights.S", "-o", "run", "-lm", cwd=tmp_path)
    want = evaluate(graph, {"x": EXAMPLE})["probabilities"]
    np.testing.assert_allclose(printed(shell("./run", cwd=tmp_path)), want.ravel(), rtol=1e-4)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("weights", ["incbin", "text"])
def test_two_models_link_into_one_program(cc: str, weights: str, compile_model: Compile, tmp_path: Path) -> None:
    """They share kernels by name, so those must be local to each archive."""
    graphs = {"first": small_net(), "second": small_net(seed=5)}
    for name, graph in graphs.items():
        compile_model(graph, f"c{{cc={cc} lib=static prefix={name} weights={weights}}}", tmp_path)
        (tmp_path / f"{name}_main.c").write_text(driver(name).replace("int main(void)", f"int {name}_main(void)"))
    both = "int first_main(void);\nint second_main(void);\nint main(void) { return first_main() || second_main(); }\n"
    (tmp_path / "main.c").write_text(both)
    sources = ("main.c", "first_main.c", "second_main.c", "libfirst.a", "libsecond.a")
    shell(cc, *sources, "-o", "run", "-lm", cwd=tmp_path)
    want = [evaluate(g, {"x": EXAMPLE})["probabilities"].ravel() for g in graphs.values()]
    np.testing.assert_allclose(printed(shell("./run", cwd=tmp_path)), np.concatenate(want), rtol=1e-4)


@pytest.mark.parametrize(("lib", "file"), [("shared", "libnet.so"), ("static", "libnet.a")])
def test_nothing_but_the_interface_is_exported(lib: str, file: str, compile_model: Compile, tmp_path: Path) -> None:
    compile_model(small_net(), f"c{{lib={lib} prefix=net weights=map}}", tmp_path)
    dynamic = ["--dynamic"] if lib == "shared" else []
    listed = shell("nm", *dynamic, "--defined-only", "--extern-only", file, cwd=tmp_path)
    assert re.findall(r" [A-Z] (\S+)$", listed, re.MULTILINE) == ["net_call", "net_run", "net_set_weights"]
    undefined = shell("nm", *dynamic, "--undefined-only", file, cwd=tmp_path)
    assert not re.search(r"\b(malloc|calloc|free|printf|fopen|abort)\b", undefined)


def test_flags_do_not_change_the_arithmetic_of_the_process(compile_model: Compile, tmp_path: Path) -> None:
    """Linked with -ffast-math, a library makes its process take tiny numbers for zero."""
    compile_model(small_net(), "c{prefix=net flags=-ffast-math}", tmp_path)
    tiny = "import ctypes, numpy; ctypes.CDLL('./libnet.so'); print(numpy.float32(1e-40) * numpy.float32(0.5) > 0)"
    assert shell(sys.executable, "-c", tiny, cwd=tmp_path).strip() == "True"


def test_other_names_and_weights_are_no_reason_to_compile(compile_model: Compile) -> None:
    """Not even for the unit that calls the kernels: header and source differ in names, comments and digests only."""
    bench = Bench()
    first = compile_model(small_net(), "c{prefix=net}", workshop=bench)
    made = len(bench.made)
    for graph in (small_net(seed=4), small_net('*/ "/*x')):
        other = compile_model(graph, "c{prefix=net}", workshop=bench)
        assert content(other, "net.h") != content(first, "net.h")
    assert len(bench.made) == made


def test_a_kernel_is_compiled_once_across_models(compile_model: Compile) -> None:
    bench = Bench()
    compile_model(small_net(), "c{prefix=one}", workshop=bench)
    first = list(bench.made)
    compile_model(small_net(seed=9), "c{prefix=two}", workshop=bench)
    assert bench.made[len(first) :] == ["main"]
    compile_model(small_net(), "c{prefix=one flags=-O1}", workshop=bench)
    assert len(bench.made) == 2 * len(first) + 1


BUILD = """
import sys
from pathlib import Path
from dlc_backend_c.backend import C
from dlc import Report, Spec
from dlc.runtime.install import install
from tests.backend_c.models import Bench, plan_of, small_net
backend = C.from_spec(Spec.parse(sys.argv[1]))
install(backend.build(backend.emit(plan_of(small_net()), Report()), Bench()), Path(sys.argv[2]))
"""


@pytest.mark.parametrize("spec", ["c{flags=-g}", f"c{{cc={COMPILERS[-1]} lib=static weights=text}}"])
def test_bytes_depend_on_contents_only(spec: str, tmp_path: Path) -> None:
    """Another directory, temporary directory, hash seed, locale and number of compilers."""
    found: list[dict[str, bytes]] = []
    for name, seed, locale, jobs in (("a", "1", "C", ""), ("other place", "77", "C.UTF-8", " jobs=2")):
        out, temporary = tmp_path / name, tmp_path / f"tmp {seed}"
        temporary.mkdir()
        paths = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"], "TMPDIR": str(temporary)}
        environment = {**paths, "PYTHONHASHSEED": seed, "LC_ALL": locale, "CPATH": str(tmp_path)}
        subprocess.run([sys.executable, "-c", BUILD, f"{spec[:-1]}{jobs}}}", str(out)], env=environment, check=True)
        found.append({path.name: path.read_bytes() for path in out.iterdir()})
        assert not list(temporary.iterdir())
    assert found[0].keys() == found[1].keys()
    assert [name for name in found[0] if found[0][name] != found[1][name]] == []
    assert not [name for name, data in found[0].items() if str(tmp_path).encode() in data]


def test_the_manifest_describes_every_file(compile_model: Compile, tmp_path: Path) -> None:
    artifact = compile_model(small_net(), "c{cc=/usr/bin/gcc}", tmp_path)
    manifest = json.loads(content(artifact, "manifest.json"))
    assert manifest["files"].keys() | {"manifest.json"} == {p.name for p in tmp_path.iterdir()}
    assert all(manifest["files"][n]["bytes"] == len(content(artifact, n)) for n in manifest["files"])
    assert manifest["memory"]["arena_bytes"] >= manifest["memory"]["bound"] > 0
    assert manifest["target"].startswith('c{cc="" cpu=native')
    assert not re.search(r'"/|[ =]/', content(artifact, "manifest.json").decode())


def test_units_hold_the_sections_of_the_file() -> None:
    source = content(C().emit(plan_of(small_net()), Report()), "model.c").decode()
    sections = split(source)
    assert [s.kind for s in sections[:2]] == ["head", "prelude"] and [s.kind for s in sections[-2:]] == ["main", "end"]
    assert split(join([s for s in sections if s.kind != "head"])) == [s for s in sections if s.kind != "head"]
    assert [u.name for u in units(source)] == [*(s.name for s in sections if s.kind == "kernel"), "main"]


# ---- errors ----------------------------------------------------------------------------------------------------------


def failure(spec: str) -> DlcError:
    backend = C.from_spec(Spec.parse(spec))
    with pytest.raises(DlcError) as found:
        backend.build(backend.emit(plan_of(sums()), Report()), Bench())
    assert found.value.exit_code == ExitCode.TOOL
    return found.value


def test_no_compiler_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    text = str(failure("c{}"))
    assert "no C compiler found" in text and "gcc and clang" in text and "apt install gcc" in text
    C.from_spec(Spec.parse("c{lib=none}")).toolchain()


def test_a_compiler_that_is_not_there_or_not_executable(tmp_path: Path) -> None:
    assert "the C compiler acme-cc is not installed" in str(failure("c{cc=acme-cc}"))
    (tmp_path / "cc").write_text("#!/bin/sh\n")
    assert "not executable" in str(failure(f'c{{cc="{tmp_path}/cc"}}'))


def test_a_compiler_that_fails_is_quoted() -> None:
    (problem,) = failure("c{flags=-fno-such-flag}").diagnostics
    assert "gcc failed with status 1 while compiling" in problem.message
    assert any("-fno-such-flag" in note for note in problem.notes)
    assert "/tmp" not in render(problem)


def cross_compiler(place: Path) -> str:
    """A compiler that says that it builds for a small processor, and links no shared libraries for it."""
    script = place / "small-gcc"
    script.write_text(
        """#!/bin/sh
case "$*" in
*-###*) gcc "$@" 2>&1 | sed 's/^Target: .*/Target: arm-none-eabi/' ;;
*-shared*) echo "ld: -shared: no such emulation" >&2; exit 1 ;;
*) exec gcc "$@" ;;
esac
"""
    )
    script.chmod(0o755)
    return str(script)


def test_a_cross_compiler_without_shared_libraries(tmp_path: Path) -> None:
    """What it cannot link is reported as that, with what it can do."""
    cc = cross_compiler(tmp_path)
    (problem,) = failure(f'c{{cc="{cc}" cpu=generic lib=shared}}').diagnostics
    assert problem.message == "small-gcc failed with status 1 while linking libmodel.so"
    assert problem.notes == ("ld: -shared: no such emulation",)
    assert "builds for arm-none-eabi" in problem.help and "c{lib=static}" in problem.help and "bug" not in problem.help
    backend = C.from_spec(Spec.parse(f'c{{cc="{cc}" cpu=generic lib=static}}'))
    assert "libmodel.a" in backend.build(backend.emit(plan_of(sums()), Report()), Bench()).files


def test_a_cross_compiler_for_another_processor(tmp_path: Path) -> None:
    (problem,) = failure(f'c{{cc="{cross_compiler(tmp_path)}" cpu=x86-64-v3 lib=static}}').diagnostics
    assert problem.message == "the compiler small-gcc builds for arm-none-eabi, not for x86-64-v3 (x86_64)"
    assert "c{cpu=generic}" in problem.help


def test_a_plan_without_places_is_refused() -> None:
    plan = plan_of(small_net())
    with pytest.raises(DlcError, match="plan-memory"):
        C().emit(type(plan)(plan.graph, plan.steps), Report())


def test_a_program_without_a_build_id_is_named_by_its_digest(tmp_path: Path) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\n")
    assert fingerprint(str(script)) == f"sha256 {hashlib.sha256(script.read_bytes()).hexdigest()}"
    assert fingerprint(shutil.which("gcc") or "") != fingerprint(shutil.which("ld") or "")


@pytest.mark.uses("clang")
def test_the_toolchain_names_the_compiler_by_content() -> None:
    text = C.from_spec(Spec.parse("c{cc=gcc cpu=x86-64-v3}")).toolchain()
    assert re.search(r"^cc (build-id [0-9a-f]{40} \d+|sha256 [0-9a-f]{64})$", text, re.MULTILINE)
    assert re.search(r"^cc1 (build-id|sha256) ", text, re.MULTILINE) and re.search(r"^version .*\d", text, re.MULTILINE)
    assert "-march=x86-64-v3" in text and "/" not in text
    for cc in COMPILERS[1:]:
        assert text != C.from_spec(Spec.parse(f"c{{cc={cc} cpu=x86-64-v3}}")).toolchain()
