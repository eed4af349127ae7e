"""Text of a hostile model changes no token of the generated files."""

import re
import string
from pathlib import Path

import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.header import c_ports, fill
from dlc_backend_c.names import c_comment, c_string, default_prefix, identifier, parameter, prefix_problem
from dlc_backend_c.parameters import c_parameters, prototype
from hypothesis import example, given
from hypothesis import strategies as st

from dlc import DlcError, Port, Report, Signature, Spec
from dlc.base.types import Type, f32
from dlc.graph import Graph
from tests.backend_c.models import content, plan_of, shell, sums
from tests.conftest import Golden
from tests.tools import COMPILERS, CXX_COMPILERS

HOSTILE = [
    "",
    'y"; */ system("id"); /*',
    "y */ __attribute__((constructor)) static void z(void){} /*",
    "??/\nint injected;",
    "back\\\nslash\\",
    "/*/ nested /* // */",
    "\u202e\u2066reversed\u2069 \u200b\x00\x1b[2J\x7f",
    '%s %n \x01"9',
    "int",
    "MODEL_OK",
    "9 lives",
    "\ud800 lone",
    "naïve 名前 🦀",
    "#[[ ]] ${PATH} $<TARGET:x>",
]
WORD = frozenset(string.ascii_letters + string.digits + "_")
TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<line>\n)|(?P<space>[ \t]+)
      |(?P<word>[A-Za-z_0-9]\w*)|(?P<sign>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def tokens(text: str) -> list[str]:
    """What a compiler sees: phase 1 and 2 (trigraphs, continued lines) first; strings and words by kind."""
    text = text.replace("??/", "\\").replace("\\\n", "")
    kinds = {"comment": "", "space": "", "string": '""', "word": "word"}
    found = (kinds.get(m.lastgroup or "", m[0]) for m in TOKEN.finditer(text))
    return [t for t in found if t]


@given(st.text())
@example("*/")
@example("??/")
def test_a_comment_holds_any_text(name: str) -> None:
    text = f"a /* {c_comment(name)} */ b\n# {c_comment(name)}\nc"
    assert tokens(text) == tokens("a b\n# x\nc") or "x" not in tokens(text)
    assert c_comment(name).isascii() and c_comment(name).isprintable()
    assert tokens(f"a /* {c_comment(name)} */ b") == ["word", "word"]


@given(st.text(max_size=120), st.text(max_size=120))
def test_comments_of_different_names_differ(a: str, b: str) -> None:
    assert (c_comment(a) == c_comment(b)) == (a == b)


@given(st.text())
@example("\ud800")
@example('"??/')
def test_a_string_holds_any_text_and_gives_it_back(name: str) -> None:
    literal = c_string(name)
    assert literal.isascii() and tokens(literal) == ['""'] and "??" not in literal
    back = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), literal[1:-1].encode())
    assert back == name.encode("utf-8", "surrogatepass")


@given(st.lists(st.text(), max_size=8))
def test_identifiers_are_words_and_unique(names: list[str]) -> None:
    taken: list[str] = []
    for name in names:
        taken.append(identifier(name, "x", taken))
    assert all(set(t) <= WORD and not t[0].isdigit() and not t.startswith("_") for t in taken)
    assert len(set(taken)) == len(taken)


@given(st.lists(st.text(), max_size=8))
@example(["A", "A", "NULL", "I", "int", "MODEL_OK", "Model_x", "N1", "arena", "a b", "a_b"])
def test_parameters_are_called_like_tensors_but_are_no_macros(names: list[str]) -> None:
    taken: list[str] = []
    for name in names:
        taken.append(parameter(name, taken, "MODEL"))
    assert len(set(taken)) == len(taken)
    assert not {"NULL", "I", "int", "MODEL_OK", "N1", "arena"} & set(taken)
    assert all(len(t) == 1 or t.upper() != t or t.endswith("_") or t[-1].isdigit() for t in taken)


def test_a_plain_name_stays_what_it_is() -> None:
    plain = ["A", "dB", "x_2", "out", "Image"]
    assert [parameter(name, (), "BLUR") for name in plain] == plain


@given(st.text())
@example("m")
@example("int")
@example("a" * 47 + "_b")
def test_a_prefix_from_a_model_is_one_that_a_user_may_write(name: str) -> None:
    assert prefix_problem(default_prefix(name)) == ""


@pytest.mark.parametrize("prefix", ["9x", "a-b", "_x", "int", "m", "x" * 49, "é"])
def test_a_prefix_that_is_no_identifier_is_refused(prefix: str) -> None:
    with pytest.raises(DlcError, match="option prefix: "):
        C.from_spec(Spec("c", (("prefix", prefix),)))


def header(names: tuple[str, str]) -> str:
    ports = [Port(n, Type(f32, (2,))) for n in names]
    inputs, outputs = c_ports(ports, ports)
    parameters = c_parameters(Signature(tuple(ports), tuple(ports), ((0, 0),)), inputs, outputs, "M")
    values: dict[str, object] = dict.fromkeys(("version", "options", "model_sha256", "weights_sha256"), "1")
    values |= dict.fromkeys(("abi", "align", "arena_bytes", "weights_bytes"), 64)
    values |= {"p": "m", "P": "M", "title": names[0], "plugins": {names[0]: names[1]}, "weights_file": "f"}
    values |= {
        "set_weights": True,
        "threads": 1,
        "auto": False,
        "pool": "",
        "static_arena": False,
        "regions": {},
        "consumed": [],
        "memory_parameter": "void *arena",
        "inputs": inputs,
        "outputs": outputs,
        "steps": 5,
        "profiled": True,
        "stepped": True,
        "sections": {"weights": ".flash", "arena": ".dtcm"},
    }
    values |= {
        "aliases": ((0, 0),),
        "parameters": parameters,
        "prototype": prototype("m_call", parameters, after=["void *arena"]),
    }
    values |= {"arena_function": "", "arena_formula": "", "arena_unlimited": False}
    values |= {
        "asks_for_arena": True,
        "checked": ("SHAPE", "INDEX", "LABEL"),
        "finds": True,
        "arena_unlimited": False,
        "most_parameters": 127,
        "width": 9,
    }
    return fill("model.h.j2", values).decode("ascii")


@given(st.tuples(st.text(), st.text()))
def test_a_header_has_the_same_tokens_whatever_the_names(names: tuple[str, str]) -> None:
    assert tokens(header(names)) == tokens(header(("x", "y")))


def with_origins(graph: Graph, names: tuple[str, ...]) -> Graph:
    origins = {op.digest: names for op in graph.ops if op.operands}
    return Graph(graph.inputs, graph.outputs, graph.names, origins=origins)


@pytest.mark.parametrize("name", HOSTILE)
def test_sources_have_the_same_tokens_whatever_the_names(name: str) -> None:
    backend = C.from_spec(Spec.parse("c{weights=text cpu=generic}"))
    plain = backend.emit(plan_of(with_origins(sums(), ("node",))), Report())
    graph = with_origins(sums("a" + name, "b" + name, "y" + name), (name or "node", name or "node"))
    hostile = backend.emit(plan_of(graph), Report())
    written = ("model.h", "model.hpp", "model.c", "model_weights.c", "CMakeLists.txt", "modelConfig.cmake", "model.pc")
    for file in written:
        assert tokens(content(hostile, file).decode("ascii")) == tokens(content(plain, file).decode("ascii")), file


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.uses(*CXX_COMPILERS)
def test_hostile_sources_compile_and_define_nothing_else(cc: str, tmp_path: Path) -> None:
    everything = " ".join(HOSTILE)
    graph = with_origins(sums(everything, everything + "b", everything), tuple(n for n in HOSTILE if n))
    artifact = C.from_spec(Spec.parse("c{cpu=generic lib=none}")).emit(plan_of(graph), Report())
    for name in ("model.h", "model.c"):
        (tmp_path / name).write_bytes(content(artifact, name))
    shell(cc, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wtrigraphs", "-c", "model.c", cwd=tmp_path)
    defined = shell("nm", "--defined-only", "--extern-only", "model.o", cwd=tmp_path).split()
    assert defined[2::3] == ["model_call", "model_run"]
    assert ".init_array" not in shell("objdump", "-h", "model.o", cwd=tmp_path)
    quiet = ("-Wall", "-Werror", "-Wno-unused-function", "-fsyntax-only")
    for cxx in CXX_COMPILERS:
        shell(cxx, "-x", "c++", *quiet, "model.h", cwd=tmp_path)


def test_a_hostile_model_looks_like_this(golden: Golden) -> None:
    graph = with_origins(sums(HOSTILE[1], HOSTILE[6], HOSTILE[2]), (HOSTILE[2], HOSTILE[3]))
    artifact = C.from_spec(Spec.parse("c{cpu=generic}")).emit(plan_of(graph), Report())
    source = content(artifact, "model.c").decode("ascii")
    main = source[source.index("/*=== main ===*/") : source.index("/*=== end ===*/")]
    golden("hostile_main.c.txt", re.sub("dlc_k_[0-9a-f]{16}", "dlc_k_DIGEST", main))
    golden("hostile.h.txt", content(artifact, "model.h").decode("ascii"))
