"""Text of a graph names large constants by digest: what is built of it has random values, and says so every time."""

from pathlib import Path

import pytest

from tests.cli.conftest import Dlc

GRAPH = """graph(%0 "x": f32[2,2]) {
  %1 = constant() tensor=f32[2,2]:23836088a9bbec154357ebeff673513c name="w1"
  %2 = mat_mul(%0, %1)
  %3 = constant() tensor=f32[2,2]:161ba531dd261954c54f7bec915d9122 name="w2"
  %4 = mat_mul(%2, %3)
  return %4 "y"
}
"""
WARNING = "warning[random-constants]: 2 constants whose values are not in the text get random values, 32 bytes"
BUILD = ("-t", "c{lib=none}", "-o", "out")


@pytest.fixture(autouse=True)
def graph() -> None:
    Path("g.dlc").write_text(GRAPH)


def test_every_build_warns_also_one_from_the_cache(dlc: Dlc) -> None:
    first = dlc("build", "g.dlc", *BUILD, "-q")
    assert first.code == 0
    assert first.err.startswith(f"{WARNING}\n  from  g.dlc\n  note  f32[2,2] 23836088a9bbec154357ebeff673513c\n")
    assert dlc("build", "g.dlc", *BUILD, "-q").err == first.err
    Path("h.dlc").write_text(GRAPH)
    (found,) = dlc("build", "h.dlc", *BUILD, "-q", "--json").document["diagnostics"]
    assert (found["code"], found["severity"]) == ("random-constants", "warning")
    assert found["location"] == {"source": "h.dlc"}, "the cached result is that of g.dlc"


def test_it_can_be_refused(dlc: Dlc) -> None:
    ran = dlc("build", "g.dlc", *BUILD, "--set", "dlc.weights=refuse")
    assert ran.code == 1
    assert "is not at hand" in ran.err
    assert not Path("out").exists()


def test_values_in_the_text_need_no_warning(dlc: Dlc) -> None:
    Path("g.dlc").write_text('graph(%0 "x": f32[2]) {\n  %1 = add(%0, %0)\n  return %1 "y"\n}\n')
    assert dlc("build", "g.dlc", *BUILD, "-q").err == ""


def test_a_pass_alone_notes_it(dlc: Dlc) -> None:
    ran = dlc("opt", "g.dlc", "-p", "simplify")
    assert ran.err.startswith(f"{WARNING.replace('warning', 'note')}\n  from  g.dlc\npass ")
    assert dlc("opt", "g.dlc", "-p", "simplify", "-q").err == ""
