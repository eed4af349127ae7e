"""Headers are ready for Rust: bindgen translates every declaration, and what it writes calls a program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dlc_backend_c.backend import C

from dlc import Artifact, Report, Spec
from tests.backend_c.models import content, plan_of, shell, small_net
from tests.backend_c.test_cxx import rows
from tests.backend_c.test_training_text import emitted, named

OPTIONS = ("steps=yes profile=yes threads=4 pool=caller weights=map", "check=inputs threads=auto")
MAIN = """\
#![allow(non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code)]
include!("net.rs");

#[repr(align(64))]
struct Arena([u8; NET_ARENA_BYTES as usize]);

fn main() {
    let x = [0.25f32; NET_INPUT_0_SIZE as usize];
    let mut p = [0f32; NET_OUTPUT_0_SIZE as usize];
    let mut f = [0f32; NET_OUTPUT_1_SIZE as usize];
    let mut arena = Arena([0; NET_ARENA_BYTES as usize]);
    let memory = arena.0.as_mut_ptr() as *mut std::os::raw::c_void;
    unsafe {
        assert_eq!(net_call(x.as_ptr(), p.as_mut_ptr(), f.as_mut_ptr(), std::ptr::null_mut()), NET_ERROR_NULL as i32);
        assert_eq!(net_call(x.as_ptr(), p.as_mut_ptr(), f.as_mut_ptr(), memory), NET_OK as i32);
    }
    assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-5);
}
"""


def emit(options: str) -> Artifact:
    graph = rows() if "auto" in options else small_net()
    return C.from_spec(Spec.parse(f"c{{cpu=generic lib=none prefix=net {options}}}")).emit(plan_of(graph), Report())


@pytest.fixture(scope="module")
def headers() -> list[str]:
    """Of programs with every kind of function."""
    artifacts = [*map(emit, OPTIONS), emitted(named(), "accumulate=2")]
    return [content(a, "net.h").decode("ascii") for a in artifacts]


def functions(header: str) -> list[str]:
    return re.findall(r"^NET_API [\w ]+?\**(\w+)\(", header, re.MULTILINE)


def translated(place: Path) -> str:
    """What bindgen makes of the header, in one line and without layout."""
    made = shell("bindgen", "--no-rustfmt-bindings", "net.h", cwd=place)
    return re.sub(r" ?([(){}:;,*<>=\[\]]) ?", r"\1", re.sub(r"\s+", " ", made))


@pytest.mark.needs("bindgen")
def test_bindgen_translates_everything(headers: list[str], tmp_path: Path) -> None:
    for header in headers:
        (tmp_path / "net.h").write_text(header)
        made = translated(tmp_path)
        assert functions(header) and re.findall(r"pub fn (net_\w+)", made) == functions(header)
        numbers = re.findall(r"^#define (\w+) \(?-?\d+\)?(?: +/\*.*)?$", header, re.MULTILINE)
        assert len(numbers) > 15 and sorted(re.findall(r"pub const (NET_\w+):[iu](?:32|64)=", made)) == sorted(numbers)
        # What it would leave out or could not name, and types whose width is that of the machine.
        code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
        assert not re.search(r"\b(static|inline|union|enum)\b|^#define \w+\(", code, re.MULTILINE)
        own = "".join(re.findall(r"pub struct net_\w+\{.*?\}|pub fn net_\w+\(.*?;", made))
        assert functions(header)[-1] in own and not re.search(r"c_u?(long|short|char)|bindgen_|__", own)


@pytest.mark.needs("bindgen", "rustc")
def test_rust_calls_a_program(tmp_path: Path) -> None:
    artifact = emit("weights=text")
    for name in ("net.h", "net.c", "net_weights.c"):
        (tmp_path / name).write_bytes(content(artifact, name))
    shell("gcc", "-std=c99", "-O0", "-c", "net.c", "net_weights.c", cwd=tmp_path)
    shell("ar", "rcs", "libnet.a", "net.o", "net_weights.o", cwd=tmp_path)
    (tmp_path / "net.rs").write_text(shell("bindgen", "--no-rustfmt-bindings", "net.h", cwd=tmp_path))
    (tmp_path / "main.rs").write_text(MAIN)
    link = ("-L", ".", "-l", "static=net", "-l", "m", "--cap-lints", "allow")
    shell("rustc", "main.rs", "-o", "run", *link, cwd=tmp_path)
    shell("./run", cwd=tmp_path)
